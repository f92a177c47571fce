//! What fields of the mesh configuration must be beyond their types.

use std::net::{Ipv4Addr, Ipv6Addr};

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::MeshConfig;
use super::mesh_config::AccessLogEncoding;
use crate::duration;
use crate::istio::networking::v1alpha3::LocalityLoadBalancerSetting;
use crate::names::is_name;
use crate::read::{Invalid, Rules};

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

/// What fields must be together.
pub(super) fn whole(mesh: &MeshConfig) -> Result<(), Invalid> {
    let wrong = |path: String, cause: String| Invalid {
        path,
        line: 0,
        cause,
    };
    let format = &mesh.access_log_format;
    if mesh.access_log_encoding() == AccessLogEncoding::Json && !format.is_empty() {
        json_format(format).map_err(|error| {
            let cause = format!("want an object of strings with the encoding JSON: {error}");
            wrong("accessLogFormat".to_owned(), cause)
        })?;
    }
    if !mesh.trust_domain.is_empty() && !is_name(&mesh.trust_domain) {
        let cause = format!("want a name, got {:?}", mesh.trust_domain);
        return Err(wrong("trustDomain".to_owned(), cause));
    }
    match &mesh.locality_lb_setting {
        Some(setting) => locality(setting)
            .map_err(|(path, cause)| wrong(format!("localityLbSetting{path}"), cause)),
        None => Ok(()),
    }
}

/// The items of an access log in JSON: name and format.
pub(super) fn json_format(format: &str) -> Result<BTreeMap<String, String>, serde_json::Error> {
    serde_json::from_str(format)
}

fn locality(setting: &LocalityLoadBalancerSetting) -> Result<(), (String, String)> {
    if !setting.distribute.is_empty() && !setting.failover.is_empty() {
        let cause = "not beside distribute".to_owned();
        return Err((".failover".to_owned(), cause));
    }
    for (at, distribute) in setting.distribute.iter().enumerate() {
        let path = || format!(".distribute[{at}]");
        if distribute.from.is_empty() {
            return Err((path() + ".from", "want a locality".to_owned()));
        }
        let sum: u64 = distribute
            .to
            .values()
            .map(|weight| u64::from(*weight))
            .sum();
        if sum != 100 || distribute.to.values().any(|weight| *weight == 0) {
            let cause = format!("want percentages from 1 that sum up to 100, got {sum} in all");
            return Err((path() + ".to", cause));
        }
    }
    for (at, failover) in setting.failover.iter().enumerate() {
        for (name, region) in [("from", &failover.from), ("to", &failover.to)] {
            if region.is_empty() || region.contains(['/', '*']) {
                let cause = format!("want a region, got {region:?}");
                return Err((format!(".failover[{at}].{name}"), cause));
            }
        }
        if failover.from == failover.to {
            let cause = "want another region than from".to_owned();
            return Err((format!(".failover[{at}].to"), cause));
        }
    }
    Ok(())
}

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
