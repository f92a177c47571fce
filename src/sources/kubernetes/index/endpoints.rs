//! A Service becomes a service, and the addresses of its slices become endpoints.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::model::{
    ClusterId, Endpoint, EndpointAddress, Health, Labels, Registry, Resolution, Service,
    ServiceKey, TlsMode, Workload, WorkloadKey,
};
use api::size;

use super::links::LookupTarget;
use super::names::Names;
use super::tables::Tables;
use super::wire::{self, BackendAddress, EndpointSubset};
use super::workload;
use crate::kind::Key;

/// Names of ports in one sentence.
const NAMES: usize = 5;

/// A Service's place among those of all clusters.
pub(super) fn key(names: &Names, service: &Key) -> ServiceKey {
    let Key { namespace, name } = service;
    ServiceKey {
        hostname: format!("{name}.{namespace}.svc.{}", names.domain).into(),
        namespace: (**namespace).into(),
    }
}

/// Converts a Service; `None` for an ExternalName without ports or with an invalid name.
pub(super) fn service(names: &Names, from: &wire::Service) -> Option<Service> {
    let external = from.external_name.is_some();
    if external && (from.ports.is_empty() || from.problem.is_some()) {
        return None;
    }
    let resolution = match (external, from.headless) {
        (true, _) => Resolution::Dns,
        (false, true) => Resolution::None,
        (false, false) => Resolution::Static,
    };
    let identities = from.accounts.iter();
    let identities = identities.map(|account| names.account(&from.key.namespace, account));
    let accounts = from.identities.iter().map(Arc::clone).chain(identities);
    let addresses = from.addresses.iter().copied().map(Into::into).collect();
    Some(Service {
        key: key(names, &from.key),
        registry: Registry::Kubernetes,
        ports: from.ports.clone(),
        addresses: of_cluster(names, addresses),
        cluster: names.cluster.clone(),
        resolution,
        mesh_external: external,
        // The API server ignores the selector of an ExternalName service, and so does this.
        selector: if external {
            Labels::new()
        } else {
            from.selector.clone()
        },
        created: from.created,
        accounts: accounts.collect(),
        prefers_close: from.prefers_close,
        exported_to: from.exported_to.clone(),
        balancers: of_cluster(names, from.balancers.clone()),
    })
}

fn of_cluster<T>(names: &Names, what: Vec<T>) -> BTreeMap<ClusterId, Vec<T>> {
    if what.is_empty() {
        return BTreeMap::new();
    }
    BTreeMap::from([(names.cluster.clone(), what)])
}

/// The endpoints of a service.
#[derive(Debug, Default)]
pub(super) struct ServiceEndpoints {
    /// Sorted, none twice.
    pub(super) endpoints: Vec<Endpoint>,
    /// Pods, addresses and nodes that the endpoints were looked up in.
    pub(super) targets: BTreeSet<LookupTarget>,
    /// Places that name a pod which is not there.
    pub(super) podless: usize,
    /// The number of addresses, and of those used, if there are more than the limit.
    pub(super) over_limit: Option<(usize, usize)>,
    /// Port names, if the endpoints have none of the service's ports.
    pub(super) mismatch: Option<PortMismatch>,
}

/// The first names of ports.
#[derive(Debug)]
pub(super) struct PortMismatch {
    /// Port names of the slices, or of the Endpoints.
    theirs: Vec<Arc<str>>,
    /// Port names of the service.
    own: Vec<Arc<str>>,
}

impl ServiceEndpoints {
    /// Returns a message if addresses exceed the limit, or if no port name matches.
    pub(super) fn problem(&self) -> Option<Arc<str>> {
        if let Some(PortMismatch { theirs, own }) = &self.mismatch {
            let message = format!(
                "no endpoints: the addresses have ports named {}, and the Service has ports named {}",
                quoted(theirs),
                quoted(own)
            );
            return Some(message.into());
        }
        let (all, used) = self.over_limit?;
        let max = size::SERVICE_PLACES;
        let message = format!(
            "the first {used} of {all} addresses are used: more than {max} places with its ports: split the service"
        );
        Some(message.into())
    }
}

fn quoted(names: &[Arc<str>]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    names.join(", ")
}

/// The objects that endpoints are looked up in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup<'a> {
    pub(super) cluster: &'a ClusterId,
    pub(super) tables: &'a Tables,
    pub(super) workloads: &'a BTreeMap<WorkloadKey, Arc<Workload>>,
}

impl<'a> Lookup<'a> {
    /// Returns the workload of a pod.
    fn workload(&self, pod: &Key) -> Option<&'a Workload> {
        let place = workload::key(self.cluster, pod);
        self.workloads.get(&place).map(Arc::as_ref)
    }
}

pub(super) fn of(lookup: Lookup<'_>, service: &wire::Service) -> ServiceEndpoints {
    let mut gathered = EndpointCollector {
        lookup,
        service,
        ports: service
            .ports
            .iter()
            .map(|port| (&*port.name, &port.name))
            .collect(),
        room: size::SERVICE_PLACES,
        seen: 0,
        used: 0,
        others: BTreeSet::new(),
        outcome: ServiceEndpoints::default(),
    };
    if let Some(name) = &service.external_name {
        gathered.external(name);
    } else {
        gathered.all();
    }
    let EndpointCollector {
        seen, used, others, ..
    } = gathered;
    let mut outcome = gathered.outcome;
    outcome.over_limit = (used < seen).then_some((seen, used));
    let is_mismatch = seen == 0 && !others.is_empty() && !service.ports.is_empty();
    outcome.mismatch = is_mismatch.then(|| PortMismatch {
        theirs: others.into_iter().take(NAMES).collect(),
        own: service
            .ports
            .iter()
            .take(NAMES)
            .map(|port| Arc::clone(&port.name))
            .collect(),
    });
    let endpoints = &mut outcome.endpoints;
    // An endpoint that is moved from slice to slice is in both for a while: the better of the two counts.
    let rank = |endpoint: &Endpoint| match endpoint.health {
        Health::Ready => 0,
        Health::Terminating => 1,
        Health::NotReady => 2,
    };
    endpoints.sort_by(|a, b| {
        let at = |endpoint: &Endpoint| (endpoint.port, rank(endpoint), endpoint.pod.is_none());
        (&a.address, &a.port_name)
            .cmp(&(&b.address, &b.port_name))
            .then_with(|| at(a).cmp(&at(b)))
            .then_with(|| a.cmp(b))
    });
    endpoints
        .dedup_by(|a, b| a.address == b.address && a.port == b.port && a.port_name == b.port_name);
    endpoints.sort();
    outcome
}

struct EndpointCollector<'a> {
    lookup: Lookup<'a>,
    service: &'a wire::Service,
    /// The names of its ports.
    ports: HashMap<&'a str, &'a Arc<str>>,
    /// Places that more may take.
    room: usize,
    /// Addresses that serve a port of it, and those for which there was room.
    seen: usize,
    used: usize,
    /// Names of ports that the endpoints have and the service lacks.
    others: BTreeSet<Arc<str>>,
    outcome: ServiceEndpoints,
}

impl<'a> EndpointCollector<'a> {
    fn external(&mut self, name: &str) {
        let address = name
            .parse()
            .map_or_else(|_| EndpointAddress::Name(name.into()), EndpointAddress::Ip);
        let ports = self.service.ports.iter();
        self.outcome
            .endpoints
            .extend(ports.map(|port| Endpoint::new(address.clone(), port.number, &port.name)));
    }

    /// Adds the addresses of all slices; of the Endpoints if there is no slice (a cluster's dump has both).
    fn all(&mut self) {
        let tables = self.lookup.tables;
        let mut any = false;
        for slice in tables.slices_of(&self.service.key) {
            any = true;
            let ports = self.ports(&slice.subset);
            for address in &slice.subset.addresses {
                self.add(&ports, address, address.health);
            }
        }
        let endpoints = tables.endpoints.get(&self.service.key);
        for subset in endpoints
            .filter(|_| !any)
            .iter()
            .flat_map(|one| &one.subsets)
        {
            let ports = self.ports(subset);
            for address in &subset.addresses {
                let health = if self.service.publishes_not_ready {
                    Health::Ready
                } else {
                    address.health
                };
                self.add(&ports, address, health);
            }
        }
    }

    /// Returns the ports of the subset that the service has, too.
    fn ports(&mut self, subset: &EndpointSubset) -> Vec<(Arc<str>, u16)> {
        let own = |(name, number): &(Arc<str>, u16)| {
            let name = self.ports.get(&**name)?;
            Some((Arc::clone(name), *number))
        };
        let own: Vec<_> = subset.ports.iter().filter_map(own).collect();
        if own.is_empty() && !subset.addresses.is_empty() {
            let others = subset.ports.iter().map(|(name, _)| Arc::clone(name));
            self.others.extend(others.take(NAMES));
        }
        own
    }

    /// Each costs as much as if it served all ports: an endpoint is in the cluster of each port.
    fn add(&mut self, ports: &[(Arc<str>, u16)], address: &BackendAddress, health: Health) {
        if ports.is_empty() {
            return;
        }
        self.seen += 1;
        let cost = ports.len().max(self.ports.len());
        let Some(room) = self.room.checked_sub(cost) else {
            // The message counts the first addresses: once one has no room, none behind it is used.
            self.room = 0;
            return;
        };
        self.room = room;
        self.used += 1;
        let filled = self.filled(address, health);
        let served = ports.iter().map(|(name, number)| Endpoint {
            port: *number,
            port_name: Arc::clone(name),
            ..filled.clone()
        });
        self.outcome.endpoints.extend(served);
    }

    /// Builds an endpoint, except for its port.
    fn filled(&mut self, address: &BackendAddress, health: Health) -> Endpoint {
        let tables = self.lookup.tables;
        let mut endpoint = Endpoint::new(EndpointAddress::Ip(address.address), 0, "");
        endpoint.health = health;
        if let Some(pod) = self.pod(address) {
            endpoint.labels = Arc::clone(&pod.labels);
            endpoint.locality = pod.locality.clone();
            endpoint.network = pod.network.clone();
            endpoint.account = pod.account.clone();
            endpoint.tls = TlsMode::of_labels(&pod.labels);
            endpoint.pod = Some(format!("{}/{}", pod.key.namespace, pod.key.name).into());
            endpoint.workload = pod.owner.clone();
        } else {
            let pod_key = address.pod.as_ref();
            endpoint.unknown_pod =
                pod_key.map(|pod| format!("{}/{}", pod.namespace, pod.name).into());
            // Without a pod the namespace gives the network, so that a change of its label must reach this
            // service.
            let namespace = &self.service.key.namespace;
            self.outcome
                .targets
                .insert(LookupTarget::Namespace(namespace.clone()));
            endpoint.network = workload::of_namespace(tables, namespace);
        }
        if endpoint.locality.is_unknown() {
            endpoint.locality = self.locality(tables, address);
        }
        endpoint
    }

    fn pod(&mut self, address: &BackendAddress) -> Option<&'a Workload> {
        if let Some(pod) = &address.pod {
            self.outcome.targets.insert(LookupTarget::Pod(pod.clone()));
            let workload = self.lookup.workload(pod);
            self.outcome.podless += usize::from(workload.is_none());
            return workload;
        }
        self.outcome
            .targets
            .insert(LookupTarget::Address(address.address));
        self.lookup
            .workload(self.lookup.tables.pod_at(address.address)?)
    }

    fn locality(&mut self, tables: &Tables, address: &BackendAddress) -> api::model::Locality {
        let mut locality = api::model::Locality::default();
        if let Some(node) = &address.node {
            self.outcome
                .targets
                .insert(LookupTarget::Node(node.clone()));
            locality = workload::of_node(tables, node);
        }
        match &address.zone {
            Some(zone) if locality.is_unknown() => api::model::Locality::new("", zone, ""),
            Some(_) | None => locality,
        }
    }
}
