//! RFC 7396, JSON Merge Patch: how `ISTIO_BOOTSTRAP_OVERRIDE` changes what we write.
//!
//! Objects are merged, `null` removes, anything else (arrays too) replaces. Depth is limited by the parser (128).
#![forbid(unsafe_code)]

use crate::json::{Map, Value};

/// Merges `patch` into `target`.
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if target.as_object().is_none() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    // Keys are taken out and put in all at once, so that a patch of many takes no square of the time.
    target.retain(&mut |key, _| !matches!(patch.get(key), Some(Value::Null)));
    let mut added = Vec::new();
    for (key, value) in patch {
        if value.is_null() {
            continue;
        }
        if let Some(old) = target.get_mut(&key) {
            merge(old, value);
        } else {
            // Its own nulls are no values either.
            let mut new = Value::Null;
            merge(&mut new, value);
            added.push((key, new));
        }
    }
    target.extend(added);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    /// Appendix A of RFC 7396: target, patch, result.
    const CASES: [(&str, &str, &str); 15] = [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (
            r#"{"a":{"b":"c"}}"#,
            r#"{"a":{"b":"d","c":null}}"#,
            r#"{"a":{"b":"d"}}"#,
        ),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
        (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
        (r#"{"a":"foo"}"#, "null", "null"),
        (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
        (r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        (
            r#"{}"#,
            r#"{"a":{"bb":{"ccc":null}}}"#,
            r#"{"a":{"bb":{}}}"#,
        ),
    ];

    #[test]
    fn merging_follows_the_examples_of_the_rfc() {
        for (target, patch, result) in CASES {
            let parse = |text: &str| json::parse(text.as_bytes()).unwrap();
            let mut merged = parse(target);
            merge(&mut merged, parse(patch));
            assert_eq!(merged.compact(), result, "{target} with {patch}");
        }
    }
}
