//! The hub: one state of the mesh, its snapshot, and all streams that are to hear of it.
//!
//! ```text
//!  sources ──► updates (registries) ──► inputs (debounce) ──► push loop ──► current snapshot ──► pending for each session
//! ```
//!
//! Each duty has a type and a lock of its own: [`UpdateQueue`], [`SnapshotInputs`], [`CurrentSnapshot`], [`Sessions`],
//! [`SyncStates`], [`Trust`], [`Lifecycle`], [`BlockingJobs`]. The lock of the registries comes before that of the inputs.

mod blocking_jobs;
mod changed;
mod current_snapshot;
mod effects_log;
mod ingresses;
mod inputs;
mod lifecycle;
mod merged_sources;
mod notify;
mod peer_authentications;
mod plaintext;
mod push_loop;
mod refuse;
mod router_inputs;
mod sessions;
mod snapshot_build;
mod sync_states;
mod trust;
mod updates;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use api::model::{Changes, TriggerReason, World};
use api::security::{JwksSource, KeySet};
use sources::aggregate::{Registries, SourceStatus};
use sources::contribution::SourceId;
use tokio::sync::{Notify, Semaphore, watch};
use tracing::info;
use xds::snapshot::Snapshot;

use self::blocking_jobs::BlockingJobs;
pub(super) use self::blocking_jobs::LARGE;
use self::current_snapshot::CurrentSnapshot;
use self::effects_log::LoggedEffects;
pub(crate) use self::ingresses::IngressNotes;
use self::ingresses::IngressRules;
use self::inputs::{SnapshotInputs, WorldInputs};
use self::lifecycle::Lifecycle;
use self::merged_sources::MergedSources;
pub(super) use self::router_inputs::PendingLookup;
use self::router_inputs::RouterInputs;
use self::sessions::Sessions;
pub(crate) use self::sessions::StreamRegistration;
use self::sync_states::SyncStates;
use self::trust::Trust;
use self::updates::UpdateQueue;
use super::encoded_pieces::PieceCache;
use super::jwks::{Jwks, TokenPolicies};
use super::kinds::ProxyKinds;
use super::log_rate_limiters::LogRateLimiters;
use super::metrics::DiscoveryMetrics;
use super::options::DiscoveryOptions;
use super::push_record::PushHistory;
use super::refused_streams::RefusedStreams;
use super::source_facts::Facts;
use crate::clock::Clock;
use crate::file_states::FileStates;
use crate::mcp::PortAccess;

/// The state of the mesh, and the streams that follow it.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) clock: Clock,
    pub(crate) metrics: DiscoveryMetrics,
    pub(crate) options: DiscoveryOptions,
    pub(crate) pieces: PieceCache,
    pub(crate) facts: Facts,
    pub(crate) files: Arc<FileStates>,
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
    registries: Mutex<Registries>,
    updates: UpdateQueue,
    inputs: Mutex<SnapshotInputs>,
    ingress_rules: Mutex<IngressRules>,
    pub(crate) sync_states: SyncStates,
    pub(crate) blocking: BlockingJobs,
    /// The inputs have changed: the push loop looks again.
    changed: Notify,
    /// Resources were made, and perhaps some left out.
    pub(crate) built: Notify,
    pub(crate) current: CurrentSnapshot,
    pub(crate) sessions: Sessions,
    pub(crate) pushes: PushHistory,
    /// Routers wait for them.
    pub(crate) edge: RouterInputs,
    pub(crate) trust: Trust,
    /// RequestAuthentications whose keys may have to be fetched.
    requests: watch::Sender<TokenPolicies>,
    pub(crate) lifecycle: Lifecycle,
    logged_effects: LoggedEffects,
}

impl Hub {
    pub(crate) fn new(options: DiscoveryOptions, registries: Registries) -> Arc<Self> {
        let merged = MergedSources::of(&registries);
        let mesh = Arc::clone(&merged.world.mesh);
        Arc::new(Self {
            clock: Clock::new(),
            metrics: DiscoveryMetrics::new(),
            facts: Facts::default(),
            files: Arc::default(),
            log_rate_limiters: LogRateLimiters::default(),
            port_access: OnceLock::new(),
            awaited: Mutex::default(),
            refused: RefusedStreams::default(),
            jwks: Jwks::new(options.jwks_refresh, options.jwks_allowed.clone()),
            kinds: Arc::default(),
            throttle: Arc::new(Semaphore::new(options.throttle)),
            trust: Trust::new(&options.trust_domain, options.identity_check, mesh),
            pieces: PieceCache::default(),
            registries: Mutex::new(registries),
            updates: UpdateQueue::default(),
            inputs: Mutex::new(SnapshotInputs::new(merged, options.quiet)),
            ingress_rules: Mutex::default(),
            options,
            sync_states: SyncStates::default(),
            blocking: BlockingJobs::new(),
            changed: Notify::new(),
            built: Notify::new(),
            current: CurrentSnapshot::new(),
            sessions: Sessions::default(),
            pushes: PushHistory::default(),
            edge: RouterInputs::default(),
            requests: watch::Sender::default(),
            lifecycle: Lifecycle::new(),
            logged_effects: LoggedEffects::default(),
        })
    }

    fn inputs(&self) -> MutexGuard<'_, SnapshotInputs> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keys were fetched: proxies whose policies use others than before are to have them.
    pub(super) fn put_key_sets(&self, keys: BTreeMap<JwksSource, KeySet>) {
        self.inputs().put_key_sets(self.clock.now(), keys);
        self.changed.notify_one();
    }

    /// Follows the RequestAuthentications.
    pub(super) fn request_authentications(&self) -> watch::Receiver<TokenPolicies> {
        self.requests.subscribe()
    }

    /// The world as the last update has merged it: a snapshot of it may not be there yet.
    pub(crate) fn world(&self) -> World {
        self.inputs().merged.world.clone()
    }

    /// The status of all sources, sorted.
    pub(crate) fn source_statuses(&self) -> Vec<SourceStatus> {
        self.inputs().merged.statuses.clone()
    }

    /// Messages about Ingresses.
    pub(crate) fn ingress_notes(&self) -> Arc<IngressNotes> {
        Arc::clone(self.ingress_rules().notes())
    }

    fn ingress_rules(&self) -> MutexGuard<'_, IngressRules> {
        let rules = self.ingress_rules.lock();
        rules.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the rules of Ingresses to a mesh. Returns what changed of these rules since the last call; `None`: any may have changed.
    fn complete(&self, inputs: WorldInputs) -> (World, Option<Changes>) {
        let WorldInputs {
            mut world,
            ingresses,
            ..
        } = inputs;
        let mut rules = self.ingress_rules();
        let changes = rules.add(ingresses.iter(), &mut world, &self.options.domain);
        (world, changes)
    }

    /// Makes all streams look at all resources, as a debug request asks. Returns the number of streams.
    pub(crate) fn push_all(&self) -> usize {
        self.inputs()
            .change_all(self.clock.now(), TriggerReason::Debug);
        self.changed.notify_one();
        self.sessions.len()
    }

    /// Begins to serve the mesh as it is known now: all sources were read.
    fn begin(&self) {
        let inputs = self.inputs().begin(self.clock.now());
        let (world, _) = self.complete(inputs);
        let services = world.services.len();
        let settings = Arc::clone(&self.options.settings);
        self.serve(Snapshot::new(world, settings));
        self.lifecycle.start_serving();
        info!("serving {}", api::counted(services, "service"));
    }

    fn serve(&self, snapshot: Arc<Snapshot>) {
        self.log_rate_limiters.lost_gateways(&snapshot);
        self.current.publish(snapshot);
        self.built.notify_one();
    }

    /// `None`: not all sources were read yet.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.current.get()
    }
}

#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod stretch_tests;
