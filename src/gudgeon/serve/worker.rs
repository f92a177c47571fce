//! Work that takes longer than the loop may: one thread beside it, for one job at a time. And the loop's own share.
//!
//! Flows take turns: each address whose connections were answered before is one, and all strangers together are another. So
//! a client with many jobs waits for itself.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Jobs of strangers, and jobs of others, that may wait: as many as the injector's requests with a permit.
const QUEUE: usize = 256;

/// The owner of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct JobOwner {
    pub(crate) network: IpAddr,
    /// The connection has been answered before.
    pub(crate) established: bool,
}

/// The worker thread, and the queue for it.
#[derive(Debug)]
pub(crate) struct Worker {
    thread: TurnQueue,
    /// The same on the loop.
    beside: TurnQueue,
}

/// The error of a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

impl Worker {
    pub(crate) fn new() -> Self {
        Self {
            thread: TurnQueue::new(QUEUE),
            // Permits already bound the number of waiting jobs.
            beside: TurnQueue::new(usize::MAX),
        }
    }

    /// Runs the job on the worker thread, in its turn.
    ///
    /// # Errors
    /// The queue is full, or the program ends.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        owner: JobOwner,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let turn = self.thread.next(owner).await?;
        // If the client goes meanwhile, its job still ends before the next one begins.
        let done = tokio::task::spawn_blocking(move || {
            let done = job();
            drop(turn);
            done
        });
        done.await.map_err(|_| Busy)
    }

    /// Runs a short job on the event loop: one in each turn of the loop.
    ///
    /// # Errors
    /// The program ends.
    pub(crate) async fn run_here<T>(
        &self,
        owner: JobOwner,
        job: impl FnOnce() -> T,
    ) -> Result<T, Busy> {
        let _turn = self.beside.next(owner).await?;
        let done = job();
        // The turn is held over the yield, so that other tasks run between two jobs.
        tokio::task::yield_now().await;
        Ok(done)
    }
}

/// A queue that grants one turn at a time.
#[derive(Clone, Debug)]
struct TurnQueue(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    max: usize,
    is_busy: bool,
    next: u64,
    waiting: BTreeMap<u64, WaitingJob>,
    /// The turn at which each waiting or recent flow was served last.
    served: HashMap<TurnKey, u64>,
    turns: u64,
}

#[derive(Debug)]
struct WaitingJob {
    owner: JobOwner,
    turn: oneshot::Sender<WorkerTurn>,
}

/// The key of a queue of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TurnKey {
    Strangers,
    Flow(JobOwner),
}

impl JobOwner {
    /// Strangers share a turn, and take turns in it.
    fn keys(self) -> [TurnKey; 2] {
        let outer = match self.established {
            true => TurnKey::Flow(self),
            false => TurnKey::Strangers,
        };
        [outer, TurnKey::Flow(self)]
    }
}

/// Leave to do one job; the next has it when this is dropped. `None`: it was never taken.
#[derive(Debug)]
struct WorkerTurn(Option<TurnQueue>);

impl Drop for WorkerTurn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

impl TurnQueue {
    fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue {
            max,
            is_busy: false,
            next: 0,
            waiting: BTreeMap::new(),
            served: HashMap::new(),
            turns: 0,
        })))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self, owner: JobOwner) -> Result<WorkerTurn, Busy> {
        let turn = {
            let mut queue = self.queue();
            if !queue.is_busy {
                queue.is_busy = true;
                queue.serve(owner);
                return Ok(WorkerTurn(Some(self.clone())));
            }
            queue.enter(owner)?
        };
        turn.await.map_err(|_| Busy)
    }

    /// Passes the turn to the next waiting job.
    fn pass_on(&self) {
        loop {
            let next = {
                let mut queue = self.queue();
                let next = queue.first().and_then(|id| queue.waiting.remove(&id));
                match &next {
                    Some(waits) => queue.serve(waits.owner),
                    None => queue.is_busy = false,
                }
                next
            };
            let Some(waits) = next else {
                return;
            };
            match waits.turn.send(WorkerTurn(Some(self.clone()))) {
                Ok(()) => return,
                // The waiting job was just cancelled: its turn is passed on here.
                Err(mut turn) => turn.0 = None,
            }
        }
    }
}

impl Queue {
    /// Waits for a turn. If the queue is full, a job of the flow that has the most is dropped for one of a flow that has
    /// fewer.
    fn enter(&mut self, owner: JobOwner) -> Result<oneshot::Receiver<WorkerTurn>, Busy> {
        // A cancelled request leaves its entry behind, which must not count.
        self.waiting.retain(|_, waits| !waits.turn.is_closed());
        let mut counts: HashMap<JobOwner, usize> = HashMap::new();
        for waits in self.waiting.values() {
            // Strangers and established clients fill a queue of their own each.
            if waits.owner.established == owner.established {
                *counts.entry(waits.owner).or_default() += 1;
            }
        }
        if counts.values().sum::<usize>() >= self.max {
            let own = counts.get(&owner).copied().unwrap_or_default();
            let largest = counts.into_iter().max_by_key(|(_, count)| *count);
            // The newcomer's flow will have one more: only a flow with more than that gives way.
            let (largest, _) = largest.filter(|(_, count)| *count > own + 1).ok_or(Busy)?;
            let mut latest = self.waiting.iter().rev();
            let newest = latest.find(|(_, waits)| waits.owner == largest);
            let newest = newest.map(|(id, _)| *id).ok_or(Busy)?;
            // The waiting task gets an error.
            self.waiting.remove(&newest);
        }
        let (turn, waits) = oneshot::channel();
        self.waiting.insert(self.next, WaitingJob { owner, turn });
        self.next += 1;
        Ok(waits)
    }

    /// The flow that has not had a turn for the longest time.
    fn first(&self) -> Option<u64> {
        let here = self.waiting.iter();
        let here = here.filter(|(_, waits)| !waits.turn.is_closed());
        let first = here.min_by_key(|(id, waits)| {
            let last = |key: TurnKey| self.served.get(&key).copied().unwrap_or_default();
            (waits.owner.keys().map(last), **id)
        });
        first.map(|(id, _)| *id)
    }

    fn serve(&mut self, owner: JobOwner) {
        self.turns += 1;
        // Clients choose their addresses: the table forgets flows that do not wait, at amortized constant
        // cost.
        if self.served.len() > 8 + 2 * self.waiting.len() {
            let here = self.waiting.values();
            let here: HashSet<TurnKey> = here.flat_map(|waits| waits.owner.keys()).collect();
            self.served.retain(|key, _| here.contains(key));
        }
        for key in owner.keys() {
            self.served.insert(key, self.turns);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use tokio::task::JoinSet;

    use super::*;

    fn flow(last: u8, established: bool) -> JobOwner {
        JobOwner {
            network: IpAddr::from([10, 0, 0, last]),
            established,
        }
    }

    /// Jobs that note their names, in their order.
    struct Jobs {
        worker: Arc<Worker>,
        order: Arc<Mutex<Vec<&'static str>>>,
        all: JoinSet<Result<(), Busy>>,
    }

    impl Jobs {
        fn new() -> Self {
            Self {
                worker: Arc::new(Worker::new()),
                order: Arc::default(),
                all: JoinSet::new(),
            }
        }

        async fn begin(&mut self, name: &'static str, owner: JobOwner, wait: Option<Receiver<()>>) {
            let (worker, order) = (Arc::clone(&self.worker), Arc::clone(&self.order));
            self.all.spawn(async move {
                let job = move || {
                    order.lock().unwrap().push(name);
                    if let Some(wait) = wait {
                        wait.recv().unwrap();
                    }
                };
                worker.run(owner, job).await
            });
            tokio::task::yield_now().await;
        }

        /// The names of those that were done.
        async fn done(mut self) -> Vec<&'static str> {
            while let Some(done) = self.all.join_next().await {
                assert_eq!(done.unwrap(), Ok(()));
            }
            std::mem::take(&mut *self.order.lock().unwrap())
        }
    }

    #[tokio::test]
    async fn one_stranger_is_ahead_and_the_queue_is_bounded() {
        let mut jobs = Jobs::new();
        let (goes_on, goes) = channel::<()>();
        jobs.begin("first", flow(1, false), Some(goes)).await;
        jobs.begin("stranger", flow(1, false), None).await;
        jobs.begin("other", flow(1, false), None).await;
        jobs.begin("kept", flow(1, true), None).await;
        for _ in 0..QUEUE {
            jobs.begin("more", flow(1, false), None).await;
        }
        while jobs.all.len() > QUEUE + 2 {
            assert_eq!(jobs.all.join_next().await.unwrap().unwrap(), Err(Busy));
        }
        // The loop turns meanwhile.
        assert_eq!(jobs.worker.run_here(flow(1, true), || 7).await, Ok(7));
        goes_on.send(()).unwrap();
        let order = jobs.done().await;
        assert_eq!(order[..4], ["first", "kept", "stranger", "other"]);
        assert_eq!(order.len(), QUEUE + 2);
    }

    /// 64 large reviews of one established client used to delay the API server's.
    #[tokio::test]
    async fn a_client_with_many_jobs_waits_for_itself() {
        for established in [true, false] {
            let mut jobs = Jobs::new();
            let (goes_on, goes) = channel::<()>();
            jobs.begin("first", flow(1, established), Some(goes)).await;
            for _ in 0..QUEUE {
                jobs.begin("many", flow(1, established), None).await;
            }
            for _ in 0..2 {
                jobs.begin("server", flow(2, established), None).await;
                assert_eq!(jobs.all.join_next().await.unwrap().unwrap(), Err(Busy));
            }
            goes_on.send(()).unwrap();
            let order = jobs.done().await;
            assert_eq!(order[..4], ["first", "server", "many", "server"]);
            assert_eq!(order.len(), QUEUE + 1);
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_gives_its_turn_to_the_next() {
        let mut jobs = Jobs::new();
        let (goes_on, goes) = channel::<()>();
        jobs.begin("first", flow(1, true), Some(goes)).await;
        let worker = Arc::clone(&jobs.worker);
        let gone = tokio::spawn(async move { worker.run(flow(2, true), || ()).await });
        tokio::task::yield_now().await;
        jobs.begin("last", flow(3, true), None).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        goes_on.send(()).unwrap();
        assert_eq!(jobs.done().await, ["first", "last"]);
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
                worker.run_here(flow(1, established), job).await
            });
        }
        while let Some(done) = all.join_next().await {
            assert_eq!(done.unwrap(), Ok(()));
        }
        assert_eq!(*order.lock().unwrap(), [false, true, false, false]);
    }

    #[tokio::test]
    async fn nothing_is_remembered_of_who_has_gone() {
        let worker = Worker::new();
        for last in 0..=255 {
            assert_eq!(worker.run_here(flow(last, true), || ()).await, Ok(()));
        }
        assert!(worker.beside.queue().served.len() <= 10);
    }
}
