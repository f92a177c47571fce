//! Messages about files and their objects beside the report: objects of kinds that discovery does not read, and the parts of
//! objects that it does not use.

use std::fmt;
use std::sync::Arc;

use super::one_line::one_line;
use super::origin::Origin;

/// A message to the author of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    pub origin: Origin,
    pub text: String,
    /// Kind, and namespace and name, of the object that is not used completely.
    pub object: Option<(Arc<str>, String)>,
}

impl Message {
    /// Creates a message; `text` may quote user input and is reduced to one line of limited length.
    pub(crate) fn new(origin: Origin, text: &str) -> Self {
        Self {
            origin,
            text: one_line(text),
            object: None,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.origin, self.text)
    }
}
