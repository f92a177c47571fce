//! Routes: from the host of a request to a cluster.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::model::{Address, ClusterId};
use envoy_types::pb::envoy::config::route::v3::{
    self as route, Decorator, DirectResponseAction, RetryPolicy, Route, RouteAction,
    RouteConfiguration, RouteMatch, VirtualHost, retry_policy, route_action,
};
use envoy_types::pb::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;

use super::clusters;
use super::conflict::{Conflict, DUPLICATE_DOMAIN};
use super::domains;
use super::outlets::{Outlet, Outlets};
use super::proxy::Families;
use super::wire;
use crate::finish::Draft;

/// All HTTP ports behind one listener that applications use as a proxy.
pub(crate) const HTTP_PROXY: &str = "http_proxy";

const RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled,resource-exhausted,retriable-status-codes";

/// What the routes of two proxies differ by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) domain: Arc<str>,
    pub(crate) cluster: ClusterId,
    pub(crate) families: Families,
    /// What is unknown goes where it wanted to.
    pub(crate) allow_any: bool,
}

/// A configuration by its name; `None` where nothing has it.
pub(crate) fn outbound(
    name: &Arc<str>,
    outlets: &Outlets,
    caller: &Caller,
) -> Option<(Draft<RouteConfiguration>, Vec<Conflict>)> {
    if let Some((host, port)) = name.rsplit_once(':') {
        let outlet = outlets.by_name(&super::outlets::cluster_name(port.parse().ok()?, host))?;
        return outlet
            .protocol
            .is_auto()
            .then(|| (of_one(name, outlet), Vec::new()));
    }
    let proxy = &**name == HTTP_PROXY;
    let chosen: Vec<&Arc<Outlet>> = if proxy {
        outlets
            .all
            .iter()
            .filter(|outlet| is_http(outlet))
            .collect()
    } else {
        let port: u16 = name.parse().ok()?;
        let of_port = outlets.by_port.get(&port)?;
        of_port.iter().filter(|outlet| is_http(outlet)).collect()
    };
    if chosen.is_empty() && !proxy {
        return None;
    }
    let mut conflicts = Vec::new();
    let mut taken = HashSet::new();
    let mut hosts: Vec<VirtualHost> = chosen
        .into_iter()
        .filter_map(|outlet| {
            let domains = domains(outlet, caller, proxy, &mut taken, &mut conflicts);
            (!domains.is_empty()).then(|| host(outlet, domains))
        })
        .collect();
    hosts.sort_by(|one, other| one.name.cmp(&other.name));
    hosts.push(if caller.allow_any {
        allow_any()
    } else {
        block_all()
    });
    Some((finish(name, hosts), conflicts))
}

pub(crate) fn is_http(outlet: &Outlet) -> bool {
    outlet.protocol.is_http() || outlet.protocol.is_auto()
}

fn of_one(name: &Arc<str>, outlet: &Outlet) -> Draft<RouteConfiguration> {
    finish(name, vec![host(outlet, vec!["*".to_owned()])])
}

fn finish(name: &Arc<str>, virtual_hosts: Vec<VirtualHost>) -> Draft<RouteConfiguration> {
    let routes = RouteConfiguration {
        name: name.to_string(),
        virtual_hosts,
        validate_clusters: wire::boolean(false),
        ..RouteConfiguration::default()
    };
    Draft::new(name.clone(), routes)
}

/// By what a request may call the service, without what an older one is called by already.
fn domains(
    outlet: &Outlet,
    caller: &Caller,
    proxy: bool,
    taken: &mut HashSet<String>,
    conflicts: &mut Vec<Conflict>,
) -> Vec<String> {
    let port = outlet.port.number;
    let mut all = Vec::new();
    for form in domains::forms(outlet.host(), &caller.domain) {
        if outlet.service.is_headless() {
            all.extend(domains::with_port(&form, port));
            all.extend(domains::with_port(&format!("*.{form}"), port));
        } else {
            all.extend(domains::with_port(&form, port));
        }
    }
    for address in outlet.addresses(caller.cluster.as_str(), caller.families) {
        if let Address::Plain(address) = address {
            all.extend(domains::address_forms(address, port));
        }
    }
    if proxy && port != 80 {
        let suffix = format!(":{port}");
        all.retain(|domain| domain.ends_with(&suffix) && is_with_port(domain));
    }
    all.retain(|domain| {
        let new = taken.insert(domain.clone());
        if !new {
            let message = format!(
                "{} is left out: an older service has it",
                outlet.authority()
            );
            conflicts.push(Conflict::new(DUPLICATE_DOMAIN, domain, message));
        }
        new
    });
    all
}

/// The colon of a port, and not one of an address.
fn is_with_port(domain: &str) -> bool {
    domain.starts_with('[') || domain.matches(':').count() == 1
}

fn host(outlet: &Outlet, domains: Vec<String>) -> VirtualHost {
    let mut action = to(&outlet.name);
    action.retry_policy = Some(retries());
    action.max_stream_duration = Some(route_action::MaxStreamDuration {
        max_stream_duration: Some(wire::duration(Duration::ZERO)),
        grpc_timeout_header_max: Some(wire::duration(Duration::ZERO)),
        ..route_action::MaxStreamDuration::default()
    });
    VirtualHost {
        name: outlet.authority(),
        domains,
        routes: vec![Route {
            decorator: Some(decorator(outlet.host(), outlet.port.number)),
            ..everything("default", action)
        }],
        ..VirtualHost::default()
    }
}

fn decorator(host: &str, port: u16) -> Decorator {
    Decorator {
        operation: format!("{host}:{port}/*"),
        ..Decorator::default()
    }
}

fn to(cluster: &str) -> RouteAction {
    RouteAction {
        timeout: Some(wire::duration(Duration::ZERO)),
        cluster_specifier: Some(route_action::ClusterSpecifier::Cluster(cluster.to_owned())),
        ..RouteAction::default()
    }
}

fn everything(name: &str, action: RouteAction) -> Route {
    Route {
        name: name.to_owned(),
        r#match: Some(prefix("/")),
        action: Some(route::route::Action::Route(action)),
        ..Route::default()
    }
}

fn prefix(prefix: &str) -> RouteMatch {
    RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::Prefix(prefix.to_owned())),
        ..RouteMatch::default()
    }
}

fn retries() -> RetryPolicy {
    RetryPolicy {
        retry_on: RETRY_ON.to_owned(),
        num_retries: wire::number(2),
        retriable_status_codes: vec![503],
        retry_host_predicate: vec![retry_policy::RetryHostPredicate {
            name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
            config_type: Some(retry_policy::retry_host_predicate::ConfigType::TypedConfig(
                wire::any(&PreviousHostsPredicate {}),
            )),
        }],
        host_selection_retry_max_attempts: 5,
        ..RetryPolicy::default()
    }
}

fn allow_any() -> VirtualHost {
    VirtualHost {
        name: "allow_any".to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![everything("allow_any", to(clusters::PASSTHROUGH))],
        ..VirtualHost::default()
    }
}

fn block_all() -> VirtualHost {
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

/// Of an inbound port; it stands inside of its listener.
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

/// For a program with gRPC in it: all requests of one target.
pub(crate) fn grpc(name: &Arc<str>) -> Draft<RouteConfiguration> {
    let action = RouteAction {
        timeout: None,
        ..to(name)
    };
    let routes = RouteConfiguration {
        name: name.to_string(),
        virtual_hosts: vec![VirtualHost {
            name: name.to_string(),
            domains: vec!["*".to_owned()],
            routes: vec![Route {
                r#match: Some(prefix("")),
                action: Some(route::route::Action::Route(action)),
                ..Route::default()
            }],
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    };
    Draft::new(name.clone(), routes)
}
