//! The security in force at a proxy, for the debug pages: policies of its workload, and whether it agrees with servers about
//! mutual TLS.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::istio::networking::v1alpha3::ClientTlsSettings;
use api::istio::networking::v1alpha3::client_tls_settings::TlSmode;
use api::model::{Configured, Labels, ObjectRef, TlsMode};
use api::security::{AuthorizationPolicy, RequestAuthentication};

use super::{Conflict, Snapshot};
use crate::common::conflict::{Conflicts, MTLS_CONFLICT};
use crate::common::service_ports::ServicePort;
use crate::node::Node;
use crate::rules::destination_rule::{ServicePolicies as TrafficPolicies, chooses_mtls};
use crate::rules::peer_authentication::{MtlsMode, MtlsModes};
use crate::scope::{ProxyRules, Rule};

/// The agreement of a client with the servers of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    Agree,
    Conflict,
    /// Clients go by what each server takes.
    Auto,
}

/// Mutual TLS between one proxy and a port of a service, or of a subset of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSecurity {
    pub host: Arc<str>,
    /// Empty: all endpoints.
    pub subset: String,
    pub port: u16,
    /// The PeerAuthentications of its servers.
    pub policies: BTreeSet<ObjectRef>,
    /// The DestinationRule of the client.
    pub rule: Option<ObjectRef>,
    /// Modes of its servers, in words.
    pub servers: BTreeSet<&'static str>,
    /// The mode of the client; `None`: no rule says one.
    pub client: Option<&'static str>,
    pub agreement: Agreement,
}

/// Policies of a workload, in the order in which they count.
#[derive(Clone, Debug, Default)]
pub struct PoliciesInForce {
    pub authorization: Vec<Arc<Configured<AuthorizationPolicy>>>,
    pub requests: Vec<Arc<Configured<RequestAuthentication>>>,
}

impl Snapshot {
    /// The policies of this proxy's workload.
    #[must_use]
    pub fn policies_in_force(&self, node: &Node) -> PoliciesInForce {
        fn objects<T>(rules: &[Arc<Rule<T>>]) -> Vec<Arc<Configured<T>>> {
            rules.iter().map(|rule| rule.object.clone()).collect()
        }
        let labels = node.labels_of(self.workload_of(node));
        let all = self.base.policies.of(&node.namespace, labels);
        PoliciesInForce {
            authorization: objects(&all.authorization),
            requests: objects(&all.requests),
        }
    }

    /// Mutual TLS between this proxy and each port of the mesh's services that it sees, by host and port.
    #[must_use]
    pub fn port_security(&self, node: &Node) -> Vec<PortSecurity> {
        let labels = node.labels_of(self.workload_of(node));
        let rules = self.base.rules_of(node, labels);
        let service_ports = rules.service_ports();
        let of_mesh = service_ports
            .all()
            .filter(|service_port| !service_port.service.mesh_external);
        let mut all = Vec::new();
        for service_port in of_mesh {
            let traffic = TrafficPolicies::of_service(&rules, &service_port.service);
            let (servers, policies) = self.servers(service_port);
            let subsets = traffic.subsets();
            for subset in [None].into_iter().chain(subsets.into_iter().map(Some)) {
                let tls = traffic.of(subset, service_port.port.number).tls();
                all.push(PortSecurity {
                    host: service_port.service.key.hostname.clone(),
                    subset: subset.map(|subset| subset.name.clone()).unwrap_or_default(),
                    port: service_port.port.number,
                    policies: policies.clone(),
                    rule: traffic.first().cloned(),
                    servers: servers.iter().map(|mode| mode_name(*mode)).collect(),
                    client: tls.map(|tls| tls.mode().as_str_name()),
                    agreement: self.agreement(tls, &servers),
                });
            }
        }
        all.sort_by(|one, other| {
            let key = |one: &PortSecurity| (one.host.clone(), one.port, one.subset.clone());
            key(one).cmp(&key(other))
        });
        all
    }

    /// Conflicts of DestinationRules with what the workloads of services accept, as a proxy without rules of its own namespace
    /// calls them. Services without endpoints are in conflict with nothing.
    pub(super) fn mtls_conflicts(&self) -> &[Conflict] {
        self.mtls_conflicts.get_or_init(|| {
            let mut rules = self.world.destination_rules.values();
            if !rules.any(|rule| chooses_mtls(&rule.spec)) {
                return Vec::new();
            }
            let (root, labels) = (&self.world.mesh.root_namespace, Labels::new());
            let rules = self
                .base
                .rules
                .of(&root.as_str().into(), [&labels; 2], true);
            let mut conflicts = Conflicts::default();
            for service_port in rules.service_ports().all() {
                if !service_port.service.mesh_external {
                    self.add_mtls_conflicts(&rules, service_port, &mut conflicts);
                }
            }
            conflicts.finish()
        })
    }

    fn add_mtls_conflicts(
        &self,
        rules: &ProxyRules,
        service_port: &ServicePort,
        conflicts: &mut Conflicts,
    ) {
        let traffic = TrafficPolicies::of_service(rules, &service_port.service);
        let Some(rule) = traffic.with_traffic_policy() else {
            return;
        };
        let key = &service_port.service.key;
        let mut endpoints = self.by_port().of(&self.world, key, &service_port.port.name);
        if endpoints.next().is_none() {
            return;
        }
        let tls = traffic.of(None, service_port.port.number).tls();
        let parties = match tls.map(ClientTlsSettings::mode) {
            Some(TlSmode::IstioMutual) => ("mutual TLS", "accept none"),
            Some(TlSmode::Disable) => ("plain text", "accept mutual TLS alone"),
            Some(TlSmode::Simple | TlSmode::Mutual) | None => return,
        };
        let (servers, _) = self.servers(service_port);
        if self.agreement(tls, &servers) == Agreement::Conflict {
            conflicts.push(MTLS_CONFLICT, Some(rule), || {
                let (client, servers) = parties;
                let message = format!(
                    "requests of sidecars fail: {rule} has them speak {client} to {}, and workloads of it {servers}",
                    service_port.authority()
                );
                (service_port.cluster("").to_string(), message)
            });
        }
    }

    /// The modes of the servers of a port, and the policies that set them.
    fn servers(&self, service_port: &ServicePort) -> (Vec<MtlsMode>, BTreeSet<ObjectRef>) {
        let (key, mesh) = (&service_port.service.key, &self.base.mesh);
        let (mut modes, mut policies) = (Vec::new(), BTreeSet::new());
        let mut add = |labels: &Labels, port: u16, takes_tls: bool| {
            let who = (&key.namespace, labels);
            let peers = MtlsModes::new(&self.base.policies, who, mesh.usual_mode(takes_tls));
            let mode = peers.of_server(Some(port));
            if !modes.contains(&mode) {
                modes.push(mode);
            }
            policies.extend(peers.from().cloned());
        };
        let endpoints = self.by_port().of(&self.world, key, &service_port.port.name);
        for (_, endpoint) in endpoints {
            add(
                &endpoint.labels,
                endpoint.port,
                endpoint.tls == TlsMode::Istio,
            );
        }
        if modes.is_empty() {
            // As a workload would that nothing is said of.
            let labels = Labels::new();
            let peers = MtlsModes::new(
                &self.base.policies,
                (&key.namespace, &labels),
                mesh.usual_mode(true),
            );
            modes.push(peers.of_server(None));
            policies.extend(peers.from().cloned());
        }
        (modes, policies)
    }

    fn agreement(&self, client: Option<&ClientTlsSettings>, servers: &[MtlsMode]) -> Agreement {
        let Some(client) = client else {
            let mut servers = servers.iter();
            let has_tls =
                self.base.mesh.has_tls() || servers.any(|mode| *mode != MtlsMode::Disable);
            return if has_tls {
                Agreement::Auto
            } else {
                Agreement::Agree
            };
        };
        let agrees = |server: &MtlsMode| match (client.mode(), server) {
            (TlSmode::Disable, MtlsMode::Disable | MtlsMode::Permissive)
            | (TlSmode::IstioMutual, MtlsMode::Strict | MtlsMode::Permissive) => true,
            (TlSmode::Disable | TlSmode::IstioMutual | TlSmode::Simple | TlSmode::Mutual, _) => {
                false
            }
        };
        if servers.iter().all(agrees) {
            Agreement::Agree
        } else {
            Agreement::Conflict
        }
    }
}

const fn mode_name(mode: MtlsMode) -> &'static str {
    match mode {
        MtlsMode::Disable => "DISABLE",
        MtlsMode::Permissive => "PERMISSIVE",
        MtlsMode::Strict => "STRICT",
    }
}
