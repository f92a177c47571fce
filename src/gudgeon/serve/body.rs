//! Bodies of requests: counted while they are read, and late when they are.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::desk::Desk;

/// From the end of the head to the end of the body.
const BODY: Duration = Duration::from_secs(10);
/// Bodies up to this size are read at once; larger ones wait for room.
const SMALL_BYTES: usize = 64 << 10;

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLarge,
    /// Late, or the client went.
    Gone,
    /// It comes slowly, and others wait for the desk.
    SentAway,
}

/// All of a body of at most `most` bytes, read at a desk.
pub(crate) async fn read(desk: &Desk, mut body: Incoming, most: usize) -> Result<Bytes, Unread> {
    let declared = body.size_hint().exact();
    if declared.is_some_and(|bytes| bytes > most as u64) {
        return Err(Unread::TooLarge);
    }
    let whole = tokio::time::timeout(BODY, async {
        let mut roomy = false;
        let mut all = BytesMut::new();
        let expected = declared.and_then(|bytes| usize::try_from(bytes).ok());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Unread::Gone)?;
            desk.came(frame.data_ref().map_or(0, Bytes::len));
            // Trailers say nothing here.
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let length = all.len() + data.len();
            if length > most {
                return Err(Unread::TooLarge);
            }
            if length > SMALL_BYTES && !roomy {
                desk.room(expected.unwrap_or(most)).await;
                roomy = true;
                all.reserve(expected.unwrap_or(0).saturating_sub(all.len()));
            }
            all.extend_from_slice(&data);
        }
        Ok(all.freeze())
    });
    let read = tokio::select! {
        biased;
        read = whole => read.unwrap_or(Err(Unread::Gone)),
        () = desk.goes() => Err(Unread::SentAway),
    };
    if read.is_ok() {
        desk.decides();
    }
    read
}
