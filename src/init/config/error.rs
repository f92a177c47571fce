//! Why a configuration cannot be used.

#![forbid(unsafe_code)]

use std::fmt;

use crate::cli::EXIT_CONFIG;

/// A value is malformed, out of range or contradicts another; the text names it and who gave it.
///
/// The text is never freed, for it is the last that the process says. In return every `?` of `config`, of which there
/// are some two hundred, passes on one word and drops nothing: 7 kB of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError(&'static String);

impl ConfigError {
    #[cold]
    #[inline(never)]
    fn new(parts: &[&str]) -> Self {
        Self(Box::leak(Box::new(parts.concat())))
    }

    /// `cannot use --drain-duration "5x": unknown unit`.
    pub(super) fn value(origin: &str, value: &str, cause: &str) -> Self {
        Self::new(&["cannot use ", origin, " \"", value, "\": ", cause])
    }

    /// The same as a warning, where something else counts.
    #[cold]
    pub(super) fn doubt(variable: &str, value: &str, cause: &str) -> String {
        ["cannot use ", variable, " \"", value, "\": ", cause].concat()
    }

    pub(super) fn contradiction(one: &str, other: &str, cause: &str) -> Self {
        Self::new(&["cannot use ", one, " with ", other, ": ", cause])
    }

    pub(super) fn unreadable(object: &str, cause: &str) -> Self {
        Self::new(&["cannot read ", object, ": ", cause])
    }

    /// The exit code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        EXIT_CONFIG
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ConfigError {}
