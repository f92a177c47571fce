//! The generated bootstrap: pilot-agent 1.1.5's template in the form that Envoy 1.40 reads (v3 API).
//!
//! The shape is in `parts.json`, with `${name}` where a value goes; here are the values. JSON has no comments, so the
//! reasons are given here. `use_all_default_tags` is off because dashboards know the tags of pilot-agent. The overload
//! manager's limit is none at all; it is there because Envoy warns without one. `initial_fetch_timeout` of zero waits
//! for the control plane for ever, as a proxy without listeners must not claim to be ready. The Prometheus listener
//! matches one path exactly: the admin port must not be reachable through it.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::template::{UnknownName, Values, fill};
use super::{BootstrapError, ControlPlaneTls, Generated, Object, StatsInclusion, Tracing};
use crate::config::HostPort;
use crate::json::{self, Map, Value};

/// Statistics that pilot-agent's readiness, Istio's dashboards and our own probes need, whatever the annotations say.
const REQUIRED_PREFIXES: [&str; 6] = [
    "cluster_manager",
    "listener_manager",
    "http_mixer_filter",
    "tcp_mixer_filter",
    "server",
    "cluster.xds-grpc",
];
/// What `/stats` shows of open connections; the drain adds it up.
const CONNECTIONS_SUFFIX: &str = "downstream_cx_active";
/// For clusters that have no setting of their own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Envoy's own admin port is near.
const ADMIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// The document for `inputs`.
pub(super) fn build(inputs: &Generated) -> Result<Value, BootstrapError> {
    let (object, path) = (Object::BuiltIn, "parts.json".into());
    let parts = match json::parse(include_bytes!("parts.json")) {
        Ok(parts) => Parts(parts),
        Err(source) => {
            return Err(BootstrapError::Parse {
                object,
                path,
                source,
            });
        }
    };
    parts
        .document(inputs)
        .map_err(|unknown| BootstrapError::UnknownName {
            object,
            path,
            name: unknown.0,
        })
}

/// The built-in parts, by name.
struct Parts(Value);

/// What clusters differ in.
struct Cluster<'a> {
    name: &'static str,
    host: &'a str,
    port: u16,
    connect_timeout: Duration,
    ipv6_only: bool,
    /// Spoken to by gRPC.
    http2: bool,
}

impl Parts {
    fn document(&self, inputs: &Generated) -> Result<Value, UnknownName> {
        let locality = &inputs.locality;
        let mut values = vec![
            ("node-id", string(&inputs.node_id)),
            ("cluster", string(&inputs.cluster)),
            ("metadata", Value::Object(inputs.metadata.clone())),
            ("region", unless_empty(&locality.region)),
            ("zone", unless_empty(&locality.zone)),
            ("sub-zone", unless_empty(&locality.sub_zone)),
            ("stats-patterns", stats_patterns(inputs)),
            ("admin-address", socket(inputs.admin)),
            ("prometheus-address", socket(prometheus(inputs))),
        ];
        // One by one: an array of what can fail would be dropped in as many different states.
        values.push(("stats-cluster", self.stats_cluster(inputs)?));
        values.push(("xds-cluster", self.xds_cluster(inputs)?));
        values.push(("tracing-cluster", self.tracing_cluster(inputs)?));
        values.push(("metrics-cluster", self.metrics_cluster(inputs)?));
        values.push(("tracing", self.tracing(inputs)?));
        values.push(("stats-sinks", self.sinks(inputs)?));
        self.fill("document", &values)
    }

    /// A part without names in it.
    fn get(&self, name: &str) -> Value {
        self.0.get(name).cloned().unwrap_or_default()
    }

    fn fill(&self, name: &str, values: &Values<'_>) -> Result<Value, UnknownName> {
        fill(self.get(name), values)
    }

    fn cluster(&self, cluster: &Cluster<'_>) -> Result<Value, UnknownName> {
        self.cluster_with(cluster, Value::Null, Value::Null, Value::Null)
    }

    fn cluster_with(
        &self,
        cluster: &Cluster<'_>,
        breakers: Value,
        connection: Value,
        transport: Value,
    ) -> Result<Value, UnknownName> {
        // An address needs no DNS, and would fail with a lookup family that is not its own.
        let (kind, family) = match (cluster.host.parse::<IpAddr>(), cluster.ipv6_only) {
            (Ok(_), _) => ("STATIC", Value::Null),
            (Err(_), true) => ("STRICT_DNS", string("AUTO")),
            (Err(_), false) => ("STRICT_DNS", string("V4_ONLY")),
        };
        let protocol = if cluster.http2 {
            self.get("http2")
        } else {
            Value::Null
        };
        let values = [
            ("name", string(cluster.name)),
            ("type", string(kind)),
            ("dns-lookup-family", family),
            ("connect-timeout", duration(cluster.connect_timeout)),
            ("address", address(cluster.host, cluster.port)),
            ("protocol", protocol),
            ("circuit-breakers", breakers),
            ("connection-options", connection),
            ("transport-socket", transport),
        ];
        self.fill("cluster", &values)
    }

    /// Envoy's own admin port, for the Prometheus listener.
    fn stats_cluster(&self, inputs: &Generated) -> Result<Value, UnknownName> {
        self.cluster(&Cluster {
            name: "prometheus_stats",
            host: &reachable(inputs.admin.ip()).to_string(),
            port: inputs.admin.port(),
            connect_timeout: ADMIN_CONNECT_TIMEOUT,
            ipv6_only: inputs.ipv6_only,
            http2: false,
        })
    }

    fn xds_cluster(&self, inputs: &Generated) -> Result<Value, UnknownName> {
        let mut cluster = remote("xds-grpc", &inputs.discovery, inputs, true);
        cluster.connect_timeout = inputs.connect_timeout;
        let transport = match &inputs.control_plane_tls {
            Some(tls) => self.tls(tls)?,
            None => Value::Null,
        };
        let (breakers, keepalive) = (self.get("circuit-breakers"), self.get("keepalive"));
        self.cluster_with(&cluster, breakers, keepalive, transport)
    }

    fn tls(&self, tls: &ControlPlaneTls) -> Result<Value, UnknownName> {
        let names: Vec<Value> = tls.subject_alt_names.iter().map(|n| san(n)).collect();
        let names = if names.is_empty() {
            Value::Null
        } else {
            Value::Array(names)
        };
        let values = [
            ("certificate-chain", path(&tls.certificate_chain)),
            ("private-key", path(&tls.private_key)),
            ("root-certificate", path(&tls.root_certificate)),
            ("subject-alt-names", names),
        ];
        self.fill("tls", &values)
    }

    fn tracing_cluster(&self, inputs: &Generated) -> Result<Value, UnknownName> {
        let (name, at) = match &inputs.tracing {
            Some(Tracing::Zipkin(at)) => ("zipkin", at),
            Some(Tracing::Datadog(at)) => ("datadog_agent", at),
            None => return Ok(Value::Null),
        };
        self.cluster(&remote(name, at, inputs, false))
    }

    fn tracing(&self, inputs: &Generated) -> Result<Value, UnknownName> {
        let name = match &inputs.tracing {
            Some(Tracing::Zipkin(_)) => "zipkin",
            Some(Tracing::Datadog(_)) => "datadog",
            None => return Ok(Value::Null),
        };
        self.fill(name, &[("cluster", string(&inputs.cluster))])
    }

    fn metrics_cluster(&self, inputs: &Generated) -> Result<Value, UnknownName> {
        match &inputs.metrics_service {
            Some(at) => self.cluster(&remote("envoy_metrics_service", at, inputs, true)),
            None => Ok(Value::Null),
        }
    }

    fn sinks(&self, inputs: &Generated) -> Result<Value, UnknownName> {
        let mut sinks = Vec::new();
        if inputs.metrics_service.is_some() {
            sinks.push(self.get("metrics-sink"));
        }
        if let Some(at) = inputs.statsd {
            sinks.push(self.fill("statsd-sink", &[("address", socket(at))])?);
        }
        Ok(if sinks.is_empty() {
            Value::Null
        } else {
            Value::Array(sinks)
        })
    }
}

fn remote<'a>(
    name: &'static str,
    at: &'a HostPort,
    inputs: &Generated,
    http2: bool,
) -> Cluster<'a> {
    Cluster {
        name,
        host: &at.host,
        port: at.port,
        connect_timeout: CONNECT_TIMEOUT,
        ipv6_only: inputs.ipv6_only,
        http2,
    }
}

/// An admin port on all addresses is reached by loopback.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => ip,
    }
}

fn prometheus(inputs: &Generated) -> SocketAddr {
    let any = if inputs.ipv6_only {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    };
    SocketAddr::new(any, inputs.prometheus_port)
}

/// What is kept of Envoy's statistics: the required prefixes, and what the annotations add.
fn stats_patterns(inputs: &Generated) -> Value {
    let StatsInclusion {
        prefixes,
        suffixes,
        regexes,
    } = &inputs.stats;
    let required = REQUIRED_PREFIXES.map(str::to_owned);
    let mut patterns = Vec::new();
    for prefix in required.iter().chain(prefixes) {
        patterns.push(entry("prefix", string(prefix)));
    }
    for suffix in suffixes {
        patterns.push(entry("suffix", string(suffix)));
    }
    if inputs.count_connections {
        patterns.push(entry("suffix", string(CONNECTIONS_SUFFIX)));
    }
    for regex in regexes {
        patterns.push(entry("safe_regex", entry("regex", string(regex))));
    }
    Value::Array(patterns)
}

/// A SPIFFE id is a URI; anything else that a certificate could carry for a server is its DNS name.
fn san(name: &str) -> Value {
    let kind = if name.contains("://") { "URI" } else { "DNS" };
    let mut entry = Map::new();
    entry.insert("san_type", string(kind));
    entry.insert("matcher", self::entry("exact", string(name)));
    Value::Object(entry)
}

fn socket(at: SocketAddr) -> Value {
    address(&at.ip().to_string(), at.port())
}

fn address(host: &str, port: u16) -> Value {
    let mut socket = Map::new();
    socket.insert("address", string(host));
    socket.insert("port_value", Value::from(port));
    entry("socket_address", Value::Object(socket))
}

fn entry(key: &str, value: Value) -> Value {
    let mut map = Map::new();
    map.insert(key, value);
    Value::Object(map)
}

fn string(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn unless_empty(text: &str) -> Value {
    if text.is_empty() {
        Value::Null
    } else {
        string(text)
    }
}

/// JSON has no bytes: a path that is not UTF-8 cannot be said to Envoy, which will name the one it was given.
fn path(path: &Path) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}

/// Proto JSON: decimal seconds with an `s`. pilot-agent wrote Go's form (`1m30s`), which Envoy refuses.
fn duration(duration: Duration) -> Value {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    let text = format!("{seconds}.{nanos:09}");
    let shortest = text.trim_end_matches('0').trim_end_matches('.');
    Value::String(format!("{shortest}s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_proto_json() {
        for (millis, expected) in [
            (0, "0s"),
            (250, "0.25s"),
            (1000, "1s"),
            (1500, "1.5s"),
            (90_000, "90s"),
            (1, "0.001s"),
            (100_000, "100s"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), string(expected));
        }
    }
}
