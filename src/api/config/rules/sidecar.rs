//! Sidecar: a proxy's listeners, and the services that it knows.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

use super::context::Context;
use super::cursor::{Cursor, Violation};
use super::hosts::Hosts;
use super::{parts, pool, predicates as is, server_tls};
use crate::finding::quoted;
use crate::names::canonical_host;

pub(in crate::config) fn check(context: &Context<'_>) {
    let spec = &context.spec;
    parts::selector(&spec.get("workloadSelector"), "labels");
    let all = [
        "ingress",
        "egress",
        "outboundTrafficPolicy",
        "inboundConnectionPool",
    ];
    if spec.lacks(&all) {
        spec.fail("is empty");
    }
    ingress(&spec.get("ingress"));
    // In the root namespace a Sidecar without a selector is for all, and `.` is each proxy's own namespace there.
    let own = match spec.get("workloadSelector").is_set() {
        true => context.namespace,
        false => ".",
    };
    egress(&spec.get("egress"), own);
    let inbound = spec.get("inboundConnectionPool");
    if inbound.is_set() {
        pool::check(&inbound);
    }
    egress_proxy(&spec.get("outboundTrafficPolicy"));
}

fn egress_proxy(policy: &Cursor<'_>) {
    let proxy = policy.get("egressProxy");
    if !proxy.is_set() {
        return;
    }
    let mode = policy.get("mode");
    if mode.text() != "ALLOW_ANY" && !mode.is_broken() {
        proxy.fail("only with ALLOW_ANY");
    }
    let host = proxy.get("host");
    host.check(is::fqdn(host.text()));
    proxy.get("subset").check_text(is::label);
    let port = proxy.get("port");
    if port.required() {
        let number = port.get("number");
        number.check(is::port(number.number()));
    }
}

/// Name and protocol; the number is the caller's.
fn check_port_names(port: &Cursor<'_>) {
    port.get("name").check_text(is::label);
    port.get("protocol").check_text(is::protocol);
    let target = port.get("targetPort");
    if target.number() != 0 {
        target.fail("has no effect");
    }
}

fn unique(number: &Cursor<'_>, numbers: &mut HashSet<i64>) {
    if number.check(is::port(number.number())) && !numbers.insert(number.number()) {
        number.fail(format!("duplicate port {}", number.number()));
    }
}

fn ingress(listeners: &Cursor<'_>) {
    let mut numbers = HashSet::new();
    for listener in listeners.items() {
        let port = listener.get("port");
        if port.required() {
            check_port_names(&port);
            unique(&port.get("number"), &mut numbers);
        }
        listener.get("bind").check_text(is::ip);
        let endpoint = listener.get("defaultEndpoint");
        if !endpoint.is_empty() && !parts::unix_bind(&endpoint) {
            endpoint.check(default_endpoint(endpoint.text()));
        }
        let connections = listener.get("connectionPool");
        if connections.is_set() {
            pool::check(&connections);
        }
        let tls = listener.get("tls");
        if tls.is_set() {
            ingress_tls(&tls, &port);
        }
    }
}

fn default_endpoint(text: &str) -> Violation {
    let hosts = ["", "0.0.0.0", "[::1]", "[::]"];
    // All of 127.0.0.0/8 is this machine.
    let is_loopback = |host: &str| host.parse().is_ok_and(|ip: Ipv4Addr| ip.is_loopback());
    let parts = text
        .rsplit_once(':')
        .filter(|(host, _)| hosts.contains(host) || is_loopback(host));
    let Some((_, port)) = parts else {
        return Some(format!(
            "{} is not [127.0.0.1|0.0.0.0|[::1]|[::]]:PORT",
            quoted(text)
        ));
    };
    match port.parse() {
        Ok(number) if !port.starts_with('+') => is::port(number),
        _ => Some(format!("port {} is not in 1..65535", quoted(port))),
    }
}

fn ingress_tls(tls: &Cursor<'_>, port: &Cursor<'_>) {
    let protocol = port.get("protocol");
    let is_broken = port.is_broken() || protocol.is_broken();
    if !is::is_tls(protocol.text()) && !is_broken {
        tls.fail("needs an HTTPS or TLS port");
    }
    let mode = tls.get("mode");
    if matches!(mode.text(), "ISTIO_MUTUAL" | "AUTO_PASSTHROUGH") {
        mode.fail(format!("{} is not allowed here", mode.text()));
    }
    let never = [
        "subjectAltNames",
        "credentialName",
        "credentialNames",
        "tlsCertificates",
    ];
    for name in tls.set_fields(&never) {
        tls.get(name).fail("not allowed here");
    }
    if tls.get("httpsRedirect").flag() {
        tls.get("httpsRedirect").fail("not allowed here");
    }
    server_tls::check(tls);
}

fn egress(listeners: &Cursor<'_>, own: &str) {
    let mut numbers = HashSet::new();
    let mut sockets = HashSet::new();
    let last = listeners.list().len();
    for (index, listener) in listeners.items().enumerate() {
        let (port, bind) = (listener.get("port"), listener.get("bind"));
        if !port.is_set() {
            if index + 1 < last {
                port.fail("only the last listener may have no port");
            }
        } else {
            check_port_names(&port);
            let number = port.get("number");
            if number.is_broken() {
                // Whether the bind is to be a socket is not known.
            } else if number.number() == 0 {
                socket(&listener, &bind, &mut sockets);
            } else {
                unique(&number, &mut numbers);
                bind.check_text(is::ip);
            }
        }
        let hosts = listener.get("hosts");
        hosts.not_empty();
        egress_hosts(&hosts, own);
    }
}

fn socket<'a>(listener: &Cursor<'a>, bind: &Cursor<'a>, sockets: &mut HashSet<&'a str>) {
    if !parts::unix_bind(bind) {
        bind.fail("port 0 needs unix://PATH");
    } else if !sockets.insert(bind.text()) {
        bind.fail(format!("duplicate socket {}", quoted(bind.text())));
    }
    let capture = listener.get("captureMode");
    if !matches!(capture.text(), "" | "DEFAULT" | "NONE") {
        capture.fail("DEFAULT or NONE on a unix socket");
    }
}

/// Hosts of one listener; another listener may have the same. `own`: the namespace that `.` means.
fn egress_hosts(hosts: &Cursor<'_>, own: &str) {
    let mut hosts_by_namespace: HashMap<&str, Hosts<'_>> = HashMap::new();
    let mut first_hosts: HashMap<(&str, &str), &str> = HashMap::new();
    let mut good = Vec::new();
    for at in hosts.items() {
        if let Some((namespace, host)) = egress_host(&at) {
            let namespace = if namespace == "." { own } else { namespace };
            hosts_by_namespace.entry(namespace).or_default().add(host);
            first_hosts
                .entry((namespace, host))
                .or_insert_with(|| at.text());
            good.push((at, namespace, host));
        }
    }
    // All hosts are known by now: a wider host may stand behind a host that it covers.
    let mut earlier = HashMap::new();
    for (at, namespace, host) in good {
        let own = hosts_by_namespace
            .get(namespace)
            .and_then(|own| own.wider(host));
        let own = own.and_then(|other| first_hosts.get(&(namespace, other)).copied());
        // A host of `~NAMESPACE` is excluded from all, so that the hosts of `*` do not make it redundant.
        let all = hosts_by_namespace
            .get("*")
            .filter(|_| namespace != "*" && !namespace.starts_with('~'));
        let all = all.and_then(|all| all.covering(host));
        let all = all.and_then(|other| first_hosts.get(&("*", other)).copied());
        let same = match earlier.entry((namespace, canonical_host(host))) {
            Entry::Occupied(earlier) => Some(*earlier.get()),
            Entry::Vacant(first) => {
                first.insert(at.text());
                None
            }
        };
        if let Some(other) = own.or(all).or(same) {
            at.warn(format!("covered by {}", quoted(other)));
        }
    }
}

/// A namespace, any, the own, or none; with `~` before it, one whose hosts are taken out.
fn is_egress_namespace(text: &str) -> bool {
    let name = text.strip_prefix('~').unwrap_or(text);
    matches!(text, "*" | "." | "~") || is::is_label(name)
}

/// `NS/HOST`.
fn egress_host<'a>(at: &Cursor<'a>) -> Option<(&'a str, &'a str)> {
    let Some((namespace, host)) = at.text().split_once('/') else {
        at.fail(format!("{} is not NAMESPACE/HOST", quoted(at.text())));
        return None;
    };
    if !is_egress_namespace(namespace) {
        let name = quoted(namespace);
        at.fail(format!("{name} is not \".\", \"*\", \"~\" or a namespace"));
        return None;
    }
    at.check(parts::served_host(host, parts::Addresses::Refused))
        .then_some((namespace, host))
}
