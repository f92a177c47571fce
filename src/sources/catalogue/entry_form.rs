//! Valid objects in the form of entries, which galley serves and the roles of one process give each other.

use std::sync::Arc;

use api::config::{Finding, MAX_BYTES, Object};
use api::well_known::LAST_APPLIED;
use serde_json::Value as Json;

use super::checked::{CheckedContent, CheckedObject};
use super::core_kind::{CoreKind, UsabilityCheck};
use super::entry::{Entry, EntryId};

/// The stored form of a valid object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConfigVersion {
    Entry(Entry),
    /// An object of a kind that nothing uses, as JSON.
    Unchecked(Arc<str>),
}

/// The form of entries, which depends on the source of the objects and on their readers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryForm {
    pub(crate) usable: UsabilityCheck,
    /// Creation times are kept: an API server sets them, and discovery orders rules by them.
    pub(crate) keeps_created: bool,
    /// All fields of Kubernetes' own kinds are kept, for readers beyond the transforms.
    pub(crate) is_whole: bool,
    /// Returns true for those of Kubernetes' own kinds that are read.
    pub(crate) wanted: fn(CoreKind) -> bool,
}

/// Returns true for kinds that the transforms read. They do not read Secrets, which stay out of memory so that no page shows them.
pub(crate) fn of_transforms(kind: CoreKind) -> bool {
    kind != CoreKind::Secret
}

impl EntryForm {
    /// Stores an object; `None`: its kind is not read here.
    pub(crate) fn stored(
        self,
        checked: CheckedObject<CheckedContent>,
        value: &Json,
    ) -> Option<CheckedObject<ConfigVersion>> {
        if !checked.id.core_kind().is_none_or(self.wanted) {
            return None;
        }
        Some(checked.store(|id, content| match content {
            CheckedContent::Object(object, created) => {
                let created = created.filter(|_| self.keeps_created);
                Ok(ConfigVersion::Entry(slim(*object, created)))
            }
            CheckedContent::Unused => Ok(ConfigVersion::Unchecked(value.to_string().into())),
            CheckedContent::Core(kind) => self.core(kind, id, value).map(ConfigVersion::Entry),
        }))
    }

    fn core(self, kind: CoreKind, id: &EntryId, value: &Json) -> Result<Entry, Finding> {
        let (namespace, _) = id.namespace_and_name();
        let json = match self.is_whole {
            true => kind.whole(value, namespace),
            false => kind.trimmed(value, namespace, self.keeps_created),
        };
        if json.len() > MAX_BYTES {
            return Err(Finding::error("", "object is too large"));
        }
        (self.usable)(kind, &json).map_err(|cause| Finding::error("", cause))?;
        Ok(Entry::Core {
            kind,
            json: json.into(),
        })
    }
}

/// Reduces a valid object to the fields that its resource is encoded from.
fn slim(mut object: Object, created: Option<i64>) -> Entry {
    object.annotations.remove(LAST_APPLIED);
    object.spec = Json::Null;
    // The buffer that the body was written into may have spare capacity.
    object.body = object.body.to_vec().into();
    Entry::Object {
        object: Arc::new(object),
        created,
    }
}
