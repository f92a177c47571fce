//! Notes on the patches of an EnvoyFilter that are not applied.

use serde_json::Value as Json;

use super::items;
use super::targets::holds_for_none;
use crate::config::Finding;
use crate::envoy::{self, MissingPart};

/// Patches of one object that are applied. Chosen: a filter of ours has a few.
pub const MAX_PATCHES: usize = 200;

/// Returns Envoy's message for the value of a patch, by its `applyTo`; `None`: discovery makes no such resource.
#[must_use]
pub fn patched_message(apply_to: &str) -> Option<&'static str> {
    Some(match apply_to {
        "LISTENER" => "envoy.config.listener.v3.Listener",
        "LISTENER_FILTER" => "envoy.config.listener.v3.ListenerFilter",
        "FILTER_CHAIN" => "envoy.config.listener.v3.FilterChain",
        "NETWORK_FILTER" => "envoy.config.listener.v3.Filter",
        "HTTP_FILTER" => "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
        "ROUTE_CONFIGURATION" => "envoy.config.route.v3.RouteConfiguration",
        "VIRTUAL_HOST" => "envoy.config.route.v3.VirtualHost",
        "HTTP_ROUTE" => "envoy.config.route.v3.Route",
        "CLUSTER" => "envoy.config.cluster.v3.Cluster",
        _ => return None,
    })
}

/// Returns true if an operation is possible for an `applyTo`: only filters and routes have an order, and a route configuration
/// can be neither added nor removed.
#[must_use]
pub fn is_applied(apply_to: &str, operation: &str) -> bool {
    let has_order = has_order(apply_to);
    match operation {
        "MERGE" | "MERGE_AND_REPLACE_LIST" | "REPLACE" => true,
        "ADD" | "REMOVE" => apply_to != "ROUTE_CONFIGURATION",
        "INSERT_BEFORE" | "INSERT_AFTER" | "INSERT_FIRST" => has_order,
        _ => false,
    }
}

fn has_order(apply_to: &str) -> bool {
    matches!(
        apply_to,
        "LISTENER_FILTER" | "NETWORK_FILTER" | "HTTP_FILTER" | "HTTP_ROUTE"
    )
}

/// Returns true if a patch is to replace one of several, or to remove a filter, and does not say which: all of them would be one
/// and the same, or none would be left, so it is not applied. Routes, which have no name of their own, are removed together.
#[must_use]
pub fn lacks_name(apply_to: &str, operation: &str, is_named: bool) -> bool {
    let wants_name = match operation {
        "REPLACE" => has_order(apply_to),
        "REMOVE" => has_order(apply_to) && apply_to != "HTTP_ROUTE",
        _ => false,
    };
    wants_name && !is_named
}

/// Returns true if a match has conditions without a meaning here, so that its patch is not applied: waypoints, and names of ports
/// of listeners.
#[must_use]
pub fn is_unapplied_match(is_waypoint: bool, port_name: &str) -> bool {
    is_waypoint || !port_name.is_empty()
}

/// Returns true if a patch as it is written names nothing to replace or remove: see [`lacks_name`].
#[must_use]
pub fn names_nothing(patch: &Json) -> bool {
    let text = |pointer: &str| patch.pointer(pointer).and_then(Json::as_str);
    let apply_to = text("/applyTo").unwrap_or_default();
    let name = match apply_to {
        "HTTP_FILTER" => "/match/listener/filterChain/filter/subFilter/name",
        "NETWORK_FILTER" => "/match/listener/filterChain/filter/name",
        "LISTENER_FILTER" => "/match/listener/listenerFilter",
        _ => "/match/routeConfiguration/vhost/route",
    };
    let is_named = patch.pointer(name).is_some_and(|one| *one != "");
    let operation = text("/patch/operation").unwrap_or_default();
    lacks_name(apply_to, operation, is_named)
}

/// Returns the field without which Envoy refuses the value of a patch, and the whole listener or all routes with it; `None`: no
/// such field is missing. `has` returns true for a field that is written, by either of its names, and not empty.
#[must_use]
pub fn missing_field(
    apply_to: &str,
    operation: &str,
    has: impl Fn(&str) -> bool,
) -> Option<&'static str> {
    let puts_in = match operation {
        "ADD" | "INSERT_BEFORE" | "INSERT_AFTER" | "INSERT_FIRST" => true,
        "REPLACE" => !keeps_name(apply_to),
        _ => false,
    };
    let needed: &[(&'static str, &[&str])] = match apply_to {
        _ if !puts_in => &[],
        "LISTENER" | "CLUSTER" | "LISTENER_FILTER" | "NETWORK_FILTER" | "HTTP_FILTER" => {
            &[("name", &["name"])]
        }
        "VIRTUAL_HOST" => &[("name", &["name"]), ("domains", &["domains"])],
        "HTTP_ROUTE" => &[("match", &["match"]), ("action", &ROUTE_ACTIONS)],
        _ => &[],
    };
    let missing = needed
        .iter()
        .find(|(_, names)| !names.iter().any(|name| has(name)));
    missing.map(|(field, _)| *field)
}

/// Returns the part of a patch's encoded value that lacks a field which Envoy requires: as [`missing_field`], at any depth.
#[must_use]
pub fn missing_part(apply_to: &str, operation: &str, value: &[u8]) -> Option<MissingPart> {
    /// A field of the number 1 with a text.
    const NAMED: [u8; 3] = [0x0a, 1, b'a'];
    let message = patched_message(apply_to)?;
    let is_merged = matches!(operation, "MERGE" | "MERGE_AND_REPLACE_LIST");
    match operation == "REPLACE" && keeps_name(apply_to) {
        true => envoy::missing_part(message, &[value, &NAMED].concat(), true),
        false => envoy::missing_part(message, value, !is_merged),
    }
}

/// Returns true for those of which a name that is known stays.
fn keeps_name(apply_to: &str) -> bool {
    matches!(apply_to, "LISTENER" | "CLUSTER")
}

/// The oneof of a route, in both spellings.
const ROUTE_ACTIONS: [&str; 8] = [
    "route",
    "redirect",
    "direct_response",
    "directResponse",
    "filter_action",
    "filterAction",
    "non_forwarding_action",
    "nonForwardingAction",
];

fn is_written(value: Option<&Json>) -> bool {
    value.is_some_and(|value| match value {
        Json::Null => false,
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(_) | Json::Bool(_) | Json::Number(_) => true,
    })
}

pub(in crate::config) fn notes(spec: &Json) -> Vec<Finding> {
    let mut findings = Vec::new();
    if items(spec, "targetRefs").next().is_some() {
        let why = "there are no waypoints and no gateways of the Gateway API; a workloadSelector finds workloads";
        findings.push(holds_for_none("spec.targetRefs", why));
    }
    if items(spec, "configPatches").count() > MAX_PATCHES {
        let why = format!("are applied in part: the first {MAX_PATCHES} are");
        findings.push(Finding::warning("spec.configPatches", why));
    }
    let patches: Vec<_> = items(spec, "configPatches").take(MAX_PATCHES).collect();
    for (at, patch) in &patches {
        let later = patches.get(at + 1..).unwrap_or_default();
        let is_completed = later.iter().any(|(_, later)| {
            let text = |pointer| later.pointer(pointer).and_then(Json::as_str);
            let apply_to = patch.pointer("/applyTo").and_then(Json::as_str);
            may_complete(
                apply_to.unwrap_or_default(),
                text("/applyTo").unwrap_or_default(),
                text("/patch/operation").unwrap_or_default(),
            )
        });
        let path = format!("spec.configPatches[{at}]");
        one(&path, patch, is_completed, &mut findings);
    }
    findings
}

/// Returns true if a later patch of the object may add the missing part to the value of an earlier one, or remove the value.
#[must_use]
pub fn may_complete(apply_to: &str, later: &str, operation: &str) -> bool {
    let changes = matches!(operation, "MERGE" | "MERGE_AND_REPLACE_LIST" | "REMOVE");
    changes && (apply_to == later || (apply_to == "LISTENER" && later == "FILTER_CHAIN"))
}

fn one(path: &str, patch: &Json, is_completed: bool, findings: &mut Vec<Finding>) {
    let mut warn = |place: &str, why: String| {
        findings.push(Finding::warning(format!("{path}.{place}"), why));
    };
    let text = |pointer: &str| {
        patch
            .pointer(pointer)
            .and_then(Json::as_str)
            .unwrap_or_default()
    };
    let apply_to = text("/applyTo");
    let Some(message) = patched_message(apply_to) else {
        warn(
            "applyTo",
            format!("has no effect: discovery makes no {apply_to}"),
        );
        return;
    };
    let operation = text("/patch/operation");
    if !is_applied(apply_to, operation) {
        warn("patch.operation", format!("has no effect with {apply_to}"));
        return;
    }
    let is_waypoint =
        text("/match/context") == "WAYPOINT" || patch.pointer("/match/waypoint").is_some();
    if is_unapplied_match(is_waypoint, text("/match/listener/portName")) {
        let (place, why) = match is_waypoint {
            true if patch.pointer("/match/waypoint").is_some() => {
                ("match.waypoint", "is not applied: there are no waypoints")
            }
            true => ("match.context", "is not applied: there are no waypoints"),
            false => (
                "match.listener.portName",
                "is not applied: listeners are matched by portNumber",
            ),
        };
        warn(place, why.to_owned());
        return;
    }
    if names_nothing(patch) {
        let what = match apply_to {
            "HTTP_ROUTE" => "route",
            _ => "filter",
        };
        let verb = operation.to_ascii_lowercase();
        let why = format!("has no effect: the match names no {what} to {verb}");
        warn("patch.operation", why);
        return;
    }
    if !matches!(text("/patch/filterClass"), "" | "UNSPECIFIED") {
        let why = "has no effect: the operation alone says where a filter goes";
        warn("patch.filterClass", why.to_owned());
    }
    if operation == "REMOVE" {
        return;
    }
    let path = format!("{path}.patch.value");
    value(&path, patch, (message, is_completed), findings);
}

/// Notes of the value of a patch that puts something in or over a message; `path`: of the value.
fn value(
    path: &str,
    patch: &Json,
    (message, is_completed): (&str, bool),
    findings: &mut Vec<Finding>,
) {
    let text = |pointer| patch.pointer(pointer).and_then(Json::as_str);
    let apply_to = text("/applyTo").unwrap_or_default();
    let operation = text("/patch/operation").unwrap_or_default();
    let nothing = Json::Object(serde_json::Map::new());
    let value = patch.pointer("/patch/value").unwrap_or(&nothing);
    let is_not_applied = |finding: Finding| Finding {
        message: format!("the patch is not applied: {}", finding.message),
        ..finding
    };
    let encoded = match envoy::encode(message, value, path) {
        Ok(encoded) => encoded,
        Err(mistakes) => {
            findings.extend(mistakes.into_iter().map(is_not_applied));
            return;
        }
    };
    let lack = match missing_field(apply_to, operation, |name| is_written(value.get(name))) {
        Some(field) => Some(Finding::warning(path, format!("it has no {field}"))),
        None if is_completed => None,
        None => {
            missing_part(apply_to, operation, &encoded).map(|MissingPart { path: part, why }| {
                let dot = if part.is_empty() { "" } else { "." };
                Finding::warning(format!("{path}{dot}{part}"), why)
            })
        }
    };
    findings.extend(lack.map(is_not_applied));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{named, notes};

    /// Envoy refuses the whole listener, or all routes, for one.
    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of patches")]
    fn a_note_names_a_patch_that_puts_in_what_envoy_refuses() {
        let kind = named("networking.istio.io", "EnvoyFilter").unwrap();
        let config =
            json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"});
        let typed = json!({"typedConfig": config});
        let route = json!({"match": {"prefix": "/"}});
        let route_to = json!({"match": {"prefix": "/"}, "route": {"cluster": "a"}});
        for (apply_to, operations, value, lacks) in [
            (
                "HTTP_FILTER",
                &["ADD", "INSERT_FIRST", "INSERT_BEFORE", "INSERT_AFTER"][..],
                typed,
                "name",
            ),
            (
                "NETWORK_FILTER",
                &["ADD", "INSERT_FIRST"],
                json!({}),
                "name",
            ),
            (
                "LISTENER_FILTER",
                &["ADD", "INSERT_AFTER"],
                json!({"name": ""}),
                "name",
            ),
            ("VIRTUAL_HOST", &["ADD"], json!({"domains": ["a"]}), "name"),
            (
                "VIRTUAL_HOST",
                &["ADD", "REPLACE"],
                json!({"name": "a", "domains": []}),
                "domains",
            ),
            (
                "HTTP_ROUTE",
                &["ADD", "INSERT_FIRST"],
                json!({"directResponse": {"status": 200}}),
                "match",
            ),
            ("HTTP_ROUTE", &["ADD"], route, "action"),
            ("CLUSTER", &["ADD"], json!({}), "name"),
            ("LISTENER", &["ADD"], json!({}), "name"),
        ] {
            for operation in operations {
                let patch =
                    json!({"applyTo": apply_to, "patch": {"operation": operation, "value": value}});
                let findings = notes(kind, &json!({"configPatches": [patch]}));
                let found: Vec<_> = findings.iter().map(ToString::to_string).collect();
                let want = format!(
                    "spec.configPatches[0].patch.value: the patch is not applied: it has no {lacks}"
                );
                assert_eq!(found.len(), 1, "{patch}: {found:?}");
                assert!(found[0].ends_with(&want), "{patch}: {found:?}");
            }
        }
        for (apply_to, operation, value) in [
            ("HTTP_FILTER", "MERGE", json!({})),
            (
                "HTTP_FILTER",
                "INSERT_FIRST",
                json!({"name": "a", "typedConfig": config}),
            ),
            // Nothing says what is below these.
            ("VIRTUAL_HOST", "MERGE", json!({"routes": [route_to]})),
            ("HTTP_ROUTE", "MERGE", json!({"route": {}})),
            (
                "CLUSTER",
                "MERGE",
                json!({"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "common_http_protocol_options": {"idle_timeout": "5s"},
                }}}),
            ),
            ("CLUSTER", "REPLACE", json!({})),
            ("FILTER_CHAIN", "ADD", json!({})),
            (
                "VIRTUAL_HOST",
                "ADD",
                json!({"name": "a", "domains": ["a"]}),
            ),
            (
                "HTTP_ROUTE",
                "ADD",
                json!({"match": {"prefix": "/"}, "direct_response": {"status": 200}}),
            ),
        ] {
            let patch =
                json!({"applyTo": apply_to, "patch": {"operation": operation, "value": value}});
            assert_eq!(
                notes(kind, &json!({"configPatches": [patch]})),
                [],
                "{patch}"
            );
        }
    }

    /// As above, of parts below what is put in.
    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of patches")]
    fn a_note_names_the_part_that_lacks_what_envoy_wants() {
        let kind = named("networking.istio.io", "EnvoyFilter").unwrap();
        let manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
        let no_path = "it has none of prefix, path, safe_regex, connect_matcher, path_separated_prefix, path_match_policy";
        for (apply_to, operation, value, place, why) in [
            (
                "HTTP_ROUTE",
                "ADD",
                json!({"match": {}, "route": {"cluster": "a"}}),
                ".match",
                no_path,
            ),
            (
                "HTTP_ROUTE",
                "INSERT_FIRST",
                json!({"match": {"prefix": "/"}, "route": {"weightedClusters": {"clusters": []}}}),
                ".route.weighted_clusters",
                "it has no clusters",
            ),
            (
                "FILTER_CHAIN",
                "ADD",
                json!({"filters": [{"name": "a"}]}),
                ".filters[0]",
                "it has no typed_config",
            ),
            (
                "FILTER_CHAIN",
                "ADD",
                json!({"filters": [{"typedConfig": {"@type": manager}}]}),
                ".filters[0]",
                "it has no name",
            ),
            (
                "FILTER_CHAIN",
                "MERGE",
                json!({"filters": [{"name": "a", "typed_config": {"@type": manager, "rds": {}}}]}),
                ".filters[0].typed_config",
                "it has no stat_prefix",
            ),
            (
                "LISTENER",
                "ADD",
                json!({"name": "a", "filterChains": [{"filters": []}]}),
                "",
                "it has no address",
            ),
            (
                "LISTENER",
                "ADD",
                json!({"name": "a", "address": {"socketAddress": {"address": "::", "portValue": 1}}, "filterChains": [{"name": "a"}, {"filterChainMatch": {}}]}),
                "",
                "two of its filter_chains match the same",
            ),
            (
                "CLUSTER",
                "REPLACE",
                json!({"transportSocket": {"name": "a"}}),
                ".transport_socket",
                "it has no typed_config",
            ),
            (
                "VIRTUAL_HOST",
                "MERGE",
                json!({"routes": [{"match": {}}]}),
                ".routes[0]",
                "it has none of",
            ),
        ] {
            let patch =
                json!({"applyTo": apply_to, "patch": {"operation": operation, "value": value}});
            let findings = notes(kind, &json!({"configPatches": [patch]}));
            let [finding] = &*findings else {
                panic!("not one: {patch}: {findings:?}");
            };
            assert_eq!(
                finding.path,
                format!("spec.configPatches[0].patch.value{place}")
            );
            let words = format!("the patch is not applied: {why}");
            assert!(finding.message.starts_with(&words), "{patch}: {finding:?}");
        }
    }

    /// Envoy refuses the listener whatever later patches add to it.
    #[test]
    fn a_note_names_an_internal_listener() {
        let kind = named("networking.istio.io", "EnvoyFilter").unwrap();
        let patch = |operation: &str, value: Json| json!({"applyTo": "LISTENER", "patch": {"operation": operation, "value": value}});
        let added = patch("ADD", json!({"name": "a", "internal_listener": {}}));
        let merged = patch("MERGE", json!({"traffic_direction": "OUTBOUND"}));
        let findings = notes(kind, &json!({"configPatches": [added, merged]}));
        let found: Vec<_> = findings.iter().map(ToString::to_string).collect();
        let want = "warning: spec.configPatches[0].patch.value.internal_listener: the patch is not applied: the proxy's bootstrap \
                    has no internal listeners";
        assert_eq!(found, [want]);
    }

    /// Each patch is applied to what the earlier ones have left.
    #[test]
    fn a_part_that_a_later_patch_may_give_is_not_missed() {
        let kind = named("networking.istio.io", "EnvoyFilter").unwrap();
        let patch = |apply_to: &str, operation: &str, value: Json| json!({"applyTo": apply_to, "patch": {"operation": operation, "value": value}});
        let added = patch(
            "LISTENER",
            "ADD",
            json!({"name": "a", "filterChains": [{"filters": []}]}),
        );
        let address = json!({"address": {"socketAddress": {"address": "::", "portValue": 1}}});
        let given = patch("LISTENER", "MERGE", address);
        let notes = |patches: &[&Json]| notes(kind, &json!({"configPatches": patches}));
        assert_eq!(notes(&[&added, &given]), []);
        assert_eq!(notes(&[&given, &added]).len(), 1);
        assert_eq!(notes(&[&added]).len(), 1);
        // Envoy reads the first policy that it knows alone.
        let policy = |name: &str| json!({"typedExtensionConfig": {"name": "a", "typedConfig": {"@type": format!("type.googleapis.com/envoy.extensions.load_balancing_policies.{name}")}}});
        let first = policy("round_robin.v3.RoundRobin");
        let second = policy("wrr_locality.v3.WrrLocality");
        let cluster = |policies: [&Json; 2]| {
            let value = json!({"name": "a", "loadBalancingPolicy": {"policies": policies}});
            patch("CLUSTER", "ADD", value)
        };
        assert_eq!(notes(&[&cluster([&first, &second])]), []);
        assert_eq!(notes(&[&cluster([&second, &first])]).len(), 1);
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of patches")]
    fn a_note_names_a_patch_that_is_not_applied() {
        let kind = named("networking.istio.io", "EnvoyFilter").unwrap();
        let said = |spec: Json| -> Vec<String> {
            let notes = notes(kind, &spec).into_iter();
            let words = notes.map(|note| format!("{}: {}", note.path, note.message));
            words.collect()
        };
        let value = json!({"lb_policy": "RANDOM"});
        let config =
            json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"});
        let filter = json!({"name": "x", "typed_config": config});
        let merge = json!({"operation": "MERGE", "value": value});
        for (patch, want) in [
            (json!({"applyTo": "CLUSTER", "patch": merge}), None),
            (
                json!({"apply_to": 8, "patch": {"operation": 1, "value": value}}),
                None,
            ),
            (
                json!({"applyTo": "BOOTSTRAP", "patch": merge}),
                Some("applyTo: has no effect: discovery makes no BOOTSTRAP"),
            ),
            (
                json!({"applyTo": "EXTENSION_CONFIG", "patch": merge}),
                Some("applyTo: has no effect: discovery makes no EXTENSION_CONFIG"),
            ),
            (
                json!({"applyTo": "CLUSTER", "patch": {"operation": "INSERT_FIRST", "value": value}}),
                Some("patch.operation: has no effect with CLUSTER"),
            ),
            (
                json!({"applyTo": "ROUTE_CONFIGURATION", "patch": {"operation": "ADD", "value": {}}}),
                Some("patch.operation: has no effect with ROUTE_CONFIGURATION"),
            ),
            (
                json!({"applyTo": "CLUSTER", "match": {"context": "WAYPOINT"}, "patch": merge}),
                Some("match.context: is not applied: there are no waypoints"),
            ),
            (
                json!({"applyTo": "LISTENER", "match": {"listener": {"portName": "a"}}, "patch": {"operation": "REMOVE"}}),
                Some(
                    "match.listener.portName: is not applied: listeners are matched by portNumber",
                ),
            ),
            (
                json!({"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": {"lb_polic": 1}}}),
                Some(
                    "patch.value.lb_polic: the patch is not applied: unknown field of envoy.config.cluster.v3.Cluster, did you mean \"lb_policy\"?",
                ),
            ),
            (
                json!({"applyTo": "HTTP_FILTER", "match": {"listener": {"filterChain": {"filter": {"name": "m"}}}}, "patch": {"operation": "REPLACE", "value": {"name": "x"}}}),
                Some("patch.operation: has no effect: the match names no filter to replace"),
            ),
            (
                json!({"applyTo": "HTTP_FILTER", "match": {"listener": {"filterChain": {"filter": {"subFilter": {"name": "f"}}}}}, "patch": {"operation": "REPLACE", "value": filter}}),
                None,
            ),
            (
                json!({"applyTo": "HTTP_FILTER", "match": {"listener": {"filterChain": {"filter": {"name": "m"}}}}, "patch": {"operation": "REMOVE"}}),
                Some("patch.operation: has no effect: the match names no filter to remove"),
            ),
            (
                json!({"applyTo": "LISTENER_FILTER", "patch": {"operation": "REMOVE"}}),
                Some("patch.operation: has no effect: the match names no filter to remove"),
            ),
            (
                json!({"applyTo": "HTTP_ROUTE", "match": {"routeConfiguration": {"vhost": {"name": "v"}}}, "patch": {"operation": "REMOVE"}}),
                None,
            ),
            (
                json!({"applyTo": "NETWORK_FILTER", "match": {"listener": {"filterChain": {"filter": {"name": "m"}}}}, "patch": {"operation": "REPLACE", "value": filter}}),
                None,
            ),
            (
                json!({"applyTo": "NETWORK_FILTER", "patch": {"operation": "REPLACE", "value": {"name": "x"}}}),
                Some("patch.operation: has no effect: the match names no filter to replace"),
            ),
            (
                json!({"applyTo": "LISTENER_FILTER", "match": {"listener": {"listenerFilter": ""}}, "patch": {"operation": "REPLACE", "value": {"name": "x"}}}),
                Some("patch.operation: has no effect: the match names no filter to replace"),
            ),
            (
                json!({"applyTo": "HTTP_ROUTE", "match": {"routeConfiguration": {"vhost": {"name": "v"}}}, "patch": {"operation": "REPLACE", "value": {"name": "x"}}}),
                Some("patch.operation: has no effect: the match names no route to replace"),
            ),
            (
                json!({"applyTo": "HTTP_FILTER", "patch": {"operation": "INSERT_FIRST", "value": {"name": "x", "config_discovery": {"config_source": {"ads": {}}}}}}),
                Some(
                    "patch.value.config_discovery: the patch is not applied: discovery serves no extension configuration: write it in typed_config",
                ),
            ),
            (
                json!({"applyTo": "HTTP_FILTER", "patch": {"operation": "ADD", "filterClass": "AUTHZ", "value": filter}}),
                Some(
                    "patch.filterClass: has no effect: the operation alone says where a filter goes",
                ),
            ),
        ] {
            let found = said(json!({"configPatches": [patch]}));
            let want = want.map(|words| format!("spec.configPatches[0].{words}"));
            assert_eq!(found, want.into_iter().collect::<Vec<_>>(), "{patch}");
        }
        let earlier = said(json!({"filters": [{}]}));
        assert_eq!(earlier, ["spec.filters: has no effect in this release"]);
        for kind in ["Service", "Gateway"] {
            let targets = said(json!({"targetRefs": [{"kind": kind, "name": "a"}]}));
            let want = "spec.targetRefs: holds for no proxy: there are no waypoints and no gateways of the Gateway API; a workloadSelector finds workloads";
            assert_eq!(targets, [want], "{kind}");
        }
        let many = vec![json!({"applyTo": "BOOTSTRAP", "patch": merge}); MAX_PATCHES + 1];
        let found = said(json!({"configPatches": many}));
        assert_eq!(found.len(), MAX_PATCHES + 1);
        assert_eq!(
            found[0],
            "spec.configPatches: are applied in part: the first 200 are"
        );
    }
}
