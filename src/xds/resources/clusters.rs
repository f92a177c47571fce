//! Clusters: where requests and connections go.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::mesh::Mesh;
use crate::common::dns_cluster;
use crate::common::families::Families;
use crate::common::service_ports::ServicePort;
use crate::common::tls::{self, PlaintextReason};
use crate::common::upstream_http::{self, UpstreamHttp, speaking};
use crate::common::wire::{
    self, ClusterLoadAssignment, ClusterTail, EndpointMessage, LbEndpoint, LocalityLbEndpoints,
};
use crate::finish::{ClusterParts, Draft};
use crate::node::{Dns, Files, Kind};
use crate::scope::OutboundTrafficPolicy;
use crate::settings::DnsRefresh;
use api::model::{Protocol, Registry, Resolution, Service};
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, DiscoveryType, DnsLookupFamily, EdsClusterConfig,
    LbPolicy, common_lb_config,
};
use envoy_types::pb::envoy::config::cluster::v3::{
    CircuitBreakers, Cluster, UpstreamConnectionOptions, circuit_breakers,
};
use envoy_types::pb::envoy::config::core::v3 as core;

pub(crate) const BLACK_HOLE: &str = "BlackHoleCluster";
pub(crate) const PASSTHROUGH: &str = "PassthroughCluster";
pub(crate) const INBOUND_V4: &str = "InboundPassthroughClusterIpv4";
pub(crate) const INBOUND_V6: &str = "InboundPassthroughClusterIpv6";

/// The cluster of connections to no known service; `None`: they are refused. A connection that was not intercepted has no
/// original destination.
pub(crate) fn of_unknown(unknown: &OutboundTrafficPolicy, intercepted: bool) -> Option<Arc<str>> {
    match unknown {
        OutboundTrafficPolicy::Anywhere => intercepted.then(|| PASSTHROUGH.into()),
        OutboundTrafficPolicy::Nowhere => None,
        OutboundTrafficPolicy::To(cluster) => Some(cluster.clone()),
    }
}

/// The presence of a client's certificates, which mutual TLS takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Certificates {
    Present,
    /// The proxy has none, and the mesh permits plain text.
    Missing,
}

/// The forwarding of TLS to clusters by its server name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ByServerName {
    Never,
    /// TLS goes to every service by its name.
    Always,
}

/// Clusters of each bootstrap that pintle makes.
const OF_BOOTSTRAP: [&str; 2] = ["prometheus_stats", "xds-grpc"];

/// Returns true if the bootstrap of proxies has a cluster of this name: Envoy ignores the one that it is sent.
pub(crate) fn is_of_bootstrap(name: &str) -> bool {
    OF_BOOTSTRAP.contains(&name)
}

/// The properties of a proxy that its clusters depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClusterParameters {
    /// A sidecar has a cluster to where a connection wanted to go.
    pub(crate) kind: Kind,
    /// Connections can be intercepted, so that it is known where they wanted to go.
    pub(crate) intercepts: bool,
    pub(crate) families: Families,
    pub(crate) files: Files,
    pub(crate) certificates: Certificates,
    /// True if EDS has the endpoints of headless services, too.
    pub(crate) headless_eds: bool,
    /// A program with gRPC in it: it knows nothing but EDS and single names, and no TLS by endpoint.
    pub(crate) grpc: bool,
    pub(crate) dns: Dns,
    /// TLS that does not end at the client is led to a cluster by its server name.
    pub(crate) by_server_name: ByServerName,
    /// Its namespace where a rule may name certificates of that, and whether it may have them.
    pub(crate) secrets: Option<(Arc<str>, bool)>,
    /// Its namespace, where services of that are beside their proxies.
    pub(crate) beside: Option<Arc<str>>,
}

/// The way in which this client finds the endpoints of a cluster.
pub(crate) fn resolution(service_port: &ServicePort, client: &ClusterParameters) -> Resolution {
    let resolution = service_port.service.resolution;
    let headless_eds = service_port.service.is_headless() && client.headless_eds;
    // A connection that was not intercepted has no original destination: its endpoints come by EDS.
    let blind = resolution == Resolution::None && (!client.intercepts || headless_eds);
    if client.grpc || blind {
        return Resolution::Static;
    }
    resolution
}

/// A cluster with the fields that all clusters have.
pub(super) fn base(name: &str, mesh: &Mesh, kind: DiscoveryType) -> Cluster {
    Cluster {
        name: name.to_owned(),
        connect_timeout: Some(wire::duration(mesh.connect_timeout)),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(kind.into())),
        upstream_connection_options: mesh.keepalive.map(|keepalive| UpstreamConnectionOptions {
            tcp_keepalive: Some(keepalive),
            ..UpstreamConnectionOptions::default()
        }),
        ..Cluster::default()
    }
}

/// Returns circuit breakers without Envoy's default limits, which no user asked for.
pub(super) fn unlimited() -> Option<CircuitBreakers> {
    let max = wire::number(u32::MAX);
    Some(CircuitBreakers {
        thresholds: vec![circuit_breakers::Thresholds {
            max_connections: max,
            max_pending_requests: max,
            max_requests: max,
            max_retries: max,
            ..circuit_breakers::Thresholds::default()
        }],
        ..CircuitBreakers::default()
    })
}

fn original_dst(cluster: Cluster) -> Cluster {
    Cluster {
        lb_policy: LbPolicy::ClusterProvided.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(
            DiscoveryType::OriginalDst.into(),
        )),
        ..cluster
    }
}

pub(crate) fn black_hole(mesh: &Mesh) -> Draft<ClusterParts> {
    draft(BLACK_HOLE, base(BLACK_HOLE, mesh, DiscoveryType::Static))
}

pub(crate) fn passthrough(mesh: &Mesh) -> Draft<ClusterParts> {
    let cluster = Cluster {
        circuit_breakers: unlimited(),
        ..original_dst(base(PASSTHROUGH, mesh, DiscoveryType::OriginalDst))
    };
    draft(PASSTHROUGH, cluster)
}

/// The cluster of inbound connections to no port of a service: they go on to the application, from an address by which it is
/// known as the proxy's.
pub(crate) fn inbound_passthrough(mesh: &Mesh, v6: bool) -> Draft<ClusterParts> {
    let (name, source) = if v6 {
        (INBOUND_V6, IpAddr::from([0, 0, 0, 0, 0, 0, 0, 6]))
    } else {
        (INBOUND_V4, IpAddr::from([127, 0, 0, 6]))
    };
    let cluster = Cluster {
        circuit_breakers: unlimited(),
        upstream_bind_config: Some(core::BindConfig {
            source_address: Some(wire::socket(source, 0)),
            ..core::BindConfig::default()
        }),
        ..original_dst(base(name, mesh, DiscoveryType::OriginalDst))
    };
    draft(name, cluster)
}

/// The inputs of a cluster besides its port.
pub(crate) struct Inputs<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) client: &'a ClusterParameters,
    /// Accounts that may answer, sorted.
    pub(crate) accounts: &'a BTreeSet<Arc<str>>,
    /// The reasons why some endpoints are called in plain text though their labels ask for mutual TLS; `None`: workloads of
    /// the service accept none.
    pub(crate) plaintext: Option<BTreeSet<PlaintextReason>>,
    /// Weights of localities count.
    pub(crate) weighted: bool,
    /// Endpoints of a cluster that resolves names itself.
    pub(crate) groups: Vec<LocalityLbEndpoints>,
    /// The subset of its endpoints; empty: all.
    pub(crate) subset: &'a str,
    pub(crate) resolution: Resolution,
}

/// Builds the cluster for clients.
pub(crate) fn outbound(service_port: &ServicePort, inputs: Inputs<'_>) -> Draft<ClusterParts> {
    let mesh = inputs.mesh;
    let name = service_port.cluster(inputs.subset);
    let mut cluster = Cluster {
        circuit_breakers: unlimited(),
        alt_stat_name: stat_name(
            &mesh.outbound_stat,
            &service_port.service,
            (&service_port.port.name, service_port.port.number),
            inputs.subset,
        ),
        ..base(&name, mesh, DiscoveryType::Eds)
    };
    let protocol = service_port.protocol;
    let http = if mesh.upgrades_http && !inputs.client.grpc && protocol.is_http() {
        Some(speaking(UpstreamHttp::Http2))
    } else {
        upstream_http::options(protocol)
    };
    let resolution = inputs.resolution;
    if let Some(plaintext) = &inputs.plaintext
        && !inputs.client.grpc
        && inputs.client.certificates == Certificates::Present
        && !service_port.service.mesh_external
        // ORIGINAL_DST has no endpoints with metadata, by which the socket would be chosen.
        && resolution != Resolution::None
    {
        let accounts: Vec<&str> = inputs.accounts.iter().map(|account| &**account).collect();
        cluster.transport_socket_matches = tls::client(
            &inputs.client.files,
            (service_port.port.number, inputs.subset, service_port.host()),
            (&accounts, mesh.oldest_tls),
            plaintext,
        );
    }
    if inputs.weighted && resolution != Resolution::None {
        let weighted = common_lb_config::LocalityWeightedLbConfig {};
        cluster.common_lb_config = Some(CommonLbConfig {
            locality_config_specifier: Some(
                common_lb_config::LocalityConfigSpecifier::LocalityWeightedLbConfig(weighted),
            ),
            ..CommonLbConfig::default()
        });
    }
    let mut tail = ClusterTail::default();
    match resolution {
        Resolution::Static => {
            cluster.eds_cluster_config = Some(EdsClusterConfig {
                eds_config: Some(wire::ads(mesh.initial_fetch_timeout)),
                service_name: name.to_string(),
            });
        }
        Resolution::None => cluster = original_dst(cluster),
        Resolution::Dns | Resolution::DnsRoundRobin => {
            // Envoy wants exactly one there.
            let one = matches!(inputs.groups.as_slice(), [group] if group.lb_endpoints.len() == 1);
            let logical = resolution == Resolution::DnsRoundRobin && one;
            resolve(&mut cluster, mesh, inputs.client, logical);
            tail.load_assignment = Some(ClusterLoadAssignment {
                cluster_name: name.to_string(),
                endpoints: inputs.groups,
            });
        }
    }
    Draft::new(
        name,
        ClusterParts {
            cluster,
            http,
            endpoints: tail,
        },
    )
}

/// Makes it one of names. `logical`: of all that a name leads to, one is used at a time.
#[allow(
    deprecated,
    reason = "Envoy before 1.34 knows nothing else, and gives the fields up with a release of its own"
)]
pub(super) fn resolve(
    cluster: &mut Cluster,
    mesh: &Mesh,
    client: &ClusterParameters,
    logical: bool,
) {
    cluster.dns_lookup_family = lookup_family(client.families).into();
    cluster.dns_refresh_rate = Some(wire::duration(mesh.dns_refresh_rate));
    cluster.respect_dns_ttl = mesh.dns_refresh == DnsRefresh::ByTtl;
    dns_cluster::set_type(cluster, logical);
    if client.dns == Dns::ClusterType {
        dns_cluster::to_cluster_type(cluster);
    }
}

/// The application of a sidecar, behind one port.
pub(crate) fn inbound(
    name: &Arc<str>,
    mesh: &Mesh,
    protocol: Protocol,
    place: core::Address,
    alt_stat_name: String,
) -> Draft<ClusterParts> {
    let cluster = Cluster {
        circuit_breakers: unlimited(),
        alt_stat_name,
        ..base(name, mesh, DiscoveryType::Static)
    };
    let peer = LbEndpoint {
        endpoint: Some(EndpointMessage {
            address: Some(place),
        }),
        ..LbEndpoint::default()
    };
    let tail = ClusterTail {
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name.to_string(),
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![peer],
                ..LocalityLbEndpoints::default()
            }],
        }),
    };
    Draft::new(
        name.clone(),
        ClusterParts {
            cluster,
            http: upstream_http::options(protocol),
            endpoints: tail,
        },
    )
}

/// Returns the draft of a cluster without endpoints and without options of HTTP.
fn draft(name: &str, cluster: Cluster) -> Draft<ClusterParts> {
    let parts = ClusterParts {
        cluster,
        ..ClusterParts::default()
    };
    Draft::new(name, parts)
}

fn lookup_family(families: Families) -> DnsLookupFamily {
    match (families.v4, families.v6) {
        (true, true) => DnsLookupFamily::All,
        (false, true) => DnsLookupFamily::V6Only,
        (_, false) => DnsLookupFamily::V4Only,
    }
}

/// A pattern of the mesh, filled in. Empty: Envoy takes the cluster's name.
pub(crate) fn stat_name(
    pattern: &str,
    service: &Service,
    (port_name, port): (&str, u16),
    subset: &str,
) -> String {
    if pattern.is_empty() {
        return String::new();
    }
    let host = &*service.key.hostname;
    let (name, short) = match service.registry {
        Registry::Kubernetes => {
            let name = host.split('.').next().unwrap_or(host);
            (name, format!("{name}.{}", service.key.namespace))
        }
        Registry::External | Registry::Consul | Registry::Memory => (host, host.to_owned()),
    };
    // The longer names first: one begins like the other.
    [
        ("%SERVICE_PORT_NAME%", port_name),
        ("%SERVICE_PORT%", &port.to_string()),
        ("%SERVICE_FQDN%", host),
        ("%SUBSET_NAME%", subset),
        ("%SERVICE_NAME%", name),
        ("%SERVICE%", &short),
    ]
    .into_iter()
    .fold(pattern.to_owned(), |text, (name, value)| {
        text.replace(name, value)
    })
}
