//! Snapshots: one state of the mesh, and everything that was made of it.
//!
//! A snapshot does not change; what it makes, it makes when it is asked for and keeps, so that all proxies that see the same
//! get the same bytes. The next one takes over what its change does not touch.

mod affected_proxies;
mod black_holes;
mod by_name;
mod cluster_sets;
mod conflicts;
mod failover;
mod grpc_services;
mod mutual_tls;
mod outbound;
mod patch_matches;
mod patched;
mod policies;
mod ports;
mod proxy;
mod proxy_inputs;
mod refused_endpoints;
mod resource_cache;
mod reuse;
mod router;
mod router_ports;
mod secrets;
mod security;
mod selected_routers;
mod server_names;
mod sets;
mod shared_resources;
#[cfg(test)]
mod tests;
mod unix_sockets;
mod world_size;

use std::any::Any;
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};

use api::model::{
    Changes, ClusterId, Endpoint, EndpointAddress, Labels, ObjectRef, Service, ServiceKey,
    Workload, World,
};

use self::affected_proxies::AffectedProxies;
use self::conflicts::ConflictsOfPart;
use self::failover::FailoverLabels;
use self::mutual_tls::AcceptingServices;
use self::ports::EndpointsByPort;
use self::refused_endpoints::RefusedEndpoints;
use self::resource_cache::ResourceCache;
use self::reuse::ReuseCache;
use self::secrets::{ClientCredentials, ClientFiles};
use self::shared_resources::{Clusters, Listeners};
use self::unix_sockets::{EndpointSockets, endpoint_sockets};
use self::world_size::rule_pieces;
use crate::cluster_names;
use crate::common::conflict_pool::ConflictPool;
use crate::common::families::Families;
use crate::common::trust::TrustDomains;
use crate::node::Node;
use crate::resource_names::ResourceNames;
use crate::resources::clusters::ClusterParameters;
use crate::resources::directory::Directory;
use crate::resources::endpoints::Viewer;
use crate::resources::listeners::is_beside;
use crate::resources::listeners::outbound::OutboundParameters;
use crate::resources::mesh::Mesh;
use crate::resources::networks::Networks;
use crate::resources::routes::RouteParameters;
use crate::rules::destination_rule::{ServerChecks, have_localities};
use crate::rules::envoy_filter::PatchIds;
use crate::rules::request_authentication::TokenProviders;
use crate::scope::envoy_filters::EnvoyFilters;
use crate::scope::policies::Policies;
use crate::scope::{ProxyRules, Rules, Scope};
use crate::settings::Settings;
use crate::version::Version;
use crate::view::{Resource, Set, Type, View};

pub use self::secrets::{named_credentials, objects_naming};
pub use self::security::{Agreement, PoliciesInForce, PortSecurity};
pub use crate::common::conflict::{Conflict, HTTP_OVER_HTTPS, REJECTED_CONFIG};

/// One state of the mesh.
#[derive(Debug)]
pub struct Snapshot {
    world: World,
    settings: Arc<Settings>,
    base: Arc<SnapshotBase>,
    directory: OnceLock<Directory>,
    by_port: OnceLock<EndpointsByPort>,
    mtls_conflicts: OnceLock<Vec<Conflict>>,
    /// Likenesses of the proxies for which all was made ahead.
    ahead: OnceLock<HashSet<u64>>,
    caches: Arc<SnapshotCaches>,
    assignments: ResourceCache<Viewer, Assignments>,
    /// Services whose assignments differ from those of the snapshot before; `None`: all may.
    changed: Option<BTreeSet<Arc<str>>>,
}

/// The parts of a snapshot that are read off the world once.
#[derive(Debug)]
struct SnapshotBase {
    mesh: Mesh,
    accepting: AcceptingServices,
    rules: Rules,
    policies: Policies,
    tokens: TokenProviders,
    envoy_filters: EnvoyFilters,
    trust_domains: TrustDomains,
    /// Rules make it matter where a client is.
    near_by_rules: bool,
    failover: FailoverLabels,
    client_credentials: ClientCredentials,
    client_files: ClientFiles,
    checks_by_rules: ServerChecks,
    networks: Networks,
    /// Names that proxies resolve have several localities, and it matters which is near.
    resolved_near: bool,
    /// Namespaces of services that are beside whatever proxy calls them: nobody else's proxies are led there.
    beside: BTreeSet<Arc<str>>,
    endpoint_sockets: EndpointSockets,
    refused_endpoints: RefusedEndpoints,
    /// The conflicts of all scopes, those of earlier snapshots included.
    conflict_pool: Arc<ConflictPool>,
    /// As in [`Snapshot::size`].
    rule_pieces: usize,
}

/// The key of a set: that of its shared part, and its own parts by name and version.
type SetKey<K> = (K, Vec<(Arc<str>, Version)>);

/// A route configuration, if there is one of the name, and what was left out of it.
#[derive(Clone, Debug, Default)]
struct BuiltRoutes {
    resource: Option<Arc<Resource>>,
    conflicts: ConflictsOfPart,
    /// Patches that are effective in it.
    effective: PatchIds,
}

/// Assignments by name, of all proxies that see the same.
type Assignments = ReuseCache<AssignmentKey, Arc<Resource>>;

/// A name, the namespace of the service, and the rules that had a part in what it means.
type AssignmentKey = (Arc<str>, Arc<str>, Arc<[ObjectRef]>);

/// The properties by which the clusters of two proxies differ.
type ClientKey = (ClusterParameters, api::model::Locality, Arc<Labels>);

/// Resources that do not depend on endpoints that only EDS carries.
#[derive(Debug, Default)]
struct SnapshotCaches {
    clusters: ResourceCache<ClientKey, Clusters>,
    all_clusters: ResourceCache<SetKey<(ClientKey, Scope)>, Set>,
    listeners: ResourceCache<OutboundParameters, Listeners>,
    all_listeners: ResourceCache<SetKey<(OutboundParameters, Scope)>, Set>,
    routes: ResourceCache<(RouteParameters, Scope), ReuseCache<Arc<str>, BuiltRoutes>>,
    /// Parts that proxies cannot have beside their others.
    found: Mutex<conflicts::FoundConflicts>,
    matches: Mutex<patch_matches::Registry>,
}

/// A snapshot after a change, and the effect of the change.
#[derive(Debug)]
pub struct NextSnapshot {
    pub snapshot: Arc<Snapshot>,
    /// Anything may be different; else only the assignments of the hosts that changed.
    pub full: bool,
    /// Proxies with these addresses serve something else now: they are to get all that differs.
    pub moved: BTreeSet<IpAddr>,
    /// `None`: all proxies, as far as they have names of what changed.
    concerned: Option<AffectedProxies>,
}

impl NextSnapshot {
    /// Returns true if something that this proxy sees changed. If not, none of its resources can differ.
    #[must_use]
    pub fn concerns(&self, node: &Arc<Node>) -> bool {
        let local = &self.snapshot.settings.cluster;
        let concerned = self.concerned.as_ref();
        concerned.is_none_or(|concerned| concerned.has(node, local))
    }
}

impl Snapshot {
    #[must_use]
    pub fn new(world: World, settings: Arc<Settings>) -> Arc<Self> {
        let base = Arc::new(SnapshotBase::new(&world, &settings, None));
        Arc::new(Self {
            world,
            settings,
            base,
            directory: OnceLock::new(),
            by_port: OnceLock::new(),
            mtls_conflicts: OnceLock::new(),
            ahead: OnceLock::new(),
            caches: Arc::default(),
            assignments: ResourceCache::default(),
            changed: None,
        })
    }

    /// The one after it. `hosts`: only endpoints of these services changed, and workloads; `None`: anything may have. The caller
    /// knows it by the kinds of what changed: the worlds are compared by the endpoints of these alone. `changes`: the objects of sources that changed since this
    /// one; `None`: unknown.
    #[must_use]
    pub fn next(
        &self,
        world: World,
        hosts: Option<&BTreeSet<Arc<str>>>,
        changes: Option<&Changes>,
    ) -> NextSnapshot {
        // Endpoints that are not in EDS alone make the push full.
        match hosts.filter(|hosts| self.only_assignments(&world, hosts)) {
            Some(hosts) => NextSnapshot {
                moved: self.moved(&world, hosts),
                snapshot: Arc::new(self.with_endpoints(world, hosts)),
                full: false,
                concerned: None,
            },
            None => {
                let snapshot = Arc::new(self.with_all(world));
                NextSnapshot {
                    concerned: Some(AffectedProxies::new(self, &snapshot, changes)),
                    snapshot,
                    full: true,
                    moved: BTreeSet::new(),
                }
            }
        }
    }

    /// The world of this snapshot with the endpoints that `later` has of these services; all else stays as it is, and so does a
    /// service of which more than endpoints differs.
    #[must_use]
    pub fn world_with_endpoints(&self, later: &World, hosts: &BTreeSet<Arc<str>>) -> World {
        let mut world = self.world.clone();
        for service in services_of(&self.world, hosts) {
            let key = &service.key;
            let is_same = later.services.get(key) == Some(service);
            if !is_same || !self.carried_by_eds(later, service) {
                continue;
            }
            let endpoints = Arc::make_mut(&mut world.endpoints);
            match later.endpoints.get(key) {
                Some(shards) => endpoints.insert(key.clone(), Arc::clone(shards)),
                None => endpoints.remove(key),
            };
        }
        world
    }

    fn with_endpoints(&self, world: World, hosts: &BTreeSet<Arc<str>>) -> Self {
        Self {
            world,
            settings: self.settings.clone(),
            // None of the base depends on these endpoints (`only_assignments`).
            base: self.base.clone(),
            directory: OnceLock::new(),
            by_port: OnceLock::new(),
            mtls_conflicts: OnceLock::new(),
            ahead: OnceLock::new(),
            caches: self.caches.clone(),
            assignments: self.assignments.after(),
            changed: Some(hosts.clone()),
        }
    }

    fn with_all(&self, world: World) -> Self {
        let base = Arc::new(SnapshotBase::new(&world, &self.settings, Some(&self.base)));
        Self {
            world,
            settings: self.settings.clone(),
            base,
            directory: OnceLock::new(),
            by_port: OnceLock::new(),
            mtls_conflicts: OnceLock::new(),
            ahead: OnceLock::new(),
            caches: Arc::new(self.caches.after()),
            // Nothing is taken over unlooked at.
            assignments: self.assignments.after_any(),
            changed: None,
        }
    }

    /// The assignments that this viewer sees; unchanged ones are those of the snapshot before.
    fn assignments(&self, viewer: Viewer) -> Arc<Assignments> {
        self.assignments.get(viewer, |older| {
            Arc::new(match (older, &self.changed) {
                (None, _) => Assignments::default(),
                (Some(older), None) => older.after(),
                (Some(older), Some(hosts)) => older.after_retaining(|(name, ..)| {
                    let host = cluster_names::host(name);
                    host.is_none_or(|host| !hosts.contains(host))
                }),
            })
        })
    }

    /// Makes the resources that proxies like these will ask for next, so that serving them only hands them out. `earlier`: the
    /// snapshot that they have. Assignments are made if they were asked for before, or if their ports are new.
    pub fn make_ahead(self: &Arc<Self>, earlier: &Self, nodes: &[Arc<Node>]) {
        let names = self.assignments_ahead(earlier);
        let mut known = HashSet::new();
        for node in nodes.iter().filter(|node| !node.grpc) {
            if known.len() < KINDS_AHEAD && known.insert(self.proxy_class(node)) {
                let view = proxy::ProxyView::new(self, node);
                view.make_ahead(Type::Cluster, &ResourceNames::default());
                view.make_ahead(Type::Listener, &ResourceNames::default());
                view.make_ahead(Type::Endpoint, &names);
                drop(view.all(Type::Route));
            }
        }
        let _first = self.ahead.set(known);
    }

    /// Returns true if everything was made ahead for proxies like this one: serving it needs no estimate of the work.
    #[must_use]
    pub fn is_ahead(&self, node: &Node) -> bool {
        let ahead = self.ahead.get();
        ahead.is_some_and(|ahead| ahead.contains(&self.proxy_class(node)))
    }

    fn proxy_class(&self, node: &Node) -> u64 {
        let workload = self.workload_of(node);
        let labels = node.labels_of(workload);
        let rules = self.base.rules_of(node, labels);
        let preferred = self.base.failover.counting(labels);
        let place = workload.map(|workload| (&workload.locality, &workload.network));
        hash(&(proxy_class(node), place, rules.scope, preferred))
    }

    fn workload_of(&self, node: &Node) -> Option<&Arc<Workload>> {
        let key = node.workload_key(&self.settings.cluster);
        self.world.workloads.get(&key)
    }

    fn assignments_ahead(&self, earlier: &Self) -> ResourceNames {
        let all = earlier.assignments.all();
        let asked = all.iter().flat_map(|one| one.keys());
        let asked: BTreeSet<Arc<str>> = asked.map(|(name, ..)| name).collect();
        if asked.is_empty() {
            return ResourceNames::default();
        }
        let (now, before) = (self.base.rules.common(), earlier.base.rules.common());
        let own = now
            .service_ports
            .all()
            .map(|service_port| &*service_port.name);
        let is_new = |name: &str| before.service_ports.by_name(name).is_none();
        let subsets = asked.iter().map(|name| &**name);
        let subsets = subsets.filter(|name| now.service_ports.by_subset(name).is_some());
        own.filter(|name| asked.contains(*name) || is_new(name))
            .chain(subsets)
            .collect()
    }

    /// The resources of this proxy.
    #[must_use]
    pub fn view(self: &Arc<Self>, node: &Arc<Node>) -> Arc<dyn View> {
        Arc::new(proxy::ProxyView::new(self, node))
    }

    /// The resources of a proxy that has an earlier view of its own, from which those are taken over that do not differ.
    #[must_use]
    pub fn view_after(
        self: &Arc<Self>,
        earlier: &Arc<dyn View>,
        node: &Arc<Node>,
    ) -> Arc<dyn View> {
        let earlier: &dyn Any = &**earlier;
        let earlier = earlier.downcast_ref::<proxy::ProxyView>();
        let earlier = earlier.filter(|earlier| Arc::ptr_eq(&earlier.inputs.proxy.node, node));
        match earlier.and_then(|earlier| earlier.at(self)) {
            Some(view) => Arc::new(view),
            None => self.view(node),
        }
    }

    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Iterates over messages about gateways between networks that have no usable address.
    pub fn lost_gateways(&self) -> impl Iterator<Item = &str> {
        let all = self.base.networks.conflicts.iter();
        all.map(|conflict| conflict.message.as_str())
    }

    /// Assignments that were made and are kept, each for all proxies that see the same.
    #[cfg(test)]
    pub(crate) fn assignment_count(&self) -> usize {
        let viewers = self.assignments.all();
        viewers.iter().map(|assignments| assignments.len()).sum()
    }

    fn directory(&self) -> &Directory {
        self.directory.get_or_init(|| Directory::new(&self.world))
    }

    fn by_port(&self) -> &EndpointsByPort {
        self.by_port
            .get_or_init(|| EndpointsByPort::new(&self.world))
    }

    /// Returns true if gateways stand for endpoints in other networks. They accept mutual TLS only.
    fn replaces(&self) -> bool {
        self.base.mesh.has_tls() && self.base.networks.has_gateways()
    }

    /// The network that an endpoint is in; empty where nothing says one.
    #[must_use]
    pub fn network_of<'a>(&'a self, cluster: &ClusterId, endpoint: &'a Endpoint) -> &'a str {
        self.base.networks.of_endpoint(cluster, endpoint)
    }

    /// Returns true if a service's endpoints in a later world change nothing but assignments.
    #[must_use]
    pub fn changes_only_assignments(&self, later: &World, key: &ServiceKey) -> bool {
        let service = later.services.get(key);
        service.is_none_or(|service| self.carried_by_eds(later, service))
    }

    /// Returns true if nothing but assignments depends on the endpoints that changed.
    fn only_assignments(&self, world: &World, hosts: &BTreeSet<Arc<str>>) -> bool {
        services_of(world, hosts).all(|service| self.carried_by_eds(world, service))
    }

    fn carried_by_eds(&self, world: &World, service: &Arc<Service>) -> bool {
        let has_connections = service.ports.iter().any(|port| !port.protocol.is_http());
        // A cluster that resolves names has its endpoints in itself.
        if service.resolution.is_dns() {
            return false;
        }
        // Keys of clients have `beside` from the base, which a push of endpoints keeps.
        if !beside(world, [service]).is_subset(&self.base.beside) {
            return false;
        }
        // What rules do not do is told with the base, too.
        let has_any = |world: &World| world.endpoints_of(&service.key).next().is_some();
        if self.base.rules.is_idle_without_endpoints(&service.key)
            && has_any(&self.world) != has_any(world)
        {
            return false;
        }
        let base = &self.base;
        if base.refused_endpoints.differ(world, service, &base.mesh) {
            return false;
        }
        // No listener is where one of them is.
        let sockets = |world| endpoint_sockets(world, [service]);
        if sockets(&self.world) != sockets(world) {
            return false;
        }
        if service.is_headless() && self.settings.headless.listeners && has_connections {
            // Each of a port has a listener there.
            let listeners = |world| -> BTreeSet<(Arc<str>, IpAddr)> {
                addresses(world, service)
                    .map(|(endpoint, address)| (endpoint.port_name.clone(), address))
                    .collect()
            };
            if listeners(&self.world) != listeners(world) {
                return false;
            }
        }
        if service.is_headless() && self.moves_requests(world, service) {
            return false;
        }
        self.has_same_tls(world, service)
    }

    /// Returns true if an endpoint came or went that listeners leave its requests, for another service would take them.
    fn moves_requests(&self, world: &World, service: &Service) -> bool {
        let with_requests = service.ports.iter().filter(|port| port.protocol.is_http());
        let numbers: Vec<u16> = with_requests.map(|port| port.number).collect();
        if numbers.is_empty() {
            return false;
        }
        let of = |world| -> BTreeSet<_> {
            let all = addresses(world, service);
            all.map(|(_, address)| address).collect()
        };
        let (before, after) = (of(&self.world), of(world));
        let mut moved = before.symmetric_difference(&after);
        moved.any(|address| {
            let mut numbers = numbers.iter();
            numbers.any(|port| self.base.rules.may_take(*address, *port))
        })
    }

    /// Addresses that became one of a service, or are one no longer. Pods come with a change of their own.
    fn moved(&self, world: &World, hosts: &BTreeSet<Arc<str>>) -> BTreeSet<IpAddr> {
        let mut moved = BTreeSet::new();
        for service in services_of(world, hosts) {
            let of = |world| -> BTreeSet<_> {
                addresses(world, service)
                    .map(|(endpoint, address)| {
                        let what = (endpoint.port, endpoint.port_name.clone());
                        let pod = endpoint.named_pod().cloned();
                        // An entry gives the proxy at its address a locality and a network, too.
                        let place = (endpoint.locality.clone(), endpoint.network.clone());
                        let who = (endpoint.labels.clone(), pod);
                        (address, what, place, who)
                    })
                    .collect()
            };
            let (before, after) = (of(&self.world), of(world));
            moved.extend(
                before
                    .symmetric_difference(&after)
                    .map(|(address, ..)| *address),
            );
        }
        moved
    }
}

impl SnapshotBase {
    /// The rules of a proxy whose workload has these labels, with the patches that hold for it.
    fn rules_of(&self, node: &Node, labels: &Labels) -> ProxyRules {
        let is_sidecar = node.is_sidecar();
        let labels = [labels, &node.labels];
        let rules = self.rules.of(&node.namespace, labels, is_sidecar);
        self.patched(rules, node, labels[0])
    }

    /// `earlier`: of the snapshot before.
    fn new(world: &World, settings: &Settings, earlier: Option<&Self>) -> Self {
        let conflict_pool = earlier.map_or_else(Arc::default, |base| base.conflict_pool.clone());
        conflict_pool.sweep();
        let rules = Rules::new(world, settings, &conflict_pool);
        let policies = Policies::new(world);
        let mut mesh = Mesh::new(&world.mesh, settings);
        let accepting = AcceptingServices::new(world, &mesh, &policies);
        mesh.tls_by_policies = !accepting.is_empty();
        Self {
            client_files: ClientFiles::of(world, &mesh),
            refused_endpoints: RefusedEndpoints::new(world, &mesh),
            conflict_pool,
            mesh,
            accepting,
            near_by_rules: have_localities(&rules),
            failover: FailoverLabels::new(&rules, world),
            client_credentials: ClientCredentials::new(world),
            checks_by_rules: ServerChecks::of(&rules),
            rules,
            policies,
            tokens: TokenProviders::default(),
            envoy_filters: EnvoyFilters::new(world, earlier.map(|base| &base.envoy_filters)),
            trust_domains: TrustDomains::new(&world.mesh, settings),
            networks: Networks::new(world),
            resolved_near: failover::resolved_near(world),
            beside: beside(world, world.services.values()),
            endpoint_sockets: endpoint_sockets(world, world.services.values()),
            rule_pieces: rule_pieces(world),
        }
    }
}

impl SnapshotCaches {
    fn after(&self) -> Self {
        Self {
            clusters: self.clusters.after_any(),
            all_clusters: self.all_clusters.after_any(),
            listeners: self.listeners.after_any(),
            all_listeners: self.all_listeners.after_any(),
            routes: self.routes.after_any(),
            found: Mutex::default(),
            matches: Mutex::default(),
        }
    }
}

/// Kinds of proxies that have their resources made ahead, which are among the spare ones until a proxy asks; those of other
/// kinds are made when they ask.
const KINDS_AHEAD: usize = resource_cache::SPARE_ENTRIES / 2;

/// The properties of a node that its shared resources depend on, besides rules and preferred labels.
fn proxy_class(node: &Node) -> impl Hash + use<> {
    let options = (node.idle_timeout, node.http10);
    let place = (
        node.cluster.clone(),
        node.network.clone(),
        node.locality.clone(),
    );
    let families = (Families::of(&node.addresses), node.dns);
    let who = (
        node.kind,
        node.mode,
        node.domain.clone(),
        (node.client.clone(), node.without_certificates),
    );
    (options, place, families, who)
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn beside<'a>(
    world: &World,
    services: impl IntoIterator<Item = &'a Arc<Service>>,
) -> BTreeSet<Arc<str>> {
    let keys = services.into_iter().map(|service| &service.key);
    let keys = keys.filter(|key| {
        let mut endpoints = world.endpoints_of(key);
        endpoints.any(|(_, endpoint)| is_beside(&endpoint.address))
            || is_beside(&EndpointAddress::read(&key.hostname))
    });
    keys.map(|key| key.namespace.clone()).collect()
}

fn services_of<'a>(
    world: &'a World,
    hosts: &'a BTreeSet<Arc<str>>,
) -> impl Iterator<Item = &'a Arc<Service>> {
    world
        .services
        .values()
        .filter(|service| hosts.contains(&service.key.hostname))
}

fn addresses<'a>(
    world: &'a World,
    service: &Service,
) -> impl Iterator<Item = (&'a Endpoint, IpAddr)> {
    world
        .endpoints_of(&service.key)
        .filter_map(|(_, endpoint)| Some((endpoint, endpoint.address.ip()?)))
}

/// The accounts that may answer for a service: those that its source names, and those of its endpoints.
fn accounts(world: &World, service: &Service) -> BTreeSet<Arc<str>> {
    let of_endpoints = world
        .endpoints_of(&service.key)
        .filter_map(|(_, endpoint): (&ClusterId, &Endpoint)| endpoint.account.clone());
    service
        .accounts
        .iter()
        .cloned()
        .chain(of_endpoints)
        .collect()
}
