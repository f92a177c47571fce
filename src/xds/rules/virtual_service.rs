//! VirtualService: where requests of a host go (discovery.md §14). A host whose rule matches nothing is answered 404, by Envoy.

mod action;
pub(crate) mod connections;
mod filters;
mod grpc_matches;
mod matching;
mod percent;

use std::sync::Arc;

use api::config::discovery_notes::is_parameter;
use api::istio::networking::v1alpha3::{Destination, HttpMatchRequest, HttpRoute};
use api::model::ObjectRef;
use api::networking::VirtualService;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::{ClusterSpecifier, HashPolicy};
use envoy_types::pb::envoy::config::route::v3::{Decorator, RetryPolicy, Route, RouteMatch};
use prost::Message as _;

use super::destination_rule::{self, ServicePolicies};
use crate::common::service_ports::{ServicePort, subset_name};
use crate::scope::gateways::holds_at;
use crate::scope::{ProxyRules, Rule, destination_port};

pub(crate) use action::retry_policy;
pub(crate) use grpc_matches::conflicts as grpc_conflicts;

/// The inputs to routes, besides their rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteContext<'a> {
    pub(crate) rules: &'a ProxyRules,
    /// The port that requests come to.
    pub(crate) port: u16,
    /// The client is a program with gRPC in it: it has timeouts of its own.
    pub(crate) grpc: bool,
    /// The Gateway at which requests come in; `None`: they come from a sidecar's application.
    pub(crate) gateway: Option<&'a ObjectRef>,
    /// The policy of routes that have none of their own; `None`: requests are not tried again.
    pub(crate) retries: Option<&'a RetryPolicy>,
}

/// The routes of a rule for requests to a port.
#[derive(Debug)]
pub(crate) enum Routed {
    /// Routes, their bytes, and what else they were made from.
    Routes(Vec<Route>, usize, Vec<ObjectRef>),
    /// No match of it is for this proxy and this port: the port has its routes as if without a rule.
    Unmatched,
    /// Its routes are larger than the room for them.
    TooLarge,
}

/// A cluster that requests are sent to.
struct TargetCluster {
    cluster: Arc<str>,
    hash: Option<HashPolicy>,
}

/// Makes the routes of requests to a port, in order. `operation`: the operation in traces; `room`: the bytes that the routes
/// may have.
pub(crate) fn routes(
    rule: &Rule<VirtualService>,
    operation: &str,
    context: &RouteContext<'_>,
    room: usize,
) -> Routed {
    let mut routes = Vec::new();
    let mut from = vec![rule.from.clone()];
    from.extend(rule.with.iter().cloned());
    let (mut bytes, mut is_matched): (usize, bool) = (0, false);
    for http in &rule.spec().http {
        let holding: Vec<_> = if http.r#match.is_empty() {
            vec![None]
        } else {
            let holding = http.r#match.iter();
            let holding = holding.filter(|one| context.holds(one, rule.namespace()));
            holding.map(Some).collect()
        };
        if holding.is_empty() {
            continue;
        }
        is_matched = true;
        let mut maker = RouteBuilder {
            rule,
            http,
            context,
            from: &mut from,
        };
        let Some(made) = maker.route(operation) else {
            continue;
        };
        let matches = holding.into_iter().flat_map(|one| {
            let matches = context.route_matches(one).into_iter();
            matches.map(move |matching| (one, matching))
        });
        for (one, matching) in matches {
            let route = Route {
                name: name(http, one.map_or("", |one| &one.name)),
                r#match: Some(matching),
                stat_prefix: one.map_or_else(String::new, |one| one.stat_prefix.clone()),
                ..made.clone()
            };
            bytes = bytes.saturating_add(route.encoded_len());
            if bytes > room {
                return Routed::TooLarge;
            }
            let is_last = is_catch_all(&route);
            routes.push(route);
            // Nothing gets past it.
            if is_last {
                return Routed::Routes(routes, bytes, from);
            }
        }
    }
    if is_matched {
        Routed::Routes(routes, bytes, from)
    } else {
        Routed::Unmatched
    }
}

/// Returns true if a route leaves no request for those after it.
pub(crate) fn is_catch_all(route: &Route) -> bool {
    route.r#match.as_ref().is_some_and(matching::is_everything)
}

impl RouteContext<'_> {
    /// Returns true if a match of a rule of a namespace is one of requests that this proxy sends to this port.
    fn holds(&self, one: &HttpMatchRequest, namespace: &str) -> bool {
        // No request has such a parameter, and Envoy refuses whoever asks for it.
        one.query_params.keys().all(|name| is_parameter(name))
            && matching::is_accepted(one)
            // A client with gRPC in it would take the rest of such a match for all of it.
            && !(self.grpc && matching::has_claims(one))
            && holds_at(&one.gateways, namespace, self.gateway)
            && (one.port == 0 || one.port == u32::from(self.port))
            // As in Istio: a match that names a router's Gateway says nothing of who its clients are.
            && (self.gateway.is_some() && !one.gateways.is_empty()
                || self.rules.is_in(&one.source_namespace)
                    && self.rules.meets(&one.source_labels))
    }

    /// The conditions by which a match is one of this client, any of which will do. No match is one of everything.
    fn route_matches(&self, one: Option<&HttpMatchRequest>) -> Vec<RouteMatch> {
        let matching = matching::route_match(one);
        match one {
            Some(http_match) if self.grpc => grpc_matches::of(http_match, matching),
            Some(_) | None => vec![matching],
        }
    }

    fn destination(
        &self,
        destination: &Destination,
        namespace: &str,
        from: &mut Vec<ObjectRef>,
    ) -> TargetCluster {
        let host = self.rules.full_host(&destination.host, namespace);
        let service_ports: Vec<_> = self.rules.service_ports().by_host(&host).collect();
        // Without a port: the only one of the host, else the one that requests come to (discovery.md §14).
        let port = destination_port(destination)
            .or_else(|| only(&service_ports))
            .unwrap_or(self.port);
        let service_port = service_ports
            .iter()
            .find(|service_port| service_port.port.number == port);
        let hash = service_port
            .and_then(|service_port| self.hash(service_port, &destination.subset, from));
        TargetCluster {
            cluster: subset_name(port, &destination.subset, &host),
            hash,
        }
    }

    fn hash(
        &self,
        service_port: &ServicePort,
        subset: &str,
        from: &mut Vec<ObjectRef>,
    ) -> Option<HashPolicy> {
        let policies = ServicePolicies::of_service(self.rules, &service_port.service);
        let subset = policies.subset(subset);
        let policy = policies.of(subset, service_port.port.number);
        let hash = destination_rule::hash_policy(&policy)?;
        let mut new = policies.from(subset);
        new.retain(|one| !from.contains(one));
        from.extend(new);
        Some(hash)
    }
}

/// The hash policy of requests to a service that no VirtualService is for.
pub(crate) fn hash_policy(
    service_port: &ServicePort,
    context: &RouteContext<'_>,
    from: &mut Vec<ObjectRef>,
) -> Option<HashPolicy> {
    context.hash(service_port, "", from)
}

/// The port of a service that has one.
fn only(service_ports: &[&Arc<ServicePort>]) -> Option<u16> {
    match service_ports {
        [only] => Some(only.port.number),
        _ => None,
    }
}

/// One `http` entry as it becomes routes, one for each of its matches.
struct RouteBuilder<'a> {
    rule: &'a Rule<VirtualService>,
    http: &'a HttpRoute,
    context: &'a RouteContext<'a>,
    from: &'a mut Vec<ObjectRef>,
}

impl RouteBuilder<'_> {
    /// The parts of a route that all its matches have in common.
    fn route(&mut self, operation: &str) -> Option<Route> {
        let action = self.action()?;
        let is_alone = matches!(
            &action,
            Action::Route(action) if matches!(action.cluster_specifier, Some(ClusterSpecifier::Cluster(_)))
        );
        let mut route = Route {
            action: Some(action),
            decorator: Some(Decorator {
                operation: operation.to_owned(),
                ..Decorator::default()
            }),
            ..Route::default()
        };
        // Weighted destinations have their own.
        let of_destination = self.http.route.first().filter(|_| is_alone);
        let of_destination = of_destination.and_then(filters::of_destination);
        for headers in filters::of_route(self.http).iter().chain(&of_destination) {
            filters::headers(&mut route, headers);
        }
        filters::add(&mut route, self.http, self.context.grpc);
        Some(route)
    }

    fn action(&mut self) -> Option<Action> {
        if let Some(redirect) = &self.http.redirect {
            return action::redirect(redirect, self.context.port).map(Action::Redirect);
        }
        if let Some(response) = &self.http.direct_response {
            return Some(Action::DirectResponse(action::direct_response(response)));
        }
        let namespace = self.rule.namespace().clone();
        let written = self.http.route.iter();
        let destinations: Vec<_> = written
            .filter_map(|one| {
                let to = one.destination.as_ref()?;
                let to = self.context.destination(to, &namespace, self.from);
                Some((one, to))
            })
            .collect();
        let mut action = action::route_action(self.http, &destinations, self.context)?;
        let mirrors = action::mirrored(self.http);
        action.request_mirror_policies = mirrors
            .map(|(destination, share)| {
                let to = self.context.destination(destination, &namespace, self.from);
                action::mirror(&to.cluster, share)
            })
            .collect();
        Some(Action::Route(action))
    }
}

fn name(http: &HttpRoute, of_match: &str) -> String {
    if of_match.is_empty() {
        return http.name.clone();
    }
    format!("{}.{of_match}", http.name)
}
