//! Calls of the file system that do not end in time.

use std::fmt;
use std::io;
use std::time::Duration;

use super::MAX_HANGING;

/// A call that did not end in time, as the cause of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskTimeout {
    /// The path, or a name that it leads through, does not answer.
    Hangs,
    /// Each call is answered, and all of them together take longer than this.
    Slow(Duration),
    /// So many paths hang that no other is tried.
    TooManyHang,
}

impl DiskTimeout {
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl fmt::Display for DiskTimeout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hangs => formatter.write_str("reading it hangs"),
            Self::Slow(within) => {
                write!(
                    formatter,
                    "reading it takes more than {} s",
                    within.as_secs()
                )
            }
            Self::TooManyHang => write!(formatter, "{MAX_HANGING} files hang: no other is read"),
        }
    }
}

impl std::error::Error for DiskTimeout {}

impl From<DiskTimeout> for io::Error {
    fn from(timeout: DiskTimeout) -> Self {
        Self::new(io::ErrorKind::TimedOut, timeout)
    }
}
