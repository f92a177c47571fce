//! EnvoyFilter: patches of Envoy's resources. Only their application shows whether they apply.

use serde_json::Value;

use super::context::Context;
use super::cursor::Cursor;
use super::parts;
use crate::well_known::TYPE_URL_PREFIX;

pub(in crate::config) fn check(context: &Context<'_>) {
    let spec = &context.spec;
    let selector = spec.get("workloadSelector");
    if selector.is_set() {
        let labels = selector.get("labels");
        if labels.not_empty() {
            parts::selector_labels(&labels);
        }
    }
    parts::targets(spec);
    let scopes = ["workloadSelector", "targetRefs"];
    if spec.set_fields(&scopes).len() > 1 {
        spec.fail("only one of workloadSelector, targetRefs");
    }
    if spec.lacks(&["configPatches", "filters"]) {
        spec.warn("has no effect: it has no configPatches");
    }
    spec.get("filters").items().for_each(|one| filter(&one));
    spec.get("configPatches")
        .items()
        .for_each(|one| patch(&one));
}

fn filter(filter: &Cursor<'_>) {
    let kind = filter.get("filterType");
    if matches!(kind.text(), "" | "INVALID") {
        kind.fail("is required");
    }
    filter.get("filterName").required_text();
    filter.get("filterConfig").required();
    let position = filter.get("insertPosition");
    if matches!(position.get("index").text(), "BEFORE" | "AFTER") {
        position.get("relativeTo").required_text();
    }
}

/// The kinds of objects that a place may be matched by.
const KINDS: [&str; 4] = ["listener", "routeConfiguration", "cluster", "waypoint"];

fn patch(one: &Cursor<'_>) {
    let apply_to = one.get("applyTo");
    if matches!(apply_to.text(), "" | "INVALID") {
        apply_to.fail("is required");
    }
    let patch = one.get("patch");
    if patch.required() {
        let operation = patch.get("operation");
        if matches!(operation.text(), "" | "INVALID") {
            operation.fail("is required");
        }
        let value = patch.get("value");
        if operation.text() != "REMOVE" && !operation.is_broken() {
            value.required();
        }
        configured(&value);
    }
    let place = one.get("match");
    parts_of_match(&place, &apply_to);
}

fn parts_of_match(place: &Cursor<'_>, apply_to: &Cursor<'_>) {
    let version = place.to(["proxy", "proxyVersion"]);
    if !version.is_empty() {
        parts::regex_of(&version);
    }
    let fitting = match apply_to.text() {
        "LISTENER" | "FILTER_CHAIN" | "NETWORK_FILTER" | "HTTP_FILTER" | "LISTENER_FILTER" => {
            "listener"
        }
        "ROUTE_CONFIGURATION" | "VIRTUAL_HOST" | "HTTP_ROUTE" => "routeConfiguration",
        "CLUSTER" => "cluster",
        _ => "",
    };
    for kind in place.set_fields(&KINDS) {
        // Of a waypoint's place every kind of patch can be.
        let fits = kind == "waypoint" || kind == fitting;
        if !fitting.is_empty() && !fits {
            place
                .get(kind)
                .fail("match of this kind does not fit applyTo");
        }
    }
    let filter = place.to(["listener", "filterChain", "filter"]);
    if !filter.is_set() {
        return;
    }
    let name = filter.get("name");
    name.not_empty();
    if matches!(apply_to.text(), "LISTENER" | "FILTER_CHAIN") {
        filter.warn(format!("has no effect with {}", apply_to.text()));
    }
    let below = filter.get("subFilter");
    if below.is_set() {
        let manager = [
            "envoy.filters.network.http_connection_manager",
            "envoy.http_connection_manager",
        ];
        if apply_to.text() != "HTTP_FILTER" && !apply_to.is_broken() {
            below.fail("only with HTTP_FILTER");
        }
        below.get("name").not_empty();
        if !name.is_empty() && !manager.contains(&name.text()) {
            name.fail(format!("a subFilter needs {}", manager[0]));
        }
    }
}

/// Checks the types that a patch puts in: Envoy knows them.
fn configured(at: &Cursor<'_>) {
    match at.value() {
        Some(Value::Object(_)) => {
            for name in ["typed_config", "typedConfig"] {
                let typed = at.get(name);
                if typed.is_set() {
                    typed_config(&typed);
                }
            }
            if at.has("name") && at.get("config").is_set() {
                at.get("config")
                    .warn("Envoy does not read config any more, use typed_config");
            }
            at.entries().for_each(|(_, below)| configured(&below));
        }
        Some(Value::Array(_)) => at.items().for_each(|below| configured(&below)),
        _ => {}
    }
}

fn typed_config(typed: &Cursor<'_>) {
    let kind = typed.get("@type");
    match kind.text().strip_prefix(TYPE_URL_PREFIX) {
        None if kind.is_empty() => {
            kind.required_text();
        }
        None => kind.fail(format!("does not start with {TYPE_URL_PREFIX}")),
        Some(name) if is_old(name) => kind.warn("a type of Envoy's v2 API"),
        Some(_) => {}
    }
}

/// `envoy.config.….v2.X`, `envoy.api.v2.X`, and those of alphas.
fn is_old(name: &str) -> bool {
    name.starts_with("envoy.")
        && name
            .split('.')
            .any(|part| part == "v2" || part.starts_with("v2alpha") || part == "v1")
        || name.starts_with("envoy.api.v2")
}
