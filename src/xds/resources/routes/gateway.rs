//! Routes of what comes in at a router: hosts of its servers, as far as VirtualServices are bound to them (discovery.md §16).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::model::ObjectRef;
use envoy_types::pb::envoy::config::route::v3::{
    self as route, DirectResponseAction, Route, RouteConfiguration, VirtualHost, virtual_host,
};

use super::default_routes::{operation, prefix};
use super::{RouteParameters, RoutesBuilder};
use crate::common::conflict::{Conflict, DUPLICATE_DOMAIN};
use crate::finish::Draft;
use crate::resources::domains;
use crate::resources::mesh::Mesh;
use crate::rules::gateway::{Merged, Serving};
use crate::rules::virtual_service::is_catch_all;
use crate::scope::ProxyRules;

/// One host while rules add to it.
#[derive(Default)]
struct GatewayHost {
    /// The port of the first server that has it.
    number: u16,
    routes: Vec<Route>,
    /// A route that leaves no request for others, and the rule that it is of.
    last: Option<(Route, ObjectRef)>,
    redirects: bool,
    /// Rules that were added, each with the Gateway and the port that it was added for.
    by: BTreeSet<(ObjectRef, ObjectRef, u16)>,
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
    let mut making = RoutesBuilder::new(parameters, mesh, rules);
    let mut hosts: BTreeMap<String, GatewayHost> = BTreeMap::new();
    for (_, server) in &servers {
        making.from.push(server.from().clone());
        making.add_server(server, &mut hosts);
    }
    // A host of which nothing is for this port is as if it were not there.
    hosts.retain(|_, host| host.redirects || !host.routes.is_empty() || host.last.is_some());
    let mut all: Vec<_> = hosts
        .into_iter()
        .map(|(host, one)| one.made(&host))
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    if all.is_empty() {
        all.push(black_hole(port));
    }
    let (mut draft, conflicts) = making.finish(name, all);
    // Whoever calls may say any port: addresses of routers are translated on the way to them.
    draft.message.ignore_port_in_host_matching = true;
    Some((draft, conflicts))
}

impl RoutesBuilder<'_> {
    fn add_server(&mut self, server: &Serving, hosts: &mut BTreeMap<String, GatewayHost>) {
        let redirects = server.redirects();
        for rule in self.rules.bound(server.from()) {
            if rule.spec().http.is_empty() {
                continue;
            }
            for host in rule.hosts() {
                // Names count, too: a rule may have any number of hosts.
                let room = self.room(rule);
                if room == 0 {
                    break;
                }
                let mut left = room;
                let common = server.hosts.common(host, rule.namespace(), &mut left);
                self.spend(rule, room - left);
                let Some(common) = common else {
                    self.give_up(rule, host);
                    break;
                };
                for common in common {
                    let known = hosts.entry(common.clone()).or_insert_with(|| GatewayHost {
                        number: server.number,
                        ..GatewayHost::default()
                    });
                    // Two servers may have the same host, one of them by a wildcard.
                    let by = (rule.from.clone(), server.from().clone(), server.number);
                    if !known.by.insert(by) {
                        continue;
                    }
                    let context = self.at(server.number, server.from());
                    let operation = operation(&common, server.number);
                    let Some(routes) = self.routes(rule, &operation, &context) else {
                        // There is no room, or nothing of it is for this port.
                        break;
                    };
                    known.redirects |= redirects;
                    let again = known.by.iter().filter(|(by, ..)| *by == rule.from).count() > 1;
                    for route in routes {
                        if again && known.routes.contains(&route) {
                            continue;
                        }
                        let left_out = known.add(route, &rule.from);
                        let left_out = left_out.filter(|first| **first != rule.from);
                        let Some(left_out) = left_out else {
                            continue;
                        };
                        self.conflicts.push(DUPLICATE_DOMAIN, Some(&rule.from), || {
                            let message = format!(
                                "the route of {} for all requests to {common} is left out: {left_out} has one",
                                rule.from
                            );
                            (common.clone(), message)
                        });
                    }
                }
            }
        }
        if !redirects {
            return;
        }
        // Whoever asks for a host without rules is sent to where it may be served.
        for host in server.hosts.names() {
            let known = hosts.entry(host).or_insert_with(|| GatewayHost {
                number: server.number,
                ..GatewayHost::default()
            });
            known.redirects = true;
        }
    }
}

impl GatewayHost {
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
            domains: match host.parse::<IpAddr>() {
                Ok(address) => domains::address_forms(address, port),
                Err(_) if host == "*" => vec![host.to_owned()],
                Err(_) => domains::with_port(host, port).into(),
            },
            routes,
            ..VirtualHost::default()
        };
        if self.redirects {
            virtual_host.set_require_tls(virtual_host::TlsRequirementType::All);
        }
        virtual_host
    }
}

/// The answer of a port for which no rule has routes.
fn black_hole(port: u16) -> VirtualHost {
    let answer = DirectResponseAction {
        status: 404,
        ..DirectResponseAction::default()
    };
    VirtualHost {
        name: format!("blackhole:{port}"),
        domains: vec!["*".to_owned()],
        routes: vec![Route {
            name: "default".to_owned(),
            r#match: Some(prefix("/")),
            action: Some(route::route::Action::DirectResponse(answer)),
            ..Route::default()
        }],
        ..VirtualHost::default()
    }
}
