//! The intersection of two matches: requests that meet that of a rule and that of its delegate (discovery.md §14).

use std::collections::BTreeMap;

use api::istio::networking::v1alpha3::string_match::MatchType;
use api::istio::networking::v1alpha3::{HttpMatchRequest, StringMatch};

use crate::scope::gateways::full_name;

/// Matches whose gateways mean the same in every namespace.
pub(super) fn fully_named(matches: &[HttpMatchRequest], namespace: &str) -> Vec<HttpMatchRequest> {
    let mut all = matches.to_vec();
    for gateway in all.iter_mut().flat_map(|one| &mut one.gateways) {
        let full = full_name(gateway, namespace).map(|(of, name)| format!("{of}/{name}"));
        if let Some(full) = full {
            *gateway = full;
        }
    }
    all
}

/// The place of a delegate's match that contradicts all matches of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contradiction(pub(super) usize);

/// Combines each match of the delegate with those of the rule that it does not contradict. One that contradicts all of them
/// stands for a mistake, and takes its whole route with it, as in Istio.
pub(super) fn combined(
    roots: Vec<HttpMatchRequest>,
    leaves: Vec<HttpMatchRequest>,
) -> Result<Vec<HttpMatchRequest>, Contradiction> {
    if roots.is_empty() {
        return Ok(leaves);
    }
    if leaves.is_empty() {
        return Ok(roots);
    }
    let mut all = Vec::new();
    for (at, leaf) in leaves.iter().enumerate() {
        let earlier = all.len();
        all.extend(roots.iter().filter_map(|root| meet(root, leaf)));
        if all.len() == earlier {
            return Err(Contradiction(at));
        }
    }
    Ok(all)
}

/// Requests that meet both; `None`: there are none, or they cannot be said in one match.
fn meet(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> Option<HttpMatchRequest> {
    let (uri, ignores) = uri(root, leaf)?;
    let equal = |one: &str, other: &str| match (one, other) {
        ("", only) | (only, "") => Some(only.to_owned()),
        (one, other) => (one == other).then(|| one.to_owned()),
    };
    Some(HttpMatchRequest {
        uri,
        scheme: text(root.scheme.as_ref(), leaf.scheme.as_ref())?,
        method: text(root.method.as_ref(), leaf.method.as_ref())?,
        authority: text(root.authority.as_ref(), leaf.authority.as_ref())?,
        headers: texts(&root.headers, &leaf.headers)?,
        query_params: texts(&root.query_params, &leaf.query_params)?,
        // Two conditions on one header, each of which must not hold, are no one condition.
        without_headers: union(&root.without_headers, &leaf.without_headers)?,
        source_labels: union(&root.source_labels, &leaf.source_labels)?,
        port: match (root.port, leaf.port) {
            (0, only) | (only, 0) => only,
            (one, other) => (one == other).then_some(one)?,
        },
        source_namespace: equal(&root.source_namespace, &leaf.source_namespace)?,
        gateways: at_both(&root.gateways, &leaf.gateways)?,
        ignore_uri_case: ignores,
        name: joined(&root.name, &leaf.name),
        stat_prefix: leaf.stat_prefix.clone(),
    })
}

pub(super) fn joined(root: &str, leaf: &str) -> String {
    match (root, leaf) {
        ("", only) | (only, "") => only.to_owned(),
        (root, leaf) => format!("{root}-{leaf}"),
    }
}

/// Gateways of both; none: all. `None`: they have none in common.
fn at_both(root: &[String], leaf: &[String]) -> Option<Vec<String>> {
    match (root, leaf) {
        ([], only) | (only, []) => Some(only.to_vec()),
        (root, leaf) => {
            let both: Vec<_> = root.iter().filter(|one| leaf.contains(one)).collect();
            (!both.is_empty()).then(|| both.into_iter().cloned().collect())
        }
    }
}

/// The narrower one, and whether its case is ignored; `None` where neither is.
fn uri(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> Option<(Option<StringMatch>, bool)> {
    let ignore = (root.ignore_uri_case, leaf.ignore_uri_case);
    let (Some(of_root), Some(of_leaf)) = (&root.uri, &leaf.uri) else {
        let ignores = if root.uri.is_some() {
            ignore.0
        } else {
            ignore.1
        };
        return Some((root.uri.clone().or_else(|| leaf.uri.clone()), ignores));
    };
    let (of_root, of_leaf) = ((of_root, ignore.0), (of_leaf, ignore.1));
    let (narrower, ignores) = narrower(of_root, of_leaf)?;
    Some((Some(narrower.clone()), ignores))
}

/// Returns the narrower one of two texts whose case counts.
fn text(root: Option<&StringMatch>, leaf: Option<&StringMatch>) -> Option<Option<StringMatch>> {
    let (Some(root), Some(leaf)) = (root, leaf) else {
        return Some(root.or(leaf).cloned());
    };
    let (narrower, _) = narrower((root, false), (leaf, false))?;
    Some(Some(narrower.clone()))
}

/// A match, and whether it ignores case.
type Cased<'a> = (&'a StringMatch, bool);

fn narrower<'a>(one: Cased<'a>, other: Cased<'a>) -> Option<Cased<'a>> {
    if is_within(other, one) {
        Some(other)
    } else {
        is_within(one, other).then_some(one)
    }
}

/// Returns true if all that meets the one is known to meet the other.
fn is_within((narrow, narrow_ignores): Cased<'_>, (wide, ignores): Cased<'_>) -> bool {
    let equal = |one: &[u8], other: &[u8]| match ignores {
        true => one.eq_ignore_ascii_case(other),
        false => one == other,
    };
    // What ignores case has more than one text.
    let is_cased = ignores || !narrow_ignores;
    match (&narrow.match_type, &wide.match_type) {
        // Present is all that is asked.
        (_, None) => true,
        (
            Some(MatchType::Exact(text) | MatchType::Prefix(text)),
            Some(MatchType::Prefix(prefix)),
        ) => {
            let start = text.as_bytes().get(..prefix.len());
            is_cased && start.is_some_and(|start| equal(start, prefix.as_bytes()))
        }
        (Some(MatchType::Exact(text)), Some(MatchType::Exact(all))) => {
            is_cased && equal(text.as_bytes(), all.as_bytes())
        }
        (one, other) => one == other,
    }
}

fn texts(
    root: &BTreeMap<String, StringMatch>,
    leaf: &BTreeMap<String, StringMatch>,
) -> Option<BTreeMap<String, StringMatch>> {
    let mut all = root.clone();
    for (name, written) in leaf {
        let both = text(root.get(name), Some(written))?;
        all.extend(both.map(|both| (name.clone(), both)));
    }
    Some(all)
}

/// `None` where they say two things of one name.
fn union<V: Clone + PartialEq>(
    root: &BTreeMap<String, V>,
    leaf: &BTreeMap<String, V>,
) -> Option<BTreeMap<String, V>> {
    let mut all = root.clone();
    for (name, value) in leaf {
        if root.get(name).is_some_and(|other| other != value) {
            return None;
        }
        all.insert(name.clone(), value.clone());
    }
    Some(all)
}
