//! A report of an object that is shadowed by another one, or cannot be used as written.

use std::sync::Arc;

use crate::contribution::SourceId;

/// A valid object that is not used, or not as written: another object takes precedence, or it selects an object that does
/// not fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Report {
    pub source: SourceId,
    pub kind: &'static str,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub message: String,
    /// The whole object is unused.
    pub whole: bool,
}
