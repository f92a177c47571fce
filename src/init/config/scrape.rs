//! `ISTIO_PROMETHEUS_ANNOTATIONS`: where the application's own metrics are, as Istio's injector read it off the pod's
//! annotations.
//!
//! `{"scrape", "path", "port"}` names one place; `targets`, where there are any, are meant instead. Only a sidecar has
//! an application, so other roles do not look at it.

#![forbid(unsafe_code)]

use std::net::SocketAddr;

use super::ConfigError;
use super::json::{self, field};
use super::layers::Layers;
use crate::json::{Map, Value};
use crate::values::{self, Role};

/// A page of the application's metrics, at loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeTarget {
    pub port: u16,
    /// Begins with `/`.
    pub path: String,
}

const VARIABLE: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";

/// Pages: one for each of an ordinary pod's containers, a few times over.
const MAX_TARGETS: usize = 16;

/// The agent's, Envoy's and Istio's own ports: a request to one of them could come round to us again.
const RESERVED: [u16; 9] = [
    15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090,
];

/// Whether nobody's application can be at this port, where it is not one of `own`.
pub(crate) fn is_reserved(port: u16, own: &[u16]) -> bool {
    own.contains(&port) || RESERVED.contains(&port)
}

/// In the order in which they are given, each once.
pub(super) fn targets(
    layers: &Layers<'_>,
    admin: SocketAddr,
    status: Option<SocketAddr>,
    warnings: &mut Vec<String>,
) -> Vec<ScrapeTarget> {
    match layers.variable(VARIABLE) {
        Some(text) if layers.args.role == Role::Sidecar => {
            let own = [admin.port(), status.map_or(0, |status| status.port())];
            let targets = parse(text, own, warnings);
            layers.noted(targets).unwrap_or_default()
        }
        Some(_) | None => Vec::new(),
    }
}

fn parse(
    text: &str,
    own: [u16; 2],
    warnings: &mut Vec<String>,
) -> Result<Vec<ScrapeTarget>, ConfigError> {
    let annotations = json::object(VARIABLE, text)?;
    if scalar(&annotations, "scrape")? == "false" {
        return Ok(Vec::new());
    }
    let list = match field(&annotations, "targets") {
        None => &[],
        Some(Value::Array(list)) => list.as_slice(),
        Some(_) => return Err(wrong("targets must be a list")),
    };
    if list.is_empty() {
        let target = target(&annotations, own, warnings)?;
        return Ok(target.into_iter().collect());
    }
    if list.len() > MAX_TARGETS {
        return Err(wrong("there are more than 16 targets"));
    }
    let mut targets = Vec::with_capacity(list.len());
    for value in list {
        let fields = value
            .as_object()
            .ok_or_else(|| wrong("a target must be an object"))?;
        if let Some(target) = target(fields, own, warnings)?
            && !targets.contains(&target)
        {
            targets.push(target);
        }
    }
    Ok(targets)
}

/// `None` has been warned about: an annotation of the pod's is no reason to stop the proxy.
fn target(
    fields: &Map,
    own: [u16; 2],
    warnings: &mut Vec<String>,
) -> Result<Option<ScrapeTarget>, ConfigError> {
    let (text, path) = (scalar(fields, "port")?, scalar(fields, "path")?);
    let port = if text.is_empty() {
        Ok(80)
    } else {
        values::port(&text)
    };
    let given = if path.is_empty() { "/metrics" } else { &path };
    let (value, cause) = match (port, json::request_path(given)) {
        (Ok(port), _) if port == own[1] => {
            let cause = "the port is the agent's own, not the application's";
            return Err(ConfigError::value(VARIABLE, &text, cause));
        }
        (Ok(port), _) if is_reserved(port, &own) => {
            let cause = "the port is Envoy's or Istio's own, not the application's";
            (&*text, cause)
        }
        (Ok(port), Ok(path)) => return Ok(Some(ScrapeTarget { port, path })),
        (Err(cause), _) => (&*text, cause),
        (_, Err(cause)) => (given, cause),
    };
    warnings.push(ConfigError::doubt(VARIABLE, value, cause));
    Ok(None)
}

/// The injector writes texts; by hand, a number or a switch is as clear.
fn scalar(fields: &Map, name: &str) -> Result<String, ConfigError> {
    match field(fields, name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.compact()),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) => {
            Err(wrong(&[name, " must be a text"].concat()))
        }
    }
}

fn wrong(cause: &str) -> ConfigError {
    ConfigError::unreadable(VARIABLE, cause)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: [u16; 2] = [14999, 14998];

    type Found = Result<Vec<(u16, String)>, String>;

    fn parsed(text: &str) -> (Found, Vec<String>) {
        let mut warnings = Vec::new();
        let targets = match parse(text, OWN, &mut warnings) {
            Ok(targets) => Ok(targets.into_iter().map(|t| (t.port, t.path)).collect()),
            Err(error) => Err(error.to_string()),
        };
        (targets, warnings)
    }

    /// Without a warning.
    fn found(text: &str) -> Found {
        let (targets, warnings) = parsed(text);
        assert_eq!(warnings, [""; 0], "{text}");
        targets
    }

    #[test]
    fn one_place() {
        let table = [
            (r#"{"scrape":"true","path":"/m","port":"8080"}"#, 8080, "/m"),
            (r#"{"scrape":"true","path":"","port":""}"#, 80, "/metrics"),
            (r#"{"scrape":"","path":"m?a=b"}"#, 80, "/m?a=b"),
            (r#"{"scrape":"False","port":8080}"#, 8080, "/metrics"),
            (
                r#"{"scrape":true,"port":null,"targets":null}"#,
                80,
                "/metrics",
            ),
            (
                r#"{"Scrape":"true","Port":"1","targets":[]}"#,
                1,
                "/metrics",
            ),
            (r#"{"path":"/a b/ä"}"#, 80, "/a%20b/%C3%A4"),
            ("{}", 80, "/metrics"),
        ];
        for (text, port, path) in table {
            assert_eq!(found(text), Ok(vec![(port, path.to_owned())]), "{text}");
        }
    }

    #[test]
    fn targets_are_meant_instead_of_port_and_path_each_once() {
        let text = r#"{"scrape":"true","port":"14998","targets":[{"port":"9100","path":"/b"},{"port":8080},
            {"port":"8080","path":"/metrics"},{"path":"c"}]}"#;
        let expected = [(9100, "/b"), (8080, "/metrics"), (80, "/c")];
        let expected = expected.map(|(port, path)| (port, path.to_owned()));
        assert_eq!(found(text), Ok(expected.to_vec()));
    }

    #[test]
    fn nothing_is_asked_of_who_says_false() {
        for text in [
            r#"{"scrape":"false","port":"14998"}"#,
            r#"{"scrape":false,"targets":[7]}"#,
        ] {
            assert_eq!(found(text), Ok(Vec::new()), "{text}");
        }
    }

    /// To scrape it would come round to us for ever.
    #[test]
    fn our_own_port_is_refused_by_name() {
        let expected = "cannot use ISTIO_PROMETHEUS_ANNOTATIONS \"14998\": the port is the agent's own, not the application's";
        for text in [
            r#"{"port":"14998"}"#,
            r#"{"targets":[{"port":"80"},{"port":14998}]}"#,
        ] {
            assert_eq!(found(text), Err(expected.to_owned()));
        }
    }

    /// As a scrape that fails: the proxy has other things to do.
    #[test]
    fn ports_that_cannot_be_asked_are_left_out_with_a_warning() {
        let warned = |text: &str, value: &str, cause: &str| {
            let warning = [
                "cannot use ISTIO_PROMETHEUS_ANNOTATIONS \"",
                value,
                "\": ",
                cause,
            ];
            assert_eq!(
                parsed(text),
                (Ok(Vec::new()), vec![warning.concat()]),
                "{text}"
            );
        };
        for port in RESERVED.into_iter().chain([OWN[0]]) {
            let cause = "the port is Envoy's or Istio's own, not the application's";
            warned(&format!(r#"{{"port":"{port}"}}"#), &port.to_string(), cause);
        }
        for (port, value) in [
            (r#""http""#, "http"),
            (r#""0""#, "0"),
            ("65536", "65536"),
            ("-1", "-1"),
        ] {
            let text = format!(r#"{{"port":{port}}}"#);
            warned(&text, value, "the port must be 1 to 65535");
        }
        let cause = "the path must hold no control characters";
        warned(r#"{"targets":[{"path":"\n"}]}"#, "\n", cause);
        let (others, warnings) = parsed(r#"{"targets":[{"port":"x"},{"port":"81"}]}"#);
        assert_eq!(others, Ok(vec![(81, "/metrics".to_owned())]));
        assert_eq!(warnings.len(), 1);
        // A status port that is off is none.
        let none = parse(r#"{"port":"0"}"#, [15000, 0], &mut Vec::new());
        assert_eq!(none, Ok(Vec::new()));
    }

    #[test]
    fn unreadable_values_are_refused() {
        let table = [
            (r#"{"port":[]}"#, "port must be a text"),
            (r#"{"path":{}}"#, "path must be a text"),
            (r#"{"targets":{}}"#, "targets must be a list"),
            (r#"{"targets":[7]}"#, "a target must be an object"),
            ("[]", "it must be a JSON object"),
        ];
        let read = "cannot read ISTIO_PROMETHEUS_ANNOTATIONS: ";
        for (text, cause) in table {
            assert_eq!(found(text), Err([read, cause].concat()), "{text}");
        }
        assert!(found("{").unwrap_err().starts_with(read));
    }

    #[test]
    fn there_are_at_most_16() {
        let text = |count: u16| {
            let targets: Vec<_> = (1..=count)
                .map(|port| format!(r#"{{"port":{port}}}"#))
                .collect();
            [r#"{"targets":["#, &targets.join(","), "]}"].concat()
        };
        assert_eq!(found(&text(16)).unwrap().len(), MAX_TARGETS);
        let expected = "cannot read ISTIO_PROMETHEUS_ANNOTATIONS: there are more than 16 targets";
        assert_eq!(found(&text(17)), Err(expected.to_owned()));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(
            any in ".{0,24}",
            port in "[0-9]{0,6}|.{0,3}",
            path in "[a /\\\\nrtu0-9]{0,12}|.{0,12}",
        ) {
            drop(parsed(&any));
            let text = format!(r#"{{"targets":[{{"port":"{port}","path":"{path}"}}]}}"#);
            for (port, path) in parsed(&text).0.unwrap_or_default() {
                prop_assert!(port > 0 && !OWN.contains(&port));
                prop_assert!(path.starts_with('/') && !path.contains([' ', '\r', '\n', '\0']));
            }
        }
    }
}
