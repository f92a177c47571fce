//! Sources that speak the Mesh Configuration Protocol: dialled for as long as the mesh configuration names them, and taken
//! together as one.

mod address;
mod config_objects;
mod core_objects;
mod counts;
#[cfg(test)]
mod handover_tests;
mod local;
mod objects;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod panic_tests;
mod port;
mod publish;
mod refused;
mod sinkz;
mod source;
mod union_state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::config::collections::SYNTHETIC;
use api::istio::mesh::v1alpha1::ConfigSource;
use api::model::{ClusterId, Registry};
use mcp::sink::Changes;
use mcp::sink::union::UnionChange;
use sources::catalogue::EntryChange as Stored;
use sources::contribution::{SourceId, SyncState};
use sources::kubernetes::Objects;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use self::local::{Folder, Local};
use self::objects::OfFiles;
use self::source::{FollowedSource, SourceName, SourceOrigin, missing};
use self::union_state::UnionState;
use super::{names, own_rules::Own};
use crate::cli::DiscoveryFlags;
use crate::discovery::hub::Hub;
use crate::exit::Failure;
use crate::log_rate_limiter::LogRateLimiter;
use crate::mcp::{Apply, DialledSources, Link, McpServer, ReceivedObject};
use crate::secrets::redact_text;
use crate::shared::{LateTasks, RuleUpdate};

/// The registry of ServiceEntries that are made of Services, by the name that Istio has for it.
const SERVICES: &str = "SSEMCP";

/// The name of the role that reads for this one, in place of an address.
const ROLE: &str = "galley";

/// All sources.
#[derive(Debug)]
pub(crate) struct McpSources {
    hub: Arc<Hub>,
    pub(super) own: Own,
    rules: SourceId,
    services: SourceId,
    /// Sources that flags name, in addition to those of the mesh configuration.
    named: Vec<SourceName>,
    received: usize,
    patience: Duration,
    /// Objects that cannot be used, in the log.
    unusable: LogRateLimiter,
    /// The port, until it is opened.
    port: Mutex<Option<McpServer>>,
    /// The updates of another role, until a task receives them.
    updates: Mutex<Option<mpsc::Receiver<RuleUpdate>>>,
    /// The tasks of the sources, which the mesh configuration may name at any time.
    tasks: LateTasks,
    state: Mutex<UnionState>,
    /// True while objects are to be put into the hub, after the updates that it applies.
    is_unpublished: watch::Sender<bool>,
}

/// Dials all that the mesh configuration and the flags name, now and later.
///
/// # Errors
/// An address or its TLS cannot be used.
pub(super) fn start(
    updates: Option<mpsc::Receiver<RuleUpdate>>,
    flags: &DiscoveryFlags,
    hub: &Arc<Hub>,
    loops: &mut JoinSet<()>,
) -> Result<Arc<McpSources>, Failure> {
    let mesh = hub.world().mesh;
    let received = address::received(flags.mcp_max_msg_size).map_err(Failure::config)?;
    let named_sources = flags.mcp_server_addrs.iter();
    let named_sources = named_sources.map(|address| {
        let source = ConfigSource {
            address: address.clone(),
            ..ConfigSource::default()
        };
        address::named(&source, received)
            .map_err(|cause| Failure::config(format!("cannot use --mcpServerAddrs {cause}")))
    });
    let mut named_sources = named_sources.collect::<Result<Vec<_>, _>>()?;
    if updates.is_some() {
        named_sources.push(SourceName::Role);
    }
    let port = match flags.mcp_sink_addr.as_deref() {
        Some(address) if !address.is_empty() => {
            named_sources.push(SourceName::Dialling);
            let list = &flags.access_list_file;
            Some(port::open(address, list, hub, received)?)
        }
        Some(_) | None => None,
    };
    let configured = address::all(&mesh.config_sources, received)
        .map_err(|cause| Failure::config(format!("cannot use configSources: {cause}")))?;
    if let Some(server) = &port {
        // It is opened once.
        let _first = hub.port_access.set(server.port_access());
    }
    let are_named = !(named_sources.is_empty() && configured.is_empty());
    let id = |cluster: ClusterId| SourceId {
        registry: Registry::External,
        cluster,
    };
    let mcp_sources = Arc::new(McpSources {
        hub: Arc::clone(hub),
        own: Own::new(are_named, flags.config_dir.is_some()),
        rules: id(hub.options.settings.cluster.clone()),
        services: id(SERVICES.into()),
        named: named_sources,
        received,
        patience: flags.mcp_sync_timeout,
        unusable: LogRateLimiter::new(100),
        port: Mutex::new(port),
        updates: Mutex::new(updates),
        tasks: LateTasks::of(loops),
        state: Mutex::new(UnionState::new(OfFiles::new(
            Objects::new(names(hub, hub.options.settings.cluster.clone())),
            hub.options.registries.contains(&Registry::Kubernetes),
        ))),
        is_unpublished: watch::Sender::new(false),
    });
    loops.spawn(mcp_sources.follow_trust());
    loops.spawn(mcp_sources.publish_later());
    loops.spawn(mcp_sources.withdraw_later());
    if are_named {
        hub.set_sync_state(&mcp_sources.rules, SyncState::Syncing);
        mcp_sources.follow(configured);
        loops.spawn(Arc::clone(&mcp_sources).wait());
    }
    Ok(mcp_sources)
}

impl McpSources {
    fn state(&self) -> MutexGuard<'_, UnionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if there is any source.
    pub(super) fn are_any(&self) -> bool {
        !self.state().sources.is_empty()
    }

    /// Returns true if there is any source that replaces rules of one's own, and those that another role reads.
    pub(super) fn are_named(&self) -> bool {
        let state = self.state();
        let mut names = state.sources.iter().map(|source| &source.wanted);
        names.any(|wanted| *wanted != SourceName::Role)
    }

    /// The mesh configuration may name others now.
    pub(crate) fn configure(self: &Arc<Self>, sources: &[ConfigSource]) {
        match address::all(sources, self.received) {
            Ok(configured) => self.follow(configured),
            Err(cause) => error!("cannot use configSources: {cause}; the previous ones stay"),
        }
    }

    /// Follows these sources from now on. Objects of the others stay until the new ones have sent all.
    fn follow(self: &Arc<Self>, mut configured: Vec<SourceName>) {
        configured.extend(self.named.iter().cloned());
        // As a directory's, the rules that another role reads count while no source is named.
        let is_role = |wanted: &SourceName| *wanted == SourceName::Role;
        let yields = configured.iter().any(is_role) && !configured.iter().all(is_role);
        configured.retain(|wanted| !(yields && is_role(wanted)));
        let mut state = self.state();
        let is_same = {
            let stay = state.sources.iter().filter(|source| !source.leaves);
            stay.map(|source| &source.wanted).eq(configured.iter())
        };
        if is_same {
            return;
        }
        let mut leaving = state.sources.iter().filter(|source| source.leaves);
        let is_aside = state.aside.is_some() || leaving.any(|source| is_role(&source.wanted));
        let mut old: Vec<Option<FollowedSource>> = std::mem::take(&mut state.sources)
            .into_iter()
            .map(Some)
            .collect();
        let mut places = Vec::new();
        let mut sources = Vec::new();
        for wanted in configured {
            // A source that is still named keeps its stream and its objects, at its new place.
            let place = old.iter().position(|source| {
                source
                    .as_ref()
                    .is_some_and(|source| source.wanted == wanted)
            });
            let source = place.and_then(|at| old.get_mut(at).and_then(Option::take));
            places.push(place);
            sources.push(match source {
                Some(mut source) => {
                    source.leaves = false;
                    source
                }
                None if is_role(&wanted) => self.role(&mut state),
                None => self.dial(&mut state.next, wanted),
            });
        }
        for (at, source) in old.into_iter().enumerate() {
            if let Some(mut source) = source {
                if !is_role(&source.wanted) {
                    info!("closing {}: no longer in configSources", source.name());
                }
                source.leaves = true;
                // It comes last, so that every source that stays wins over it.
                places.push(Some(at));
                sources.push(source);
            }
        }
        if yields && !is_aside {
            warn!(
                "rules that {ROLE} reads are not served to proxies: configuration comes from configSources"
            );
            if !sources.iter().any(|source| is_role(&source.wanted)) {
                let role = self.dial(&mut state.next, SourceName::Role);
                state.aside = Some(role);
            }
        }
        state.sources = sources;
        state.reorder_core();
        let changes = state.union.replace(&places);
        self.take(&mut state, changes);
        self.reconcile(state);
    }

    /// The role that reads for this one, with all that it has told.
    fn role(self: &Arc<Self>, state: &mut UnionState) -> FollowedSource {
        let Some(source) = state.aside.take() else {
            return self.dial(&mut state.next, SourceName::Role);
        };
        info!("rules that {ROLE} reads are served again: no source is named");
        if let SourceOrigin::Local(local) = &source.origin {
            local.replay();
        }
        source
    }

    fn dial(self: &Arc<Self>, next: &mut u64, wanted: SourceName) -> FollowedSource {
        let id = *next;
        *next += 1;
        // These own their sources, so a strong pointer would be a cycle.
        let mcp_sources = Arc::downgrade(self);
        let apply = move |changes: &[Changes<ReceivedObject>]| {
            if let Some(mcp_sources) = mcp_sources.upgrade() {
                mcp_sources.apply(id, changes);
            }
        };
        let (origin, task) = match &wanted {
            SourceName::Dialled(wanted) => {
                let link = Link::new(wanted.clone(), self.hub.metrics.mcp(), Arc::new(apply));
                let task = self.tasks.spawn(Arc::clone(&link).run());
                (SourceOrigin::Link(link), task)
            }
            SourceName::Dialling => {
                let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
                let sources =
                    DialledSources::new(address::ID, &address::collections(), Arc::new(apply));
                let server = port.take();
                let name = server.as_ref().map(McpServer::address).unwrap_or_default();
                let takes = port::take(server, Arc::clone(&sources), Arc::clone(&self.hub));
                (SourceOrigin::Port(name, sources), self.tasks.spawn(takes))
            }
            SourceName::Folder(path, collections) => {
                let local = Arc::new(Local::new(format!("fs://{}", path.display())));
                let folder = Folder {
                    path: path.clone(),
                    has_cluster: self.has_cluster(),
                    collections: collections.clone(),
                };
                let objects = self.core_receiver(id);
                let reads = Arc::clone(&local).read(folder, objects, Arc::new(apply));
                (SourceOrigin::Local(local), self.tasks.spawn(reads))
            }
            SourceName::Role => {
                let local = Arc::new(Local::new(ROLE.to_owned()));
                let receiving = self.receive_updates(id, Arc::clone(&local), Arc::new(apply));
                (SourceOrigin::Local(local), self.tasks.spawn(receiving))
            }
        };
        FollowedSource {
            id,
            wanted,
            origin,
            task,
            leaves: false,
        }
    }

    /// True if an API server has the objects of Kubernetes' own kinds.
    fn has_cluster(&self) -> bool {
        let registries = &self.hub.options.registries;
        registries.contains(&Registry::Kubernetes)
    }

    /// The receiver of a source's changes, as far as they become services here.
    fn core_receiver(self: &Arc<Self>, source: u64) -> impl FnMut(&[Stored]) + Send + use<> {
        let mcp_sources = Arc::downgrade(self);
        move |changes| {
            if let Some(mcp_sources) = mcp_sources.upgrade() {
                mcp_sources.state().take_core(source, changes);
            }
        }
    }

    /// Hears the role that reads for this one. Its objects of Kubernetes' own kinds become services here.
    fn receive_updates(
        self: &Arc<Self>,
        id: u64,
        local: Arc<Local>,
        apply: Apply,
    ) -> impl Future<Output = ()> + use<> {
        let updates = {
            let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
            updates.take()
        };
        let objects = self.core_receiver(id);
        async move {
            // It is dialled once.
            if let Some(updates) = updates {
                let collections = address::collections();
                local
                    .receive_updates(updates, objects, collections, apply)
                    .await;
            }
        }
    }

    /// Gives the workloads of files the trust domain of the mesh, whenever that changes.
    fn follow_trust(self: &Arc<Self>) -> impl Future<Output = ()> + use<> {
        let (mcp_sources, mut trust) = (Arc::downgrade(self), self.hub.trust.watch());
        async move {
            while trust.changed().await.is_ok() {
                let domain = Arc::clone(&trust.borrow_and_update());
                let Some(mcp_sources) = mcp_sources.upgrade() else {
                    return;
                };
                let mut state = mcp_sources.state();
                state.of_files.objects.set_trust_domain(&domain);
                mcp_sources.reconcile(state);
            }
        }
    }

    /// Applies a source's changes, or takes note of a source that is lost, or there again: then there are no changes.
    fn apply(&self, id: u64, changes: &[Changes<ReceivedObject>]) {
        let mut state = self.state();
        let place = state.sources.iter().position(|source| source.id == id);
        // Changes of a source that has left meanwhile are dropped.
        if let Some(place) = place {
            for changes in changes {
                let changes = state.union.apply(place, changes);
                self.take(&mut state, changes);
            }
        }
        // It counts all objects, so it runs once for all collections.
        self.reconcile(state);
    }

    /// Applies changes to the rules and the services.
    fn take(&self, state: &mut UnionState, changes: Vec<UnionChange<ReceivedObject>>) {
        for UnionChange {
            collection,
            name,
            object,
        } in changes
        {
            let rules = match &*collection {
                SYNTHETIC => &mut state.services,
                _ => &mut state.rules,
            };
            let Some(received) = object else {
                rules.remove(&collection, &name);
                continue;
            };
            let place = state.union.source_of(&collection, &name);
            let source = place.and_then(|place| Some(state.sources.get(place)?.as_origin()));
            let origin = received.origin.clone().or(source).unwrap_or_default();
            let (at, object) = ((&collection, &name), &received.object);
            if let Err(cause) = rules.set(at, object, received.created, origin.clone())
                && let Some(more) = self.unusable.suffix_if_allowed()
            {
                let line = redact_text(&format!("{origin}: {collection} {name}: {cause}"));
                warn!("{line}; its last good version stays{more}");
            }
        }
    }

    /// Updates the hub, and drops sources that are no longer needed.
    fn reconcile(&self, mut state: MutexGuard<'_, UnionState>) {
        let is_synced = state.is_synced();
        if is_synced {
            self.drop_left_sources(&mut state);
        }
        let own_counted = self.own.count();
        if !self.own.yields(!state.sources.is_empty(), is_synced) {
            // One's own rules count, and may have the same place in the hub.
            self.is_unpublished.send_replace(false);
            return;
        }
        // Once there, it stays: it may have to become empty.
        state.has_services |= state.sources.iter().any(FollowedSource::gives_services);
        // Proxies that are served already do not wait for sources that come later.
        state.late |= is_synced;
        match (own_counted, self.own.count()) {
            (false, true) if self.own.has_clusters() => self.give_back(state),
            // Rules change hands in one step.
            (true, _) | (_, true) => self.publish(state),
            (false, false) => self.publish_or_mark(state),
        }
    }

    /// Drops the sources that are named no longer: the others have sent all.
    fn drop_left_sources(&self, state: &mut UnionState) {
        if !state.sources.iter().any(|source| source.leaves) {
            return;
        }
        let places = state.sources.iter().enumerate();
        let places = places.filter(|(_, source)| !source.leaves);
        let places: Vec<_> = places.map(|(at, _)| Some(at)).collect();
        state.drop_leaving();
        state.reorder_core();
        let changes = state.union.replace(&places);
        self.take(state, changes);
    }

    /// Ends the wait for sources after `patience`, so that the objects that have come are served.
    async fn wait(self: Arc<Self>) {
        tokio::time::sleep(self.patience).await;
        let mut state = self.state();
        state.late = true;
        let waits = self.hub.snapshot().is_none();
        if waits {
            let missing = missing(&state.sources);
            if !missing.is_empty() {
                warn!("{missing}; serving without it");
            }
        }
        self.reconcile(state);
    }
}
