//! The names by which a client calls a service.

use std::net::IpAddr;

/// A host in all forms that mean it to a client of this domain: in full, and shorter by what they have in common.
pub(crate) fn forms(host: &str, domain: &str) -> Vec<String> {
    let mut forms = vec![host.to_ascii_lowercase()];
    if host.starts_with('*') {
        return forms;
    }
    let parts: Vec<&str> = host.split('.').collect();
    let shared = parts
        .iter()
        .rev()
        .zip(domain.split('.').rev())
        .take_while(|(one, other)| !one.is_empty() && one.eq_ignore_ascii_case(other))
        .count();
    let own = parts.len().saturating_sub(shared);
    // A host that the domain ends in keeps one part, so that no form is empty.
    for end in own.max(1)..parts.len() {
        if let Some(form) = parts.get(..end) {
            forms.push(form.join(".").to_ascii_lowercase());
        }
    }
    forms
}

/// Returns the form without a port, and with it.
pub(crate) fn with_port(form: &str, port: u16) -> [String; 2] {
    [form.to_owned(), format!("{form}:{port}")]
}

/// An address as the host of a request has it. IPv6 without a port comes in brackets from browsers, and bare from others.
pub(crate) fn address_forms(address: IpAddr, port: u16) -> Vec<String> {
    match address {
        IpAddr::V4(address) => with_port(&address.to_string(), port).into(),
        IpAddr::V6(address) => vec![
            address.to_string(),
            format!("[{address}]"),
            format!("[{address}]:{port}"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_shorter_the_nearer_it_is() {
        let domain = "ns.svc.cluster.local";
        for (host, domain, expected) in [
            (
                "a.ns.svc.cluster.local",
                domain,
                "a.ns.svc.cluster.local a a.ns a.ns.svc a.ns.svc.cluster",
            ),
            (
                "a.ns2.svc.cluster.local",
                domain,
                "a.ns2.svc.cluster.local a.ns2 a.ns2.svc a.ns2.svc.cluster",
            ),
            ("A.Example", domain, "a.example"),
            ("a.example", "", "a.example"),
            ("*.ns.svc.cluster.local", domain, "*.ns.svc.cluster.local"),
            ("a.local", domain, "a.local a"),
            (
                "ns.svc.cluster.local",
                domain,
                "ns.svc.cluster.local ns ns.svc ns.svc.cluster",
            ),
        ] {
            assert_eq!(forms(host, domain).join(" "), expected, "{host}");
        }
    }

    #[test]
    fn addresses_are_called_as_urls_have_them() {
        assert_eq!(
            address_forms([10, 0, 0, 1].into(), 80),
            ["10.0.0.1", "10.0.0.1:80"]
        );
        assert_eq!(
            address_forms("2001:db8::1".parse().unwrap(), 80),
            ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:80"]
        );
    }
}
