//! Addresses that proxies call: `HOST:PORT`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::cursor::Violation;
use crate::finding::quoted;
use crate::names::is_name;

pub(super) fn address(text: &str) -> Violation {
    (!is_address(text)).then(|| no_address(text))
}

/// As [`address`], by the rule of a proxy's agent.
pub(super) fn agent_address(text: &str) -> Violation {
    (!is_agent_address(text)).then(|| no_address(text))
}

fn no_address(text: &str) -> String {
    format!("{} is not HOST:PORT", quoted(text))
}

/// Returns true for an address that the agent of a proxy takes: `HOST:PORT`, whose host is a name without underscores. Resolvers know
/// names with them.
#[must_use]
pub fn is_agent_address(text: &str) -> bool {
    is_address(text) && (is_variable(text) || !text.contains('_'))
}

/// Returns true if the pod fills the host in.
fn is_variable(text: &str) -> bool {
    text.starts_with("$(")
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let port_is_one = !port.is_empty()
        && port.bytes().all(|digit| digit.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0);
    port_is_one && is_host(host)
}

/// A name, an address of IPv4, one of IPv6 in brackets, or a variable that the pod will fill in: `$(HOST_IP)`.
fn is_host(host: &str) -> bool {
    if let Some(inner) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    if let Some(name) = host
        .strip_prefix("$(")
        .and_then(|rest| rest.strip_suffix(')'))
    {
        return !name.is_empty()
            && name
                .bytes()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == b'_');
    }
    host.parse::<Ipv4Addr>().is_ok() || is_name(host)
}
