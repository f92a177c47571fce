//! A replacement of the crate `jsonpath-rust`, with the functions that kube calls.
//!
//! kube looks for the token of a user with `auth-provider: {name: gcp}` in a command's output, by the paths `token-key` and
//! `expiry-key` of the kubeconfig: `{.credential.access_token}`. kube needs JSONPath for nothing else, and the crate brings ten
//! others, among them `regex` with all of Unicode: 1,400 kB, more than the promise of the binary's size leaves.
//! `[patch.crates-io]` of the workspace selects this crate, which supports paths of keys, `$.a.b` and `$['a']["b"]`, and refuses
//! all others.

#![forbid(unsafe_code)]

use std::fmt;

use serde_json::Value;

/// A path that is more than keys.
#[derive(Debug, PartialEq, Eq)]
pub struct NotKeys(String);

impl fmt::Display for NotKeys {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "cannot use the path {:?}: it is more than keys, as in $.a.b",
            self.0
        )
    }
}

impl std::error::Error for NotKeys {}

/// Looks up values by path.
pub trait JsonPath {
    /// Returns the value that a path leads to, if any.
    ///
    /// # Errors
    /// A path that is more than keys.
    fn query(&self, path: &str) -> Result<Vec<&Self>, NotKeys>;
}

impl JsonPath for Value {
    fn query(&self, path: &str) -> Result<Vec<&Self>, NotKeys> {
        let keys = keys(path).ok_or_else(|| NotKeys(path.to_owned()))?;
        let found = keys.iter().try_fold(self, |value, key| value.get(key));
        Ok(found.into_iter().collect())
    }
}

/// Splits a path into its keys; `None` if it has anything else.
fn keys(path: &str) -> Option<Vec<&str>> {
    let mut rest = path.trim().strip_prefix('$')?;
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let (key, after) = if let Some(quoted) = rest.strip_prefix("['") {
            quoted.split_once("']")?
        } else if let Some(quoted) = rest.strip_prefix("[\"") {
            quoted.split_once("\"]")?
        } else {
            let name = rest.strip_prefix('.')?;
            name.split_at(name.find(['.', '[']).unwrap_or(name.len()))
        };
        let is_plain = !key.is_empty() && !key.contains(['*', '?', '(', ')', '@', '\'', '"', '\\']);
        keys.push(is_plain.then_some(key)?);
        rest = after;
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_lead_to_a_value() {
        let value = json!({"credential": {"access_token": "t", "a.b": {"c-d": 1}}});
        for (path, wanted) in [
            ("$.credential.access_token", Some(json!("t"))),
            ("$['credential'][\"access_token\"]", Some(json!("t"))),
            ("$.credential['a.b'].c-d", Some(json!(1))),
            ("$", Some(value.clone())),
            ("$.credential.other", None),
            ("$.credential.access_token.more", None),
        ] {
            let found = value.query(path).unwrap();
            assert_eq!(found, wanted.iter().collect::<Vec<_>>(), "{path}");
        }
    }

    #[test]
    fn expressions_beyond_keys_are_refused() {
        let value = json!({"a": [{"b": 1}]});
        for path in [
            "",
            "a",
            "$a",
            "$.",
            "$..b",
            "$.*",
            "$.a[0]",
            "$.a[*].b",
            "$['a",
            "$.a[?(@.b)]",
            "$['a'",
            "$[]",
            "$.a b()",
        ] {
            let words = value.query(path).unwrap_err().to_string();
            assert!(
                words.starts_with(&format!("cannot use the path {path:?}")),
                "{words}"
            );
        }
    }
}
