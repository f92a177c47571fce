//! Conditions of routes for programs with gRPC in them: their matchers see no method, and want a header to be there of which a
//! text is asked.

use std::collections::BTreeSet;

use api::istio::networking::v1alpha3::string_match::MatchType;
use api::istio::networking::v1alpha3::{HttpMatchRequest, StringMatch};
use api::networking::VirtualService;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, RouteMatch};
use regex_lite::RegexBuilder;

use super::{RouteContext, matching};
use crate::common::conflict::{Conflict, REJECTED_CONFIG};
use crate::scope::Rule;

/// The method of each call.
const POST: &str = "POST";
const METHOD: &str = ":method";

/// Texts of `withoutHeaders` in one match: each doubles its routes.
const MAX_WITHOUT: usize = 4;

/// Bytes of the program of a method's regular expression, which is made while clients wait. Chosen: methods are short.
const MAX_PROGRAM_SIZE: usize = 32 << 10;

/// The forms of a match, any of which will do; none: no call meets it, or a conflict says that it is left out.
pub(super) fn of(http_match: &HttpMatchRequest, mut whole: RouteMatch) -> Vec<RouteMatch> {
    if has_too_many_without(&whole) || takes_calls(http_match) != Some(true) {
        return Vec::new();
    }
    let headers = std::mem::take(&mut whole.headers).into_iter();
    let headers = headers.filter(|header| header.name != METHOD);
    let (without, with): (Vec<_>, Vec<_>) = headers.partition(is_text_without);
    whole.headers = with;
    without.iter().fold(vec![whole], |all, header| {
        let both = all.into_iter().flat_map(|one| {
            [absent(header), different(header)].map(|header| {
                let mut one = one.clone();
                one.headers.push(header);
                one
            })
        });
        both.collect()
    })
}

/// Says which matches of a rule are left out, of those that hold for a program with gRPC in it.
pub(crate) fn conflicts(rule: &Rule<VirtualService>, context: &RouteContext<'_>) -> Vec<Conflict> {
    let mut causes = BTreeSet::new();
    let matches = rule.spec().http.iter().flat_map(|http| &http.r#match);
    for http_match in matches.filter(|http_match| context.holds(http_match, rule.namespace())) {
        if has_too_many_without(&matching::route_match(Some(http_match))) {
            causes.insert(format!("with more than {MAX_WITHOUT} withoutHeaders"));
        } else if takes_calls(http_match).is_none() {
            causes.insert("with a regular expression of methods that cannot be read".to_owned());
        }
    }
    // A rule has one word of each, however many matches it has.
    let conflicts = causes.into_iter().map(|cause| {
        let message = format!(
            "{}: a match {cause} is left out for clients with gRPC in them",
            rule.from
        );
        Conflict::new(REJECTED_CONFIG, rule.from.to_string(), message).because_of(&rule.from)
    });
    conflicts.collect()
}

/// Returns true if a match is one of calls, which are all of one method; `None`: a regular expression cannot be read.
fn takes_calls(http_match: &HttpMatchRequest) -> Option<bool> {
    let mut takes = true;
    for wanted in http_match
        .method
        .iter()
        .chain(http_match.headers.get(METHOD))
    {
        takes &= is_post(wanted)?;
    }
    if let Some(unwanted) = http_match.without_headers.get(METHOD) {
        takes &= !is_post(unwanted)?;
    }
    Some(takes)
}

fn is_post(method: &StringMatch) -> Option<bool> {
    Some(match &method.match_type {
        None => true,
        Some(MatchType::Exact(text)) => text == POST,
        Some(MatchType::Prefix(text)) => POST.starts_with(&**text),
        Some(MatchType::Regex(regex)) if regex == "*" => true,
        Some(MatchType::Regex(regex)) => {
            let mut whole = RegexBuilder::new(&format!("^(?:{regex})$"));
            let whole = whole.size_limit(MAX_PROGRAM_SIZE).build().ok()?;
            whole.is_match(POST)
        }
    })
}

fn has_too_many_without(matching: &RouteMatch) -> bool {
    texts_without(matching).count() > MAX_WITHOUT
}

fn texts_without(matching: &RouteMatch) -> impl Iterator<Item = &HeaderMatcher> {
    let headers = matching.headers.iter();
    headers.filter(|header| is_text_without(header) && header.name != METHOD)
}

/// Returns true if a request matches that has not the header, and one that has another text in it.
const fn is_text_without(header: &HeaderMatcher) -> bool {
    header.invert_match && header.treat_missing_header_as_empty
}

fn absent(header: &HeaderMatcher) -> HeaderMatcher {
    HeaderMatcher {
        name: header.name.clone(),
        header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(true)),
        invert_match: true,
        ..HeaderMatcher::default()
    }
}

fn different(header: &HeaderMatcher) -> HeaderMatcher {
    HeaderMatcher {
        treat_missing_header_as_empty: false,
        ..header.clone()
    }
}
