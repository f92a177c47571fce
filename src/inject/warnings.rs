//! Warnings for a pod's author.

use std::net::SocketAddr;

use api::config::rules::is_agent_address;
use api::mesh::tracing::Tracer;
use api::mesh::{AuthenticationPolicy, ProxyConfig};
use api::text;
use serde_json::Value;

use crate::{pod, schema};

/// The number of warnings in a response, and their bytes.
pub const MAX_WARNINGS: usize = 16;
pub(crate) const MAX_WARNING: usize = 256;

/// The variable by which a proxy knows its network.
pub(crate) const NETWORK: &str = "ISTIO_META_NETWORK";

/// The annotation with a pod's own policy towards its control plane.
pub(crate) const CONTROL_PLANE_AUTH_POLICY: &str = "sidecar.istio.io/controlPlaneAuthPolicy";

/// A pod that may ask elsewhere for names.
pub(crate) fn dns_policy(pod: &Value) -> Option<String> {
    let policy = pod.get("spec")?.get("dnsPolicy")?.as_str()?;
    let usual = policy.is_empty() || policy == "ClusterFirst";
    (!usual).then(|| format!("dnsPolicy {policy:?}: the proxy may not find its control plane; ClusterFirst is expected"))
}

/// Containers that run as the user of the proxy, whose traffic is not intercepted.
pub(crate) fn proxy_user(pod: &Value, user: i64) -> Option<String> {
    let mut all = pod::containers_of_user(pod, user);
    let (field, at, _) = all.next()?;
    let more = match all.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!(
        "spec.{field}[{at}] runs as user {user}{more}, as the proxy does: its connections bypass the proxy"
    ))
}

/// A label whose text no label can hold; whether the proxy has the text elsewhere. The text is last, for a long one is cut.
pub(crate) fn no_label(pod: &Value, key: &str, text: &str) -> String {
    let variables = pod::proxy(pod).and_then(|proxy| proxy.get("env")?.as_array());
    let mut variables = variables.into_iter().flatten();
    let elsewhere = variables.find(|one| {
        pod::name(one) == NETWORK && one.get("value").and_then(Value::as_str) == Some(text)
    });
    let elsewhere = elsewhere.map_or_else(String::new, |_| {
        format!(", which {} has in {NETWORK}", pod::PROXY)
    });
    format!("label {key} is left out, because no label can hold such a text{elsewhere}: {text:?}")
}

/// Returns the warning about a field of the template that no pod gets. `None`: Istio's own templates of 1.6 to 1.12 have the field,
/// which no container ever had, so that no reader of the warning could mend it.
pub(crate) fn pruned(path: &str) -> Option<String> {
    let is_of_container = path.contains("ontainers[");
    if is_of_container && path.ends_with("].securityContext.fsGroup") {
        return None;
    }
    let (thing, cause) = if path.starts_with('$') || path.contains(".$") {
        ("directive", "is not supported")
    } else if is_of_pod(path) {
        ("field", "is not a template's to set")
    } else {
        ("field", "is not known to Kubernetes there")
    };
    Some(format!(
        "{thing} {path} of the template {cause} and was left out"
    ))
}

/// Returns true for a field of a pod that templates do not make.
fn is_of_pod(path: &str) -> bool {
    match path.split_once('.') {
        Some(("metadata", name)) => {
            schema::object("ObjectMeta").is_some_and(|object| object.field(name).is_some())
        }
        Some(_) => false,
        None => matches!(path, "apiVersion" | "kind" | "status"),
    }
}

/// Shorter ones are in every sentence, and no secret.
const NUMBER: usize = 4;

/// Quotes numbers of the text in a cause, by which the log recognizes a possible secret.
pub(crate) fn numbers_quoted(cause: &str, of: &str) -> String {
    let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '+');
    let mut out = String::with_capacity(cause.len() + 2);
    let mut in_quotes = false;
    let mut rest = cause;
    while let Some(letter) = rest.chars().next() {
        let length = match letter {
            // An escaped character does not end the quotation.
            '\\' => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            _ => rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()),
        };
        let word = rest.get(..length.max(letter.len_utf8())).unwrap_or(rest);
        rest = rest.get(word.len()..).unwrap_or_default();
        in_quotes ^= letter == '"';
        let unsigned = word.trim_start_matches('-');
        let is_number = unsigned.starts_with(|first: char| first.is_ascii_digit());
        // Numbers of the rule itself, which the text does not have, stay as they are.
        if is_number && !in_quotes && word.len() >= NUMBER && of.contains(word) {
            out.extend(["\"", word, "\""]);
        } else {
            out.push_str(word);
        }
    }
    out
}

/// Tells of annotations with which a proxy ends as it starts. The contract takes any text in most of them, since templates of some
/// releases do not read them. `annotation` is the value of an annotation; the value itself is not repeated.
pub(crate) fn proxy_ends<'a>(
    admin_port: i32,
    annotation: impl Fn(&str) -> Option<&'a str>,
) -> Vec<String> {
    let is_own = |text: &str| {
        let port = text.parse::<i32>();
        port.is_ok_and(|port| port == METRICS_PORT || port == admin_port)
    };
    let wrong = |name, is_fit: &dyn Fn(&str) -> bool, wanted: &str| {
        let text = || format!("annotation {name}: want {wanted}, or the proxy may not start");
        annotation(name)
            .filter(|text| !is_fit(text))
            .map(|_| text())
    };
    let problems = [
        wrong(
            "sidecar.istio.io/agentLogLevel",
            &is_agent_level,
            "debug, info, warn, error, fatal or none",
        ),
        wrong(
            "readiness.status.sidecar.istio.io/applicationPorts",
            &|text| !text.split(',').any(|port| port.trim().parse() == Ok(0)),
            "ports from 1 to 65535",
        ),
        wrong(
            CONTROL_PLANE_AUTH_POLICY,
            &|text| matches!(text, "NONE" | "MUTUAL_TLS"),
            "NONE or MUTUAL_TLS",
        ),
        wrong(
            "sidecar.istio.io/discoveryAddress",
            &is_agent_address,
            "HOST:PORT, the host a DNS name or an address",
        ),
        wrong(
            "sidecar.istio.io/logLevel",
            &is_level,
            "trace, debug, info, warning, error, critical or off",
        ),
        wrong(
            "status.sidecar.istio.io/port",
            &|text| !is_own(text),
            "no port of the proxy's administration or metrics",
        ),
    ];
    problems.into_iter().flatten().collect()
}

/// Tells of the annotation of a pod's own `ProxyConfig` by the name that Istio 1.6.0 alone had for it.
pub(crate) fn former_name<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    annotation("istio.io/proxyConfig").map(|_| {
        "annotation istio.io/proxyConfig has no effect: say proxy.istio.io/config".to_owned()
    })
}

/// The same of a `ProxyConfig`, for the proxy of the built-in template. An annotation may have its own policy.
pub(crate) fn proxy_config_ends(config: &ProxyConfig, has_policy: bool) -> Vec<String> {
    let statsd = &config.statsd_udp_address;
    let is_variable = statsd.contains("$(");
    let address = statsd.parse::<SocketAddr>();
    let is_address = address.is_ok_and(|address| address.port() > 0);
    let tracer = config.tracing.as_ref();
    let tracer = tracer.and_then(|tracing| tracing.tracer.as_ref());
    let policy = config.control_plane_auth_policy();
    let rows = [
        (
            statsd.is_empty() || is_variable || is_address,
            "statsdUdpAddress: want IP:PORT",
        ),
        (
            !matches!(tracer, Some(Tracer::Lightstep(_))),
            "tracing.lightstep: want another tracer",
        ),
        (
            has_policy || policy != AuthenticationPolicy::Inherit,
            "controlPlaneAuthPolicy: want NONE or MUTUAL_TLS",
        ),
    ];
    rows.into_iter()
        .filter(|(is_fit, _)| !is_fit)
        .map(|(_, cause)| format!("{cause}, or the proxy may not start"))
        .collect()
}

/// The port at which Prometheus asks a proxy.
const METRICS_PORT: i32 = 15_090;

/// Levels as the agent has them, of scopes (`default:info`) or alone.
fn is_agent_level(text: &str) -> bool {
    const LEVELS: [&str; 7] = ["", "debug", "info", "warn", "error", "fatal", "none"];
    text.split(',').all(|part| {
        let level = part.split_once(':').map_or(part, |(_, level)| level);
        LEVELS.contains(&level)
    })
}

/// Levels as Envoy has them; components (`upstream:debug`) may stand beside one.
fn is_level(text: &str) -> bool {
    const LEVELS: [&str; 9] = [
        "", "trace", "debug", "info", "warning", "warn", "error", "critical", "off",
    ];
    let parts = text.split(',').map(str::trim);
    let mut levels = parts.filter(|part| !part.contains(':'));
    levels.next().is_none_or(|level| LEVELS.contains(&level)) && levels.next().is_none()
}

/// The warnings of a review: as many as a response may carry, and as long.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Vec<String>);

impl Warnings {
    /// Adds a warning. Its text is not made if the response has no room for it: a pod may be the reason for a hundred thousand.
    pub(crate) fn push(&mut self, warning: impl FnOnce() -> String) {
        if self.0.len() < MAX_WARNINGS {
            let mut warning = warning();
            warning.truncate(text::cut(&warning, MAX_WARNING).len());
            self.0.push(warning);
        }
    }

    /// Adds all for which the response has room.
    pub(crate) fn extend(&mut self, warnings: impl IntoIterator<Item = String>) {
        let room = MAX_WARNINGS.saturating_sub(self.0.len());
        for warning in warnings.into_iter().take(room) {
            self.push(|| warning);
        }
    }

    /// Returns a mark to which [`Self::roll_back`] returns.
    pub(crate) const fn mark(&self) -> usize {
        self.0.len()
    }

    /// Removes the warnings since a mark.
    pub(crate) fn roll_back(&mut self, mark: usize) {
        self.0.truncate(mark);
    }

    pub(crate) fn into_vec(self) -> Vec<String> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn warnings_beyond_the_response_are_not_made() {
        let mut warnings = Warnings::default();
        warnings.push(|| "x".repeat(1000));
        let mark = warnings.mark();
        warnings.push(|| "rolled back".to_owned());
        warnings.roll_back(mark);
        let mut made = 0;
        for _ in 0..70_000 {
            warnings.push(|| {
                made += 1;
                "a".to_owned()
            });
        }
        let endless = std::iter::repeat_with(|| panic!("a text that nobody reads is made"));
        warnings.extend(endless);
        assert_eq!(made, MAX_WARNINGS - 1);
        let all = warnings.into_vec();
        assert_eq!((all.len(), all[0].len()), (MAX_WARNINGS, MAX_WARNING));
        assert_eq!(all[1], "a");
    }

    #[test]
    fn containers_of_the_proxys_user_are_reported() {
        let as_proxy = json!({"runAsUser": 1337});
        let pod = |own: Value, containers: Value| json!({"spec": {"securityContext": own, "containers": containers}});
        let says = "spec.containers[1] runs as user 1337, as the proxy does: its connections bypass the proxy";
        for (own, containers, expected) in [
            (
                json!({}),
                json!([{"name": "a"}, {"name": "b", "securityContext": as_proxy}]),
                Some(says),
            ),
            (
                as_proxy.clone(),
                json!([{"name": "a", "securityContext": {"runAsUser": 1}}, {"name": "b"}]),
                Some(says),
            ),
            (
                as_proxy.clone(),
                json!([{"name": "a", "securityContext": {"runAsUser": 1}}, {"name": "istio-proxy"}]),
                None,
            ),
            (
                json!(null),
                json!([{"name": "a", "securityContext": {"runAsUser": "1337"}}, 7]),
                None,
            ),
        ] {
            assert_eq!(proxy_user(&pod(own, containers), 1337).as_deref(), expected);
        }
        let many = pod(
            as_proxy,
            json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]),
        );
        let warning = proxy_user(&many, 1337).unwrap();
        assert!(
            warning.starts_with("spec.containers[0] runs as user 1337 (and 2 more),"),
            "{warning}"
        );
        assert_eq!(proxy_user(&many, 1_000_000), None);
    }

    #[test]
    fn fields_that_are_left_out_say_why() {
        let unknown = "is not known to Kubernetes there and was left out";
        let foreign = "is not a template's to set and was left out";
        let unsupported = "is not supported and was left out";
        for (path, thing, cause) in [
            ("spec.future", "field", unknown),
            ("metadata.future", "field", unknown),
            (
                "spec.containers[0].securityContext.fsGroupChangePolicy",
                "field",
                unknown,
            ),
            ("strange", "field", unknown),
            ("spec.containers[0].status", "field", unknown),
            ("metadata.name", "field", foreign),
            ("metadata.ownerReferences", "field", foreign),
            ("apiVersion", "field", foreign),
            ("kind", "field", foreign),
            ("status", "field", foreign),
            ("spec.$retainKeys", "directive", unsupported),
            ("$patch", "directive", unsupported),
            (
                "spec.containers[0].$setElementOrder/env",
                "directive",
                unsupported,
            ),
        ] {
            let expected = format!("{thing} {path} of the template {cause}");
            assert_eq!(pruned(path), Some(expected));
        }
        for path in [
            "spec.containers[0].securityContext.fsGroup",
            "initContainers[1].securityContext.fsGroup",
        ] {
            assert_eq!(pruned(path), None, "{path}");
        }
    }

    #[test]
    fn proxy_configurations_by_which_a_proxy_ends_are_told() {
        let found = |text: &str, is_annotated: bool| {
            let parsed = api::mesh::parse_proxy(&api::mesh::proxy_defaults(), text).unwrap();
            proxy_config_ends(&parsed.config, is_annotated)
        };
        for text in [
            "statsdUdpAddress: '10.0.0.1:9125'",
            "statsdUdpAddress: '[::1]:9125'",
            "statsdUdpAddress: '$(HOST_IP):9125'",
            "tracing: {zipkin: {address: 'z:9411'}}",
            "controlPlaneAuthPolicy: MUTUAL_TLS",
            "{}",
        ] {
            assert_eq!(found(text, false), Vec::<String>::new(), "{text}");
        }
        let ends = "or the proxy may not start";
        for (text, expected) in [
            (
                "statsdUdpAddress: 'statsd:9125'",
                "statsdUdpAddress: want IP:PORT",
            ),
            (
                "tracing: {lightstep: {address: 'l:1', accessToken: a}}",
                "tracing.lightstep: want another tracer",
            ),
            (
                "controlPlaneAuthPolicy: INHERIT",
                "controlPlaneAuthPolicy: want NONE or MUTUAL_TLS",
            ),
        ] {
            assert_eq!(
                found(text, false),
                [format!("{expected}, {ends}")],
                "{text}"
            );
        }
        // The annotation takes its place.
        assert_eq!(
            found("controlPlaneAuthPolicy: INHERIT", true),
            Vec::<String>::new()
        );
    }

    #[test]
    fn addresses_by_which_a_proxy_ends_are_told() {
        let found = |text| {
            proxy_ends(15000, |name| {
                (name == "sidecar.istio.io/discoveryAddress").then_some(text)
            })
        };
        for text in ["istiod.istio-system.svc:15012", "[::1]:1", "$(HOST_IP):1"] {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
        let says = "annotation sidecar.istio.io/discoveryAddress: want HOST:PORT, the host a DNS name or an address, or the proxy may not start";
        for text in ["", "a", "a:0", "a_b:1", "a b:1", "::1:1"] {
            assert_eq!(found(text), [says], "{text}");
        }
    }

    #[test]
    fn a_name_of_one_release_alone_is_told() {
        let of = |name: &str| former_name(|asked| (asked == name).then_some("concurrency: 1"));
        let says = "annotation istio.io/proxyConfig has no effect: say proxy.istio.io/config";
        assert_eq!(of("istio.io/proxyConfig").as_deref(), Some(says));
        assert_eq!(of("proxy.istio.io/config"), None);
    }

    #[test]
    fn annotations_by_which_a_proxy_ends_are_told() {
        let rows: [(&str, &[&str], &[&str]); 6] = [
            (
                "sidecar.istio.io/agentLogLevel",
                &["", "info", "debug", "default:warn,model:none", "fatal"],
                &["foo", "warning", "model:foo"],
            ),
            (
                "readiness.status.sidecar.istio.io/applicationPorts",
                &["", "*", "80, 81", "65535"],
                &["0", "80,0", "80, 00"],
            ),
            (
                "sidecar.istio.io/controlPlaneAuthPolicy",
                &["NONE", "MUTUAL_TLS"],
                &["", "none", "x"],
            ),
            (
                "sidecar.istio.io/discoveryAddress",
                &["istiod:15012", "istiod.istio-system.svc:1", "[::1]:15010"],
                &["", "istiod", "istiod:", ":1", "istiod:0", "istiod:65536"],
            ),
            (
                "sidecar.istio.io/logLevel",
                &[
                    "",
                    "info",
                    "warning",
                    "warn",
                    "debug,upstream:trace",
                    "misc:error",
                ],
                &["nope", "debug,nope", "a b"],
            ),
            (
                "status.sidecar.istio.io/port",
                &["0", "15020", "15001"],
                &["15000", "15090"],
            ),
        ];
        for (name, good, bad) in rows {
            let warnings =
                |value: &str| proxy_ends(15000, |asked| (asked == name).then_some(value));
            for value in good {
                assert_eq!(warnings(value), Vec::<String>::new(), "{name}: {value}");
            }
            for value in bad {
                let warnings = warnings(value);
                let [warning] = warnings.as_slice() else {
                    panic!("{name}: {value}: {warnings:?}");
                };
                assert!(
                    warning.starts_with(&format!("annotation {name}: ")),
                    "{warning}"
                );
                assert!(warning.len() < MAX_WARNING, "{warning}");
            }
        }
        assert_eq!(proxy_ends(15000, |_| None), Vec::<String>::new());
        // The administration's port may be another.
        assert_eq!(
            proxy_ends(16000, |name| name.ends_with("io/port").then_some("16000")),
            [
                "annotation status.sidecar.istio.io/port: want no port of the proxy's administration or metrics, or the proxy may not start"
            ]
        );
    }

    #[test]
    fn numbers_that_were_said_are_quoted() {
        let of = "statusPort: 7654321\nconcurrency: 10\na: -1234\nb: 2m30s";
        for (cause, wanted) in [
            (
                "line 10: statusPort: port 7654321 is not in 1..65535",
                "line 10: statusPort: port \"7654321\" is not in 1..65535",
            ),
            ("got 7654321", "got \"7654321\""),
            (
                "got \"7654321\", or 7654321é -1234 2m30s 9999",
                "got \"7654321\", or 7654321é \"-1234\" \"2m30s\" 9999",
            ),
            ("ü1234567", "ü1234567"),
            (r#""\"7654321" 7654321 \"#, r#""\"7654321" "7654321" \"#),
            ("", ""),
        ] {
            assert_eq!(numbers_quoted(cause, of), wanted);
        }
    }
}
