//! Configuration as somebody wrote it, for those who look at it.

use std::sync::Arc;

use serde_json::Value;

/// An object of configuration, whether or not it is used: some kinds have no effect, and some objects are wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub metadata: Value,
    pub spec: Value,
    /// The file, or the cluster.
    pub source: Arc<str>,
    /// This is what is used; else an earlier one is, or none.
    pub accepted: bool,
    /// What is wrong with it, and what should be known of it.
    pub messages: Vec<String>,
}
