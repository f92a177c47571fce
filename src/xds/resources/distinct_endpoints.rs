//! Groups of endpoints for programs with gRPC in them: they refuse an assignment that has an address twice, be it in two
//! localities, and one whose levels have a gap.

use std::collections::{BTreeSet, HashMap};

use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::google::protobuf::UInt32Value;

use crate::common::wire::{self, LbEndpoint, LocalityLbEndpoints};

/// An address, and its port.
type AddressAndPort = (String, u32);

/// The indices of a group, and of an endpoint in it.
type Position = (usize, usize);

/// Keeps each address once: in the first level that has it, where it has the weights of its repeats in that level.
pub(super) fn distinct(mut groups: Vec<LocalityLbEndpoints>) -> Vec<LocalityLbEndpoints> {
    groups.sort_by_key(|group| group.priority);
    let mut known: HashMap<AddressAndPort, Position> = HashMap::new();
    let mut all: Vec<LocalityLbEndpoints> = Vec::new();
    for mut group in groups {
        let endpoints = std::mem::take(&mut group.lb_endpoints);
        let of_endpoints = endpoints
            .iter()
            .map(|one| number(one.load_balancing_weight));
        let sum: u64 = of_endpoints.map(u64::from).sum();
        // Weights of groups may be shares, of which an endpoint has a part.
        let factor = (number(group.load_balancing_weight), sum.max(1));
        let at = all.len();
        all.push(group);
        for endpoint in endpoints {
            let first = socket(&endpoint).and_then(|socket| match known.get(&socket) {
                Some(first) => Some(*first),
                None => {
                    let next = all.get(at).map_or(0, |group| group.lb_endpoints.len());
                    known.insert(socket, (at, next));
                    None
                }
            });
            match (first, all.get_mut(at)) {
                (None, Some(group)) => group.lb_endpoints.push(endpoint),
                (Some(first), _) => unite(&mut all, first, at, &endpoint, factor),
                (None, None) => {}
            }
        }
    }
    all.retain(|group| !group.lb_endpoints.is_empty());
    let levels: BTreeSet<u32> = all.iter().map(|group| group.priority).collect();
    for group in &mut all {
        let below = levels.range(..group.priority).count();
        group.priority = u32::try_from(below).unwrap_or(0);
    }
    all
}

/// Adds the weight of a repeat to the first one of its address. `factor`: the weight of its group, and the sum of the group's endpoints.
fn unite(
    all: &mut [LocalityLbEndpoints],
    (group, endpoint): Position,
    at: usize,
    repeat: &LbEndpoint,
    factor: (u32, u64),
) {
    let level = all.get(at).map(|group| group.priority);
    let weight = number(repeat.load_balancing_weight);
    let share = u64::from(weight).saturating_mul(factor.0.into()) / factor.1;
    let share = u32::try_from(share).unwrap_or(u32::MAX);
    if let Some(of_repeat) = all.get_mut(at) {
        let less = number(of_repeat.load_balancing_weight).saturating_sub(share);
        of_repeat.load_balancing_weight = wire::number(less.max(1));
    }
    // It is called for its own level alone.
    let Some(group) = all
        .get_mut(group)
        .filter(|group| Some(group.priority) == level)
    else {
        return;
    };
    let more = number(group.load_balancing_weight).saturating_add(share);
    group.load_balancing_weight = wire::number(more);
    if let Some(first) = group.lb_endpoints.get_mut(endpoint) {
        let more = number(first.load_balancing_weight).saturating_add(weight);
        first.load_balancing_weight = wire::number(more);
    }
}

fn number(weight: Option<UInt32Value>) -> u32 {
    weight.map_or(0, |weight| weight.value)
}

fn socket(endpoint: &LbEndpoint) -> Option<AddressAndPort> {
    let address = endpoint.endpoint.as_ref()?.address.as_ref()?;
    let Address::SocketAddress(socket) = address.address.as_ref()? else {
        return None;
    };
    match socket.port_specifier.as_ref()? {
        PortSpecifier::PortValue(port) => Some((socket.address.clone(), *port)),
        PortSpecifier::NamedPort(_) => None,
    }
}
