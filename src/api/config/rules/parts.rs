//! Rules that several kinds share: each over one place, with predicates below it.

use std::collections::HashSet;

use super::cursor::Cursor;
use super::predicates as is;
use super::regex::regex;
use crate::finding::quoted;

/// DUR, where there is one.
pub(super) fn duration(at: &Cursor<'_>) {
    if let Some(nanos) = at.nanos() {
        at.check(is::duration(nanos).or_else(|| is::not_too_long(nanos)));
    }
}

/// DUR but for its bound, which is one of resources.
pub(super) fn milliseconds(at: &Cursor<'_>) {
    if let Some(nanos) = at.nanos() {
        at.check(is::duration(nanos));
    }
}

/// The bound of DUR alone.
pub(super) fn duration_bound(at: &Cursor<'_>) {
    if let Some(nanos) = at.nanos() {
        at.check(is::not_too_long(nanos));
        if nanos < 0 {
            at.warn("a negative duration is served as 0s");
        }
    }
}

/// DUR but for its bound, or 0.
pub(super) fn duration_or_none(at: &Cursor<'_>) {
    if at.nanos() != Some(0) {
        milliseconds(at);
    }
}

/// PORT, where one is written.
pub(super) fn port(at: &Cursor<'_>) {
    if at.is_set() {
        at.check(is::port(at.number()));
    }
}

/// 0 or PORT.
pub(super) fn port_or_none(at: &Cursor<'_>) {
    at.check(is::port_or_none(at.number()));
}

pub(super) fn pct(at: &Cursor<'_>) {
    at.check(is::pct(at.number()));
}

/// LABELS.
pub(super) fn labels(at: &Cursor<'_>) {
    for (key, value) in at.entries() {
        value.check(is::label_key(key));
        value.check(is::label_value(value.text()));
    }
}

/// Each text of a list.
pub(super) fn each(at: &Cursor<'_>, predicate: impl Fn(&str) -> super::cursor::Violation) {
    for item in at.items() {
        item.check(predicate(item.text()));
    }
}

/// No text of a list is empty.
pub(super) fn none_empty(at: &Cursor<'_>) {
    for item in at.items() {
        item.not_empty();
    }
}

/// SELECTOR; `labels` is the kind's name of the field. Returns true if it has labels, or is unreadable.
pub(super) fn selector(at: &Cursor<'_>, labels: &'static str) -> bool {
    let labels = at.get(labels);
    if at.is_broken() || labels.is_broken() {
        return true;
    }
    if !at.is_set() {
        return false;
    }
    selector_labels(&labels);
    if labels.is_empty() {
        at.warn("selects every workload in the namespace");
    }
    !labels.is_empty()
}

/// SELECTOR without its warning.
pub(super) fn selector_labels(labels: &Cursor<'_>) {
    for (key, value) in labels.entries() {
        if key.is_empty() {
            value.fail("empty key");
        }
        if key.contains('*') || value.text().contains('*') {
            value.fail("no wildcards here");
        }
    }
}

/// GWNAME of a list.
pub(super) fn gateways(at: &Cursor<'_>) {
    for item in at.items() {
        let name = item.text();
        if item.check(is::gateway_name(name)) && !name.contains('/') && name.contains('.') {
            item.warn("write NAMESPACE/NAME");
        }
    }
}

/// Warns of an authority that is no host.
pub(super) fn authority(at: &Cursor<'_>) {
    let text = at.text();
    if !text.chars().all(is::letter_of_authority) {
        at.warn(format!(
            "{} is not a host: it has characters that RFC 3986 allows in none",
            quoted(text)
        ));
    }
}

/// The entry `~` of an `exportTo`: no namespace sees the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExportToNone {
    Allowed,
    Refused,
}

/// EXPORT.
pub(super) fn export_to(at: &Cursor<'_>, namespace: &str, to_none: ExportToNone) {
    let mut namespaces = HashSet::new();
    for item in at.items() {
        let entry = item.text();
        let alone = entry == "*" || to_none == ExportToNone::Allowed && entry == "~";
        if !alone && entry != "." && !is::is_label(entry) {
            item.fail(format!(
                "{} is not \".\", \"*\" or a namespace",
                quoted(entry)
            ));
            continue;
        }
        let namespace_name = if entry == "." { namespace } else { entry };
        if !namespaces.insert(namespace_name) {
            item.fail("duplicate");
        }
        if alone && at.list().len() > 1 {
            item.fail("stands only alone");
        }
    }
}

/// MATCH.
pub(super) fn string_match(at: &Cursor<'_>) {
    let prefix = at.get("prefix");
    if prefix.is_set() && prefix.is_empty() {
        prefix.fail("empty prefix");
    }
    regex_of(&at.get("regex"));
}

/// REGEX, where one is written.
pub(super) fn regex_of(at: &Cursor<'_>) {
    if at.is_set() {
        at.check(regex(at.text()));
    }
}

/// DEST.
pub(super) fn destination(at: &Cursor<'_>) {
    let host = at.get("host");
    if host.text() == "*" {
        host.fail("\"*\" is not a host name: it stands for all of them");
    } else {
        host.check(is::wild(host.text()));
    }
    at.get("subset").check_text(is::label);
    if at.get("port").is_set() {
        let number = at.to(["port", "number"]);
        number.check(is::port(number.number()));
    }
}

/// Weights of several destinations.
pub(super) fn weights(at: &Cursor<'_>) {
    for item in at.items() {
        pct(&item.get("weight"));
    }
    let broken = at
        .items()
        .any(|item| item.is_broken() || item.get("weight").is_broken());
    // A single destination gets all requests; a weight that cannot be read might make the sum.
    if at.list().len() > 1 && !broken {
        let sum = at.items().fold(0i64, |sum, item| {
            sum.saturating_add(item.get("weight").number())
        });
        if sum != 100 {
            at.fail(format!("weights add up to {sum}, not 100"));
        }
    }
}

/// The fields of a match that are about the connection and its source; each is checked where it is written.
pub(super) fn connection_match(at: &Cursor<'_>) {
    each(&at.get("destinationSubnets"), is::cidr);
    at.get("sourceSubnet").check_text(is::cidr);
    port_or_none(&at.get("port"));
    labels(&at.get("sourceLabels"));
    gateways(&at.get("gateways"));
    at.get("sourceNamespace").check_text(is::label);
}

/// Checks the address of a listener if it is a socket in the file system. Returns true if it is one.
pub(super) fn unix_bind(at: &Cursor<'_>) -> bool {
    match is::unix(at.text()) {
        Some(path) => {
            at.check(is::uds(path));
            true
        }
        None => false,
    }
}

/// Addresses in the place of names of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addresses {
    Allowed,
    Refused,
}

/// A host of a Gateway's server: one with a dot, a wildcard only as its first label.
pub(super) fn served_host(host: &str, addresses: Addresses) -> super::cursor::Violation {
    if host == "*" || addresses == Addresses::Allowed && is::is_ip(host) {
        return None;
    }
    if let Some(wrong) = is::wild(host) {
        return Some(wrong);
    }
    if host.starts_with('*') && !host.starts_with("*.") {
        return Some(format!(
            "{} is not a host name: a wildcard only as \"*.\"",
            quoted(host)
        ));
    }
    let dotted = host.strip_suffix('.').unwrap_or(host).contains('.');
    (!dotted).then(|| "short names are not allowed".to_owned())
}

/// TARGETS: of `spec`, for kinds that have them.
pub(super) fn targets(spec: &Cursor<'_>) {
    let fields = spec.set_fields(&["selector", "targetRef", "targetRefs"]);
    if fields.len() > 1 {
        spec.fail("only one of selector, targetRef, targetRefs");
    }
    let one = spec.get("targetRef");
    let all = spec.get("targetRefs").items();
    for target in one.is_set().then_some(one).into_iter().chain(all) {
        let name = target.get("name");
        if name.is_empty() {
            name.fail("name is required");
        }
        let namespace = target.get("namespace");
        if !namespace.is_empty() {
            namespace.fail("no namespace here");
        }
        let (group, kind) = (target.get("group").text(), target.get("kind").text());
        let is_target = matches!(
            (group, kind),
            ("" | "core", "Service")
                | ("networking.istio.io", "ServiceEntry")
                | ("gateway.networking.k8s.io", "Gateway" | "GatewayClass")
        );
        if !is_target && !target.any_broken(&["group", "kind"]) {
            target.fail(format!("{group}/{kind} cannot be a target"));
        }
    }
}
