//! Work that is started again after a panic.

use api::backoff::{Backoff, Bounds};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Runs what `start` makes until it ends without a panic.
pub(super) async fn restart_after_panic<F: Future<Output = ()> + Send + 'static>(
    name: &str,
    bounds: Bounds,
    start: impl Fn() -> F,
) {
    let mut backoff = Backoff::new(bounds);
    loop {
        // It ends with this future, which a handle would outlive.
        let mut alone = JoinSet::new();
        alone.spawn(start());
        match alone.join_next().await {
            Some(Err(ended)) if ended.is_panic() => {
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::Instant;

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
        restart_after_panic("a server", bounds, watches).await;
        assert_eq!(starts.load(Ordering::Relaxed), 3);
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(2), "without a pause: {took:?}");
    }
}
