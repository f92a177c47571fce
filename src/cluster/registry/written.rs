//! Configuration as somebody wrote it, for those who look at it.

use std::sync::Arc;

use serde_json::Value;

/// JSON as text, which is kept as long as its object is there: a tree of a large one takes more than twenty times as much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compact(Box<str>);

impl From<Value> for Compact {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

impl Compact {
    /// As it was.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// An object of configuration, whether or not it is used: some kinds have no effect, and some objects are wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub metadata: Value,
    pub spec: Compact,
    /// The file, or the cluster.
    pub source: Arc<str>,
    /// This is what is used; else an earlier one is, or none.
    pub accepted: bool,
    /// What is wrong with it, and what should be known of it.
    pub messages: Vec<String>,
}
