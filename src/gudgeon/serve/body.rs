//! Bodies of requests: counted while they are read, and late when they are.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest review: twice what the API server takes in.
const BODY_BYTES: usize = 6 << 20;
/// From the end of the head to the end of the body.
const BODY: Duration = Duration::from_secs(10);
/// Bodies up to this size are read at once; of larger ones only so many bytes are in memory together, so that 64 of them
/// are not 384 MiB.
const SMALL_BYTES: usize = 64 << 10;
const LARGE_BYTES_TOGETHER: usize = 4 * BODY_BYTES;

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLarge,
    /// Late, or the client went.
    Gone,
}

/// Reads bodies.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    large: Arc<Semaphore>,
}

impl Body {
    pub(crate) fn new() -> Self {
        Self {
            large: Arc::new(Semaphore::new(LARGE_BYTES_TOGETHER)),
        }
    }

    /// All of a body, and the room that it takes.
    pub(crate) async fn read(
        &self,
        mut body: Incoming,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Unread> {
        let declared = body.size_hint().exact();
        if declared.is_some_and(|bytes| bytes > BODY_BYTES as u64) {
            return Err(Unread::TooLarge);
        }
        tokio::time::timeout(BODY, async {
            let mut room = None;
            let mut all = BytesMut::new();
            let expected = declared.and_then(|bytes| usize::try_from(bytes).ok());
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|_| Unread::Gone)?;
                // Trailers say nothing here.
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                let length = all.len() + data.len();
                if length > BODY_BYTES {
                    return Err(Unread::TooLarge);
                }
                if length > SMALL_BYTES && room.is_none() {
                    let bytes = expected.unwrap_or(BODY_BYTES);
                    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                    let large = Arc::clone(&self.large);
                    room = large.acquire_many_owned(bytes).await.ok();
                    all.reserve(expected.unwrap_or(0).saturating_sub(all.len()));
                }
                all.extend_from_slice(&data);
            }
            Ok((all.freeze(), room))
        })
        .await
        .unwrap_or(Err(Unread::Gone))
    }
}
