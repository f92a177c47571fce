//! All sources as one [`World`], and the changes of each step.
//!
//! A step compares with the step before, by pointer first; its result depends only on the present contributions. So the
//! world is the same in every order of arrival, and the same as a world that is built from scratch.

mod differ;
mod entries;
mod merge;
mod precedence;
#[cfg(test)]
mod properties;
mod report;
mod reports;
mod router_inputs;
mod selection;
mod selection_budget;
mod service_entry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::istio::mesh::v1alpha1::{MeshConfig, MeshNetworks};
use api::mesh::mesh_config::AuthPolicy;
use api::model::{
    ChangedKind, Changes, ClusterId, Credentials, Registry, ServiceKey, TlsMode, World,
};

use crate::contribution::{
    Configuration, ConfigurationKind, Contribution, EachKind, Ingresses, ObjectKey, SourceId,
    SyncState,
};
use differ::{affects_proxies, differ, differ_all};
use entries::Entries;
use precedence::first;
pub use report::Report;
use reports::LoggedReports;
use selection::WorkloadSelection;

/// Settings of the command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The local cluster: it comes before others.
    pub cluster: ClusterId,
    /// The default, if the mesh configuration has no trust domain.
    pub trust_domain: Arc<str>,
    /// The precedence of the registries, highest first.
    pub order: Vec<Registry>,
    /// Entries without an address that are HTTP on 443, or undeclared there, make no listener (`xds::settings`): this is
    /// reported.
    pub block_http_on_443: bool,
}

type Sources = BTreeMap<SourceId, Source>;

#[derive(Debug)]
struct Source {
    contribution: Contribution,
    sync_state: SyncState,
}

/// A source's status, for pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    pub source: SourceId,
    pub sync_state: SyncState,
    /// The number of objects of each kind, without zeros.
    pub objects: BTreeMap<&'static str, usize>,
}

/// The sources, merged to one world.
#[derive(Debug)]
pub struct Registries {
    settings: Settings,
    sources: Sources,
    entries: Entries,
    world: World,
    /// Certificates that were looked for by name.
    watched: Arc<Credentials>,
    /// Ingresses of the local API server.
    served_ingresses: Arc<Ingresses>,
    left_out: BTreeMap<ServiceKey, Vec<Report>>,
    logged: LoggedReports,
}

impl Registries {
    #[must_use]
    pub fn new(settings: Settings, mesh: Arc<MeshConfig>, networks: Arc<MeshNetworks>) -> Self {
        let world = World {
            networks,
            ..World::new(mesh)
        };
        Self {
            settings,
            sources: Sources::new(),
            entries: Entries::default(),
            world,
            watched: Arc::default(),
            served_ingresses: Arc::default(),
            left_out: BTreeMap::new(),
            logged: LoggedReports::default(),
        }
    }

    /// Replaces the contribution of a source. Does not change its [`SyncState`].
    pub fn put(&mut self, id: &SourceId, contribution: Contribution) -> Changes {
        let new = contribution.clone();
        let old = std::mem::replace(&mut self.source(id).contribution, contribution);
        self.step(&old, &new)
    }

    /// Sets the sync state of a source. A source without one is not waited for.
    pub fn set_sync_state(&mut self, id: &SourceId, sync_state: SyncState) {
        self.source(id).sync_state = sync_state;
    }

    fn source(&mut self, id: &SourceId) -> &mut Source {
        let new = || Source {
            contribution: Contribution::default(),
            sync_state: SyncState::Syncing,
        };
        self.sources.entry(id.clone()).or_insert_with(new)
    }

    /// Removes a source, with all its objects.
    pub fn remove(&mut self, id: &SourceId) -> Changes {
        match self.sources.remove(id) {
            Some(source) => self.step(&source.contribution, &Contribution::default()),
            None => Changes::default(),
        }
    }

    pub fn set_mesh(&mut self, mesh: Arc<MeshConfig>) -> Changes {
        let mut changes = Changes::default();
        if *self.world.mesh == *mesh {
            return changes;
        }
        let moved = self.trust_domain() != trust_domain(&self.settings, &mesh);
        self.world.mesh = mesh;
        changes.add_single(ChangedKind::MeshConfig);
        if moved {
            // The identities of the entries' endpoints have the trust domain in them.
            let keys = self.entries.used.keys().cloned().collect();
            self.remake(&keys, BTreeSet::new(), &mut changes);
        }
        changes
    }

    pub fn set_networks(&mut self, networks: Arc<MeshNetworks>) -> Changes {
        let mut changes = Changes::default();
        if *self.world.networks != *networks {
            self.world.networks = networks;
            changes.add_single(ChangedKind::MeshNetworks);
        }
        changes
    }

    /// Addresses of proxies that have no certificates, in place of those before.
    pub fn set_plaintext(&mut self, addresses: BTreeSet<IpAddr>) -> Changes {
        let mut changes = Changes::default();
        if *self.world.plaintext == addresses {
            return changes;
        }
        let before = std::mem::replace(&mut self.world.plaintext, Arc::new(addresses));
        if is_auto(&self.world.mesh) || !self.world.peer_authentications.is_empty() {
            let other = before.symmetric_difference(&self.world.plaintext);
            let other = other.copied().collect();
            // The same endpoints, which clients are to call otherwise.
            for key in self.would_take_tls(&other) {
                changes.add(ChangedKind::Endpoints, key);
            }
        }
        changes
    }

    /// Returns the services with an endpoint at one of these addresses that would take mutual TLS by its labels.
    fn would_take_tls<'a>(
        &'a self,
        addresses: &'a BTreeSet<IpAddr>,
    ) -> impl Iterator<Item = &'a ServiceKey> {
        let all = self.world.endpoints.iter();
        let all = all.filter(|(_, shards)| {
            let mut endpoints = shards.values().flat_map(|shard| shard.iter());
            endpoints.any(|endpoint| {
                let address = endpoint.address.ip();
                endpoint.tls == TlsMode::Istio && address.is_some_and(|at| addresses.contains(&at))
            })
        });
        all.map(|(key, _)| key)
    }

    /// Returns the present world.
    #[must_use]
    pub fn world(&self) -> World {
        self.world.clone()
    }

    /// Returns the status of all sources, sorted.
    #[must_use]
    pub fn sources(&self) -> Vec<SourceStatus> {
        self.sources
            .iter()
            .map(|(id, source)| SourceStatus {
                source: id.clone(),
                sync_state: source.sync_state.clone(),
                objects: counts(&source.contribution),
            })
            .collect()
    }

    /// Iterates over the sources that are not synced yet. After its deadline the caller sets one to stale by
    /// [`Self::set_sync_state`].
    pub fn missing(&self) -> impl Iterator<Item = &SourceId> {
        self.sources
            .iter()
            .filter(|(_, source)| source.sync_state == SyncState::Syncing)
            .map(|(id, _)| id)
    }

    fn trust_domain(&self) -> &str {
        trust_domain(&self.settings, &self.world.mesh)
    }

    /// Applies the difference between two contributions of a source.
    fn step(&mut self, old: &Contribution, new: &Contribution) -> Changes {
        let mut changes = Changes::default();
        let mut touched = BTreeSet::new();
        self.logged.note_changes(old, new);
        differ(&old.services, &new.services, &mut touched);
        differ(&old.endpoints, &new.endpoints, &mut touched);
        Configuration::each_kind(&mut ConfigurationStep {
            registries: self,
            old: &old.configuration,
            new: &new.configuration,
            changes: &mut changes,
        });
        for key in differ_all(&old.ingresses, &new.ingresses) {
            changes.add(ChangedKind::Ingress, &key);
        }
        if !Arc::ptr_eq(&old.credentials, &new.credentials) {
            self.credentials(&mut changes);
        }
        let mut remade = self.entries.selecting(&self.sources, old, new);
        // Entries select among the pods of the world, so that these come before `remake`.
        self.workloads(old, new, &mut changes);
        let (was, is) = (
            &old.configuration.service_entries,
            &new.configuration.service_entries,
        );
        differ(was, is, &mut remade);
        self.remake(&remade, touched, &mut changes);
        changes
    }

    fn workloads(&mut self, old: &Contribution, new: &Contribution, changes: &mut Changes) {
        for key in differ_all(&old.workloads, &new.workloads) {
            let now = first(&self.settings, &self.sources, |contribution| {
                contribution.workloads.get(&key)
            });
            let now = now.map(|(_, workload)| workload);
            let was = self.world.workloads.get(&key);
            if was == now {
                continue;
            }
            if affects_proxies(was.map(|was| &**was), now.map(|now| &**now)) {
                changes.add(ChangedKind::Workload, &key);
            }
            let workloads = Arc::make_mut(&mut self.world.workloads);
            match now {
                Some(workload) => workloads.insert(key, workload.clone()),
                None => workloads.remove(&key),
            };
        }
    }

    /// Converts these entries anew, and then all services that they or the sources touch.
    fn remake(
        &mut self,
        keys: &BTreeSet<ObjectKey>,
        mut touched: BTreeSet<ServiceKey>,
        changes: &mut Changes,
    ) {
        let trust_domain = trust_domain(&self.settings, &self.world.mesh);
        let mut selection = WorkloadSelection::new(&self.settings, &self.sources, &self.world);
        let entries = &mut self.entries;
        if entries.remake(&mut selection, trust_domain, keys, &mut touched) {
            self.logged.mark_due();
        }
        for key in touched {
            self.reconcile(key, changes);
        }
    }

    /// Merges one service.
    fn reconcile(&mut self, key: ServiceKey, changes: &mut Changes) {
        let of = self.entries.of(&key);
        let merged = merge::merge(&self.settings, &self.sources, of, &key);
        let was = self.world.services.get(&key);
        let is_same = was == merged.service.as_ref();
        let shards = self.world.endpoints.get(&key);
        let shards_are_same = shards == merged.shards.as_ref();
        match &merged.service {
            Some(_) if is_same && !shards_are_same => changes.add(ChangedKind::Endpoints, &key),
            _ if !is_same => changes.add(ChangedKind::Service, &key),
            _ => {}
        }
        self.leave_out(&key, merged.left_out);
        if !shards_are_same {
            let endpoints = Arc::make_mut(&mut self.world.endpoints);
            match merged.shards {
                Some(shards) => endpoints.insert(key.clone(), shards),
                None => endpoints.remove(&key),
            };
        }
        if !is_same {
            let services = Arc::make_mut(&mut self.world.services);
            match merged.service {
                Some(service) => services.insert(key, service),
                None => services.remove(&key),
            };
        }
    }
}

/// Copies changed objects into the world, of the kinds that have a field there.
struct ConfigurationStep<'a> {
    registries: &'a mut Registries,
    old: &'a Configuration,
    new: &'a Configuration,
    changes: &'a mut Changes,
}

impl EachKind for ConfigurationStep<'_> {
    fn kind<T: ConfigurationKind>(&mut self) {
        let Registries {
            settings,
            sources,
            world,
            ..
        } = &mut *self.registries;
        let Some(objects) = T::in_world(world) else {
            return;
        };
        for key in differ_all(T::of(self.old), T::of(self.new)) {
            let now = first(settings, sources, |contribution| {
                T::of(&contribution.configuration).get(&key)
            });
            let now = now.map(|(_, object)| object);
            if objects.get(&key) == now {
                continue;
            }
            let kind = ChangedKind::Configuration(T::NAME);
            self.changes.add(kind, &key);
            let objects = Arc::make_mut(objects);
            match now {
                Some(object) => objects.insert(key, object.clone()),
                None => objects.remove(&key),
            };
        }
    }
}

fn trust_domain<'a>(settings: &'a Settings, mesh: &'a MeshConfig) -> &'a str {
    if mesh.trust_domain.is_empty() {
        &settings.trust_domain
    } else {
        &mesh.trust_domain
    }
}

/// Returns true if mutual TLS is automatic.
fn is_auto(mesh: &MeshConfig) -> bool {
    let auto = mesh.enable_auto_mtls.as_ref();
    auto.is_some_and(|on| on.value) && mesh.auth_policy() == AuthPolicy::None
}

fn counts(contribution: &Contribution) -> BTreeMap<&'static str, usize> {
    let registry = [
        ("Service", contribution.services.len()),
        ("Pod", contribution.workloads.len()),
    ];
    registry
        .into_iter()
        .chain(contribution.configuration.counts())
        .filter(|(_, count)| *count > 0)
        .collect()
}
