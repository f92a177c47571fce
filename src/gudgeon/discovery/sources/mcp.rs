//! Sources that speak the Mesh Configuration Protocol: dialled for as long as the mesh configuration names them, and taken
//! together as one.

mod address;
mod folder;
mod port;
mod sinkz;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::config::collections::SYNTHETIC;
use api::istio::mesh::v1alpha1::ConfigSource;
use api::model::{ClusterId, Registry};
use cluster::registry::{SourceId, Standing};
use mcp::sink::Changes;
use mcp::sink::union::{Change, Union};
use tokio::task::AbortHandle;
use tracing::{error, info, warn};

use self::folder::Folder;
use super::own::Own;
use super::rules::Rules;
use crate::cli::DiscoveryFlags;
use crate::discovery::hub::Hub;
use crate::exit::Failure;
use crate::mcp::{Link, ReceivedObject, Server, SourceObjects, Wanted};
use crate::seldom::Seldom;

/// What is made of Services is a registry of its own, by the name that Istio has for it.
const SERVICES: &str = "SSEMCP";

/// All sources.
#[derive(Debug)]
pub(crate) struct Sinks {
    hub: Arc<Hub>,
    pub(super) own: Own,
    rules: SourceId,
    services: SourceId,
    /// Of flags: in addition to those of the mesh configuration.
    named: Vec<Named>,
    received: usize,
    patience: Duration,
    /// Objects that cannot be used, in the log.
    unusable: Seldom,
    /// Until it is opened.
    port: Mutex<Option<Server>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u64,
    /// In their order; those that are to go come last.
    sources: Vec<Source>,
    union: Union<ReceivedObject>,
    rules: Rules,
    services: Rules,
    /// What they have is served, whether or not all have said all.
    late: bool,
    has_services: bool,
}

#[derive(Debug)]
struct Source {
    id: u64,
    wanted: Named,
    origin: Origin,
    task: AbortHandle,
    leaves: bool,
}

/// What somebody has named.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    Dialled(Wanted),
    /// And what is wanted of it.
    Folder(PathBuf, Vec<String>),
    /// Those who dial.
    Dialling,
}

#[derive(Debug)]
enum Origin {
    Link(Arc<Link>),
    Folder(Arc<Folder>),
    Port(String, Arc<SourceObjects>),
}

impl Source {
    fn name(&self) -> String {
        match &self.origin {
            Origin::Link(link) => link.name.clone(),
            Origin::Folder(folder) => format!("fs://{}", folder.path.display()),
            Origin::Port(name, _) => name.clone(),
        }
    }

    /// As whoever wrote the configuration knows it.
    fn shown(&self) -> String {
        match &self.origin {
            Origin::Link(link) => link.named().to_owned(),
            Origin::Folder(_) | Origin::Port(..) => self.name(),
        }
    }

    fn is_synced(&self) -> bool {
        match &self.origin {
            Origin::Link(link) => link.held.is_synced(),
            Origin::Folder(folder) => folder.is_synced(),
            Origin::Port(_, held) => held.is_synced(),
        }
    }

    fn gives_services(&self) -> bool {
        match &self.wanted {
            Named::Dialled(wanted) => wanted.has(SYNTHETIC),
            Named::Folder(..) | Named::Dialling => false,
        }
    }
}

/// Dials all that the mesh configuration and the flags name, now and later.
///
/// # Errors
/// An address or its TLS cannot be used.
pub(super) fn start(flags: &DiscoveryFlags, hub: &Arc<Hub>) -> Result<Arc<Sinks>, Failure> {
    let mesh = hub.look(|registries| registries.world().mesh);
    let received = flags.mcp_max_msg_size;
    let named = flags.mcp_server_addrs.iter();
    let named = named.map(|address| {
        let source = ConfigSource {
            address: address.clone(),
            ..ConfigSource::default()
        };
        address::named(&source, received)
            .map_err(|cause| Failure::config(format!("cannot use --mcpServerAddrs {cause}")))
    });
    let mut named = named.collect::<Result<Vec<_>, _>>()?;
    let port = match flags.mcp_sink_addr.as_deref() {
        Some(address) if !address.is_empty() => {
            named.push(Named::Dialling);
            let list = &flags.access_list_file;
            Some(port::open(address, list, hub, received)?)
        }
        Some(_) | None => None,
    };
    let configured = all(&mesh.config_sources, received)
        .map_err(|cause| Failure::config(format!("cannot use configSources: {cause}")))?;
    if let Some(server) = &port {
        // It is opened once.
        let _first = hub.port_access.set(server.port_access());
    }
    let are_named = !(named.is_empty() && configured.is_empty());
    let id = |cluster: ClusterId| SourceId {
        registry: Registry::External,
        cluster,
    };
    let sinks = Arc::new(Sinks {
        hub: Arc::clone(hub),
        own: Own::new(are_named, flags.config_dir.is_some()),
        rules: id(hub.options.settings.cluster.clone()),
        services: id(SERVICES.into()),
        named,
        received,
        patience: flags.mcp_sync_timeout,
        unusable: Seldom::new(100),
        port: Mutex::new(port),
        state: Mutex::new(State {
            next: 0,
            sources: Vec::new(),
            union: Union::new(0),
            rules: Rules::default(),
            services: Rules::default(),
            late: false,
            has_services: false,
        }),
    });
    if are_named {
        hub.stand(&sinks.rules, Standing::Syncing);
        sinks.follow(configured);
        tokio::spawn(Arc::clone(&sinks).wait());
    }
    Ok(sinks)
}

fn all(sources: &[ConfigSource], received: usize) -> Result<Vec<Named>, String> {
    let wanted = sources
        .iter()
        .map(|source| address::named(source, received));
    wanted.collect()
}

impl Sinks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is one at all.
    pub(crate) fn are_named(&self) -> bool {
        !self.state().sources.is_empty()
    }

    /// The mesh configuration may name others now.
    pub(crate) fn configure(self: &Arc<Self>, sources: &[ConfigSource]) {
        match all(sources, self.received) {
            Ok(configured) => self.follow(configured),
            Err(cause) => error!("cannot use configSources: {cause}: those before stay"),
        }
    }

    /// These from now on. What the others have stays until the new ones have said all.
    fn follow(self: &Arc<Self>, mut configured: Vec<Named>) {
        configured.extend(self.named.iter().cloned());
        let mut state = self.state();
        let is_same = {
            let stay = state.sources.iter().filter(|source| !source.leaves);
            stay.map(|source| &source.wanted).eq(configured.iter())
        };
        if is_same {
            return;
        }
        let mut old: Vec<Option<Source>> = std::mem::take(&mut state.sources)
            .into_iter()
            .map(Some)
            .collect();
        let mut places = Vec::new();
        let mut sources = Vec::new();
        for wanted in configured {
            let known = old.iter().position(|source| {
                source
                    .as_ref()
                    .is_some_and(|source| source.wanted == wanted)
            });
            let source = known.and_then(|at| old.get_mut(at).and_then(Option::take));
            places.push(known);
            sources.push(match source {
                Some(mut source) => {
                    source.leaves = false;
                    source
                }
                None => self.dial(&mut state.next, wanted),
            });
        }
        for (at, source) in old.into_iter().enumerate() {
            if let Some(mut source) = source {
                info!("{} is no longer wanted", source.name());
                source.leaves = true;
                places.push(Some(at));
                sources.push(source);
            }
        }
        state.sources = sources;
        let changes = state.union.replace(&places);
        self.take(&mut state, changes);
        self.settle(state);
    }

    fn dial(self: &Arc<Self>, next: &mut u64, wanted: Named) -> Source {
        let id = *next;
        *next += 1;
        let sinks = Arc::downgrade(self);
        let apply = move |changes: &Changes<ReceivedObject>| {
            if let Some(sinks) = sinks.upgrade() {
                sinks.apply(id, changes);
            }
        };
        let (origin, task) = match &wanted {
            Named::Dialled(wanted) => {
                let link = Link::new(wanted.clone(), self.hub.metrics.mcp(), Arc::new(apply));
                let task = tokio::spawn(Arc::clone(&link).run());
                (Origin::Link(link), task)
            }
            Named::Dialling => {
                let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
                let held =
                    SourceObjects::new(address::ID, &address::collections(), Arc::new(apply));
                let server = port.take();
                let name = server.as_ref().map(Server::shown).unwrap_or_default();
                let takes = port::take(server, Arc::clone(&held), Arc::clone(&self.hub));
                (Origin::Port(name, held), tokio::spawn(takes))
            }
            Named::Folder(path, collections) => {
                let folder = Arc::new(Folder::new(path));
                let reads = Arc::clone(&folder).run(collections.clone(), Arc::new(apply));
                (Origin::Folder(folder), tokio::spawn(reads))
            }
        };
        Source {
            id,
            wanted,
            origin,
            task: task.abort_handle(),
            leaves: false,
        }
    }

    fn apply(&self, id: u64, changes: &Changes<ReceivedObject>) {
        let mut state = self.state();
        let place = state.sources.iter().position(|source| source.id == id);
        if let Some(place) = place {
            let changes = state.union.apply(place, changes);
            self.take(&mut state, changes);
        }
        self.settle(state);
    }

    /// What is other now.
    fn take(&self, state: &mut State, changes: Vec<Change<ReceivedObject>>) {
        for Change {
            collection,
            name,
            object,
        } in changes
        {
            let rules = match &*collection {
                SYNTHETIC => &mut state.services,
                _ => &mut state.rules,
            };
            let Some(taken) = object else {
                rules.remove(&collection, &name);
                continue;
            };
            let place = state.union.place(&collection, &name);
            let source = place.and_then(|place| state.sources.get(place));
            let source: Arc<str> = source.map_or_else(String::new, Source::name).into();
            if let Err(cause) = rules.set(&collection, &name, &taken, &source)
                && let Some(more) = self.unusable.more()
            {
                warn!("{source}: {collection} {name}: {cause}: what it said before stays{more}");
            }
        }
    }

    /// Tells the mesh, and lets go those that nobody waits for any more.
    fn settle(&self, mut state: MutexGuard<'_, State>) {
        let mut stay = state.sources.iter().filter(|source| !source.leaves);
        let is_synced = stay.all(Source::is_synced);
        if is_synced && state.sources.iter().any(|source| source.leaves) {
            let places = state.sources.iter().enumerate();
            let places = places.filter(|(_, source)| !source.leaves);
            let places: Vec<_> = places.map(|(at, _)| Some(at)).collect();
            state.sources.retain(|source| {
                if source.leaves {
                    source.task.abort();
                }
                !source.leaves
            });
            let changes = state.union.replace(&places);
            self.take(&mut state, changes);
        }
        if !self.own.yields(!state.sources.is_empty(), is_synced) {
            return;
        }
        let (rules, services) = (state.rules.said(), state.services.said());
        let hub = &self.hub;
        state.rules.count(&hub.facts, &self.rules);
        state.services.count(&hub.facts, &self.services);
        // Once there, it stays: it may have to become empty.
        state.has_services |= state.sources.iter().any(Source::gives_services);
        let has_services = state.has_services;
        // Who is already served does not wait for those who come later.
        state.late |= is_synced;
        let standing = match (is_synced, state.late) {
            (true, _) => Standing::Synced,
            (false, true) => Standing::Stale {
                error: missing(&state.sources).into(),
            },
            (false, false) => Standing::Syncing,
        };
        let missing = missing(&state.sources);
        drop(state);
        let mut awaited = hub.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.insert(self.rules.clone(), missing);
        drop(awaited);
        hub.update(|registries| registries.put(&self.rules, rules));
        if has_services {
            hub.update(|registries| registries.put(&self.services, services));
            hub.stand(&self.services, standing.clone());
        }
        hub.stand(&self.rules, standing);
    }

    /// Nobody is waited for longer than this.
    async fn wait(self: Arc<Self>) {
        tokio::time::sleep(self.patience).await;
        let mut state = self.state();
        state.late = true;
        let waits = self.hub.snapshot().is_none();
        if waits {
            let missing = missing(&state.sources);
            if !missing.is_empty() {
                warn!("{missing}: what is there is served without it");
            }
        }
        self.settle(state);
    }
}

fn missing(sources: &[Source]) -> String {
    let stay = sources.iter().filter(|source| !source.leaves);
    let missing = stay.filter(|source| !source.is_synced());
    let names: BTreeSet<_> = missing.map(Source::shown).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("{} has not said all", names.join(", "))
}
