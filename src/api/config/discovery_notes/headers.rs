//! Changes of headers that proxies do not take.

use serde_json::Value as Json;

use super::{MAX_HEADERS, is_header_name, is_header_value};
use crate::config::{Finding, push_key};

const NO_NAME: &str =
    "is not served: a name of a header is one line, and not longer than 16384 bytes";

/// Headers that are added, in a field of Istio 1.1 and older.
const ADDED: [&str; 3] = [
    "appendHeaders",
    "appendRequestHeaders",
    "appendResponseHeaders",
];
/// Headers that are removed, in such a field.
const REMOVED: [&str; 2] = ["removeRequestHeaders", "removeResponseHeaders"];

/// Adds the notes of a route or of one of its destinations, which `path` leads to: of its `headers`, and of the fields that Istio
/// 1.1 and older had in their place. Most have neither, and need no path.
pub(super) fn notes(path: impl Fn() -> String, headers: &Json, findings: &mut Vec<Finding>) {
    let mut fields = ADDED.iter().chain(&REMOVED).chain(&["headers"]);
    if !fields.any(|field| headers.get(field).is_some()) {
        return;
    }
    let path = path();
    for message in ["request", "response"] {
        let path = format!("{path}.headers.{message}");
        let of = |operation: &str| headers.get("headers")?.get(message)?.get(operation);
        let added = ["set", "add"].map(|name| added(&format!("{path}.{name}"), of(name), findings));
        let removed = removed(&format!("{path}.remove"), of("remove"), findings);
        if added.iter().sum::<usize>() > MAX_HEADERS || removed > MAX_HEADERS {
            let why = format!("is served in part: proxies take {MAX_HEADERS} headers there");
            findings.push(Finding::warning(path, why));
        }
    }
    for old in ADDED {
        added(&format!("{path}.{old}"), headers.get(old), findings);
    }
    for old in REMOVED {
        removed(&format!("{path}.{old}"), headers.get(old), findings);
    }
}

/// Notes headers that are added, and returns their number.
fn added(path: &str, pairs: Option<&Json>, findings: &mut Vec<Finding>) -> usize {
    let pairs = pairs.and_then(Json::as_object);
    for (name, value) in pairs.into_iter().flatten() {
        let why = if !is_header_name(name) {
            NO_NAME
        } else if !is_header_value(value.as_str().unwrap_or_default()) {
            "is not served: it is too long, or has an operator that proxies do not take"
        } else {
            continue;
        };
        let mut path = path.to_owned();
        push_key(&mut path, name);
        findings.push(Finding::warning(path, why));
    }
    pairs.map_or(0, serde_json::Map::len)
}

/// Notes headers that are removed, and returns their number.
fn removed(path: &str, names: Option<&Json>, findings: &mut Vec<Finding>) -> usize {
    let names = names.and_then(Json::as_array);
    for (at, name) in names.into_iter().flatten().enumerate() {
        if !is_header_name(name.as_str().unwrap_or_default()) {
            findings.push(Finding::warning(format!("{path}[{at}]"), NO_NAME));
        }
    }
    names.map_or(0, Vec::len)
}
