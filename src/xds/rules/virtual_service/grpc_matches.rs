//! Conditions of routes for programs with gRPC in them: their matchers see no method, and want a header to be there of which a
//! text is asked.

use api::istio::networking::v1alpha3::string_match::MatchType;
use api::istio::networking::v1alpha3::{HttpMatchRequest, StringMatch};
use api::networking::VirtualService;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, RouteMatch};

use super::matching;
use crate::common::conflict::{Conflict, REJECTED_CONFIG};
use crate::scope::Rule;

/// The method of each call.
const POST: &str = "POST";
const METHOD: &str = ":method";

/// Texts of `withoutHeaders` in one match: each doubles its routes.
const MOST_WITHOUT: usize = 4;

/// The forms of a match, any of which will do; none: no call meets it, or a conflict says that it is left out.
pub(super) fn of(written: &HttpMatchRequest, mut whole: RouteMatch) -> Vec<RouteMatch> {
    if !takes_calls(written) || texts_without(&whole).count() > MOST_WITHOUT {
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

/// Says which matches of a rule are left out for programs with gRPC in them.
pub(crate) fn conflicts(rule: &Rule<VirtualService>) -> impl Iterator<Item = Conflict> {
    let matches = rule.spec().http.iter().flat_map(|http| &http.r#match);
    let too_many = matches.filter(|written| {
        takes_calls(written)
            && texts_without(&matching::route_match(Some(written))).count() > MOST_WITHOUT
    });
    // A rule has one word of it, however many matches it has.
    too_many.take(1).map(|_| {
        let message = format!(
            "{}: a match with more than {MOST_WITHOUT} withoutHeaders is left out for clients with gRPC in them",
            rule.from
        );
        Conflict::new(REJECTED_CONFIG, rule.from.to_string(), message).because_of(&rule.from)
    })
}

/// Returns true if a match is one of calls, which are all of one method.
fn takes_calls(written: &HttpMatchRequest) -> bool {
    let mut wanted = written.method.iter().chain(written.headers.get(METHOD));
    let unwanted = written.without_headers.get(METHOD);
    wanted.all(is_post) && !unwanted.is_some_and(is_post)
}

fn is_post(written: &StringMatch) -> bool {
    match &written.match_type {
        None => true,
        Some(MatchType::Exact(text)) => text == POST,
        Some(MatchType::Prefix(text)) => POST.starts_with(&**text),
        Some(MatchType::Regex(regex)) => {
            let whole = regex_lite::Regex::new(&format!("^(?:{regex})$"));
            regex == "*" || whole.is_ok_and(|whole| whole.is_match(POST))
        }
    }
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
