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
const MOST_TARGETS: usize = 16;

/// What is at these ports is the agent's, Envoy's or Istio's: to ask there could come round to us again.
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
) -> Vec<ScrapeTarget> {
    match layers.variable(VARIABLE) {
        Some(text) if layers.args.role == Role::Sidecar => {
            let own = [admin.port(), status.map_or(0, |status| status.port())];
            layers.noted(parse(text, own)).unwrap_or_default()
        }
        Some(_) | None => Vec::new(),
    }
}

fn parse(text: &str, own: [u16; 2]) -> Result<Vec<ScrapeTarget>, ConfigError> {
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
        return Ok(vec![target(&annotations, own)?]);
    }
    if list.len() > MOST_TARGETS {
        return Err(wrong("there are more than 16 targets"));
    }
    let mut targets = Vec::with_capacity(list.len());
    for value in list {
        let fields = value
            .as_object()
            .ok_or_else(|| wrong("a target must be an object"))?;
        let target = target(fields, own)?;
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    Ok(targets)
}

fn target(fields: &Map, own: [u16; 2]) -> Result<ScrapeTarget, ConfigError> {
    let text = scalar(fields, "port")?;
    let port = match values::port(&text) {
        _ if text.is_empty() => 80,
        Ok(port) => port,
        Err(cause) => return Err(ConfigError::value(VARIABLE, &text, cause)),
    };
    if is_reserved(port, &own) {
        let cause = "the port is the agent's or Envoy's own, not the application's";
        return Err(ConfigError::value(VARIABLE, &text, cause));
    }
    let path = scalar(fields, "path")?;
    let given = if path.is_empty() { "/metrics" } else { &path };
    let path =
        json::request_path(given).map_err(|cause| ConfigError::value(VARIABLE, given, cause))?;
    Ok(ScrapeTarget { port, path })
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

    fn found(text: &str) -> Result<Vec<(u16, String)>, String> {
        match parse(text, OWN) {
            Ok(targets) => Ok(targets.into_iter().map(|t| (t.port, t.path)).collect()),
            Err(error) => Err(error.to_string()),
        }
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
            ("{}", 80, "/metrics"),
        ];
        for (text, port, path) in table {
            assert_eq!(found(text), Ok(vec![(port, path.to_owned())]), "{text}");
        }
    }

    #[test]
    fn targets_are_meant_instead_of_port_and_path_each_once() {
        let text = r#"{"scrape":"true","port":"15020","targets":[{"port":"9100","path":"/b"},{"port":8080},
            {"port":"8080","path":"/metrics"},{"path":"c"}]}"#;
        let expected = [(9100, "/b"), (8080, "/metrics"), (80, "/c")];
        let expected = expected.map(|(port, path)| (port, path.to_owned()));
        assert_eq!(found(text), Ok(expected.to_vec()));
    }

    #[test]
    fn nothing_is_asked_of_who_says_false() {
        for text in [
            r#"{"scrape":"false","port":"15020"}"#,
            r#"{"scrape":false,"targets":[7]}"#,
        ] {
            assert_eq!(found(text), Ok(Vec::new()), "{text}");
        }
    }

    #[test]
    fn our_own_ports_are_refused_by_name() {
        for port in RESERVED.into_iter().chain(OWN) {
            let expected = format!(
                "cannot use ISTIO_PROMETHEUS_ANNOTATIONS \"{port}\": the port is the agent's or Envoy's own, not the \
                 application's"
            );
            let one = format!(r#"{{"port":"{port}"}}"#);
            assert_eq!(found(&one), Err(expected.clone()));
            let several = format!(r#"{{"targets":[{{"port":"80"}},{{"port":{port}}}]}}"#);
            assert_eq!(found(&several), Err(expected));
        }
        // A status port that is off is none.
        assert!(parse(r#"{"port":"0"}"#, [15000, 0]).is_err());
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let use_ = "cannot use ISTIO_PROMETHEUS_ANNOTATIONS \"";
        let read = "cannot read ISTIO_PROMETHEUS_ANNOTATIONS: ";
        let table = [
            (
                r#"{"port":"http"}"#,
                use_,
                "http\": the port must be 1 to 65535",
            ),
            (r#"{"port":"0"}"#, use_, "0\": the port must be 1 to 65535"),
            (
                r#"{"port":65536}"#,
                use_,
                "65536\": the port must be 1 to 65535",
            ),
            (r#"{"port":-1}"#, use_, "-1\": the port must be 1 to 65535"),
            (
                r#"{"path":"/a b"}"#,
                use_,
                "/a b\": the path must hold no blanks and no control characters",
            ),
            (
                r#"{"targets":[{"path":"\n"}]}"#,
                use_,
                "\n\": the path must hold no blanks and no control characters",
            ),
            (r#"{"port":[]}"#, read, "port must be a text"),
            (r#"{"path":{}}"#, read, "path must be a text"),
            (r#"{"targets":{}}"#, read, "targets must be a list"),
            (r#"{"targets":[7]}"#, read, "a target must be an object"),
            ("[]", read, "it must be a JSON object"),
        ];
        for (text, start, end) in table {
            assert_eq!(found(text), Err([start, end].concat()), "{text}");
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
        assert_eq!(found(&text(16)).unwrap().len(), MOST_TARGETS);
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
            drop(found(&any));
            let text = format!(r#"{{"targets":[{{"port":"{port}","path":"{path}"}}]}}"#);
            for (port, path) in found(&text).unwrap_or_default() {
                prop_assert!(port > 0 && !OWN.contains(&port));
                prop_assert!(path.starts_with('/') && !path.contains([' ', '\r', '\n', '\0']));
            }
        }
    }
}
