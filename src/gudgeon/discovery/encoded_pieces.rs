//! A list of resources is encoded in pieces that streams share. It is cut where its content says so, so that lists that differ
//! in one resource differ in one piece.

use std::sync::Arc;

use bytes::Bytes;
use xds::stream::Protocol;
use xds::version::Version;
use xds::view::{Resource, Type};

use crate::grpc;

/// A list is cut behind one in so many of its resources, and behind one that is as long as this.
const RUN: u128 = 32;
const LONG_BYTES: usize = 16 << 10;

/// The identity of a piece: versions stand for the content of its resources.
type PieceKey = (Protocol, Type, Vec<Version>);

/// Pieces that are in use.
#[derive(Debug, Default)]
pub(crate) struct PieceCache(grpc::EncodedPieces<PieceKey>);

impl PieceCache {
    /// Encodes these resources, a few in each piece.
    pub(crate) fn of<'a>(
        &self,
        protocol: Protocol,
        kind: Type,
        resources: &'a [Arc<Resource>],
        encode: impl Fn(&'a [Arc<Resource>]) -> Vec<u8>,
    ) -> Vec<Bytes> {
        let runs = resources.split_inclusive(|one| is_last(one));
        runs.map(|run| {
            let versions = run.iter().map(|one| one.version).collect();
            let key = (protocol, kind, versions);
            self.0.get(key, || (encode(run), ()))
        })
        .collect()
    }
}

fn is_last(resource: &Resource) -> bool {
    resource.version.is_one_in(RUN) || resource.body.len() >= LONG_BYTES
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

    fn of(pieces: &PieceCache, resources: &[Arc<Resource>]) -> Vec<Bytes> {
        pieces.of(Protocol::Delta, Type::Cluster, resources, encode)
    }

    #[test]
    fn equal_pieces_are_stored_once() {
        let pieces = PieceCache::default();
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
        assert_eq!(pieces.0.live(), other.len());
        drop(other);
        assert_eq!(pieces.0.live(), 0);
    }

    /// Two messages of nothing but a name have the same bytes in any type, and so the same version.
    #[test]
    fn types_and_protocols_are_apart() {
        let pieces = PieceCache::default();
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
}
