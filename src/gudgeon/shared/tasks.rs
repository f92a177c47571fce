//! Tasks of a role, and the end of the role when one of them panics: without it files or objects would be read no more, or a port
//! would accept nobody, while the role calls itself ready. The supervisor restarts the process.

use std::sync::Arc;

use sources::panics::caught;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::exit::Failure;

/// The failure of a role, a task of which has panicked.
pub(crate) fn panicked(_: JoinError) -> Failure {
    // A panic's message may contain a secret.
    Failure::system("cannot go on: internal error, see the panic in the log")
}

/// Waits for the `end` of a role. `loops` follow what it serves, `serving` has its ports.
///
/// # Errors
/// One of the tasks panicked before.
pub(crate) async fn until(
    end: impl Future<Output = ()>,
    loops: &mut JoinSet<()>,
    serving: &mut JoinSet<()>,
) -> Result<(), Failure> {
    tokio::select! {
        () = end => Ok(()),
        failure = first_panic(loops) => Err(failure),
        failure = first_panic(serving) => Err(failure),
    }
}

/// Waits until one of the tasks panics. The others may end.
pub(crate) async fn first_panic(tasks: &mut JoinSet<()>) -> Failure {
    while let Some(ended) = tasks.join_next().await {
        if let Err(cause) = ended {
            return panicked(cause);
        }
    }
    std::future::pending().await
}

/// Spawns tasks while a role serves. A panic of one ends the role, as that of a task of `loops` does.
#[derive(Debug)]
pub(crate) struct LateTasks {
    panicked: Arc<Notify>,
}

impl LateTasks {
    /// Adds a task to `loops`, which panics after one of those that are spawned later.
    pub(crate) fn of(loops: &mut JoinSet<()>) -> Self {
        let panicked = Arc::<Notify>::default();
        let this = Self {
            panicked: Arc::clone(&panicked),
        };
        loops.spawn(async move {
            panicked.notified().await;
            // The first panic has been counted and logged.
            std::panic::resume_unwind(Box::new("a task that was spawned later"));
        });
        this
    }

    /// Spawns a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let panicked = Arc::clone(&self.panicked);
        let task = tokio::spawn(async move {
            if caught(task).await.is_err() {
                panicked.notify_one();
            }
        });
        task.abort_handle()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::exit::Exit;

    fn tasks(panics: bool) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(ready(()));
        tasks.spawn(async move { assert!(!panics, "as a task that panics") });
        tasks
    }

    #[tokio::test]
    async fn a_role_ends_when_a_loop_or_a_port_panics() {
        for (loops, serving) in [(true, false), (false, true)] {
            let ended = until(pending(), &mut tasks(loops), &mut tasks(serving)).await;
            let failure = ended.unwrap_err();
            assert_eq!(failure.exit, Exit::System);
            assert!(!failure.message.contains("as a task"), "{failure:?}");
        }
        let mut others = [tasks(false), tasks(false)];
        let [loops, serving] = &mut others;
        assert_eq!(until(ready(()), loops, serving).await, Ok(()));
    }

    #[tokio::test]
    async fn a_task_that_is_spawned_later_ends_the_role_only_by_a_panic() {
        let mut loops = JoinSet::new();
        let late = LateTasks::of(&mut loops);
        late.spawn(ready(()));
        late.spawn(pending()).abort();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(loops.try_join_next().is_none());
        late.spawn(async { panic!("as a task that panics") });
        assert_eq!(first_panic(&mut loops).await.exit, Exit::System);
    }
}
