//! What the program ends with: the same few codes as pintle.

use std::process::ExitCode;

/// Codes of sysexits.h, so that a script can tell a typing error from a broken file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Stopped on request, or done.
    Done,
    /// `probe` says no, manifests could not be injected or are not valid.
    Failed,
    /// Unknown command or flag, a missing or extra argument.
    Usage,
    /// The operating system refused something needed at the start.
    System,
    /// A value or a file is missing, malformed or contradicts another.
    Config,
}

impl Exit {
    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 64,
            Self::System => 71,
            Self::Config => 78,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why it ends before it is done: one line, and a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// `cannot <verb> <object>: <cause>`.
    pub message: String,
}

impl Failure {
    /// A value or file that is not right.
    pub fn config(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Config,
            message: message.into(),
        }
    }

    /// What the operating system refused.
    pub fn system(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::System,
            message: message.into(),
        }
    }
}

/// For the help.
pub(crate) const TABLE: &str = "Exit codes:
  0   stopped on request, or done
  1   probe says no, a request failed, manifests could not be injected or are not valid
  64  usage: an unknown command or flag, a missing or extra argument
  71  the operating system refused something needed at the start
  78  a value or a file is missing, malformed or contradicts another";
