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
    let old = match std::mem::take(target) {
        Value::Object(old) => old,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    let mut merged = Vec::with_capacity(old.len().saturating_add(patch.len()));
    // Both are in the order of their keys.
    let mut old = old.into_iter().peekable();
    for (key, value) in patch {
        while let Some(kept) = old.next_if(|(before, _)| *before < key) {
            merged.push(kept);
        }
        let same = old.next_if(|(same, _)| *same == key);
        if !value.is_null() {
            let mut new = same.map(|(_, value)| value).unwrap_or_default();
            merge(&mut new, value);
            merged.push((key, new));
        }
    }
    merged.extend(old);
    *target = Value::Object(Map::from(merged));
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
