//! Characters that a pod's author may not use where templates paste the pod's text into YAML.
//!
//! A line break there would begin a line of the template's own: another field, another container. So names, labels and the
//! strings of a proxy's configuration must have none, and a path, a name or an address must not have a quote, bracket or
//! blank either.

use std::net::SocketAddrV6;

use api::text::first_letters;
use serde_json::{Map, Value};

use crate::interface::Origin;

/// A character of control, or one of the two that break lines in YAML 1.1 beside them (NEL, the third, is of control).
pub(crate) fn is_control(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}')
}

/// The cause where a text holds one.
pub(crate) const CONTROL: &str = "it holds a control character";

/// Returns true for white space that may stand outside of strings in text that is read as JSON or YAML.
pub(crate) fn is_white_space(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\r')
}

/// Returns the path to a string or key with control characters within JSON, innermost step first; `None` if there is none.
fn control_character_path(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => text.contains(is_control).then(Vec::new),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            Some(with(control_character_path(item)?, format!("[{index}]")))
        }),
        Value::Object(entries) => entries.iter().find_map(|(key, value)| {
            if key.contains(is_control) {
                return Some(vec![step(key)]);
            }
            Some(with(control_character_path(value)?, step(key)))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn with(mut trail: Vec<String>, step: String) -> Vec<String> {
    trail.push(step);
    trail
}

const MAX_STEP_LENGTH: usize = 64;

fn step(key: &str) -> String {
    // The whole of it may be the pod's.
    let key = first_letters(key, MAX_STEP_LENGTH);
    if key.contains(is_control) {
        format!(".{key:?}")
    } else {
        format!(".{key}")
    }
}

fn path(of: &str, trail: Vec<String>) -> String {
    let steps: String = trail.into_iter().rev().collect();
    let whole = format!("{of}{steps}");
    whole.strip_prefix('.').unwrap_or(&whole).to_owned()
}

/// Checks that no string or key of the JSON has control characters.
pub(crate) fn strings(value: &Value) -> Result<(), String> {
    match control_character_path(value) {
        Some(trail) if trail.is_empty() => Err(CONTROL.to_owned()),
        Some(trail) => Err(format!("{}: {CONTROL}", path("", trail))),
        None => Ok(()),
    }
}

/// Checks the names of a pod that templates paste: every `name`, its labels, the keys of its annotations and of all other
/// maps. Kubernetes accepts no control character in them, but it validates the pod only after the injection.
pub(crate) fn names(pod: &Value, origin: &Origin) -> Result<(), String> {
    let refused = |of: &str, trail| Err(format!("{}: {CONTROL}", path(of, trail)));
    for (key, value) in pod.as_object().into_iter().flatten() {
        if let Some(trail) = badly_named(key, value) {
            return refused("", trail);
        }
    }
    let Origin::Manifest(outer) = origin else {
        return Ok(());
    };
    let fields = [
        ("kind", &outer.kind),
        ("apiVersion", &outer.api_version),
        ("metadata.name", &outer.name),
        ("metadata.namespace", &outer.namespace),
    ];
    if let Some((of, _)) = fields.iter().find(|(_, value)| value.contains(is_control)) {
        return refused(of, Vec::new());
    }
    if let Some(trail) = in_entries(&outer.labels, Pasted::KeysAndValues) {
        return refused("metadata.labels", trail);
    }
    match in_entries(&outer.annotations, Pasted::Keys) {
        Some(trail) => refused("metadata.annotations", trail),
        None => Ok(()),
    }
}

/// The parts of entries that templates paste.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pasted {
    Keys,
    KeysAndValues,
}

/// Returns the path to an entry with a control character in a part that templates paste.
fn in_entries(entries: &Map<String, Value>, pasted: Pasted) -> Option<Vec<String>> {
    let is_bad = |key: &str, value: &Value| {
        let value = value.as_str().filter(|_| pasted == Pasted::KeysAndValues);
        key.contains(is_control) || value.is_some_and(|value| value.contains(is_control))
    };
    let mut found = entries.iter().filter(|(key, value)| is_bad(key, value));
    found.next().map(|(key, _)| vec![step(key)])
}

fn is_name(key: &str) -> bool {
    key == "name"
        || key.ends_with("Name")
        || matches!(
            key,
            "namespace" | "kind" | "apiVersion" | "hostname" | "subdomain"
        )
}

/// The way to the first bad name at or below a key.
fn badly_named(key: &str, value: &Value) -> Option<Vec<String>> {
    if key.contains(is_control) {
        return Some(vec![step(key)]);
    }
    let trail = match value {
        Value::String(text) => (is_name(key) && text.contains(is_control)).then(Vec::new),
        Value::Object(entries) if key == "labels" => in_entries(entries, Pasted::KeysAndValues),
        Value::Object(entries) if key == "annotations" => in_entries(entries, Pasted::Keys),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
        Value::Array(_) | Value::Object(_) => below(value),
    };
    Some(with(trail?, step(key)))
}

fn below(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Object(entries) => entries
            .iter()
            .find_map(|(key, value)| badly_named(key, value)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| Some(with(below(item)?, format!("[{index}]")))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Strings of a ProxyConfig that are neither path, name nor address: `*` is any key, and all that is below them is free,
/// too.
const FREE: [&[&str]; 9] = [
    &[PROXY_METADATA, "*"],
    &["runtimeValues", "*"],
    &["proxyStatsMatcher"],
    &["readinessProbe"],
    &["privateKeyProvider"],
    &["proxyHeaders"],
    &["tracing", "customTags", "*", "literal"],
    &["tracing", "customTags", "*", "*", "defaultValue"],
    &["tracing", "lightstep", "accessToken"],
];

/// Checks the strings of a pod's ProxyConfig, in proto JSON, keys of its maps included.
pub(crate) fn proxy_config(written: &Map<String, Value>) -> Result<(), String> {
    let mut trail = Vec::new();
    entries(written, &mut trail)
}

fn entries<'a>(written: &'a Map<String, Value>, trail: &mut Vec<&'a str>) -> Result<(), String> {
    for (key, value) in written {
        trail.push(key);
        // Keys of messages are known ones, so that this is about keys of maps.
        check(
            key,
            trail,
            is_free(trail.get(..trail.len() - 1).unwrap_or_default()),
        )?;
        if trail[..] == [PROXY_METADATA, ""] {
            return Err(format!(
                "{PROXY_METADATA}: want names of variables, got \"\""
            ));
        }
        string(value, trail)?;
        trail.pop();
    }
    Ok(())
}

/// The map of a ProxyConfig whose entries are variables of the proxy.
const PROXY_METADATA: &str = "proxyMetadata";

/// Returns a warning if variables have names that only newer API servers take, or none.
pub(crate) fn newer_variables(written: &Map<String, Value>) -> Option<String> {
    let variables = written.get(PROXY_METADATA)?.as_object()?;
    let cause = variables.keys().find_map(|name| refused_variable(name))?;
    Some(format!("{PROXY_METADATA}: {cause}"))
}

/// Returns which API servers refuse a variable of that name, or `None`: newer ones want printable ASCII without `=`.
pub(crate) fn refused_variable(name: &str) -> Option<String> {
    if is_variable_name(name) {
        return None;
    }
    let is_taken = |letter| matches!(letter, b' '..=b'~') && letter != b'=';
    let servers = match !name.is_empty() && name.bytes().all(is_taken) {
        true => "API servers before 1.32",
        false => "API servers",
    };
    let excerpt = first_letters(name, MAX_SHOWN);
    Some(format!(
        "{servers} refuse the variable {excerpt:?} (want letters, digits and . _ - with no digit first)"
    ))
}

/// The rule of all API servers.
fn is_variable_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name != "."
        && !name.starts_with("..")
        && name.chars().all(is_letter)
}

fn string<'a>(value: &'a Value, trail: &mut Vec<&'a str>) -> Result<(), String> {
    match value {
        Value::String(text) => check(text, trail, is_free(trail)),
        Value::Array(items) => items.iter().try_for_each(|item| string(item, trail)),
        Value::Object(inner) => entries(inner, trail),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn is_free(trail: &[&str]) -> bool {
    FREE.iter().any(|free| {
        let mut steps = free.iter().zip(trail);
        free.len() <= trail.len() && steps.all(|(free, step)| *free == "*" || free == step)
    })
}

/// Returns true if a path, a name or an address may contain the character.
fn is_safe_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | ':' | '/' | '@' | '-')
}

/// Variables of the proxy's container that Kubernetes puts into an address of tracing: a collector of the node is reached so.
const ADDRESSES: [&str; 3] = ["$(HOST_IP)", "$(INSTANCE_IP)", "$(POD_IP)"];

/// An address without the variable that it begins with, where it may.
fn without_variable<'a>(text: &'a str, trail: &[&str]) -> &'a str {
    if !matches!(trail, ["tracing", _, "address"]) {
        return text;
    }
    let mut rest = ADDRESSES.iter().filter_map(|name| text.strip_prefix(name));
    rest.next().unwrap_or(text)
}

/// Returns true for `[IPv6]:port` where an address stands: none of its characters can be part of anything else.
fn is_ipv6_address(text: &str, trail: &[&str]) -> bool {
    let field = trail.last().copied().unwrap_or_default();
    (field == "address" || field.ends_with("Address")) && text.parse::<SocketAddrV6>().is_ok()
}

/// Characters of a value that an error shows.
const MAX_SHOWN: usize = 64;

fn check(text: &str, trail: &[&str], free: bool) -> Result<(), String> {
    let cause = if text.contains(is_control) {
        CONTROL.to_owned()
    } else if !free
        && !is_ipv6_address(text, trail)
        && !without_variable(text, trail).chars().all(is_safe_letter)
    {
        let excerpt = first_letters(text, MAX_SHOWN);
        format!("want letters, digits and . _ : / @ - only, got {excerpt:?}")
    } else {
        return Ok(());
    };
    let steps: String = trail.iter().map(|key| step(key)).collect();
    Err(format!("{}: {cause}", path("", vec![steps])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_of_a_proxys_configuration() {
        let good = json!({"configPath": "/etc/istio/proxy-1_a", "discoveryAddress": "a.b:15010", "drainDuration": "1.500s", "interceptionMode": "TPROXY",
            "proxyMetadata": {"A_B.c-1": "{\"a\": [\"$(B)\"]}"}, "proxyStatsMatcher": {"inclusionRegexps": [".*|\"x\" #"]}, "concurrency": 2,
            "readinessProbe": {"exec": {"command": ["sh", "-c", "a && b"]}}, "tracing": {"customTags": {"a": {"literal": {"value": "a b"}},
            "b": {"header": {"name": "x-b", "defaultValue": "{}"}}}, "lightstep": {"accessToken": "a=b c", "address": "l:1"},
            "datadog": {"address": "$(HOST_IP):8126"}, "zipkin": {"address": "[fd00::9]:9411"}}, "extraStatTags": ["a.b"],
            "statsdUdpAddress": "[::1]:9125", "envoyMetricsService": {"address": "[fd00::a]:15000"}});
        assert_eq!(proxy_config(good.as_object().unwrap()), Ok(()));
        let letters = "want letters, digits and . _ : / @ - only, got";
        let rows = [
            (
                json!({"configPath": "/a\nb"}),
                format!("configPath: {CONTROL}"),
            ),
            (
                json!({"configPath": "/a\u{85}b"}),
                format!("configPath: {CONTROL}"),
            ),
            (
                json!({"proxyMetadata": {"A": "a\u{2028}b"}}),
                format!("proxyMetadata.A: {CONTROL}"),
            ),
            (
                json!({"proxyMetadata": {"A\nB": "a"}}),
                format!("proxyMetadata.\"A\\nB\": {CONTROL}"),
            ),
            (
                json!({"proxyMetadata": {"A: B": "a"}}),
                format!("proxyMetadata.A: B: {letters} \"A: B\""),
            ),
            (
                json!({"readinessProbe": {"exec": {"command": ["a\tb"]}}}),
                format!("readinessProbe.exec.command: {CONTROL}"),
            ),
            (
                json!({"readinessProbe": {"a\tb": 1}}),
                format!("readinessProbe.\"a\\tb\": {CONTROL}"),
            ),
            (
                json!({"serviceCluster": "a'b"}),
                format!("serviceCluster: {letters} \"a'b\""),
            ),
            (
                json!({"tracing": {"zipkin": {"address": "$(id)"}}}),
                format!("tracing.zipkin.address: {letters} \"$(id)\""),
            ),
            (
                json!({"tracing": {"customTags": {"a": {"header": {"name": "x y"}}}}}),
                format!("tracing.customTags.a.header.name: {letters} \"x y\""),
            ),
            (
                json!({"extraStatTags": ["a", "b, c"]}),
                format!("extraStatTags: {letters} \"b, c\""),
            ),
            (
                json!({"image": {"imageType": "é"}}),
                format!("image.imageType: {letters} \"é\""),
            ),
        ];
        for (bad, wanted) in rows {
            assert_eq!(proxy_config(bad.as_object().unwrap()), Err(wanted), "{bad}");
        }
    }

    #[test]
    fn keys_of_proxy_metadata_are_names_of_variables() {
        let check = |name: &str| {
            let config = json!({"proxyMetadata": {"A": "b", name: "x"}});
            let config = config.as_object().unwrap();
            proxy_config(config).map(|()| newer_variables(config))
        };
        for name in ["ISTIO_META_X", "_", "-a", ".a", "a.b-c_1"] {
            assert_eq!(check(name), Ok(None), "{name}");
        }
        for name in ["1A", ".", "..", "..a", "a/b", "a:b", "a@b"] {
            let warning = format!(
                "proxyMetadata: API servers before 1.32 refuse the variable {name:?} (want letters, digits and . _ - with no digit first)"
            );
            assert_eq!(check(name), Ok(Some(warning)), "{name}");
        }
        let empty = "proxyMetadata: want names of variables, got \"\"";
        assert_eq!(check(""), Err(empty.to_owned()));
        for name in ["a=b", "é", "a\u{7f}"] {
            assert!(check(name).is_err(), "{name}");
        }
    }

    #[test]
    fn names_that_templates_paste() {
        let check = |pod: &Value| names(pod, &Origin::Webhook);
        let good = json!({"metadata": {"name": "a", "labels": {"a/b": "c"}, "annotations": {"note": "a\nb"}},
            "spec": {"containers": [{"name": "c", "args": ["a\nb"], "env": [{"name": "A", "value": "x\ty"}]}]}});
        assert_eq!(check(&good), Ok(()));
        let rows = [
            (json!({"metadata": {"name": "a\nb"}}), "metadata.name"),
            (
                json!({"metadata": {"generateName": "a\r"}}),
                "metadata.generateName",
            ),
            (
                json!({"metadata": {"labels": {"app": "a\u{2029}b"}}}),
                "metadata.labels.app",
            ),
            (
                json!({"metadata": {"labels": {"a\nb": ""}}}),
                "metadata.labels.\"a\\nb\"",
            ),
            (
                json!({"metadata": {"annotations": {"a\nb": ""}}}),
                "metadata.annotations.\"a\\nb\"",
            ),
            (
                json!({"metadata": {"ownerReferences": [{"kind": "a\u{85}"}]}}),
                "metadata.ownerReferences[0].kind",
            ),
            (
                json!({"spec": {"containers": [{"name": "a"}, {"name": "b\n"}]}}),
                "spec.containers[1].name",
            ),
            (
                json!({"spec": {"serviceAccountName": "a\n"}}),
                "spec.serviceAccountName",
            ),
            (
                json!({"spec": {"nodeSelector": {"a\n": "b"}}}),
                "spec.nodeSelector.\"a\\n\"",
            ),
        ];
        for (bad, wanted) in rows {
            assert_eq!(check(&bad), Err(format!("{wanted}: {CONTROL}")), "{bad}");
        }
    }

    #[test]
    fn strings_within_json() {
        assert_eq!(strings(&json!({"a": ["b", {"c": 1}]})), Ok(()));
        for (bad, wanted) in [
            (json!("a\n"), CONTROL.to_owned()),
            (json!({"a": ["b", "c\n"]}), format!("a[1]: {CONTROL}")),
            (json!({"a": {"b\n": 1}}), format!("a.\"b\\n\": {CONTROL}")),
        ] {
            assert_eq!(strings(&bad), Err(wanted));
        }
    }
}
