//! A panic while a source is read: one failed try, and no end of the source.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::time::Instant;

use super::{Health, Watcher};
use crate::kind::Kind;
use crate::kubernetes::store::Writer;

/// Does the work; `None` if it panicked.
pub(super) async fn without_panic<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        // What it leaves behind is a store, which the next list replaces.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(poll) => poll.map(Some),
            Err(_logged) => Poll::Ready(None),
        }
    })
    .await
}

impl<K: Kind> Watcher<K> {
    /// A source that is gone would leave its objects in effect for good, and nobody would know.
    pub(super) fn panicked(&self, store: &mut Writer<K>, health: &mut Health) {
        let (resource, of) = (&self.resource, self.of_cluster());
        tracing::error!("the watch of {resource}{of} panicked, see the log: it starts again");
        let why = format!("the watch of {resource} panicked, see the log");
        store.stale(Instant::now(), why);
        let opened = health.opened.take();
        health.lasted |= opened.is_some_and(|at| at.elapsed() >= self.timing.steady);
    }
}
