//! Where changes come together: one state of the mesh, its snapshot, and all streams that are to hear of it.
//!
//! ```text
//!  sources ──► registries ──► debounce ──► snapshot ──► mail for each stream
//! ```

mod standings;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::model::{Change, Reason, World};
use cluster::registry::{Effect, Registries, SourceId, Standing};
use tokio::sync::{Notify, Semaphore, watch};
use tracing::{debug, info};
use xds::debounce::{Debounce, Due};
use xds::node::Node;
use xds::snapshot::{Next, Snapshot};
use xds::stream::{Lists, Protocol, Scope};
use xds::view::View;

use super::facts::Facts;
use super::lines::Lines;
use super::metrics::Metrics;
use super::options::Options;
use super::pieces::Pieces;
use super::pushed::{Pushed, assignments, made};
use super::session::{Mail, Session, nothing};
use crate::clock::Clock;
use crate::grpc::Address;

/// Pushes that the page remembers.
const PUSHES: usize = 120;

/// The mesh, and all who are told of it.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) options: Options,
    pub(crate) pieces: Pieces,
    /// Of the names that streams have.
    lists: Arc<Lists>,
    pub(crate) facts: Facts,
    pub(crate) lines: Lines,
    /// Streams that may begin with a push at once.
    pub(crate) throttle: Arc<Semaphore>,
    state: Mutex<State>,
    /// A change has come.
    changed: Notify,
    /// `None` until all sources were read.
    snapshot: watch::Sender<Option<Arc<Snapshot>>>,
    /// The mesh's trust domain.
    trust: watch::Sender<Arc<str>>,
    draining: AtomicBool,
    /// From the first snapshot until TERM.
    serving: watch::Sender<bool>,
    /// Streams are to end.
    leaving: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    registries: Registries,
    standing: BTreeMap<SourceId, (Standing, Duration)>,
    debounce: Debounce,
    sessions: BTreeMap<u64, Arc<Session>>,
    next: u64,
    pushes: VecDeque<Pushed>,
}

/// A stream among all others; it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Joined {
    hub: Arc<Hub>,
    pub(crate) session: Arc<Session>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.hub.state().sessions.remove(&self.session.number);
    }
}

impl Hub {
    pub(crate) fn new(options: Options, registries: Registries) -> Arc<Self> {
        let debounce = Debounce::new(options.quiet);
        let this = Arc::new(Self {
            clock: Clock::new(),
            metrics: Metrics::new(),
            facts: Facts::default(),
            lines: Lines::default(),
            throttle: Arc::new(Semaphore::new(options.throttle)),
            options,
            pieces: Pieces::default(),
            lists: Arc::default(),
            state: Mutex::new(State {
                registries,
                standing: BTreeMap::new(),
                debounce,
                sessions: BTreeMap::new(),
                next: 1,
                pushes: VecDeque::new(),
            }),
            changed: Notify::new(),
            snapshot: watch::Sender::new(None),
            trust: watch::Sender::new("".into()),
            draining: AtomicBool::new(false),
            serving: watch::Sender::new(false),
            leaving: watch::Sender::new(false),
        });
        this.trust.send_replace(this.trust_domain());
        this
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A source has something to say. What that changes goes out after the debounce.
    pub(crate) fn update(&self, step: impl FnOnce(&mut Registries) -> Effect) {
        let mut state = self.state();
        let effect = step(&mut state.registries);
        let now = self.clock.now();
        for change in effect.changes {
            self.metrics.updated(&change);
            state.debounce.change(now, change);
        }
        let is_complete = state.registries.missing().next().is_none();
        let begins = is_complete && self.snapshot.borrow().is_none();
        // While a source is missing, what is left out may be another thing than in the end.
        let news = if is_complete {
            state.registries.news()
        } else {
            Vec::new()
        };
        drop(state);
        self.lines.left_out(&news);
        if begins {
            self.begin();
        }
        let trust = self.trust_domain();
        self.trust.send_if_modified(|known| {
            let other = *known != trust;
            *known = trust;
            other
        });
        self.changed.notify_one();
    }

    /// What the sources are at, for the pages.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&Registries) -> T) -> T {
        at(&self.state().registries)
    }

    /// Somebody wants everyone to look at everything. How many that are.
    pub(crate) fn push_all(&self) -> usize {
        let mut state = self.state();
        let (now, all) = (self.clock.now(), Change::Full(Reason::Debug));
        state.debounce.change(now, all);
        self.changed.notify_one();
        state.sessions.len()
    }

    /// All sources were read: what is known now is served from now on.
    fn begin(&self) {
        let mut state = self.state();
        state.debounce = Debounce::new(self.options.quiet);
        let world = state.registries.world();
        drop(state);
        let services = world.services.len();
        let settings = Arc::clone(&self.options.settings);
        self.snapshot
            .send_replace(Some(Snapshot::new(world, settings)));
        if !self.is_draining() {
            self.serving.send_replace(true);
        }
        info!("serving {services} services");
    }

    /// `None`: not all sources were read yet.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.borrow().clone()
    }

    /// The snapshot that is current, as soon as there is one.
    pub(crate) async fn first_snapshot(&self) -> Arc<Snapshot> {
        let mut watched = self.snapshot.subscribe();
        loop {
            if let Some(snapshot) = watched.borrow_and_update().clone() {
                return snapshot;
            }
            if watched.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Not ready from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.serving.send_replace(false);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn serves(&self) -> bool {
        *self.serving.borrow()
    }

    pub(crate) fn serving(&self) -> watch::Receiver<bool> {
        self.serving.subscribe()
    }

    /// Of the mesh, now.
    pub(crate) fn trust_domain(&self) -> Arc<str> {
        let mesh = self.look(|registries| registries.world().mesh);
        if mesh.trust_domain.is_empty() {
            Arc::clone(&self.options.trust_domain)
        } else {
            mesh.trust_domain.as_str().into()
        }
    }

    /// Of the mesh, as it changes.
    pub(crate) fn trust_domains(&self) -> watch::Receiver<Arc<str>> {
        self.trust.subscribe()
    }

    /// All streams end.
    pub(crate) fn leave(&self) {
        self.leaving.send_replace(true);
    }

    /// Returns when streams are to end.
    pub(crate) async fn leaves(&self) {
        let mut leaving = self.leaving.subscribe();
        // Nothing else can come of it: its other end is here.
        let _left = leaving.wait_for(|leaving| *leaving).await;
    }

    /// One more stream, that begins with this view.
    pub(crate) fn join(
        self: &Arc<Self>,
        node: &Arc<Node>,
        peer: &Address,
        protocol: Protocol,
        view: Arc<dyn View>,
    ) -> Joined {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let (now, peer) = (self.clock.now(), peer.clone());
        let session = Session::new(number, node, peer, now, protocol, view, &self.lists);
        state.sessions.insert(number, Arc::clone(&session));
        drop(state);
        let hub = Arc::clone(self);
        Joined { hub, session }
    }

    /// In the order in which they came.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.state().sessions.values().cloned().collect()
    }

    /// The oldest first.
    pub(crate) fn pushes(&self) -> Vec<Pushed> {
        self.state().pushes.iter().cloned().collect()
    }

    /// Makes snapshots and tells of them, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        drop(self.first_snapshot().await);
        loop {
            let deadline = self.state().debounce.deadline();
            let due = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(self.clock.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = due => {}
            }
            let (due, world) = {
                let mut state = self.state();
                (
                    state.debounce.due(self.clock.now()),
                    state.registries.world(),
                )
            };
            if let Some(due) = due {
                self.push(&due, world);
                self.state().debounce.done();
            }
        }
    }

    fn push(&self, due: &Due, world: World) {
        let Some(current) = self.snapshot() else {
            return;
        };
        let begun = self.clock.now();
        let hosts = (!due.batch.full).then_some(&due.batch.hosts);
        let Some(next) = made(&self.metrics, || current.next(world, hosts)) else {
            // The last one that could be made is served on.
            return;
        };
        drop(current);
        self.snapshot.send_replace(Some(Arc::clone(&next.snapshot)));
        let made = self.clock.now();
        let streams = self.tell(due, &next, made);
        let pushed = Pushed {
            at: made,
            waited: begun.saturating_sub(due.since),
            made_in: made.saturating_sub(begun),
            full: next.full,
            reasons: due.batch.reasons,
            streams,
        };
        self.metrics.pushed(&pushed);
        let reasons: Vec<_> = pushed.reasons.iter().map(Reason::as_str).collect();
        debug!(
            "push for {}: {streams} streams, full: {}",
            reasons.join(", "),
            pushed.full
        );
        let mut state = self.state();
        if state.pushes.len() >= PUSHES {
            state.pushes.pop_front();
        }
        state.pushes.push_back(pushed);
    }

    /// Says to how many.
    fn tell(&self, due: &Due, next: &Next, now: Duration) -> usize {
        let batch = &due.batch;
        let names = Arc::new(assignments(next.snapshot.world(), &batch.hosts));
        let local = &self.options.settings.cluster;
        let mut told = 0;
        for session in self.sessions() {
            let node = &session.node;
            let of_proxy = || {
                batch.proxies.iter().any(|key| {
                    key.name == node.name
                        && key.namespace == node.namespace
                        && key.cluster == *node.cluster.as_ref().unwrap_or(local)
                }) || node.addresses.iter().any(|at| next.moved.contains(at))
            };
            let scope = if next.full || of_proxy() {
                Scope::Full
            } else if names.is_empty() {
                nothing()
            } else {
                Scope::Endpoints(Arc::clone(&names))
            };
            told += usize::from(!matches!(&scope, Scope::Endpoints(names) if names.is_empty()));
            session.post(Mail {
                snapshot: Arc::clone(&next.snapshot),
                scope,
                reasons: batch.reasons,
                since: due.since,
                put: now,
            });
        }
        told
    }
}
