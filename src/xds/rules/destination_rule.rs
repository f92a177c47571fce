//! DestinationRule: how a client reaches a service, and which of its endpoints are a subset (discovery.md §15).

mod balancer;
mod credentials;
mod detection;
mod pool;
mod service_policies;
mod tcp_proxy;
mod tls;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::config::discovery_notes::MAX_FAILOVER_LABELS;
use api::istio::networking::v1alpha3::client_tls_settings::TlSmode;
use api::istio::networking::v1alpha3::load_balancer_settings::{
    ConsistentHashLb, LbPolicy as Written, SimpleLb,
};
use api::istio::networking::v1alpha3::traffic_policy::{
    ProxyProtocol, RetryBudget, TunnelSettings,
};
use api::istio::networking::v1alpha3::{
    ClientTlsSettings, ConnectionPoolSettings, LoadBalancerSettings, LocalityLoadBalancerSetting,
    OutlierDetection as Detection, Subset, TrafficPolicy, ZoneAwareLoadBalancerSetting,
};
use api::model::{Endpoint, ObjectRef, Protocol, Registry};
use api::networking::DestinationRule;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use envoy_types::pb::google::protobuf::{Duration as Time, Struct, Value, value};

use crate::common::wire;
use crate::finish::ClusterParts;
use crate::node::Files;
use crate::rules::gateway::secrets::ProxySecrets;
use crate::scope::Rules;

pub(crate) use balancer::hash_policy;
pub(crate) use credentials::{
    client_files, has_client_files, has_credentials, named_by, secrets_in_files,
};
pub(crate) use service_policies::ServicePolicies;
pub(crate) use tcp_proxy::{carry, limit_connections};

/// The policy for one port, of one subset or of all endpoints.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EffectivePolicy<'a> {
    balancer: Option<&'a LoadBalancerSettings>,
    pool: Option<&'a ConnectionPoolSettings>,
    detection: Option<&'a Detection>,
    tls: Option<&'a ClientTlsSettings>,
    proxy_protocol: Option<&'a ProxyProtocol>,
    retry_budget: Option<&'a RetryBudget>,
    tunnel: Option<&'a TunnelSettings>,
}

impl<'a> EffectivePolicy<'a> {
    fn add(&mut self, policy: &'a TrafficPolicy, port: u16) {
        let of_port = policy.port_level_settings.iter().find(|one| {
            let number = one.port.as_ref().map(|port| port.number);
            number == Some(port.into())
        });
        *self = match of_port {
            Some(one) => Self {
                balancer: one.load_balancer.as_ref(),
                pool: one.connection_pool.as_ref(),
                detection: one.outlier_detection.as_ref(),
                tls: one.tls.as_ref(),
                // Ports have none of their own, and those of all ports hold for each.
                proxy_protocol: policy.proxy_protocol.as_ref().or(self.proxy_protocol),
                retry_budget: policy.retry_budget.as_ref().or(self.retry_budget),
                tunnel: policy.tunnel.as_ref().or(self.tunnel),
            },
            None => Self {
                balancer: policy.load_balancer.as_ref().or(self.balancer),
                pool: policy.connection_pool.as_ref().or(self.pool),
                detection: policy.outlier_detection.as_ref().or(self.detection),
                tls: policy.tls.as_ref().or(self.tls),
                proxy_protocol: policy.proxy_protocol.as_ref().or(self.proxy_protocol),
                retry_budget: policy.retry_budget.as_ref().or(self.retry_budget),
                tunnel: policy.tunnel.as_ref().or(self.tunnel),
            },
        };
    }

    /// TLS settings of the client, if a rule has any.
    pub(crate) const fn tls(&self) -> Option<&'a ClientTlsSettings> {
        self.tls
    }

    pub(crate) const fn pool(&self) -> Option<&'a ConnectionPoolSettings> {
        self.pool
    }

    /// Returns true if connections go to their original destination.
    pub(crate) fn is_passthrough(&self) -> bool {
        self.simple() == SimpleLb::Passthrough
    }

    /// Returns the rule's locality setting, which replaces the mesh's.
    pub(crate) fn locality(&self) -> Option<&'a LocalityLoadBalancerSetting> {
        self.balancer?.locality_lb_setting.as_ref()
    }

    /// Returns the rule's zone-aware setting, which replaces both locality settings.
    pub(crate) fn zones(&self) -> Option<&'a ZoneAwareLoadBalancerSetting> {
        self.balancer?.zone_aware_lb_setting.as_ref()
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

/// The checks that rules make clients do of the servers that they call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerChecks {
    /// A rule makes clients check the accounts of servers, whatever the mesh does.
    pub(crate) accounts: bool,
    /// A rule makes clients check the names that a ServiceEntry lists.
    pub(crate) names: bool,
}

impl ServerChecks {
    pub(crate) fn of(rules: &Rules) -> Self {
        Self {
            accounts: any_tls(rules, |tls| tls.mode() == TlSmode::IstioMutual),
            names: any_tls(rules, |tls| {
                let is_own = matches!(tls.mode(), TlSmode::Simple | TlSmode::Mutual);
                is_own && tls.subject_alt_names.is_empty()
            }),
        }
    }
}

fn any_tls(rules: &Rules, counts: impl Fn(&ClientTlsSettings) -> bool) -> bool {
    let mut policies = rules.exported.all_destination_rules().flat_map(policies);
    policies.any(|policy| {
        let of_ports = policy.port_level_settings.iter();
        let mut all = of_ports
            .map(|port| &port.tls)
            .chain([&policy.tls])
            .flatten();
        all.any(&counts)
    })
}

/// Returns true if a rule has clients speak mutual TLS of the mesh, or none, whatever servers accept.
pub(crate) fn chooses_mtls(rule: &DestinationRule) -> bool {
    let chooses = |tls: Option<&ClientTlsSettings>| {
        tls.is_some_and(|tls| matches!(tls.mode(), TlSmode::IstioMutual | TlSmode::Disable))
    };
    let mut policies = policies(rule);
    policies.any(|policy| {
        let mut of_ports = policy.port_level_settings.iter();
        chooses(policy.tls.as_ref()) || of_ports.any(|port| chooses(port.tls.as_ref()))
    })
}

/// Returns all traffic policies of a rule: its own and those of its subsets.
fn policies(rule: &DestinationRule) -> impl Iterator<Item = &TrafficPolicy> {
    let subsets = rule.subsets.iter().map(|subset| &subset.traffic_policy);
    subsets.chain([&rule.traffic_policy]).flatten()
}

/// Returns true if the locality of a client matters to a rule.
pub(crate) fn have_localities(rules: &Rules) -> bool {
    rules.exported.all_destination_rules().any(has_locality)
}

fn has_locality(rule: &DestinationRule) -> bool {
    balancers(rule).any(|balancer| {
        balancer.locality_lb_setting.is_some() || balancer.zone_aware_lb_setting.is_some()
    })
}

fn balancers(rule: &DestinationRule) -> impl Iterator<Item = &LoadBalancerSettings> {
    let all = policies(rule).flat_map(|policy| {
        let of_ports = policy.port_level_settings.iter();
        let of_ports = of_ports.map(|port| &port.load_balancer);
        of_ports.chain([&policy.load_balancer])
    });
    all.flatten()
}

/// Labels in whose order a rule prefers endpoints.
pub(crate) fn failover_labels(rule: &DestinationRule) -> impl Iterator<Item = &str> {
    let all = balancers(rule).flat_map(|balancer| {
        let locality = balancer.locality_lb_setting.iter();
        let zones = balancer.zone_aware_lb_setting.iter();
        let locality = locality.map(|one| &one.failover_priority);
        locality.chain(zones.map(|one| &one.failover_priority))
    });
    let all = all.flat_map(|all| all.iter().take(MAX_FAILOVER_LABELS));
    all.map(String::as_str)
}

/// Returns true if an endpoint is in a subset: it has all its labels. `of_place`: labels that nobody writes at a workload, such as
/// `topology.kubernetes.io/zone`, by its locality, cluster and network; empty: there is none of this name.
pub(crate) fn is_in<'a>(
    subset: &Subset,
    endpoint: &Endpoint,
    of_place: impl Fn(&str) -> &'a str,
) -> bool {
    let mut wanted = subset.labels.iter();
    wanted.all(|(name, value)| match endpoint.labels.get(name.as_str()) {
        Some(has) => **has == **value,
        // An empty text says that there is no such label, so an empty value must not match it.
        None => !value.is_empty() && of_place(name) == value,
    })
}

/// The proxy that a cluster belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    /// The cluster of the proxy's own application, which may speak only HTTP/1.
    Server,
}

/// The properties of a cluster that rules depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) subset: &'a str,
    pub(crate) host: &'a str,
    /// The source of the service.
    pub(crate) registry: Registry,
    /// Accounts, or other names, that the certificate of a server may have.
    pub(crate) accounts: &'a BTreeSet<Arc<str>>,
    /// The client's files for that.
    pub(crate) files: &'a Files,
    /// The oldest TLS that servers of the mesh take.
    pub(crate) oldest_tls: TlsProtocol,
    /// The client is proxyless gRPC, which rejects unknown fields.
    pub(crate) grpc: bool,
    /// The secrets that the client may request by name; `None`: names of certificates mean nothing to it.
    pub(crate) secrets: Option<ProxySecrets<'a>>,
    /// The time for which a cluster waits for secrets.
    pub(crate) initial_fetch_timeout: Duration,
}

/// Changes a client's cluster as the rules of its service want it.
///
/// # Errors
///
/// It cannot be secured as they want it, and so is not to be: why.
pub(crate) fn cluster(
    parts: &mut ClusterParts,
    policies: &ServicePolicies,
    policy: &EffectivePolicy<'_>,
    purpose: &Purpose<'_>,
) -> Result<(), String> {
    let Some(first) = policies.first() else {
        return Ok(());
    };
    parts.cluster.metadata = Some(metadata(first));
    let clusters = policies.clusters();
    balancer::balance(&mut parts.cluster, policy, clusters, purpose.grpc);
    if let Some(written) = policy.pool {
        pool::limit(parts, written, purpose.protocol, Side::Client);
    }
    if let Some(written) = policy.retry_budget {
        pool::budget(&mut parts.cluster, written);
    }
    if let Some(written) = policy.detection {
        detection::detect(parts, written, purpose.protocol, purpose.grpc);
    }
    // TLS offers the HTTP that the pool has chosen, so it comes behind the pool.
    if let Some(written) = policy.tls {
        tls::secure(parts, written, purpose)?;
    }
    // Around the others, so that the server reads it first.
    if let Some(written) = policy.proxy_protocol.filter(|_| !purpose.grpc) {
        tls::announce(&mut parts.cluster, written);
    }
    Ok(())
}

/// Changes the cluster of a server's own application: limits of its service, or of its Sidecar, count there, too.
pub(crate) fn inbound(parts: &mut ClusterParts, pool: &ConnectionPoolSettings, protocol: Protocol) {
    pool::limit(parts, pool, protocol, Side::Server);
}

/// Metadata with the place of the rule, in the form of an API server's path.
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

/// Converts a duration that validation has accepted.
pub(crate) fn time(duration: &api::mesh::Duration) -> Time {
    let seconds = u64::try_from(duration.seconds).unwrap_or_default();
    let nanos = u32::try_from(duration.nanos).unwrap_or_default();
    wire::duration(Duration::new(seconds, nanos))
}

/// 0 is as if nothing were written.
fn positive(number: i32) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| *number > 0)
}
