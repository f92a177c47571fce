//! Predicates on single values, each with its message; they know nothing of the value's place.

use std::net::{IpAddr, Ipv6Addr};

use super::cursor::Violation;
use crate::duration::MAX_ENVOY_SECONDS;
use crate::finding::quoted;
pub(super) use crate::names::is_label;
use crate::names::{MAX_SOCKET_LENGTH, ROOM_FOR_SOCKET, is_label_key, is_label_value};

const MAX_HOST_LENGTH: usize = 255;

fn wrong(holds: bool, message: impl FnOnce() -> String) -> Violation {
    (!holds).then(message)
}

/// PORT.
pub(super) fn port(number: i64) -> Violation {
    wrong((1..=65535).contains(&number), || {
        format!("port {number} is not in 1..65535")
    })
}

/// PORT, or 0 for none.
pub(super) fn port_or_none(number: i64) -> Violation {
    if number == 0 { None } else { port(number) }
}

/// LABEL.
pub(super) fn label(text: &str) -> Violation {
    wrong(is_label(text), || {
        format!("{} is not a DNS label", quoted(text))
    })
}

/// Names of hosts that begin with `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wildcards {
    Allowed,
    Refused,
}

/// Why a text is no name of a host.
fn host_fault(text: &str, wildcards: Wildcards) -> Violation {
    if text.is_empty() {
        return Some("it is empty".to_owned());
    }
    if text.len() > MAX_HOST_LENGTH {
        return Some(format!("it is longer than {MAX_HOST_LENGTH} bytes"));
    }
    let rest = match text.strip_prefix('*') {
        Some("") if wildcards == Wildcards::Allowed => return None,
        Some(rest) if wildcards == Wildcards::Allowed => {
            rest.strip_prefix(['.', '-']).unwrap_or(rest)
        }
        _ => text,
    };
    let rest = rest.strip_suffix('.').unwrap_or(rest);
    if let Some(part) = rest.split('.').find(|part| !is_label(part)) {
        return Some(format!("{} is not a DNS label", quoted(part)));
    }
    // A name that ends in a number is an IPv4 address with a mistake.
    let last = rest.rsplit('.').next().unwrap_or(rest);
    let digits = last.bytes().all(|letter| letter.is_ascii_digit());
    // A short name is no part of an address: Istio looks at none where it allows wildcards.
    let is_short = wildcards == Wildcards::Allowed && !text.contains('.');
    (digits && !is_short).then(|| "its last label is a number".to_owned())
}

fn host(text: &str, wildcards: Wildcards) -> Violation {
    let reason = host_fault(text, wildcards)?;
    Some(format!("{} is not a host name: {reason}", quoted(text)))
}

/// FQDN.
pub(super) fn fqdn(text: &str) -> Violation {
    host(text, Wildcards::Refused)
}

/// WILD.
pub(super) fn wild(text: &str) -> Violation {
    host(text, Wildcards::Allowed)
}

pub(super) fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// IP.
pub(super) fn ip(text: &str) -> Violation {
    wrong(is_ip(text), || {
        format!("{} is not an IP address", quoted(text))
    })
}

/// CIDR.
pub(super) fn cidr(text: &str) -> Violation {
    let holds = match text.split_once('/') {
        None => is_ip(text),
        Some((address, length)) => {
            let max = match address.parse() {
                Ok(IpAddr::V4(_)) => Some(32),
                Ok(IpAddr::V6(_)) => Some(128),
                Err(_) => None,
            };
            // `parse` alone would take a plus.
            let digits = length.bytes().all(|letter| letter.is_ascii_digit());
            max.zip(length.parse::<u32>().ok())
                .is_some_and(|(max, length)| digits && length <= max)
        }
    };
    wrong(holds, || {
        format!("{} is not an IP address or CIDR", quoted(text))
    })
}

/// FQDN or IP.
pub(super) fn fqdn_or_ip(text: &str) -> Violation {
    if is_ip(text) { None } else { fqdn(text) }
}

/// The text behind `unix://`; `None` for text that does not begin so.
pub(super) fn unix(text: &str) -> Option<&str> {
    text.strip_prefix("unix://")
}

/// UDS: the path after `unix://`.
pub(super) fn uds(path: &str) -> Violation {
    if path.len() > MAX_SOCKET_LENGTH {
        return Some(format!(
            "{} is longer than {MAX_SOCKET_LENGTH} bytes: {ROOM_FOR_SOCKET}",
            quoted(path)
        ));
    }
    // Envoy refuses all endpoints of a response that has such a path.
    if path.contains('\0') {
        return Some(format!("{} has a NUL in it", quoted(path)));
    }
    let holds = match path.strip_prefix('@') {
        Some(name) => !name.is_empty(),
        None => path.starts_with('/') && !path.ends_with('/'),
    };
    wrong(holds, || {
        format!("{} is not an absolute path or @name", quoted(path))
    })
}

/// DUR but for its bound, of nanoseconds.
pub(super) fn duration(nanos: i128) -> Violation {
    const MILLI: i128 = 1_000_000;
    if nanos < MILLI {
        return Some(format!("duration {} is less than 1ms", seconds(nanos)));
    }
    wrong(nanos % MILLI == 0, || {
        format!(
            "duration {} is not a whole number of milliseconds",
            seconds(nanos)
        )
    })
}

/// As long as Envoy takes it, of nanoseconds.
pub(super) fn not_too_long(nanos: i128) -> Violation {
    const SECOND: i128 = 1_000_000_000;
    wrong(nanos <= i128::from(MAX_ENVOY_SECONDS) * SECOND, || {
        let text = seconds(nanos);
        format!("duration {text} is more than {MAX_ENVOY_SECONDS}s")
    })
}

/// As proto JSON has it: `1.500s`, with 0, 3, 6 or 9 digits.
pub(super) fn seconds(nanos: i128) -> String {
    const SECOND: u128 = 1_000_000_000;
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, rest) = (nanos.unsigned_abs() / SECOND, nanos.unsigned_abs() % SECOND);
    if rest == 0 {
        return format!("{sign}{whole}s");
    }
    let digits = format!("{rest:09}");
    let short = digits
        .strip_suffix("000000")
        .or_else(|| digits.strip_suffix("000"));
    format!("{sign}{whole}.{}s", short.unwrap_or(&digits))
}

/// PCT.
pub(super) fn pct(number: i64) -> Violation {
    within(number, 0, 100)
}

pub(super) fn within(number: i64, min: i64, max: i64) -> Violation {
    wrong((min..=max).contains(&number), || {
        format!("{number} is not in {min}..{max}")
    })
}

/// A share that need not be whole.
pub(super) fn share(number: f64) -> Violation {
    wrong((0.0..=100.0).contains(&number), || {
        format!("{number} is not in 0..100")
    })
}

pub(super) fn not_negative(number: i64) -> Violation {
    wrong(number >= 0, || format!("{number} is less than 0"))
}

/// PERCENT.
pub(super) fn percent(number: f64) -> Violation {
    // Envoy counts in parts of a million: a smaller share would be none.
    let holds = number == 0.0 || (0.0001..=100.0).contains(&number);
    wrong(holds, || {
        format!("{number} is neither 0 nor in 0.0001..100")
    })
}

/// LABELS: a key.
pub(super) fn label_key(text: &str) -> Violation {
    wrong(is_label_key(text), || {
        format!("{} is not a label key", quoted(text))
    })
}

/// LABELS: a value.
pub(super) fn label_value(text: &str) -> Violation {
    wrong(is_label_value(text), || {
        format!("{} is not a label value", quoted(text))
    })
}

/// GWNAME. Names without their namespace are for the caller to warn of.
pub(super) fn gateway_name(text: &str) -> Violation {
    let holds = match text.split_once('/') {
        Some((namespace, name)) => is_label(namespace) && is_label(name),
        None => fqdn(text).is_none(),
    };
    wrong(holds, || format!("{} is not NAMESPACE/NAME", quoted(text)))
}

const HTTP: [&str; 5] = ["http", "http2", "http_proxy", "grpc", "grpc-web"];
const TLS: [&str; 2] = ["https", "tls"];
const OTHER_PROTOCOLS: [&str; 5] = ["tcp", "udp", "mongo", "redis", "mysql"];

fn one_of(text: &str, names: &[&str]) -> bool {
    names.iter().any(|name| text.eq_ignore_ascii_case(name))
}

pub(super) fn is_http(protocol: &str) -> bool {
    one_of(protocol, &HTTP)
}

pub(super) fn is_tls(protocol: &str) -> bool {
    one_of(protocol, &TLS)
}

/// PROTO.
pub(super) fn protocol(text: &str) -> Violation {
    let holds = text.is_empty() || is_http(text) || is_tls(text) || one_of(text, &OTHER_PROTOCOLS);
    wrong(holds, || format!("{} is not a protocol", quoted(text)))
}

pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|letter| letter.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&letter))
}

/// Letters of a host and its port (RFC 3986).
pub(super) fn letter_of_authority(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-._~!$&'()*+,;=%:[]".contains(letter)
}

/// HDR.
pub(super) fn header(text: &str) -> Violation {
    let pseudo = [":method", ":scheme", ":authority", ":path", ":status"];
    wrong(is_token(text) || pseudo.contains(&text), || {
        format!("{} is not a header name", quoted(text))
    })
}

/// `http[s]://HOST[:PORT]…` as far as a set of keys may be fetched from it.
pub(super) fn jwks_uri(text: &str) -> Violation {
    let scheme = |name: &str| {
        let (scheme, rest) = text.split_at_checked(name.len())?;
        scheme.eq_ignore_ascii_case(name).then_some(rest)
    };
    let rest = scheme("http://").or_else(|| scheme("https://"));
    let holds = rest.is_some_and(|rest| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        is_host_and_port(authority.rsplit('@').next().unwrap_or(authority)) && is_escaped(rest)
    });
    wrong(holds, || {
        format!("{} is not an http or https URL", quoted(text))
    })
}

/// `HOST[:PORT]` of a URL.
fn is_host_and_port(text: &str) -> bool {
    let (host_is_one, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host.parse::<Ipv6Addr>().is_ok(), None),
        Some((host, after)) => {
            let port = after.strip_prefix(':').unwrap_or("?");
            (host.parse::<Ipv6Addr>().is_ok(), Some(port))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (is_reg_name(host), Some(port)),
            None => (is_reg_name(text), None),
        },
    };
    host_is_one && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// A name as registries have them, or an address of IPv4: more than FQDN, since others resolve it.
fn is_reg_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_');
    host.split('.')
        .all(|label| !label.is_empty() && label.chars().all(is_letter))
}

/// No blanks, and two digits after each percent sign.
fn is_escaped(text: &str) -> bool {
    let mut pieces = text.split('%');
    pieces.next();
    !text.contains(|letter: char| letter.is_whitespace() || letter.is_control())
        && pieces.all(|piece| {
            let digits = piece.as_bytes().get(..2);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(predicate: fn(&str) -> Violation, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(predicate(text), None, "{text}");
        }
        for text in bad {
            assert!(predicate(text).is_some(), "{text}");
        }
    }

    #[test]
    fn port_is_1_to_65535() {
        for (number, holds) in [
            (0, false),
            (1, true),
            (65535, true),
            (65536, false),
            (-1, false),
        ] {
            assert_eq!(port(number).is_none(), holds, "{number}");
        }
        assert_eq!(port(0).unwrap(), "port 0 is not in 1..65535");
        assert_eq!(port_or_none(0), None);
    }

    #[test]
    fn label_is_of_letters_digits_and_dashes() {
        table(
            label,
            &["a", "A-1", "1", &"a".repeat(63)],
            &["", "-a", "a-", "a.b", "a_b", &"a".repeat(64)],
        );
        assert_eq!(label("a_b").unwrap(), "\"a_b\" is not a DNS label");
    }

    #[test]
    fn fqdn_has_labels_and_no_number_at_its_end() {
        let long = |count: usize| vec!["a"; count].join(".");
        table(
            fqdn,
            &["a", "a.b", "a.b.", "1.a", &long(128)],
            &[
                "",
                "*",
                "*.a",
                "a..b",
                ".a",
                "10.0.0.1",
                "a.1",
                ".",
                &long(129),
            ],
        );
        // 127 labels of a letter and their dots are 253 bytes.
        let rest = long(127);
        assert_eq!(fqdn(&format!("a{rest}.")), None);
        assert!(fqdn(&format!("aa{rest}.")).is_some());
        assert_eq!(
            fqdn("a_b.c").unwrap(),
            "\"a_b.c\" is not a host name: \"a_b\" is not a DNS label"
        );
        assert_eq!(
            fqdn("10.0.0.1").unwrap(),
            "\"10.0.0.1\" is not a host name: its last label is a number"
        );
    }

    #[test]
    fn wild_may_begin_with_a_star() {
        table(
            wild,
            &["*", "*.a", "*a", "*-a.b", "a", "a.b", "123", "*1"],
            &["", "a*", "a.*", "**", "*.", "*.*.a", "*.1", "1.2", "123."],
        );
    }

    #[test]
    fn ip_and_cidr_are_addresses() {
        table(
            ip,
            &["10.0.0.1", "::1", "::"],
            &["", "10.0.0", "10.0.0.1/8", "fe80::1%eth0", "a"],
        );
        table(
            cidr,
            &["10.0.0.1", "10.0.0.0/8", "::/0", "::1/128"],
            &[
                "",
                "10.0.0.0/33",
                "::/129",
                "10.0.0.0/",
                "10.0.0.0/+8",
                "a/8",
            ],
        );
        assert_eq!(cidr("x").unwrap(), "\"x\" is not an IP address or CIDR");
    }

    #[test]
    fn uds_is_an_absolute_path_or_a_name() {
        table(uds, &["/a/b", "@a"], &["", "@", "a", "/a/", "/"]);
        assert_eq!(uds("a").unwrap(), "\"a\" is not an absolute path or @name");
    }

    #[test]
    fn dur_is_whole_milliseconds() {
        assert_eq!(duration(1_000_000), None);
        assert_eq!(duration(0).unwrap(), "duration 0s is less than 1ms");
        assert_eq!(
            duration(-1_000_000).unwrap(),
            "duration -0.001s is less than 1ms"
        );
        assert_eq!(
            duration(1_000_500_000).unwrap(),
            "duration 1.000500s is not a whole number of milliseconds"
        );
        assert_eq!(not_too_long(9_223_372_035_000_000_000), None);
        assert_eq!(
            not_too_long(9_223_372_035_001_000_000).unwrap(),
            "duration 9223372035.001s is more than 9223372035s"
        );
    }

    #[test]
    fn pct_and_percent_have_their_ranges() {
        assert_eq!((pct(0), pct(100)), (None, None));
        assert_eq!(pct(101).unwrap(), "101 is not in 0..100");
        assert_eq!(pct(-1).unwrap(), "-1 is not in 0..100");
        for good in [0.0, 0.0001, 100.0] {
            assert_eq!(percent(good), None);
        }
        assert_eq!(
            percent(0.00001).unwrap(),
            "0.00001 is neither 0 nor in 0.0001..100"
        );
        assert_eq!(
            percent(100.5).unwrap(),
            "100.5 is neither 0 nor in 0.0001..100"
        );
    }

    #[test]
    fn labels_have_keys_and_values() {
        table(
            label_key,
            &["a", "a.b/c_d.e", "A-b"],
            &["", "/a", "a/", "a/b/c", "-a", "a_/b", &"a".repeat(64)],
        );
        table(
            label_value,
            &["", "a", "a.b_c-d", "1"],
            &["-a", "a b", "a/b", &"a".repeat(64)],
        );
        assert_eq!(label_key("a b").unwrap(), "\"a b\" is not a label key");
        assert_eq!(label_value("a b").unwrap(), "\"a b\" is not a label value");
    }

    #[test]
    fn gwname_is_namespace_and_name() {
        table(
            gateway_name,
            &["a/b", "mesh", "a", "a.b.svc"],
            &["", "a/b/c", "a/", "/b", "a/b.c", "*"],
        );
        assert_eq!(gateway_name("/").unwrap(), "\"/\" is not NAMESPACE/NAME");
    }

    #[test]
    fn proto_is_one_of_twelve_in_any_case() {
        table(
            protocol,
            &[
                "",
                "HTTP",
                "http2",
                "http_proxy",
                "GRPC-Web",
                "grpc",
                "TCP",
                "tls",
                "https",
                "UDP",
                "mongo",
                "redis",
                "MySQL",
            ],
            &["httpx", "sctp"],
        );
    }

    #[test]
    fn hdr_is_a_token_or_one_of_five() {
        table(
            header,
            &["x-a", "X_a", ":path", ":authority"],
            &["", "a b", ":x", "a:", "é"],
        );
    }

    #[test]
    fn jwks_uri_is_a_url_with_a_number_for_its_port() {
        table(
            jwks_uri,
            &[
                "http://a",
                "https://a.b:8443/x",
                "https://[::1]:1/",
                "https://u@a/?x",
                "HTTPS://a.b./%2F",
                "https://keys_1:1/ü",
            ],
            &[
                "",
                "a",
                "ftp://a",
                "https://",
                "https://a:x/",
                "https://a:70000",
                "https://a b/x",
                "https://a..b/x",
                "https://[zz]/x",
                "https://%zz/",
                "https://a/%2",
                "https://a/x y",
                "https://[::1]x",
            ],
        );
    }
}
