//! HTTPAPISpec, QuotaSpec and their bindings: the configuration of Mixer's clients.

use super::context::Context;
use super::cursor::Cursor;
use super::{parts, predicates as is};

pub(in crate::config) fn api(context: &Context<'_>) {
    let spec = &context.spec;
    attributes(&spec.get("attributes"));
    let patterns = spec.get("patterns");
    patterns.not_empty();
    for pattern in patterns.items() {
        attributes(&pattern.get("attributes"));
        pattern.get("httpMethod").not_empty();
        if pattern.lacks(&["uriTemplate", "regex"]) {
            pattern.fail("needs uriTemplate or regex");
        }
    }
    for key in spec.get("apiKeys").items() {
        for name in ["query", "header", "cookie"] {
            let place = key.get(name);
            if place.is_set() {
                place.not_empty();
            }
        }
        let names = ["query", "header", "cookie"];
        let is_written = |name: &&'static str| key.get(name).is_set();
        if !names.iter().any(is_written) && !key.any_broken(&names) {
            key.fail("must not be empty");
        }
    }
}

fn attributes(at: &Cursor<'_>) {
    if !at.is_set() {
        return;
    }
    let all = at.get("attributes");
    all.not_empty();
    for (_, value) in all.entries() {
        if value.entries().next().is_none() {
            value.fail("must not be empty");
        }
        for (kind, one) in value.entries() {
            attribute(kind, &one);
        }
    }
}

/// The value of an attribute by the field that it is written in. False and 0 are values.
fn attribute(kind: &str, at: &Cursor<'_>) {
    match kind {
        "stringValue" | "bytesValue" if at.is_set() => {
            at.not_empty();
        }
        // The range that Istio takes has no bound but that of the message.
        "durationValue" => parts::milliseconds(at),
        "stringMapValue" if at.is_set() => {
            at.get("entries").not_empty();
        }
        _ => {}
    }
}

pub(in crate::config) fn api_binding(context: &Context<'_>) {
    binding(&context.spec, "apiSpecs");
}

pub(in crate::config) fn quota_binding(context: &Context<'_>) {
    binding(&context.spec, "quotaSpecs");
}

fn binding(spec: &Cursor<'_>, references: &'static str) {
    let services = spec.get("services");
    services.not_empty();
    services.items().for_each(|one| service(&one));
    let references = spec.get(references);
    references.not_empty();
    for reference in references.items() {
        reference.get("name").not_empty();
        reference.get("namespace").check_text(is::label);
    }
}

fn service(service: &Cursor<'_>) {
    let by_service = service.has("service");
    if by_service == service.has("name") && !service.any_broken(&["service", "name"]) {
        service.fail("exactly one of name and service");
    }
    service.get("name").check_text(is::label);
    for (name, predicate) in [
        (
            "namespace",
            is::label as fn(&str) -> super::cursor::Violation,
        ),
        ("domain", is::fqdn),
    ] {
        let at = service.get(name);
        at.check_text(predicate);
        if by_service && !at.is_empty() {
            at.fail("not beside service");
        }
    }
    parts::labels(&service.get("labels"));
}

pub(in crate::config) fn quota(context: &Context<'_>) {
    let rules = context.spec.get("rules");
    rules.not_empty();
    for rule in rules.items() {
        let quotas = rule.get("quotas");
        quotas.not_empty();
        for quota in quotas.items() {
            quota.get("quota").not_empty();
            let charge = quota.get("charge");
            if charge.number() <= 0 {
                charge.fail(format!("{} is not over 0", charge.number()));
            }
        }
        for one in rule.get("match").items() {
            for (_, clause) in one.get("clause").entries() {
                if clause.lacks(&["exact", "prefix", "regex"]) {
                    clause.fail("must not be empty");
                }
            }
        }
    }
}
