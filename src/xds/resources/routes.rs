//! Routes: from the host of a request to a cluster.

mod default_routes;
mod gateway;
mod grpc;
mod virtual_service_hosts;

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map};
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Address, ClusterId, ObjectRef};
use api::networking::VirtualService;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::route::v3::{
    self as route, Route, RouteConfiguration, VirtualHost,
};

pub(crate) use self::default_routes::inbound;
use self::default_routes::{allow_any, block_all, operation};
pub(crate) use self::gateway::gateway;
pub(crate) use self::grpc::grpc;
use self::virtual_service_hosts::PortsAlone;
use super::clusters::PASSTHROUGH;
use super::domains;
use super::mesh::Mesh;
use crate::common::conflict::{Conflict, Conflicts, DUPLICATE_DOMAIN, TOO_LARGE};
use crate::common::fair_budget::FairBudget;
use crate::common::families::Families;
use crate::common::service_ports::{ServicePort, cluster_name};
use crate::common::wire;
use crate::finish::Draft;
use crate::rules::gateway::Absent;
use crate::rules::virtual_service::{self, RouteContext, Routed};
use crate::scope::virtual_service_limits::RulesWithoutRoom;
pub(crate) use crate::scope::virtual_service_limits::{ROOM, ROOM_OF_RULE};
use crate::scope::{ProxyRules, Rule};

/// All HTTP ports behind one listener that applications use as a proxy.
pub(crate) const HTTP_PROXY: &str = "http_proxy";

/// The properties of a proxy that its routes depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RouteParameters {
    pub(crate) domain: Arc<str>,
    pub(crate) cluster: ClusterId,
    pub(crate) families: Families,
    /// The cluster of requests to no known service; `None`: they are refused.
    pub(crate) unknown: Option<Arc<str>>,
    /// Ports of servers of Gateways, each with where the router listens for it.
    pub(crate) listens: Arc<[(u16, u16)]>,
    /// Servers that it does not have, though others with the same Gateways may.
    pub(crate) absent: Arc<BTreeSet<Absent>>,
}

/// A configuration by its name; `None` where nothing has it.
pub(crate) fn outbound(
    name: &Arc<str>,
    (parameters, mesh): (&RouteParameters, &Mesh),
    rules: &ProxyRules,
) -> Option<(Draft<RouteConfiguration>, Vec<Conflict>)> {
    let at_socket = rules.at_socket(name);
    let has_port = at_socket.is_none();
    let of_one_listener = at_socket.or_else(|| rules.at_proxy(name));
    // Requests to all ports come in there.
    let is_proxy = &**name == HTTP_PROXY || of_one_listener.is_some();
    // Of a port of one service alone the services of all listeners count.
    let rules = &of_one_listener.unwrap_or_else(|| rules.within(name.parse().ok()));
    let service_ports = rules.routed();
    let mut making = RoutesBuilder::new((parameters, mesh), rules, rules.without_room());
    // The name of a socket's routes may have a colon, and is no `HOST:PORT`.
    let of_one = name.rsplit_once(':').filter(|_| has_port);
    if let Some((host, port)) = of_one {
        let all = rules.service_ports();
        let service_port = all.by_name(&cluster_name(port.parse().ok()?, host))?;
        return service_port.protocol.is_auto().then(|| {
            let mut hosts = making.hosts_below(service_port);
            hosts.push(making.host(service_port, vec!["*".to_owned()]));
            making.finish(name, hosts)
        });
    }
    let chosen: Vec<&Arc<ServicePort>> = if is_proxy {
        let all = service_ports.all();
        all.filter(|service_port| service_port.carries_http())
            .collect()
    } else {
        let of_port = service_ports.of_port(name.parse().ok()?);
        of_port
            .filter(|service_port| service_port.carries_http())
            .collect()
    };
    if chosen.is_empty() && !is_proxy {
        return None;
    }
    let port = name.parse().ok().filter(|_| !is_proxy);
    // A rule for an address is asked before the service that has it, whose name is another.
    let mut hosts = making.hosts_of_rules(port, |host| host.parse::<IpAddr>().is_ok());
    hosts.extend(chosen.into_iter().filter_map(|service_port| {
        let domains = making.domains(service_port, is_proxy);
        (!domains.is_empty()).then(|| making.host(service_port, domains))
    }));
    hosts.extend(making.hosts_of_rules(port, |host| host.parse::<IpAddr>().is_err()));
    // Domains were taken by precedence; the order of hosts says nothing, and sorted they have equal bytes.
    hosts.sort_by(|one, other| one.name.cmp(&other.name));
    // Nothing says at a socket where a request wanted to go.
    let unknown = parameters.unknown.as_deref();
    let unknown = unknown.filter(|cluster| has_port || *cluster != PASSTHROUGH);
    hosts.push(unknown.map_or_else(block_all, allow_any));
    Some(making.finish(name, hosts))
}

/// A configuration while it is made.
struct RoutesBuilder<'a> {
    parameters: &'a RouteParameters,
    mesh: &'a Mesh,
    rules: &'a ProxyRules,
    /// Domains, each with the service or the rule that has it.
    domain_owners: HashMap<String, Arc<str>>,
    /// Addresses that rules have in place of services, each with its port, and the namespace of the rule: services of others are
    /// told what they lose.
    of_rules: HashMap<(IpAddr, u16), Arc<str>>,
    conflicts: Conflicts,
    from: Vec<ObjectRef>,
    /// Bytes that routes of rules may still have.
    room: FairBudget,
    without_room: Arc<RulesWithoutRoom>,
    /// Ports of the hosts that rules have without services.
    ports: BTreeMap<&'a ObjectRef, PortsAlone>,
}

/// Envoy takes answers whose bodies are longer only where the configuration says so (envoy/config/route/v3/route.proto).
const USUAL_BODY: u32 = 4096;

/// Bytes of the answer that a route has in it.
fn body(route: &Route) -> u32 {
    let Some(route::route::Action::DirectResponse(response)) = &route.action else {
        return 0;
    };
    let length = match response
        .body
        .as_ref()
        .and_then(|body| body.specifier.as_ref())
    {
        Some(Specifier::InlineString(text)) => text.len(),
        Some(Specifier::InlineBytes(bytes)) => bytes.len(),
        Some(Specifier::Filename(_) | Specifier::EnvironmentVariable(_)) | None => 0,
    };
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl<'a> RoutesBuilder<'a> {
    fn new(
        (parameters, mesh): (&'a RouteParameters, &'a Mesh),
        rules: &'a ProxyRules,
        without_room: Arc<RulesWithoutRoom>,
    ) -> Self {
        Self {
            parameters,
            mesh,
            rules,
            domain_owners: HashMap::new(),
            of_rules: HashMap::new(),
            conflicts: Conflicts::default(),
            from: Vec::new(),
            room: FairBudget::new(ROOM, ROOM_OF_RULE, rules.namespaces()),
            without_room,
            ports: BTreeMap::new(),
        }
    }

    /// The context of requests that come in at a Gateway.
    const fn at(&self, port: u16, gateway: &'a ObjectRef) -> RouteContext<'a> {
        RouteContext {
            gateway: Some(gateway),
            ..self.context(port)
        }
    }

    const fn context(&self, port: u16) -> RouteContext<'a> {
        RouteContext {
            rules: self.rules,
            port,
            grpc: false,
            gateway: None,
            retries: self.mesh.retries.as_ref(),
        }
    }

    fn finish(
        mut self,
        name: &Arc<str>,
        virtual_hosts: Vec<VirtualHost>,
    ) -> (Draft<RouteConfiguration>, Vec<Conflict>) {
        self.from.sort();
        self.from.dedup();
        let longest = virtual_hosts.iter().flat_map(|host| &host.routes).map(body);
        let longest = longest.max().filter(|longest| *longest > USUAL_BODY);
        let mut draft = Draft {
            from: self.from,
            ..configuration(name, virtual_hosts)
        };
        draft.message.max_direct_response_body_size_bytes = longest.and_then(wire::number);
        (draft, self.conflicts.finish())
    }

    fn host(&mut self, service_port: &ServicePort, domains: Vec<String>) -> VirtualHost {
        let context = self.context(service_port.port.number);
        let operation = operation(service_port.host(), service_port.port.number);
        let rule = self.rules.virtual_service(service_port.host());
        let routes = rule.and_then(|rule| self.routes(rule, &operation, &context));
        let routes = match routes {
            Some(routes) => routes,
            // A rule that has nothing for this port or proxy is as if it were not there.
            None => {
                let mut route = default_routes::usual(service_port, self.mesh);
                let hash = virtual_service::hash_policy(service_port, &context, &mut self.from);
                if let Some(route::route::Action::Route(action)) = &mut route.action {
                    action.hash_policy.extend(hash);
                }
                vec![route]
            }
        };
        VirtualHost {
            name: service_port.authority(),
            domains,
            routes,
            ..VirtualHost::default()
        }
    }

    fn lose(&mut self, rule: &Rule<VirtualService>, operation: &str) {
        let place = self.place(rule, operation);
        self.conflicts.push(TOO_LARGE, Some(&rule.from), || {
            let message = format!(
                "{} is left out: its routes are larger than {} MiB (at all ports together, for a host that no service has), those \
                 of its namespace than {} MiB at all ports together, or those of all rules than {} MiB and those of its namespace \
                 than their share",
                rule.from,
                ROOM_OF_RULE >> 20,
                self.without_room.room >> 20,
                ROOM >> 20
            );
            (place, message)
        });
    }

    /// `None` where nothing is for this proxy and port, or there is no room for it.
    fn routes(
        &mut self,
        rule: &Rule<VirtualService>,
        operation: &str,
        context: &RouteContext<'_>,
    ) -> Option<Vec<Route>> {
        let routed = match self.room(rule) {
            0 => Routed::TooLarge,
            room => virtual_service::routes(rule, operation, context, room),
        };
        match routed {
            Routed::Unmatched => None,
            Routed::TooLarge => {
                self.give_up(rule, operation);
                None
            }
            Routed::Routes(routes, bytes, from) => {
                self.spend(rule, bytes);
                self.from.extend(from);
                Some(routes)
            }
        }
    }

    /// Returns the room that a rule still has.
    fn room(&self, rule: &Rule<VirtualService>) -> usize {
        if self.without_room.contains(&rule.from) {
            return 0;
        }
        self.room.of(&rule.from).unwrap_or_default()
    }

    /// Excludes the rule at further hosts.
    fn give_up(&mut self, rule: &Rule<VirtualService>, operation: &str) {
        if self.room.give_up(&rule.from) {
            self.lose(rule, operation);
        }
    }

    fn spend(&mut self, rule: &Rule<VirtualService>, bytes: usize) {
        self.room.spend(&rule.from, bytes);
    }

    /// Returns the domains by which a request may call the service, without those that an older one has.
    fn domains(&mut self, service_port: &ServicePort, proxy: bool) -> Vec<String> {
        let port = service_port.port.number;
        let parameters = self.parameters;
        let mut all = Vec::new();
        for form in domains::forms(service_port.host(), &parameters.domain) {
            // The pods of a headless service have names below its own.
            if service_port.service.is_headless() {
                all.extend(domains::with_port(&form, port));
                all.extend(domains::with_port(&format!("*.{form}"), port));
            } else {
                all.extend(domains::with_port(&form, port));
            }
        }
        for address in service_port.addresses(parameters.cluster.as_str(), parameters.families) {
            // A rule has the address: a service of another namespace still claims it, and is told.
            if let Address::Plain(address) = address
                && self.of_rules.get(&(address, port)) != Some(&service_port.service.key.namespace)
            {
                all.extend(domains::address_forms(address, port));
            }
        }
        // Where all ports share a configuration, a host without a port means 80.
        if proxy && port != 80 {
            let suffix = format!(":{port}");
            all.retain(|domain| domain.ends_with(&suffix) && is_with_port(domain));
        }
        self.free_domains(all, &service_port.authority(), |conflict| {
            conflict.of_service(&service_port.service.key)
        })
    }

    /// Returns the domains that no other service or rule has: Envoy refuses a configuration that has one twice.
    fn free_domains(
        &mut self,
        mut domains: Vec<String>,
        of: &str,
        with_subject: impl Fn(Conflict) -> Conflict,
    ) -> Vec<String> {
        let own: Arc<str> = of.into();
        domains.retain(|domain| match self.domain_owners.entry(domain.clone()) {
            hash_map::Entry::Vacant(free) => {
                free.insert(own.clone());
                true
            }
            hash_map::Entry::Occupied(taken) => {
                let message = format!("{of} is left out: {} has it", taken.get());
                let conflict = Conflict::new(DUPLICATE_DOMAIN, &**domain, message);
                self.conflicts.add(0, with_subject(conflict));
                false
            }
        });
        domains
    }
}

fn configuration(name: &Arc<str>, virtual_hosts: Vec<VirtualHost>) -> Draft<RouteConfiguration> {
    let routes = RouteConfiguration {
        name: name.to_string(),
        virtual_hosts,
        // A rule may lead to a cluster that does not exist: it answers 503 until the cluster comes.
        validate_clusters: wire::boolean(false),
        ..RouteConfiguration::default()
    };
    Draft::new(name.clone(), routes)
}

/// The colon of a port, and not one of an address.
fn is_with_port(domain: &str) -> bool {
    domain.contains("]:") || domain.matches(':').count() == 1
}
