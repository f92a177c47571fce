//! Fields of Envoy's v2 API that v3 lacks, in messages that v3 has: two of them are translated to fields of the same meaning, and
//! a finding about any other names its replacement.

use serde_json::{Map, Value as Json, json};

use super::descriptor_pool::is_json_name;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
pub(super) const FILTER: &str = "envoy.config.listener.v3.Filter";
const HTTP_FILTER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter";
pub(super) const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// A message, a field that it had, and the one to write.
pub(super) const SUCCESSORS: [(&str, &str, &str); 22] = [
    (CLUSTER, "hosts", "load_assignment"),
    (CLUSTER, "tls_context", "transport_socket"),
    (
        CLUSTER,
        "extension_protocol_options",
        "typed_extension_protocol_options",
    ),
    (MANAGER, "idle_timeout", "common_http_protocol_options"),
    (FILTER, "config", "typed_config"),
    (HTTP_FILTER, "config", "typed_config"),
    (
        "envoy.config.listener.v3.ListenerFilter",
        "config",
        "typed_config",
    ),
    (
        "envoy.config.core.v3.TransportSocket",
        "config",
        "typed_config",
    ),
    (
        "envoy.config.accesslog.v3.AccessLog",
        "config",
        "typed_config",
    ),
    (
        "envoy.config.listener.v3.FilterChain",
        "tls_context",
        "transport_socket",
    ),
    (
        "envoy.config.route.v3.VirtualHost",
        "per_filter_config",
        "typed_per_filter_config",
    ),
    (
        "envoy.config.route.v3.Route",
        "per_filter_config",
        "typed_per_filter_config",
    ),
    (
        "envoy.config.route.v3.WeightedCluster.ClusterWeight",
        "per_filter_config",
        "typed_per_filter_config",
    ),
    (
        "envoy.config.route.v3.RouteAction",
        "request_mirror_policy",
        "request_mirror_policies",
    ),
    ("envoy.config.route.v3.RouteMatch", "regex", "safe_regex"),
    (
        "envoy.config.route.v3.HeaderMatcher",
        "regex_match",
        "string_match",
    ),
    (
        "envoy.config.route.v3.QueryParameterMatcher",
        "value",
        "string_match",
    ),
    (
        "envoy.config.route.v3.QueryParameterMatcher",
        "regex",
        "string_match",
    ),
    (
        "envoy.config.route.v3.CorsPolicy",
        "allow_origin",
        "allow_origin_string_match",
    ),
    (
        "envoy.config.route.v3.CorsPolicy",
        "allow_origin_regex",
        "allow_origin_string_match",
    ),
    (
        "envoy.config.route.v3.CorsPolicy",
        "enabled",
        "filter_enabled",
    ),
    ("envoy.config.route.v3.VirtualCluster", "pattern", "headers"),
];

/// Returns the field to write in place of a field of v2.
pub(super) fn successor(message: &str, field: &str) -> Option<&'static str> {
    let mut all = SUCCESSORS.iter();
    let row = all.find(|(of, had, _)| *of == message && is_json_name(had, field));
    row.map(|(.., has)| *has)
}

/// The fields of a message with those that v3 has of others: `hosts` of a cluster, and `idle_timeout` of a connection manager.
/// `None`: the message has neither field, or both the old one and its replacement.
pub(super) fn translated(message: &str, fields: &[(&String, &Json)]) -> Option<Map<String, Json>> {
    let (old, new) = match message {
        CLUSTER => ("hosts", "load_assignment"),
        MANAGER => ("idle_timeout", "common_http_protocol_options"),
        _ => return None,
    };
    let get = |name: &str| {
        let mut all = fields.iter();
        let entry = all.find(|(key, value)| is_json_name(name, key) && !value.is_null());
        entry.map(|(_, value)| *value)
    };
    let value = get(old)?;
    if fields
        .iter()
        .filter(|(key, _)| is_json_name(old, key))
        .count()
        > 1
    {
        // In both spellings: which one counts is not ours to say.
        return None;
    }
    let today = match (message, get(new)) {
        (CLUSTER, None) => assignment(get("name"), value)?,
        (MANAGER, None) => json!({ old: value }),
        (MANAGER, Some(Json::Object(options))) => {
            let mut options = options.clone();
            if options.keys().any(|key| is_json_name(old, key)) {
                return None;
            }
            options.insert(old.to_owned(), value.clone());
            Json::Object(options)
        }
        _ => return None,
    };
    let others = fields.iter();
    let others = others.filter(|(key, _)| !is_json_name(old, key) && !is_json_name(new, key));
    let others = others.map(|(key, value)| ((*key).clone(), (*value).clone()));
    Some(others.chain([(new.to_owned(), today)]).collect())
}

/// Builds the assignment that takes the place of a cluster's `hosts`; `None` if these are no list.
fn assignment(cluster: Option<&Json>, hosts: &Json) -> Option<Json> {
    let hosts = hosts.as_array()?.iter();
    let endpoints: Vec<Json> = hosts
        .map(|address| json!({"endpoint": {"address": address}}))
        .collect();
    let mut assignment = json!({"endpoints": [{"lb_endpoints": endpoints}]});
    if let (Some(assignment), Some(name)) = (assignment.as_object_mut(), cluster) {
        assignment.insert("cluster_name".to_owned(), name.clone());
    }
    Some(assignment)
}
