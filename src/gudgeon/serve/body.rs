//! Bodies of requests: counted while they are read, and late when they are.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::request_limit::{Permit, Rejected, RequestProgress};

/// The timeout from the end of the head to the end of the body.
const BODY: Duration = Duration::from_secs(10);

/// The reasons why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadBody {
    TooLarge,
    /// Late, or the client went.
    Gone,
    /// The memory for bodies is exhausted.
    Full,
    /// The body came too slowly, and its permit went to another request.
    Evicted,
}

impl From<Rejected> for UnreadBody {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Full => Self::Full,
            Rejected::Evicted => Self::Evicted,
        }
    }
}

/// Reads a body of at most `max` bytes; its permit grows with it.
pub(crate) async fn read(permit: &Permit, body: Incoming, max: usize) -> Result<Bytes, UnreadBody> {
    let declared = body.size_hint().exact();
    if declared.is_some_and(|bytes| bytes > max as u64) {
        return Err(UnreadBody::TooLarge);
    }
    let expected = declared.and_then(|bytes| usize::try_from(bytes).ok());
    let whole = tokio::time::timeout(BODY, take(permit, body, expected.unwrap_or(max), max));
    let all = tokio::select! {
        // A body that has become whole is not refused; `begin` fails if its permit is gone.
        biased;
        whole = whole => whole.unwrap_or(Err(UnreadBody::Gone)),
        () = permit.evicted() => Err(UnreadBody::Evicted),
    }?;
    permit.begin(RequestProgress::Queued)?;
    Ok(all)
}

async fn take(
    permit: &Permit,
    mut body: Incoming,
    expected: usize,
    max: usize,
) -> Result<Bytes, UnreadBody> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| UnreadBody::Gone)?;
        permit.came(frame.data_ref().map_or(0, Bytes::len));
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let length = all.len() + data.len();
        if length > max {
            return Err(UnreadBody::TooLarge);
        }
        if length > all.capacity() {
            // Twice as much each time, and no more than will come.
            let capacity = length.next_power_of_two().min(expected.max(length));
            permit.grow(capacity)?;
            all.reserve(capacity - all.len());
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}
