//! VirtualService: its hosts and gateways, and its three lists of routes.

use std::collections::HashSet;

use serde_json::Value;

use super::context::Context;
use super::cursor::Cursor;
use super::hosts::Hosts;
use super::http_route::{self, VirtualServiceFacts};
use super::parts;
use super::predicates as is;
use crate::finding::quoted;
use crate::model::Network;

pub(in crate::config) fn check(context: &Context<'_>) {
    let spec = &context.spec;
    let hosts = spec.get("hosts");
    let gateways = spec.get("gateways");
    let facts = VirtualServiceFacts {
        // Gateways that cannot be read are a finding of their own; no host is blamed for them.
        only_gateways: gateways.is_broken()
            || !gateways.is_empty() && gateways.texts().all(|name| name != "mesh"),
        delegate: hosts.is_empty() && !hosts.is_broken(),
        hosts: hosts.is_readable().then(|| Hosts::of(hosts.texts())),
    };
    if facts.delegate {
        hosts.warn("without hosts it only serves as a delegate");
        for name in ["gateways", "tls", "tcp"] {
            if spec.has(name) {
                spec.get(name).fail("not in a delegate");
            }
        }
    }
    names(&hosts, &facts);
    parts::gateways(&gateways);
    parts::export_to(
        &spec.get("exportTo"),
        context.namespace,
        parts::ExportToNone::Refused,
    );
    if spec.lacks(&["http", "tls", "tcp"]) {
        spec.fail("needs http, tls or tcp");
    }
    let (http, tls, tcp) = (spec.get("http"), spec.get("tls"), spec.get("tcp"));
    http.items()
        .for_each(|route| http_route::check(&route, &facts));
    tls.items().for_each(|route| tls_route(&route, &facts));
    tcp.items().for_each(|route| tcp_route(&route));
    for (rules, name) in [(&http, "http"), (&tls, "tls"), (&tcp, "tcp")] {
        unreached(rules, name);
    }
}

fn names(hosts: &Cursor<'_>, facts: &VirtualServiceFacts<'_>) {
    let mut earlier = Hosts::default();
    for host in hosts.items() {
        let name = host.text();
        if name == "*" && !facts.only_gateways {
            host.fail("\"*\" cannot be bound to the mesh gateway");
        } else if !is_listener_name(name, facts) && !is::is_ip(name) && !host.check(is::wild(name))
        {
            // A host that is invalid is reported once, and compared with none.
            continue;
        }
        if let Some(other) = earlier.overlapping(name) {
            host.fail(format!("overlaps with {}", quoted(other)));
        }
        earlier.add(name);
    }
}

/// `outbound_.PORT_.SUBSET_.HOST`, which gateways between networks have.
fn is_listener_name(name: &str, facts: &VirtualServiceFacts<'_>) -> bool {
    let parts = || {
        let rest = name.strip_prefix("outbound_.")?;
        let (port, rest) = rest.split_once("_.")?;
        let (subset, host) = rest.split_once("_.")?;
        let right = is_number_of_port(port)
            && (subset.is_empty() || is::is_label(subset))
            && is::fqdn(host).is_none();
        right.then_some(())
    };
    facts.only_gateways && parts().is_some()
}

fn is_number_of_port(text: &str) -> bool {
    // `parse` alone would take a plus.
    let digits = text.bytes().all(|letter| letter.is_ascii_digit());
    digits && text.parse().is_ok_and(|number| is::port(number).is_none())
}

fn tls_route(route: &Cursor<'_>, facts: &VirtualServiceFacts<'_>) {
    let matches = route.get("match");
    matches.not_empty();
    for one in matches.items() {
        let names = one.get("sniHosts");
        names.not_empty();
        for name in names.items() {
            sni(&name, facts);
        }
        parts::connection_match(&one);
    }
    destinations(route);
}

fn sni(at: &Cursor<'_>, facts: &VirtualServiceFacts<'_>) {
    let name = at.text();
    if is::is_ip(name) {
        // Hosts, which are names, cover none.
        at.warn("an IP address is not sent as SNI");
        return;
    }
    if !is_listener_name(name, facts) && !at.check(is::wild(name)) {
        return;
    }
    let covers = |hosts: &Hosts<'_>| hosts.covering(name).is_some();
    if !facts.delegate && !facts.hosts.as_ref().is_none_or(covers) {
        at.fail(format!("{} is not covered by hosts", quoted(name)));
    }
}

fn tcp_route(route: &Cursor<'_>) {
    route
        .get("match")
        .items()
        .for_each(|one| parts::connection_match(&one));
    destinations(route);
}

fn destinations(route: &Cursor<'_>) {
    let all = route.get("route");
    all.not_empty();
    for one in all.items() {
        let destination = one.get("destination");
        if destination.required() {
            parts::destination(&destination);
        }
    }
    parts::weights(&all);
}

/// Rules that stand behind others which take all that they would.
fn unreached(rules: &Cursor<'_>, name: &str) {
    let mut all_from: Option<(usize, &str)> = None;
    let mut known: HashSet<String> = HashSet::new();
    for (index, rule) in rules.items().enumerate() {
        let matches = rule.get("match");
        if let Some((first, why)) = all_from {
            rule.unreachable(&format!("{name}[{first}] {why}"));
            continue;
        }
        // Its unreadable parts might match more, or less.
        if !matches.is_readable() {
            continue;
        }
        // Its delegate may leave requests to the next rules.
        if rule.get("delegate").is_set() {
            continue;
        }
        let without = |item: &Value| item.as_object().is_some_and(serde_json::Map::is_empty);
        if matches.is_empty() || matches.list().iter().any(without) {
            all_from = Some((index, "has no match"));
            continue;
        }
        if matches.list().iter().any(is_every_path) {
            all_from = Some((index, "matches every path"));
            continue;
        }
        let own: Vec<String> = matches.list().iter().map(canonical).collect();
        if own.iter().all(|one| known.contains(one)) {
            rule.unreachable("its matches stand in earlier rules");
        }
        known.extend(own);
    }
}

/// Returns true if a match asks for a path alone, and any will do.
fn is_every_path(one: &Value) -> bool {
    const PATHS: [&str; 3] = [".*", ".+", "/.*"];
    let Some(fields) = one.as_object() else {
        return false;
    };
    let value = |name: &str| fields.get("uri")?.get(name)?.as_str();
    let is_any = matches!(value("prefix"), Some("" | "/"))
        || value("regex").is_some_and(|regex| PATHS.contains(&regex));
    let mut names = fields.keys().map(String::as_str);
    is_any && names.all(|name| matches!(name, "uri" | "ignoreUriCase" | "name" | "statPrefix"))
}

/// Ranges of addresses in their one spelling.
fn ranges(list: &Value) -> Value {
    let one = |range: &Value| match range.as_str() {
        Some(range) => Value::String(Network::canonical(range)),
        None => range.clone(),
    };
    let spelled = |list: &Vec<Value>| list.iter().map(one).collect();
    list.as_array().map_or_else(|| list.clone(), spelled)
}

/// Returns equal texts for equal matches, independent of the order of fields and of the name.
fn canonical(one: &Value) -> String {
    fn write(value: &Value, top: bool, to: &mut String) {
        match value {
            Value::Object(entries) => {
                let mut sorted: Vec<_> = entries
                    .iter()
                    .filter(|(name, _)| !(top && matches!(name.as_str(), "name" | "statPrefix")))
                    .collect();
                sorted.sort_unstable_by_key(|(name, _)| *name);
                to.push('{');
                for (name, value) in sorted {
                    to.push_str(&Value::String(name.clone()).to_string());
                    match name.as_str() {
                        // Two spellings of one range match the same.
                        "destinationSubnets" => write(&ranges(value), false, to),
                        _ => write(value, false, to),
                    }
                }
                to.push('}');
            }
            Value::Array(items) => {
                to.push('[');
                items.iter().for_each(|item| {
                    write(item, false, to);
                    to.push(',');
                });
                to.push(']');
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                to.push_str(&value.to_string());
            }
        }
    }
    let mut text = String::new();
    write(one, true, &mut text);
    text
}
