//! The snapshot that is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use xds::snapshot::Snapshot;

#[derive(Debug)]
pub(crate) struct CurrentSnapshot {
    /// `None` until all sources were read.
    current: watch::Sender<Option<Arc<Snapshot>>>,
    /// The number of snapshots that were served.
    number: AtomicU64,
}

impl CurrentSnapshot {
    pub(super) fn new() -> Self {
        Self {
            current: watch::Sender::new(None),
            number: AtomicU64::new(0),
        }
    }

    pub(super) fn publish(&self, snapshot: Arc<Snapshot>) {
        // The number follows the snapshot: an answer that is made of it meanwhile has the number before, and is made once more.
        self.current.send_replace(Some(snapshot));
        self.number.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn is_none(&self) -> bool {
        self.current.borrow().is_none()
    }

    pub(super) fn get(&self) -> Option<Arc<Snapshot>> {
        self.current.borrow().clone()
    }

    /// The number of the snapshot that is current, counted from 1; 0 before the first.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    /// Receives each snapshot when it becomes the current one.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.current.subscribe()
    }

    /// Waits for the first snapshot, and returns the current one.
    pub(crate) async fn first(&self) -> Arc<Snapshot> {
        let mut watched = self.watch();
        loop {
            if let Some(snapshot) = watched.borrow_and_update().clone() {
                return snapshot;
            }
            if watched.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}
