//! Why a configuration cannot be used.

#![forbid(unsafe_code)]

use std::fmt;

use crate::cli::EXIT_CONFIG;

/// A value is malformed, out of range or contradicts another; the text names it and who gave it.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    /// `cannot use --drain-duration "5x": unknown unit`.
    pub(super) fn value(origin: &str, value: &str, cause: &str) -> Self {
        Self(["cannot use ", origin, " \"", value, "\": ", cause].concat())
    }

    pub(super) fn contradiction(one: &str, other: &str, cause: &str) -> Self {
        Self(["cannot use ", one, " with ", other, ": ", cause].concat())
    }

    pub(super) fn unreadable(object: &str, cause: &str) -> Self {
        Self(["cannot read ", object, ": ", cause].concat())
    }

    /// The exit code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        EXIT_CONFIG
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}
