//! Discovery cannot serve every valid object as it is written. This module has the notes that say what it does instead, and the
//! predicates by which discovery decides it, so that the note and the deed are one.

mod authorization;
mod destination_rule;
mod envoy_filter;
mod files;
mod gateway;
mod headers;
mod request_authentication;
mod sidecar;
mod targets;

use serde_json::Value as Json;

use super::Finding;
use super::regex_size::{MOST, program_size};
use super::rules::{access_log, regex};
use crate::names::is_host_pattern;

pub use super::claims::claim_path;
pub use super::grpc_status::grpc_status;
pub use destination_rule::{MOST_FAILOVER_LABELS, is_status};
pub use envoy_filter::{
    MOST_PATCHES, is_applied, is_unapplied_match, patched_message, replaces_nothing,
    replaces_unnamed,
};
pub use gateway::{is_certificate_hash, is_cipher_suite, is_key_pin};
pub use request_authentication::{LONGEST_FETCH, is_output_header};
pub use sidecar::{MOST_EGRESS_LISTENERS, egress_socket};
pub use targets::is_service;

/// Why nothing is made of a host of a ServiceEntry; `None`: it is served. `resolves`: proxies look up the host itself, for there
/// is no endpoint.
#[must_use]
pub fn unserved_host(host: &str, resolves: bool) -> Option<&'static str> {
    if !is_host_pattern(host) {
        return Some("is not served: a wildcard is served as \"*.\" alone");
    }
    (host.starts_with('*') && resolves)
        .then_some("is not served: a wildcard that is to be resolved has endpoints")
}

/// Returns true if proxies can match SNI against this name: a wildcard is the first label, and stands for any number of them.
#[must_use]
pub fn is_server_name(name: &str) -> bool {
    let rest = name.strip_prefix("*.").unwrap_or(name);
    !rest.is_empty() && !rest.contains('*')
}

/// The notes of a valid spec of a kind, in one spelling, whose fields are served otherwise than they say.
pub(super) fn notes(kind: &str, spec: &Json) -> Vec<Finding> {
    let of_kind = match kind {
        "ServiceEntry" => service_entry,
        "Gateway" => gateway::notes,
        "Sidecar" => sidecar::notes,
        "VirtualService" => virtual_service,
        "DestinationRule" => destination_rule::notes,
        "RequestAuthentication" => request_authentication::notes,
        "AuthorizationPolicy" => authorization::notes,
        "EnvoyFilter" => envoy_filter::notes,
        _ => return Vec::new(),
    };
    of_kind(spec)
}

fn items<'a>(spec: &'a Json, name: &str) -> impl Iterator<Item = (usize, &'a Json)> {
    let all = spec.get(name).and_then(Json::as_array);
    all.into_iter().flatten().enumerate()
}

fn service_entry(spec: &Json) -> Vec<Finding> {
    let resolution = spec.get("resolution").and_then(Json::as_str);
    let is_dynamic = resolution == Some("DYNAMIC_DNS");
    let is_dns = matches!(resolution, Some("DNS" | "DNS_ROUND_ROBIN"));
    let has_none = items(spec, "endpoints").next().is_none();
    let resolves = is_dns && has_none && spec.get("workloadSelector").is_none();
    let mut found = Vec::new();
    for (at, host) in items(spec, "hosts") {
        let host = host.as_str().unwrap_or_default();
        if let Some(why) = unserved_host(host, resolves) {
            found.push(Finding::warning(format!("spec.hosts[{at}]"), why));
        }
    }
    if items(spec, "ports").next().is_none() {
        let why = "is not served: there is no port";
        found.push(Finding::warning("spec.ports", why));
    }
    if is_dynamic {
        let how =
            "is served as NONE: connections go to the address that the application has looked up";
        found.push(Finding::warning("spec.resolution", how));
    }
    found
}

fn virtual_service(spec: &Json) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut gateways = items(spec, "gateways").peekable();
    let at_sidecars = gateways.peek().is_none() || gateways.any(|(_, one)| one == "mesh");
    let is_empty = |field: &str| items(spec, field).next().is_none();
    for (at, host) in items(spec, "hosts") {
        let host = host.as_str().unwrap_or_default();
        // Gateways have no services to tell apart.
        let is_served = host == "*" && !at_sidecars;
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let has_connections = !is_empty("tcp") || !is_empty("tls");
        if is_address && at_sidecars && has_connections {
            let how = "is served for requests alone: connections are told by the services that they are to";
            found.push(Finding::warning(format!("spec.hosts[{at}]"), how));
        }
        if !is_host_pattern(host) && !is_served && !is_address {
            let how =
                "is served for hosts that no service has: a wildcard of services is \"*.\" alone";
            found.push(Finding::warning(format!("spec.hosts[{at}]"), how));
        }
    }
    for (at, route) in items(spec, "tls") {
        for (of, one) in items(route, "match") {
            for (name_at, name) in items(one, "sniHosts") {
                let name = name.as_str().unwrap_or_default();
                if !is_server_name(name) && (at_sidecars || name != "*") {
                    let path = format!("spec.tls[{at}].match[{of}].sniHosts[{name_at}]");
                    let why = "is not served: a wildcard of server names is \"*.\" alone";
                    found.push(Finding::warning(path, why));
                }
            }
        }
    }
    for (at, http) in items(spec, "http") {
        let path = |field: &str| format!("spec.http[{at}].{field}");
        let place = format!("spec.http[{at}]");
        check_single_line(&place, http, &mut found);
        headers::notes(|| place.clone(), http, &mut found);
        for (to, destination) in items(http, "route") {
            headers::notes(|| path(&format!("route[{to}]")), destination, &mut found);
        }
        let code = http.pointer("/redirect/redirectCode");
        if code
            .and_then(Json::as_u64)
            .is_some_and(|code| !is_redirect(code))
        {
            let why = "is not served: proxies redirect with 301, 302, 303, 307 and 308 alone";
            found.push(Finding::warning(path("redirect.redirectCode"), why));
        }
        for fault in ["delay", "abort"] {
            let written = http.get("fault").and_then(|all| all.get(fault));
            let has = |name: &str| written.is_some_and(|fault| fault.get(name).is_some());
            if written.is_some() && !has("percentage") && !has("percent") {
                let why = "has no effect: it says no percentage of requests";
                found.push(Finding::warning(path(&format!("fault.{fault}")), why));
            }
        }
    }
    found
}

/// Returns true if proxies take a number of percent.
#[must_use]
pub fn is_percentage(percent: f64) -> bool {
    (0.0..=100.0).contains(&percent)
}

/// Returns true if a text can be a part of one header line.
#[must_use]
pub fn is_one_line(text: &str) -> bool {
    !text.contains(['\0', '\r', '\n'])
}

/// Why proxies do not take a valid regular expression; `None`: they take it.
fn unserved_regex(pattern: &str) -> Option<&'static str> {
    if program_size(pattern) > MOST {
        return Some("is not served: proxies refuse so large a regular expression");
    }
    // A single star is no expression: it is any value.
    (pattern != "*" && !regex::is_of_bytes(pattern)).then_some(
        "is not served: proxies match bytes, and refuse a regular expression with a number above \\xff or a name beyond ASCII",
    )
}

/// Returns true if proxies take a valid regular expression: RE2 makes too large a program of some, and is told to match bytes.
#[must_use]
pub fn is_regex(pattern: &str) -> bool {
    unserved_regex(pattern).is_none()
}

/// The regular expressions of a match.
fn regexes(one: &Json) -> impl Iterator<Item = &str> {
    let fields = one
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.values());
    let texts = fields.flat_map(|field| {
        let below = field
            .as_object()
            .into_iter()
            .flat_map(|fields| fields.values());
        std::iter::once(field).chain(below)
    });
    texts.filter_map(|text| text.get("regex")?.as_str())
}

/// Bytes of a header's name, and of its value (envoy/config/core/v3/base.proto).
const LONGEST_HEADER: usize = 16_384;
/// Bytes of a parameter's name (envoy/config/route/v3/route_components.proto).
const LONGEST_PARAMETER: usize = 1024;

/// Returns true if proxies take a name of a header.
#[must_use]
pub fn is_header_name(name: &str) -> bool {
    (1..=LONGEST_HEADER).contains(&name.len()) && is_one_line(name)
}

/// Returns true if proxies take an attribute of a cookie: a name, and a value that may be empty
/// (envoy/config/route/v3/route_components.proto).
#[must_use]
pub fn is_cookie_attribute(name: &str, value: &str) -> bool {
    is_header_name(name) && value.len() <= LONGEST_HEADER && is_one_line(value)
}

/// Bytes of the name of a server that a client says in TLS (envoy/extensions/transport_sockets/tls/v3/tls.proto).
const LONGEST_SNI: usize = 255;

/// Returns true if proxies take a name of a server that they are to say.
#[must_use]
pub fn is_sni(name: &str) -> bool {
    name.len() <= LONGEST_SNI && is_one_line(name)
}

/// Returns true if proxies take the name of a query parameter.
#[must_use]
pub fn is_parameter(name: &str) -> bool {
    (1..=LONGEST_PARAMETER).contains(&name.len())
}

/// Returns true if proxies know all operators in the value of a header, `%REQ(X)%`. The text in parentheses has a grammar for
/// each operator: if it is not plain, it is not taken.
#[must_use]
pub fn is_header_value(value: &str) -> bool {
    value.len() <= LONGEST_HEADER
        && is_one_line(value)
        && access_log::fault(value).is_none()
        // Its parameter has percent signs of its own.
        && !value.contains("START_TIME(")
        && parameters(value).all(|(operator, inside)| is_plain(operator, inside))
}

/// Operators with parentheses, and what stands in them. Two signs are one letter, read from left to right.
fn parameters(value: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = value;
    std::iter::from_fn(move || {
        loop {
            let (_, from) = rest.split_once('%')?;
            if let Some(after) = from.strip_prefix('%') {
                rest = after;
                continue;
            }
            let (operator, after) = from.split_once('%')?;
            rest = after;
            if let Some((name, inside)) = operator.split_once('(') {
                return Some((
                    name,
                    inside.rsplit_once(')').map_or(inside, |(inside, _)| inside),
                ));
            }
        }
    })
}

fn is_plain(operator: &str, inside: &str) -> bool {
    let letters = |text: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !text.is_empty() && text.bytes().all(known)
    };
    match operator {
        "REQ" | "RESP" | "TRAILER" => {
            let (first, other) = inside.split_once('?').unwrap_or((inside, "a"));
            letters(first.strip_prefix(':').unwrap_or(first))
                && letters(other.strip_prefix(':').unwrap_or(other))
        }
        "DYNAMIC_METADATA" | "UPSTREAM_METADATA" => inside.split(':').all(letters),
        "ENVIRONMENT" => letters(inside),
        _ => false,
    }
}

/// Entries of rings and tables that all clusters of one service have together. Chosen: Envoy has some 50 bytes for one of a ring,
/// and makes all of them anew, on the thread that all else waits for, whenever an endpoint comes or goes.
const ENTRIES: u64 = 1 << 20;
/// Bounds of one ring; the lower one is Envoy's own. Chosen: the upper one takes 3 MiB, and 20 ms.
const LARGEST_RING: u64 = 1 << 16;
const SMALLEST_RING: u64 = 1 << 10;

/// Entries of the ring of a cluster of whose kind its service has so many.
#[must_use]
pub fn largest_ring(clusters: usize) -> u64 {
    share(clusters).clamp(SMALLEST_RING, LARGEST_RING)
}

/// Returns true if a table of Maglev is served where a service has so many clusters.
#[must_use]
pub fn is_table(size: u64, clusters: usize) -> bool {
    /// Envoy's own.
    const USUAL: u64 = 65_537;
    size <= share(clusters).max(USUAL)
}

fn share(clusters: usize) -> u64 {
    let clusters = u64::try_from(clusters).unwrap_or(u64::MAX);
    ENTRIES / clusters.max(1)
}

/// Subsets of one service that discovery makes clusters of. Chosen: a service has a few.
pub const MOST_SUBSETS: usize = 1000;

/// Headers that proxies add to one message, and those that they take from it (envoy/config/route/v3/route_components.proto).
pub const MOST_HEADERS: usize = 1000;

/// Texts of an `http` entry that make it none where proxies do not take them.
fn check_single_line(path: &str, http: &Json, found: &mut Vec<Finding>) {
    for pointer in [
        "/rewrite/uri",
        "/rewrite/authority",
        "/rewrite/uriRegexRewrite/rewrite",
        "/redirect/uri",
        "/redirect/authority",
        "/redirect/prefixRewrite",
    ] {
        let written = http.pointer(pointer);
        if !written.and_then(Json::as_str).is_none_or(is_one_line) {
            let why = "is not served: it is more than one line";
            let field = pointer.replace('/', ".");
            found.push(Finding::warning(format!("{path}{field}"), why));
        }
    }
    let pattern = http.pointer("/rewrite/uriRegexRewrite/match");
    if let Some(why) = pattern.and_then(Json::as_str).and_then(unserved_regex) {
        let path = format!("{path}.rewrite.uriRegexRewrite.match");
        found.push(Finding::warning(path, why));
    }
    let cors = http.get("corsPolicy");
    for (at, origin) in cors
        .into_iter()
        .flat_map(|cors| items(cors, "allowOrigins"))
    {
        let pattern = origin.get("regex").and_then(Json::as_str);
        if let Some(why) = pattern.and_then(unserved_regex) {
            let path = format!("{path}.corsPolicy.allowOrigins[{at}].regex");
            found.push(Finding::warning(path, why));
        }
    }
    for (at, one) in items(http, "match") {
        if let Some(why) = regexes(one).find_map(unserved_regex) {
            let path = format!("{path}.match[{at}]");
            found.push(Finding::warning(path, why));
        }
        let names = one.get("queryParams").and_then(Json::as_object);
        if names.is_some_and(|names| !names.keys().all(|name| is_parameter(name))) {
            let path = format!("{path}.match[{at}].queryParams");
            let why = "is not served: proxies take names of 1 to 1024 bytes";
            found.push(Finding::warning(path, why));
        }
    }
}

/// Returns true if proxies redirect with this code; 0 is the usual one.
#[must_use]
pub const fn is_redirect(code: u64) -> bool {
    matches!(code, 0 | 301 | 302 | 303 | 307 | 308)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{named, notes};
    use serde_json::json;

    fn said(kind: &str, spec: &Json) -> Vec<String> {
        let kind = named("networking.istio.io", kind).unwrap();
        let notes = notes(kind, spec).into_iter();
        notes
            .map(|note| {
                assert!(!note.is_error());
                format!("{}: {}", note.path, note.message)
            })
            .collect()
    }

    #[test]
    fn a_note_names_a_service_entry_that_is_served_otherwise() {
        let port = json!([{"number": 80, "name": "a", "protocol": "HTTP"}]);
        let entry = |hosts: &[&str], resolution: Json| {
            let spec = json!({"hosts": hosts, "ports": port, "resolution": resolution});
            said("ServiceEntry", &spec)
        };
        assert_eq!(entry(&["a.b", "*.b"], json!("NONE")), [""; 0]);
        assert_eq!(entry(&["a.b", "*.b"], Json::Null), [""; 0]);
        // By name, and by number.
        for resolution in [json!("STATIC"), json!(1)] {
            assert_eq!(entry(&["a.b", "*.b"], resolution), [""; 0]);
        }
        let itself =
            "spec.hosts[1]: is not served: a wildcard that is to be resolved has endpoints";
        for resolution in [json!("DNS"), json!(2), json!("DNS_ROUND_ROBIN")] {
            assert_eq!(entry(&["a.b", "*.b"], resolution.clone()), [itself]);
            let spec = json!({"hosts": ["*.b"], "ports": port, "resolution": resolution, "endpoints": [{"address": "a.b"}]});
            assert_eq!(said("ServiceEntry", &spec), [""; 0]);
        }
        let shape = "spec.hosts[0]: is not served: a wildcard is served as \"*.\" alone";
        assert_eq!(entry(&["*-a.b"], json!("NONE")), [shape]);
        let dynamic = "spec.resolution: is served as NONE: connections go to the address that the application has looked up";
        assert_eq!(entry(&["*.b"], json!("DYNAMIC_DNS")), [dynamic]);
        let none = said("ServiceEntry", &json!({"hosts": ["a.b"]}));
        assert_eq!(none, ["spec.ports: is not served: there is no port"]);
        let listener =
            |endpoint: &str| json!({"port": {"number": 80}, "default_endpoint": endpoint});
        let all = [":80", "0.0.0.0:80", "[::]:80", "127.0.0.1:80", "unix:///a"].map(listener);
        let how =
            "is served at the loopback address: what listens on the pod's own alone is not reached";
        let expected = [1, 2].map(|at| format!("spec.ingress[{at}].defaultEndpoint: {how}"));
        assert_eq!(said("Sidecar", &json!({"ingress": all})), expected);
    }

    #[test]
    fn a_note_names_fields_of_a_virtual_service_without_effect() {
        let of = |spec: Json| said("VirtualService", &spec);
        let route = json!([{"destination": {"host": "b"}}]);
        assert_eq!(
            of(json!({"hosts": ["a"], "gateways": ["mesh"], "http": [{"route": route}]})),
            [""; 0]
        );
        assert_eq!(
            of(json!({"hosts": ["a"], "gateways": ["g", "mesh"]})),
            [""; 0]
        );
        let wild = "spec.hosts[0]: is served for hosts that no service has: a wildcard of services is \"*.\" alone";
        assert_eq!(of(json!({"hosts": ["*-a.example"]})), [wild]);
        // An address is no wildcard.
        for address in ["10.0.0.1", "2001:db8::1"] {
            assert_eq!(of(json!({"hosts": [address], "http": []})), [""; 0]);
            let alone = "spec.hosts[0]: is served for requests alone: connections are told by the services that they are to";
            assert_eq!(of(json!({"hosts": [address], "tcp": [{}]})), [alone]);
        }
        // As bookinfo has it.
        assert_eq!(of(json!({"hosts": ["*"], "gateways": ["g"]})), [""; 0]);
        assert_eq!(
            of(json!({"hosts": ["*"], "gateways": ["g", "mesh"]})),
            [wild]
        );
        assert_eq!(of(json!({"hosts": ["*"]})), [wild]);
        let http = |http: Json| of(json!({"hosts": ["a"], "http": [http]}));
        assert_eq!(http(json!({"delegate": {"name": "d"}})), [""; 0]);
        assert_eq!(
            http(json!({"redirect": {"uri": "/", "redirect_code": 304}})),
            [
                "spec.http[0].redirect.redirectCode: is not served: proxies redirect with 301, 302, 303, 307 and 308 alone"
            ]
        );
        let fault = json!({"delay": {"fixedDelay": "1s"}, "abort": {"httpStatus": 500, "percentage": {"value": 1}}});
        assert_eq!(
            http(json!({"fault": fault, "route": route})),
            ["spec.http[0].fault.delay: has no effect: it says no percentage of requests"]
        );
    }

    #[test]
    fn a_part_of_a_server_name_is_said_to_be_none() {
        let of = |gateways: &[&str]| {
            let tls = json!([{"match": [{"sniHosts": ["a.b", "*.b"]}, {"sniHosts": ["*b", "*"]}]}]);
            let spec = json!({"hosts": ["a.b"], "gateways": gateways, "tls": tls});
            said("VirtualService", &spec)
        };
        let said = |at: usize| {
            format!(
                "spec.tls[0].match[1].sniHosts[{at}]: is not served: a wildcard of server names is \"*.\" alone"
            )
        };
        assert_eq!(of(&[]), [said(0), said(1)]);
        assert_eq!(of(&["g"]), [said(0)]);
    }

    #[test]
    fn a_note_names_routes_that_envoy_refuses() {
        let route = json!([{"destination": {"host": "b"}}]);
        let http = |mut http: Json| {
            if http.get("redirect").is_none() {
                http["route"] = route.clone();
            }
            let notes = said("VirtualService", &json!({"hosts": ["a"], "http": [http]}));
            notes.join("; ")
        };
        let line = "is not served: it is more than one line";
        for (written, note) in [
            (json!({"rewrite": {"uri": "a\nb"}}), format!("spec.http[0].rewrite.uri: {line}")),
            (json!({"redirect": {"authority": "a\rb"}}), format!("spec.http[0].redirect.authority: {line}")),
            (json!({"redirect": {"uri": "/x"}}), String::new()),
            (json!({"match": [{"uri": {"regex": "/α[^/]\\xff"}}]}), String::new()),
            (json!({"match": [{"withoutHeaders": {"x": {"regex": "*"}}}]}), String::new()),
            (
                json!({"match": [{"headers": {"x": {"regex": "[^\\x00-\\x{10FFFF}]"}}}]}),
                "spec.http[0].match[0]: is not served: proxies match bytes, and refuse a regular expression with a number \
                 above \\xff or a name beyond ASCII"
                    .to_owned(),
            ),
            (
                json!({"match": [{"queryParams": {"": {"exact": "x"}}}]}),
                "spec.http[0].match[0].queryParams: is not served: proxies take names of 1 to 1024 bytes".to_owned(),
            ),
            (
                json!({"headers": {"request": {"set": {"x": "%NO(x)%", "y": "%REQ(x)%"}}}}),
                "spec.http[0].headers.request.set.x: is not served: it is too long, or has an operator that proxies do not take".to_owned(),
            ),
            (
                json!({"headers": {"response": {"remove": ["x", "a\nb"]}}}),
                "spec.http[0].headers.response.remove[1]: is not served: a name of a header is one line, and not longer than 16384 bytes".to_owned(),
            ),
        ] {
            assert_eq!(http(written.clone()), note, "{written}");
        }
        let many: serde_json::Map<_, _> = (0..=MOST_HEADERS)
            .map(|at| (format!("x{at}"), json!("a")))
            .collect();
        assert_eq!(
            http(json!({"headers": {"request": {"add": many}}})),
            "spec.http[0].headers.request: is served in part: proxies take 1000 headers there"
        );
        let policy = json!({"loadBalancer": {"consistentHash": {"httpHeaderName": ""}}, "tls": {"mode": "SIMPLE", "sni": "a\0"}});
        let rule = json!({"host": "a", "trafficPolicy": {"portLevelSettings": [policy]}, "subsets": [{"trafficPolicy": policy}]});
        assert_eq!(said("DestinationRule", &rule).len(), 4);
    }

    /// A name that is not a host is never served.
    #[test]
    fn hosts_that_are_valid_are_served_or_named() {
        for (host, served, resolved) in [
            ("a", true, true),
            ("a.example.", true, true),
            ("*.example", true, false),
            ("*example", false, false),
            ("*-a.example", false, false),
        ] {
            assert_eq!(unserved_host(host, false).is_none(), served, "{host}");
            assert_eq!(unserved_host(host, true).is_none(), resolved, "{host}");
        }
    }
}
