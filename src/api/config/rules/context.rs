//! The object that a rule checks.

use serde_json::Value;

use super::cursor::{Cursor, FindingCollector};

/// An object as rules see it: its name, and cursors at its `spec` and at its name.
pub(in crate::config) struct Context<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) spec: Cursor<'a>,
    /// The place of its name.
    pub(super) name_at: Cursor<'a>,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        namespace: &'a str,
        name: &'a str,
        spec: &'a Value,
        out: &'a FindingCollector,
    ) -> Self {
        Self {
            namespace,
            name,
            spec: Cursor::root("spec", spec, out),
            name_at: Cursor::root("metadata", &Value::Null, out).get("name"),
        }
    }
}
