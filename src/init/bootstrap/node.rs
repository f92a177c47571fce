//! The proxy's description of itself for the control plane: node metadata, locality and the statistics it keeps, all from
//! environment variables.
//!
//! `ISTIO_META_<K>=v` gives `K`, `ISTIO_METAJSON_LABELS` the object `LABELS`, every other `ISTIO_METAJSON_*` is a JSON
//! object merged in flat. What the agent itself knows (pod name, namespace, addresses, …) wins over both, as in Istio
//! 1.3 and later: an annotation must not lend a pod another pod's name. Nothing here can fail; what is
//! not usable is left out, with a warning that names the variable and never shows its value.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::ffi::OsStr;
use std::net::IpAddr;

use super::{Locality, StatsInclusion};
use crate::json::{self, Map, Value};
use crate::search;
use crate::values::Role;

/// Plain metadata.
const META: &[u8] = b"ISTIO_META_";
/// Metadata as JSON objects.
const METAJSON: &[u8] = b"ISTIO_METAJSON_";
const LABELS: &str = "ISTIO_METAJSON_LABELS";
/// Not passed through; `ISTIO_META_WORKLOAD_NAME` has a meaning of its own.
const WORKLOAD: &[u8] = b"ISTIO_META_WORKLOAD";
/// The variable, and the key that it gives.
const IDENTITY: [(&str, &str); 5] = [
    ("POD_NAME", "NAME"),
    ("POD_NAMESPACE", "NAMESPACE"),
    ("SERVICE_ACCOUNT", "SERVICE_ACCOUNT"),
    ("ISTIO_META_OWNER", "OWNER"),
    ("ISTIO_META_WORKLOAD_NAME", "WORKLOAD_NAME"),
];
/// The metadata that Istio's filters tell the peer of a connection, unless `ISTIO_META_EXCHANGE_KEYS` names others.
const EXCHANGE_KEYS: &str = "NAME,NAMESPACE,INSTANCE_IPS,LABELS,OWNER,PLATFORM_METADATA,WORKLOAD_NAME,MESH_ID,SERVICE_ACCOUNT";
/// Levels of JSON in metadata. Envoy's parser (protobuf) stops at 100 messages inside each other, and one level of JSON is
/// three of them. Chosen: half of that.
const DEPTH: usize = 16;

/// Name and value.
pub type Variable<'a> = (&'a OsStr, &'a OsStr);

/// The values that the description is made of.
#[derive(Clone, Copy, Debug)]
pub struct NodeInputs<'a> {
    /// The environment, in its order; of a repeated JSON key the later wins.
    pub variables: &'a [Variable<'a>],
    /// The proxy's addresses, its own first; repeated ones are dropped.
    pub ips: &'a [IpAddr],
    pub role: Role,
}

/// The description of the proxy, for `Generated`.
#[derive(Clone, Debug, Default)]
pub struct NodeDescription {
    pub metadata: Map,
    /// From the annotations `sidecar.istio.io/statsInclusion{Prefixes,Suffixes,Regexps}`.
    pub stats: StatsInclusion,
    /// From the label `istio-locality`.
    pub locality: Locality,
    /// Values that were left out or changed, to be logged.
    pub warnings: Vec<String>,
}

/// Describes the node.
#[must_use]
pub fn describe(inputs: &NodeInputs<'_>) -> NodeDescription {
    let mut metadata = Map::new();
    let mut warnings = Vec::new();
    add_plain(&mut metadata, inputs.variables, &mut warnings);
    let labels = add_json(&mut metadata, inputs.variables, &mut warnings);
    let ips = add_identity(&mut metadata, inputs, &mut warnings);
    add_role(&mut metadata, &labels, inputs.role);
    let locality = locality(&labels, &metadata);
    if !labels.is_empty() {
        metadata.insert("LABELS", Value::Object(labels));
    }
    let stats = StatsInclusion {
        prefixes: inclusion(&metadata, "sidecar.istio.io/statsInclusionPrefixes", &ips),
        suffixes: inclusion(&metadata, "sidecar.istio.io/statsInclusionSuffixes", &ips),
        regexes: inclusion(&metadata, "sidecar.istio.io/statsInclusionRegexps", &ips),
    };
    NodeDescription {
        metadata,
        stats,
        locality,
        warnings,
    }
}

/// `ISTIO_META_<K>=v`.
fn add_plain(metadata: &mut Map, variables: &[Variable<'_>], warnings: &mut Vec<String>) {
    let mut entries = Vec::new();
    for (name, value) in variables {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(WORKLOAD) {
            continue;
        }
        let Some(key) = bytes.strip_prefix(META) else {
            continue;
        };
        match str::from_utf8(key) {
            Ok("") => warn(warnings, name, " has no name, ignored"),
            Ok(key) => {
                let value = text(name, value, warnings).into_owned();
                entries.push((key.to_owned(), Value::String(value)));
            }
            Err(_) => warn(warnings, name, " is not UTF-8, ignored"),
        }
    }
    metadata.extend(entries);
}

/// `ISTIO_METAJSON_*`; returns the labels.
fn add_json(metadata: &mut Map, variables: &[Variable<'_>], warnings: &mut Vec<String>) -> Map {
    let mut labels = Map::new();
    for (name, value) in variables {
        if !name.as_encoded_bytes().starts_with(METAJSON) {
            continue;
        }
        let entries = match parse(&text(name, value, warnings)) {
            Ok(entries) => entries,
            Err(why) => {
                warn(warnings, name, &[" is ignored: ", &why].concat());
                continue;
            }
        };
        let mut kept = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            if *name == LABELS {
                add_label(&mut labels, &key, value, warnings);
            } else if key.is_empty() {
                warn(warnings, name, ": an empty key is ignored");
            } else {
                kept.push((key, value));
            }
        }
        metadata.extend(kept);
    }
    labels
}

/// Labels are strings to the control plane, which would refuse the whole node for one that is not.
fn add_label(labels: &mut Map, key: &str, value: Value, warnings: &mut Vec<String>) {
    match value {
        Value::String(_) => {
            labels.insert(key, value);
        }
        Value::Bool(_) | Value::Number(_) => {
            labels.insert(key, Value::String(value.compact()));
        }
        Value::Null | Value::Array(_) | Value::Object(_) => {
            let parts = [
                ": label ",
                &Value::from(key).compact(),
                " is not a string, ignored",
            ];
            warn(warnings, LABELS.as_ref(), &parts.concat());
        }
    }
}

/// Adds the agent's own knowledge; returns the addresses as text.
fn add_identity(
    metadata: &mut Map,
    inputs: &NodeInputs<'_>,
    warnings: &mut Vec<String>,
) -> Vec<String> {
    for (variable, key) in IDENTITY {
        let found = inputs.variables.iter().find(|(name, _)| *name == variable);
        if let Some((name, value)) = found.filter(|(_, value)| !value.is_empty()) {
            let value = text(name, value, warnings).into_owned();
            metadata.insert(key, Value::String(value));
        }
    }
    let mut ips = Vec::with_capacity(inputs.ips.len());
    for ip in inputs.ips {
        let ip = ip.to_string();
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    if !ips.is_empty() {
        let joined = Value::String(ips.join(","));
        metadata.insert("INSTANCE_IPS", joined);
    }
    metadata.insert_new("EXCHANGE_KEYS", EXCHANGE_KEYS.into());
    ips
}

/// The key `istio`: what the user said, else the label of that name, else `sidecar` for a sidecar. pilot-agent wrote
/// `sidecar` over all of them, for gateways too.
fn add_role(metadata: &mut Map, labels: &Map, role: Role) {
    let default = match (labels.get("istio"), role) {
        (Some(label), _) => label.clone(),
        (None, Role::Sidecar) => Value::String("sidecar".to_owned()),
        (None, Role::Router | Role::Ingress) => return,
    };
    metadata.insert_new("istio", default);
}

/// `region/zone/subzone`, or with dots where there is no slash (a label may not have one).
fn locality(labels: &Map, metadata: &Map) -> Locality {
    let found = labels
        .get("istio-locality")
        .or_else(|| metadata.get("istio-locality"));
    let text = found.and_then(Value::as_str).unwrap_or_default().trim();
    let separator = if text.contains('/') { '/' } else { '.' };
    let mut parts = text.split(separator).map(str::to_owned);
    Locality {
        region: parts.next().unwrap_or_default(),
        zone: parts.next().unwrap_or_default(),
        sub_zone: parts.next().unwrap_or_default(),
    }
}

/// The entries of an annotation; one with `{pod_ip}` in it becomes one per address.
fn inclusion(metadata: &Map, annotation: &str, ips: &[String]) -> Vec<String> {
    let list = metadata.get(annotation).and_then(Value::as_str);
    let mut entries = Vec::new();
    for entry in list.unwrap_or_default().split(',').map(str::trim) {
        if search::contains(entry, "{pod_ip}") {
            entries.extend(ips.iter().map(|ip| search::replace(entry, "{pod_ip}", ip)));
        } else if !entry.is_empty() {
            entries.push(entry.to_owned());
        }
    }
    entries
}

/// The value of a variable as text; what is not UTF-8 is replaced.
fn text<'a>(name: &OsStr, value: &'a OsStr, warnings: &mut Vec<String>) -> Cow<'a, str> {
    let text = value.to_string_lossy();
    if matches!(text, Cow::Owned(_)) {
        warn(warnings, name, " is not UTF-8, its bad bytes are replaced");
    }
    text
}

#[cold]
fn warn(warnings: &mut Vec<String>, name: &OsStr, what: &str) {
    warnings.push([&name.to_string_lossy(), what].concat());
}

fn parse(text: &str) -> Result<Map, String> {
    match json::parse(text.as_bytes()) {
        Ok(Value::Object(entries)) if entries.iter().all(|(_, value)| is_flat(value, DEPTH)) => {
            Ok(entries)
        }
        Ok(Value::Object(_)) => Err("more than 16 levels deep".to_owned()),
        Ok(_) => Err("not a JSON object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether `value` has at most `depth` levels.
fn is_flat(value: &Value, depth: usize) -> bool {
    let deeper = depth.checked_sub(1);
    match value {
        Value::Array(items) => {
            deeper.is_some_and(|depth| items.iter().all(|item| is_flat(item, depth)))
        }
        Value::Object(entries) => {
            deeper.is_some_and(|depth| entries.iter().all(|(_, value)| is_flat(value, depth)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;
    use crate::json::json;

    fn variables<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Variable<'a>> {
        let words = pairs.iter().map(|(n, v)| (OsStr::new(*n), OsStr::new(*v)));
        words.collect()
    }

    fn describe_all(variables: &[Variable<'_>], ips: &[&str], role: Role) -> NodeDescription {
        let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        describe(&NodeInputs {
            variables,
            ips: &ips,
            role,
        })
    }

    fn described(pairs: &[(&str, &str)]) -> NodeDescription {
        describe_all(&variables(pairs), &["10.1.2.3"], Role::Sidecar)
    }

    #[test]
    fn an_injected_pod_is_described_as_istio_1_3_does() {
        let description = described(&[
            ("PATH", "/bin"),
            ("POD_NAME", "p1"),
            ("POD_NAMESPACE", "ns1"),
            ("SERVICE_ACCOUNT", "sa"),
            ("ISTIO_META_OWNER", "kubernetes://apis/apps/v1/x"),
            ("ISTIO_META_WORKLOAD_NAME", "w"),
            ("ISTIO_META_WORKLOAD_OTHER", "not passed"),
            ("ISTIO_META_A", "b=c=d"),
            ("ISTIO_METAJSON_ANNOTATIONS", "{\"an\":\"x\",\"n\":1}\n"),
            (
                "ISTIO_METAJSON_LABELS",
                "{\"app\":\"web\",\"v\":2,\"b\":true}\n",
            ),
        ]);
        let expected = json!({
            "A": "b=c=d", "EXCHANGE_KEYS": EXCHANGE_KEYS, "INSTANCE_IPS": "10.1.2.3",
            "LABELS": {"app": "web", "v": "2", "b": "true"}, "NAME": "p1", "NAMESPACE": "ns1",
            "OWNER": "kubernetes://apis/apps/v1/x", "SERVICE_ACCOUNT": "sa", "WORKLOAD_NAME": "w",
            "an": "x", "istio": "sidecar", "n": 1,
        });
        assert_eq!(Value::Object(description.metadata), expected);
        assert_eq!(description.warnings, Vec::<String>::new());
    }

    #[test]
    fn the_key_istio_is_not_overwritten() {
        let label = ("ISTIO_METAJSON_LABELS", r#"{"istio":"ingressgateway"}"#);
        assert_eq!(described(&[label]).metadata["istio"], "ingressgateway");
        let plain = ("ISTIO_META_istio", "mine");
        assert_eq!(described(&[label, plain]).metadata["istio"], "mine");
        let router = describe_all(&[], &[], Role::Router).metadata;
        assert!(router.get("istio").is_none() && router.get("INSTANCE_IPS").is_none());
    }

    #[test]
    fn an_annotation_cannot_lend_another_identity() {
        let metadata = described(&[
            ("POD_NAME", "p1"),
            (
                "ISTIO_METAJSON_ANNOTATIONS",
                r#"{"NAME":"p2","INSTANCE_IPS":"6.6.6.6","LABELS":7}"#,
            ),
            ("ISTIO_METAJSON_LABELS", r#"{"a":"b"}"#),
        ])
        .metadata;
        assert_eq!(metadata["NAME"], "p1");
        assert_eq!(metadata["INSTANCE_IPS"], "10.1.2.3");
        assert_eq!(metadata["LABELS"], json!({"a": "b"}));
    }

    #[test]
    fn addresses_are_given_once_in_order() {
        let ips = ["10.0.0.2", "fe80::1", "10.0.0.1", "10.0.0.2"];
        let metadata = describe_all(&[], &ips, Role::Sidecar).metadata;
        assert_eq!(metadata["INSTANCE_IPS"], "10.0.0.2,fe80::1,10.0.0.1");
    }

    #[test]
    fn unusable_values_are_left_out_with_a_warning_that_shows_none() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(20), "]".repeat(20));
        let description = described(&[
            ("ISTIO_META_", "z"),
            ("ISTIO_METAJSON_A", "{\"secret\":"),
            ("ISTIO_METAJSON_B", "[\"secret\"]"),
            ("ISTIO_METAJSON_C", &deep),
            ("ISTIO_METAJSON_D", r#"{"":"x","k":"v"}"#),
            ("ISTIO_METAJSON_LABELS", r#"{"bad":["secret"],"good":"v"}"#),
        ]);
        let metadata = description.metadata;
        let keys: Vec<&str> = metadata.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(
            keys,
            ["EXCHANGE_KEYS", "INSTANCE_IPS", "LABELS", "istio", "k"]
        );
        assert_eq!(metadata["LABELS"], json!({"good": "v"}));
        let warnings = description.warnings;
        assert!(
            warnings
                .iter()
                .all(|w| w.contains("ISTIO_META") && !w.contains("secret"))
        );
        assert_eq!(warnings.len(), 6, "{warnings:?}");
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced_or_left_out() {
        let bad = OsStr::from_bytes;
        let variables = [
            ("ISTIO_META_V".as_ref(), bad(b"a\xffb")),
            (bad(b"ISTIO_META_\xff"), "x".as_ref()),
            (bad(b"\xff"), bad(b"\xff")),
        ];
        let description = describe_all(&variables, &[], Role::Router);
        assert_eq!(description.metadata["V"], "a\u{fffd}b");
        assert_eq!(description.metadata.len(), 2);
        assert_eq!(description.warnings.len(), 2);
    }

    #[test]
    fn annotations_choose_statistics() {
        let annotations = r#"{"sidecar.istio.io/statsInclusionPrefixes":" a, listener.{pod_ip}_80 ,,b",
            "sidecar.istio.io/statsInclusionSuffixes":"x", "sidecar.istio.io/statsInclusionRegexps":"r.*,"}"#;
        let variables = variables(&[("ISTIO_METAJSON_ANNOTATIONS", annotations)]);
        let stats = describe_all(&variables, &["10.0.0.1", "10.0.0.2"], Role::Sidecar).stats;
        let prefixes = ["a", "listener.10.0.0.1_80", "listener.10.0.0.2_80", "b"];
        assert_eq!(stats.prefixes, prefixes);
        assert_eq!(stats.suffixes, ["x"]);
        assert_eq!(stats.regexes, ["r.*"]);
    }

    #[test]
    fn the_locality_label_has_dots_or_slashes() {
        for (label, expected) in [
            ("r.z.s", ["r", "z", "s"]),
            ("r/z.1/s/more", ["r", "z.1", "s"]),
            ("r", ["r", "", ""]),
            ("", ["", "", ""]),
        ] {
            let labels = json!({ "istio-locality": label }).compact();
            let found = described(&[("ISTIO_METAJSON_LABELS", &labels)]).locality;
            assert_eq!([found.region, found.zone, found.sub_zone], expected);
        }
    }
}
