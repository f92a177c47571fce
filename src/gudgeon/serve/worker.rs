//! Work that takes longer than the loop may: one thread beside it, for one job at a time.
//!
//! Jobs of connections that were answered before go first: of strangers' jobs one at most is ahead of them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Jobs of strangers, and jobs of others, that may wait.
const QUEUE: usize = 64;

/// The thread, and who may use it next.
#[derive(Debug)]
pub(crate) struct Worker {
    turn: Arc<Semaphore>,
    /// One stranger at a time waits for its turn, the others for that.
    stranger: Arc<Semaphore>,
    /// The same on the loop.
    beside: Semaphore,
    queues: [Semaphore; 2],
}

/// As many jobs wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

impl Worker {
    pub(crate) fn new() -> Self {
        Self {
            turn: Arc::new(Semaphore::new(1)),
            stranger: Arc::new(Semaphore::new(1)),
            beside: Semaphore::new(1),
            queues: [Semaphore::new(QUEUE), Semaphore::new(QUEUE)],
        }
    }

    /// Does it on the thread, in its turn.
    ///
    /// # Errors
    /// Too many wait already, or the program ends.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        established: bool,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let [strangers, others] = &self.queues;
        let queue = if established { others } else { strangers };
        let waits = queue.try_acquire().map_err(|_| Busy)?;
        let stranger = match established {
            true => None,
            false => Some(next(&self.stranger).await?),
        };
        let turn = next(&self.turn).await?;
        drop(waits);
        // Whoever goes meanwhile, its job is done before the next one begins.
        let done = tokio::task::spawn_blocking(move || {
            let done = job();
            drop((turn, stranger));
            done
        });
        done.await.map_err(|_| Busy)
    }

    /// Does it on the loop, where it takes little; of strangers' jobs one in each turn of the loop.
    ///
    /// # Errors
    /// The program ends.
    pub(crate) async fn run_here<T>(
        &self,
        established: bool,
        job: impl FnOnce() -> T,
    ) -> Result<T, Busy> {
        if established {
            return Ok(job());
        }
        let _turn = self.beside.acquire().await.map_err(|_| Busy)?;
        let done = job();
        tokio::task::yield_now().await;
        Ok(done)
    }
}

async fn next(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Busy> {
    Arc::clone(semaphore)
        .acquire_owned()
        .await
        .map_err(|_| Busy)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn of_strangers_one_is_ahead_and_no_more_wait_than_may() {
        let worker = Arc::new(Worker::new());
        let order: Arc<Mutex<Vec<&str>>> = Arc::default();
        let (goes_on, goes) = channel::<()>();
        let mut all = JoinSet::new();
        let begin = |all: &mut JoinSet<_>,
                     name,
                     established,
                     wait: Option<std::sync::mpsc::Receiver<()>>| {
            let (worker, order) = (Arc::clone(&worker), Arc::clone(&order));
            all.spawn(async move {
                let job = move || {
                    order.lock().unwrap().push(name);
                    wait.map(|wait| wait.recv());
                };
                worker.run(established, job).await
            });
        };
        begin(&mut all, "first", false, Some(goes));
        for (name, established) in [("stranger", false), ("other", false), ("kept", true)] {
            tokio::task::yield_now().await;
            begin(&mut all, name, established, None);
        }
        for _ in 0..QUEUE {
            begin(&mut all, "more", false, None);
        }
        while all.len() > QUEUE + 2 {
            assert_eq!(all.join_next().await.unwrap().unwrap(), Err(Busy));
        }
        // The loop turns meanwhile.
        assert_eq!(worker.run_here(true, || 7).await, Ok(7));
        goes_on.send(()).unwrap();
        while let Some(done) = all.join_next().await {
            assert_eq!(done.unwrap(), Ok(()));
        }
        let order = order.lock().unwrap();
        assert_eq!(order[..4], ["first", "kept", "stranger", "other"]);
        assert_eq!(order.len(), QUEUE + 2);
    }

    #[tokio::test]
    async fn strangers_take_turns_with_the_loop() {
        let worker = Arc::new(Worker::new());
        let order: Arc<Mutex<Vec<bool>>> = Arc::default();
        let mut all = JoinSet::new();
        for established in [false, false, false, true] {
            let (worker, order) = (Arc::clone(&worker), Arc::clone(&order));
            all.spawn(async move {
                let job = || order.lock().unwrap().push(established);
                worker.run_here(established, job).await
            });
        }
        while let Some(done) = all.join_next().await {
            assert_eq!(done.unwrap(), Ok(()));
        }
        assert_eq!(*order.lock().unwrap(), [false, true, false, false]);
    }
}
