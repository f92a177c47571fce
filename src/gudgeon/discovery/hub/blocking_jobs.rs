//! Work beside the event loop: large jobs run on a blocking thread, one at a time.

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// The number of ports and endpoints from which work runs on a blocking thread. Chosen: a few milliseconds of work, where the
/// loop may stop for 20.
pub(in crate::discovery) const LARGE: usize = 2_000;

#[derive(Debug)]
pub(crate) struct BlockingJobs {
    /// Limits blocking jobs to one at a time.
    worker: Arc<Semaphore>,
}

impl BlockingJobs {
    pub(super) fn new() -> Self {
        Self {
            worker: Arc::new(Semaphore::new(1)),
        }
    }

    /// Runs work of this size: small work here, large work on a blocking thread, one job at a time. Returns `None` if it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        size: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if size < LARGE {
            return Some(work());
        }
        self.spawn(work).await.ok()
    }

    /// Runs work on a blocking thread, one job at a time. A panic of it goes on here.
    pub(super) async fn run_large<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        match self.spawn(work).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    async fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = Arc::clone(&self.worker).acquire_owned().await;
        // The turn is the job's: its request may be dropped, and the job goes on.
        let job = move || {
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(job).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// On the loop the wait would never end: another task of the loop ends it.
    #[tokio::test]
    async fn large_jobs_run_beside_the_loop_one_after_the_other() {
        let jobs = BlockingJobs::new();
        let (sender, receiver) = mpsc::channel();
        let other = tokio::spawn(async move { sender.send(7) });
        let first = jobs.run(LARGE, move || receiver.recv());
        let second = jobs.run(LARGE, || panic!("a mistake"));
        let (first, second): (_, Option<()>) = tokio::join!(first, second);
        assert_eq!((first, second), (Some(Ok(7)), None));
        assert_eq!(other.await.unwrap(), Ok(()));
        let place = std::thread::current().id();
        let here = || std::thread::current().id();
        assert_eq!(jobs.run(LARGE - 1, here).await, Some(place));
        assert_ne!(jobs.run(LARGE, here).await, Some(place));
    }

    #[tokio::test]
    async fn a_job_keeps_its_turn_when_its_request_is_dropped() {
        let jobs = BlockingJobs::new();
        let (sender, receiver) = mpsc::channel::<()>();
        let mut dropped = Box::pin(jobs.run(LARGE, move || receiver.recv()));
        assert!(
            std::future::poll_fn(|context| {
                std::task::Poll::Ready(dropped.as_mut().poll(context).is_pending())
            })
            .await
        );
        drop(dropped);
        assert_eq!(jobs.worker.available_permits(), 0);
        drop(sender);
        assert_eq!(jobs.run(LARGE, || 1).await, Some(1));
    }
}
