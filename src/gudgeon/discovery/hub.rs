//! The hub: one state of the mesh, its snapshot, and all streams that are to hear of it.
//!
//! ```text
//!  sources ──► registries ──► debounce ──► snapshot ──► pending for each stream
//! ```

mod changed;
mod ingresses;
mod making;
mod notify;
mod peers;
mod plaintext;
mod refuse;
mod router_inputs;
mod source_sync_states;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use api::model::{Change, Changes, Objects, Reason, World};
use api::security::{KeySet, KeysPlace, RequestAuthentication};
use sources::registry::{Registries, SourceId, SyncState};
use tokio::sync::{Notify, Semaphore, watch};
use tracing::{debug, info, warn};
use xds::debounce::{Debounce, DueBatch};
use xds::node::Node;
use xds::snapshot::Snapshot;
use xds::stream::{Lists, Protocol};
use xds::view::View;

use self::changed::ChangedObjects;
use self::ingresses::{IngressNotes, IngressRules};
use self::making::made;
use self::peers::PeerAuthenticationHistory;
use self::plaintext::Plaintext;
pub(super) use self::router_inputs::PendingLookup;
use self::router_inputs::RouterInputs;
use super::encoded_pieces::HeldPieces;
use super::identity::TrustDomains;
use super::jwks::Jwks;
use super::kinds::ProxyKinds;
use super::log_rate_limiters::LogRateLimiters;
use super::metrics::DiscoveryMetrics;
use super::options::DiscoveryOptions;
use super::push_record::Pushed;
use super::refused_streams::RefusedStreams;
use super::rules_without_effect::RuleCounts;
use super::session::Session;
use super::source_facts::Facts;
use crate::clock::Clock;
use crate::grpc::Address;
use crate::mcp::PortAccess;
use crate::serve::SharedAnswers;

/// The number of ports and endpoints from which work runs on a blocking thread. Chosen: a few milliseconds of work, where the
/// loop may stop for 20.
pub(super) const LARGE: usize = 2_000;
/// Pushes that the page remembers.
const PUSHES: usize = 120;

/// The state of the mesh, and the streams that follow it.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) clock: Clock,
    pub(crate) metrics: DiscoveryMetrics,
    pub(crate) options: DiscoveryOptions,
    pub(crate) pieces: HeldPieces,
    /// Lists of resource names, shared by streams with equal ones.
    lists: Arc<Lists>,
    pub(crate) facts: Facts,
    pub(crate) log_rate_limiters: LogRateLimiters,
    /// The port where sources of configuration dial, where there is one.
    pub(crate) port_access: OnceLock<PortAccess>,
    /// The servers that a source still waits for, by the names that its configuration gives them.
    pub(crate) awaited: Mutex<BTreeMap<SourceId, String>>,
    pub(crate) refused: RefusedStreams,
    pub(crate) jwks: Jwks,
    /// The kinds of the proxies that are connected.
    pub(crate) kinds: Arc<ProxyKinds>,
    /// Streams that may begin with a push at once.
    pub(crate) throttle: Arc<Semaphore>,
    state: Mutex<HubState>,
    /// Limits blocking jobs to one at a time.
    worker: Semaphore,
    /// A change has come.
    changed: Notify,
    /// Resources were made, and perhaps some left out.
    pub(crate) made: Notify,
    /// `None` until all sources were read.
    snapshot: watch::Sender<Option<Arc<Snapshot>>>,
    /// The number of snapshots that were served.
    snapshots: AtomicU64,
    /// Routers wait for them.
    pub(crate) edge: RouterInputs,
    /// Pages that take a while to make.
    pub(crate) answers: Arc<SharedAnswers>,
    /// The mesh's trust domain.
    trust: watch::Sender<Arc<str>>,
    /// RequestAuthentications whose keys may have to be fetched.
    requests: watch::Sender<Requests>,
    draining: AtomicBool,
    /// From the first snapshot until TERM.
    serving: watch::Sender<bool>,
    /// Configuration as the log knows it, and how often it had changed by then.
    said: Mutex<(u64, RuleCounts)>,
    /// Streams are to end.
    leaving: watch::Sender<bool>,
}

#[derive(Debug)]
struct HubState {
    registries: Registries,
    standing: BTreeMap<SourceId, (SyncState, Duration)>,
    debounce: Debounce,
    changed: ChangedObjects,
    sessions: BTreeMap<u64, Arc<Session>>,
    plaintext: Plaintext,
    peers: PeerAuthenticationHistory,
    key_sets: KeySets,
    ingresses: IngressRules,
    next: u64,
    pushes: VecDeque<Pushed>,
}

impl HubState {
    /// The mesh as it is to be served.
    fn world(&mut self, now: Duration, domain: &str) -> World {
        let mut world = self.registries.world();
        let current = &world.peer_authentications;
        world.earlier_peer_authentications = self.peers.earlier(current, now);
        world.key_sets = Arc::clone(&self.key_sets);
        let ingresses = self.registries.ingresses();
        match self.ingresses.add(ingresses, &mut world, domain) {
            Some(changes) => self.changed.add(&changes),
            None => self.changed.forget(),
        }
        world
    }

    /// When there is something to do, if nothing is heard before.
    fn deadline(&self) -> Option<Duration> {
        let all = [self.debounce.deadline(), self.peers.deadline()];
        all.into_iter().flatten().min()
    }
}

type Requests = Arc<Objects<RequestAuthentication>>;
type KeySets = Arc<BTreeMap<KeysPlace, KeySet>>;

/// A stream among all others; it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamRegistration {
    hub: Arc<Hub>,
    pub(crate) session: Arc<Session>,
}

impl Drop for StreamRegistration {
    fn drop(&mut self) {
        self.hub.state().sessions.remove(&self.session.number);
        self.hub.forget_certificates(&self.session);
    }
}

impl Hub {
    pub(crate) fn new(options: DiscoveryOptions, registries: Registries) -> Arc<Self> {
        let debounce = Debounce::new(options.quiet);
        let this = Arc::new(Self {
            clock: Clock::new(),
            metrics: DiscoveryMetrics::new(),
            facts: Facts::default(),
            log_rate_limiters: LogRateLimiters::default(),
            port_access: OnceLock::new(),
            awaited: Mutex::default(),
            refused: RefusedStreams::default(),
            jwks: Jwks::new(options.jwks_refresh, options.jwks_allowed.clone()),
            kinds: Arc::default(),
            throttle: Arc::new(Semaphore::new(options.throttle)),
            options,
            pieces: HeldPieces::default(),
            lists: Arc::default(),
            state: Mutex::new(HubState {
                registries,
                standing: BTreeMap::new(),
                debounce,
                changed: ChangedObjects::default(),
                sessions: BTreeMap::new(),
                plaintext: Plaintext::default(),
                peers: PeerAuthenticationHistory::default(),
                key_sets: Arc::default(),
                ingresses: IngressRules::default(),
                next: 1,
                pushes: VecDeque::new(),
            }),
            worker: Semaphore::new(1),
            changed: Notify::new(),
            made: Notify::new(),
            snapshot: watch::Sender::new(None),
            snapshots: AtomicU64::new(0),
            edge: RouterInputs::default(),
            answers: Arc::default(),
            trust: watch::Sender::new("".into()),
            requests: watch::Sender::default(),
            draining: AtomicBool::new(false),
            serving: watch::Sender::new(false),
            said: Mutex::default(),
            leaving: watch::Sender::new(false),
        });
        this.trust.send_replace(this.trust_domain());
        this
    }

    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a source's update. The changes go out after the debounce.
    pub(crate) fn update(&self, step: impl FnOnce(&mut Registries) -> Changes) {
        let mut state = self.state();
        let changes = step(&mut state.registries);
        let now = self.clock.now();
        if !changes.is_empty() {
            debug!("changed: {changes}");
        }
        state.change(now, &changes, &self.metrics);
        let is_complete = state.registries.missing().next().is_none();
        let world = state.registries.world();
        let begins =
            is_complete && self.snapshot.borrow().is_none() && self.jwks.has_settled(&world, now);
        // While a source is missing, what is left out may be another thing than in the end.
        let news = if is_complete {
            state.registries.take_new_reports()
        } else {
            Vec::new()
        };
        drop(state);
        self.requests.send_if_modified(|known| {
            let is_other = *known != world.request_authentications;
            *known = world.request_authentications;
            is_other
        });
        self.log_rate_limiters.left_out(&news);
        if begins {
            self.begin();
        }
        if self.snapshot.borrow().is_some() {
            self.log_rules();
        }
        let trust = self.trust_domain();
        self.trust.send_if_modified(|known| {
            let other = *known != trust;
            *known = trust;
            other
        });
        self.changed.notify_one();
    }

    /// Keys were fetched: proxies whose policies use others than before are to have them.
    pub(super) fn put_key_sets(&self, keys: BTreeMap<KeysPlace, KeySet>) {
        let mut state = self.state();
        state.key_sets = Arc::new(keys);
        let (now, change) = (self.clock.now(), Change::Full(Reason::Config));
        state.debounce.change(now, change);
        self.changed.notify_one();
    }

    /// Follows the RequestAuthentications.
    pub(super) fn request_authentications(&self) -> watch::Receiver<Requests> {
        self.requests.subscribe()
    }

    /// Calls a function with the registries, under the lock of the state.
    pub(crate) fn with_registries<T>(&self, at: impl FnOnce(&Registries) -> T) -> T {
        at(&self.state().registries)
    }

    /// Messages about Ingresses.
    pub(crate) fn ingress_notes(&self) -> IngressNotes {
        self.state().ingresses.notes().clone()
    }

    /// Makes all streams look at everything, as a debug request asks. Returns the number of streams.
    pub(crate) fn push_all(&self) -> usize {
        let mut state = self.state();
        let (now, all) = (self.clock.now(), Change::Full(Reason::Debug));
        state.debounce.change(now, all);
        self.changed.notify_one();
        state.sessions.len()
    }

    /// Logs which rules have no effect, where that is another number than it was.
    fn log_rules(&self) {
        let changed = self.facts.rules_changed();
        let mut last = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, said) = &*last;
        if *known == changed {
            return;
        }
        let now = self.facts.rules();
        let is_same = said.without_effect().eq(now.without_effect());
        if !is_same && let Some(more) = self.log_rate_limiters.rules.suffix_if_allowed() {
            match now.line() {
                Some(line) => warn!("{line}{more}"),
                None => info!("every rule has an effect again{more}"),
            }
        }
        *last = (changed, now);
    }

    /// All sources were read: what is known now is served from now on.
    fn begin(&self) {
        let mut state = self.state();
        state.debounce = Debounce::new(self.options.quiet);
        let world = state.world(self.clock.now(), &self.options.domain);
        let _before = state.changed.take(false);
        drop(state);
        let services = world.services.len();
        let settings = Arc::clone(&self.options.settings);
        self.serve(Snapshot::new(world, settings));
        if !self.is_draining() {
            self.serving.send_replace(true);
        }
        info!("serving {}", api::counted(services, "service"));
    }

    fn serve(&self, snapshot: Arc<Snapshot>) {
        self.log_rate_limiters.lost_gateways(&snapshot);
        // Behind the snapshot: what is made of it meanwhile has the number before, and is made once more.
        self.snapshot.send_replace(Some(snapshot));
        self.snapshots.fetch_add(1, Ordering::SeqCst);
        self.made.notify_one();
    }

    /// The number of the snapshot that is current.
    pub(crate) fn snapshots(&self) -> u64 {
        self.snapshots.load(Ordering::SeqCst)
    }

    /// `None`: not all sources were read yet.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.borrow().clone()
    }

    /// Receives each snapshot when it becomes the current one.
    pub(crate) fn watch_snapshots(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.snapshot.subscribe()
    }

    /// The snapshot that is current, as soon as there is one.
    pub(crate) async fn first_snapshot(&self) -> Arc<Snapshot> {
        let mut watched = self.watch_snapshots();
        loop {
            if let Some(snapshot) = watched.borrow_and_update().clone() {
                return snapshot;
            }
            if watched.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Ends readiness.
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

    /// The mesh's trust domain, now.
    pub(crate) fn trust_domain(&self) -> Arc<str> {
        let mesh = self.with_registries(|registries| registries.world().mesh);
        if mesh.trust_domain.is_empty() {
            Arc::clone(&self.options.trust_domain)
        } else {
            mesh.trust_domain.as_str().into()
        }
    }

    /// Trust domains whose certificates count, now; `None` if the identities of clients are not checked.
    pub(super) fn trusted(&self) -> Option<TrustDomains> {
        let is_checked = self.options.identity_check;
        is_checked.then(|| self.trust_domains_now())
    }

    /// Trust domains whose certificates count, whether or not the identities of clients are checked.
    pub(super) fn trust_domains_now(&self) -> TrustDomains {
        let mesh = self.with_registries(|registries| registries.world().mesh);
        TrustDomains {
            own: self.trust_domain(),
            aliases: mesh.trust_domain_aliases.iter().cloned().collect(),
        }
    }

    /// The mesh's trust domain, as it changes.
    pub(crate) fn trust_domains(&self) -> watch::Receiver<Arc<str>> {
        self.trust.subscribe()
    }

    /// All streams end.
    pub(crate) fn end_streams(&self) {
        self.leaving.send_replace(true);
    }

    /// Returns when streams are to end.
    pub(crate) async fn streams_end(&self) {
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
    ) -> StreamRegistration {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let (now, peer) = (self.clock.now(), peer.clone());
        let session = Session::new(number, node, peer, now, protocol, view, &self.lists);
        state.sessions.insert(number, Arc::clone(&session));
        drop(state);
        self.learn_certificates(&session);
        let hub = Arc::clone(self);
        StreamRegistration { hub, session }
    }

    /// Returns the sessions in the order in which they joined.
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
            self.emit_certificates();
            let deadline = self.state().deadline();
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
            let due = {
                let (now, mut state) = (self.clock.now(), self.state());
                if state.peers.expire(now) {
                    let change = Change::Full(Reason::Config);
                    state.debounce.change(now, change);
                }
                state.debounce.due(now).map(|due| {
                    let world = state.world(now, &self.options.domain);
                    let changes = state.changed.take(due.partial);
                    (due, world, changes)
                })
            };
            if let Some((due, world, changes)) = due {
                let is_made = self.push(&due, world, changes).await;
                let mut state = self.state();
                if !is_made {
                    state.changed.forget();
                }
                state.debounce.done(&due, is_made);
            }
        }
    }

    /// Returns false if no snapshot could be made: the last one is served on.
    async fn push(
        self: &Arc<Self>,
        due: &DueBatch,
        world: World,
        changes: Option<Arc<Changes>>,
    ) -> bool {
        let Some(current) = self.snapshot() else {
            return false;
        };
        let begun = self.clock.now();
        let world = if due.partial {
            current.world_with_endpoints(&world, &due.batch.hosts)
        } else {
            world
        };
        let hosts = (!due.batch.full).then(|| due.batch.hosts.clone());
        let size = Snapshot::size(&world);
        let nodes: Vec<_> = if size < LARGE {
            Vec::new()
        } else {
            let sessions = self.sessions();
            sessions
                .iter()
                .map(|session| Arc::clone(&session.node))
                .collect()
        };
        let (this, earlier) = (Arc::clone(self), Arc::clone(&current));
        let everybody = due.batch.reasons.has(Reason::Debug);
        let make = move || {
            let next = || earlier.next(world, hosts.as_ref(), changes.as_deref());
            let next = made(&this.metrics, next)?;
            // What cannot be made is found again, and counted, where a stream asks for it.
            let ahead = || {
                let mut nodes = nodes;
                nodes.retain(|node| !next.full || everybody || next.concerns(node));
                next.snapshot.make_ahead(&earlier, &nodes);
            };
            let _made = catch_unwind(AssertUnwindSafe(ahead));
            Some(next)
        };
        let Some(next) = self.run_blocking(size, make).await.flatten() else {
            return false;
        };
        self.serve(Arc::clone(&next.snapshot));
        let made = self.clock.now();
        let streams = self.notify(due, &current, &next, made);
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
            "push for {}: {}, full: {}",
            reasons.join(", "),
            api::counted(streams, "stream"),
            pushed.full
        );
        let mut state = self.state();
        if state.pushes.len() >= PUSHES {
            state.pushes.pop_front();
        }
        state.pushes.push_back(pushed);
        true
    }

    /// Runs work of this size: small work here, large work on a blocking thread, one job at a time. Returns `None` if it panicked.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        size: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if size < LARGE {
            return Some(work());
        }
        let _turn = self.worker.acquire().await.ok()?;
        tokio::task::spawn_blocking(work).await.ok()
    }
}

#[cfg(test)]
mod scale_tests;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use crate::discovery::testing::hub;

    use super::*;

    /// On the loop the wait would never end: another task of the loop ends it.
    #[tokio::test]
    async fn what_is_large_is_done_beside_the_loop_one_after_the_other() {
        let hub = hub();
        let (word, heard) = mpsc::channel();
        let other = tokio::spawn(async move { word.send(7) });
        let first = hub.run_blocking(LARGE, move || heard.recv());
        let second = hub.run_blocking(LARGE, || panic!("a mistake"));
        let (first, second): (_, Option<()>) = tokio::join!(first, second);
        assert_eq!((first, second), (Some(Ok(7)), None));
        assert_eq!(other.await.unwrap(), Ok(()));
        let place = std::thread::current().id();
        let here = || std::thread::current().id();
        assert_eq!(hub.run_blocking(LARGE - 1, here).await, Some(place));
        assert_ne!(hub.run_blocking(LARGE, here).await, Some(place));
    }
}
