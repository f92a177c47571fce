//! Names of filters as Envoy had them before its v3 API: EnvoyFilters of that time match by them.

/// Earlier names (Envoy's `extension_name_util`, gone since 1.16) and today's.
const RENAMED: [(&str, &str); 36] = [
    ("envoy.buffer", "envoy.filters.http.buffer"),
    (
        "envoy.client_ssl_auth",
        "envoy.filters.network.client_ssl_auth",
    ),
    ("envoy.cors", "envoy.filters.http.cors"),
    ("envoy.csrf", "envoy.filters.http.csrf"),
    ("envoy.echo", "envoy.filters.network.echo"),
    ("envoy.ext_authz", "envoy.filters.http.ext_authz"),
    ("envoy.fault", "envoy.filters.http.fault"),
    ("envoy.file_access_log", "envoy.access_loggers.file"),
    (
        "envoy.grpc_http1_bridge",
        "envoy.filters.http.grpc_http1_bridge",
    ),
    (
        "envoy.grpc_json_transcoder",
        "envoy.filters.http.grpc_json_transcoder",
    ),
    ("envoy.grpc_web", "envoy.filters.http.grpc_web"),
    ("envoy.gzip", "envoy.filters.http.gzip"),
    ("envoy.health_check", "envoy.filters.http.health_check"),
    (
        "envoy.http_connection_manager",
        "envoy.filters.network.http_connection_manager",
    ),
    ("envoy.http_dynamo_filter", "envoy.filters.http.dynamo"),
    (
        "envoy.http_grpc_access_log",
        "envoy.access_loggers.http_grpc",
    ),
    ("envoy.ip_tagging", "envoy.filters.http.ip_tagging"),
    (
        "envoy.listener.http_inspector",
        "envoy.filters.listener.http_inspector",
    ),
    (
        "envoy.listener.original_dst",
        "envoy.filters.listener.original_dst",
    ),
    (
        "envoy.listener.original_src",
        "envoy.filters.listener.original_src",
    ),
    (
        "envoy.listener.proxy_protocol",
        "envoy.filters.listener.proxy_protocol",
    ),
    (
        "envoy.listener.tls_inspector",
        "envoy.filters.listener.tls_inspector",
    ),
    ("envoy.lua", "envoy.filters.http.lua"),
    ("envoy.mongo_proxy", "envoy.filters.network.mongo_proxy"),
    ("envoy.original_dst", "envoy.filters.listener.original_dst"),
    ("envoy.rate_limit", "envoy.filters.http.ratelimit"),
    ("envoy.ratelimit", "envoy.filters.network.ratelimit"),
    ("envoy.redis_proxy", "envoy.filters.network.redis_proxy"),
    ("envoy.router", "envoy.filters.http.router"),
    ("envoy.squash", "envoy.filters.http.squash"),
    ("envoy.tcp_proxy", "envoy.filters.network.tcp_proxy"),
    ("envoy.tcp_grpc_access_log", "envoy.access_loggers.tcp_grpc"),
    ("http_inspector", "envoy.filters.listener.http_inspector"),
    ("original_dst", "envoy.filters.listener.original_dst"),
    ("proxy_protocol", "envoy.filters.listener.proxy_protocol"),
    ("tls_inspector", "envoy.filters.listener.tls_inspector"),
];

/// The name that a filter has today.
#[must_use]
pub fn todays_name(name: &str) -> &str {
    let row = RENAMED.iter().find(|(earlier, _)| *earlier == name);
    row.map_or(name, |(_, today)| today)
}
