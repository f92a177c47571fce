//! Responses as they go over a stream: most of their bytes are the same memory for all sinks that are sent the same.

use std::sync::Arc;

use bytes::Bytes;
use mcp::snapshot::Resource;
use mcp::source::Response;

use crate::grpc::{self, prefix};

/// Resources are written together up to this length: each write of its own takes room in every connection.
const RUN_BYTES: usize = 16 << 10;
/// Responses up to this length are one write.
const SHORT_BYTES: usize = 4 << 10;

/// Pieces by the addresses of their resources, which no other resource can have while the piece holds them.
pub(super) type ResponsePieces = grpc::EncodedPieces<Vec<usize>, Vec<Arc<Resource>>>;

/// A framed message in pieces, none of them empty.
pub(super) fn encode(response: &Response, pieces: &ResponsePieces) -> Vec<Bytes> {
    let length = response.encoded_len();
    let mut begin = prefix(length).to_vec();
    begin.extend_from_slice(&response.head());
    let members = response.resources.members();
    if length <= SHORT_BYTES {
        for member in members {
            begin.extend_from_slice(member.framed());
        }
        begin.extend_from_slice(&response.tail());
        return vec![begin.into()];
    }
    let mut all = vec![begin.into()];
    all.extend(runs(members).map(|run| match run {
        // The resource's own bytes are shared by all streams already.
        [long] => long.framed().clone(),
        run => {
            let key = run.iter().map(|member| Arc::as_ptr(member).addr());
            pieces.get(key.collect(), || (joined(run), run.to_vec()))
        }
    }));
    all.push(response.tail());
    // The sender takes no empty piece.
    all.retain(|piece: &Bytes| !piece.is_empty());
    all
}

fn joined(run: &[Arc<Resource>]) -> Vec<u8> {
    let length = run.iter().map(|member| member.framed().len()).sum();
    let mut bytes = Vec::with_capacity(length);
    for member in run {
        bytes.extend_from_slice(member.framed());
    }
    bytes
}

/// Cuts members into runs. Only the members before a cut determine it, so equal lists are cut equally.
fn runs(members: &[Arc<Resource>]) -> impl Iterator<Item = &[Arc<Resource>]> {
    let mut bytes = 0_usize;
    members.chunk_by(move |one, next| {
        bytes = bytes.saturating_add(one.framed().len());
        let fits = bytes.saturating_add(next.framed().len()) <= RUN_BYTES;
        if !fits {
            bytes = 0;
        }
        fits
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use mcp::collections::{Collections, Group};
    use mcp::message::{RequestResources, Resources};
    use mcp::snapshot::{GroupSnapshot, Origin};
    use mcp::source::{Dialer, Source};
    use prost::Message as _;

    use super::*;

    const COLLECTION: &str = "istio/networking/v1alpha3/gateways";

    /// Names and lengths of bodies; what two sinks are sent of them.
    fn sent(resources: &[(usize, usize)]) -> [Vec<Bytes>; 2] {
        let collections = Arc::new(Collections::all());
        let mut group = GroupSnapshot::new(&collections, Group::Default);
        for (name, length) in resources {
            let origin = Origin {
                name: format!("n/{name:04}"),
                body: vec![b'x'; *length].into(),
                ..Origin::default()
            };
            group.set(COLLECTION, Arc::new(Resource::new(origin)));
        }
        let snapshot = group.snapshot();
        let pieces = ResponsePieces::default();
        [1, 2].map(|_| {
            let mut source = Source::new(Arc::clone(&collections), Dialer::Sink);
            source.snapshot(Arc::clone(&snapshot));
            let request = RequestResources {
                collection: COLLECTION.to_owned(),
                ..RequestResources::default()
            };
            source.request(Duration::ZERO, &request).unwrap();
            encode(&source.due().unwrap(), &pieces)
        })
    }

    #[test]
    fn sinks_read_what_is_written_and_share_it() {
        let of = |count: usize, length: usize| -> Vec<_> {
            (0..count).map(|name| (name, length)).collect()
        };
        let long = vec![(0, 10), (1, 40_000), (2, 10), (3, 20_000), (4, 20_000)];
        for (resources, max) in [
            (of(0, 0), 1),
            (of(3, 100), 1),
            (of(1000, 100), 20),
            (long, 8),
        ] {
            let [one, other] = sent(&resources);
            assert_eq!(one.concat(), other.concat());
            assert!(one.len() <= max, "{} pieces", one.len());
            let bytes = one.concat();
            assert_eq!(bytes[..5], prefix(bytes.len() - 5));
            let read = Resources::decode(&bytes[5..]).unwrap();
            assert_eq!((read.resources.len(), &*read.nonce), (resources.len(), "1"));
            let at = |piece: &Bytes| piece.as_ptr();
            let all: BTreeSet<_> = one.iter().chain(&other).map(at).collect();
            assert!(all.len() <= one.len() + 2, "{} of {}", all.len(), one.len());
        }
    }
}
