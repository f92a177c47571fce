//! Objects that requests of developers put into memory.

use std::sync::{Arc, Mutex, PoisonError};

use api::model::Registry;
use bytes::Bytes;
use sources::contribution::{SourceId, SyncState};
use sources::memory::Memory;
use tokio::task::JoinSet;

use super::names;
use crate::discovery::hub::{Hub, LARGE};

pub(super) fn id() -> SourceId {
    SourceId {
        registry: Registry::Memory,
        cluster: Memory::CLUSTER.into(),
    }
}

/// Creates an empty memory, which counts as read completely.
pub(super) fn start(hub: &Arc<Hub>, loops: &mut JoinSet<()>) -> Arc<Mutex<Memory>> {
    let memory = Arc::new(Mutex::new(Memory::new(names(hub, Memory::CLUSTER.into()))));
    hub.set_sync_state(&id(), SyncState::Synced);
    let mut trust = hub.trust.watch();
    let (hub, shared) = (Arc::clone(hub), Arc::clone(&memory));
    loops.spawn(async move {
        while trust.changed().await.is_ok() {
            let domain = trust.borrow_and_update().clone();
            let (update, memory) = (Arc::clone(&hub), Arc::clone(&shared));
            // In its turn: a request that is read at the moment has the lock.
            let set = move || {
                // Held until the registries have it, so that no older contribution comes behind a newer one.
                let mut memory = lock(&memory);
                let contribution = memory.set_trust_domain(&domain);
                update.put(&id(), contribution);
            };
            let _set = hub.blocking.run(LARGE, set).await;
        }
    });
    memory
}

fn lock(memory: &Mutex<Memory>) -> std::sync::MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request: all that is there is replaced.
#[derive(Debug)]
pub(in crate::discovery) struct Put {
    pub(super) hub: Arc<Hub>,
    pub(super) memory: Arc<Mutex<Memory>>,
}

impl Put {
    /// Replaces all objects by those of a body. Returns their number, or all errors.
    pub(in crate::discovery) fn take(&self, body: &[u8]) -> Result<usize, Vec<String>> {
        // Held until the registries have it, so that no older contribution comes behind a newer one.
        let mut memory = lock(&self.memory);
        let put = memory.put(body)?;
        self.hub.facts.count(&id(), put.counts);
        self.hub.put(&id(), put.contribution);
        Ok(put.objects)
    }

    /// The body as received.
    pub(in crate::discovery) fn body(&self) -> Bytes {
        Bytes::copy_from_slice(&lock(&self.memory).body())
    }
}
