//! The pairs in the webhook's path: variables for the pod's proxy.

use crate::serve::percent_decoded;

/// Encodes a slash in a value of the path.
const SLASH: &str = "--slash--";

/// The text before each pair of the older form, which Istio takes up to today.
const BEFORE_EACH: &str = ":ENV:";

/// `/inject/cluster/C/net/N` or `/inject/:ENV:cluster=C:ENV:net=N` as pairs; a last key without a value is ignored.
pub(super) fn pairs(path: &str) -> Vec<(String, String)> {
    let rest = path.strip_prefix("/inject/").unwrap_or_default();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if let Some(pairs) = older_pairs(&decoded(rest)) {
        return pairs;
    }
    let mut parts = rest.split('/');
    // Parts are decoded after the split, so an escaped slash stays within its part.
    let mut pairs = Vec::new();
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        if !key.is_empty() {
            pairs.push((decoded(key), decoded(value).replace(SLASH, "/")));
        }
    }
    pairs
}

/// The pairs of a decoded path of the older form, whose values have slashes as they are; `None` for another form.
fn older_pairs(rest: &str) -> Option<Vec<(String, String)>> {
    let parts = rest.strip_prefix(BEFORE_EACH)?.split(BEFORE_EACH);
    let pairs = parts.filter_map(|part| part.split_once('='));
    let pairs_with_keys = pairs.filter(|(key, _)| !key.is_empty());
    Some(
        pairs_with_keys
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
    )
}

/// Decodes percent-encoding, unless that makes no text.
fn decoded(text: &str) -> String {
    String::from_utf8(percent_decoded(text)).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_both_forms() {
        let rows: [(&str, &[(&str, &str)]); 12] = [
            ("/inject", &[]),
            ("/inject/", &[]),
            (
                "/inject/cluster/c1/net/n1/",
                &[("cluster", "c1"), ("net", "n1")],
            ),
            ("/inject/a/b--slash--c/d", &[("a", "b/c")]),
            ("/inject/a%2Fb/%63", &[("a/b", "c")]),
            (
                "/inject/:ENV:cluster=c1:ENV:net=n1",
                &[("cluster", "c1"), ("net", "n1")],
            ),
            // A slash is a slash there, and nothing but the one at the end goes.
            (
                "/inject/:ENV:root=/foo/bar/:ENV:b=x--slash--y/",
                &[("root", "/foo/bar/"), ("b", "x--slash--y")],
            ),
            (
                "/inject/:ENV:a=b=c:ENV:empty=:ENV:=x:ENV:=:ENV:none:ENV:",
                &[("a", "b=c"), ("empty", "")],
            ),
            ("/inject/%3AENV%3Aa=%62", &[("a", "b")]),
            ("/inject/:ENV:", &[]),
            ("/inject/a/:ENV:b=c", &[("a", ":ENV:b=c")]),
            ("/inject/env:a=b", &[]),
        ];
        for (path, wanted) in rows {
            let found = pairs(path);
            let found: Vec<_> = found
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            assert_eq!(found, wanted, "{path}");
        }
    }
}
