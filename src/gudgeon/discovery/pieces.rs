//! Encoded resources of the responses that are on their way, shared by all streams that are sent the same.
//!
//! After a start two thousand proxies are sent the same megabyte, and all of them at once: a copy for each would be two
//! gigabytes, which fragments of what lives longer would keep from being given back. A list of resources is cut where its
//! content says so, so that lists that differ in one resource differ in one piece. A piece is there as long as a stream
//! holds it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use xds::stream::Protocol;
use xds::version::Version;
use xds::view::{Resource, Type};

/// A list is cut behind one in so many of its resources, and behind one that is as long as this.
const RUN: u128 = 32;
const LONG_BYTES: usize = 16 << 10;
/// Fewer are not worth a look at which of them are gone.
const FEW: usize = 64;

/// What a piece is made of. Versions are content.
type Key = (Protocol, Type, Vec<Version>);

/// Pieces that somebody holds.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    pieces: HashMap<Key, Weak<Vec<u8>>>,
    /// As many were there after those that are gone were dropped last.
    held: usize,
}

struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Pieces {
    /// These resources, a few in each piece.
    pub(crate) fn of<'a>(
        &self,
        protocol: Protocol,
        kind: Type,
        resources: &'a [Arc<Resource>],
        encode: impl Fn(&'a [Arc<Resource>]) -> Vec<u8>,
    ) -> Vec<Bytes> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = resources.split_inclusive(|one| is_last(one));
        runs.map(|run| {
            let versions = run.iter().map(|one| one.version).collect();
            known.get((protocol, kind, versions), || encode(run))
        })
        .collect()
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let held = known.pieces.values().filter(|one| one.strong_count() > 0);
        held.count()
    }
}

fn is_last(resource: &Resource) -> bool {
    resource.version.is_one_in(RUN) || resource.body.len() >= LONG_BYTES
}

impl Known {
    fn get(&mut self, key: Key, encode: impl FnOnce() -> Vec<u8>) -> Bytes {
        if let Some(piece) = self.pieces.get(&key).and_then(Weak::upgrade) {
            return Bytes::from_owner(Shared(piece));
        }
        if self.pieces.len() >= FEW + 2 * self.held {
            self.pieces.retain(|_, piece| piece.strong_count() > 0);
            self.held = self.pieces.len();
        }
        let piece = Arc::new(encode());
        self.pieces.insert(key, Arc::downgrade(&piece));
        Bytes::from_owner(Shared(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(count: u32) -> Vec<Arc<Resource>> {
        let one = |at: u32| Arc::new(Resource::new(format!("{at:04}"), format!("body {at}")));
        (0..count).map(one).collect()
    }

    fn encode(run: &[Arc<Resource>]) -> Vec<u8> {
        run.iter().flat_map(|one| one.body.clone()).collect()
    }

    fn of(pieces: &Pieces, resources: &[Arc<Resource>]) -> Vec<Bytes> {
        pieces.of(Protocol::Delta, Type::Cluster, resources, encode)
    }

    #[test]
    fn what_is_equal_is_there_once() {
        let pieces = Pieces::default();
        let mut list = resources(1000);
        let one = of(&pieces, &list);
        assert!(one.len() > 10 && one.len() < 100, "{}", one.len());
        assert_eq!(one.concat(), encode(&list));
        let changed = Arc::new(Resource::new("0500", "another body"));
        list[500] = changed;
        let other = of(&pieces, &list);
        assert_eq!(other.concat(), encode(&list));
        let at = |piece: &Bytes| piece.as_ptr();
        let all: std::collections::BTreeSet<_> = one.iter().chain(&other).map(at).collect();
        assert!(all.len() <= one.len() + 2, "{} {}", all.len(), one.len());
        drop(one);
        assert_eq!(pieces.held(), other.len());
        drop(other);
        assert_eq!(pieces.held(), 0);
    }

    /// Two messages of nothing but a name have the same bytes in any type, and so the same version.
    #[test]
    fn types_and_protocols_are_apart() {
        let pieces = Pieces::default();
        let list = resources(1);
        let kinds = [Type::Endpoint, Type::Route];
        let protocols = [Protocol::StateOfTheWorld, Protocol::Delta];
        let mut all = Vec::new();
        for (at, kind) in kinds.into_iter().enumerate() {
            for (other, protocol) in protocols.into_iter().enumerate() {
                let text = format!("{at} {other}");
                let made = pieces.of(protocol, kind, &list, |_| text.clone().into_bytes());
                assert_eq!(made, [text]);
                all.push(made);
            }
        }
    }

    /// One resource after the other, none of which is there any more.
    #[test]
    fn what_nobody_holds_is_forgotten() {
        let pieces = Pieces::default();
        for one in resources(10_000) {
            let _sent = of(&pieces, &[one]);
        }
        assert!(pieces.known.lock().unwrap().pieces.len() <= FEW + 1);
    }
}
