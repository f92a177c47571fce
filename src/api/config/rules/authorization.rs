//! AuthorizationPolicy: which requests are allowed.

use super::context::Context;
use super::cursor::{Cursor, Violation};
use super::{parts, predicates as is, security};
use crate::finding::quoted;

/// Conditions of a source, with their not-forms.
const SOURCE: [&str; 14] = [
    "principals",
    "notPrincipals",
    "requestPrincipals",
    "notRequestPrincipals",
    "namespaces",
    "notNamespaces",
    "ipBlocks",
    "notIpBlocks",
    "remoteIpBlocks",
    "notRemoteIpBlocks",
    "serviceAccounts",
    "notServiceAccounts",
    "trustDomains",
    "notTrustDomains",
];
const OPERATION: [&str; 8] = [
    "hosts",
    "notHosts",
    "ports",
    "notPorts",
    "methods",
    "notMethods",
    "paths",
    "notPaths",
];

pub(in crate::config) fn check(context: &Context<'_>) {
    let spec = &context.spec;
    security::scope(spec);
    let is_known = !spec.get("action").is_broken();
    let action = spec.get("action").text();
    let (rules, provider) = (spec.get("rules"), spec.get("provider"));
    if matches!(action, "DENY" | "CUSTOM") && rules.is_empty() {
        rules.fail("never matches; add an empty rule");
    }
    if action == "CUSTOM" {
        provider.get("name").not_empty();
    } else if provider.is_set() && is_known {
        provider.fail("only with CUSTOM");
    }
    for rule in rules.items() {
        if !rule.is_set() {
            rule.fail("must not be null");
            continue;
        }
        let decision = match action {
            "CUSTOM" => Decision::OfProvider,
            _ => Decision::OfProxy,
        };
        check_rule(&rule, decision);
        // A part that could not be read may name the ports.
        if action == "DENY" && rule.is_readable() {
            if only_http(&rule) {
                rule.warn("denies all TCP traffic in its scope; name the ports");
            } else if has_http_operation(&rule) {
                rule.warn("denies all TCP traffic of the clients that it names; name the ports");
            }
        }
    }
}

/// The decision about a request that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    OfProxy,
    /// Action CUSTOM: an authorizer, which is an extension provider of the mesh.
    OfProvider,
}

fn check_rule(rule: &Cursor<'_>, decision: Decision) {
    for name in ["from", "to"] {
        let list = rule.get(name);
        if list.is_set() {
            list.not_empty();
        }
    }
    for from in rule.get("from").items() {
        let source = from.get("source");
        if source.required() {
            check_source(&source, decision);
        }
    }
    for to in rule.get("to").items() {
        let operation = to.get("operation");
        if operation.required() {
            check_operation(&operation);
        }
    }
    for when in rule.get("when").items() {
        condition(&when, decision);
    }
}

fn one_list(at: &Cursor<'_>, names: &[&'static str]) {
    if at.lacks(names) {
        at.fail(format!("needs one of {}", names.join(", ")));
    }
    for name in names {
        parts::none_empty(&at.get(name));
    }
}

/// An empty text has a finding already.
fn filled(predicate: impl Fn(&str) -> Violation) -> impl Fn(&str) -> Violation {
    move |text| {
        if text.is_empty() {
            None
        } else {
            predicate(text)
        }
    }
}

fn check_source(source: &Cursor<'_>, decision: Decision) {
    one_list(source, &SOURCE);
    for name in SOURCE {
        let list = source.get(name);
        match name {
            "ipBlocks" | "notIpBlocks" | "remoteIpBlocks" | "notRemoteIpBlocks" => {
                parts::each(&list, filled(is::cidr));
                // An authorizer may go by addresses, which are no identity of a peer.
                continue;
            }
            "serviceAccounts" | "notServiceAccounts" => service_accounts(&list),
            "trustDomains" | "notTrustDomains" => parts::each(&list, filled(trust_domain)),
            _ => {}
        }
        if decision == Decision::OfProvider && list.is_set() {
            list.fail("not supported with CUSTOM");
        }
    }
    for own in ["serviceAccounts", "notServiceAccounts"] {
        for other in ["principals", "notPrincipals", "namespaces", "notNamespaces"] {
            source.apart(own, other);
        }
    }
}

fn service_accounts(list: &Cursor<'_>) {
    // Source: `MaxItems` and `MaxLength` of `serviceAccounts` in Istio's API.
    const MAX_ITEMS: usize = 16;
    const MAX_LENGTH: usize = 320;
    if list.list().len() > MAX_ITEMS {
        list.fail(format!("more than {MAX_ITEMS}"));
    }
    parts::each(
        list,
        filled(|name| {
            let quoted = quoted(name);
            if name.contains('*') {
                return Some(format!("no wildcards in {quoted}"));
            }
            if name.len() > MAX_LENGTH {
                return Some(format!("{quoted} is longer than {MAX_LENGTH} characters"));
            }
            let mut parts = name.split('/');
            let holds = name.split('/').count() <= 2 && parts.all(|part| !part.is_empty());
            (!holds).then(|| format!("{quoted} is not NAME or NAMESPACE/NAME"))
        }),
    );
}

fn trust_domain(name: &str) -> Violation {
    let inner = name.strip_prefix('*').or_else(|| name.strip_suffix('*'));
    let holds = !inner.unwrap_or(name).contains('*') && !name.contains('/');
    (!holds).then(|| {
        let quoted = quoted(name);
        format!("{quoted}: one * at most, first or last, no /")
    })
}

fn check_operation(operation: &Cursor<'_>) {
    one_list(operation, &OPERATION);
    for name in ["ports", "notPorts"] {
        parts::each(&operation.get(name), filled(port));
    }
    for name in ["paths", "notPaths"] {
        parts::each(&operation.get(name), filled(path));
    }
}

/// 0 to 65535, as digits.
fn port(text: &str) -> Violation {
    let digits = text.bytes().all(|letter| letter.is_ascii_digit());
    let holds = digits && text.parse::<u16>().is_ok();
    (!holds).then(|| format!("port {} is not in 0..65535", quoted(text)))
}

/// `{*}` is one segment, `{**}` all that follow.
fn path(text: &str) -> Violation {
    if !text.contains(['{', '}']) {
        return None;
    }
    let mut ended = false;
    for segment in text.split('/') {
        let known = matches!(segment, "{*}" | "{**}");
        if known && ended {
            return Some(format!(
                "nothing of the kind after {{**}} in {}",
                quoted(text)
            ));
        }
        if !known && segment.contains(['{', '}']) {
            let quoted = quoted(text);
            return Some(format!(
                "{{*}} and {{**}} only as whole segments in {quoted}"
            ));
        }
        ended |= segment == "{**}";
    }
    // A policy would have Envoy compare such a star as a letter, and a DENY would keep nothing out.
    let is_star = |segment: &str| segment.contains('*') && !matches!(segment, "{*}" | "{**}");
    let holds = !text.split('/').any(is_star);
    (!holds).then(|| format!("no * beside {{*}} and {{**}} in {}", quoted(text)))
}

const KEYS: [&str; 14] = [
    "source.ip",
    "remote.ip",
    "destination.ip",
    "source.namespace",
    "source.principal",
    "source.serviceAccount",
    "source.trustDomain",
    "request.auth.principal",
    "request.auth.audiences",
    "request.auth.presenter",
    "destination.port",
    "connection.sni",
    "request.headers",
    "request.auth.claims",
];

/// Removed keys, each with its replacement.
const RENAMED_KEYS: [(&str, &str); 4] = [
    ("destination.namespace", "the namespace of the policy"),
    ("destination.labels", "the selector of the policy"),
    ("destination.name", "the selector of the policy"),
    ("destination.user", "the selector of the policy"),
];

fn condition(when: &Cursor<'_>, decision: Decision) {
    let key = when.get("key");
    if key.required_text() && key.check(check_key(key.text())) && decision == Decision::OfProvider {
        let text = key.text();
        let identity = [
            "source.namespace",
            "source.serviceAccount",
            "source.trustDomain",
            "source.principal",
        ];
        if identity.contains(&text) || text.starts_with("request.auth.") {
            key.fail("not supported with CUSTOM");
        }
    }
    if when.lacks(&["values", "notValues"]) {
        when.fail("values or notValues must not be empty");
    }
    for name in ["values", "notValues"] {
        let values = when.get(name);
        parts::none_empty(&values);
        match key.text() {
            "source.ip" | "remote.ip" | "destination.ip" => parts::each(&values, filled(is::cidr)),
            "destination.port" => parts::each(&values, filled(port)),
            _ => {}
        }
    }
}

fn check_key(key: &str) -> Violation {
    let (name, brackets) = match key.find('[') {
        Some(at) => key.split_at(at),
        None => (key, ""),
    };
    if let Some((_, now)) = RENAMED_KEYS.iter().find(|(old, _)| *old == name) {
        return Some(format!("not supported any more, use {now}"));
    }
    let closed = !brackets.is_empty()
        && brackets.strip_suffix(']').is_some_and(|inside| {
            inside.split("][").enumerate().all(|(index, part)| {
                !part
                    .trim_start_matches(if index == 0 { "[" } else { "" })
                    .is_empty()
            })
        });
    let one = closed && !brackets.contains("][");
    let holds = match name {
        "request.headers" => one,
        "request.auth.claims" => closed,
        _ if name.starts_with("experimental.envoy.filters.") => one,
        _ => brackets.is_empty() && KEYS.contains(&name),
    };
    (!holds).then(|| format!("unknown key {}", quoted(key)))
}

/// Fields of an operation that a TCP connection does not have.
pub(in crate::config) const HTTP_OPERATION: [&str; 6] = [
    "hosts",
    "notHosts",
    "methods",
    "notMethods",
    "paths",
    "notPaths",
];

/// Returns true if one of a rule's operations has conditions on requests alone, which no TCP connection meets.
fn has_http_operation(rule: &Cursor<'_>) -> bool {
    rule.get("to").items().any(|to| {
        let fields = to.get("operation").set_fields(&OPERATION);
        !fields.is_empty() && fields.iter().all(|name| HTTP_OPERATION.contains(name))
    })
}

/// Returns true if a rule has conditions on requests alone, which no TCP connection meets.
fn only_http(rule: &Cursor<'_>) -> bool {
    let http_source = ["requestPrincipals", "notRequestPrincipals"];
    let mut http = false;
    for from in rule.get("from").items() {
        let fields = from.get("source").set_fields(&SOURCE);
        if fields.iter().any(|name| !http_source.contains(name)) {
            return false;
        }
        http |= !fields.is_empty();
    }
    for to in rule.get("to").items() {
        let fields = to.get("operation").set_fields(&OPERATION);
        if fields.iter().any(|name| !HTTP_OPERATION.contains(name)) {
            return false;
        }
        http |= !fields.is_empty();
    }
    for when in rule.get("when").items() {
        if !when.get("key").text().starts_with("request.") {
            return false;
        }
        http = true;
    }
    http
}
