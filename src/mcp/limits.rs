//! Bounds on a peer's words that are kept, and on the waits between two attempts to reach it.

use std::time::Duration;

use api::backoff::Bounds;

/// Bytes of a NACK's message that are stored.
pub(crate) const NACK_BYTES: usize = 4096;

/// Bytes of a name that are stored.
pub(crate) const NAME: usize = 256;

/// The backoff of a dialler; a stream that brought a message, and that the other side ended, starts it anew.
pub const BACKOFF: Bounds = Bounds {
    first: Duration::from_millis(200),
    most: Duration::from_secs(10),
};
