//! Encoded pieces of the responses in flight, shared by all streams that send the same.
//!
//! After a start two thousand clients are sent the same megabyte, all at once: a copy for each would be two gigabytes, which
//! fragmentation by longer-lived memory would keep from being returned. A piece lives as long as a stream holds it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

/// The number of pieces below which dead ones are not searched.
const MIN_PIECES: usize = 64;

/// Pieces in use, by the values that they are encoded from; each keeps those values alive.
#[derive(Debug)]
pub(crate) struct EncodedPieces<K, W = ()>(Mutex<PieceTable<K, W>>);

#[derive(Debug)]
struct PieceTable<K, W> {
    pieces: HashMap<K, Weak<EncodedPiece<W>>>,
    /// The number of pieces after dead ones were dropped last.
    live: usize,
}

#[derive(Debug)]
struct EncodedPiece<W> {
    bytes: Vec<u8>,
    _with: W,
}

struct SharedPiece<W>(Arc<EncodedPiece<W>>);

impl<W> AsRef<[u8]> for SharedPiece<W> {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl<K, W> Default for EncodedPieces<K, W> {
    fn default() -> Self {
        Self(Mutex::new(PieceTable {
            pieces: HashMap::new(),
            live: 0,
        }))
    }
}

impl<K: Hash + Eq, W: Send + Sync + 'static> EncodedPieces<K, W> {
    /// The shared piece, or a new one.
    pub(crate) fn get(&self, key: K, make: impl FnOnce() -> (Vec<u8>, W)) -> Bytes {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(piece) = cache.pieces.get(&key).and_then(Weak::upgrade) {
            return Bytes::from_owner(SharedPiece(piece));
        }
        // Dead pieces are searched when the table has doubled, so a search costs each piece a constant.
        if cache.pieces.len() >= MIN_PIECES + 2 * cache.live {
            cache.pieces.retain(|_, piece| piece.strong_count() > 0);
            cache.live = cache.pieces.len();
        }
        // The lock is held while encoding: another stream waits for the piece instead of encoding it again.
        let (bytes, with) = make();
        let piece = Arc::new(EncodedPiece { bytes, _with: with });
        cache.pieces.insert(key, Arc::downgrade(&piece));
        Bytes::from_owner(SharedPiece(piece))
    }

    #[cfg(test)]
    pub(crate) fn live(&self) -> usize {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let live = cache.pieces.values().filter(|one| one.strong_count() > 0);
        live.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_piece_is_dropped_with_its_values() {
        let pieces = EncodedPieces::default();
        let with = Arc::new(());
        let make = |at: u32| (at.to_be_bytes().to_vec(), Arc::clone(&with));
        let one = pieces.get(0, || make(0));
        let same = pieces.get(0, || panic!("it is there"));
        assert_eq!((one.as_ptr(), Arc::strong_count(&with)), (same.as_ptr(), 2));
        drop((one, same));
        assert_eq!(Arc::strong_count(&with), 1);
        for at in 0..10_000 {
            let _sent = pieces.get(at, || make(at));
        }
        assert!(pieces.0.lock().unwrap().pieces.len() <= MIN_PIECES + 1);
    }
}
