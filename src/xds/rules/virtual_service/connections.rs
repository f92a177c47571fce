//! Where connections go that carry no requests: a rule's `tls` by server names, and its `tcp` (discovery.md §14).

use std::sync::Arc;

use api::istio::networking::v1alpha3::{L4MatchAttributes, RouteDestination, TlsMatchAttributes};
use api::model::{Network, ObjectRef};

use super::{only, written_port};
use crate::common::outlets::{Outlet, subset_name};
use crate::scope::{ProxyRules, is_of_mesh};

/// Clusters with their weights; one alone may have none.
pub(crate) type Shares = Vec<(Arc<str>, u32)>;

/// Connections that are told from others of their port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// In lower case; none: whatever name the client says.
    pub(crate) names: Vec<String>,
    /// Where the client wanted to go; none: anywhere.
    pub(crate) ranges: Vec<Network>,
    pub(crate) source: Option<Network>,
    pub(crate) to: Shares,
}

/// What a rule makes of connections to a port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Connections {
    /// In order: of two with the same conditions the first counts.
    pub(crate) targets: Vec<Target>,
    /// What none of these is for; `None`: it goes nowhere.
    pub(crate) rest: Option<Shares>,
    pub(crate) from: ObjectRef,
}

/// `None`: no rule says anything of connections of this proxy to this port.
pub(crate) fn connections(rules: &ProxyRules, outlet: &Outlet) -> Option<Connections> {
    let rule = rules.connection_rule(outlet.host())?;
    let spec = rule.spec();
    let (mut targets, mut rest) = (Vec::new(), None);
    let mut is_matched = false;
    let shares = |route: &[RouteDestination]| shares(rules, outlet, route, rule.namespace());
    if outlet.protocol.has_server_name() {
        for route in &spec.tls {
            let holding = route.r#match.iter().filter(|one| {
                let TlsMatchAttributes {
                    port,
                    source_labels,
                    gateways,
                    source_namespace,
                    ..
                } = one;
                let has_port = *port == 0 || *port == u32::from(outlet.port.number);
                has_port
                    && is_of_mesh(gateways)
                    && rules.is_in(source_namespace)
                    && rules.meets(source_labels)
            });
            for one in holding {
                is_matched = true;
                let names = one.sni_hosts.iter().map(|name| name.to_ascii_lowercase());
                targets.push(Target {
                    names: names.collect(),
                    ranges: networks(&one.destination_subnets),
                    source: None,
                    to: shares(&route.route)?,
                });
            }
        }
        let from = rule.from.clone();
        return is_matched.then_some(Connections {
            targets,
            rest: None,
            from,
        });
    }
    'all: for route in &spec.tcp {
        if route.r#match.is_empty() {
            is_matched = true;
            rest = shares(&route.route);
            break;
        }
        for one in route.r#match.iter().filter(|one| holds(rules, outlet, one)) {
            is_matched = true;
            let target = Target {
                names: Vec::new(),
                ranges: networks(&one.destination_subnets),
                source: one.source_subnet.parse().ok(),
                to: shares(&route.route)?,
            };
            if target.ranges.is_empty() && target.source.is_none() {
                rest = Some(target.to);
                break 'all;
            }
            targets.push(target);
        }
    }
    is_matched.then(|| Connections {
        targets,
        // What no match is for goes where it would without the rule.
        rest: rest.or_else(|| Some(vec![(outlet.name.clone(), 0)])),
        from: rule.from.clone(),
    })
}

fn holds(rules: &ProxyRules, outlet: &Outlet, one: &L4MatchAttributes) -> bool {
    let has_port = one.port == 0 || one.port == u32::from(outlet.port.number);
    has_port
        && is_of_mesh(&one.gateways)
        && rules.is_in(&one.source_namespace)
        && rules.meets(&one.source_labels)
}

/// As they were checked when they were read.
fn networks(written: &[String]) -> Vec<Network> {
    written
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect()
}

/// `None`: there is nowhere to go.
fn shares(
    rules: &ProxyRules,
    outlet: &Outlet,
    route: &[RouteDestination],
    namespace: &str,
) -> Option<Shares> {
    let mut all: Shares = Vec::new();
    for one in route {
        let Some(to) = &one.destination else {
            continue;
        };
        let host = rules.full_host(&to.host, namespace);
        let known: Vec<_> = rules.outlets().by_host(&host).collect();
        let port = written_port(to).or_else(|| only(&known));
        let port = port.unwrap_or(outlet.port.number);
        let weight = u32::try_from(one.weight).unwrap_or_default();
        all.push((subset_name(port, &to.subset, &host), weight));
    }
    if all.iter().any(|(_, weight)| *weight > 0) {
        all.retain(|(_, weight)| *weight > 0);
    } else {
        all.truncate(1);
    }
    (!all.is_empty()).then_some(all)
}
