//! Bounds on a peer's words that are kept, and on the waits between two attempts to reach it.

use std::time::Duration;

use api::backoff::Bounds;

/// Bytes of a NACK's message that are stored.
pub(crate) const NACK_BYTES: usize = 4096;

/// Bytes of a name that are stored.
pub(crate) const NAME: usize = 256;

/// The backoff of a dialler; it is reset once a stream has received a message and the peer has closed it.
pub const BACKOFF: Bounds = Bounds {
    first: Duration::from_millis(200),
    max: Duration::from_secs(10),
};
