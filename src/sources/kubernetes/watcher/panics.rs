//! A panic while a source is read: one failed try, and no end of the source.

use tokio::time::Instant;

use super::{Health, Watcher};
use crate::kind::Kind;
use crate::kubernetes::store::Writer;

impl<K: Kind> Watcher<K> {
    /// Reports the panic and marks the source as stale: its objects stay in effect until the next watch has listed them.
    pub(super) fn panicked(&self, store: &mut Writer<K>, health: &mut Health) {
        let (resource, of) = (&self.resource, self.of_cluster());
        tracing::error!("the watch of {resource}{of} panicked, see the log: it starts again");
        let why = format!("the watch of {resource} panicked, see the log");
        store.stale(Instant::now(), why);
        let opened = health.opened.take();
        health.lasted |= opened.is_some_and(|at| at.elapsed() >= self.timing.steady);
    }
}
