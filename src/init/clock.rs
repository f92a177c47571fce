//! The clocks. `event_loop` reads the time once a turn and hands it on; `init` does as much; `client` times its calls.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[expect(
    clippy::disallowed_methods,
    reason = "the one reader: everybody else is given the time"
)]
pub(crate) fn read() -> Instant {
    Instant::now()
}

/// Time since 1970, to be told and never to be decided by: somebody may set this clock.
#[expect(
    clippy::disallowed_methods,
    reason = "a log line says when it was written, /status when something was; no decision depends on it"
)]
pub(crate) fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
