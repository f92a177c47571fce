//! The resources of one proxy: the shared parts that its place in the mesh gives it, and its own.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use api::model::{EndpointAddress, Labels, Locality, ServiceKey};
use envoy_types::pb::envoy::config::listener::v3::Listener;

use super::conflicts::ConflictsOfPart;
use super::patch_matches::ViewMatches;
use super::policies::unenforced;
use super::proxy_inputs::{ProxyInputs, options};
use super::reuse::{Reusable, ReuseCache};
use super::sets::{or_older, versions};
use super::shared_resources::{Clusters, Listeners};
use super::{Assignments, BuiltRoutes, ClientKey, Conflict, SetKey, Snapshot};
use crate::common::service_ports::ServicePort;
use crate::finish::{ClusterParts, Draft};
use crate::node::Node;
use crate::resource_names::ResourceNames;
use crate::resources::clusters::{self, Certificates, ClusterParameters};
use crate::resources::endpoints::Viewer;
use crate::resources::listeners::inbound;
use crate::resources::listeners::name;
use crate::resources::listeners::outbound::{self, Outbound};
use crate::resources::listeners::virtual_listeners;
use crate::resources::mesh::Mesh;
use crate::resources::proxy::Proxy;
use crate::resources::routes::{self, HTTP_PROXY};
use crate::rules::destination_rule;
use crate::rules::envoy_filter::{Direction, Patched, Patcher};
use crate::view::{Resource, Set, Type, View};

/// One proxy at one state of the mesh.
pub(super) struct ProxyView {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) inputs: Arc<ProxyInputs>,
    pub(super) parts: Parts,
    pub(super) sets: [OnceLock<Arc<Set>>; 5],
    /// `None`: no patch holds for it.
    pub(super) matches: Option<ViewMatches>,
}

/// The parts that it shares with proxies that see the same. A view has them from its beginning, while the view before it still
/// exists, from which they take over what does not differ; and they last as long as a view has them.
pub(super) struct Parts {
    pub(super) clusters: Arc<Clusters>,
    listeners: Arc<Listeners>,
    pub(super) routes: Arc<ReuseCache<Arc<str>, BuiltRoutes>>,
    /// Assignments of services whose endpoints are the same from everywhere.
    pub(super) assignments: Arc<Assignments>,
    /// Assignments that depend on the client's locality.
    pub(super) near: Arc<Assignments>,
    /// Assignments that depend on the client's labels, too.
    pub(super) ranked: Arc<Assignments>,
}

impl fmt::Debug for ProxyView {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ProxyView({})", self.inputs.proxy.node.id)
    }
}

impl ProxyView {
    pub(super) fn new(snapshot: &Arc<Snapshot>, node: &Arc<Node>) -> Self {
        let inputs = Arc::new(ProxyInputs::new(snapshot, node));
        let parts = Parts::new(snapshot, &inputs);
        Self::with_parts(snapshot, inputs, parts)
    }

    /// This view at another snapshot; `None` if more differs for the proxy than endpoints that only EDS carries.
    pub(super) fn at(&self, snapshot: &Arc<Snapshot>) -> Option<Self> {
        let is_same = Arc::ptr_eq(&self.snapshot.base, &snapshot.base)
            && Arc::ptr_eq(&self.snapshot.caches, &snapshot.caches)
            && self.inputs.are_same(&self.snapshot, snapshot);
        is_same.then(|| {
            let parts = self.parts.at(snapshot, &self.inputs);
            Self::with_parts(snapshot, self.inputs.clone(), parts)
        })
    }

    fn with_parts(snapshot: &Arc<Snapshot>, inputs: Arc<ProxyInputs>, parts: Parts) -> Self {
        let id = &inputs.proxy.node.id;
        Self {
            snapshot: snapshot.clone(),
            matches: snapshot.caches.matches_of(id, &inputs.rules),
            inputs,
            parts,
            sets: Default::default(),
        }
    }

    pub(super) fn mesh(&self) -> &Mesh {
        &self.snapshot.base.mesh
    }

    pub(super) fn own(&self) -> inbound::InboundParameters<'_> {
        inbound::InboundParameters {
            proxy: &self.inputs.proxy,
            mesh: self.mesh(),
            inbound_ports: &self.inputs.inbound_ports,
            filters: &self.inputs.filters,
            mtls_modes: &self.inputs.mtls_modes,
        }
    }

    pub(super) fn is_sidecar(&self) -> bool {
        self.inputs.proxy.node.is_sidecar()
    }

    fn client_key(&self) -> ClientKey {
        client_key(
            &self.snapshot,
            &self.inputs.proxy,
            &self.inputs.client,
            &self.inputs.preferred,
        )
    }

    fn clusters(&self) -> Arc<Set> {
        let shared = self.outbound_clusters();
        let patcher = self.patcher();
        let mut own: Vec<Arc<Resource>> =
            finished(&patcher, self.inbound_clusters(), Direction::Inbound).collect();
        if self.is_sidecar() {
            let is_taken = |name: &str| {
                clusters::is_of_bootstrap(name)
                    || shared.get(name).is_some()
                    || own.iter().any(|one| &*one.name == name)
            };
            let added = patcher.added::<ClusterParts>(Direction::Inbound, is_taken);
            own.extend(added.into_iter().map(Arc::new));
        }
        self.record_clusters(&patcher);
        self.report_clusters();
        self.snapshot
            .caches
            .report(patcher.lost(), &self.inputs.proxy.node.id);
        // Without clusters of its own it has the shared set itself, and no copy.
        if own.is_empty() {
            return shared;
        }
        let shared_key = (self.client_key(), self.inputs.rules.clusters.clone());
        let key: SetKey<_> = (shared_key, versions(&own));
        self.snapshot.caches.all_clusters.get(key, |older| {
            or_older(
                Set::new(own.into_iter().chain(shared.iter().cloned())),
                older,
            )
        })
    }

    /// Clusters of the applications beside it, with the limits that rules set for their services.
    fn inbound_clusters(&self) -> Vec<Draft<ClusterParts>> {
        let own = self.own();
        let mut drafts = own.clusters();
        for (inbound_port, draft) in &mut drafts {
            if let Some(pool) = &inbound_port.pool {
                destination_rule::inbound(&mut draft.message, pool, inbound_port.protocol);
            }
            draft.from.clone_from(&inbound_port.from);
        }
        drafts.into_iter().map(|(_, draft)| draft).collect()
    }

    pub(super) fn outbound_listeners(&self) -> Arc<Outbound> {
        let snapshot = &self.snapshot;
        let listeners = &self.parts.listeners;
        listeners.all.get(self.inputs.rules.listeners.clone(), || {
            let endpoints = |service_port: &ServicePort| {
                let (key, port) = (&service_port.service.key, &service_port.port.name);
                let of_port = snapshot.by_port().of(&snapshot.world, key, port);
                let addresses = of_port.filter_map(|(_, endpoint)| endpoint.address.ip());
                addresses.collect()
            };
            let patcher = self.patcher();
            let (mut built, mut conflicts) = outbound::build(
                &self.inputs.rules,
                self.mesh(),
                &self.inputs.outbound,
                &endpoints,
                &patcher,
            );
            built.effective = patcher.effective();
            conflicts.extend(patcher.lost());
            let conflicts = self.found(conflicts);
            let scope = self.inputs.rules.listeners.clone();
            listeners.conflicts.get(scope, || conflicts);
            for one in built.listeners.values_mut() {
                let resource = &mut one.resource;
                let from = resource.from.clone();
                // Other scopes may have the same listener: there is one copy for all.
                let key = (resource.name.clone(), resource.version, from);
                *resource = listeners.each.get(key, || resource.clone());
            }
            Arc::new(built)
        })
    }

    /// The port for applications that are told to use a proxy.
    pub(super) fn http_proxy(&self) -> Option<Draft<Listener>> {
        let mesh = self.mesh();
        let wanted = mesh.http_port != 0 && virtual_listeners::no_http_proxy(mesh).is_none();
        wanted.then(|| {
            virtual_listeners::http_proxy(
                self.inputs.proxy.loopback(),
                mesh,
                options(&self.inputs.proxy.node),
            )
        })
    }

    /// Returns all listeners but the shared ones; they win over those.
    fn own_listeners(&self) -> Vec<Arc<Resource>> {
        let own = self.own();
        for lost in [own.lost_tls(), own.unread_requests()] {
            self.snapshot
                .caches
                .report(lost, &self.inputs.proxy.node.id);
        }
        let shared = self.outbound_listeners();
        let black_holes = self.addresses_in_services(&shared);
        let is_intercepted =
            |name: &str| self.intercepts(&shared, name) || black_holes.contains_key(name);
        let mut own = self.own().listeners(is_intercepted);
        if self.inputs.proxy.intercepts() {
            own.push(virtual_listeners::outbound(
                &self.inputs.proxy,
                self.mesh(),
                &self.inputs.rules.unknown,
            ));
            own.push(virtual_listeners::inbound(
                &self.inputs.proxy,
                self.mesh(),
                &self.own(),
            ));
        } else if self.inputs.serves && self.inputs.inbound_ports.is_empty() {
            let lost = unenforced(&self.snapshot, &self.inputs.proxy, &self.inputs.mtls_modes);
            self.snapshot
                .caches
                .report(lost, &self.inputs.proxy.node.id);
        }
        own.extend(self.http_proxy());
        let mut own = self.patched_listeners(own);
        self.add_black_holes(black_holes, &mut own);
        own
    }

    /// A listener for one address is not for the proxy of that address: what comes in there is its application's. And none is
    /// where a file is that the proxy needs.
    pub(super) fn has(&self, built: &outbound::Built) -> bool {
        let address = built.address;
        let is_own =
            address.is_some_and(|address| self.inputs.proxy.node.addresses.contains(&address));
        let socket = built.socket.as_deref();
        !is_own && socket.is_none_or(|path| self.file_at(path).is_none())
    }

    /// Returns true if one of services is there by this name that is only intercepted.
    fn intercepts(&self, shared: &Outbound, name: &str) -> bool {
        let built = shared.listeners.get(name);
        built.is_some_and(|built| !built.bound && self.has(built))
    }

    /// The addresses of its applications, as names of listeners: no bound listener of services takes one of them.
    fn applications(&self) -> BTreeSet<String> {
        self.inputs
            .inbound_ports
            .iter()
            .filter_map(|inbound_port| match inbound_port.place {
                (EndpointAddress::Ip(address), port) => Some(name(address, port)),
                (EndpointAddress::Pipe(_) | EndpointAddress::Name(_), _) => None,
            })
            .collect()
    }

    fn listeners(&self) -> Arc<Set> {
        if !self.is_sidecar() {
            return self.router_listeners();
        }
        let shared = self.outbound_listeners();
        let own = self.own_listeners();
        let applications = self.applications();
        // A bound ingress may have a name of its own (`inbound::BOUND`): its address counts.
        let bound: BTreeSet<String> = self.own().bound().collect();
        let has = |built: &outbound::Built| {
            let name = &*built.resource.name;
            let in_the_way = built.bound && applications.contains(name);
            self.has(built) && !in_the_way && !bound.contains(name)
        };
        let names = own.iter().map(|one| &*one.name);
        let bound = bound.iter().map(String::as_str);
        let names: BTreeSet<&str> = names.chain(bound).collect();
        let why = |built: &outbound::Built| {
            let name = &*built.resource.name;
            match self.has(built) {
                has if names.contains(name) && (has || !built.endpoint) => {
                    Some("the proxy has one of its own there".into())
                }
                _ if built.bound && applications.contains(name) => {
                    Some("the proxy's application is there".into())
                }
                // Each pod of a headless service has an endpoint at its own address: nothing is told of it.
                false if !built.endpoint => {
                    let file = built.socket.as_deref().and_then(|path| self.file_at(path));
                    Some(file.unwrap_or_else(|| "the address is the proxy's own".into()))
                }
                _ => None,
            }
        };
        let lost = shared.listeners.values();
        let lost = lost.filter_map(|built| why(built).map(|why| built.lost(&why)));
        self.snapshot
            .caches
            .report(lost, &self.inputs.proxy.node.id);
        let skipped = shared.listeners.values().filter(|built| !has(built));
        // The shared listeners that this proxy leaves out are a part of the key: others leave out others.
        let mut parts = versions(&own);
        parts.extend(skipped.map(|built| (built.resource.name.clone(), built.resource.version)));
        let shared_key = (
            self.inputs.outbound.clone(),
            self.inputs.rules.listeners.clone(),
        );
        let key: SetKey<_> = (shared_key, parts);
        self.snapshot.caches.all_listeners.get(key, |older| {
            let outbound = shared.listeners.values().filter(|built| has(built));
            let outbound = outbound.map(|built| built.resource.clone());
            or_older(Set::new(own.into_iter().chain(outbound)), older)
        })
    }

    pub(super) fn route(&self, name: &str) -> Option<Arc<Resource>> {
        let name: Arc<str> = name.into();
        if !self.is_sidecar() {
            return self.router_route(&name);
        }
        let make = || {
            let parameters = (&self.inputs.route_parameters, self.mesh());
            self.finished_route(routes::outbound(&name, parameters, &self.inputs.rules))
        };
        // A name that means nothing is not remembered: a client could think of any number of them.
        if !self.refers_to(&name) {
            return make().resource;
        }
        let made = self.parts.routes.get(name.clone(), make);
        self.record_routes();
        made.resource
    }

    /// All proxies that see the same share what was made for one of them: it is named as the one that found it.
    pub(super) fn found(&self, conflicts: Vec<Conflict>) -> ConflictsOfPart {
        ConflictsOfPart {
            proxy: self.inputs.proxy.node.id.clone(),
            all: self.snapshot.base.conflict_pool.share(conflicts),
        }
    }

    /// Returns true if a listener refers to this route configuration.
    fn refers_to(&self, name: &str) -> bool {
        name == HTTP_PROXY || self.outbound_listeners().routes.contains(name)
    }

    /// Returns the route configurations that the listeners refer to.
    fn all_routes(&self) -> Arc<Set> {
        if !self.is_sidecar() {
            return self.router_routes();
        }
        let shared = self.outbound_listeners();
        let proxy = self.http_proxy().map(|_| HTTP_PROXY.into());
        let names = shared.routes.iter().cloned().chain(proxy);
        Arc::new(names.filter_map(|name| self.route(&name)).collect())
    }

    fn make(&self, kind: Type) -> Arc<Set> {
        match kind {
            _ if self.inputs.proxy.node.grpc => Arc::default(),
            Type::Cluster => self.clusters(),
            Type::Listener => self.listeners(),
            Type::Endpoint => {
                let clusters = self.outbound_clusters();
                let assignments = clusters.iter();
                let assignments = assignments.filter_map(|cluster| self.assignment(&cluster.name));
                Arc::new(assignments.collect())
            }
            Type::Route => self.all_routes(),
            Type::Secret => self.secrets(),
        }
    }
}

impl View for ProxyView {
    fn all(&self, kind: Type) -> Arc<Set> {
        let [cluster, endpoint, listener, route, secret] = &self.sets;
        let set = match kind {
            Type::Cluster => cluster,
            Type::Endpoint => endpoint,
            Type::Listener => listener,
            Type::Route => route,
            Type::Secret => secret,
        };
        set.get_or_init(|| self.make(kind)).clone()
    }

    fn get(&self, kind: Type, name: &str) -> Option<Arc<Resource>> {
        match kind {
            _ if self.inputs.proxy.node.grpc => self.grpc(kind, name),
            Type::Cluster | Type::Listener | Type::Secret => self.all(kind).get(name).cloned(),
            Type::Endpoint => self.assignment(name),
            Type::Route => self.route(name),
        }
    }

    fn name(&self, kind: Type, name: &str) -> Option<Arc<str>> {
        match kind {
            _ if self.inputs.proxy.node.grpc => self.grpc_name(kind, name),
            Type::Cluster | Type::Listener | Type::Secret => {
                self.all(kind).get(name).map(|one| one.name.clone())
            }
            Type::Endpoint => self.assignment_name(name),
            Type::Route if !self.is_sidecar() => self.router_route_name(name),
            Type::Route => {
                let of_listeners = &self.outbound_listeners().routes;
                let proxy = || (name == HTTP_PROXY).then(|| HTTP_PROXY.into());
                of_listeners.get(name).cloned().or_else(proxy)
            }
        }
    }

    fn unbuilt(&self, kind: Type, names: &ResourceNames) -> usize {
        if self.inputs.proxy.node.grpc {
            return 0;
        }
        let is_made = match kind {
            Type::Endpoint => return self.unbuilt_assignments(names),
            Type::Cluster | Type::Secret => {
                self.parts.clusters.all.has(&self.inputs.rules.clusters)
            }
            _ if !self.is_sidecar() => self.has_router_resources(kind, names),
            Type::Listener => self.parts.listeners.all.has(&self.inputs.rules.listeners),
            Type::Route => {
                let has = |name: &str| self.parts.routes.has(&name.into());
                names.iter().all(has)
            }
        };
        if is_made {
            0
        } else {
            self.unbuilt_of_services()
        }
    }

    fn make_ahead(&self, kind: Type, names: &ResourceNames) {
        match kind {
            _ if self.inputs.proxy.node.grpc => {}
            Type::Cluster | Type::Secret => drop(self.outbound_clusters()),
            Type::Listener if self.is_sidecar() => drop(self.outbound_listeners()),
            Type::Listener => drop(self.all(kind)),
            Type::Endpoint => names.iter().for_each(|name| drop(self.assignment(name))),
            Type::Route => names.iter().for_each(|name| drop(self.route(name))),
        }
    }

    fn services_of(&self, kind: Type, name: &str) -> Vec<ServiceKey> {
        self.services_by_name(kind, name)
    }

    fn serves(&self) -> bool {
        self.inputs.serves
    }
}

impl Parts {
    fn new(snapshot: &Snapshot, inputs: &ProxyInputs) -> Self {
        let caches = &snapshot.caches;
        let key = client_key(snapshot, &inputs.proxy, &inputs.client, &inputs.preferred);
        let routes = (inputs.route_parameters.clone(), inputs.rules.scope.clone());
        let [assignments, near, ranked] = assignments(snapshot, inputs);
        Self {
            clusters: caches.clusters.get(key, |older| {
                Arc::new(older.map_or_else(Clusters::default, |older| older.after()))
            }),
            listeners: caches.listeners.get(inputs.outbound.clone(), |older| {
                Arc::new(older.map_or_else(Listeners::default, |older| older.after()))
            }),
            routes: caches.routes.get(routes, after),
            assignments,
            near,
            ranked,
        }
    }

    /// These at another snapshot with the same caches.
    fn at(&self, snapshot: &Snapshot, inputs: &ProxyInputs) -> Self {
        let [assignments, near, ranked] = assignments(snapshot, inputs);
        Self {
            clusters: self.clusters.clone(),
            listeners: self.listeners.clone(),
            routes: self.routes.clone(),
            assignments,
            near,
            ranked,
        }
    }
}

/// The assignments that a proxy sees: those that are the same from everywhere, those that depend on its locality, and those that
/// depend on its labels, too.
fn assignments(snapshot: &Snapshot, inputs: &ProxyInputs) -> [Arc<Assignments>; 3] {
    let (proxy, client) = (&inputs.proxy, &inputs.client);
    let viewer = |locality: Locality, labels: &Arc<Labels>| {
        snapshot.assignments(Viewer {
            families: proxy.families,
            network: network(snapshot, proxy, client),
            locality,
            labels: labels.clone(),
            beside: client.beside.clone(),
            grpc: client.grpc,
        })
    };
    let none = Arc::default();
    let assignments = viewer(Locality::default(), &none);
    let near = match proxy.locality.is_unknown() {
        true => assignments.clone(),
        false => viewer(proxy.locality.clone(), &none),
    };
    let ranked = match snapshot.base.failover.is_empty() {
        true => near.clone(),
        false => viewer(proxy.locality.clone(), &inputs.preferred),
    };
    [assignments, near, ranked]
}

fn after<K: Hash + Eq + Clone, V: Reusable>(
    older: Option<Arc<ReuseCache<K, V>>>,
) -> Arc<ReuseCache<K, V>> {
    Arc::new(older.map_or_else(ReuseCache::default, |older| older.after()))
}

/// The network that a proxy is in, where gateways stand for what is in others. They take nothing but mutual TLS, which programs
/// with gRPC in them do not speak by endpoint.
pub(super) fn network(
    snapshot: &Snapshot,
    proxy: &Proxy,
    client: &ClusterParameters,
) -> Option<Arc<str>> {
    let uses_gateways =
        snapshot.replaces() && client.certificates == Certificates::Present && !client.grpc;
    uses_gateways.then(|| proxy.network.clone())
}

/// The key of a proxy's clusters, without its locality if that makes no difference, so that all proxies share them.
fn client_key(
    snapshot: &Snapshot,
    proxy: &Proxy,
    client: &ClusterParameters,
    preferred: &Arc<Labels>,
) -> ClientKey {
    let setting = snapshot.world.mesh.locality_lb_setting.as_ref();
    let by_shares = setting.is_some_and(|setting| !setting.distribute.is_empty());
    let by_rules = snapshot.base.near_by_rules;
    let locality = if by_shares || by_rules || snapshot.base.resolved_near {
        proxy.locality.clone()
    } else {
        Locality::default()
    };
    let labels = match snapshot.base.failover.are_resolved {
        true => preferred.clone(),
        false => Arc::default(),
    };
    (client.clone(), locality, labels)
}

/// Patches and finishes drafts, without those that patches remove.
pub(super) fn finished<M: Patched>(
    patcher: &Patcher<'_>,
    drafts: impl IntoIterator<Item = Draft<M>>,
    direction: Direction,
) -> impl Iterator<Item = Arc<Resource>> {
    let drafts = drafts.into_iter();
    drafts.filter_map(move |draft| patcher.finish(draft, direction).map(Arc::new))
}
