//! Configuration as written, for pages.

use std::borrow::Cow;
use std::sync::Arc;

use api::config::Finding;
use serde_json::Value;

use super::origin::Origin;
use crate::kind::Revision;

/// JSON as text, kept as long as its object: the tree of a large one takes more than twenty times as much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompactJson(Box<str>);

impl From<Value> for CompactJson {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

impl CompactJson {
    /// Returns the original value.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// An object of configuration, whether or not it is used: some kinds have no effect, and some objects are wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigObject {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub metadata: Value,
    pub spec: CompactJson,
    pub origin: Origin,
    /// This version is used; otherwise an earlier one is, or none.
    pub is_accepted: bool,
    /// Errors and warnings.
    pub findings: Vec<Finding>,
    /// Warnings of parts that this release does not serve as they are written: only a version in use has any.
    pub notes: Vec<Finding>,
    /// The refused version, of an API server's object.
    pub revision: Revision,
}

impl ConfigObject {
    /// `NAMESPACE/NAME`, or `NAME` for an object of the whole cluster.
    #[must_use]
    pub fn full_name(&self) -> Cow<'_, str> {
        match &*self.namespace {
            "" => Cow::Borrowed(&self.name),
            namespace => Cow::Owned(format!("{namespace}/{}", self.name)),
        }
    }

    /// Errors and warnings, and the notes of a version that is used.
    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        let notes = self.notes.iter().filter(|_| self.is_accepted);
        self.findings.iter().chain(notes)
    }
}
