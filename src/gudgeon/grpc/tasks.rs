//! Futures of one connection, driven by the task of that connection.
//!
//! A push to two thousand clients is answered by two thousand acknowledgements at about the same time. With a task for each stream
//! the runtime reads all connections that have something before any stream has its turn: a hundred megabytes of messages would
//! lie in memory, in pieces that the heap never returns as a whole. Here what was read of a connection is worked on before the
//! next connection is read.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, Stream as _};
use hyper::rt::Executor;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes futures for the task of a connection.
#[derive(Clone, Default)]
pub(super) struct Spawner(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    new: Vec<Task>,
    /// The connection's task, where it waits.
    waker: Option<Waker>,
}

impl fmt::Debug for Spawner {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a future to its end beside the others of this connection. A panic ends it alone.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // The hook has logged a panic; nothing of the future is looked at afterwards.
        let task = AssertUnwindSafe(task).catch_unwind().map(drop);
        let mut queue = self.queue();
        queue.new.push(Box::pin(task));
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<F> Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// The futures of one connection. As a future it never ends: it drives them whenever it is polled.
pub(super) struct Tasks {
    spawner: Spawner,
    running: FuturesUnordered<Task>,
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self {
            spawner: Spawner::default(),
            running: FuturesUnordered::new(),
        }
    }

    pub(super) fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Lets them end without their connection: they notice that it is gone.
    pub(super) fn finish(mut self) {
        self.running
            .extend(std::mem::take(&mut self.spawner.queue().new));
        if !self.running.is_empty() {
            tokio::spawn(async move {
                let mut tasks = self;
                std::future::poll_fn(|cx| match Pin::new(&mut tasks).poll(cx) {
                    Poll::Pending if !tasks.running.is_empty() => Poll::Pending,
                    _ => Poll::Ready(()),
                })
                .await;
            });
        }
    }
}

impl Future for Tasks {
    type Output = std::convert::Infallible;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let new = {
                let mut queue = self.spawner.queue();
                queue.waker = Some(cx.waker().clone());
                std::mem::take(&mut queue.new)
            };
            self.running.extend(new);
            while let Poll::Ready(Some(())) = Pin::new(&mut self.running).poll_next(cx) {}
            // One may have begun another.
            if self.spawner.queue().new.is_empty() {
                return Poll::Pending;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn they_run_beside_their_connection_and_a_panic_ends_one() {
        let tasks = Tasks::new();
        let spawner = tasks.spawner();
        let (done, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        for at in 0..3 {
            let (done, go, inner) = (Arc::clone(&done), Arc::clone(&go), spawner.clone());
            spawner.spawn(async move {
                assert!(at != 1, "one of them");
                go.notified().await;
                let done = Arc::clone(&done);
                // One that begins another.
                inner.spawn(async move {
                    done.fetch_add(1, Ordering::Relaxed);
                });
            });
        }
        let counted = Arc::clone(&done);
        let connection = async move {
            while counted.load(Ordering::Relaxed) < 2 {
                go.notify_waiters();
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            never = tasks => match never {},
            () = connection => {}
        }
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn they_end_by_themselves_when_their_connection_is_gone() {
        let tasks = Tasks::new();
        let spawner = tasks.spawner();
        let (said, mut heard) = tokio::sync::mpsc::channel(1);
        let go = Arc::new(Notify::new());
        let waits = Arc::clone(&go);
        spawner.spawn(async move {
            waits.notified().await;
            let _told = said.send(()).await;
        });
        tasks.finish();
        tokio::task::yield_now().await;
        go.notify_one();
        assert_eq!(heard.recv().await, Some(()));
    }
}
