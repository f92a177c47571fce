//! What fields of the mesh configuration must be beyond their types.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value as Json;

use crate::duration;
use crate::read::Rules;

const MESH: &str = "istio.mesh.v1alpha1.MeshConfig";
const PROXY: &str = "istio.mesh.v1alpha1.ProxyConfig";

pub(super) const RULES: Rules = &[
    (MESH, "proxy_listen_port", port),
    (MESH, "proxy_inbound_listen_port", port),
    (MESH, "proxy_http_port", port_or_none),
    (MESH, "connect_timeout", a_while),
    (MESH, "protocol_detection_timeout", a_while_or_none),
    (MESH, "rds_refresh_delay", a_while),
    (MESH, "sds_refresh_delay", a_while),
    (MESH, "dns_refresh_rate", a_while),
    (MESH, "report_batch_max_time", a_while),
    ("istio.mesh.v1alpha1.MeshConfig.CA", "address", address),
    (
        "istio.mesh.v1alpha1.MeshConfig.CA",
        "request_timeout",
        a_while,
    ),
    (PROXY, "drain_duration", a_while),
    (PROXY, "parent_shutdown_duration", a_while),
    (PROXY, "termination_drain_duration", a_while),
    (PROXY, "discovery_refresh_delay", a_while),
    (PROXY, "connect_timeout", a_while),
    (PROXY, "discovery_address", address),
    (PROXY, "zipkin_address", address_or_none),
    (PROXY, "statsd_udp_address", address_or_none),
    (PROXY, "envoy_metrics_service_address", address_or_none),
    (PROXY, "proxy_admin_port", port),
    (PROXY, "status_port", port),
    (PROXY, "stat_name_length", not_negative),
    (PROXY, "concurrency", not_negative),
    ("istio.mesh.v1alpha1.Tracing.Zipkin", "address", address),
    ("istio.mesh.v1alpha1.Tracing.Lightstep", "address", address),
    ("istio.mesh.v1alpha1.Tracing.Datadog", "address", address),
    ("istio.mesh.v1alpha1.RemoteService", "address", address),
    (
        "istio.mesh.v1alpha1.PrivateKeyProvider.CryptoMb",
        "poll_delay",
        a_while,
    ),
    (KEEPALIVE, "time", a_while),
    (KEEPALIVE, "interval", a_while),
    (
        "istio.networking.v1alpha3.HTTPRetry",
        "per_try_timeout",
        a_while_or_none,
    ),
];

const KEEPALIVE: &str = "istio.networking.v1alpha3.ConnectionPoolSettings.TCPSettings.TcpKeepalive";

fn port(value: &Json) -> Result<(), String> {
    match value.as_i64() {
        Some(1..=65535) => Ok(()),
        _ => Err(format!("want a port, 1 to 65535, got {value}")),
    }
}

fn port_or_none(value: &Json) -> Result<(), String> {
    if value.as_i64() == Some(0) {
        return Ok(());
    }
    port(value)
}

fn not_negative(value: &Json) -> Result<(), String> {
    match value.as_i64() {
        Some(0..) => Ok(()),
        _ => Err(format!("want a number from 0, got {value}")),
    }
}

fn a_while(value: &Json) -> Result<(), String> {
    const MILLISECOND: i128 = 1_000_000;
    match value.as_str().and_then(duration::parse) {
        Some(given) if duration::nanos(&given) >= MILLISECOND => Ok(()),
        Some(given) => Err(format!("want 1ms or more, got {}", duration::go(&given))),
        None => Err(format!("want a duration, got {value}")),
    }
}

fn a_while_or_none(value: &Json) -> Result<(), String> {
    if value.as_str() == Some("0s") {
        return Ok(());
    }
    a_while(value)
}

fn address_or_none(value: &Json) -> Result<(), String> {
    if value.as_str() == Some("") {
        return Ok(());
    }
    address(value)
}

fn address(value: &Json) -> Result<(), String> {
    if value.as_str().is_some_and(is_address) {
        return Ok(());
    }
    Err(format!("want host:port, got {value}"))
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let port_is_one = !port.is_empty()
        && port.bytes().all(|digit| digit.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0);
    port_is_one && is_host(host)
}

/// A name, an address of IPv4, one of IPv6 in brackets, or a variable that the pod will fill in: `$(HOST_IP)`.
fn is_host(host: &str) -> bool {
    if let Some(inner) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    if let Some(name) = host
        .strip_prefix("$(")
        .and_then(|rest| rest.strip_suffix(')'))
    {
        return !name.is_empty()
            && name
                .bytes()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == b'_');
    }
    host.parse::<Ipv4Addr>().is_ok() || is_name(host)
}

/// A DNS name; services may have underscores in front of them, numbers alone are a broken address.
fn is_name(host: &str) -> bool {
    const LONGEST: usize = 253;
    const LONGEST_PART: usize = 63;
    let host = host.strip_suffix('.').unwrap_or(host);
    let parts_are_right = host.split('.').all(|part| {
        !part.is_empty()
            && part.len() <= LONGEST_PART
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part
                .bytes()
                .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_'))
    });
    let last_is_a_word = host
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().any(|letter| !letter.is_ascii_digit()));
    host.len() <= LONGEST && parts_are_right && last_is_a_word
}
