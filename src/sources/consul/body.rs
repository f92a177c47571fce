//! Bodies of answers while they come: each has a bound, and all of a source share one.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of all bodies under way: a thousand queries wait at a time, and an answer may have 16 MiB.
const ALL_BYTES: usize = 64 << 20;
/// Bytes that each body has to itself, so that a few endless bodies keep no small one from being read.
const OWN_BYTES: usize = 16 << 10;

/// The room that the bodies of one source share.
#[derive(Clone, Debug)]
pub(super) struct BodyRoom(Arc<Semaphore>);

impl Default for BodyRoom {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ALL_BYTES)))
    }
}

impl BodyRoom {
    /// A body of at most so many bytes.
    pub(super) fn body(&self, max: usize) -> BufferedBody {
        BufferedBody {
            max,
            bytes: Vec::new(),
            room: self.clone(),
            permit: None,
        }
    }
}

/// A body, or the beginning of one; it leaves the room when it is dropped.
#[derive(Debug)]
pub(super) struct BufferedBody {
    max: usize,
    bytes: Vec<u8>,
    room: BodyRoom,
    permit: Option<OwnedSemaphorePermit>,
}

impl BufferedBody {
    /// Returns an error if the body is to have so many bytes, and more than it may.
    pub(super) fn expect(&self, bytes: u64) -> Result<(), String> {
        if bytes > self.max as u64 {
            return Err(format!("the response exceeds {} bytes", self.max));
        }
        Ok(())
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// There is no room for them: the body is too large, or all that are under way are.
    pub(super) fn push(&mut self, data: &[u8]) -> Result<(), String> {
        let length = self.bytes.len().saturating_add(data.len());
        self.expect(length as u64)?;
        let shared = |length: usize| length.saturating_sub(OWN_BYTES);
        let more = shared(length).saturating_sub(shared(self.bytes.len()));
        if more > 0 {
            let room = Arc::clone(&self.room.0);
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            // Bodies that waited for room would hold their parts and wait for each other.
            let Ok(more) = room.try_acquire_many_owned(more) else {
                return Err(format!("all responses under way exceed {ALL_BYTES} bytes"));
            };
            match &mut self.permit {
                Some(permit) => permit.merge(more),
                None => self.permit = Some(more),
            }
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_a_room_and_leave_it() {
        const MAX_BODY_BYTES: usize = 16 << 20;
        let room = BodyRoom::default();
        let full = |room: &BodyRoom| {
            let mut body = room.body(MAX_BODY_BYTES);
            let chunk = vec![0; 1 << 20];
            (0..16).try_for_each(|_| body.push(&chunk)).map(|()| body)
        };
        let mut hanging: Vec<_> = (0..4).map(|_| full(&room).unwrap()).collect();
        let refused = full(&room).unwrap_err();
        assert_eq!(refused, "all responses under way exceed 67108864 bytes");
        // One that was refused has left, and small ones are read all the same.
        for _ in 0..10 {
            let mut small = room.body(MAX_BODY_BYTES);
            small.push(&[1; OWN_BYTES / 2]).unwrap();
            small.push(&[2; OWN_BYTES / 2]).unwrap();
            assert_eq!(small.bytes().len(), OWN_BYTES);
        }
        drop(hanging.pop());
        hanging.push(full(&room).unwrap());
        assert!(full(&room).is_err());
        drop(hanging);
        assert_eq!(room.0.available_permits(), ALL_BYTES);
    }

    #[test]
    fn a_body_has_a_bound_of_its_own() {
        let mut body = BodyRoom::default().body(5);
        assert!(body.expect(5).is_ok() && body.expect(6).is_err());
        body.push(b"abc").unwrap();
        let refused = body.push(b"def").unwrap_err();
        assert_eq!(refused, "the response exceeds 5 bytes");
        body.push(b"de").unwrap();
        assert_eq!(body.bytes(), b"abcde");
    }
}
