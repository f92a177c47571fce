//! `ISTIO_KUBE_APP_PROBERS`: the probes that Istio's injector took from the application's containers and pointed at
//! the status port, as it wrote them down.
//!
//! Two shapes: pilot-agent 1.1.5's (the fields of a Kubernetes httpGet) and that of 1.5 and later (`httpGet`,
//! `tcpSocket` or `grpc`, and `timeoutSeconds`). What Kubernetes would not have accepted is refused here, so that
//! nothing in a probe can break the request that it becomes.

#![forbid(unsafe_code)]

use std::time::Duration;

use super::ConfigError;
use super::json::{self, field};
use super::layers::Layers;
use crate::json::{Map, Value};
use crate::search;

/// One of the application's probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prober {
    /// The path at the status port: `/app-health/<container>/readyz`.
    pub path: String,
    pub action: ProbeAction,
    pub timeout: Duration,
}

/// The check at loopback; the `host` of a probe means nothing here, as it did to pilot-agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAction {
    /// A GET.
    Http(HttpProbe),
    /// To connect is enough.
    Tcp { port: u16 },
    /// `grpc.health.v1.Health/Check`; an empty service means the whole server.
    Grpc { port: u16, service: String },
}

/// A GET of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    pub https: bool,
    pub port: u16,
    /// Begins with `/`.
    pub path: String,
    /// `httpHeaders` as they are given, `Host` among them, without those that frame a request.
    pub headers: Vec<(String, String)>,
}

const VARIABLE: &str = "ISTIO_KUBE_APP_PROBERS";

/// Probes: five for each of some fifty containers, far more than a pod has.
const MAX_PROBERS: usize = 256;

/// The timeout of a probe that names none: pilot-agent 1.1.5 waited as long.
const TIMEOUT: Duration = Duration::from_secs(10);

/// All of them, by their paths; none where the variable is not set.
pub(super) fn probers(layers: &Layers<'_>) -> Vec<Prober> {
    let probers = layers.variable(VARIABLE).map(parse);
    probers
        .and_then(|probers| layers.noted(probers))
        .unwrap_or_default()
}

fn parse(text: &str) -> Result<Vec<Prober>, ConfigError> {
    // The map keeps its keys in order.
    let map = json::object(VARIABLE, text)?;
    if map.len() > MAX_PROBERS {
        return Err(ConfigError::unreadable(
            VARIABLE,
            "there are more than 256 probers",
        ));
    }
    let mut probers = Vec::with_capacity(map.len());
    for (path, value) in map {
        match prober(&path, &value) {
            Ok((action, timeout)) => probers.push(Prober {
                path,
                action,
                timeout,
            }),
            Err(cause) => return Err(ConfigError::value(VARIABLE, &path, cause)),
        }
    }
    Ok(probers)
}

fn prober(path: &str, value: &Value) -> Result<(ProbeAction, Duration), &'static str> {
    if !is_known(path) {
        return Err(
            "/app-health/<container>/{livez,readyz,startupz} or /app-lifecycle/<container>/{prestopz,poststartz} \
             is expected",
        );
    }
    let value = value.as_object().ok_or("a probe must be an object")?;
    let actions = ["httpGet", "tcpSocket", "grpc"].map(|name| field(value, name));
    let action = match actions {
        [Some(http), None, None] => http_get(fields(http)?)?,
        [None, Some(tcp), None] => ProbeAction::Tcp {
            port: port(fields(tcp)?)?,
        },
        [None, None, Some(grpc)] => grpc_check(fields(grpc)?)?,
        // As 1.1.5 has it: the fields of httpGet themselves.
        [None, None, None] if field(value, "port").is_some() => http_get(value)?,
        _ => return Err("exactly one of httpGet, tcpSocket and grpc is expected"),
    };
    Ok((action, timeout(value)?))
}

fn fields(action: &Value) -> Result<&Map, &'static str> {
    action.as_object().ok_or("an action must be an object")
}

fn is_known(path: &str) -> bool {
    let mut parts = path.split('/');
    let ends = match (parts.next(), parts.next()) {
        (Some(""), Some("app-health")) => "livez readyz startupz",
        (Some(""), Some("app-lifecycle")) => "prestopz poststartz",
        _ => return false,
    };
    let container = parts.next().unwrap_or("");
    let end = parts.next().unwrap_or("");
    !container.is_empty() && search::is_one_of(end, ends) && parts.next().is_none()
}

fn http_get(action: &Map) -> Result<ProbeAction, &'static str> {
    let scheme = text(action, "scheme", "the scheme must be a text")?;
    let https = scheme.eq_ignore_ascii_case("https");
    if !https && !scheme.is_empty() && !scheme.eq_ignore_ascii_case("http") {
        return Err("the scheme must be HTTP or HTTPS");
    }
    Ok(ProbeAction::Http(HttpProbe {
        https,
        port: port(action)?,
        path: json::request_path(text(action, "path", "the path must be a text")?)?,
        headers: headers(action)?,
    }))
}

fn grpc_check(action: &Map) -> Result<ProbeAction, &'static str> {
    let service = text(action, "service", "the service must be a text")?;
    if service.contains(char::is_control) {
        return Err("the service must hold no control characters");
    }
    Ok(ProbeAction::Grpc {
        port: port(action)?,
        service: service.to_owned(),
    })
}

fn headers(action: &Map) -> Result<Vec<(String, String)>, &'static str> {
    const CAUSE: &str = "httpHeaders must be a list of names and values";
    let mut headers = Vec::new();
    let list = match field(action, "httpHeaders") {
        None => return Ok(headers),
        Some(list) => list.as_array().ok_or(CAUSE)?,
    };
    for header in list {
        let header = header.as_object().ok_or(CAUSE)?;
        let name = text(header, "name", CAUSE)?;
        let value = text(header, "value", CAUSE)?;
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err("the name of a header is not valid in HTTP");
        }
        if value.contains(|c: char| c.is_control() && c != '\t') {
            return Err("the value of a header is not valid in HTTP");
        }
        if !search::is_one_of(&name.to_ascii_lowercase(), FRAMING) {
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }
    Ok(headers)
}

/// The sender of a request says where it ends, and decides about the connection; Go's client leaves these out, too.
const FRAMING: &str = "connection content-length trailer transfer-encoding upgrade";

/// A letter of a header's name: RFC 9110 §5.6.2.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn port(action: &Map) -> Result<u16, &'static str> {
    let number = match field(action, "port") {
        Some(Value::Number(number)) => number.as_u64(),
        // The name of a port: the injector has looked it up in the container's.
        Some(_) => return Err("the port must be a number"),
        None => None,
    };
    match number.map(u16::try_from) {
        Some(Ok(port)) if port > 0 => Ok(port),
        _ => Err("the port must be 1 to 65535"),
    }
}

fn timeout(prober: &Map) -> Result<Duration, &'static str> {
    // Kubernetes' own type for it is i32.
    let seconds = match field(prober, "timeoutSeconds") {
        Some(value) => value.as_u64().filter(|seconds| *seconds <= 0x7fff_ffff),
        None => Some(0),
    };
    match seconds {
        Some(0) => Ok(TIMEOUT),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err("timeoutSeconds must be 0 to 2147483647"),
    }
}

/// A text, empty where there is none.
fn text<'v>(object: &'v Map, name: &str, cause: &'static str) -> Result<&'v str, &'static str> {
    field(object, name).map_or(Ok(""), |value| value.as_str().ok_or(cause))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::json;

    /// The probe at `/app-health/c/readyz`.
    fn probe(json: &str) -> Result<Prober, String> {
        let text = [r#"{"/app-health/c/readyz":"#, json, "}"].concat();
        let mut probers = parse(&text).map_err(|error| error.to_string())?;
        assert_eq!(probers.len(), 1);
        Ok(probers.remove(0))
    }

    fn http(json: &str) -> HttpProbe {
        match probe(json).unwrap().action {
            ProbeAction::Http(http) => http,
            other @ (ProbeAction::Tcp { .. } | ProbeAction::Grpc { .. }) => panic!("{other:?}"),
        }
    }

    #[test]
    fn probes_as_1_1_5_writes_them() {
        let probers = parse(
            r#"{"/app-health/b/readyz":{"path":"/are you ready","port":8080,"host":"other","scheme":"HTTP","httpHeaders":[
                {"name":"X-A","value":"1"},{"name":"Host","value":"app.local"}]},
              "/app-health/a/livez":{"port":81}}"#,
        );
        let http = |port, path: &str, headers| {
            ProbeAction::Http(HttpProbe {
                https: false,
                port,
                path: path.to_owned(),
                headers,
            })
        };
        let given = [("X-A", "1"), ("Host", "app.local")];
        let headers = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let expected = [
            Prober {
                path: "/app-health/a/livez".to_owned(),
                action: http(81, "/", Vec::new()),
                timeout: Duration::from_secs(10),
            },
            Prober {
                path: "/app-health/b/readyz".to_owned(),
                action: http(8080, "/are%20you%20ready", headers.to_vec()),
                timeout: Duration::from_secs(10),
            },
        ];
        assert_eq!(probers.unwrap(), expected);
    }

    #[test]
    fn probes_as_1_5_and_later_write_them() {
        let prober = probe(
            r#"{"httpGet":{"path":"/x?a=b","port":443,"scheme":"HTTPS"},"timeoutSeconds":3}"#,
        );
        let expected = ProbeAction::Http(HttpProbe {
            https: true,
            port: 443,
            path: "/x?a=b".to_owned(),
            headers: Vec::new(),
        });
        let prober = prober.unwrap();
        assert_eq!(
            (prober.action, prober.timeout),
            (expected, Duration::from_secs(3))
        );
        let tcp = probe(r#"{"tcpSocket":{"port":3306},"timeoutSeconds":0}"#).unwrap();
        assert_eq!(tcp.action, ProbeAction::Tcp { port: 3306 });
        assert_eq!(tcp.timeout, Duration::from_secs(10));
        for (json, service) in [
            (r#"{"grpc":{"port":9090,"service":null}}"#, ""),
            (r#"{"gRPC":{"port":9090,"service":"a.B"}}"#, "a.B"),
        ] {
            let service = service.to_owned();
            let expected = ProbeAction::Grpc {
                port: 9090,
                service,
            };
            assert_eq!(probe(json).unwrap().action, expected);
        }
    }

    #[test]
    fn names_are_known_in_any_case_and_null_is_nothing() {
        let probe = http(
            r#"{"httpget":{"Port":80,"PATH":"x","scheme":"https","httpHeaders":null,"host":null},"tcpSocket":null}"#,
        );
        assert_eq!(
            (probe.port, probe.path.as_str(), probe.https),
            (80, "/x", true)
        );
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        let text = r#"{"/app-health/c/livez":{"port":1},"/app-health/c/livez":{"port":2}}"#;
        let probers = parse(text).unwrap();
        assert_eq!(probers.len(), 1);
        assert!(matches!(&probers[0].action, ProbeAction::Http(http) if http.port == 2));
    }

    #[test]
    fn paths_at_the_status_port() {
        for path in [
            "/app-health/c/livez",
            "/app-health/c/readyz",
            "/app-health/a b%/startupz",
            "/app-lifecycle/c/prestopz",
            "/app-lifecycle/c/poststartz",
        ] {
            assert!(is_known(path), "{path}");
        }
        for path in [
            "",
            "/",
            "app-health/c/livez",
            "/app-health/c",
            "/app-health//livez",
            "/app-health/c/d/livez",
            "/app-health/c/livez/",
            "/app-health/c/Livez",
            "/app-health/c/prestopz",
            "/app-lifecycle/c/livez",
            "/other/c/livez",
            "x/app-health/c/livez",
        ] {
            assert!(!is_known(path), "{path}");
            let json = json!({path: {"port": 80}}).compact();
            let error = parse(&json).unwrap_err().to_string();
            let start = ["cannot use ISTIO_KUBE_APP_PROBERS \"", path, "\": "].concat();
            assert!(error.starts_with(&start), "{error}");
        }
    }

    fn assert_refused(table: &[(&str, &str)]) {
        let start = "cannot use ISTIO_KUBE_APP_PROBERS \"/app-health/c/readyz\": ";
        for (json, cause) in table {
            assert_eq!(probe(json), Err([start, cause].concat()), "{json}");
        }
    }

    #[test]
    fn a_probe_is_one_action_with_a_port() {
        let action = "an action must be an object";
        let object = "a probe must be an object";
        let one = "exactly one of httpGet, tcpSocket and grpc is expected";
        let number = "the port must be a number";
        let port = "the port must be 1 to 65535";
        let seconds = "timeoutSeconds must be 0 to 2147483647";
        assert_refused(&[
            ("null", object),
            ("[]", object),
            ("{}", one),
            (r#"{"timeoutSeconds":1}"#, one),
            (r#"{"exec":{"command":["x"]}}"#, one),
            (r#"{"httpGet":null}"#, one),
            (r#"{"httpGet":{"port":1},"grpc":{"port":1}}"#, one),
            (r#"{"httpGet":7}"#, action),
            (r#"{"tcpSocket":"x"}"#, action),
            (r#"{"port":"http"}"#, number),
            (r#"{"port":"80"}"#, number),
            (r#"{"tcpSocket":{"port":"db"}}"#, number),
            (r#"{"port":0}"#, port),
            (r#"{"port":65536}"#, port),
            (r#"{"port":-1}"#, port),
            (r#"{"port":80.5}"#, port),
            (r#"{"httpGet":{"path":"/"}}"#, port),
            (r#"{"grpc":{}}"#, port),
            (r#"{"port":1,"timeoutSeconds":-1}"#, seconds),
            (r#"{"port":1,"timeoutSeconds":"1"}"#, seconds),
            (r#"{"port":1,"timeoutSeconds":2147483648}"#, seconds),
        ]);
    }

    #[test]
    fn values_that_would_break_a_request_are_refused() {
        let path = "the path must hold no control characters";
        let scheme = "the scheme must be HTTP or HTTPS";
        let service = "the service must hold no control characters";
        assert_refused(&[
            (r#"{"port":1,"path":7}"#, "the path must be a text"),
            (r#"{"port":1,"path":"/\r\nX: y"}"#, path),
            (r#"{"port":1,"path":"/\u0000"}"#, path),
            (r#"{"port":1,"path":"/\u007f"}"#, path),
            (r#"{"port":1,"scheme":"ftp"}"#, scheme),
            (r#"{"port":1,"scheme":1}"#, "the scheme must be a text"),
            (r#"{"grpc":{"port":1,"service":"\u0000"}}"#, service),
            (
                r#"{"grpc":{"port":1,"service":7}}"#,
                "the service must be a text",
            ),
        ]);
    }

    #[test]
    fn headers_are_valid_in_http() {
        let list = "httpHeaders must be a list of names and values";
        let name = "the name of a header is not valid in HTTP";
        let value = "the value of a header is not valid in HTTP";
        for (headers, cause) in [
            ("{}", list),
            ("[7]", list),
            (r#"[{"name":7}]"#, list),
            (r#"[{"name":"A","value":7}]"#, list),
            (r#"[{"value":"x"}]"#, name),
            (r#"[{"name":"A B"}]"#, name),
            (r#"[{"name":"A:"}]"#, name),
            (r#"[{"name":"A\n"}]"#, name),
            (r#"[{"name":"\u00e4"}]"#, name),
            (r#"[{"name":"A","value":"\r"}]"#, value),
            (r#"[{"name":"A","value":"x\ny"}]"#, value),
            (r#"[{"name":"A","value":"\u0000"}]"#, value),
        ] {
            let json = [r#"{"port":1,"httpHeaders":"#, headers, "}"].concat();
            assert_refused(&[(&json, cause)]);
        }
    }

    #[test]
    fn values_other_than_objects_are_refused() {
        for text in ["{", "[]", "7", "x", "null"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with("cannot read ISTIO_KUBE_APP_PROBERS: it must be "),
                "{error}"
            );
        }
        assert_eq!(parse("{}"), Ok(Vec::new()));
    }

    #[test]
    fn there_are_at_most_256() {
        let text = |count: usize| {
            let probes: Vec<_> = (0..count)
                .map(|number| format!(r#""/app-health/c{number}/livez":{{"port":80}}"#))
                .collect();
            ["{", &probes.join(","), "}"].concat()
        };
        let probers = parse(&text(MAX_PROBERS)).unwrap();
        assert_eq!(probers.len(), MAX_PROBERS);
        assert!(probers.is_sorted_by(|a, b| a.path < b.path));
        let error = parse(&text(MAX_PROBERS + 1)).unwrap_err().to_string();
        let expected = "cannot read ISTIO_KUBE_APP_PROBERS: there are more than 256 probers";
        assert_eq!(error, expected);
    }

    #[test]
    fn headers_that_frame_a_request_are_left_out() {
        let probe = http(
            r#"{"port":1,"httpHeaders":[{"name":"content-length","value":"9"},{"name":"X","value":" a\tb "},
                {"name":"Transfer-Encoding","value":"chunked"},{"name":"X"}]}"#,
        );
        let expected = [("X", "a\tb"), ("X", "")];
        assert_eq!(
            probe.headers,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_what_is_taken_is_one_request(
            action in "httpGet|tcpSocket|grpc|x",
            port in "[0-9]{0,6}|\".\"|null|-1",
            text in "[a /\\\\nrtu0-9]{0,12}|.{0,12}",
            any in ".{0,24}",
        ) {
            drop(parse(&any));
            let json = format!(
                r#"{{"{action}":{{"port":{port},"path":"{text}","service":"{text}","scheme":"{text}"}},
                    "port":{port},"path":"{text}","httpHeaders":[{{"name":"{text}","value":"{text}"}}]}}"#,
            );
            if let Ok(Prober { action: ProbeAction::Http(http), .. }) = probe(&json) {
                prop_assert!(http.path.starts_with('/') && http.port > 0);
                let headers = http.headers.iter().flat_map(|(name, value)| [name, value]);
                for text in headers.chain([&http.path]) {
                    prop_assert!(!text.contains(['\r', '\n', '\0']), "{:?}", http);
                }
            }
        }
    }
}
