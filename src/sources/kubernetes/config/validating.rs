//! The validation of a long object, on another thread: the event loop goes on meanwhile.

use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_blocking};

use super::object::refused;
use super::watched_object::WatchedObject;
use crate::catalogue::checked::CheckedObject;
use crate::catalogue::entry_form::ConfigVersion;
use crate::kind::{Key, Resource};

/// An object whose text is being validated.
#[derive(Debug)]
pub(super) struct PendingValidation {
    pub(super) collection: &'static str,
    pub(super) resource: Resource,
    pub(super) key: Key,
    pub(super) object: Arc<WatchedObject>,
    checked: JoinHandle<CheckedObject<ConfigVersion>>,
}

impl PendingValidation {
    pub(super) fn begin(
        collection: &'static str,
        resource: Resource,
        key: Key,
        object: Arc<WatchedObject>,
        checks: impl FnOnce() -> CheckedObject<ConfigVersion> + Send + 'static,
    ) -> Self {
        Self {
            collection,
            resource,
            key,
            object,
            checked: spawn_blocking(checks),
        }
    }

    /// Waits for the end. Cancel-safe, until it has come.
    pub(super) async fn end(&mut self) -> CheckedObject<ConfigVersion> {
        let checked = (&mut self.checked).await;
        checked.unwrap_or_else(|_| refused(self.collection, &self.key, "checking panicked"))
    }
}
