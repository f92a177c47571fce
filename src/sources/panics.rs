//! Work that may panic: it ends as failed, or it starts again. A task that is gone would leave its last state in effect for good,
//! unnoticed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use api::backoff::{Backoff, Bounds};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};

/// Work that lasted so long before a panic is no failed try. Chosen: far more than the longest wait.
const LASTED: Duration = Duration::from_secs(60);

/// The work panicked, and the panic is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// Does the work.
///
/// # Errors
/// It panicked.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        // Callers make all that the work has changed anew: a store by the next list, a task by its start.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(_logged) => Poll::Ready(Err(Panicked)),
        }
    })
    .await
}

/// Runs the work that `start` makes until it ends without a panic. `name`: its name in the log. `on_panic` is called before each
/// wait.
pub(crate) async fn restart_after_panic<F: Future<Output = ()>>(
    name: &str,
    bounds: Bounds,
    start: impl Fn() -> F,
    on_panic: impl Fn(),
) {
    let mut backoff = Backoff::new(bounds);
    loop {
        let begun = Instant::now();
        // `start` itself may panic.
        let Err(Panicked) = caught(async { start().await }).await else {
            return;
        };
        on_panic();
        if begun.elapsed() >= LASTED {
            backoff.reset();
        }
        let wait = backoff.next(fastrand::f64());
        tracing::error!("{name} panicked, see the log: starting again in {wait:.1?}");
        sleep(wait).await;
    }
}

/// Tasks that start again after a panic. They end with this.
#[derive(Debug)]
pub(crate) struct RestartingTasks {
    tasks: JoinSet<()>,
    bounds: Bounds,
}

impl RestartingTasks {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let tasks = JoinSet::new();
        Self { tasks, bounds }
    }

    /// Spawns the work that `start` makes. `name`: its name in the log.
    pub(crate) fn spawn<F: Future<Output = ()> + Send>(
        &mut self,
        name: String,
        start: impl Fn() -> F + Send + Sync + 'static,
    ) -> AbortHandle {
        // Reaps the tasks that have ended.
        while self.tasks.try_join_next().is_some() {}
        let bounds = self.bounds;
        self.tasks
            .spawn(async move { restart_after_panic(&name, bounds, start, || ()).await })
    }

    /// Waits until all have ended.
    pub(crate) async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_starts_again_until_it_ends() {
        let starts = Arc::new(AtomicUsize::new(0));
        let mut tasks = RestartingTasks::new(Bounds {
            first: Duration::from_secs(1),
            max: Duration::from_secs(2),
        });
        let counted = Arc::clone(&starts);
        tasks.spawn("a task".to_owned(), move || {
            let start = counted.fetch_add(1, Ordering::Relaxed);
            async move { assert!(start >= 2, "as a task that panics") }
        });
        tasks.ended().await;
        assert_eq!(starts.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_end_with_their_owner() {
        let (held, mut ended) = tokio::sync::watch::channel(());
        let held = Arc::new(held);
        let mut tasks = RestartingTasks::new(Bounds {
            first: Duration::from_secs(1),
            max: Duration::from_secs(1),
        });
        tasks.spawn("a task".to_owned(), move || {
            let held = Arc::clone(&held);
            async move {
                std::future::pending::<()>().await;
                drop(held);
            }
        });
        tokio::task::yield_now().await;
        assert!(ended.has_changed().is_ok());
        drop(tasks);
        assert!(ended.changed().await.is_err());
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let panics = async { panic!("a mistake") };
        let ended: Result<(), _> = caught(panics).await;
        assert_eq!(ended, Err(Panicked));
        assert_eq!(caught(async { 7 }).await, Ok(7));
    }

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
            max: Duration::from_secs(2),
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
            max: Duration::from_secs(50),
        };
        let begun = Instant::now();
        restart_after_panic("a server", bounds, watches, || {}).await;
        let waited = begun.elapsed().saturating_sub(6 * LASTED);
        assert!(waited < Duration::from_secs(7), "{waited:?}");
    }
}
