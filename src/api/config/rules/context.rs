//! The object that rules look at.

use serde_json::Value;

use super::at::{At, Out};

/// Its name, and its `spec` as a place.
pub(in crate::config) struct Context<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) spec: At<'a>,
    /// The place of its name.
    pub(super) name_at: At<'a>,
}

impl<'a> Context<'a> {
    pub(super) fn new(namespace: &'a str, name: &'a str, spec: &'a Value, out: &'a Out) -> Self {
        Self {
            namespace,
            name,
            spec: At::root("spec", spec, out),
            name_at: At::root("metadata", &Value::Null, out).get("name"),
        }
    }
}
