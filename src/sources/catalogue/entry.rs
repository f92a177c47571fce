//! Identifiers of objects in a source, and the stored form of a valid object.

use std::fmt;
use std::sync::Arc;

use api::config::Object;
use api::config::collections::any_kind_of;

use super::core_kind::CoreKind;
use super::last_good::CatalogueChange;
use super::origin::Origin;

/// An object's place among those of a source: all versions of a kind are one collection, so the same name is the same object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// A collection of the table of kinds, or [`CoreKind::collection`].
    pub collection: &'static str,
    /// `NAMESPACE/NAME`, or `NAME` for an object of the whole cluster.
    pub name: Arc<str>,
}

impl EntryId {
    /// The kind, as it is written.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        any_kind_of(self.collection)
            .map(|row| row.kind)
            .or_else(|| self.core_kind().map(CoreKind::kind))
            .unwrap_or_default()
    }

    /// The kind, if it is one of Kubernetes' own.
    #[must_use]
    pub fn core_kind(&self) -> Option<CoreKind> {
        CoreKind::of_collection(self.collection)
    }

    /// The namespace, which is empty where objects have none, and the name.
    #[must_use]
    pub fn namespace_and_name(&self) -> (&str, &str) {
        self.name.split_once('/').unwrap_or(("", &self.name))
    }

    /// Returns true if collection and name are known.
    pub(super) fn is_whole(&self) -> bool {
        !self.collection.is_empty() && !self.name.is_empty()
    }
}

impl fmt::Display for EntryId {
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
#[derive(Clone)]
pub enum Entry {
    /// An object of one of the mesh's kinds. Its `spec` is `null`: [`Object::of_resource`] decodes it again from the bytes
    /// of the resource.
    Object {
        object: Arc<Object>,
        /// The creation time in seconds since 1970, if an API server reports it.
        created: Option<i64>,
    },
    /// An object of one of Kubernetes' own kinds.
    Core {
        kind: CoreKind,
        /// JSON with the fields that transforms read.
        json: Arc<str>,
    },
}

/// Secrets are left out.
impl fmt::Debug for Entry {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { object, created } => to
                .debug_tuple("Object")
                .field(object)
                .field(created)
                .finish(),
            Self::Core {
                kind: CoreKind::Secret,
                ..
            } => to.write_str("Secret"),
            Self::Core { kind, json } => to.debug_tuple("Core").field(kind).field(json).finish(),
        }
    }
}

/// Entries are equal if every reader sees the same in them.
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
                // `spec` is null in every entry: the resource is encoded from `body`.
                object.kind == other.kind
                    && object.body == other.body
                    && created == created_other
                    && object.labels == other.labels
                    && object.annotations == other.annotations
                    && (&object.namespace, &object.name) == (&other.namespace, &other.name)
            }
            (
                Self::Core { kind, json },
                Self::Core {
                    kind: other,
                    json: other_json,
                },
            ) => (kind, json) == (other, other_json),
            (Self::Object { .. }, Self::Core { .. }) | (Self::Core { .. }, Self::Object { .. }) => {
                false
            }
        }
    }
}

/// An object of a kind that is accepted and neither checked nor served.
#[derive(Clone, PartialEq, Eq)]
pub struct UncheckedObject {
    /// The whole object, as JSON.
    pub json: Arc<str>,
    pub origin: Origin,
}

/// The text is left out, which may be secret.
impl fmt::Debug for UncheckedObject {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "UncheckedObject({})", self.origin)
    }
}

/// One difference between two states of a source.
pub type EntryChange = CatalogueChange<EntryId, Entry>;
