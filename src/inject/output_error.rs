//! Errors of a template's output that cannot be part of a pod.

use std::fmt;

/// The cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputError {
    /// An element has the name of another one. The pod may be the cause: its annotation may name an element that the template adds.
    Duplicate {
        list: String,
        index: usize,
        name: String,
    },
    Other(String),
}

impl From<String> for OutputError {
    fn from(cause: String) -> Self {
        Self::Other(cause)
    }
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { list, index, name } => {
                write!(f, "{list}[{index}]: duplicate name {name:?}")
            }
            Self::Other(cause) => f.write_str(cause),
        }
    }
}
