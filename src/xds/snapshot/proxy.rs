//! What one proxy is to have: the shared parts that its place in the mesh gives it, and its own.

use std::fmt;
use std::sync::{Arc, OnceLock};

use api::model::Locality;

use super::{Conflict, Own, Snapshot, accounts};
use crate::node::{Kind, Mode, Node};
use crate::resources::clusters::{self, Client, Inputs};
use crate::resources::conflict::INVALID_LISTENER;
use crate::resources::endpoints::{self, Names, Viewer};
use crate::resources::filters::HttpOptions;
use crate::resources::ingress;
use crate::resources::instances::Instance;
use crate::resources::listeners::fixed;
use crate::resources::listeners::inbound::{self, Door};
use crate::resources::listeners::outbound::{self, Outbound, Place};
use crate::resources::locality::{self, Preference};
use crate::resources::mesh::Mesh;
use crate::resources::outlets::Outlet;
use crate::resources::proxy::Proxy;
use crate::resources::routes::{self, Caller, HTTP_PROXY};
use crate::view::{Resource, Set, Type, View};

/// One proxy at one state of the mesh.
pub(super) struct ProxyView {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) proxy: Proxy,
    doors: Vec<Door>,
    serves: bool,
    pub(super) client: Client,
    caller: Caller,
    place: Place,
    sets: [OnceLock<Arc<Set>>; 4],
}

impl fmt::Debug for ProxyView {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ProxyView({})", self.proxy.node.id)
    }
}

impl ProxyView {
    pub(super) fn new(snapshot: &Arc<Snapshot>, node: &Arc<Node>) -> Self {
        let proxy = Proxy::new(
            node,
            &snapshot.world,
            &snapshot.settings,
            || snapshot.directory(),
            &snapshot.base.networks,
        );
        let sidecar = node.kind == Kind::Sidecar && !node.grpc;
        let instances = if sidecar {
            snapshot.directory().instances(&proxy, &snapshot.world)
        } else {
            Vec::new()
        };
        let doors = if sidecar {
            doors(snapshot, &proxy, &instances)
        } else {
            Vec::new()
        };
        let intercepts = sidecar && proxy.intercepts();
        let client = Client {
            kind: node.kind,
            intercepts,
            families: proxy.families,
            files: node.client.clone(),
            headless_eds: snapshot.settings.headless.eds,
            grpc: node.grpc,
        };
        let caller = Caller {
            domain: node.domain.clone(),
            cluster: proxy.cluster.clone(),
            families: proxy.families,
            allow_any: intercepts && snapshot.base.mesh.allow_any,
        };
        let place = Place {
            cluster: proxy.cluster.clone(),
            families: proxy.families,
            loopback: (node.mode == Mode::None).then(|| proxy.loopback()),
            options: options(node),
            headless: snapshot.settings.headless.listeners,
        };
        Self {
            snapshot: snapshot.clone(),
            proxy,
            doors,
            serves: !sidecar || !instances.is_empty(),
            client,
            caller,
            place,
            sets: Default::default(),
        }
    }

    pub(super) fn mesh(&self) -> &Mesh {
        &self.snapshot.base.mesh
    }

    fn own(&self) -> inbound::Own<'_> {
        inbound::Own {
            proxy: &self.proxy,
            mesh: self.mesh(),
            doors: &self.doors,
        }
    }

    fn is_sidecar(&self) -> bool {
        self.proxy.node.kind == Kind::Sidecar
    }

    /// Where localities make no difference, all proxies see the same.
    pub(super) fn locality_of_clusters(&self) -> Locality {
        let setting = self.snapshot.world.mesh.locality_lb_setting.as_ref();
        let by_shares = setting.is_some_and(|setting| !setting.distribute.is_empty());
        if by_shares || self.snapshot.base.resolved_near {
            return self.proxy.locality.clone();
        }
        Locality::default()
    }

    pub(super) fn preference(&self, outlet: &Outlet) -> Preference<'_> {
        let setting = self.snapshot.world.mesh.locality_lb_setting.as_ref();
        locality::preference(setting, &outlet.service, &self.proxy.locality)
    }

    pub(super) fn cluster(&self, outlet: &Outlet) -> Resource {
        let world = &self.snapshot.world;
        let resolution = clusters::resolution(outlet, &self.client);
        let groups = if resolution.is_dns() {
            self.resolved(outlet)
        } else {
            Vec::new()
        };
        let inputs = Inputs {
            mesh: self.mesh(),
            client: &self.client,
            accounts: &accounts(world, &outlet.service),
            weighted: self.preference(outlet).is_weighted(),
            groups,
        };
        clusters::outbound(outlet, inputs)
    }

    /// Of a cluster that resolves names itself; an entry that names no endpoints means its own name.
    fn resolved(&self, outlet: &Outlet) -> Vec<crate::resources::Group> {
        let service = &outlet.service;
        let endpoints = || self.snapshot.world.endpoints_of(&service.key);
        if endpoints().next().is_none() && service.selector.is_empty() {
            return endpoints::itself(outlet);
        }
        let viewer = Viewer {
            families: self.proxy.families,
            network: None,
            locality: Locality::default(),
        };
        endpoints::groups(
            outlet,
            endpoints(),
            &viewer,
            Names::Resolved,
            &self.snapshot.base.networks,
            &self.preference(outlet),
        )
    }

    fn outbound_clusters(&self) -> Arc<Set> {
        let snapshot = &self.snapshot;
        let key = (self.client.clone(), self.locality_of_clusters());
        snapshot.made.clusters.get(key, || {
            let outbound = snapshot.base.outlets.all.iter();
            let mut members: Vec<_> = outbound
                .map(|outlet| Arc::new(self.cluster(outlet)))
                .collect();
            members.push(Arc::new(clusters::black_hole(self.mesh())));
            if self.client.kind == Kind::Sidecar {
                members.push(Arc::new(clusters::passthrough(self.mesh())));
                let logs = self.mesh().log_service.as_ref();
                members.extend(logs.map(|it| Arc::new(it.cluster(self.mesh(), &self.client))));
            }
            if self.client.intercepts {
                let families = self.proxy.families;
                for v6 in [false, true] {
                    if (v6 && families.v6) || (!v6 && families.v4) {
                        let cluster = clusters::inbound_passthrough(self.mesh(), v6);
                        members.push(Arc::new(cluster));
                    }
                }
            }
            Arc::new(Set::new(members))
        })
    }

    fn clusters(&self) -> Arc<Set> {
        let shared = self.outbound_clusters();
        let own: Vec<Arc<Resource>> = self.own().clusters().into_iter().map(Arc::new).collect();
        if own.is_empty() {
            return shared;
        }
        let key: Own<_> = (
            (self.client.clone(), self.locality_of_clusters()),
            versions(&own),
        );
        self.snapshot.made.all_clusters.get(key, || {
            Arc::new(Set::new(own.into_iter().chain(shared.iter().cloned())))
        })
    }

    fn outbound_listeners(&self) -> Arc<Outbound> {
        let snapshot = &self.snapshot;
        snapshot.made.listeners.get(self.place.clone(), || {
            let endpoints = |outlet: &Outlet| {
                let of_service = snapshot.world.endpoints_of(&outlet.service.key);
                of_service
                    .map(|(_, endpoint)| endpoint)
                    .filter(|endpoint| endpoint.port_name == outlet.port.name)
                    .collect()
            };
            let outlets = &snapshot.base.outlets;
            let mut built = outbound::build(outlets, self.mesh(), &self.place, endpoints);
            built.conflicts = self.found(built.conflicts);
            Arc::new(built)
        })
    }

    /// The port for applications that are told to use a proxy.
    fn http_proxy(&self) -> Option<Resource> {
        let mesh = self.mesh();
        let wanted = mesh.http_port != 0 && fixed::no_http_proxy(mesh).is_none();
        wanted.then(|| fixed::http_proxy(self.proxy.loopback(), mesh, options(&self.proxy.node)))
    }

    /// All listeners but the shared ones; they win over those.
    fn own_listeners(&self) -> Vec<Arc<Resource>> {
        let mut own = self.own().listeners();
        if self.proxy.intercepts() {
            own.push(fixed::outbound(&self.proxy, self.mesh()));
            own.push(fixed::inbound(&self.proxy, self.mesh(), &self.own()));
        }
        own.extend(self.http_proxy());
        own.into_iter().map(Arc::new).collect()
    }

    /// A listener of an endpoint is not for that endpoint's own proxy.
    fn has(&self, built: &outbound::Built) -> bool {
        built
            .endpoint
            .is_none_or(|address| !self.proxy.node.addresses.contains(&address))
    }

    fn listeners(&self) -> Arc<Set> {
        if !self.is_sidecar() || self.proxy.node.grpc {
            return Arc::default();
        }
        let shared = self.outbound_listeners();
        let own = self.own_listeners();
        let names = own.iter().map(|one| &*one.name);
        let taken = names.filter(|&name| {
            shared
                .listeners
                .get(name)
                .is_some_and(|built| self.has(built))
        });
        let told = taken.map(no_room);
        self.snapshot.made.tell(told, &self.proxy.node.id);
        let skipped = shared.listeners.values().filter(|built| !self.has(built));
        let mut parts = versions(&own);
        parts.extend(skipped.map(|built| (built.resource.name.clone(), built.resource.version)));
        let key: Own<_> = (self.place.clone(), parts);
        self.snapshot.made.all_listeners.get(key, || {
            let outbound = shared.listeners.values().filter(|built| self.has(built));
            let outbound = outbound.map(|built| built.resource.clone());
            Arc::new(Set::new(own.into_iter().chain(outbound)))
        })
    }

    pub(super) fn route(&self, name: &str) -> Option<Arc<Resource>> {
        if !self.is_sidecar() {
            return None;
        }
        let name: Arc<str> = name.into();
        let key = (self.caller.clone(), name.clone());
        let make = || match routes::outbound(&name, &self.snapshot.base.outlets, &self.caller) {
            Some((resource, conflicts)) => {
                (Some(Arc::new(resource)), Arc::new(self.found(conflicts)))
            }
            None => (None, Arc::default()),
        };
        // A name that means nothing is not remembered: a client could think of any number of them.
        if !self.refers_to(&name) {
            return make().0;
        }
        self.snapshot.made.routes.get(key, make).0
    }

    /// All proxies that see the same share what was made for one of them: it is named as the one that found it.
    fn found(&self, conflicts: Vec<Conflict>) -> Vec<Conflict> {
        let proxy = &self.proxy.node.id;
        let conflicts = conflicts.into_iter();
        conflicts.map(|conflict| conflict.of(proxy)).collect()
    }

    /// Whether a listener does.
    fn refers_to(&self, name: &str) -> bool {
        name == HTTP_PROXY || self.outbound_listeners().routes.contains(name)
    }

    /// All that the listeners refer to.
    fn all_routes(&self) -> Arc<Set> {
        if !self.is_sidecar() {
            return Arc::default();
        }
        let shared = self.outbound_listeners();
        let proxy = self.http_proxy().map(|_| HTTP_PROXY.into());
        let names = shared.routes.iter().cloned().chain(proxy);
        Arc::new(names.filter_map(|name| self.route(&name)).collect())
    }

    fn make(&self, kind: Type) -> Arc<Set> {
        match kind {
            _ if self.proxy.node.grpc => Arc::default(),
            Type::Cluster => self.clusters(),
            Type::Listener => self.listeners(),
            Type::Endpoint => {
                let all = self.snapshot.base.outlets.all.iter();
                let assignments = all.filter_map(|outlet| self.assignment(&outlet.name));
                Arc::new(assignments.collect())
            }
            Type::Route => self.all_routes(),
        }
    }
}

impl View for ProxyView {
    fn all(&self, kind: Type) -> Arc<Set> {
        let [cluster, endpoint, listener, route] = &self.sets;
        let set = match kind {
            Type::Cluster => cluster,
            Type::Endpoint => endpoint,
            Type::Listener => listener,
            Type::Route => route,
        };
        set.get_or_init(|| self.make(kind)).clone()
    }

    fn get(&self, kind: Type, name: &str) -> Option<Arc<Resource>> {
        match kind {
            _ if self.proxy.node.grpc => self.grpc(kind, name),
            Type::Cluster | Type::Listener => self.all(kind).get(name).cloned(),
            Type::Endpoint => self.assignment(name),
            Type::Route => self.route(name),
        }
    }

    fn serves(&self) -> bool {
        self.serves
    }
}

fn options(node: &Node) -> HttpOptions {
    HttpOptions {
        idle_timeout: node.idle_timeout,
        http10: node.http10,
    }
}

fn versions(resources: &[Arc<Resource>]) -> Vec<(Arc<str>, crate::version::Version)> {
    resources
        .iter()
        .map(|resource| (resource.name.clone(), resource.version))
        .collect()
}

/// What is told of a listener of services where the proxy has one of its own.
fn no_room(name: &str) -> Conflict {
    let message =
        format!("listener {name} of services is left out: the proxy has one of its own there");
    Conflict::new(INVALID_LISTENER, name, message)
}

fn doors(snapshot: &Snapshot, proxy: &Proxy, instances: &[Instance]) -> Vec<Door> {
    let (mesh, sniffs) = (&snapshot.base.mesh, snapshot.settings.sniffing.inbound);
    let mut lost = Vec::new();
    let written = ingress::sidecar(&snapshot.world, proxy)
        .and_then(|sidecar| ingress::doors(&sidecar, proxy, instances, mesh, sniffs, &mut lost));
    snapshot.made.tell(lost, &proxy.node.id);
    match written {
        Some(doors) => doors,
        None if proxy.intercepts() => inbound::of_instances(instances, proxy, mesh, sniffs),
        None => Vec::new(),
    }
}
