//! What objects are called in a source, and what is kept of one that is good.

use std::fmt;
use std::sync::Arc;

use api::config::Object;
use api::config::collections::kind_of;

use super::plain::Plain;
use crate::catalogue;

/// An object's place among those of a source: all versions of a kind are one collection, so the same name is the same object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Of the table of kinds, or of [`Plain::collection`].
    pub collection: &'static str,
    /// `NAMESPACE/NAME`, or `NAME` of what belongs to the whole cluster.
    pub name: Arc<str>,
}

impl Id {
    /// The kind, as it is written.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        kind_of(self.collection)
            .map(|row| row.kind)
            .or_else(|| self.plain().map(Plain::kind))
            .unwrap_or_default()
    }

    /// The kind, if it is one of Kubernetes' own.
    #[must_use]
    pub fn plain(&self) -> Option<Plain> {
        Plain::of_collection(self.collection)
    }

    /// Whether it is known which object it is.
    pub(super) fn is_whole(&self) -> bool {
        !self.collection.is_empty() && !self.name.is_empty()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind() {
            "" => "?",
            kind => kind,
        };
        let name = match &*self.name {
            "" => "?",
            name => name,
        };
        write!(to, "{kind} {name}")
    }
}

/// An object that is good. Cloned for the price of a pointer.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Of a kind of the mesh. Its `spec` is `null`: whoever wants more than the bytes that a resource carries makes it of
    /// them again, by [`Object::of_resource`].
    Object {
        object: Arc<Object>,
        /// When it was created, in seconds since 1970, where an API server says so.
        created: Option<i64>,
    },
    /// Of Kubernetes' own kinds.
    Plain {
        kind: Plain,
        /// As JSON, what of it others are made of.
        json: Arc<str>,
    },
}

/// Equal where everybody gets the same of them.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Object { object, created },
                Self::Object {
                    object: other,
                    created: created_other,
                },
            ) => {
                object.kind == other.kind
                    && object.body == other.body
                    && created == created_other
                    && object.labels == other.labels
                    && object.annotations == other.annotations
                    && (&object.namespace, &object.name) == (&other.namespace, &other.name)
            }
            (
                Self::Plain { kind, json },
                Self::Plain {
                    kind: other,
                    json: other_json,
                },
            ) => (kind, json) == (other, other_json),
            (Self::Object { .. }, Self::Plain { .. })
            | (Self::Plain { .. }, Self::Object { .. }) => false,
        }
    }
}

/// One thing that is different now.
pub type Change = catalogue::Change<Id, Entry>;
