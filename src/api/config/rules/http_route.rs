//! A route of a VirtualService for HTTP: its matches and its action, whose parts are in `http_action`.

use super::cursor::Cursor;
use super::hosts::Hosts;
use super::{http_action, http_headers, parts, predicates as is};
use crate::config::claims::claim_path;

/// The facts about the whole VirtualService that rules of its routes need.
pub(super) struct VirtualServiceFacts<'a> {
    /// True if there are gateways, and the mesh is none of them; also if `gateways` could not be read.
    pub(super) only_gateways: bool,
    pub(super) delegate: bool,
    /// None where one of them could not be read: it might cover any name.
    pub(super) hosts: Option<Hosts<'a>>,
}

pub(super) fn check(route: &Cursor<'_>, facts: &VirtualServiceFacts<'_>) {
    if facts.delegate && route.get("delegate").is_set() {
        route.get("delegate").fail("not in a delegate");
    }
    action(route);
    mirrors(route);
    mirror_share(route, facts);
    parts::duration(&route.get("timeout"));
    for one in route.get("match").items() {
        if one.is_set() {
            matches(&one, facts);
        } else {
            one.fail("must not be null");
        }
    }
    http_headers::check(&route.get("headers"), route);
    destinations(route);
    for (name, rule) in [
        ("redirect", http_action::redirect as fn(&Cursor<'_>)),
        ("rewrite", http_action::rewrite),
        ("directResponse", http_action::direct_response),
        ("retries", http_action::retries),
        ("fault", http_action::fault),
        ("corsPolicy", http_action::cors),
    ] {
        let at = route.get(name);
        if at.is_set() {
            rule(&at);
        }
    }
    redirect_of_prefix(route);
    unsent(route);
}

/// Envoy replaces the matched part: with an exact path or a regex that is the whole path.
fn redirect_of_prefix(route: &Cursor<'_>) {
    let at = route.to(["redirect", "prefixRewrite"]);
    if at.is_empty() || at.is_broken() {
        return;
    }
    for (index, one) in route.get("match").items().enumerate() {
        let uri = one.get("uri");
        let other = ["exact", "regex"].into_iter().find(|kind| uri.has(kind));
        if let Some(kind) = other {
            at.warn(format!(
                "takes the place of the whole path: match[{index}].uri is no prefix but {kind}, with which newer releases of Istio \
                 refuse it"
            ));
            return;
        }
    }
}

fn action(route: &Cursor<'_>) {
    let known = ["route", "redirect", "directResponse", "delegate"];
    if route.lacks(&known) {
        route.fail("needs route, redirect, directResponse or delegate");
    }
    for (one, other) in [
        ("redirect", "route"),
        ("redirect", "fault"),
        ("redirect", "rewrite"),
        ("redirect", "directResponse"),
        ("directResponse", "route"),
        ("directResponse", "fault"),
        ("directResponse", "rewrite"),
        ("delegate", "route"),
        ("delegate", "redirect"),
        ("delegate", "directResponse"),
    ] {
        route.apart(one, other);
    }
    if route.has("delegate") {
        route.to(["delegate", "name"]).not_empty();
    }
}

/// Actions that answer a request.
const ANSWERS: [&str; 2] = ["redirect", "directResponse"];

/// Fields for forwarded requests have no effect on a route that answers itself.
fn unsent(route: &Cursor<'_>) {
    let Some(by) = ANSWERS.into_iter().find(|name| route.has(name)) else {
        return;
    };
    for name in [
        "timeout",
        "retries",
        "mirror",
        "mirrors",
        "mirrorPercentage",
        "mirrorPercent",
    ] {
        let at = route.get(name);
        if at.is_set() && !at.is_broken() {
            at.warn(format!("has no effect beside {by}: nothing is sent on"));
        }
    }
}

fn mirrors(route: &Cursor<'_>) {
    route.apart("mirror", "mirrors");
    let percent = route.get("mirrorPercent");
    if percent.is_set() {
        percent.warn("use mirrorPercentage");
        parts::pct(&percent);
    }
    let share = |at: &Cursor<'_>| {
        let value = at.get("value");
        value.check(is::share(value.float()));
    };
    share(&route.get("mirrorPercentage"));
    let mirror = route.get("mirror");
    if mirror.is_set() {
        parts::destination(&mirror);
    }
    for one in route.get("mirrors").items() {
        let destination = one.get("destination");
        if destination.required() {
            parts::destination(&destination);
        }
        share(&one.get("percentage"));
    }
}

/// Warns of a share of no mirror. A delegate may have the one of its rule, and the other way round.
fn mirror_share(route: &Cursor<'_>, facts: &VirtualServiceFacts<'_>) {
    let is_answered = ANSWERS.iter().any(|name| route.has(name));
    let is_inherited = facts.delegate || route.has("delegate");
    if is_answered || is_inherited || !route.lacks(&["mirror"]) {
        return;
    }
    let why = match route.has("mirrors") {
        true => "has no effect beside mirrors: each has a percentage of its own",
        false => "has no effect without mirror",
    };
    for name in route.set_fields(&["mirrorPercentage", "mirrorPercent"]) {
        route.get(name).warn(why);
    }
}

fn matches(one: &Cursor<'_>, facts: &VirtualServiceFacts<'_>) {
    let ignores_case = one.get("ignoreUriCase");
    if ignores_case.flag() && one.get("uri").has("regex") {
        ignores_case.warn("has no effect on a regex");
    } else if ignores_case.flag() && one.lacks(&["uri"]) {
        ignores_case.warn("has no effect without uri");
    }
    for name in ["headers", "withoutHeaders"] {
        for (key, value) in one.get(name).entries() {
            if claim_path(key).is_none() {
                value.check(is::header(key));
            } else if !facts.only_gateways {
                value.fail("claim routing needs a gateway");
            }
            if !value.is_set() {
                value.fail("must not be null");
            } else if name == "headers" || value.get("regex").text() != "*" {
                parts::string_match(&value);
            }
        }
    }
    for name in ["scheme", "method", "authority"] {
        parts::string_match(&one.get(name));
    }
    for (_, value) in one.get("queryParams").entries() {
        parts::string_match(&value);
    }
    // An empty prefix of a path is every path.
    parts::regex_of(&one.to(["uri", "regex"]));
    parts::connection_match(one);
}

fn destinations(route: &Cursor<'_>) {
    let all = route.get("route");
    for one in all.items() {
        if !one.is_set() {
            one.fail("must not be null");
            continue;
        }
        let destination = one.get("destination");
        if destination.required() {
            parts::destination(&destination);
        }
        http_headers::check(&one.get("headers"), route);
    }
    parts::weights(&all);
}
