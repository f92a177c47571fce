//! Why the agent could not start, and the exit code for it.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::io;

use crate::bootstrap::BootstrapError;

/// A start that failed. After the start there are no errors, only events.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The operating system refused something that is needed; what, and why. Exit code 71.
    Os { what: String, error: io::Error },
    /// A template, an override or a custom file is missing or not valid. Exit code 78.
    Bootstrap(BootstrapError),
}

impl StartError {
    pub(crate) fn os(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Os {
            what: what.into(),
            error,
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
            Self::Os { what, error } => write!(f, "cannot {what}: {error}"),
            Self::Bootstrap(error) => error.fmt(f),
        }
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
