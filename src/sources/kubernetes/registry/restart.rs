//! Work that is started again after a panic, and what stays of the state that it had found.

use std::sync::Arc;
use std::time::Duration;

use api::backoff::{Backoff, Bounds};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::cluster_state::ClusterUpdate;
use crate::contribution::SyncState;

/// Watches that lasted so long before a panic are no failed try. Chosen: far more than the longest wait.
const LASTED: Duration = Duration::from_secs(60);

/// The error until the watches that start after a panic have one of their own, or have listed everything.
pub(super) const PANICKED: &str = "its watches panicked, see the log";

impl ClusterUpdate {
    /// The watches are gone: what they have found stays in effect.
    pub(super) fn panicked(&mut self, now: Instant) {
        self.fails(PANICKED.into(), now);
    }

    /// Takes the state of a run. Until it has listed everything, what an earlier run has found stays in effect: an empty state
    /// in its place would take every service and every policy away.
    pub(super) fn follow(&mut self, update: Self, now: Instant) {
        let keeps = update.sync_state == SyncState::Syncing && self.sync_state != update.sync_state;
        match (keeps, update.error) {
            (true, Some(error)) => self.fails(error, now),
            (true, None) => {}
            (false, error) => *self = Self { error, ..update },
        }
    }

    fn fails(&mut self, error: Arc<str>, now: Instant) {
        if self.sync_state != SyncState::Syncing {
            self.lost.get_or_insert(now);
            let error = Arc::clone(&error);
            self.sync_state = SyncState::Stale { error };
        }
        self.error = Some(error);
    }
}

/// Runs what `start` makes until it ends without a panic. `on_panic` is called before each wait.
pub(super) async fn restart_after_panic<F: Future<Output = ()> + Send + 'static>(
    name: &str,
    bounds: Bounds,
    start: impl Fn() -> F,
    on_panic: impl Fn(),
) {
    let mut backoff = Backoff::new(bounds);
    loop {
        let begun = Instant::now();
        // It ends with this future, which a handle would outlive.
        let mut alone = JoinSet::new();
        alone.spawn(start());
        match alone.join_next().await {
            Some(Err(ended)) if ended.is_panic() => {
                on_panic();
                if begun.elapsed() >= LASTED {
                    backoff.reset();
                }
                let wait = backoff.next(fastrand::f64());
                tracing::error!(
                    "the watches of {name} panicked, see the log: they start again in {wait:.1?}"
                );
                sleep(wait).await;
            }
            Some(_) | None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_of_a_task_starts_all_watches_again() {
        let starts = Arc::new(AtomicUsize::new(0));
        let watches = || {
            let start = starts.fetch_add(1, Ordering::Relaxed);
            async move {
                let mut tasks = JoinSet::new();
                tasks.spawn(async move { assert!(start >= 2, "as a client that panics") });
                if let Some(Err(ended)) = tasks.join_next().await {
                    std::panic::resume_unwind(ended.into_panic());
                }
            }
        };
        let bounds = Bounds {
            first: Duration::from_secs(1),
            most: Duration::from_secs(2),
        };
        let begun = Instant::now();
        let panics = AtomicUsize::new(0);
        let on_panic = || assert!(panics.fetch_add(1, Ordering::Relaxed) < 2);
        restart_after_panic("a server", bounds, watches, on_panic).await;
        assert_eq!(starts.load(Ordering::Relaxed), 3);
        assert_eq!(panics.load(Ordering::Relaxed), 2);
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(2), "without a pause: {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_lasted_start_again_after_the_first_wait() {
        let starts = Arc::new(AtomicUsize::new(0));
        let watches = || {
            let start = starts.fetch_add(1, Ordering::Relaxed);
            async move {
                sleep(LASTED).await;
                assert!(start >= 5, "as a client that panics");
            }
        };
        let bounds = Bounds {
            first: Duration::from_secs(1),
            most: Duration::from_secs(50),
        };
        let begun = Instant::now();
        restart_after_panic("a server", bounds, watches, || {}).await;
        let waited = begun.elapsed().saturating_sub(6 * LASTED);
        assert!(waited < Duration::from_secs(7), "{waited:?}");
    }

    #[test]
    fn an_error_before_the_first_list_leaves_a_source_syncing() {
        let now = Instant::now();
        let mut update = ClusterUpdate::default();
        update.panicked(now);
        let (state, error) = (&update.sync_state, update.error.as_deref());
        assert_eq!((state, error), (&SyncState::Syncing, Some(PANICKED)));
        assert_eq!(update.lost, None);
        let away = ClusterUpdate {
            error: Some("away".into()),
            ..ClusterUpdate::default()
        };
        update.follow(away.clone(), now);
        assert_eq!(update, away);
    }
}
