//! Routes of what comes in at a router: hosts of its servers, as far as VirtualServices are bound to them (discovery.md §16).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use api::model::ObjectRef;
use api::networking::VirtualService;
use envoy_types::pb::envoy::config::route::v3::{
    self as route, DirectResponseAction, Route, RouteConfiguration, VirtualHost, virtual_host,
};

use super::default_routes::{operation, prefix};
use super::{RouteParameters, RoutesBuilder};
use crate::common::conflict::{Conflict, DUPLICATE_DOMAIN, REJECTED_CONFIG};
use crate::finish::Draft;
use crate::resources::domains;
use crate::resources::mesh::Mesh;
use crate::rules::gateway::{Merged, MisdirectedHosts, Serving};
use crate::rules::virtual_service::is_catch_all;
use crate::scope::{ProxyRules, Rule, patterns};

const NOT_FOUND: u32 = 404;
const MISDIRECTED_REQUEST: u32 = 421;

/// One host while rules add to it.
#[derive(Default)]
struct GatewayHost {
    /// The port of the first server that has it.
    number: u16,
    /// The Gateway of the first server that has something for this very host; an older one with a wildcard around it is none.
    owner: Option<ObjectRef>,
    routes: Vec<Route>,
    /// A route that leaves no request for others, and the rule that it is of.
    last: Option<(Route, ObjectRef)>,
    redirects: bool,
    /// Rules that were added, each with the Gateways and the ports that it was added for.
    by: BTreeMap<ObjectRef, BTreeSet<(ObjectRef, u16)>>,
}

/// Hosts of all servers that have the same routes.
#[derive(Default)]
struct GatewayHosts<'a> {
    all: BTreeMap<String, GatewayHost>,
    /// Names that servers have, each with the number and the Gateway of the first one; none where all are of one namespace.
    named: HashMap<String, (usize, &'a ObjectRef)>,
}

impl<'a> GatewayHosts<'a> {
    fn new(servers: &[&'a Serving]) -> Self {
        let mut hosts = Self::default();
        let namespaces: BTreeSet<_> = servers.iter().map(|one| &one.from().namespace).collect();
        // Gateways of one namespace are merged: none of them keeps a host from another.
        if namespaces.len() < 2 {
            return hosts;
        }
        for (at, server) in servers.iter().copied().enumerate() {
            for host in server.hosts.names() {
                let first = hosts.named.entry(host);
                first.or_insert_with(|| (at, server.from()));
            }
        }
        hosts
    }

    /// The Gateway of another namespace that has a host before this server: an older server names it, or has routes for it. A
    /// wildcard has none of the hosts that are narrower: a younger Gateway that names one of them serves it, as in Istio, for Envoy
    /// takes the most specific host.
    fn older(&self, host: &str, (at, server): (usize, &Serving)) -> Option<&ObjectRef> {
        let named = self.named.get(host).filter(|(first, _)| *first < at);
        let named = named.map(|(_, gateway)| *gateway);
        let owner = || self.all.get(host)?.owner.as_ref();
        let is_others = |gateway: &&ObjectRef| gateway.namespace != server.from().namespace;
        named
            .filter(is_others)
            .or_else(|| owner().filter(is_others))
    }

    fn get(&mut self, host: String, server: &Serving) -> &mut GatewayHost {
        self.all.entry(host).or_insert_with(|| GatewayHost {
            number: server.number,
            ..GatewayHost::default()
        })
    }

    /// Returns true if a rule was added to a host.
    fn has_rule(&self, host: &str, rule: &ObjectRef) -> bool {
        let host_routes = self.all.get(host);
        host_routes.is_some_and(|host_routes| host_routes.by.contains_key(rule))
    }
}

/// A configuration by its name; `None` where no server has it.
pub(crate) fn gateway(
    name: &Arc<str>,
    (parameters, mesh): (&RouteParameters, &Mesh),
    rules: &ProxyRules,
    merged: &Merged,
) -> Option<(Draft<RouteConfiguration>, Vec<Conflict>)> {
    let servers = merged.of_routes(name);
    let ((_, port), _) = *servers.first()?;
    let mut making = RoutesBuilder::new((parameters, mesh), rules, merged.without_room(rules));
    let servers: Vec<_> = servers.into_iter().map(|(_, server)| server).collect();
    let mut hosts = GatewayHosts::new(&servers);
    for (at, server) in servers.iter().copied().enumerate() {
        making.from.push(server.from().clone());
        making.add_server((at, server), &mut hosts);
    }
    let misdirected = merged.misdirected(name);
    if let Some(misdirected) = misdirected {
        making.drop_misdirected(&mut hosts, &servers, misdirected);
    }
    // A host of which nothing is for this port is as if it were not there.
    let hosts_with_routes = hosts.all.into_iter().filter(|(_, host)| !host.is_empty());
    let mut all: Vec<_> = hosts_with_routes
        .map(|(host, one)| one.made(&host))
        .collect();
    if all.is_empty() {
        all.push(black_hole(port));
    }
    all.extend(misdirected.map(|hosts| misdirected_host(hosts, port)));
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let (mut draft, conflicts) = making.finish(name, all);
    // Whoever calls may say any port: addresses of routers are translated on the way to them.
    draft.message.ignore_port_in_host_matching = true;
    Some((draft, conflicts))
}

impl RoutesBuilder<'_> {
    fn add_server(&mut self, (at, server): (usize, &Serving), hosts: &mut GatewayHosts<'_>) {
        for rule in self.rules.bound(server.from()) {
            if rule.spec().http.is_empty() {
                continue;
            }
            if self.without_room.contains(&rule.from) {
                self.give_up(rule, &server.called());
                continue;
            }
            self.add_rule((at, server), rule, hosts);
        }
        if server.redirects() {
            self.add_redirects((at, server), hosts);
        }
    }

    /// Adds the routes of a rule for the hosts that it has in common with a server.
    fn add_rule(
        &mut self,
        (at, server): (usize, &Serving),
        rule: &Rule<VirtualService>,
        hosts: &mut GatewayHosts<'_>,
    ) {
        for host in rule.hosts() {
            // Names count, too: a rule may have any number of hosts.
            let room = self.room(rule);
            if room == 0 {
                return;
            }
            let mut remaining = room;
            let common = server.hosts.common(host, rule.namespace(), &mut remaining);
            self.spend(rule, room - remaining);
            let Some(common) = common else {
                return self.give_up(rule, host);
            };
            for common in common {
                if self.add_host((at, server), rule, &common, hosts).is_break() {
                    break;
                }
            }
        }
    }

    /// Adds the routes of a rule for one host of a server. Breaks where there is no room for them, or nothing of the rule is for
    /// the server's port.
    fn add_host(
        &mut self,
        (at, server): (usize, &Serving),
        rule: &Rule<VirtualService>,
        host: &str,
        hosts: &mut GatewayHosts<'_>,
    ) -> ControlFlow<()> {
        let older = hosts.older(host, (at, server)).cloned();
        // A rule that names the older server's Gateway as well has the host by that one.
        if let Some(older) = older.as_ref()
            && !hosts.has_rule(host, &rule.from)
        {
            let what = format!("the routes of {} for {host}", rule.from);
            self.lose_to(older, server, Some(rule), (host, &what));
            return ControlFlow::Continue(());
        }
        let redirects = server.redirects() && older.is_none();
        let host_routes = hosts.get(host.to_owned(), server);
        // Two servers may have the same host, one of them by a wildcard.
        let by = host_routes.by.entry(rule.from.clone()).or_default();
        if !by.insert((server.from().clone(), server.number)) {
            return ControlFlow::Continue(());
        }
        let again = by.len() > 1;
        let context = self.at(server.number, server.from());
        let operation = operation(host, server.number);
        let Some(routes) = self.routes(rule, &operation, &context) else {
            return ControlFlow::Break(());
        };
        host_routes.redirects |= redirects;
        for route in routes {
            if again && host_routes.routes.contains(&route) {
                continue;
            }
            let first = host_routes.add(route, &rule.from);
            if let Some(first) = first.filter(|first| **first != rule.from) {
                self.lose_catch_all(rule, host, first);
            }
        }
        host_routes.owned_by(server);
        ControlFlow::Continue(())
    }

    /// Reports that the host has a route for all requests already.
    fn lose_catch_all(&mut self, rule: &Rule<VirtualService>, host: &str, first: &ObjectRef) {
        self.conflicts.push(DUPLICATE_DOMAIN, Some(&rule.from), || {
            let message = format!(
                "the route of {} for all requests to {host} is left out: {first} has one",
                rule.from
            );
            (host.to_owned(), message)
        });
    }

    /// Drops hosts that a narrower server has which requires certificates. A rule that is bound to that one, too, has its routes
    /// there; others are told.
    fn drop_misdirected(
        &mut self,
        hosts: &mut GatewayHosts<'_>,
        servers: &[&Serving],
        misdirected: &MisdirectedHosts,
    ) {
        let rules = self.rules;
        let mut bound: HashMap<&ObjectRef, HashSet<&ObjectRef>> = HashMap::new();
        hosts.all.retain(|host, lost| {
            let Some(gateway) = misdirected_to(host, servers, misdirected) else {
                return true;
            };
            if !lost.has_routes() {
                return false;
            }
            let there = bound.entry(gateway).or_insert_with(|| {
                let bound = rules.bound(gateway).into_iter();
                bound.map(|rule| &rule.from).collect()
            });
            for rule in lost.by.keys().filter(|rule| !there.contains(rule)) {
                self.conflicts.push(REJECTED_CONFIG, Some(rule), || {
                    let message = format!(
                        "the routes of {rule} for {host} are left out at Gateways with wider hosts: {gateway} requires certificates \
                         of clients there"
                    );
                    (host.clone(), message)
                });
            }
            false
        });
        self.from.extend(misdirected.values().cloned());
    }

    /// Adds redirects of hosts without rules to where they may be served.
    fn add_redirects(&mut self, (at, server): (usize, &Serving), hosts: &mut GatewayHosts<'_>) {
        for host in server.hosts.names() {
            if let Some(older) = hosts.older(&host, (at, server)).cloned() {
                let what = format!("the redirect of {host}");
                self.lose_to(&older, server, None, (&host, &what));
                continue;
            }
            let host_routes = hosts.get(host, server);
            host_routes.redirects = true;
            host_routes.owned_by(server);
        }
    }

    /// Reports what a server, or a rule that is bound to it, loses to an older Gateway of another namespace.
    fn lose_to(
        &mut self,
        older: &ObjectRef,
        server: &Serving,
        rule: Option<&Rule<VirtualService>>,
        (host, what): (&str, &str),
    ) {
        let verb = rule.map_or("is", |_| "are");
        let subjects = [Some(server.from()), rule.map(|rule| &rule.from)];
        for object in subjects.into_iter().flatten() {
            self.conflicts.push(REJECTED_CONFIG, Some(object), || {
                let message = format!(
                    "{what} at {} {verb} left out: {older} of another namespace is older and has the host",
                    server.called()
                );
                (host.to_owned(), message)
            });
        }
    }
}

impl GatewayHost {
    const fn is_empty(&self) -> bool {
        !self.redirects && !self.has_routes()
    }

    const fn has_routes(&self) -> bool {
        !self.routes.is_empty() || self.last.is_some()
    }

    /// The first server of which there is something has it.
    fn owned_by(&mut self, server: &Serving) {
        if self.owner.is_none() && !self.is_empty() {
            self.owner = Some(server.from().clone());
        }
    }

    /// Adds a route of a rule. One that leaves no request for others comes last; of two such the first counts: returns its
    /// rule where this one is left out.
    fn add(&mut self, route: Route, from: &ObjectRef) -> Option<&ObjectRef> {
        if !is_catch_all(&route) {
            self.routes.push(route);
            return None;
        }
        if self.last.is_some() {
            return self.last.as_ref().map(|(_, first)| first);
        }
        self.last = Some((route, from.clone()));
        None
    }

    fn made(self, host: &str) -> VirtualHost {
        let port = self.number;
        let mut routes = self.routes;
        routes.extend(self.last.map(|(route, _)| route));
        let mut virtual_host = VirtualHost {
            name: format!("{host}:{port}"),
            domains: domains_of(host, port),
            routes,
            ..VirtualHost::default()
        };
        if self.redirects {
            virtual_host.set_require_tls(virtual_host::TlsRequirementType::All);
        }
        virtual_host
    }
}

fn domains_of(host: &str, port: u16) -> Vec<String> {
    match host.parse::<IpAddr>() {
        Ok(address) => domains::address_forms(address, port),
        Err(_) if host == "*" => vec![host.to_owned()],
        Err(_) => domains::with_port(host, port).into(),
    }
}

/// The Gateway of a narrower server than these that has the host, and requires certificates there.
fn misdirected_to<'a>(
    host: &str,
    servers: &[&Serving],
    misdirected: &'a MisdirectedHosts,
) -> Option<&'a ObjectRef> {
    let nearest = patterns(host).into_iter().find_map(|pattern| {
        let is_own = || servers.iter().any(|server| server.hosts.has(&pattern));
        let elsewhere = misdirected.get(&pattern);
        (elsewhere.is_some() || is_own()).then_some(elsewhere)
    });
    nearest.flatten()
}

/// The answer for hosts of other servers: RFC 9110 has a status for it, at which a client begins a connection of its own.
fn misdirected_host(hosts: &MisdirectedHosts, port: u16) -> VirtualHost {
    let domains = hosts.keys().flat_map(|host| domains_of(host, port));
    let domains = domains.collect();
    answering(format!("misdirected:{port}"), domains, MISDIRECTED_REQUEST)
}

/// The answer of a port for which no rule has routes.
fn black_hole(port: u16) -> VirtualHost {
    answering(format!("blackhole:{port}"), vec!["*".to_owned()], NOT_FOUND)
}

fn answering(name: String, domains: Vec<String>, status: u32) -> VirtualHost {
    let answer = DirectResponseAction {
        status,
        ..DirectResponseAction::default()
    };
    VirtualHost {
        name,
        domains,
        routes: vec![Route {
            name: "default".to_owned(),
            r#match: Some(prefix("/")),
            action: Some(route::route::Action::DirectResponse(answer)),
            ..Route::default()
        }],
        ..VirtualHost::default()
    }
}
