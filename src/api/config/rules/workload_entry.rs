//! WorkloadEntry: one endpoint that no registry has; ServiceEntry has its like.

use std::collections::HashSet;

use super::context::Context;
use super::cursor::Cursor;
use super::{parts, predicates as is};
use crate::finding::quoted;
use crate::size;

pub(in crate::config) fn check(context: &Context<'_>) {
    let spec = &context.spec;
    let address = spec.get("address");
    if address.is_empty() {
        absent(spec, &address);
    } else if parts::unix_bind(&address) {
        let ports = spec.get("ports");
        if !ports.is_empty() {
            ports.fail("no ports on a unix socket");
        }
    } else {
        address.check(is::fqdn_or_ip(address.text()));
    }
    texts(spec);
    ports(&spec.get("ports"), None);
    parts::labels(&spec.get("labels"));
}

/// Without an address there is a network behind a gateway.
pub(super) fn absent(endpoint: &Cursor<'_>, address: &Cursor<'_>) {
    if endpoint.has("network") {
        address.warn("only the gateways of its network are reached");
    } else if endpoint.lacks(&["network"]) {
        address.required_text();
    }
}

/// The fields whose text stands in an answer for each port that it serves.
const TEXTS: [&str; 3] = ["locality", "network", "serviceAccount"];

pub(super) fn texts(entry: &Cursor<'_>) {
    for field in TEXTS {
        let text = entry.get(field);
        text.check(size::text(text.text()));
    }
}

/// Returns the number of places that an entry counts for at each port that it serves.
pub(super) fn places(entry: &Cursor<'_>) -> usize {
    size::endpoint(TEXTS.map(|field| entry.get(field).text()))
}

/// `known` has the names of the service's ports.
pub(super) fn ports(ports: &Cursor<'_>, known: Option<&HashSet<&str>>) {
    for (name, number) in ports.entries() {
        if number.check(is::label(name)) && known.is_some_and(|known| !known.contains(name)) {
            number.fail(format!("{} is not a port of the service", quoted(name)));
        }
        number.check(is::port(number.number()));
    }
}
