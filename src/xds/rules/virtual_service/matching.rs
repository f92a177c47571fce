//! Conditions of a route.

use std::collections::BTreeMap;

use api::config::discovery_notes::{claim_path, is_regex};
use api::istio::networking::v1alpha3::string_match::MatchType;
use api::istio::networking::v1alpha3::{HttpMatchRequest, StringMatch};
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher, RouteMatch};
use envoy_types::pb::envoy::r#type::matcher::v3::{
    MetadataMatcher, OrMatcher, StringMatcher, ValueMatcher, string_matcher, value_matcher,
};

use crate::common::{metadata_value, regex, wire};
use crate::rules::request_authentication::{FILTER as TOKENS, PAYLOAD};

/// No match is one of everything.
pub(super) fn route_match(http_match: Option<&HttpMatchRequest>) -> RouteMatch {
    let Some(http_match) = http_match else {
        return RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
            ..RouteMatch::default()
        };
    };
    let pseudo = [
        (":authority", &http_match.authority),
        (":method", &http_match.method),
        (":scheme", &http_match.scheme),
    ];
    let pseudo = pseudo.into_iter();
    let mut headers: Vec<_> = pseudo
        .filter_map(|(name, text)| Some(header(name, text.as_ref()?)))
        .collect();
    let mut claims = Vec::new();
    for (name, text) in &http_match.headers {
        match claim(name, text) {
            Some(claim) => claims.push(claim),
            None => headers.push(header(name, text)),
        }
    }
    for (name, text) in &http_match.without_headers {
        match claim(name, text) {
            Some(claim) => claims.push(MetadataMatcher {
                invert: true,
                ..claim
            }),
            None => headers.push(without(name, text)),
        }
    }
    RouteMatch {
        path_specifier: Some(path(http_match.uri.as_ref())),
        case_sensitive: http_match
            .ignore_uri_case
            .then(|| wire::boolean(false))
            .flatten(),
        headers,
        query_parameters: http_match
            .query_params
            .iter()
            .map(|(name, text)| query(name, text))
            .collect(),
        dynamic_metadata: claims,
        ..RouteMatch::default()
    }
}

/// Returns true if a match leaves no request for the routes after it.
pub(super) fn is_everything(matching: &RouteMatch) -> bool {
    let all =
        matches!(&matching.path_specifier, Some(PathSpecifier::Prefix(prefix)) if prefix == "/");
    all && matching.headers.is_empty()
        && matching.query_parameters.is_empty()
        && matching.dynamic_metadata.is_empty()
}

fn path(uri: Option<&StringMatch>) -> PathSpecifier {
    match uri.and_then(|text| text.match_type.as_ref()) {
        Some(MatchType::Exact(path)) => PathSpecifier::Path(path.clone()),
        Some(MatchType::Prefix(prefix)) => PathSpecifier::Prefix(prefix.clone()),
        Some(MatchType::Regex(regex)) => PathSpecifier::SafeRegex(regex::matcher(regex)),
        None => PathSpecifier::Prefix("/".to_owned()),
    }
}

/// Returns true if Envoy accepts all regular expressions of a match.
pub(super) fn is_accepted(http_match: &HttpMatchRequest) -> bool {
    let single = [
        &http_match.uri,
        &http_match.scheme,
        &http_match.method,
        &http_match.authority,
    ];
    let maps = [
        &http_match.headers,
        &http_match.without_headers,
        &http_match.query_params,
    ];
    let maps = maps.into_iter().flat_map(BTreeMap::values);
    let mut all = single.into_iter().flatten().chain(maps);
    all.all(has_fitting_regex)
}

pub(super) fn has_fitting_regex(text: &StringMatch) -> bool {
    match &text.match_type {
        Some(MatchType::Regex(regex)) => is_regex(regex),
        Some(MatchType::Exact(_) | MatchType::Prefix(_)) | None => true,
    }
}

/// `None`: any text will do.
pub(super) fn text(string_match: &StringMatch) -> Option<StringMatcher> {
    let pattern = match string_match.match_type.as_ref()? {
        MatchType::Exact(text) => string_matcher::MatchPattern::Exact(text.clone()),
        // Envoy takes no empty one, and it means the same.
        MatchType::Prefix(text) if text.is_empty() => return None,
        MatchType::Prefix(text) => string_matcher::MatchPattern::Prefix(text.clone()),
        // As in Istio: `*` means any text, though it is no regular expression.
        MatchType::Regex(text) if text == "*" => return None,
        MatchType::Regex(text) => string_matcher::MatchPattern::SafeRegex(regex::matcher(text)),
    };
    Some(StringMatcher {
        match_pattern: Some(pattern),
        ..StringMatcher::default()
    })
}

fn header(name: &str, string_match: &StringMatch) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(match text(string_match) {
            Some(text) => HeaderMatchSpecifier::StringMatch(text),
            None => HeaderMatchSpecifier::PresentMatch(true),
        }),
        ..HeaderMatcher::default()
    }
}

/// A request without the header matches, too.
fn without(name: &str, string_match: &StringMatch) -> HeaderMatcher {
    let matcher = header(name, string_match);
    let presence = matches!(
        matcher.header_match_specifier,
        Some(HeaderMatchSpecifier::PresentMatch(_))
    );
    HeaderMatcher {
        invert_match: true,
        treat_missing_header_as_empty: !presence,
        ..matcher
    }
}

/// Returns true if a match asks for claims of tokens.
pub(super) fn has_claims(http_match: &HttpMatchRequest) -> bool {
    let maps = [&http_match.headers, &http_match.without_headers];
    let mut names = maps.into_iter().flat_map(BTreeMap::keys);
    names.any(|name| claim_path(name).is_some())
}

/// A claim of the token that the router has verified: a text, or a list that has it. `None`: it is a header.
fn claim(name: &str, string_match: &StringMatch) -> Option<MetadataMatcher> {
    let claims = claim_path(name)?;
    let path: Vec<&str> = [PAYLOAD].into_iter().chain(claims).collect();
    let pattern = match text(string_match) {
        Some(matcher) => {
            let alone = metadata_value::text(matcher);
            let listed = metadata_value::list_with(alone.clone());
            value_matcher::MatchPattern::OrMatch(OrMatcher {
                value_matchers: vec![listed, alone],
            })
        }
        None => value_matcher::MatchPattern::PresentMatch(true),
    };
    Some(MetadataMatcher {
        filter: TOKENS.to_owned(),
        path: metadata_value::path(&path),
        value: Some(ValueMatcher {
            match_pattern: Some(pattern),
        }),
        invert: false,
    })
}

fn query(name: &str, string_match: &StringMatch) -> QueryParameterMatcher {
    QueryParameterMatcher {
        name: name.to_owned(),
        query_parameter_match_specifier: Some(match text(string_match) {
            Some(text) => QueryParameterMatchSpecifier::StringMatch(text),
            None => QueryParameterMatchSpecifier::PresentMatch(true),
        }),
    }
}
