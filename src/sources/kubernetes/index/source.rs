//! One API server as a source: all its kinds are listed and watched in parallel, and emitted as one state.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::backoff::Backoff;
use api::log_repeats::LogRepeatLimiter;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::cluster_state::{ClusterState, ClusterUpdate};
use super::custom::Custom;
use super::effectless::{self, EffectlessObject};
use super::installed::Installed;
use super::names::Names;
use super::stored_kind::StoredKind;
use super::wire::{EndpointSlice, Endpoints, Namespace, Node, Pod, Service};
use crate::contribution::{Configuration, ConfigurationKind, EachKind};
use crate::kind::{Kind, Resource};
use crate::kubernetes::connect::Cluster;
use crate::kubernetes::failure::Failure;
use crate::kubernetes::served_kinds::{MaxAge, ServedKinds};
use crate::kubernetes::store::{Changes, Reader, Writer, store};
use crate::kubernetes::watcher::{
    ObjectSource as _, Selection, ServerRecovery, WatchTiming, Watcher,
};
use crate::offload::offload_state;
use crate::panics::restart_after_panic;

/// The API server's namespace, names and timing.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    pub names: Names,
    /// The only namespace to watch; Nodes and Namespaces are watched in any case.
    pub namespace: Option<String>,
    /// The mesh's configuration, too.
    pub configuration: bool,
    pub pace: WatchTiming,
    /// The time after which an unreachable server counts as lost.
    pub patience: Duration,
    /// The time after which a remote cluster that was not listed is no longer waited for.
    pub late: Duration,
    /// The first interval of look-ups for a kind that the server lacks, since it may be installed: it grows to a minute.
    pub recheck_interval: Duration,
    /// The time after which a kind that the server has lost is dropped, with its objects.
    pub gone: Duration,
}

impl ClusterSettings {
    /// Creates settings for all namespaces and all kinds.
    #[must_use]
    pub fn new(names: Names) -> Self {
        Self {
            names,
            namespace: None,
            configuration: true,
            pace: WatchTiming {
                max: Duration::from_secs(10),
                ..WatchTiming::default()
            },
            patience: Duration::from_secs(5),
            late: Duration::from_secs(30),
            recheck_interval: Duration::from_secs(8),
            gone: Duration::from_secs(60),
        }
    }
}

/// A name for slices or Endpoints, which are waited for before anything is emitted.
const ENDPOINTS: &str = "endpoints";

/// The trust domain, now and later.
type TrustDomain = watch::Receiver<Arc<str>>;

/// A change of one kind, to be applied where all kinds come together.
struct KindChange {
    /// The number of objects that change, or are listed.
    objects: usize,
    apply: Box<dyn FnOnce(&mut ClusterState) + Send>,
}

/// Watches an API server, and sends its complete state to `to` on each change, for as long as there is a receiver. The trust
/// domain is taken from its channel, now and whenever it changes. A panic of the client or of one kind's watch starts all
/// watches again, after a backoff: a watch that is gone would leave the last state in effect for good, unnoticed.
pub async fn run(
    cluster: Cluster,
    settings: ClusterSettings,
    trust_domain: watch::Receiver<Arc<str>>,
    to: watch::Sender<ClusterUpdate>,
) {
    run_with(cluster, settings, trust_domain, to, watch_all).await;
}

/// As [`run`]; tests pass a `watch_all` that panics.
pub(super) async fn run_with<F: Future<Output = ()> + Send + 'static>(
    cluster: Cluster,
    settings: ClusterSettings,
    trust_domain: TrustDomain,
    to: watch::Sender<ClusterUpdate>,
    watch_all: impl Fn(Cluster, ClusterSettings, TrustDomain, watch::Sender<ClusterUpdate>) -> F,
) {
    let name = format!("the watches of {}", cluster.address());
    let bounds = settings.pace.bounds();
    let watches = || {
        let (cluster, settings) = (cluster.clone(), settings.clone());
        watch_all(cluster, settings, trust_domain.clone(), to.clone())
    };
    let on_panic = || to.send_modify(|state| state.panicked(Instant::now()));
    restart_after_panic(&name, bounds, watches, on_panic).await;
}

pub(super) async fn watch_all(
    cluster: Cluster,
    settings: ClusterSettings,
    mut trust_domain: watch::Receiver<Arc<str>>,
    to: watch::Sender<ClusterUpdate>,
) {
    let mut kinds = vec![
        Service::RESOURCE.name,
        ENDPOINTS,
        Pod::RESOURCE.name,
        Node::RESOURCE.name,
        Namespace::RESOURCE.name,
    ];
    if settings.configuration {
        kinds.extend(Configuration::PLURALS);
    }
    let state = ClusterState::new(settings.names.clone(), settings.patience, kinds);
    let mut state = Box::new(state.named(cluster.name().cloned()));
    // The receiver may have seen the value: the first turn must take it all the same.
    trust_domain.mark_changed();
    // Ended when this is dropped.
    let (mut tasks, mut changes) = KindWatch::start(cluster, settings);
    loop {
        let due = state.due();
        tokio::select! {
            Some(KindChange { objects, apply }) = changes.recv() => {
                (state, ()) = offload_state(objects, state, apply).await;
            }
            Ok(()) = trust_domain.changed() => {
                let trust_domain = Arc::clone(&trust_domain.borrow_and_update());
                state.objects.set_trust_domain(&trust_domain);
                state.changed(Instant::now());
            }
            Some(Err(ended)) = tasks.join_next() => {
                // One kind whose watch is gone would keep its last state for good: the panic ends all, and
                // all start again.
                if let Ok(panic) = ended.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
            () = until(due) => {}
            () = to.closed() => return,
        }
        let now = Instant::now();
        let emit = move |state: &mut ClusterState| state.emit(now);
        let (back, update) = offload_state(state.work(now), state, emit).await;
        state = back;
        if let Some(update) = update {
            to.send_modify(|known| known.follow(update, now));
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

struct KindWatch {
    tasks: JoinSet<()>,
    cluster: Cluster,
    settings: ClusterSettings,
    peers: ServerRecovery,
    served: ServedKinds,
    installed: Arc<Installed>,
    to: mpsc::Sender<KindChange>,
}

impl KindWatch {
    fn start(
        cluster: Cluster,
        settings: ClusterSettings,
    ) -> (JoinSet<()>, mpsc::Receiver<KindChange>) {
        // Room for one: changes that come meanwhile are received as one.
        let (to, changes) = mpsc::channel(1);
        let configuration = settings.configuration;
        let mut watching = Self {
            tasks: JoinSet::new(),
            served: ServedKinds::new(cluster.clone()),
            cluster,
            settings,
            peers: ServerRecovery::default(),
            installed: Arc::default(),
            to,
        };
        watching.spawn_watch::<Service>();
        watching.backends();
        watching.spawn_watch::<Pod>();
        watching.spawn_watch::<Node>();
        watching.spawn_watch::<Namespace>();
        if configuration {
            Configuration::each_kind(&mut watching);
            watching.effectless();
        }
        (watching.tasks, changes)
    }

    fn watcher<K: Kind>(&self, everywhere: bool) -> Watcher<K> {
        let namespace = self.settings.namespace.clone().filter(|_| !everywhere);
        let selection = Selection {
            namespace,
            ..Selection::default()
        };
        Watcher::new(self.cluster.clone(), selection, self.settings.pace).beside(self.peers.clone())
    }

    fn spawn_watch<K: StoredKind>(&mut self) {
        let everywhere = matches!(K::RESOURCE.name, "nodes" | "namespaces");
        let watcher = self.watcher::<K>(everywhere);
        self.tasks
            .spawn(run_watch(K::RESOURCE.name, watcher, self.to.clone()));
    }

    /// EndpointSlices, or Endpoints of a server that is too old for them.
    fn backends(&mut self) {
        let (slices, endpoints) = (
            self.watcher::<EndpointSlice>(false),
            self.watcher::<Endpoints>(false),
        );
        let (cluster, pace, to) = (self.cluster.clone(), self.settings.pace, self.to.clone());
        let peers = self.peers.clone();
        self.tasks.spawn(async move {
            let there = cluster.has(EndpointSlice::RESOURCE, pace, &peers).await;
            if there {
                run_watch(ENDPOINTS, slices, to).await;
            } else {
                let address = cluster.address();
                tracing::info!(
                    "{address} has no EndpointSlices of {}: reading Endpoints",
                    EndpointSlice::RESOURCE
                );
                run_watch(ENDPOINTS, endpoints, to).await;
            }
        });
    }

    fn effectless(&mut self) {
        for (at, resource, versions) in effectless::resources() {
            // One type for all of them: each further type costs 30 kB of the binary.
            self.watch_installed::<EffectlessObject>(resource, versions, move |state, changes| {
                state.others.apply(at, changes);
            });
        }
    }

    /// Watches a kind that may not be installed.
    fn watch_installed<K: Kind>(
        &mut self,
        resource: Resource,
        versions: &'static [&'static str],
        apply: impl Fn(&mut ClusterState, Changes<K>) + Copy + Send + 'static,
    ) {
        let (writer, reader) = store();
        self.installed.expect_one_more();
        let watch = InstalledKindWatch {
            resource,
            versions,
            installed: Arc::clone(&self.installed),
            cluster: self.cluster.clone(),
            pace: self.settings.pace,
            again: self.settings.recheck_interval,
            gone: self.settings.gone,
            served: self.served.clone(),
            selection: Selection {
                namespace: self.settings.namespace.clone(),
                ..Selection::default()
            },
            peers: self.peers.clone(),
        };
        self.tasks
            .spawn(forward(resource.name, reader, self.to.clone(), apply));
        self.tasks
            .spawn(async move { match watch.run::<K>(writer).await {} });
    }
}

impl EachKind for KindWatch {
    fn kind<T: ConfigurationKind>(&mut self) {
        let resource = Custom::<T>::RESOURCE;
        self.watch_installed::<Custom<T>>(resource, T::VERSIONS, |state, changes| {
            state.configs.apply(changes);
        });
    }
}

/// Lists and watches a kind, and forwards its changes.
async fn run_watch<K: StoredKind>(
    name: &'static str,
    listed: Watcher<K>,
    to: mpsc::Sender<KindChange>,
) {
    let (writer, reader) = store();
    let forwarding = forward(name, reader, to, |state, changes| {
        state.objects.apply(changes);
    });
    tokio::select! {
        never = listed.run(writer) => match never {},
        () = forwarding => {}
    }
}

async fn forward<K: Kind>(
    name: &'static str,
    mut reader: Reader<K>,
    to: mpsc::Sender<KindChange>,
    apply: impl Fn(&mut ClusterState, Changes<K>) + Copy + Send + 'static,
) {
    while let Some(changes) = reader.changed().await {
        let objects = changes.changes.len();
        let apply = Box::new(move |state: &mut ClusterState| {
            let now = Instant::now();
            let any = changes.whole || !changes.changes.is_empty();
            let unreadable = state.freshness(name, changes.freshness.clone(), now);
            if any {
                apply(state, changes);
            }
            if any || unreadable {
                state.changed(now);
            }
        });
        if to.send(KindChange { objects, apply }).await.is_err() {
            return;
        }
    }
}

/// The watch of a kind that may be installed and uninstalled.
struct InstalledKindWatch {
    resource: Resource,
    /// API versions that a server may have the kind in, the oldest first.
    versions: &'static [&'static str],
    installed: Arc<Installed>,
    cluster: Cluster,
    pace: WatchTiming,
    again: Duration,
    gone: Duration,
    served: ServedKinds,
    selection: Selection,
    peers: ServerRecovery,
}

impl InstalledKindWatch {
    async fn run<K: Kind>(self, mut store: Writer<K>) -> Infallible {
        let mut backoff = Backoff::new(self.pace.bounds());
        let mut repeats = LogRepeatLimiter::default();
        // Since when it is not there, where it was.
        let mut lost = None;
        let mut is_known = false;
        let mut pauses = self.peers.pauses();
        loop {
            pauses.begin();
            let version = self.version(lost).await;
            if let Ok(found) = &version
                && !std::mem::replace(&mut is_known, true)
                && self.installed.is_the_last_of_none(found.is_some())
            {
                tracing::warn!("{}", crate::kubernetes::NO_KINDS);
            }
            if version.is_ok() {
                pauses.reset();
            }
            let wait = match version {
                Ok(Some(version)) => {
                    let begun = Instant::now();
                    self.watcher::<K>(version).while_served(&mut store).await;
                    lost = Some(Instant::now());
                    // A server may announce a kind and then answer 404.
                    if begun.elapsed() >= self.pace.steady {
                        backoff.reset();
                        repeats.forget();
                    }
                    backoff.next(fastrand::f64())
                }
                // A server that starts knows kinds of its own before it knows others'.
                Ok(None) if lost.is_some_and(|lost| lost.elapsed() < self.gone) => {
                    let (server, name) = (self.cluster.address(), self.resource.name);
                    let why = format!("{server} does not serve {name}");
                    store.stale(Instant::now(), why);
                    backoff.next(fastrand::f64())
                }
                Ok(None) => {
                    lost = None;
                    backoff.reset();
                    repeats.forget();
                    store.replace(Vec::new());
                    self.until_next_look().await
                }
                Err(failure) => {
                    failure.warn(&mut repeats);
                    store.stale(Instant::now(), failure.to_string());
                    let pause = failure.wait(&mut backoff, fastrand::f64());
                    pauses.after(&failure, pause).await;
                    continue;
                }
            };
            sleep(wait).await;
        }
    }

    fn watcher<K: Kind>(&self, version: &'static str) -> Watcher<K> {
        let resource = Resource {
            version,
            ..self.resource
        };
        let watcher = Watcher::new(self.cluster.clone(), self.selection.clone(), self.pace);
        watcher.of(resource).beside(self.peers.clone())
    }

    /// Returns the version in which the server has the kind, which it has lost at that time.
    async fn version(&self, lost: Option<Instant>) -> Result<Option<&'static str>, Failure> {
        let Resource { group, name, .. } = self.resource;
        // The last answer still has a kind that is lost.
        let max = match lost {
            Some(_) => MaxAge::Fixed(self.fresh()),
            None => MaxAge::Settling(self.fresh()),
        };
        self.served.newest(group, self.versions, name, max).await
    }

    /// The age up to which kinds share an answer.
    fn fresh(&self) -> Duration {
        self.again / 8
    }

    /// Returns the pause after which a look-up may tell something new. The versions' answers are a little younger than that about
    /// groups, and too old by then, too.
    async fn until_next_look(&self) -> Duration {
        let fresh = self.fresh();
        let remaining = self.served.remaining(MaxAge::Settling(fresh)).await;
        self.again.max(remaining + fresh)
    }
}
