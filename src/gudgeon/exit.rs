//! Exit codes: the same few as pintle's.

use std::io::{self, Write as _};
use std::process::ExitCode;

/// Codes of sysexits.h, so that a script can tell a usage error from an invalid file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Stopped on request, or done.
    Done,
    /// `probe` fails, or manifests cannot be injected or are invalid.
    Failed,
    /// Unknown command or flag, a missing or extra argument.
    Usage,
    /// The operating system refused a resource that the start needs.
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

/// A fatal error: one line, and an exit code.
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

    /// A usage error.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.into(),
        }
    }

    /// A command that has not succeeded.
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Failed,
            message: message.into(),
        }
    }

    /// Returns the failure of a command that cannot write its output.
    pub(crate) fn stdout(cause: &io::Error) -> Self {
        Self::failed(format!("cannot write stdout: {cause}"))
    }

    /// An error of the operating system.
    pub fn system(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::System,
            message: message.into(),
        }
    }
}

/// Writes a command's output.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn print(output: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(output).and_then(|()| stdout.flush())
}

/// The table of exit codes for `--help`.
pub(crate) const TABLE: &str = "Exit codes:
  0   stopped on request, or done
  1   probe says no, a request failed, manifests could not be injected or are not valid
  64  usage: an unknown command or flag, a missing or extra argument
  71  the operating system refused something needed at the start
  78  a value or a file is missing, malformed or contradicts another";
