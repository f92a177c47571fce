//! Discovery cannot serve every valid object as it is written. This module has the notes about the differences, and the
//! predicates by which discovery decides them, so that notes and resources agree.

pub(super) mod authorization;
pub(super) mod destination_rule;
pub(super) mod envoy_filter;
mod files;
pub(super) mod gateway;
mod headers;
pub(super) mod request_authentication;
pub(super) mod service_entry;
pub(super) mod sidecar;
mod targets;
pub(super) mod virtual_service;

use serde_json::Value as Json;

use super::Finding;
use super::regex_size::{MAX_PROGRAM_SIZE, program_size};
use super::rules::{access_log, regex};

pub use super::claims::claim_path;
pub use super::grpc_status::grpc_status;
pub use destination_rule::{MAX_FAILOVER_LABELS, is_status};
pub use envoy_filter::{
    MAX_PATCHES, is_applied, is_unapplied_match, lacks_name, may_complete, missing_field,
    missing_part, names_nothing, patched_message,
};
pub use gateway::{client_root, is_certificate_hash, is_cipher_suite, is_key_pin};
pub use request_authentication::{MAX_FETCH_TIMEOUT, is_output_header};
pub use service_entry::unserved_host;
pub use sidecar::{MAX_EGRESS_LISTENERS, egress_socket};
pub use targets::is_service;
pub use virtual_service::is_server_name;

/// The note at a PeerAuthentication whose selector finds routers alone.
pub const PEERS_OF_ROUTERS: &str = "is enforced by no server: its selector finds routers alone, which take the TLS that their Gateways say; clients choose \
                                    TLS for their endpoints by it";

/// The note at a Sidecar whose selector finds routers alone.
pub const SIDECAR_OF_ROUTERS: &str = "holds for no proxy: its workloadSelector finds routers alone";

/// The notes of a valid spec of one kind, in one spelling, whose fields are served otherwise than they say. The row of the kind
/// has it.
pub(super) type SpecNotes = fn(&Json) -> Vec<Finding>;

fn items<'a>(spec: &'a Json, name: &str) -> impl Iterator<Item = (usize, &'a Json)> {
    let all = spec.get(name).and_then(Json::as_array);
    all.into_iter().flatten().enumerate()
}

/// Returns true if a port of a rule is one of UDP, which proxies do not carry.
fn is_udp(port: &Json) -> bool {
    let protocol = port.get("protocol").and_then(Json::as_str);
    protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case("UDP"))
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
    if program_size(pattern) > MAX_PROGRAM_SIZE {
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

/// Bytes of a header's name, and of its value (envoy/config/core/v3/base.proto).
const MAX_HEADER_LENGTH: usize = 16_384;
/// Bytes of a parameter's name (envoy/config/route/v3/route_components.proto).
const MAX_PARAMETER_LENGTH: usize = 1024;

/// Returns true if proxies take a name of a header.
#[must_use]
pub fn is_header_name(name: &str) -> bool {
    (1..=MAX_HEADER_LENGTH).contains(&name.len()) && is_one_line(name)
}

/// Returns true if proxies take an attribute of a cookie: a name, and a value that may be empty
/// (envoy/config/route/v3/route_components.proto).
#[must_use]
pub fn is_cookie_attribute(name: &str, value: &str) -> bool {
    is_header_name(name) && value.len() <= MAX_HEADER_LENGTH && is_one_line(value)
}

/// Bytes of the name of a server that a client says in TLS (envoy/extensions/transport_sockets/tls/v3/tls.proto).
const MAX_SNI_LENGTH: usize = 255;

/// Returns true if proxies take a name of a server that they are to say.
#[must_use]
pub fn is_sni(name: &str) -> bool {
    name.len() <= MAX_SNI_LENGTH && is_one_line(name)
}

/// Returns true if proxies take the name of a query parameter.
#[must_use]
pub fn is_parameter(name: &str) -> bool {
    (1..=MAX_PARAMETER_LENGTH).contains(&name.len())
}

/// Returns true if proxies know all operators in the value of a header, `%REQ(X)%`. The text in parentheses has a grammar for
/// each operator: if it is not plain, it is not taken.
#[must_use]
pub fn is_header_value(value: &str) -> bool {
    value.len() <= MAX_HEADER_LENGTH
        && is_one_line(value)
        && access_log::fault(value).is_none()
        // Its parameter has percent signs of its own.
        && !value.contains("START_TIME(")
        && parameters(value).all(|(operator, inside)| is_served_operator(operator, inside))
}

/// Returns the operators with parentheses, each with the text in them. Two signs are one letter, read from left to right.
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

fn is_served_operator(operator: &str, inside: &str) -> bool {
    let letters = |text: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !text.is_empty() && text.bytes().all(is_plain)
    };
    match operator {
        "REQ" | "RESP" | "TRAILER" => {
            // The header behind `?` stands in for the first; `a` is a plain one where there is none.
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
const MAX_RING_SIZE: u64 = 1 << 16;
const MIN_RING_SIZE: u64 = 1 << 10;

/// Entries of the ring of a cluster of whose kind its service has so many.
#[must_use]
pub fn largest_ring(clusters: usize) -> u64 {
    share(clusters).clamp(MIN_RING_SIZE, MAX_RING_SIZE)
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
pub const MAX_SUBSETS: usize = 1000;

/// Headers that proxies add to one message, and those that they take from it (envoy/config/route/v3/route_components.proto).
pub const MAX_HEADERS: usize = 1000;

/// The notes at an object of `networking.istio.io`, as their paths and messages.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
fn noted(kind: &str, spec: &Json) -> Vec<String> {
    let kind = super::named("networking.istio.io", kind).unwrap();
    let notes = super::notes(kind, spec).into_iter();
    notes
        .map(|note| {
            assert!(!note.is_error());
            format!("{}: {}", note.path, note.message)
        })
        .collect()
}
