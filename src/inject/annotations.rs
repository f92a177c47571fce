//! Annotations that a template may read: each is validated before anything is rendered, because templates paste them into
//! YAML.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use api::redact::{REDACTED, redact_quoted};
use api::text;
use serde_json::Value;

use crate::pod;
use crate::quantity;
use crate::user_volumes::{self, USER_VOLUME, USER_VOLUME_MOUNT};
use crate::yaml_safe;

/// The values that an annotation may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueRule {
    Any,
    /// JSON of a known type, or any text: white space is allowed outside of its strings.
    Json,
    OneOf(&'static [&'static str]),
    Port,
    Count,
    /// A user that is not root.
    UserId,
    Ports {
        all: bool,
    },
    Ranges {
        all: bool,
    },
    Interfaces,
    Quantity,
    Boolean,
    /// A part of an image's tag.
    ImageType,
    /// Objects by name, or a list of objects with names, each of this kind.
    Objects(&'static str),
    ProxyConfig,
    Templates,
}

/// An annotation: its name, its description in messages, and the rule of its value.
struct AnnotationRow(&'static str, &'static str, ValueRule);

pub(crate) const STATUS_PORT: &str = "status.sidecar.istio.io/port";
pub(crate) const PROXY_CONFIG: &str = "proxy.istio.io/config";
pub(crate) const TEMPLATES: &str = "inject.istio.io/templates";
pub(crate) const REWRITE_PROBES: &str = "sidecar.istio.io/rewriteAppHTTPProbers";
pub(crate) const NATIVE_SIDECAR: &str = "sidecar.istio.io/nativeSidecar";
pub(crate) const CORE_DUMP: &str = "sidecar.istio.io/enableCoreDump";
pub(crate) const IMAGE_TYPE: &str = "sidecar.istio.io/proxyImageType";
pub(crate) const INTERCEPTION_MODE: &str = "sidecar.istio.io/interceptionMode";
pub(crate) const MERGE_METRICS: &str = "prometheus.istio.io/merge-metrics";

const INTERCEPTION: ValueRule = ValueRule::OneOf(&["REDIRECT", "TPROXY", "NONE"]);

/// Sorted by name, as messages are.
const ANNOTATIONS: &[AnnotationRow] = &[
    AnnotationRow(TEMPLATES, "templates", ValueRule::Templates),
    AnnotationRow(
        "istio.io/reroute-virtual-interfaces",
        "reroute-virtual-interfaces",
        ValueRule::Interfaces,
    ),
    AnnotationRow(MERGE_METRICS, "merge-metrics", ValueRule::Boolean),
    AnnotationRow(PROXY_CONFIG, "config", ValueRule::ProxyConfig),
    AnnotationRow(
        "readiness.status.sidecar.istio.io/applicationPorts",
        "readinessApplicationPorts",
        ValueRule::Ports { all: true },
    ),
    AnnotationRow(
        "readiness.status.sidecar.istio.io/failureThreshold",
        "failureThreshold",
        ValueRule::Count,
    ),
    AnnotationRow(
        "readiness.status.sidecar.istio.io/initialDelaySeconds",
        "initialDelaySeconds",
        ValueRule::Count,
    ),
    AnnotationRow(
        "readiness.status.sidecar.istio.io/periodSeconds",
        "periodSeconds",
        ValueRule::Count,
    ),
    AnnotationRow(
        "sidecar.istio.io/agentLogLevel",
        "agentLogLevel",
        ValueRule::Any,
    ),
    AnnotationRow(
        "sidecar.istio.io/bootstrapOverride",
        "bootstrapOverride",
        ValueRule::Any,
    ),
    AnnotationRow(
        "sidecar.istio.io/componentLogLevel",
        "componentLogLevel",
        ValueRule::Any,
    ),
    AnnotationRow(
        "sidecar.istio.io/controlPlaneAuthPolicy",
        "controlPlaneAuthPolicy",
        ValueRule::Any,
    ),
    AnnotationRow(
        "sidecar.istio.io/discoveryAddress",
        "discoveryAddress",
        ValueRule::Any,
    ),
    AnnotationRow(CORE_DUMP, "enableCoreDump", ValueRule::Boolean),
    AnnotationRow("sidecar.istio.io/inject", "inject", ValueRule::Any),
    AnnotationRow(INTERCEPTION_MODE, "interceptionMode", INTERCEPTION),
    AnnotationRow("sidecar.istio.io/logLevel", "logLevel", ValueRule::Any),
    AnnotationRow(NATIVE_SIDECAR, "nativeSidecar", ValueRule::Boolean),
    AnnotationRow("sidecar.istio.io/proxyCPU", "proxyCPU", ValueRule::Quantity),
    AnnotationRow(
        "sidecar.istio.io/proxyCPULimit",
        "proxyCPULimit",
        ValueRule::Quantity,
    ),
    AnnotationRow("sidecar.istio.io/proxyImage", "proxyImage", ValueRule::Any),
    AnnotationRow(IMAGE_TYPE, "proxyImageType", ValueRule::ImageType),
    AnnotationRow(
        "sidecar.istio.io/proxyMemory",
        "proxyMemory",
        ValueRule::Quantity,
    ),
    AnnotationRow(
        "sidecar.istio.io/proxyMemoryLimit",
        "proxyMemoryLimit",
        ValueRule::Quantity,
    ),
    AnnotationRow(REWRITE_PROBES, "rewriteAppHTTPProbers", ValueRule::Boolean),
    AnnotationRow(
        "sidecar.istio.io/statsInclusionPrefixes",
        "statsInclusionPrefixes",
        ValueRule::Any,
    ),
    AnnotationRow(
        "sidecar.istio.io/statsInclusionRegexps",
        "statsInclusionRegexps",
        ValueRule::Any,
    ),
    AnnotationRow(
        "sidecar.istio.io/statsInclusionSuffixes",
        "statsInclusionSuffixes",
        ValueRule::Any,
    ),
    AnnotationRow("sidecar.istio.io/status", "status", ValueRule::Json),
    AnnotationRow(USER_VOLUME, "userVolume", ValueRule::Objects("Volume")),
    AnnotationRow(
        USER_VOLUME_MOUNT,
        "userVolumeMount",
        ValueRule::Objects("VolumeMount"),
    ),
    AnnotationRow(STATUS_PORT, "statusPort", ValueRule::Port),
    AnnotationRow(
        "traffic.sidecar.istio.io/excludeInboundPorts",
        "excludeInboundPorts",
        ValueRule::Ports { all: false },
    ),
    AnnotationRow(
        "traffic.sidecar.istio.io/excludeInterfaces",
        "excludeInterfaces",
        ValueRule::Interfaces,
    ),
    AnnotationRow(
        "traffic.sidecar.istio.io/excludeOutboundIPRanges",
        "excludeIPRanges",
        ValueRule::Ranges { all: false },
    ),
    AnnotationRow(
        "traffic.sidecar.istio.io/excludeOutboundPorts",
        "excludeOutboundPorts",
        ValueRule::Ports { all: false },
    ),
    AnnotationRow(
        "traffic.sidecar.istio.io/includeInboundPorts",
        "includeInboundPorts",
        ValueRule::Ports { all: true },
    ),
    AnnotationRow(
        "traffic.sidecar.istio.io/includeOutboundIPRanges",
        "includeIPRanges",
        ValueRule::Ranges { all: true },
    ),
    AnnotationRow(
        "traffic.sidecar.istio.io/includeOutboundPorts",
        "includeOutboundPorts",
        ValueRule::Ports { all: false },
    ),
    AnnotationRow(
        "traffic.sidecar.istio.io/kubevirtInterfaces",
        "kubevirtInterfaces",
        ValueRule::Interfaces,
    ),
];

/// Checks that need the configuration.
pub(crate) struct Validators<'a> {
    pub(crate) proxy_config: &'a dyn Fn(&str) -> Result<(), String>,
    pub(crate) templates: &'a dyn Fn(&str) -> Result<(), String>,
}

impl std::fmt::Debug for Validators<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Validators")
    }
}

/// The parts of a value that an error quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quoting {
    /// The pod's author reads the error.
    Values,
    /// The error of a configuration is logged, and a value may be a password.
    Nothing,
}

/// Bytes of all annotations of an object, keys and values: Kubernetes' `TotalAnnotationSizeLimitB`, which the API server
/// checks only after admission.
pub(crate) const MAX_BYTES: usize = 256 << 10;

/// The greatest user ID that Kubernetes takes.
const MAX_USER_ID: u32 = i32::MAX.unsigned_abs();

/// Bytes of a value, or of an error's detail, that a message quotes: enough for a person to recognize it.
const QUOTED: usize = 512;

/// Returns the beginning of a text, with a mark if the rest is cut.
fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= QUOTED {
        return text.into();
    }
    format!("{}…", text::cut(text, QUOTED)).into()
}

fn bytes_of(pod: &Value) -> usize {
    let annotations = pod::annotations(pod).into_iter().flatten();
    let bytes = annotations.map(|(name, value)| {
        let value = value.as_str().unwrap_or_default();
        name.len().saturating_add(value.len())
    });
    bytes.fold(0, usize::saturating_add)
}

/// Returns the reason why an API server would refuse an injected pod: its annotations and those of the injection are too long together.
pub(crate) fn too_many(injected: &Value) -> Option<String> {
    let bytes = bytes_of(injected);
    (bytes > MAX_BYTES).then(|| {
        format!("metadata.annotations: {bytes} bytes together with those of the injection, want {MAX_BYTES} at most")
    })
}

/// Validates all annotations.
///
/// # Errors
///
/// Annotations are invalid, or too long together; one message lists the invalid ones.
pub(crate) fn validate(
    pod: &Value,
    validators: &Validators<'_>,
    quoting: Quoting,
) -> Result<(), String> {
    let bytes = bytes_of(pod);
    if bytes > MAX_BYTES {
        return Err(format!(
            "metadata.annotations: {bytes} bytes together, want {MAX_BYTES} at most"
        ));
    }
    let Some(annotations) = pod::annotations(pod) else {
        return Ok(());
    };
    let mut wrong = Vec::new();
    for AnnotationRow(name, parameter, valid) in ANNOTATIONS {
        let Some(value) = annotations.get(*name).and_then(Value::as_str) else {
            continue;
        };
        if let Err(cause) = check(value, *valid, validators) {
            let (value, cause) = match quoting {
                Quoting::Values => (quoted(value), quoted(&cause)),
                Quoting::Nothing => (REDACTED.into(), redact_quoted(&cause).into()),
            };
            wrong.push(format!(
                "invalid value '{value}' for annotation '{name}': {parameter} invalid: {cause}"
            ));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}

/// Checks a parameter of the built-in template by the rule of its annotation.
///
/// # Errors
///
/// The value is invalid; the error names the valid values.
pub(crate) fn parameter(name: &str, value: &str) -> Result<(), String> {
    let valid = match name {
        "readinessInitialDelaySeconds" | "readinessPeriodSeconds" | "readinessFailureThreshold" => {
            ValueRule::Count
        }
        "sidecarProxyUID" => ValueRule::UserId,
        "rewriteAppProbe" | "coreDump" => ValueRule::Boolean,
        "imagePullPolicy" => ValueRule::OneOf(&["Always", "IfNotPresent", "Never"]),
        _ => ANNOTATIONS
            .iter()
            .find(|AnnotationRow(_, parameter, _)| *parameter == name)
            .map_or(ValueRule::Any, |AnnotationRow(_, _, valid)| *valid),
    };
    // No parameter is a ProxyConfig or a choice of templates.
    let validators = Validators {
        proxy_config: &|_| Ok(()),
        templates: &|_| Ok(()),
    };
    check(value, valid, &validators).map_err(|cause| format!("{name} invalid: {cause}"))
}

fn check(value: &str, valid: ValueRule, validators: &Validators<'_>) -> Result<(), String> {
    // JSON and YAML have white space outside of strings, and their strings are validated one by one.
    let structured = matches!(
        valid,
        ValueRule::Json | ValueRule::Objects(_) | ValueRule::ProxyConfig
    );
    let is_refused = |letter| {
        yaml_safe::is_control(letter) && !(structured && yaml_safe::is_white_space(letter))
    };
    if value.contains(is_refused) {
        return Err(yaml_safe::CONTROL.to_owned());
    }
    match valid {
        ValueRule::Any => Ok(()),
        ValueRule::Json => {
            serde_json::from_str(value).map_or(Ok(()), |json| yaml_safe::strings(&json))
        }
        ValueRule::OneOf(choices) if choices.contains(&value) => Ok(()),
        ValueRule::OneOf(choices) => Err(format!("want one of {}", choices.join(", "))),
        ValueRule::Port => number(value, 0..=65_535),
        ValueRule::Count => number(value, 0..=u32::MAX),
        ValueRule::UserId => number(value, 1..=MAX_USER_ID),
        ValueRule::Ports { all }
            if all && value == "*"
                || value.is_empty() && matches!(valid, ValueRule::Ports { .. }) =>
        {
            Ok(())
        }
        ValueRule::Ports { .. } => value
            .split(',')
            .try_for_each(|port| number(port.trim_matches(' '), 0..=65_535)),
        ValueRule::Ranges { all }
            if all && value == "*"
                || value.is_empty() && matches!(valid, ValueRule::Ranges { .. }) =>
        {
            Ok(())
        }
        ValueRule::Ranges { .. } => value.split(',').try_for_each(range),
        ValueRule::Interfaces if value.is_empty() => Ok(()),
        ValueRule::Interfaces => value.split(',').try_for_each(interface),
        ValueRule::Quantity => quantity::nano(value)
            .map(drop)
            .ok_or_else(|| "want a quantity, such as 100m or 128Mi".to_owned()),
        ValueRule::Boolean => boolean(value)
            .map(drop)
            .ok_or_else(|| "want true or false".to_owned()),
        ValueRule::ImageType => image_type(value),
        ValueRule::Objects(kind) => user_volumes::check(value, kind),
        ValueRule::ProxyConfig => (validators.proxy_config)(value),
        ValueRule::Templates => (validators.templates)(value),
    }
}

fn number(value: &str, range: RangeInclusive<u32>) -> Result<(), String> {
    // `parse` alone would take a plus.
    let digits = !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_digit());
    match value.parse::<u32>() {
        Ok(number) if digits && range.contains(&number) => Ok(()),
        _ => {
            let (min, max) = range.into_inner();
            Err(format!("want a number from {min} to {max}, got {value:?}"))
        }
    }
}

fn image_type(value: &str) -> Result<(), String> {
    let is_fit = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
    if value.chars().all(is_fit) {
        Ok(())
    } else {
        Err(format!(
            "want letters, digits and . _ - only, got {value:?}"
        ))
    }
}

fn range(value: &str) -> Result<(), String> {
    let refused = || format!("want an address range, such as 10.0.0.0/8, got {value:?}");
    let (address, bits) = value.split_once('/').ok_or_else(refused)?;
    let address: IpAddr = address.parse().map_err(|_| refused())?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    // `number` alone would take any zeros in front.
    if bits.len() > 3 {
        Err(refused())
    } else {
        number(bits, 0..=max).map_err(|_| refused())
    }
}

fn interface(value: &str) -> Result<(), String> {
    // Linux has 16 bytes for a name (`IFNAMSIZ`), with the NUL at its end.
    let fits = (1..=15).contains(&value.len())
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte));
    if fits {
        Ok(())
    } else {
        Err(format!("want names of interfaces, got {value:?}"))
    }
}

/// Parses a boolean as Go does.
#[must_use]
pub(crate) fn boolean(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_annotation(name: &str, value: &str) -> Result<(), String> {
        let validators = Validators {
            proxy_config: &|text| {
                if text.contains("bad") {
                    Err("it is bad".to_owned())
                } else {
                    Ok(())
                }
            },
            templates: &|text| {
                if text.contains("bad") {
                    Err("no template \"bad\", known: sidecar".to_owned())
                } else {
                    Ok(())
                }
            },
        };
        validate(
            &json!({"metadata": {"annotations": {name: value}}}),
            &validators,
            Quoting::Values,
        )
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn each_has_values_that_are_valid_and_one_that_is_not() {
        let rows: &[(&str, &[&str], &str, &str)] = &[
            (
                "sidecar.istio.io/interceptionMode",
                &["REDIRECT", "TPROXY", "NONE"],
                "redirect",
                "interceptionMode invalid: want one of REDIRECT, TPROXY, NONE",
            ),
            (
                STATUS_PORT,
                &["0", "15020", "65535"],
                "65536",
                "statusPort invalid: want a number from 0 to 65535, got \"65536\"",
            ),
            (
                "readiness.status.sidecar.istio.io/initialDelaySeconds",
                &["0", "4294967295"],
                "-1",
                "initialDelaySeconds invalid: want a number from 0 to 4294967295, got \"-1\"",
            ),
            (
                "readiness.status.sidecar.istio.io/periodSeconds",
                &["2"],
                "+2",
                "periodSeconds invalid: want a number from 0 to 4294967295, got \"+2\"",
            ),
            (
                "readiness.status.sidecar.istio.io/failureThreshold",
                &["2"],
                "x",
                "failureThreshold invalid: want a number from 0 to 4294967295, got \"x\"",
            ),
            (
                "readiness.status.sidecar.istio.io/applicationPorts",
                &["*", "", "80, 81"],
                "80,,81",
                "readinessApplicationPorts invalid: want a number from 0 to 65535, got \"\"",
            ),
            (
                "traffic.sidecar.istio.io/includeInboundPorts",
                &["*", "", " 80 ,81"],
                "*,80",
                "includeInboundPorts invalid: want a number from 0 to 65535, got \"*\"",
            ),
            (
                "traffic.sidecar.istio.io/excludeInboundPorts",
                &["", "80"],
                "*",
                "excludeInboundPorts invalid: want a number from 0 to 65535, got \"*\"",
            ),
            (
                "traffic.sidecar.istio.io/excludeOutboundPorts",
                &["80"],
                "80,",
                "excludeOutboundPorts invalid: want a number from 0 to 65535, got \"\"",
            ),
            (
                "traffic.sidecar.istio.io/includeOutboundPorts",
                &["80"],
                "http",
                "includeOutboundPorts invalid: want a number from 0 to 65535, got \"http\"",
            ),
            (
                "traffic.sidecar.istio.io/includeOutboundIPRanges",
                &["*", "", "10.0.0.1/8,fd00::1/64"],
                "10.0.0.0/8, 11.0.0.0/8",
                "includeIPRanges invalid: want an address range, such as 10.0.0.0/8, got \" 11.0.0.0/8\"",
            ),
            (
                "traffic.sidecar.istio.io/excludeOutboundIPRanges",
                &["", "0.0.0.0/0"],
                "*",
                "excludeIPRanges invalid: want an address range, such as 10.0.0.0/8, got \"*\"",
            ),
            (
                "traffic.sidecar.istio.io/kubevirtInterfaces",
                &["eth0,net1.1", "a:b-c_d"],
                "eth 0",
                "kubevirtInterfaces invalid: want names of interfaces, got \"eth 0\"",
            ),
            (
                "traffic.sidecar.istio.io/excludeInterfaces",
                &["eth0"],
                "sixteen-letters-x",
                "excludeInterfaces invalid: want names of interfaces, got \"sixteen-letters-x\"",
            ),
            (
                "istio.io/reroute-virtual-interfaces",
                &["eth0"],
                "eth0,",
                "reroute-virtual-interfaces invalid: want names of interfaces, got \"\"",
            ),
            (
                "sidecar.istio.io/proxyCPU",
                &["100m"],
                "1 m",
                "proxyCPU invalid: want a quantity, such as 100m or 128Mi",
            ),
            (
                "sidecar.istio.io/proxyMemory",
                &["1Gi"],
                "1GB",
                "proxyMemory invalid: want a quantity, such as 100m or 128Mi",
            ),
            (
                "sidecar.istio.io/proxyCPULimit",
                &["2"],
                "",
                "proxyCPULimit invalid: want a quantity, such as 100m or 128Mi",
            ),
            (
                "sidecar.istio.io/proxyMemoryLimit",
                &["1e6"],
                "x",
                "proxyMemoryLimit invalid: want a quantity, such as 100m or 128Mi",
            ),
            (
                REWRITE_PROBES,
                &["true", "1", "t", "F"],
                "yes",
                "rewriteAppHTTPProbers invalid: want true or false",
            ),
            (
                "sidecar.istio.io/enableCoreDump",
                &["True"],
                "tRUE",
                "enableCoreDump invalid: want true or false",
            ),
            (
                NATIVE_SIDECAR,
                &["false"],
                "on",
                "nativeSidecar invalid: want true or false",
            ),
            (
                MERGE_METRICS,
                &["0"],
                "",
                "merge-metrics invalid: want true or false",
            ),
            (
                "sidecar.istio.io/userVolume",
                &[
                    "{\n}",
                    "[]",
                    "[{\"name\":\"a\",\"emptyDir\":{}},{\"name\":\"b\"}]",
                ],
                "7",
                "userVolume invalid: want a JSON object or list",
            ),
            (
                "sidecar.istio.io/userVolumeMount",
                &["{\"a\":{}}", "[{\"name\":\"a\",\"mountPath\":\"/a\"}]"],
                "{",
                "userVolumeMount invalid: want a JSON object or list: EOF while parsing an object at line 1 column 1",
            ),
            (
                PROXY_CONFIG,
                &["a: 1\nb: 2"],
                "bad",
                "config invalid: it is bad",
            ),
            (
                TEMPLATES,
                &["sidecar, x"],
                "bad",
                "templates invalid: no template \"bad\", known: sidecar",
            ),
            (
                "sidecar.istio.io/proxyImageType",
                &["distroless", "default", ""],
                "a: b",
                "proxyImageType invalid: want letters, digits and . _ - only, got \"a: b\"",
            ),
            ("sidecar.istio.io/status", &["anything\n"], "", ""),
        ];
        for (name, good, bad, message) in rows {
            for value in *good {
                assert_eq!(check_annotation(name, value), Ok(()), "{name}: {value}");
            }
            if !message.is_empty() {
                assert_eq!(
                    check_annotation(name, bad),
                    Err(format!(
                        "invalid value '{bad}' for annotation '{name}': {message}"
                    ))
                );
            }
        }
    }

    #[test]
    fn each_element_of_a_list_is_checked() {
        let rows = [
            ("[7]", "[0]: want an object"),
            ("[{\"emptyDir\":{}}]", "[0]: want a name"),
            ("[{\"name\":\"\"}]", "[0]: want a name"),
            ("[{\"name\":7}]", "[0]: want a name"),
            (
                "[{\"name\":\"a\"},{\"name\":\"a\"}]",
                "[1]: the name \"a\" twice",
            ),
            (
                "[{\"name\":\"a\",\"secret\":{\"defaultMode\":\"x\"}}]",
                "\"a\": secret.defaultMode: want a number, got \"x\"",
            ),
        ];
        for (value, wanted) in rows {
            let refused = check_annotation(USER_VOLUME, value).unwrap_err();
            assert!(refused.ends_with(&format!(": {wanted}")), "{refused}");
        }
    }

    #[test]
    fn no_annotation_smuggles_a_line() {
        for AnnotationRow(name, parameter, valid) in ANNOTATIONS {
            let wanted = matches!(
                valid,
                ValueRule::Json | ValueRule::Objects(_) | ValueRule::ProxyConfig
            );
            let value = if matches!(valid, ValueRule::Objects(_)) {
                "{\n}"
            } else {
                "x\ny: z"
            };
            assert_eq!(check_annotation(name, value).is_ok(), wanted, "{name}");
            assert!(
                wanted
                    || check_annotation(name, value)
                        .unwrap_err()
                        .ends_with(&format!(
                            "{parameter} invalid: it holds a control character"
                        ))
            );
        }
        assert_eq!(check_annotation("somebody.else/x", "a\nb"), Ok(()));
        // Two of YAML's line breaks are no characters of control, and JSON may hold one as it is.
        for value in [
            "a\u{2028}b",
            "a\u{2029}b",
            "a\u{85}b",
            "{\"a\": \"\u{2028}\"}",
        ] {
            for AnnotationRow(name, parameter, _) in ANNOTATIONS {
                let refused = check_annotation(name, value).unwrap_err();
                let wanted = format!("{parameter} invalid: {}", yaml_safe::CONTROL);
                assert!(refused.ends_with(&wanted), "{refused}");
            }
        }
    }

    #[test]
    fn no_string_of_json_smuggles_a_line() {
        for name in [
            USER_VOLUME,
            "sidecar.istio.io/userVolumeMount",
            "sidecar.istio.io/status",
        ] {
            for value in [
                r#"{"a": {"subPath": "x\ny"}}"#,
                r#"{"a\ny": {}}"#,
                r#"{"a": {"x\u0085": 1}}"#,
                r#"{"a": {"x": ["\u2028"]}}"#,
                r#"[{"name": "a", "subPath": "x\ny"}]"#,
                r#"[{"name": "a\ny"}]"#,
                r#"[{"name": "a", "x\u0085": 1}]"#,
            ] {
                let refused = check_annotation(name, value).unwrap_err();
                assert!(refused.ends_with(yaml_safe::CONTROL), "{name}: {refused}");
            }
        }
    }

    #[test]
    fn all_together_have_a_bound() {
        let validators = Validators {
            proxy_config: &|_| Ok(()),
            templates: &|_| Ok(()),
        };
        let of = |bytes: usize| json!({"metadata": {"annotations": {"ab": "x".repeat(bytes / 2 - 2), "cd": "x".repeat(bytes / 2 - 2)}}});
        assert_eq!(
            validate(&of(MAX_BYTES), &validators, Quoting::Values),
            Ok(())
        );
        assert_eq!(
            validate(&of(MAX_BYTES + 2), &validators, Quoting::Values),
            Err("metadata.annotations: 262146 bytes together, want 262144 at most".to_owned())
        );
    }

    #[test]
    fn all_are_told_in_one_message_sorted() {
        assert!(ANNOTATIONS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let pod = json!({"metadata": {"annotations": {STATUS_PORT: "x", "sidecar.istio.io/proxyCPU": "y", "ok": "z"}}});
        let validators = Validators {
            proxy_config: &|_| Ok(()),
            templates: &|_| Ok(()),
        };
        assert_eq!(
            validate(&pod, &validators, Quoting::Nothing).unwrap_err(),
            "invalid value '…' for annotation 'sidecar.istio.io/proxyCPU': proxyCPU invalid: want a quantity, such as 100m or 128Mi; \
             invalid value '…' for annotation 'status.sidecar.istio.io/port': statusPort invalid: want a number from 0 to 65535, got \"…\""
        );
        assert_eq!(
            validate(&pod, &validators, Quoting::Values).unwrap_err(),
            "invalid value 'y' for annotation 'sidecar.istio.io/proxyCPU': proxyCPU invalid: want a quantity, such as 100m or 128Mi; \
             invalid value 'x' for annotation 'status.sidecar.istio.io/port': statusPort invalid: want a number from 0 to 65535, got \"x\""
        );
    }

    #[test]
    fn parameters_are_validated_like_annotations() {
        for (name, value) in [
            ("includeIPRanges", "*"),
            ("statusPort", "15020"),
            ("sidecarProxyUID", "1"),
            ("sidecarProxyUID", "2147483647"),
            ("coreDump", "false"),
            ("imagePullPolicy", "Always"),
        ] {
            assert_eq!(parameter(name, value), Ok(()));
        }
        assert_eq!(
            parameter("includeIPRanges", "x"),
            Err(
                "includeIPRanges invalid: want an address range, such as 10.0.0.0/8, got \"x\""
                    .to_owned()
            )
        );
        assert!(parameter("imagePullPolicy", "sometimes").is_err());
        // The proxy does not run as root, and Kubernetes takes no greater one.
        for uid in ["0", "2147483648", "", "-1"] {
            assert_eq!(
                parameter("sidecarProxyUID", uid),
                Err(format!(
                    "sidecarProxyUID invalid: want a number from 1 to 2147483647, got {uid:?}"
                ))
            );
        }
    }
}
