//! Bounds on a peer's words that are kept, and on the waits between two attempts to reach it.

use std::time::Duration;

use api::backoff::Bounds;

/// Bytes of a NACK's message that are stored.
pub(crate) const WORDS: usize = 4096;

/// Bytes of a name that are stored.
pub(crate) const NAME: usize = 256;

/// The backoff of a dialler.
pub const BACKOFF: Bounds = Bounds {
    first: Duration::from_millis(200),
    most: Duration::from_secs(10),
};

/// The duration of a stream that resets the backoff. One that delivers a response and ends at once does not: the dialler
/// would reconnect without pause.
pub const STEADY: Duration = Duration::from_secs(10);
