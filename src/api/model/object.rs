//! An object of configuration by its name.

use std::fmt;
use std::sync::Arc;

/// The object that a resource was made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// As the table of kinds has it.
    pub kind: &'static str,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
