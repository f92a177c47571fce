//! Updates of sources, one after the other: a small one is applied where it comes from, those of a large mesh beside the event loop.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::model::{Changes, PushRequest, ServiceKey, World};
use sources::aggregate::Registries;
use sources::contribution::{Contribution, SourceId};
use tokio::sync::watch;
use tracing::debug;
use xds::snapshot::Snapshot;

use super::Hub;
use super::blocking_jobs::LARGE;
use super::merged_sources::MergedSources;

type UpdateStep = Box<dyn FnOnce(&mut Registries) -> Changes + Send>;

/// Updates that wait for those before them. Each has a number, its place among all that were enqueued.
#[derive(Default)]
pub(super) struct UpdateQueue {
    waiting: Mutex<Vec<(u64, UpdateStep)>>,
    progress: watch::Sender<UpdateProgress>,
}

/// The numbers of the last update that was enqueued, and of the last one that is applied.
#[derive(Clone, Copy, Debug, Default)]
struct UpdateProgress {
    enqueued: u64,
    applied: u64,
}

impl UpdateProgress {
    /// Updates wait, or are applied beside the event loop.
    fn is_busy(self) -> bool {
        self.applied < self.enqueued
    }
}

impl UpdateQueue {
    fn waiting(&self) -> MutexGuard<'_, Vec<(u64, UpdateStep)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> UpdateProgress {
        *self.progress.borrow()
    }

    /// Enqueues an update, or returns a small one that no other is before.
    fn enqueue<S>(&self, is_large: bool, step: S) -> Option<S>
    where
        S: FnOnce(&mut Registries) -> Changes + Send + 'static,
    {
        let mut waiting = self.waiting();
        let progress = self.progress();
        if !is_large && !progress.is_busy() {
            return Some(step);
        }
        let number = progress.enqueued + 1;
        waiting.push((number, Box::new(step)));
        self.progress.send_modify(|now| now.enqueued = number);
        None
    }

    /// Takes all updates that wait, once there are any.
    async fn take(&self) -> Vec<(u64, UpdateStep)> {
        self.wait_for(UpdateProgress::is_busy).await;
        mem::take(&mut *self.waiting())
    }

    /// Takes note of the last update that is applied.
    fn applied(&self, number: u64) {
        self.progress.send_modify(|now| now.applied = number);
    }

    /// Returns when the queue has come so far.
    async fn wait_for(&self, is_there: impl Fn(UpdateProgress) -> bool) {
        let mut changes = self.progress.subscribe();
        // It cannot fail: the sender is here.
        let _progress = changes.wait_for(|now| is_there(*now)).await;
    }
}

impl std::fmt::Debug for UpdateQueue {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("UpdateQueue")
            .field("waiting", &self.waiting().len())
            .finish_non_exhaustive()
    }
}

impl Hub {
    fn registries(&self) -> MutexGuard<'_, Registries> {
        let registries = self.registries.lock();
        registries.unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function with the registries, which waits for the update that is being applied: never on the event loop.
    pub(crate) fn with_registries<T>(&self, at: impl FnOnce(&Registries) -> T) -> T {
        at(&self.registries())
    }

    /// Replaces all objects of a source. The changes go out after the debounce.
    pub(crate) fn put(&self, id: &SourceId, contribution: Contribution) {
        let (id, size) = (id.clone(), contribution.size());
        self.update_of_size(size, move |registries| registries.put(&id, contribution));
    }

    /// Applies a source's update. The changes go out after the debounce.
    pub(crate) fn update(&self, step: impl FnOnce(&mut Registries) -> Changes + Send + 'static) {
        self.update_of_size(0, step);
    }

    fn update_of_size(
        &self,
        size: usize,
        step: impl FnOnce(&mut Registries) -> Changes + Send + 'static,
    ) {
        let is_large = size.max(self.inputs().merged.size) >= LARGE;
        if let Some(step) = self.updates.enqueue(is_large, step) {
            self.apply(step);
        }
    }

    /// Returns when every update so far is applied, whatever is enqueued later: a source that waits for it merges what comes
    /// meanwhile into one update.
    pub(crate) async fn updates_applied(&self) {
        let last = self.updates.progress().enqueued;
        self.updates.wait_for(|now| now.applied >= last).await;
    }

    /// Returns true while updates wait, or are applied beside the event loop.
    pub(crate) fn is_applying_updates(&self) -> bool {
        self.updates.progress().is_busy()
    }

    /// Returns the number of all updates that were ever enqueued.
    #[cfg(test)]
    pub(crate) fn enqueued_updates(&self) -> u64 {
        self.updates.progress().enqueued
    }

    /// Applies the updates that wait, for ever.
    pub(super) async fn apply_updates(self: &Arc<Self>) {
        loop {
            let steps = self.updates.take().await;
            let this = Arc::clone(self);
            let apply = move || {
                for (number, step) in steps {
                    this.apply(step);
                    this.updates.applied(number);
                }
            };
            self.blocking.run_large(apply).await;
        }
    }

    /// Applies an update here and now.
    pub(super) fn apply(&self, step: impl FnOnce(&mut Registries) -> Changes) {
        let mut registries = self.registries();
        let changes = step(&mut registries);
        if !changes.is_empty() {
            debug!("changed: {changes}");
        }
        let merged = MergedSources::of(&registries);
        let world = merged.world.clone();
        // The inputs are others' to read meanwhile: thousands of services may have changed.
        let pushes = pushes(&changes, self.snapshot().as_deref(), &world);
        let now = self.clock.now();
        let is_complete = merged.missing().next().is_none();
        // A first snapshot without keys would take them from proxies that have some.
        let begins = is_complete && self.current.is_none() && self.jwks.is_ready(&world, now);
        // While a source is missing, what is left out may be another thing than in the end.
        let news = if is_complete {
            registries.take_new_reports()
        } else {
            Vec::new()
        };
        self.inputs()
            .change(now, merged, &changes, pushes, &self.metrics);
        self.requests.send_if_modified(|policies| {
            let is_other = *policies != world.request_authentications;
            *policies = Arc::clone(&world.request_authentications);
            is_other
        });
        self.log_rate_limiters.left_out(&news);
        if begins {
            self.begin();
        }
        // The next update finds the first snapshot.
        drop(registries);
        if !self.current.is_none() {
            self.log_rules_without_effect();
        }
        self.trust.set(&world.mesh);
        self.changed.notify_one();
    }
}

/// The pushes that follow from an update. `served`: the snapshot that is served; the first one takes in all that came before it.
fn pushes(changes: &Changes, served: Option<&Snapshot>, world: &World) -> Vec<PushRequest> {
    let only_assignments =
        |key: &ServiceKey| served.is_none_or(|served| served.changes_only_assignments(world, key));
    changes.pushes(only_assignments)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::sync::mpsc;
    use std::task::Poll;
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use api::model::Registry;
    use sources::contribution::SyncState;

    use super::*;
    use crate::discovery::readiness::readiness;
    use crate::discovery::testing::{hub, large_contribution};

    /// The threads on which updates were applied, in order.
    #[derive(Clone, Debug, Default)]
    struct Applied(Arc<Mutex<Vec<(usize, ThreadId)>>>);

    impl Applied {
        fn step(&self, number: usize) -> impl FnOnce(&mut Registries) -> Changes + use<> {
            let this = self.clone();
            move |_| {
                let place = thread::current().id();
                this.0.lock().unwrap().push((number, place));
                Changes::default()
            }
        }

        /// The numbers, and whether each was applied on this thread.
        fn all(&self) -> Vec<(usize, bool)> {
            let here = thread::current().id();
            let all = self.0.lock().unwrap();
            all.iter()
                .map(|(number, at)| (*number, *at == here))
                .collect()
        }
    }

    /// Makes the mesh a large one, whose updates all leave the loop.
    fn put_large(hub: &Hub) -> SourceId {
        let id = SourceId {
            registry: Registry::External,
            cluster: "east".into(),
        };
        hub.put(&id, large_contribution());
        id
    }

    async fn poll_once(mut waits: Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        poll_fn(|context| Poll::Ready(waits.as_mut().poll(context))).await
    }

    #[tokio::test]
    async fn large_updates_leave_the_loop_and_later_ones_come_after_them() {
        let (hub, applied) = (hub(), Applied::default());
        hub.update_of_size(LARGE - 1, applied.step(1));
        hub.update_of_size(LARGE, applied.step(2));
        hub.update_of_size(0, applied.step(3));
        assert_eq!(applied.all(), [(1, true)]);
        let _running = tokio::spawn(Arc::clone(&hub).run());
        hub.updates_applied().await;
        hub.update(applied.step(4));
        let expected = [(1, true), (2, false), (3, false), (4, true)];
        assert_eq!(applied.all(), expected);
        // In a large mesh a small update may be one of everything.
        put_large(&hub);
        hub.update(applied.step(5));
        hub.updates_applied().await;
        assert_eq!(applied.all()[4..], [(5, false)]);
    }

    /// The lock of what an update merges was that of the next snapshot's inputs, which probes and streams take, too.
    #[tokio::test]
    async fn the_loop_goes_on_while_a_large_update_is_applied() {
        let hub = hub();
        let (begins, begun) = mpsc::channel();
        let (ends, ended) = mpsc::channel();
        hub.update_of_size(LARGE, move |_| {
            begins.send(()).unwrap();
            ended.recv_timeout(Duration::from_secs(20)).unwrap();
            Changes::default()
        });
        let running = tokio::spawn(Arc::clone(&hub).run());
        while begun.try_recv().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(readiness(&hub), Ok("ok".to_owned()));
        hub.push_all();
        assert!(hub.world().services.is_empty());
        ends.send(()).unwrap();
        hub.updates_applied().await;
        assert!(!running.is_finished());
    }

    /// A source waited for the updates of all others, as long as they went on.
    #[tokio::test]
    async fn a_source_waits_only_for_the_updates_before() {
        let (hub, applied) = (hub(), Applied::default());
        let (ends, ended) = mpsc::channel::<()>();
        hub.update_of_size(LARGE, applied.step(1));
        let mut its_own = pin!(hub.updates_applied());
        assert!(poll_once(its_own.as_mut()).await.is_pending());
        hub.update_of_size(LARGE, move |_| {
            let _ended = ended.recv_timeout(Duration::from_secs(60));
            Changes::default()
        });
        let _running = tokio::spawn(Arc::clone(&hub).run());
        let waited = tokio::time::timeout(Duration::from_secs(20), its_own).await;
        assert_eq!((waited, applied.all()), (Ok(()), vec![(1, false)]));
        assert!(hub.is_applying_updates());
        drop(ends);
        hub.updates_applied().await;
        assert!(!hub.is_applying_updates());
    }

    /// Each response of an MCP source sets the state, also one without changes.
    #[tokio::test]
    async fn a_sync_state_is_set_once() {
        let hub = hub();
        let _running = tokio::spawn(Arc::clone(&hub).run());
        let id = put_large(&hub);
        hub.updates_applied().await;
        let before = hub.enqueued_updates();
        let lost = |why: &str| SyncState::Stale { error: why.into() };
        let (synced, away) = (SyncState::Synced, lost("away"));
        let states = [&synced, &synced, &away, &lost("late"), &away, &away];
        let enqueued = states.map(|state| {
            hub.set_sync_state(&id, state.clone());
            hub.enqueued_updates() - before
        });
        assert_eq!(enqueued, [1, 1, 2, 3, 4, 4]);
        hub.updates_applied().await;
        let sources = hub.source_statuses();
        let source = sources.iter().find(|one| one.source == id).unwrap();
        assert_eq!(source.sync_state, away);
    }

    #[tokio::test]
    async fn a_panic_of_a_large_update_ends_the_loop_of_the_hub() {
        let hub = hub();
        let running = tokio::spawn(Arc::clone(&hub).run());
        hub.update_of_size(LARGE, |_| panic!("a mistake"));
        assert!(running.await.unwrap_err().is_panic());
    }
}
