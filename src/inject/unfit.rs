//! Why a template's output is no part of a pod.

use std::fmt;

/// What is wrong with an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It may be the pod's doing: an annotation of it may name what a template adds.
    Twice {
        list: String,
        index: usize,
        name: String,
    },
    Other(String),
}

impl From<String> for Unfit {
    fn from(cause: String) -> Self {
        Self::Other(cause)
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { list, index, name } => {
                write!(f, "{list}[{index}]: {name:?} is there already")
            }
            Self::Other(cause) => f.write_str(cause),
        }
    }
}
