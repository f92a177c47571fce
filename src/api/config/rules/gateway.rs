//! Gateway: servers at the edge.

use std::collections::HashSet;

use super::context::Context;
use super::cursor::{Cursor, Violation};
use super::{parts, predicates as is, server_tls};
use crate::finding::quoted;

pub(in crate::config) fn check(context: &Context<'_>) {
    // Empty is for the API server to complete.
    if !context.name.is_empty() {
        context.name_at.check(is::label(context.name));
    }
    let servers = context.spec.get("servers");
    servers.not_empty();
    let mut names = HashSet::new();
    for server in servers.items() {
        let bind = server.get("bind");
        let bound = parts::unix_bind(&bind);
        port(&server.get("port"), &bind, bound, &mut names);
        if !bound {
            bind.check_text(is::ip);
        }
        let hosts = server.get("hosts");
        hosts.not_empty();
        parts::each(&hosts, host);
        if is::is_tls(server.to(["port", "protocol"]).text()) {
            for item in hosts.items() {
                let name = item.text().rsplit('/').next().unwrap_or_default();
                if is::is_ip(name) {
                    item.warn("an address is no server name: no client of TLS asks for it");
                }
            }
        }
        tls(&server);
    }
}

fn port<'a>(port: &Cursor<'a>, bind: &Cursor<'_>, bound: bool, names: &mut HashSet<&'a str>) {
    if !port.required() {
        return;
    }
    let number = port.get("number");
    if bind.is_broken() {
        // It may have been meant as a socket, whose port is 0.
        parts::port_or_none(&number);
    } else if !bound {
        number.check(is::port(number.number()));
    } else if number.number() != 0 {
        number.fail(format!(
            "port {} is not 0 on a unix socket",
            number.number()
        ));
    }
    let protocol = port.get("protocol");
    if protocol.not_empty() {
        protocol.check(is::protocol(protocol.text()));
    }
    let name = port.get("name");
    if name.not_empty() && !names.insert(name.text()) {
        name.fail(format!("duplicate port name {}", quoted(name.text())));
    }
    let target = port.get("targetPort");
    if target.number() != 0 {
        target.fail("has no effect on gateways");
    }
}

/// Why a server cannot have this host, which has no namespace; `None`: it can.
#[must_use]
pub fn served_host(text: &str) -> Option<String> {
    parts::served_host(text, parts::Addresses::Allowed)
}

/// `[NS/]HOST`.
fn host(text: &str) -> Violation {
    let Some((namespace, host)) = text.split_once('/') else {
        return served_host(text);
    };
    if !matches!(namespace, "*" | ".") && !is::is_label(namespace) {
        return Some(format!(
            "{} is not \".\", \"*\" or a namespace",
            quoted(namespace)
        ));
    }
    served_host(host)
}

fn tls(server: &Cursor<'_>) {
    let tls = server.get("tls");
    let protocol = server.to(["port", "protocol"]).text();
    // The missing protocol is reported; without it no TLS setting can be judged.
    if protocol.is_empty() {
        return;
    }
    if is::is_tls(protocol) {
        if tls.required() {
            server_tls::check(&tls);
        }
    } else if tls.is_set() && is::is_http(protocol) {
        server_tls::check_plaintext(&tls);
    } else if tls.is_set() {
        tls.fail(format!(
            "not allowed on a {} port",
            protocol.to_ascii_uppercase()
        ));
    }
    let redirect = tls.get("httpsRedirect");
    if redirect.flag() && !is::is_http(protocol) {
        redirect.warn("has no effect on a port that is not HTTP");
    }
}
