//! Routes of a program with gRPC in it.

use envoy_types::pb::envoy::config::route::v3::{
    self as route, Route, RouteAction, RouteConfiguration, VirtualHost,
};

use super::ROOM_OF_RULE;
use super::default_routes::{operation, prefix, to};
use crate::common::conflict::Conflict;
use crate::common::service_ports::ServicePort;
use crate::finish::Draft;
use crate::resources::mesh::Mesh;
use crate::rules::virtual_service::{self, RouteContext, Routed};
use crate::scope::ProxyRules;

/// Builds the routes of all requests of one target. The conflicts say which matches of its rule are left out.
pub(crate) fn grpc(
    service_port: &ServicePort,
    mesh: &Mesh,
    rules: &ProxyRules,
) -> (Draft<RouteConfiguration>, Vec<Conflict>) {
    let name = &service_port.name;
    let context = RouteContext {
        rules,
        port: service_port.port.number,
        grpc: true,
        gateway: None,
        retries: mesh.retries.as_ref(),
    };
    let operation = operation(service_port.host(), service_port.port.number);
    let rule = rules.virtual_service(service_port.host());
    let conflicts = rule.map(|rule| virtual_service::grpc_conflicts(rule, &context));
    let routed = rule.map(|rule| virtual_service::routes(rule, &operation, &context, ROOM_OF_RULE));
    let (routes, from) = match routed {
        Some(Routed::Routes(routes, _, from)) => (routes, from),
        Some(Routed::Unmatched | Routed::TooLarge) | None => {
            let mut from = Vec::new();
            let hash = virtual_service::hash_policy(service_port, &context, &mut from);
            let action = RouteAction {
                timeout: None,
                hash_policy: hash.into_iter().collect(),
                ..to(name)
            };
            let route = Route {
                r#match: Some(prefix("")),
                action: Some(route::route::Action::Route(action)),
                ..Route::default()
            };
            (vec![route], from)
        }
    };
    let routes = RouteConfiguration {
        name: name.to_string(),
        virtual_hosts: vec![VirtualHost {
            name: name.to_string(),
            domains: vec!["*".to_owned()],
            routes,
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    };
    let draft = Draft {
        from,
        ..Draft::new(name.clone(), routes)
    };
    (draft, conflicts.unwrap_or_default())
}
