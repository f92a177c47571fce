//! The rules of the agent beside the proxy for the probes that it is given: it ends as it starts if one of them breaks a rule. Those of
//! the API server are wider.

use serde_json::{Map, Value};

/// The most probes that an agent takes.
pub(crate) const MAX_PROBES: usize = 256;

/// Returns the rule that a probe with this handler breaks, as the part of the probe that does; `None` if the agent takes it.
pub(crate) fn fault(handler: &str, asked: &Map<String, Value>) -> Option<&'static str> {
    match handler {
        "httpGet" => http(asked),
        "grpc" => text(asked, "service")
            .contains(char::is_control)
            .then_some("a service with control characters"),
        _ => None,
    }
}

/// Returns true for a container's name that is one part of a path.
pub(crate) fn is_container(name: &str) -> bool {
    !name.is_empty() && !name.contains('/')
}

/// Returns true if a probe's timeout is of the type that Kubernetes has for it, or absent.
pub(crate) fn is_timed(probe: &Map<String, Value>) -> bool {
    let seconds = probe.get("timeoutSeconds").and_then(Value::as_i64);
    seconds.is_none_or(|seconds| (0..=i64::from(i32::MAX)).contains(&seconds))
}

fn http(asked: &Map<String, Value>) -> Option<&'static str> {
    let scheme = text(asked, "scheme");
    let mut schemes = ["", "http", "https"].iter();
    if !schemes.any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Some("a scheme that is neither HTTP nor HTTPS");
    }
    // Others are escaped in a request line.
    if text(asked, "path").contains(|letter: char| letter.is_ascii_control()) {
        return Some("a path with control characters");
    }
    let headers = asked.get("httpHeaders").and_then(Value::as_array);
    let headers = headers.into_iter().flatten();
    headers.filter_map(Value::as_object).find_map(header)
}

fn header(header: &Map<String, Value>) -> Option<&'static str> {
    let name = text(header, "name");
    if name.is_empty() || !name.bytes().all(is_token) {
        return Some("a header whose name is not valid in HTTP");
    }
    let is_refused = |letter: char| letter.is_control() && letter != '\t';
    text(header, "value")
        .contains(is_refused)
        .then_some("a header whose value is not valid in HTTP")
}

/// Returns true for a letter of a header's name (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn probes_that_an_agent_refuses() {
        let scheme = Some("a scheme that is neither HTTP nor HTTPS");
        let path = Some("a path with control characters");
        let name = Some("a header whose name is not valid in HTTP");
        let value = Some("a header whose value is not valid in HTTP");
        let service = Some("a service with control characters");
        let header = |name: &str, value: &str| json!({"httpHeaders": [{"name": "X-A", "value": "1"}, {"name": name, "value": value}]});
        let rows = [
            ("httpGet", json!({}), None),
            (
                "httpGet",
                json!({"scheme": "https", "path": "a b/é\u{85}?c=%0a"}),
                None,
            ),
            (
                "httpGet",
                json!({"scheme": null, "path": null, "httpHeaders": null}),
                None,
            ),
            ("httpGet", json!({"scheme": "FTP"}), scheme),
            ("httpGet", json!({"path": "/health\n"}), path),
            ("httpGet", json!({"path": "/a\tb"}), path),
            ("httpGet", json!({"path": "/a\u{7f}"}), path),
            ("httpGet", header("Host", "a b"), None),
            ("httpGet", header("X_~!", "a\tb é"), None),
            ("httpGet", header("", "a"), name),
            ("httpGet", header("A B", "a"), name),
            ("httpGet", header("é", "a"), name),
            ("httpGet", json!({"httpHeaders": [{"value": "a"}]}), name),
            ("httpGet", header("Authorization", "Bearer x\n"), value),
            ("httpGet", header("A", "\r"), value),
            ("httpGet", header("A", "\u{85}"), value),
            ("tcpSocket", json!({"path": "\n", "service": "\n"}), None),
            ("grpc", json!({"service": "a.B c"}), None),
            ("grpc", json!({"service": null}), None),
            ("grpc", json!({"service": "a\n"}), service),
        ];
        for (handler, asked, wanted) in rows {
            assert_eq!(
                fault(handler, asked.as_object().unwrap()),
                wanted,
                "{asked}"
            );
        }
    }
}
