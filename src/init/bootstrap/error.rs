//! Why there is no bootstrap.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::json;

/// A bootstrap that cannot be rendered. At start it is exit 78; later the running epoch is kept.
#[derive(Debug)]
pub enum BootstrapError {
    /// Missing, not readable, not a regular file, empty or too large.
    Read {
        object: Object,
        path: PathBuf,
        source: io::Error,
    },
    /// Not JSON.
    Parse {
        object: Object,
        path: PathBuf,
        source: json::ParseError,
    },
    /// JSON, but a list or a scalar.
    NotAnObject { object: Object, path: PathBuf },
    /// A `${name}` that stands for nothing, or values that make it too large.
    Unfilled {
        object: Object,
        path: PathBuf,
        why: String,
    },
    /// An override that does not fit into one argument.
    TooLong { path: PathBuf, length: usize },
}

/// What a file is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    BuiltIn,
    Template,
    Override,
    Custom,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BuiltIn => "built-in template",
            Self::Template => "template",
            Self::Override => "bootstrap override",
            Self::Custom => "custom configuration",
        })
    }
}

impl fmt::Display for BootstrapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read {
                object,
                path,
                source,
            } => write!(f, "cannot read {object} {}: {source}", path.display()),
            Self::Parse {
                object,
                path,
                source,
            } => write!(f, "cannot parse {object} {}: {source}", path.display()),
            Self::NotAnObject { object, path } => {
                let path = path.display();
                write!(f, "cannot use {object} {path}: not a JSON object")
            }
            Self::Unfilled { object, path, why } => {
                write!(f, "cannot fill {object} {}: {why}", path.display())
            }
            Self::TooLong { path, length } => write!(
                f,
                "cannot pass bootstrap override {} as --config-yaml: {length} bytes, of which one argument takes {}",
                path.display(),
                super::ARGUMENT_BYTES
            ),
        }
    }
}

impl Error for BootstrapError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            Self::Parse { source, .. } => Some(source),
            Self::NotAnObject { .. } | Self::Unfilled { .. } | Self::TooLong { .. } => None,
        }
    }
}
