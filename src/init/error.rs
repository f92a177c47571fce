//! Why the agent could not start, and the exit code for it.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::io;

use crate::bootstrap::BootstrapError;

/// A start that failed. After the start there are no errors, only events.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The operating system refused something that is needed; what, why, and what may be done. Exit code 71.
    Os {
        what: String,
        error: io::Error,
        remedy: &'static str,
    },
    /// A template, an override or a custom file is missing or not valid. Exit code 78.
    Bootstrap(BootstrapError),
}

impl StartError {
    pub(crate) fn os(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        Self::os_but(what, "")
    }

    /// `remedy` is the flag that does without, or chooses another.
    pub(crate) fn os_but(
        what: impl Into<String>,
        remedy: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Os {
            what: what.into(),
            error,
            remedy,
        }
    }

    #[must_use]
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Os { .. } => 71,
            Self::Bootstrap(_) => 78,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os {
                what,
                error,
                remedy,
            } => write!(f, "cannot {what}: {}", Refused { error, remedy }),
            Self::Bootstrap(error) => error.fmt(f),
        }
    }
}

/// What the system said, to whom if that is why, and the remedy.
pub(crate) struct Refused<'e> {
    pub(crate) error: &'e io::Error,
    /// May be empty.
    pub(crate) remedy: &'e str,
}

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        if self.error.kind() == io::ErrorKind::PermissionDenied {
            write!(f, " to user {}", sys::effective_uid())?;
        }
        if self.remedy.is_empty() {
            return Ok(());
        }
        write!(f, "; {}", self.remedy)
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Os { error, .. } => Some(error),
            Self::Bootstrap(error) => Some(error),
        }
    }
}
