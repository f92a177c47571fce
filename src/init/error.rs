//! Why the agent could not start, and the exit code for it.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::io;

use crate::bootstrap::BootstrapError;

/// A start that failed, in words. After the start there are no errors, only events.
#[derive(Debug)]
pub(crate) struct StartError {
    why: String,
    code: u8,
}

impl StartError {
    /// The operating system refused something that is needed. Exit code 71.
    pub(crate) fn os(what: &str) -> impl FnOnce(io::Error) -> Self {
        Self::os_but(what, "")
    }

    /// `remedy` is the flag that does without, or chooses another.
    pub(crate) fn os_but(
        what: impl AsRef<str>,
        remedy: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::refused(what.as_ref(), remedy, &error)
    }

    #[cold]
    fn refused(what: &str, remedy: &str, error: &io::Error) -> Self {
        let refused = Refused {
            error,
            uid: None,
            remedy,
        };
        let refused = refused.to_string();
        let why = ["cannot ", what, ": ", &refused].concat();
        Self { why, code: 71 }
    }

    /// A template, an override or a custom file is missing or not valid. Exit code 78.
    pub(crate) fn bootstrap(error: &BootstrapError) -> Self {
        let why = error.to_string();
        Self { why, code: 78 }
    }

    #[must_use]
    pub(crate) const fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Error for StartError {}

/// The system's refusal, whom it met if that is the cause, and the remedy.
pub(crate) struct Refused<'e> {
    pub(crate) error: &'e io::Error,
    /// `None`: the agent's own.
    pub(crate) uid: Option<u32>,
    /// May be empty.
    pub(crate) remedy: &'e str,
}

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        if self.error.kind() == io::ErrorKind::PermissionDenied {
            let uid = self.uid.unwrap_or_else(sys::effective_uid);
            write!(f, " to user {uid}")?;
        }
        if self.remedy.is_empty() {
            return Ok(());
        }
        write!(f, "; {}", self.remedy)
    }
}
