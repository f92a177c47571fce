//! Routes that no rule has a part in.

use std::time::Duration;

use envoy_types::pb::envoy::config::route::v3::{
    self as route, Decorator, DirectResponseAction, Route, RouteAction, RouteConfiguration,
    RouteMatch, VirtualHost, route_action,
};

use crate::common::service_ports::ServicePort;
use crate::common::wire;
use crate::resources::mesh::Mesh;

/// Builds the route of all requests to the port, where no rule says otherwise.
pub(super) fn usual(service_port: &ServicePort, mesh: &Mesh) -> Route {
    let mut action = to(&service_port.name);
    action.retry_policy.clone_from(&mesh.retries);
    // 0 lets streams run for ever, and a client's `grpc-timeout` count as the client wrote it.
    action.max_stream_duration = Some(route_action::MaxStreamDuration {
        max_stream_duration: Some(wire::duration(Duration::ZERO)),
        grpc_timeout_header_max: Some(wire::duration(Duration::ZERO)),
        ..route_action::MaxStreamDuration::default()
    });
    Route {
        decorator: Some(decorator(service_port.host(), service_port.port.number)),
        ..everything("default", action)
    }
}

pub(super) fn operation(host: &str, port: u16) -> String {
    format!("{host}:{port}/*")
}

pub(super) fn decorator(host: &str, port: u16) -> Decorator {
    Decorator {
        operation: operation(host, port),
        ..Decorator::default()
    }
}

pub(super) fn to(cluster: &str) -> RouteAction {
    RouteAction {
        // Envoy's own 15 s would cut long answers.
        timeout: Some(wire::duration(Duration::ZERO)),
        cluster_specifier: Some(route_action::ClusterSpecifier::Cluster(cluster.to_owned())),
        ..RouteAction::default()
    }
}

pub(super) fn everything(name: &str, action: RouteAction) -> Route {
    Route {
        name: name.to_owned(),
        r#match: Some(prefix("/")),
        action: Some(route::route::Action::Route(action)),
        ..Route::default()
    }
}

pub(super) fn prefix(prefix: &str) -> RouteMatch {
    RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::Prefix(prefix.to_owned())),
        ..RouteMatch::default()
    }
}

pub(super) fn allow_any(cluster: &str) -> VirtualHost {
    VirtualHost {
        name: "allow_any".to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![everything("allow_any", to(cluster))],
        ..VirtualHost::default()
    }
}

pub(super) fn block_all() -> VirtualHost {
    let refuse = DirectResponseAction {
        status: 502,
        ..DirectResponseAction::default()
    };
    VirtualHost {
        name: "block_all".to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![Route {
            name: "block_all".to_owned(),
            r#match: Some(prefix("/")),
            action: Some(route::route::Action::DirectResponse(refuse)),
            ..Route::default()
        }],
        ..VirtualHost::default()
    }
}

/// Routes of an inbound port; they stand inside of its listener.
pub(crate) fn inbound(cluster: &str, host: &str, port: u16) -> RouteConfiguration {
    RouteConfiguration {
        name: cluster.to_owned(),
        virtual_hosts: vec![VirtualHost {
            name: format!("inbound|http|{port}"),
            domains: vec!["*".to_owned()],
            routes: vec![Route {
                decorator: Some(decorator(host, port)),
                ..everything("default", to(cluster))
            }],
            ..VirtualHost::default()
        }],
        validate_clusters: wire::boolean(false),
        ..RouteConfiguration::default()
    }
}
