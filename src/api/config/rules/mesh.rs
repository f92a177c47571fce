//! Rules for a mesh configuration beyond its types, and for the part of it that is one proxy's.
//!
//! They check the result: the file over the defaults, which are valid by themselves.

use std::collections::BTreeMap;

use serde_json::Value;

use super::address::{address, agent_address};
use super::cursor::{Cursor, FindingCollector, Violation};
use super::{access_log, extension_providers, locality, parts, predicates as is, stat_name};
use crate::duration;
use crate::finding::{Finding, quoted};
use crate::names::is_name;
use crate::proxy_ports;

const SECOND: i128 = 1_000_000_000;
const MAX_CONNECT_TIMEOUT: i128 = 30 * SECOND;
const MAX_DRAIN: i128 = 3600 * SECOND;
/// More than any machine has.
const MAX_THREADS: i64 = 65_535;
/// Envoy counts in nanoseconds of 64 bits: a second more is "out of range".
const MAX_ENVOY_NANOS: i128 = 9_223_372_035 * SECOND;

/// The range that Linux takes for a connection (`MAX_TCP_KEEPIDLE`, `MAX_TCP_KEEPINTVL` and `MAX_TCP_KEEPCNT` of net/tcp.h).
/// Envoy cannot make a connection with another value.
const KEEPALIVE_SECONDS: std::ops::RangeInclusive<i128> = 1..=32767;
const KEEPALIVE_PROBES: i64 = 127;

/// The user of a configuration: a role that acts on it requires more than a role that hands it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeshConfigUse {
    Own,
    /// A pod sets it for its own proxy: its drain is not compared with the values of others.
    Pod,
    /// It becomes resources: for one invalid value Envoy would refuse all resources of the type.
    Discovery,
    /// Sinks of any release get it: only values that all releases refuse are refused.
    Served,
}

/// Checks a configuration. `written` has the fields of the file alone.
pub(crate) fn check(mesh: &Value, written: &Value, by: MeshConfigUse) -> Vec<Finding> {
    let out = FindingCollector::default();
    let at = Cursor::top(mesh, &out);
    parts::port(&at.get("proxyListenPort"));
    durations(&at);
    let domain = at.get("trustDomain");
    // Empty is the default, as in all releases.
    domain.check_text(dns_name);
    parts::each(&at.get("trustDomainAliases"), dns_name);
    let localities = at.get("localityLbSetting");
    if localities.is_set() {
        locality::check(&localities);
    }
    if by != MeshConfigUse::Served {
        works(&at);
    }
    if by == MeshConfigUse::Discovery {
        resources(&at);
    }
    let written = Cursor::top(written, &out).get("defaultConfig");
    one_proxy(&at.get("defaultConfig"), &written, by);
    out.into_findings()
}

/// The same of one proxy's alone.
pub(crate) fn proxy(proxy: &Value, written: &Value) -> Vec<Finding> {
    let out = FindingCollector::default();
    let at = Cursor::top(proxy, &out);
    one_proxy(&at, &Cursor::top(written, &out), MeshConfigUse::Pod);
    out.into_findings()
}

fn durations(at: &Cursor<'_>) {
    let connect = at.get("connectTimeout");
    parts::milliseconds(&connect);
    at_most(&connect, MAX_CONNECT_TIMEOUT, "30s");
    parts::duration_or_none(&at.get("protocolDetectionTimeout"));
}

/// Rules of the roles that work by a configuration, in addition.
fn works(at: &Cursor<'_>) {
    parts::port(&at.get("proxyInboundListenPort"));
    parts::port_or_none(&at.get("proxyHttpPort"));
    calls(at);
    format(at);
    for one in at.to(["localityLbSetting", "failover"]).items() {
        one.get("from").not_empty();
        one.get("to").not_empty();
    }
    for name in ["rdsRefreshDelay", "sdsRefreshDelay", "reportBatchMaxTime"] {
        a_while(&at.get(name));
    }
    let rate = at.get("dnsRefreshRate");
    // Envoy's own rule of a cluster (`dns_refresh_rate`): more, not as much.
    if let Some(nanos) = rate.nanos().filter(|nanos| *nanos <= SECOND / 1000) {
        rate.fail(format!(
            "duration {} is not more than 1ms",
            is::seconds(nanos)
        ));
    }
}

/// Rules for values that only a proxy with these resources would notice.
fn resources(at: &Cursor<'_>) {
    let listen = at.get("proxyListenPort");
    let port = listen.number();
    // Envoy refuses a second listener of one address. The field's own default is free to be it.
    let own = proxy_ports::LISTENED.iter();
    let own = own.filter(|own| **own != proxy_ports::OUTBOUND);
    if own.clone().any(|own| i64::from(*own) == port) {
        let ports: Vec<_> = own.map(ToString::to_string).collect();
        let ports = ports.join(", ");
        listen.fail(format!(
            "port {port} is the proxy's own: it listens on {ports}"
        ));
    }
    for name in ["protocolDetectionTimeout", "dnsRefreshRate"] {
        at_most(&at.get(name), MAX_ENVOY_NANOS, "9223372035s");
    }
    if !at.get("accessLogFile").is_empty() {
        operators(at);
    }
    for name in [
        "defaultServiceExportTo",
        "defaultVirtualServiceExportTo",
        "defaultDestinationRuleExportTo",
    ] {
        parts::each(&at.get(name), exported);
    }
    at.get("rootNamespace").check_text(is::label);
    for name in ["inboundClusterStatName", "outboundClusterStatName"] {
        stat_name::check(&at.get(name));
    }
    let outbound = at.to(["outboundTrafficPolicy", "mode"]);
    if outbound.text() == "ALLOW_ANY_DYNAMIC_DNS" {
        outbound.warn("is served as ALLOW_ANY: names of unknown hosts are not resolved");
    }
    extension_providers::check(&at.get("extensionProviders"));
}

/// Repetitions, and names beside `*`, change nothing, and Istio takes them.
fn exported(entry: &str) -> Violation {
    let is_known = matches!(entry, "." | "*" | "~") || is::label(entry).is_none();
    (!is_known).then(|| {
        format!(
            "{} is not \".\", \"*\", \"~\" or a namespace",
            quoted(entry)
        )
    })
}

/// Envoy knows all command operators of an access log.
fn operators(at: &Cursor<'_>) {
    let format = at.get("accessLogFormat");
    if at.get("accessLogEncoding").text() != "JSON" {
        format.check_text(access_log::fault);
        return;
    }
    for (name, text) in json_format(format.text()).unwrap_or_default() {
        if let Some(fault) = access_log::fault(&text) {
            format.fail(format!("item {}: {fault}", quoted(&name)));
        }
    }
}

/// The addresses that are called, and the settings of the calls.
fn calls(at: &Cursor<'_>) {
    keepalive(&at.get("tcpKeepalive"));
    let authority = at.get("ca");
    written_address(&authority.get("address"));
    a_while(&authority.get("requestTimeout"));
    let timeout = at.to(["defaultHttpRetryPolicy", "perTryTimeout"]);
    if timeout.nanos() != Some(0) {
        a_while(&timeout);
    }
}

/// An absent value is the system's, and so are 0 probes.
fn keepalive(at: &Cursor<'_>) {
    for name in ["time", "interval"] {
        let at = at.get(name);
        let Some(nanos) = at.nanos() else {
            continue;
        };
        let text = is::seconds(nanos);
        if nanos % SECOND != 0 {
            at.fail(format!("duration {text} is not a whole number of seconds"));
        } else if !KEEPALIVE_SECONDS.contains(&(nanos / SECOND)) {
            let (min, max) = (KEEPALIVE_SECONDS.start(), KEEPALIVE_SECONDS.end());
            at.fail(format!("duration {text} is not in {min}s..{max}s"));
        }
    }
    let probes = at.get("probes");
    probes.check(is::within(probes.number(), 0, KEEPALIVE_PROBES));
}

/// With the encoding JSON, an access log's format is an object of texts.
fn format(at: &Cursor<'_>) {
    let format = at.get("accessLogFormat");
    if at.get("accessLogEncoding").text() == "JSON"
        && !format.is_empty()
        && let Err(error) = json_format(format.text())
    {
        format.fail(format!("not an object of strings: {error}"));
    }
}

/// The items of an access log in JSON: name and format.
pub(crate) fn json_format(format: &str) -> Result<BTreeMap<String, String>, serde_json::Error> {
    serde_json::from_str(format)
}

fn one_proxy(at: &Cursor<'_>, written: &Cursor<'_>, by: MeshConfigUse) {
    for name in ["configPath", "binaryPath", "serviceCluster"] {
        let at = at.get(name);
        if at.is_set() {
            at.not_empty();
        }
    }
    drain(at, written, by);
    addresses(at, by);
    parts::port(&at.get("proxyAdminPort"));
    // 0: the proxy has no status server.
    parts::port_or_none(&at.get("statusPort"));
    if by != MeshConfigUse::Served {
        starts(at);
    }
    if matches!(by, MeshConfigUse::Own | MeshConfigUse::Pod) {
        pintle(at);
    }
}

/// The addresses that a proxy calls.
fn addresses(at: &Cursor<'_>, by: MeshConfigUse) {
    // Agents end at an address that they do not take, and sinks get those that all releases take.
    let rule = match by {
        MeshConfigUse::Discovery => address,
        MeshConfigUse::Own | MeshConfigUse::Pod | MeshConfigUse::Served => agent_address,
    };
    let check = |at: &Cursor<'_>| {
        at.check(rule(at.text()));
    };
    for name in [
        "zipkinAddress",
        "statsdUdpAddress",
        "envoyMetricsServiceAddress",
    ] {
        let at = at.get(name);
        if !at.is_empty() {
            check(&at);
        }
    }
    let discovery = at.get("discoveryAddress");
    if discovery.is_set() {
        check(&discovery);
    }
    // Without an address there is no such service, as in Istio.
    for name in ["envoyMetricsService", "envoyAccessLogService"] {
        let service = at.to([name, "address"]);
        if !service.is_empty() {
            check(&service);
        }
    }
    for name in ["zipkin", "lightstep", "datadog"] {
        let tracer = at.to(["tracing", name]);
        // A tracer that is chosen has one.
        if tracer.is_set() {
            check(&tracer.get("address"));
        }
    }
    let lightstep = at.to(["tracing", "lightstep"]);
    if lightstep.is_set() {
        lightstep.get("accessToken").not_empty();
    }
}

/// Rules of a role that starts proxies, in addition.
fn starts(at: &Cursor<'_>) {
    for name in [
        "parentShutdownDuration",
        "discoveryRefreshDelay",
        "connectTimeout",
    ] {
        a_while(&at.get(name));
    }
    // 0: the proxy ends at once.
    let drain = at.get("terminationDrainDuration");
    if drain.nanos() != Some(0) {
        a_while(&drain);
    }
    for name in ["envoyAccessLogService", "envoyMetricsService"] {
        keepalive(&at.to([name, "tcpKeepalive"]));
    }
    for name in ["statNameLength", "concurrency"] {
        let at = at.get(name);
        at.check(is::not_negative(at.number()));
    }
}

/// Rules of pintle, which ends with 78 beyond them: a pod that is made with such values never starts.
fn pintle(at: &Cursor<'_>) {
    let parent = at.get("parentShutdownDuration");
    check_whole_seconds(&parent);
    at_most(&parent, MAX_DRAIN, "1h");
    let connect = at.get("connectTimeout");
    at_most(&connect, MAX_CONNECT_TIMEOUT, "30s");
    // The rules of all roles that start proxies report shorter ones.
    if let Some(nanos) = connect.nanos().filter(|nanos| *nanos >= SECOND / 1000) {
        connect.check(is::duration(nanos));
    }
    let (admin, status) = (at.get("proxyAdminPort"), at.get("statusPort"));
    let fail = |at: &Cursor<'_>, of: &str| {
        at.fail(format!("port {} is that of the proxy's {of}", at.number()));
    };
    if status.number() == admin.number() {
        fail(&status, "administration");
    }
    for at in [&admin, &status] {
        if at.number() == i64::from(proxy_ports::METRICS) {
            fail(at, "metrics");
        }
    }
    let threads = at.get("concurrency");
    if threads.number() > MAX_THREADS {
        let given = threads.number();
        threads.fail(format!("{given} is more than {MAX_THREADS}"));
    }
}

fn check_whole_seconds(at: &Cursor<'_>) {
    if let Some(nanos) = at.nanos().filter(|nanos| nanos % SECOND != 0) {
        let text = is::seconds(nanos);
        at.fail(format!("duration {text} is not a whole number of seconds"));
    }
}

/// Envoy drains while its parent is still there.
fn drain(at: &Cursor<'_>, written: &Cursor<'_>, by: MeshConfigUse) {
    let drain = at.get("drainDuration");
    let Some(nanos) = drain.nanos() else {
        return;
    };
    if !drain.check(is::duration(nanos)) {
        return;
    }
    check_whole_seconds(&drain);
    at_most(&drain, MAX_DRAIN, "1h");
    let parent = at.get("parentShutdownDuration");
    // The default gives way to a drain that is written.
    let counts = by != MeshConfigUse::Pod && written.get("parentShutdownDuration").is_set();
    let max = parent.nanos().filter(|_| counts);
    if let Some(wrong) = max.and_then(is::duration) {
        // An invalid duration cannot be compared. Roles that start proxies check it anyway.
        if by == MeshConfigUse::Served {
            parent.fail(wrong);
        }
    } else if max.is_some_and(|max| nanos >= max) {
        let go = |at: &Cursor<'_>| {
            duration::parse(at.text()).map_or_else(String::new, |read| duration::go(&read))
        };
        drain.fail(format!(
            "want less than parentShutdownDuration, {}, got {}",
            go(&parent),
            go(&drain)
        ));
    }
}

fn at_most(at: &Cursor<'_>, max: i128, named: &str) {
    if let Some(nanos) = at.nanos().filter(|nanos| *nanos > max) {
        let text = is::seconds(nanos);
        at.fail(format!("duration {text} is more than {named}"));
    }
}

/// Refuses a duration of less than a millisecond.
fn a_while(at: &Cursor<'_>) {
    if let Some(nanos) = at.nanos().filter(|nanos| *nanos < SECOND / 1000) {
        at.fail(format!("duration {} is less than 1ms", is::seconds(nanos)));
    }
}

fn dns_name(text: &str) -> Violation {
    let holds = is_name(text) && !text.contains('_');
    (!holds).then(|| format!("{} is not a DNS name", quoted(text)))
}

/// An address that may be absent, but not empty.
fn written_address(at: &Cursor<'_>) {
    if at.is_set() {
        at.check(address(at.text()));
    }
}
