//! RFC 7396, JSON Merge Patch: how `ISTIO_BOOTSTRAP_OVERRIDE` changes what we write.
//!
//! Objects are merged, `null` removes, anything else (arrays too) replaces. Depth is limited by the parser (128).
//!
//! To a file of the user's, Envoy itself adds an override (`--config-yaml`), by protobuf's rules and not by these: `add` does
//! the same, so that no secret of it needs to stand in a command line, which every process may read.
#![forbid(unsafe_code)]

use crate::json::{Map, Value};
use crate::search::{self, is_one_of};

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

/// Names of a message that exclude each other, without underscores and capitals: of an `Address`, a `ConfigSource`, a
/// `StatsMatcher` and a `LogFormat`. Others that a bootstrap may have outside of lists (a port by its name, the version in the
/// user agent of `node`) are left to Envoy, which refuses both of a set with their names.
const ALTERNATIVES: [&str; 4] = [
    " socketaddress pipe ",
    " path pathconfigsource apiconfigsource ads self ",
    " rejectall exclusionlist inclusionlist ",
    " textformat jsonformat ",
];
/// Every entry of these is one value: a `Struct`'s, or a map's.
const ENTRIES: &str = " metadata jsonformat ";

/// Adds `more` to `target` as protobuf merges messages: fields one by one, lists end to end, anything else replaces, `null` is
/// nothing. An `Any` is one value.
pub(super) fn add(target: &mut Value, more: Value) {
    match (target, more) {
        (Value::Array(target), Value::Array(mut more)) => target.append(&mut more),
        (Value::Object(target), Value::Object(more)) if more.get("@type").is_none() => {
            add_fields(target, more);
        }
        (target, more) => *target = more,
    }
}

fn add_fields(target: &mut Map, more: Map) {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (key, value) in more {
        if !value.is_null() {
            let name = plain(&key);
            names.push((name.clone(), key.into()));
            values.push((name, value));
        }
    }
    // Sorted, so that a document of many takes no square of the time.
    let (names, mut values) = (Map::from(names), Map::from(values));
    // All sets of which one is named now, as one text: a flag for each took 1 kB of code.
    let mut replaced = String::new();
    for set in ALTERNATIVES {
        if names.iter().any(|(name, _)| is_one_of(name, set)) {
            replaced.push_str(set);
        }
    }
    target.retain(&mut |key, old| {
        let name = plain(key);
        match (old, values.get_mut(&name).map(std::mem::take)) {
            (_, None) => !is_one_of(&name, &replaced),
            (Value::Object(old), Some(Value::Object(new))) if is_one_of(&name, ENTRIES) => {
                old.extend(new.into_iter().collect());
                true
            }
            (old, Some(new)) => {
                if !new.is_null() {
                    add(old, new);
                }
                true
            }
        }
    });
    let mut left = Vec::new();
    for ((_, value), (_, key)) in values.into_iter().zip(&names) {
        if let (false, Value::String(key)) = (value.is_null(), key) {
            left.push((key.clone(), value));
        }
    }
    target.extend(left);
}

/// A field has two names in JSON, `like_this` and `likeThis`.
#[inline(never)]
fn plain(key: &str) -> String {
    let mut name = search::replace(key, "_", "");
    name.make_ascii_lowercase();
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    /// Target, more, result.
    const ADDED: [(&str, &str, &str); 19] = [
        (r#"{"a":1}"#, r#"{"b":2}"#, r#"{"a":1,"b":2}"#),
        (r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":1}"#, r#"{"a":null,"b":null}"#, r#"{"a":1}"#),
        (r#"{"a":[1,2]}"#, r#"{"a":[2,3]}"#, r#"{"a":[1,2,2,3]}"#),
        (
            r#"{"a":{"b":1}}"#,
            r#"{"a":{"c":[2]}}"#,
            r#"{"a":{"b":1,"c":[2]}}"#,
        ),
        (
            r#"{"a_b_c":{"d":1}}"#,
            r#"{"aBC":{"e":2}}"#,
            r#"{"a_b_c":{"d":1,"e":2}}"#,
        ),
        (r#"{"aB":[1]}"#, r#"{"a_b":[2]}"#, r#"{"aB":[1,2]}"#),
        (
            r#"{"t":{"@type":"x","a":1}}"#,
            r#"{"t":{"@type":"x","b":2}}"#,
            r#"{"t":{"@type":"x","b":2}}"#,
        ),
        (
            r#"{"metadata":{"A":{"b":1},"a_b":1}}"#,
            r#"{"metadata":{"A":{"c":2},"aB":2}}"#,
            r#"{"metadata":{"A":{"c":2},"aB":2,"a_b":1}}"#,
        ),
        (
            r#"{"address":{"socket_address":{"port_value":1}}}"#,
            r#"{"address":{"pipe":{"path":"/x"}}}"#,
            r#"{"address":{"pipe":{"path":"/x"}}}"#,
        ),
        (
            r#"{"lds_config":{"path":"/x","resource_api_version":"V3"}}"#,
            r#"{"lds_config":{"ads":{}}}"#,
            r#"{"lds_config":{"ads":{},"resource_api_version":"V3"}}"#,
        ),
        (
            r#"{"metadata":{"a":1,"b":{"c":1}}}"#,
            r#"{"metadata":{"a":null,"b":{}}}"#,
            r#"{"metadata":{"a":null,"b":{}}}"#,
        ),
        (
            r#"{"stats_matcher":{"reject_all":true}}"#,
            r#"{"statsMatcher":{"inclusionList":{"patterns":[1]}}}"#,
            r#"{"stats_matcher":{"inclusionList":{"patterns":[1]}}}"#,
        ),
        (
            r#"{"inclusion_list":{"patterns":[1]}}"#,
            r#"{"exclusionList":{"patterns":[2]}}"#,
            r#"{"exclusionList":{"patterns":[2]}}"#,
        ),
        (
            r#"{"log_format":{"text_format":"%v"}}"#,
            r#"{"log_format":{"json_format":{"a":"b"}}}"#,
            r#"{"log_format":{"json_format":{"a":"b"}}}"#,
        ),
        (
            r#"{"json_format":{"a":{"b":1},"c":1}}"#,
            r#"{"jsonFormat":{"a":{"d":1}}}"#,
            r#"{"json_format":{"a":{"d":1},"c":1}}"#,
        ),
        (r#"{"path":"/x"}"#, r#"{"ads":null}"#, r#"{"path":"/x"}"#),
        (r#"{"a":{"b":1}}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"{}"#, r#"{"a":{"b":{"c":1}}}"#, r#"{"a":{"b":{"c":1}}}"#),
    ];

    #[test]
    fn adding_does_what_protobuf_does() {
        for (target, more, result) in ADDED {
            let parse = |text: &str| json::parse(text.as_bytes()).unwrap();
            let mut added = parse(target);
            add(&mut added, parse(more));
            assert_eq!(added.compact(), result, "{target} with {more}");
        }
    }

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
