//! Settings of DestinationRules that do nothing at the ports that there are, whoever sees them: they are of requests where none are
//! told apart, or choose endpoints where the client has chosen. A service may get such a port later, so no rule says it by itself.

mod fields;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use api::istio::mesh::v1alpha1::mesh_config::H2UpgradePolicy;
use api::istio::networking::v1alpha3::connection_pool_settings::HttpSettings;
use api::istio::networking::v1alpha3::connection_pool_settings::http_settings::H2UpgradePolicy as SettingOfUpgrade;
use api::istio::networking::v1alpha3::load_balancer_settings::{LbPolicy, SimpleLb};
use api::istio::networking::v1alpha3::traffic_policy::PortTrafficPolicy;
use api::istio::networking::v1alpha3::{
    ConnectionPoolSettings, LoadBalancerSettings, OutlierDetection, TrafficPolicy,
};
use api::model::{Protocol, Registry, Resolution, Service, ServiceKey, World};
use api::names::full_host;
use api::networking::{DestinationRule, VirtualService};

use self::fields::{hash_of_requests, of_http2, of_requests, of_responses};
use super::Rule;
use super::exported::{Exported, ExportedObjects};
use super::world_ports::{PortsOfRule, WorldPorts};
use crate::common::conflict::{Conflict, Conflicts, REJECTED_CONFIG};
use crate::common::service_ports::ServicePort;

/// Policies of subsets that are looked at for one rule. Chosen: a rule has a few.
const MAX_POLICIES: usize = 100;

/// Those who choose among the endpoints of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Balancing {
    /// All go to the address that the client chose.
    #[default]
    Nobody,
    /// Sidecars connect to the address that the client chose, and routers have none such.
    Routers,
    Everyone,
}

/// The versions of HTTP that ports are spoken to in.
#[derive(Clone, Copy, Debug, Default)]
struct HttpVersions {
    /// One of them is declared to have requests.
    are_declared: bool,
    /// Connections to one of them may speak HTTP/2 by themselves.
    http2: bool,
}

/// The properties of ports that settings depend on.
#[derive(Clone, Copy, Debug, Default)]
struct PortFacts {
    /// Requests can be told apart at one of them.
    requests: bool,
    versions: HttpVersions,
    /// One of them may have connections whose requests nothing tells apart.
    connections: bool,
    balancing: Balancing,
}

impl PortFacts {
    fn of(port: &ServicePort, ports: &WorldPorts<'_>, headless_eds: bool) -> Self {
        let service = &port.service;
        let balancing = match service.resolution {
            Resolution::None if service.is_headless() && !headless_eds => Balancing::Routers,
            // What another registry says of endpoints counts for clients that are not intercepted.
            Resolution::None
                if is_balanced_by_endpoints(service) && !ports.has_endpoints(service) =>
            {
                Balancing::Nobody
            }
            Resolution::None | Resolution::Static | Resolution::Dns | Resolution::DnsRoundRobin => {
                Balancing::Everyone
            }
        };
        Self {
            requests: port.carries_http(),
            versions: HttpVersions {
                are_declared: port.protocol.is_http(),
                // Where nothing is declared they speak what their client speaks.
                http2: port.protocol.is_http2() || port.protocol.is_auto(),
            },
            connections: !port.protocol.is_http(),
            balancing,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests || other.requests,
            versions: HttpVersions {
                are_declared: self.versions.are_declared || other.versions.are_declared,
                http2: self.versions.http2 || other.versions.http2,
            },
            connections: self.connections || other.connections,
            balancing: self.balancing.max(other.balancing),
        }
    }
}

/// Hosts that rules lead to, whatever the protocols of their ports are.
#[derive(Debug, Default)]
struct Reached {
    by_requests: HashSet<String>,
    by_connections: HashSet<String>,
}

/// Settings that do nothing.
pub(super) struct IdleSettings {
    pub(super) lost: Vec<Conflict>,
    /// Services at which a balancer does something as long as they have endpoints.
    pub(super) by_endpoints: HashSet<ServiceKey>,
}

impl ExportedObjects {
    /// Tells of settings of DestinationRules that do nothing at any port of their hosts. `headless_eds`: proxies choose among the
    /// endpoints of headless services.
    pub(super) fn idle_policies(
        &self,
        ports: &WorldPorts<'_>,
        world: &World,
        headless_eds: bool,
    ) -> IdleSettings {
        ports.renew();
        let reached = LazyCell::new(|| self.reached(world));
        let mut lost = Conflicts::default();
        let mut by_endpoints = HashSet::new();
        for Exported { rule, .. } in &self.destination_rules {
            let spec = rule.spec();
            if spec.traffic_policy.is_none() && spec.subsets.is_empty() {
                continue;
            }
            let of_rule = ports.of_rule(rule);
            // Of a host that no service has nothing is known.
            if of_rule.is_cut || of_rule.all.is_empty() {
                continue;
            }
            let has_balancer = has_balancer(spec);
            let mut by_number: BTreeMap<u32, PortFacts> = BTreeMap::new();
            let mut of_udp = BTreeSet::new();
            let mut last = None;
            for port in &of_rule.all {
                // The ports of a service stand together.
                if last.replace(Arc::as_ptr(&port.service)) != Some(Arc::as_ptr(&port.service)) {
                    let all = port.service.ports.iter();
                    let udp = all.filter(|one| one.protocol == Protocol::Udp);
                    of_udp.extend(udp.map(|one| u32::from(one.number)));
                    if has_balancer && is_balanced_by_endpoints(&port.service) {
                        by_endpoints.insert(port.service.key.clone());
                    }
                }
                let facts = PortFacts::of(port, ports, headless_eds);
                let facts_of_number = by_number.entry(port.port.number.into()).or_default();
                *facts_of_number = facts_of_number.and(facts);
            }
            let is_reached = |by: fn(&Reached) -> &HashSet<String>| is_any(by(&reached), &of_rule);
            let requests = || ports.declares_requests || is_reached(|all| &all.by_requests);
            let connections =
                || ports.declares_connections || is_reached(|all| &all.by_connections);
            let rule = IdlePolicies {
                rule,
                by_number,
                of_udp,
                requests_elsewhere: LazyCell::new(&requests),
                connections_elsewhere: LazyCell::new(&connections),
                versions: (!ports.declares_requests).then_some(VersionsOfMesh {
                    is_upgraded: world.mesh.h2_upgrade_policy() == H2UpgradePolicy::Upgrade,
                }),
            };
            rule.find(&mut lost);
        }
        IdleSettings {
            lost: lost.finish(),
            by_endpoints,
        }
    }

    /// A route leads to ports of any protocol.
    fn reached(&self, world: &World) -> Reached {
        let mut reached = Reached::default();
        let full = |host: &str, namespace: &str| full_host(host, namespace, &self.domain);
        for Exported { rule, .. } in &self.virtual_services {
            let VirtualService { http, tls, tcp, .. } = rule.spec();
            for route in http {
                let to = route.route.iter().flat_map(|one| &one.destination);
                let mirrors = route.mirrors.iter().flat_map(|one| &one.destination);
                let to = to.chain(mirrors).chain(&route.mirror);
                let to = to.map(|to| full(&to.host, rule.namespace()));
                reached.by_requests.extend(to);
            }
            let tls = tls.iter().flat_map(|route| &route.route);
            let tcp = tcp.iter().flat_map(|route| &route.route);
            let to = tls.chain(tcp).flat_map(|one| &one.destination);
            let to = to.map(|to| full(&to.host, rule.namespace()));
            reached.by_connections.extend(to);
        }
        for sidecar in world.sidecars.values() {
            let policy = sidecar.spec.outbound_traffic_policy.as_ref();
            if let Some(proxy) = policy.and_then(|policy| policy.egress_proxy.as_ref()) {
                let host = full(&proxy.host, &sidecar.namespace);
                reached.by_requests.insert(host.clone());
                reached.by_connections.insert(host);
            }
        }
        reached
    }
}

fn is_any(hosts: &HashSet<String>, ports: &PortsOfRule<'_>) -> bool {
    let mut all = ports.all.iter();
    all.any(|port| hosts.contains(&port.host().to_ascii_lowercase()))
}

/// The settings that hold for some ports.
struct PortSettings<'a> {
    balancer: Option<&'a LoadBalancerSettings>,
    pool: Option<&'a ConnectionPoolSettings>,
    detection: Option<&'a OutlierDetection>,
}

/// The settings of the mesh for the versions of HTTP.
#[derive(Clone, Copy, Debug)]
struct VersionsOfMesh {
    /// Connections to ports of HTTP/1 are upgraded unless a rule says otherwise.
    is_upgraded: bool,
}

/// One rule while it is looked at.
struct IdlePolicies<'a> {
    rule: &'a Rule<DestinationRule>,
    by_number: BTreeMap<u32, PortFacts>,
    /// Numbers of ports that proxies do not serve.
    of_udp: BTreeSet<u32>,
    /// Requests may come to ports that are none of HTTP.
    requests_elsewhere: LazyCell<bool, &'a dyn Fn() -> bool>,
    /// Connections may come to ports of HTTP.
    connections_elsewhere: LazyCell<bool, &'a dyn Fn() -> bool>,
    /// `None`: a Sidecar declares ports anew, and their versions are not known.
    versions: Option<VersionsOfMesh>,
}

impl IdlePolicies<'_> {
    fn find(&self, lost: &mut Conflicts) {
        let spec = self.rule.spec();
        if let Some(policy) = &spec.traffic_policy {
            self.policy(|| "spec.trafficPolicy".to_owned(), policy, lost);
        }
        for (at, subset) in spec.subsets.iter().enumerate().take(MAX_POLICIES) {
            if let Some(policy) = &subset.traffic_policy {
                let path = || format!("spec.subsets[{at}].trafficPolicy");
                self.policy(path, policy, lost);
            }
        }
    }

    fn policy(&self, path: impl Fn() -> String, policy: &TrafficPolicy, lost: &mut Conflicts) {
        let of_ports = &policy.port_level_settings;
        let numbers = of_ports.iter().flat_map(|one| &one.port);
        let own: BTreeSet<u32> = numbers.map(|port| port.number).collect();
        let rest = self.by_number.iter();
        let rest = rest.filter(|(number, _)| !own.contains(number));
        let rest = rest.map(|(_, facts)| *facts).reduce(PortFacts::and);
        if let Some(facts) = rest {
            let settings = PortSettings {
                balancer: policy.load_balancer.as_ref(),
                pool: policy.connection_pool.as_ref(),
                detection: policy.outlier_detection.as_ref(),
            };
            let port = || {
                if own.is_empty() {
                    "a port"
                } else {
                    "another port"
                }
                .to_owned()
            };
            self.settings(&path, &settings, facts, port, lost);
        }
        self.settings_of_all_ports(&path, policy, lost);
        for (at, one) in of_ports.iter().enumerate() {
            let path = || format!("{}.portLevelSettings[{at}]", path());
            self.settings_of_port(path, one, lost);
        }
    }

    /// Settings that ports do not have of their own.
    fn settings_of_all_ports(
        &self,
        path: impl Fn() -> String,
        policy: &TrafficPolicy,
        lost: &mut Conflicts,
    ) {
        let all = self.by_number.values().copied().reduce(PortFacts::and);
        let all = all.unwrap_or_default();
        if policy.retry_budget.is_some() && self.is_without_requests(all) {
            self.report(lost, || {
                let why = "no service with its host has a port of HTTP";
                format!("{}.retryBudget has no effect: {why}", path())
            });
        }
        if policy.tunnel.is_some() && !all.connections && !*self.connections_elsewhere {
            self.report(lost, || {
                let why = "all ports of services with its host are of HTTP, and connections alone are tunnelled";
                format!("{}.tunnel has no effect: {why}", path())
            });
        }
    }

    fn settings_of_port(
        &self,
        path: impl Fn() -> String,
        policy: &PortTrafficPolicy,
        lost: &mut Conflicts,
    ) {
        let number = policy.port.as_ref().map_or(0, |port| port.number);
        let Some(facts) = self.by_number.get(&number) else {
            return self.report(lost, || {
                let why = match self.of_udp.contains(&number) {
                    true => format!("port {number} is UDP, which proxies do not serve"),
                    false => format!("no service with its host has a port {number}"),
                };
                format!("{} has no effect: {why}", path())
            });
        };
        let settings = PortSettings {
            balancer: policy.load_balancer.as_ref(),
            pool: policy.connection_pool.as_ref(),
            detection: policy.outlier_detection.as_ref(),
        };
        let port = || format!("a port {number}");
        self.settings(path, &settings, *facts, port, lost);
    }

    fn is_without_requests(&self, facts: PortFacts) -> bool {
        !facts.requests && !*self.requests_elsewhere
    }

    /// `port`: the ports that the settings are for, in words.
    fn settings(
        &self,
        path: impl Fn() -> String,
        settings: &PortSettings<'_>,
        facts: PortFacts,
        port: impl Fn() -> String,
        lost: &mut Conflicts,
    ) {
        let balancer = settings.balancer.filter(|one| chooses(one));
        let chosen = "to the address that the client chose";
        match facts.balancing {
            Balancing::Nobody if balancer.is_some() => self.report(lost, || {
                let why = format!("connections to services with its host go {chosen}");
                format!("{}.loadBalancer has no effect: {why}", path())
            }),
            Balancing::Routers if balancer.is_some() => self.report(lost, || {
                let why = format!("other sidecars send what is for a headless service {chosen}");
                let whose = "counts only at routers and where connections are not intercepted";
                format!("{}.loadBalancer {whose}: {why}", path())
            }),
            Balancing::Nobody | Balancing::Routers | Balancing::Everyone => {}
        }
        let hash = balancer.filter(|_| facts.balancing != Balancing::Nobody);
        let mut fields: Vec<&str> = hash.and_then(hash_of_requests).into_iter().collect();
        let http = settings.pool.and_then(|pool| pool.http.as_ref());
        fields.extend(http.into_iter().flat_map(of_requests));
        fields.extend(settings.detection.into_iter().flat_map(of_responses));
        if let (Some(http), true) = (http, facts.requests) {
            self.versions(&path, http, facts, &port, lost);
        }
        if fields.is_empty() || !self.is_without_requests(facts) {
            return;
        }
        for field in fields {
            self.report(lost, || {
                let why = format!("no service with its host has {} of HTTP", port());
                format!("{}.{field} has no effect: {why}", path())
            });
        }
    }

    /// Settings of HTTP/2 where no connection speaks it, and the upgrade to it where ports leave the version to their clients.
    fn versions(
        &self,
        path: impl Fn() -> String,
        http: &HttpSettings,
        facts: PortFacts,
        port: impl Fn() -> String,
        lost: &mut Conflicts,
    ) {
        let Some(of_mesh) = self.versions else {
            return;
        };
        let upgrade = http.h2_upgrade_policy();
        if upgrade == SettingOfUpgrade::Upgrade && !facts.versions.are_declared {
            self.report(lost, || {
                let why = format!(
                    "no service with its host has {} declared as HTTP, and undeclared ones are spoken to as their clients speak",
                    port()
                );
                format!("{}.connectionPool.http.h2UpgradePolicy has no effect: {why}", path())
            });
        }
        let is_upgraded = match upgrade {
            SettingOfUpgrade::Upgrade => true,
            SettingOfUpgrade::DoNotUpgrade => false,
            SettingOfUpgrade::Default => of_mesh.is_upgraded,
        };
        if facts.versions.http2 || is_upgraded || http.use_client_protocol {
            return;
        }
        for field in of_http2(http) {
            self.report(lost, || {
                let why = format!(
                    "no service with its host has {} of HTTP/2, and h2UpgradePolicy does not upgrade to it",
                    port()
                );
                format!("{}.{field} has no effect: {why}", path())
            });
        }
    }

    fn report(&self, lost: &mut Conflicts, message: impl FnOnce() -> String) {
        let from = &self.rule.from;
        lost.push(REJECTED_CONFIG, Some(from), || {
            (from.to_string(), message())
        });
    }
}

/// Returns true for a service whose clients choose an address themselves, but those that are not intercepted where it has endpoints.
fn is_balanced_by_endpoints(service: &Service) -> bool {
    service.resolution == Resolution::None && service.registry == Registry::External
}

fn has_balancer(spec: &DestinationRule) -> bool {
    let subsets = spec.subsets.iter().take(MAX_POLICIES);
    let mut policies = subsets
        .flat_map(|subset| &subset.traffic_policy)
        .chain(&spec.traffic_policy);
    policies.any(|policy| {
        let of_ports = policy.port_level_settings.iter();
        let of_ports = of_ports.flat_map(|one| &one.load_balancer);
        let mut all = of_ports.chain(&policy.load_balancer);
        all.any(chooses)
    })
}

/// Returns true if a balancer chooses otherwise than proxies do without one.
fn chooses(balancer: &LoadBalancerSettings) -> bool {
    let by_policy = match &balancer.lb_policy {
        Some(LbPolicy::Simple(simple)) => !matches!(
            SimpleLb::try_from(*simple),
            Ok(SimpleLb::Unspecified | SimpleLb::Passthrough) | Err(_)
        ),
        Some(LbPolicy::ConsistentHash(_)) => true,
        None => false,
    };
    let locality = balancer.locality_lb_setting.as_ref();
    let is_on = |enabled: Option<bool>| enabled != Some(false);
    let by_locality = locality.is_some_and(|one| is_on(one.enabled.map(|on| on.value)));
    let zones = balancer.zone_aware_lb_setting.as_ref();
    let by_zones = zones.is_some_and(|one| is_on(one.enabled.map(|on| on.value)));
    by_policy || by_locality || by_zones
}
