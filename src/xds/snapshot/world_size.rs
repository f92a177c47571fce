//! The size of a world, by which callers choose the thread that works on it.

use api::model::World;

use super::Snapshot;

/// Bytes of a rule that make as much work as a port of a service. Chosen: hosts stand at each of their ports, so that ten rules with
/// 10,000 short hosts each took the loop five seconds.
const PIECE: usize = 8;
/// Bytes of rules after which nothing more is counted: the work is large by then.
const COUNTED: usize = 100_000;

/// The size of the rules of a world, in pieces of [`PIECE`] bytes, about; of large ones a part.
pub(super) fn rule_pieces(world: &World) -> usize {
    let mut bytes = 0_usize;
    for size in world.rule_sizes() {
        bytes = bytes.saturating_add(size);
        if bytes > COUNTED {
            break;
        }
    }
    bytes / PIECE
}

impl Snapshot {
    /// The size of a world: its ports of services, their addresses and endpoints, and the pieces of its rules, in number.
    #[must_use]
    pub fn size(world: &World) -> usize {
        let services = world.services.values();
        let services = services.map(|service| {
            let addresses: usize = service.addresses.values().map(Vec::len).sum();
            service.ports.len() + addresses
        });
        let shards = world.endpoints.values();
        let endpoints = shards.flat_map(|shards| shards.values());
        let endpoints = endpoints.map(|shard| shard.len()).sum::<usize>();
        services.sum::<usize>() + endpoints + rule_pieces(world)
    }
}
