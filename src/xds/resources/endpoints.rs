//! Assignments: the endpoints of one cluster, as one group of proxies sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{
    ClusterId, Endpoint, EndpointAddress, Health, Labels, Locality, Port, Target, TlsMode,
};
use envoy_types::pb::envoy::config::core::v3 as core;

use super::distinct_endpoints::distinct;
use super::locality::{EndpointTopology, Preference};
use super::mesh::{Mesh, MutualTls};
use super::networks::Networks;
use crate::common::families::Families;
use crate::common::service_ports::ServicePort;
use crate::common::tls::PlaintextReason;
use crate::common::wire::{
    self, ClusterLoadAssignment, EndpointMessage, LbEndpoint, LocalityLbEndpoints, Metadata, Object,
};
use crate::finish::Draft;
use crate::rules::peer_authentication::{MtlsMode, MtlsModes};
use crate::scope::policies::Policies;

/// The properties of a proxy that its assignments depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Viewer {
    pub(crate) families: Families,
    /// Its own one; none where networks make no difference.
    pub(crate) network: Option<Arc<str>>,
    /// Unknown where localities make no difference.
    pub(crate) locality: Locality,
    /// Labels of the client: endpoints that have the same are preferred; none where they make no difference.
    pub(crate) labels: Arc<Labels>,
    /// Its namespace, where services of that are beside their proxies.
    pub(crate) beside: Option<Arc<str>>,
    /// A program with gRPC in it: it calls no sockets of files, and each address once.
    pub(crate) grpc: bool,
}

/// The handling of endpoints that have a name in place of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// The proxy resolves them.
    Resolved,
    /// Envoy would refuse the whole assignment.
    LeftOut,
}

/// The parts of the mesh's state that endpoints depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndpointContext<'a> {
    pub(crate) networks: &'a Networks,
    /// Addresses of endpoints without certificates.
    pub(crate) plaintext: &'a BTreeSet<IpAddr>,
    pub(crate) mesh: &'a Mesh,
    pub(crate) policies: &'a Policies,
}

/// The cause for which clients call an endpoint in plain text.
enum PlaintextCause {
    Proxy(IpAddr),
    Policies(Box<MtlsModes>),
}

impl EndpointContext<'_> {
    /// Returns true if clients are to speak mutual TLS to an endpoint of a service in this namespace.
    pub(crate) fn takes_tls(&self, namespace: &Arc<str>, endpoint: &Endpoint) -> bool {
        endpoint.tls == TlsMode::Istio && self.plaintext_cause(namespace, endpoint).is_none()
    }

    /// Returns the reason why clients call an endpoint in plain text whose labels ask for mutual TLS; `None`: they do not.
    pub(crate) fn plaintext_reason(
        &self,
        namespace: &Arc<str>,
        endpoint: &Endpoint,
    ) -> Option<PlaintextReason> {
        let reason = self.plaintext_cause(namespace, endpoint)?;
        Some(match reason {
            PlaintextCause::Proxy(address) => PlaintextReason::Proxy(address),
            PlaintextCause::Policies(modes) => PlaintextReason::Policies(modes.describe()),
        })
    }

    /// Assignments ask for each endpoint whether it is plain, and for no words.
    fn plaintext_cause(&self, namespace: &Arc<str>, endpoint: &Endpoint) -> Option<PlaintextCause> {
        let address = endpoint.address.ip();
        let without_certificates = address.filter(|address| self.plaintext.contains(address));
        let without_certificates = without_certificates.map(PlaintextCause::Proxy);
        if !self.policies.has_peers() {
            // Nobody may do without certificates where everybody is to have them.
            return without_certificates.filter(|_| self.mesh.tls == MutualTls::Auto);
        }
        let who = (namespace, &*endpoint.labels);
        let modes = MtlsModes::new(self.policies, who, self.mesh.usual_mode(true));
        match modes.of_clients(endpoint.port) {
            MtlsMode::Disable => Some(PlaintextCause::Policies(Box::new(modes))),
            MtlsMode::Permissive => without_certificates,
            // The server takes nothing plain, whether or not its proxy says that it has certificates.
            MtlsMode::Strict => None,
        }
    }
}

/// One endpoint that is to be used, or a gateway in its place.
struct Entry<'a> {
    address: core::Address,
    /// Its IP address, unless it has a name or a path.
    ip: Option<IpAddr>,
    /// The key of the order within a group.
    sort: (String, u16),
    weight: u128,
    network: &'a str,
    pod: Option<&'a str>,
    tls: bool,
}

impl Entry<'_> {
    fn order(&self) -> impl Ord {
        (&self.sort, self.weight, self.pod, self.tls, self.network)
    }
}

/// The assignment of a port.
pub(crate) fn assignment(
    name: &Arc<str>,
    groups: Vec<LocalityLbEndpoints>,
) -> Draft<ClusterLoadAssignment> {
    let assignment = ClusterLoadAssignment {
        cluster_name: name.to_string(),
        endpoints: groups,
    };
    Draft::new(name.clone(), assignment)
}

/// The groups of an assignment, one for each locality. `endpoints`: those that are [`served`].
pub(crate) fn groups<'a>(
    service_port: &ServicePort,
    endpoints: impl Iterator<Item = (&'a ClusterId, &'a Endpoint)>,
    viewer: &Viewer,
    names: Names,
    context: EndpointContext<'a>,
    preference: &Preference<'a>,
) -> Vec<LocalityLbEndpoints> {
    let networks = context.networks;
    let own = viewer.network.as_deref();
    let factor = own.map_or(1, |_| networks.factor(viewer.families));
    let mut localities: Grouped<'a> = BTreeMap::new();
    let mut replaced: BTreeMap<(&Locality, &str), u128> = BTreeMap::new();
    for (cluster, endpoint) in endpoints {
        let address = address_of(endpoint, names);
        let is_pipe = matches!(endpoint.address, EndpointAddress::Pipe(_));
        let address = address.filter(|_| !(viewer.grpc && is_pipe));
        let network = networks.of_endpoint(cluster, endpoint);
        let weight = u128::from(endpoint.weight);
        let away = own.is_some_and(|own| network != own && networks.has_gateway(network));
        // An endpoint without an address is behind its network's gateways, too.
        if away && (address.is_some() || endpoint.address.is_absent()) {
            *replaced.entry((&endpoint.locality, network)).or_default() += weight;
            continue;
        }
        let Some((address, sort)) = address else {
            continue;
        };
        let rank = preference.rank(&EndpointTopology::of(cluster, network, endpoint));
        localities
            .entry((&endpoint.locality, rank))
            .or_default()
            .push(Entry {
                address,
                ip: endpoint.address.ip(),
                sort,
                weight: weight.saturating_mul(factor),
                network,
                pod: endpoint.pod.as_deref(),
                tls: context.takes_tls(&service_port.service.key.namespace, endpoint),
            });
    }
    for ((locality, network), weight) in replaced {
        let gateways = networks.gateways(network, viewer.families);
        let share = u128::try_from(gateways.len()).unwrap_or(1).max(1);
        let rank = preference.rank(&EndpointTopology {
            cluster: None,
            network,
            locality,
            labels: None,
        });
        for (address, port) in gateways {
            localities.entry((locality, rank)).or_default().push(Entry {
                address: wire::address(address, port),
                ip: Some(address),
                sort: (address.to_string(), port),
                // `factor` is a multiple of each network's number of gateways: the share is whole.
                weight: weight.saturating_mul(factor) / share,
                network,
                pod: None,
                // A gateway between networks takes nothing but mutual TLS.
                tls: true,
            });
        }
    }
    let localities = of_families(localities, viewer.families);
    let scale = scale(localities.values().flatten());
    let groups = localities
        .into_iter()
        .map(|((locality, rank), entries)| ((locality, rank), group(locality, entries, scale)))
        .collect();
    let groups = preference.apply(groups);
    if viewer.grpc {
        distinct(groups)
    } else {
        groups
    }
}

/// Endpoints that get requests, of all that a port has.
pub(crate) fn served<'a>(
    endpoints: impl Iterator<Item = (&'a ClusterId, &'a Endpoint)>,
) -> Vec<(&'a ClusterId, &'a Endpoint)> {
    let mut all: Vec<_> = endpoints
        .filter(|(_, endpoint)| endpoint.weight > 0 && endpoint.health != Health::NotReady)
        .collect();
    // kube-proxy's rule: endpoints that terminate serve only while the port has no ready one.
    let some_ready = all
        .iter()
        .any(|(_, endpoint)| endpoint.health == Health::Ready);
    if some_ready {
        all.retain(|(_, endpoint)| endpoint.health == Health::Ready);
    }
    all
}

/// Endpoints by their localities, and by how little they have in common with the client.
type Grouped<'a> = BTreeMap<(&'a Locality, u32), Vec<Entry<'a>>>;

/// Keeps the endpoints of the proxy's own families, or all if it can reach none by those: that is the best there is. Endpoints
/// behind a gateway may have any.
fn of_families<'a>(mut localities: Grouped<'a>, families: Families) -> Grouped<'a> {
    let has = |ip: IpAddr| families.has(ip);
    let some_own = localities
        .values()
        .flatten()
        .any(|entry| entry.ip.is_some_and(has));
    if some_own {
        localities.retain(|_, entries| {
            entries.retain(|entry| entry.ip.is_none_or(has));
            !entries.is_empty()
        });
    }
    localities
}

fn address_of(endpoint: &Endpoint, names: Names) -> Option<(core::Address, (String, u16))> {
    let sort = (endpoint.address.to_string(), endpoint.port);
    let address = match &endpoint.address {
        EndpointAddress::Ip(address) if endpoint.port > 0 => wire::address(*address, endpoint.port),
        absent if absent.is_absent() => return None,
        EndpointAddress::Name(name) if endpoint.port > 0 && names == Names::Resolved => {
            named(name, endpoint.port)
        }
        EndpointAddress::Pipe(path) => wire::pipe(path, 0),
        EndpointAddress::Ip(_) | EndpointAddress::Name(_) => return None,
    };
    Some((address, sort))
}

pub(super) fn named(name: &str, port: u16) -> core::Address {
    core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            address: name.to_owned(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port.into())),
            ..core::SocketAddress::default()
        })),
    }
}

/// The port that goes with an entry's own name, where it names no endpoints.
pub(crate) fn own_port(port: &Port) -> u16 {
    match port.target {
        Target::Number(number) if number > 0 => number,
        Target::Number(_) | Target::Name(_) => port.number,
    }
}

/// An entry outside of the mesh that names no endpoints resolves its own name.
pub(crate) fn itself(service_port: &ServicePort) -> Vec<LocalityLbEndpoints> {
    let port = own_port(&service_port.port);
    let address = match service_port.host().parse::<IpAddr>() {
        Ok(address) => wire::address(address, port),
        Err(_) => named(service_port.host(), port),
    };
    let entry = Entry {
        address,
        ip: None,
        sort: (String::new(), 0),
        weight: 1,
        network: "",
        pod: None,
        tls: false,
    };
    vec![group(&Locality::default(), vec![entry], 1)]
}

/// Envoy adds weights up in 32 bits.
const MAX_TOTAL_WEIGHT: u128 = u32::MAX as u128;

/// Returns the divisor of weights by which the sum of all fits. A balancer by hashes adds up the endpoints of all localities
/// ("The sum of weights of all upstream hosts in a locality exceeds 4294967295").
fn scale<'a>(entries: impl Iterator<Item = &'a Entry<'a>>) -> u128 {
    let (mut sum, mut count) = (0u128, 0u128);
    for entry in entries {
        sum = sum.saturating_add(entry.weight);
        count += 1;
    }
    // Each endpoint may be rounded up to a weight of 1.
    sum.div_ceil(MAX_TOTAL_WEIGHT.saturating_sub(count).max(1))
        .max(1)
}

fn group(locality: &Locality, mut entries: Vec<Entry<'_>>, scale: u128) -> LocalityLbEndpoints {
    // By all that a peer is made of: sources may give one address twice, and in any order.
    entries.sort_by(|one, other| one.order().cmp(&other.order()));
    // Envoy refuses a weight of 0.
    let light = |weight: u128| u32::try_from((weight / scale).max(1)).unwrap_or(u32::MAX);
    let weight = entries
        .iter()
        .map(|entry| light(entry.weight))
        .fold(0u32, u32::saturating_add);
    LocalityLbEndpoints {
        // Also where it is unknown: gRPC refuses an assignment without it.
        locality: Some(core::Locality {
            region: locality.region().to_owned(),
            zone: locality.zone().to_owned(),
            sub_zone: locality.sub_zone().to_owned(),
        }),
        lb_endpoints: entries
            .into_iter()
            .map(|entry| {
                let weight = light(entry.weight);
                peer(entry, weight)
            })
            .collect(),
        load_balancing_weight: wire::number(weight),
        priority: 0,
    }
}

fn peer(entry: Entry<'_>, weight: u32) -> LbEndpoint {
    let mut metadata = Metadata::default();
    let uid = entry.pod.map(uid);
    let fields: Vec<_> = [
        (
            "network",
            Some(entry.network).filter(|network| !network.is_empty()),
        ),
        ("uid", uid.as_deref()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect();
    if !fields.is_empty() {
        let object = Object::of(fields);
        metadata.filter_metadata.insert("istio".to_owned(), object);
    }
    if entry.tls {
        let object = Object::of([("tlsMode", TlsMode::Istio.as_str())]);
        metadata
            .filter_metadata
            .insert("envoy.transport_socket_match".to_owned(), object);
    }
    LbEndpoint {
        endpoint: Some(EndpointMessage {
            address: Some(entry.address),
        }),
        health_status: core::HealthStatus::Healthy.into(),
        metadata: (!metadata.filter_metadata.is_empty()).then_some(metadata),
        load_balancing_weight: wire::number(weight),
    }
}

/// The UID of the pod `NAMESPACE/POD`.
fn uid(pod: &str) -> String {
    match pod.split_once('/') {
        Some((namespace, name)) => format!("kubernetes://{name}.{namespace}"),
        None => format!("kubernetes://{pod}"),
    }
}
