//! The generated bootstrap: pilot-agent 1.1.5's template in the form that Envoy 1.40 reads (v3 API).
//!
//! The shape is in `parts/`, with `${name}` where a value goes; here are the values. JSON has no comments, so the
//! reasons are given here. `use_all_default_tags` is off because dashboards know the tags of pilot-agent. The overload
//! manager's limit is none at all; it is there because Envoy warns without one. `initial_fetch_timeout` of zero waits
//! for the control plane for ever, as a proxy without listeners must not claim to be ready. The Prometheus listener
//! matches one path exactly: the admin port must not be reachable through it.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::parts::{Part, Put};
use super::{ControlPlaneTls, Generated, StatsInclusion, Tracing};
use crate::json::{Map, Value, Writer};
use crate::search;
use crate::values::{HostPort, duration};

/// Statistics that pilot-agent's readiness, Istio's dashboards and pintle's readiness need, whatever the annotations say.
const REQUIRED_PREFIXES: [&str; 6] = [
    "cluster_manager",
    "listener_manager",
    "http_mixer_filter",
    "tcp_mixer_filter",
    "server",
    "cluster.xds-grpc",
];
/// The suffix by which `/stats` shows open connections; the drain adds them up.
const CONNECTIONS_SUFFIX: &str = "downstream_cx_active";
/// For clusters that have no setting of their own. The default of pilot-agent 1.1.5's `--connectTimeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// For Envoy's own admin port, which is near. As in pilot-agent 1.1.5's bootstrap.
const ADMIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Bytes reserved for the document. Chosen: one with every part has 9 kB, and the pod's metadata.
const ROOM: usize = 12 * 1024;

/// The parts, in `parts/`.
macro_rules! parts {
    ($($name:ident = $file:literal,)*) => {
        mod part {
            use super::super::parts::{Text, text};
            $(pub(super) const $name: Text = text!(include_str!(concat!("parts/", $file)));)*
        }
        /// All of them, and what they were made of.
        #[cfg(test)]
        pub(super) const SOURCES: &[(&str, super::parts::Text)] =
            &[$((include_str!(concat!("parts/", $file)), part::$name),)*];
    };
}

parts! {
    DOCUMENT = "document.json",
    CLUSTER = "cluster.json",
    HTTP2 = "http2.json",
    BREAKERS = "circuit-breakers.json",
    KEEPALIVE = "keepalive.json",
    TLS = "tls.json",
    ZIPKIN = "zipkin.json",
    DATADOG = "datadog.json",
    METRICS_SINK = "metrics-sink.json",
    STATSD_SINK = "statsd-sink.json",
}

/// The document for `inputs`, so that a person can read it.
pub(super) fn build(inputs: &Generated) -> String {
    let locality = &inputs.locality;
    // Not a literal list, which would be built in place and copied, nor pushed, which is inlined: 1 kB.
    let mut values = Vec::with_capacity(16);
    add(&mut values, "node-id", Put::Text(&inputs.node_id));
    add(&mut values, "cluster", Put::Text(&inputs.cluster));
    add(&mut values, "ads-kind", Put::Text(ads_kind(inputs)));
    add(&mut values, "metadata", Put::Map(&inputs.metadata));
    add(&mut values, "region", unless_empty(&locality.region));
    add(&mut values, "zone", unless_empty(&locality.zone));
    add(&mut values, "sub-zone", unless_empty(&locality.sub_zone));
    add(
        &mut values,
        "stats-patterns",
        Put::Value(stats_patterns(inputs)),
    );
    add(&mut values, "admin-address", socket(inputs.admin));
    add(
        &mut values,
        "prometheus-address",
        socket(prometheus(inputs)),
    );
    add(&mut values, "stats-cluster", stats_cluster(inputs));
    add(&mut values, "xds-cluster", xds_cluster(inputs));
    add(&mut values, "tracing-cluster", tracing_cluster(inputs));
    add(&mut values, "metrics-cluster", metrics_cluster(inputs));
    add(&mut values, "tracing", tracing(inputs));
    add(&mut values, "stats-sinks", sinks(inputs));
    let text = part::DOCUMENT;
    let mut writer = Writer::pretty(ROOM);
    Part { text, values }.write(&mut writer);
    writer.finish()
}

const fn ads_kind(inputs: &Generated) -> &'static str {
    if inputs.delta { "DELTA_GRPC" } else { "GRPC" }
}

#[inline(never)]
fn add<'a>(values: &mut Vec<(&'static str, Put<'a>)>, name: &'static str, value: Put<'a>) {
    values.push((name, value));
}

/// The differences between clusters.
struct Cluster<'a> {
    name: &'static str,
    host: &'a str,
    port: u16,
    connect_timeout: Duration,
    ipv6_only: bool,
    /// Spoken to by gRPC.
    http2: bool,
}

impl Cluster<'_> {
    fn put<'a>(&self) -> Put<'a> {
        self.with(Put::Absent, Put::Absent, Put::Absent)
    }

    fn with<'a>(&self, breakers: Put<'a>, connection: Put<'a>, transport: Put<'a>) -> Put<'a> {
        // An address needs no DNS, and would fail with a lookup family that is not its own.
        let (kind, family) = match (self.host.parse::<IpAddr>(), self.ipv6_only) {
            (Ok(_), _) => ("STATIC", Put::Absent),
            (Err(_), true) => ("STRICT_DNS", Put::Text("AUTO")),
            (Err(_), false) => ("STRICT_DNS", Put::Text("V4_ONLY")),
        };
        let protocol = if self.http2 {
            Put::Part(Part::plain(part::HTTP2))
        } else {
            Put::Absent
        };
        let mut values = Vec::with_capacity(9);
        add(&mut values, "name", Put::Text(self.name));
        add(&mut values, "type", Put::Text(kind));
        add(&mut values, "dns-lookup-family", family);
        let timeout = seconds(self.connect_timeout);
        add(&mut values, "connect-timeout", timeout);
        add(&mut values, "address", address(self.host, self.port));
        add(&mut values, "protocol", protocol);
        add(&mut values, "circuit-breakers", breakers);
        add(&mut values, "connection-options", connection);
        add(&mut values, "transport-socket", transport);
        let text = part::CLUSTER;
        Put::Part(Part { text, values })
    }
}

/// Envoy's own admin port, for the Prometheus listener.
fn stats_cluster(inputs: &Generated) -> Put<'_> {
    let cluster = Cluster {
        name: "prometheus_stats",
        host: &reachable(inputs.admin.ip()).to_string(),
        port: inputs.admin.port(),
        connect_timeout: ADMIN_CONNECT_TIMEOUT,
        ipv6_only: inputs.ipv6_only,
        http2: false,
    };
    cluster.put()
}

fn xds_cluster(inputs: &Generated) -> Put<'_> {
    let mut cluster = remote("xds-grpc", &inputs.discovery, inputs, true);
    cluster.connect_timeout = inputs.connect_timeout;
    let transport = inputs.control_plane_tls.as_ref().map_or(Put::Absent, tls);
    let plain = |text| Put::Part(Part::plain(text));
    cluster.with(plain(part::BREAKERS), plain(part::KEEPALIVE), transport)
}

fn tls(tls: &ControlPlaneTls) -> Put<'_> {
    // Not collected, which is code for this list alone: 0.3 kB.
    let mut names = Vec::new();
    for name in &tls.subject_alt_names {
        names.push(san(name));
    }
    let names = if names.is_empty() {
        Put::Absent
    } else {
        Put::Value(Value::Array(names))
    };
    let values = vec![
        ("certificate-chain", path(&tls.certificate_chain)),
        ("private-key", path(&tls.private_key)),
        ("root-certificate", path(&tls.root_certificate)),
        ("subject-alt-names", names),
    ];
    let text = part::TLS;
    Put::Part(Part { text, values })
}

fn tracing_cluster(inputs: &Generated) -> Put<'_> {
    let (name, at) = match &inputs.tracing {
        Some(Tracing::Zipkin(at)) => ("zipkin", at),
        Some(Tracing::Datadog(at)) => ("datadog_agent", at),
        None => return Put::Absent,
    };
    remote(name, at, inputs, false).put()
}

fn tracing(inputs: &Generated) -> Put<'_> {
    Put::Part(match &inputs.tracing {
        Some(Tracing::Zipkin(_)) => Part::plain(part::ZIPKIN),
        Some(Tracing::Datadog(_)) => Part {
            text: part::DATADOG,
            values: vec![("cluster", Put::Text(&inputs.cluster))],
        },
        None => return Put::Absent,
    })
}

fn metrics_cluster(inputs: &Generated) -> Put<'_> {
    match &inputs.metrics_service {
        Some(at) => remote("envoy_metrics_service", at, inputs, true).put(),
        None => Put::Absent,
    }
}

fn sinks(inputs: &Generated) -> Put<'_> {
    let mut sinks = Vec::new();
    if inputs.metrics_service.is_some() {
        sinks.push(Part::plain(part::METRICS_SINK));
    }
    if let Some(at) = inputs.statsd {
        sinks.push(Part {
            text: part::STATSD_SINK,
            values: vec![("address", socket(at))],
        });
    }
    if sinks.is_empty() {
        return Put::Absent;
    }
    Put::List(sinks)
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
    let ip: IpAddr = match (inputs.ipv6_only, inputs.prometheus_local) {
        (true, true) => Ipv6Addr::LOCALHOST.into(),
        (true, false) => Ipv6Addr::UNSPECIFIED.into(),
        (false, true) => Ipv4Addr::LOCALHOST.into(),
        (false, false) => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, inputs.prometheus_port)
}

/// Returns the patterns of Envoy's statistics that are kept: the required prefixes, and those that the annotations add.
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
    let kind = if search::contains(name, "://") {
        "URI"
    } else {
        "DNS"
    };
    let mut entry = Map::new();
    entry.insert("san_type", string(kind));
    entry.insert("matcher", self::entry("exact", string(name)));
    Value::Object(entry)
}

fn socket<'a>(at: SocketAddr) -> Put<'a> {
    address(&at.ip().to_string(), at.port())
}

fn address<'a>(host: &str, port: u16) -> Put<'a> {
    let mut socket = Map::new();
    socket.insert("address", string(host));
    socket.insert("port_value", Value::from(port));
    Put::Value(entry("socket_address", Value::Object(socket)))
}

fn entry(key: &str, value: Value) -> Value {
    let mut map = Map::new();
    map.insert(key, value);
    Value::Object(map)
}

fn string(text: &str) -> Value {
    Value::String(text.to_owned())
}

const fn unless_empty(text: &str) -> Put<'_> {
    if text.is_empty() {
        Put::Absent
    } else {
        Put::Text(text)
    }
}

/// JSON has no bytes: a path that is not UTF-8 cannot be said to Envoy, which will name the one it was given.
fn path<'a>(path: &Path) -> Put<'a> {
    Put::Value(Value::String(path.to_string_lossy().into_owned()))
}

/// Proto JSON: decimal seconds with an `s`. pilot-agent wrote Go's form (`1m30s`), which Envoy refuses.
fn seconds<'a>(duration: Duration) -> Put<'a> {
    Put::Value(Value::String(duration::proto(duration)))
}
