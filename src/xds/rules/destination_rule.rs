//! DestinationRule: how a client reaches a service, and which of its endpoints are a subset (discovery.md §15).

mod detection;
mod pool;
mod tls;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::config::served::{MOST_SUBSETS, is_header_name};
use api::istio::networking::v1alpha3::client_tls_settings::TlSmode;
use api::istio::networking::v1alpha3::load_balancer_settings::consistent_hash_lb::{
    HashAlgorithm, HashKey,
};
use api::istio::networking::v1alpha3::load_balancer_settings::{
    ConsistentHashLb, LbPolicy as Written, SimpleLb,
};
use api::istio::networking::v1alpha3::{
    ClientTlsSettings, ConnectionPoolSettings, LoadBalancerSettings, LocalityLoadBalancerSetting,
    OutlierDetection as Detection, Subset, TrafficPolicy,
};
use api::model::{Endpoint, ObjectRef, Protocol, Service};
use api::networking::DestinationRule;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    LbConfig, LbPolicy, MaglevLbConfig, RingHashLbConfig,
};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::route::v3::route_action::{HashPolicy, hash_policy};
use envoy_types::pb::google::protobuf::{Duration as Time, Struct, UInt64Value, Value, value};

use crate::common::wire;
use crate::finish::ClusterParts;
use crate::node::Files;
use crate::scope::{ProxyRules, Rule, Rules};

/// Of a ring, where nobody says another (the same as Envoy's own).
const SMALLEST_RING: u64 = 1024;
/// Envoy refuses larger ones (cluster.proto, `RingHashLbConfig`).
const LARGEST_RING: u64 = 8 << 20;

/// Rules for one service, in order: what the first of them says counts, and all their subsets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies {
    rules: Vec<Arc<Rule<DestinationRule>>>,
}

/// What holds for one port, of one subset or of all endpoints.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policy<'a> {
    balancer: Option<&'a LoadBalancerSettings>,
    pool: Option<&'a ConnectionPoolSettings>,
    detection: Option<&'a Detection>,
    tls: Option<&'a ClientTlsSettings>,
}

impl Policies {
    /// Those that hold for a proxy's connections to a service.
    pub(crate) fn of_service(rules: &ProxyRules, service: &Service) -> Self {
        Self {
            rules: rules.destination_rules(service),
        }
    }

    /// The rules by name: all that depends on them alone is the same where these are.
    pub(crate) fn from(&self) -> Vec<ObjectRef> {
        self.rules.iter().map(|rule| rule.from.clone()).collect()
    }

    /// Each name once, of two the first.
    pub(crate) fn subsets(&self) -> Vec<&Subset> {
        let mut names = BTreeSet::new();
        let all = self.written();
        all.filter(|subset| names.insert(&subset.name)).collect()
    }

    pub(crate) fn subset(&self, name: &str) -> Option<&Subset> {
        self.written().find(|subset| subset.name == name)
    }

    /// As many as count.
    fn written(&self) -> impl Iterator<Item = &Subset> {
        let all = self.rules.iter().flat_map(|rule| &rule.spec().subsets);
        all.take(MOST_SUBSETS)
    }

    /// A subset's own over that of the rule; what a rule says of a port replaces all that it says otherwise.
    pub(crate) fn of<'a>(&'a self, subset: Option<&'a Subset>, port: u16) -> Policy<'a> {
        let mut rules = self.rules.iter();
        let top = rules.find_map(|rule| rule.spec().traffic_policy.as_ref());
        let own = subset.and_then(|subset| subset.traffic_policy.as_ref());
        let mut policy = Policy::default();
        for written in top.into_iter().chain(own) {
            policy.add(written, port);
        }
        policy
    }
}

impl<'a> Policy<'a> {
    fn add(&mut self, written: &'a TrafficPolicy, port: u16) {
        let of_port = written.port_level_settings.iter().find(|one| {
            let number = one.port.as_ref().map(|port| port.number);
            number == Some(port.into())
        });
        *self = match of_port {
            Some(one) => Self {
                balancer: one.load_balancer.as_ref(),
                pool: one.connection_pool.as_ref(),
                detection: one.outlier_detection.as_ref(),
                tls: one.tls.as_ref(),
            },
            None => Self {
                balancer: written.load_balancer.as_ref().or(self.balancer),
                pool: written.connection_pool.as_ref().or(self.pool),
                detection: written.outlier_detection.as_ref().or(self.detection),
                tls: written.tls.as_ref().or(self.tls),
            },
        };
    }

    /// How clients secure their connections, where anything says it.
    pub(crate) const fn tls(&self) -> Option<&'a ClientTlsSettings> {
        self.tls
    }

    /// Whether connections go where the client wanted to go.
    pub(crate) fn is_passthrough(&self) -> bool {
        self.simple() == SimpleLb::Passthrough
    }

    /// In place of the mesh's own.
    pub(crate) fn locality(&self) -> Option<&'a LocalityLoadBalancerSetting> {
        self.balancer?.locality_lb_setting.as_ref()
    }

    fn simple(&self) -> SimpleLb {
        match self.balancer.and_then(|one| one.lb_policy.as_ref()) {
            Some(Written::Simple(simple)) => SimpleLb::try_from(*simple).unwrap_or_default(),
            Some(Written::ConsistentHash(_)) | None => SimpleLb::Unspecified,
        }
    }

    fn consistent_hash(&self) -> Option<&'a ConsistentHashLb> {
        match &self.balancer?.lb_policy {
            Some(Written::ConsistentHash(hash)) => Some(hash),
            Some(Written::Simple(_)) | None => None,
        }
    }
}

/// Whether a rule asks servers for who they are, whatever the mesh does.
pub(crate) fn ask_for_accounts(rules: &Rules) -> bool {
    let policies = rules.all_destination_rules().flat_map(policies);
    let ports = |policy: &'_ TrafficPolicy| {
        let mut of_ports = policy.port_level_settings.iter();
        of_ports.any(|port| is_mutual(port.tls.as_ref()))
    };
    policies
        .into_iter()
        .any(|policy| is_mutual(policy.tls.as_ref()) || ports(policy))
}

fn is_mutual(tls: Option<&ClientTlsSettings>) -> bool {
    tls.is_some_and(|tls| tls.mode() == TlSmode::IstioMutual)
}

/// All that a rule has.
fn policies(rule: &DestinationRule) -> impl Iterator<Item = &TrafficPolicy> {
    let subsets = rule.subsets.iter().map(|subset| &subset.traffic_policy);
    subsets.chain([&rule.traffic_policy]).flatten()
}

/// Whether the locality of a client matters to what a rule says.
pub(crate) fn have_localities(rules: &Rules) -> bool {
    rules.all_destination_rules().any(has_locality)
}

fn has_locality(rule: &DestinationRule) -> bool {
    policies(rule)
        .flat_map(|policy| {
            let of_ports = policy.port_level_settings.iter();
            let of_ports = of_ports.map(|port| &port.load_balancer);
            of_ports.chain([&policy.load_balancer])
        })
        .flatten()
        .any(|balancer| balancer.locality_lb_setting.is_some())
}

/// Whether an endpoint is one of a subset: it has all its labels.
pub(crate) fn is_in(subset: &Subset, endpoint: &Endpoint) -> bool {
    let mut wanted = subset.labels.iter();
    wanted.all(|(name, value)| {
        let has = endpoint.labels.get(name.as_str());
        has.is_some_and(|has| **has == **value)
    })
}

/// Whose cluster it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    /// It leads to the application of the proxy, which may speak HTTP/1 alone.
    Server,
}

/// What a cluster is for, as far as rules ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) subset: &'a str,
    pub(crate) host: &'a str,
    /// Who may answer with a certificate of the mesh.
    pub(crate) accounts: &'a BTreeSet<Arc<str>>,
    /// The client's files for that.
    pub(crate) files: &'a Files,
    /// For a program with gRPC in it, which refuses what it does not know.
    pub(crate) grpc: bool,
}

/// Changes a client's cluster as the rules of its service want it.
pub(crate) fn cluster(
    parts: &mut ClusterParts,
    policies: &Policies,
    policy: &Policy<'_>,
    purpose: &Purpose<'_>,
) {
    let Some(first) = policies.rules.first() else {
        return;
    };
    parts.cluster.metadata = Some(metadata(&first.from));
    balance(&mut parts.cluster, policy, purpose.grpc);
    if let Some(written) = policy.pool {
        pool::limit(parts, written, purpose.protocol, Side::Client);
    }
    if let Some(written) = policy.detection {
        detection::detect(&mut parts.cluster, written);
    }
    if let Some(written) = policy.tls.filter(|_| !purpose.grpc) {
        tls::secure(parts, written, purpose);
    }
}

/// Changes the cluster of a server's own application: the limits of its service count there, too. False where there are none.
pub(crate) fn inbound(parts: &mut ClusterParts, policy: &Policy<'_>, protocol: Protocol) -> bool {
    if let Some(written) = policy.pool {
        pool::limit(parts, written, protocol, Side::Server);
    }
    policy.pool.is_some()
}

/// Where the rule is, as an API server's path has it.
fn metadata(rule: &ObjectRef) -> core::Metadata {
    let path = format!(
        "/apis/networking.istio.io/v1alpha3/namespaces/{}/destination-rule/{}",
        rule.namespace, rule.name
    );
    let path = Value {
        kind: Some(value::Kind::StringValue(path)),
    };
    let istio = Struct {
        fields: [("config".to_owned(), path)].into(),
    };
    core::Metadata {
        filter_metadata: [("istio".to_owned(), istio)].into(),
        ..core::Metadata::default()
    }
}

/// A program with gRPC in it takes turns or a ring, and refuses all else.
fn balance(cluster: &mut Cluster, policy: &Policy<'_>, grpc: bool) {
    // It leads where the client wanted to go: there is nothing to choose.
    if cluster.lb_policy == i32::from(LbPolicy::ClusterProvided) {
        return;
    }
    let simple = match policy.simple() {
        SimpleLb::Unspecified => None,
        SimpleLb::RoundRobin => Some(LbPolicy::RoundRobin),
        SimpleLb::LeastConn | SimpleLb::LeastRequest => Some(LbPolicy::LeastRequest),
        SimpleLb::Random => Some(LbPolicy::Random),
        // Where it can be had, the cluster is made so.
        SimpleLb::Passthrough => None,
    };
    if let Some(simple) = simple.filter(|simple| !grpc || *simple == LbPolicy::RoundRobin) {
        cluster.lb_policy = simple.into();
    }
    let Some(hash) = policy.consistent_hash() else {
        return;
    };
    let (kind, config) = match &hash.hash_algorithm {
        Some(HashAlgorithm::Maglev(maglev)) if !grpc => {
            let size = Some(maglev.table_size).filter(|size| *size > 0);
            let config = MaglevLbConfig {
                table_size: size.map(|value| UInt64Value { value }),
            };
            (LbPolicy::Maglev, LbConfig::MaglevLbConfig(config))
        }
        ring => {
            let written = match ring {
                Some(HashAlgorithm::RingHash(ring)) => ring.minimum_ring_size,
                Some(HashAlgorithm::Maglev(_)) | None => hash.minimum_ring_size,
            };
            let size = if written > 0 { written } else { SMALLEST_RING };
            let size = size.min(LARGEST_RING);
            let config = RingHashLbConfig {
                minimum_ring_size: Some(UInt64Value { value: size }),
                ..RingHashLbConfig::default()
            };
            (LbPolicy::RingHash, LbConfig::RingHashLbConfig(config))
        }
    };
    cluster.lb_policy = kind.into();
    cluster.lb_config = Some(config);
}

/// By what requests to a destination are spread: a route says it, for the balancer of its cluster.
pub(crate) fn hash_policy(policy: &Policy<'_>) -> Option<HashPolicy> {
    use hash_policy::PolicySpecifier;
    let specifier = match policy.consistent_hash()?.hash_key.as_ref()? {
        HashKey::HttpHeaderName(name) | HashKey::HttpQueryParameterName(name)
            if !is_header_name(name) =>
        {
            return None;
        }
        HashKey::HttpHeaderName(name) => PolicySpecifier::Header(hash_policy::Header {
            header_name: name.clone(),
            ..hash_policy::Header::default()
        }),
        HashKey::HttpCookie(cookie) => PolicySpecifier::Cookie(hash_policy::Cookie {
            name: cookie.name.clone(),
            path: cookie.path.clone(),
            ttl: cookie.ttl.as_ref().map(time),
            ..hash_policy::Cookie::default()
        }),
        HashKey::UseSourceIp(wanted) => {
            wanted.then_some(())?;
            PolicySpecifier::ConnectionProperties(hash_policy::ConnectionProperties {
                source_ip: true,
            })
        }
        HashKey::HttpQueryParameterName(name) => {
            PolicySpecifier::QueryParameter(hash_policy::QueryParameter { name: name.clone() })
        }
    };
    Some(HashPolicy {
        policy_specifier: Some(specifier),
        ..HashPolicy::default()
    })
}

/// As it was checked when it was read.
pub(crate) fn time(written: &api::mesh::Duration) -> Time {
    let seconds = u64::try_from(written.seconds).unwrap_or_default();
    let nanos = u32::try_from(written.nanos).unwrap_or_default();
    wire::duration(Duration::new(seconds, nanos))
}

/// 0 is as if nothing were written.
fn positive(number: i32) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| *number > 0)
}
