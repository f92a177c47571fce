//! Services that a mesh configuration names for policies to ask.

use std::collections::HashSet;

use super::cursor::Cursor;
use super::predicates as is;
use crate::finding::quoted;

/// Warns of providers that no policy can use: a policy that names one denies all requests and connections.
pub(super) fn check(providers: &Cursor<'_>) {
    let mut known = HashSet::new();
    for provider in providers.items() {
        let name = provider.get("name");
        if !known.insert(name.text().to_owned()) {
            name.warn(format!(
                "{} is named twice: the first counts",
                quoted(name.text())
            ));
        }
        for kind in ["envoyExtAuthzHttp", "envoyExtAuthzGrpc"] {
            let asked = provider.get(kind);
            if !asked.is_set() || asked.is_broken() {
                continue;
            }
            let (service, port) = (asked.get("service"), asked.get("port"));
            if service.is_empty() {
                service.warn("names no service: policies with this provider deny all requests and connections");
            }
            if let Some(wrong) = is::port(port.number()) {
                port.warn(format!(
                    "{wrong}: policies with this provider deny all requests and connections"
                ));
            }
        }
    }
}
