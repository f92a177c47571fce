//! The meaning of a text: switches, addresses, quantities, durations, users, levels. Pure; `cli`, `config` and `bootstrap`
//! share it.

#![forbid(unsafe_code)]

pub(crate) mod duration;

use std::net::{IpAddr, SocketAddr};

use crate::log::Level;
use crate::search;

/// The kind of proxy, the first field of the node id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    #[default]
    Sidecar,
    Router,
    Ingress,
}

impl Role {
    /// As it is typed, and in the node id.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sidecar => "sidecar",
            Self::Router => "router",
            Self::Ingress => "ingress",
        }
    }
}

/// Envoy's `--base-id`: names its shared memory and its hot-restart sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseId {
    Fixed(u32),
    /// A free one is looked for at start and kept.
    Auto,
}

/// `--proxy-user`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// A host name or address with a port, as Envoy's `socket_address` wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

/// As Go's `ParseBool`.
pub(crate) fn switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("true or false"),
    }
}

pub(crate) fn address(text: &str) -> Result<IpAddr, &'static str> {
    text.parse().map_err(|_| "not an IP address")
}

/// `[::1]:80`, `a:80`, `a`; brackets stay.
pub(crate) fn name_and_port(authority: &str) -> (&str, Option<&str>) {
    match search::split_last(authority, b':') {
        Some((name, port)) if !port.bytes().any(|byte| byte == b']') => (name, Some(port)),
        _ => (authority, None),
    }
}

/// A port: 1 to 65535, digits only.
pub(crate) fn port(text: &str) -> Result<u16, &'static str> {
    let port = text.parse().ok();
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    port.filter(|port| digits && *port > 0)
        .ok_or("the port must be 1 to 65535")
}

/// `host:port`, `1.2.3.4:port` or `[v6]:port`.
pub(crate) fn host_port(text: &str) -> Result<HostPort, &'static str> {
    let (host, port) = name_and_port(text);
    let port = self::port(port.ok_or("host:port is expected")?)?;
    if let Some(v6) = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        let address: IpAddr = v6.parse().map_err(|_| "not an IPv6 address")?;
        return if address.is_ipv6() {
            Ok(HostPort {
                host: v6.to_owned(),
                port,
            })
        } else {
            Err("not an IPv6 address")
        };
    }
    if host.parse::<std::net::Ipv4Addr>().is_ok() || is_dns_name(host) {
        return Ok(HostPort {
            host: host.to_owned(),
            port,
        });
    }
    Err("the host is neither a DNS name nor an address ([v6]:port)")
}

/// DNS-1123 with a top level that is not all digits.
fn is_dns_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let label = |label: &str| {
        let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        label.len() <= 63
            && ends(label.bytes().next())
            && ends(label.bytes().last())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let top = host.get(search::behind_last(host, b'.')..).unwrap_or("");
    host.len() <= 253
        && host.split('.').all(label)
        && !top.bytes().all(|byte| byte.is_ascii_digit())
}

/// statsd: Envoy takes no name there, and nothing here blocks on DNS.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() > 0 => Ok(address),
        Ok(_) => Err("the port must be 1 to 65535"),
        Err(_) if host_port(text).is_ok() => {
            Err("Envoy takes no name for statsd: give the address, ip:port")
        }
        Err(_) => Err("ip:port is expected"),
    }
}

/// CPUs of a Kubernetes quantity (`2`, `1.5`, `500m`), rounded up; 0 when there are none.
pub(crate) fn cpus(text: &str) -> Option<u32> {
    let (number, per_unit) = match text.strip_suffix('m') {
        Some(milli) => (milli, 1),
        None => (text, 1000),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.len() > 9 {
        return None;
    }
    let digits: u64 = [whole, fraction].concat().parse().ok()?;
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let milli = digits.checked_mul(per_unit)?.div_ceil(scale);
    u32::try_from(milli.div_ceil(1000)).ok()
}

/// `UID[:GID]`; the group is the user's number where it is not given.
pub(crate) fn user(text: &str) -> Result<User, &'static str> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    // The highest number means "leave it" to the kernel.
    let id = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX);
    match (id(uid), id(gid)) {
        (Some(uid), Some(gid)) => Ok(User { uid, gid }),
        _ => Err("UID or UID:GID is expected, as numbers"),
    }
}

/// Envoy multiplies it by ten for a socket's name, so it has a highest value.
pub(crate) fn base_id(text: &str) -> Result<BaseId, &'static str> {
    const MAX_BASE_ID: u32 = 0x0fff_ffff;
    match text.parse() {
        _ if text == "auto" => Ok(BaseId::Auto),
        Ok(id) if id <= MAX_BASE_ID => Ok(BaseId::Fixed(id)),
        Ok(_) | Err(_) => Err("0 to 268435455 or auto"),
    }
}

/// `info`, or `default:info,model:debug`, of which the default scope counts.
pub(crate) fn log_level(text: &str) -> Result<Level, &'static str> {
    let mut default = Level::Info;
    for part in text.split(',') {
        let (scope, name) = part.split_once(':').unwrap_or(("default", part));
        let level = match name {
            "debug" => Level::Debug,
            // As pilot-agent takes it.
            "info" | "" => Level::Info,
            "warn" => Level::Warn,
            "error" | "fatal" => Level::Error,
            "none" => Level::None,
            _ => return Err("the levels are debug, info, warn, error, fatal and none"),
        };
        if scope == "default" || scope == "all" {
            default = level;
        }
    }
    Ok(default)
}

/// Envoy's level, and the components' that later pilot-agents take in the same flag: `info,misc:error`.
pub(crate) fn proxy_log_level(text: &str) -> Result<(String, String), &'static str> {
    let (components, levels): (Vec<_>, Vec<_>) = text
        .split(',')
        .map(str::trim)
        .partition(|part| part.contains(':'));
    match levels.as_slice() {
        [] => Ok((String::new(), components.join(","))),
        [level] if level.is_empty() || search::is_one_of(level, PROXY_LEVELS) => {
            Ok(((*level).to_owned(), components.join(",")))
        }
        _ => Err("trace, debug, info, warning, error, critical or off is expected"),
    }
}

const PROXY_LEVELS: &str = "trace debug info warning warn error critical off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ports() {
        for (authority, expected) in [
            ("a", ("a", None)),
            ("a:1", ("a", Some("1"))),
            ("[::1]", ("[::1]", None)),
            ("[::1]:1", ("[::1]", Some("1"))),
            ("", ("", None)),
        ] {
            assert_eq!(name_and_port(authority), expected, "{authority}");
        }
    }

    #[test]
    fn a_port_is_digits() {
        for text in ["", "0", "+80", "-1", "65536", " 80", "http"] {
            assert_eq!(port(text), Err("the port must be 1 to 65535"), "{text}");
        }
        assert_eq!((port("1"), port("65535")), (Ok(1), Ok(65535)));
        assert!(host_port("collector:+80").is_err());
    }

    #[test]
    fn hosts_and_ports() {
        let good = [
            "istio-pilot:15010",
            "istiod.istio-system.svc:15012",
            "10.0.0.1:80",
            "[::1]:80",
            "a.b.:1",
            "1a:65535",
        ];
        for text in good {
            assert!(host_port(text).is_ok(), "{text}");
        }
        assert_eq!(host_port("[fe80::1]:80").unwrap().host, "fe80::1");
        let bad = [
            "",
            ":80",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "host:-1",
            "::1:80",
            "-a:80",
            "a-:80",
            "a..b:80",
            "a b:80",
            "1.2.3:80",
            "10.0.0.256:80",
            "[10.0.0.1]:80",
            "[host]:80",
            "http://a:80",
            "a_b:80",
        ];
        for text in bad {
            assert!(host_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn statsd_is_an_address() {
        assert!(socket_address("10.0.0.1:8125").is_ok());
        assert!(socket_address("[::1]:8125").is_ok());
        assert!(
            socket_address("statsd:8125")
                .unwrap_err()
                .contains("no name")
        );
        assert!(socket_address("10.0.0.1:0").is_err());
        assert!(socket_address("10.0.0.1").is_err());
    }

    #[test]
    fn cpu_quantities() {
        let table = [
            ("2", Some(2)),
            ("500m", Some(1)),
            ("1500m", Some(2)),
            ("1.5", Some(2)),
            (".5", Some(1)),
            ("0", Some(0)),
            ("2.0", Some(2)),
            ("1.0001", Some(2)),
            ("", None),
            ("m", None),
            (".", None),
            ("-1", None),
            ("two", None),
            ("99999999999999999999", None),
            ("1.2.3", None),
        ];
        for (text, expected) in table {
            assert_eq!(cpus(text), expected, "{text}");
        }
    }

    #[test]
    fn users_and_ids() {
        assert_eq!(
            user("1337"),
            Ok(User {
                uid: 1337,
                gid: 1337
            })
        );
        assert_eq!(user("1:0"), Ok(User { uid: 1, gid: 0 }));
        for text in [
            "",
            "root",
            "1:",
            ":1",
            "-1",
            "1:2:3",
            "4294967295",
            "4294967296",
        ] {
            assert!(user(text).is_err(), "{text}");
        }
        assert_eq!(base_id("auto"), Ok(BaseId::Auto));
        assert_eq!(base_id("268435455"), Ok(BaseId::Fixed(0x0fff_ffff)));
        for text in ["268435456", "-1", "", "Auto"] {
            assert!(base_id(text).is_err(), "{text}");
        }
    }

    #[test]
    fn levels() {
        assert_eq!(log_level("debug"), Ok(Level::Debug));
        assert_eq!(log_level("default:warn,model:debug"), Ok(Level::Warn));
        assert_eq!(log_level("model:debug"), Ok(Level::Info));
        assert_eq!(log_level(""), Ok(Level::Info));
        assert!(log_level("loud").is_err());
        assert_eq!(
            proxy_log_level("info,misc:error,upstream:debug"),
            Ok(("info".into(), "misc:error,upstream:debug".into()))
        );
        assert_eq!(proxy_log_level(""), Ok((String::new(), String::new())));
        assert!(proxy_log_level("loud").is_err());
        assert!(proxy_log_level("info,debug").is_err());
    }
}
