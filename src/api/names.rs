//! Checks for host names, port names and socket paths, the one spelling of names that have several, and identities.

use std::net::IpAddr;

/// Bytes of a name in Kubernetes, and of a name in DNS (RFC 1123: a DNS subdomain name).
pub const MAX_NAME_LENGTH: usize = 253;

/// Bytes of a label of DNS (RFC 1035, 2.3.4), and of a label's value in Kubernetes.
pub const MAX_LABEL_LENGTH: usize = 63;

/// A host as it is compared with others: in lower case, and an address in its one form of many.
#[must_use]
pub fn canonical_host(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}

/// The SPIFFE id of a service account.
#[must_use]
pub fn spiffe_id(trust_domain: &str, namespace: &str, account: &str) -> String {
    format!("spiffe://{trust_domain}/ns/{namespace}/sa/{account}")
}

/// The whole name of a host that a rule of a namespace writes: without a dot it is one of that namespace.
#[must_use]
pub fn full_host(host: &str, namespace: &str, domain: &str) -> String {
    let host = canonical_host(host);
    // A colon stands in IPv6 addresses, which have no dots.
    let is_full = host.contains(['.', '*', ':']);
    if is_full || namespace.is_empty() {
        return host;
    }
    format!("{host}.{namespace}.svc.{domain}")
}

/// A DNS name; services may have underscores in front of them, numbers alone are a broken address.
#[must_use]
pub fn is_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let parts_are_right = host.split('.').all(|part| {
        !part.is_empty()
            && part.len() <= MAX_LABEL_LENGTH
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part
                .bytes()
                .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_'))
    });
    let last_is_a_word = host
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().any(|letter| !letter.is_ascii_digit()));
    host.len() <= MAX_NAME_LENGTH && parts_are_right && last_is_a_word
}

/// The longest path of a socket: Linux has 108 bytes for it (`sun_path` of `sockaddr_un`, unix(7)), and Envoy puts a NUL at its
/// end, as it does for the name of an abstract one.
pub(crate) const MAX_SOCKET_LENGTH: usize = 107;

/// The reason for [`MAX_SOCKET_LENGTH`] in messages.
pub(crate) const ROOM_FOR_SOCKET: &str = "sun_path of sockaddr_un has 108 with the NUL at its end";

/// As [`is_name`], or `*.` and such a name.
pub(crate) fn is_host_pattern(host: &str) -> bool {
    is_name(host.strip_prefix("*.").unwrap_or(host))
}

/// Returns true for a label of DNS, of letters in either case: letters, digits and dashes, with none of these at an end.
#[must_use]
pub fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_LABEL_LENGTH
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == b'-')
}

/// Returns true for a key of a Kubernetes label: a name of letters, digits, `-`, `_` and `.`, and in front of it, if at all, a DNS
/// name and `/`.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let is_dns_name =
        |prefix: &str| prefix.len() <= MAX_NAME_LENGTH && prefix.split('.').all(is_label);
    prefix.is_none_or(is_dns_name) && !name.is_empty() && is_label_value(name)
}

/// Returns true for a value of a Kubernetes label, which may be empty. Source: `IsValidLabelValue` of Kubernetes' apimachinery.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = [text.bytes().next(), text.bytes().next_back()];
    let ends_well = |end: Option<u8>| end.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= MAX_LABEL_LENGTH && text.bytes().all(inner) && ends.into_iter().all(ends_well)
}

/// Returns true for a name that an API server takes for most objects, a DNS subdomain (RFC 1123): labels between dots, of small
/// letters, digits and dashes, that begin and end with a letter or a digit.
#[must_use]
pub fn is_subdomain(name: &str) -> bool {
    let is_part = |part: &str| {
        let letters = |letter: u8| is_small(letter) || letter == b'-';
        let ends = part.bytes().next().zip(part.bytes().next_back());
        ends.is_some_and(|(first, last)| is_small(first) && is_small(last))
            && part.bytes().all(letters)
    };
    name.len() <= MAX_NAME_LENGTH && name.split('.').all(is_part)
}

/// Returns true for a name that an API server takes for a Namespace: a DNS label (RFC 1123) of small letters, digits and dashes.
#[must_use]
pub fn is_lower_label(name: &str) -> bool {
    name.len() <= MAX_LABEL_LENGTH && !name.contains('.') && is_subdomain(name)
}

/// Returns true for a name that an API server takes for a Service: a DNS label as RFC 1035 has it, which begins with a letter.
#[must_use]
pub fn is_rfc_1035_label(name: &str) -> bool {
    is_lower_label(name) && name.starts_with(|first: char| first.is_ascii_lowercase())
}

const fn is_small(letter: u8) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit()
}

/// Reads the annotation of a Service with the namespaces that see it. Returns its valid entries, which are `.`, `*`, `~` or a
/// namespace, and its first invalid one. If it has only invalid entries, the service is visible in its own namespace: its author
/// did not want it to be visible in all.
#[must_use]
pub fn export_to(annotation: &str) -> (Vec<&str>, Option<&str>) {
    let entries = annotation.split(',').map(str::trim);
    let entries = entries.filter(|entry| !entry.is_empty());
    let is_known = |entry: &&str| matches!(*entry, "." | "*" | "~") || is_label(entry);
    let (mut known, unknown): (Vec<_>, Vec<_>) = entries.partition(is_known);
    let unknown = unknown.first().copied();
    if known.is_empty() && unknown.is_some() {
        known.push(".");
    }
    (known, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_an_api_server_takes() {
        let long_label = "a".repeat(MAX_LABEL_LENGTH);
        let long_name = format!("{}b", "a.".repeat(MAX_NAME_LENGTH / 2));
        for (name, kinds) in [
            ("a", "service namespace pod"),
            ("a-1", "service namespace pod"),
            (&long_label, "service namespace pod"),
            ("1-a", "namespace pod"),
            ("a.b-c", "pod"),
            (&format!("{long_label}a"), "pod"),
            (&long_name, "pod"),
            (&format!("a{long_name}"), ""),
            ("Web", ""),
            ("Web.x", ""),
            ("a_b", ""),
            ("-a", ""),
            ("a-", ""),
            ("a..b", ""),
            ("a.-b", ""),
            ("a.", ""),
            ("", ""),
            ("ä", ""),
        ] {
            let taken = [
                (is_rfc_1035_label(name), "service"),
                (is_lower_label(name), "namespace"),
                (is_subdomain(name), "pod"),
            ];
            let taken = taken.iter().filter(|(is_taken, _)| *is_taken);
            let taken: Vec<_> = taken.map(|(_, kind)| *kind).collect();
            assert_eq!(taken.join(" "), kinds, "{name}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_stands_for_names() {
        for (host, is_one) in [
            ("a", true),
            ("a.example", true),
            ("*.example", true),
            ("_a.example", true),
            ("*", false),
            ("*.", false),
            ("a.*.example", false),
            ("10.0.0.1", false),
            ("", false),
            ("-a.example", false),
            ("a..example", false),
        ] {
            assert_eq!(is_host_pattern(host), is_one, "{host}");
        }
    }

    #[test]
    fn a_host_is_in_full_and_in_lower_case() {
        for (host, full) in [
            ("a", "a.ns.svc.cluster.local"),
            ("A", "a.ns.svc.cluster.local"),
            ("a.other", "a.other"),
            ("A.Example.", "a.example"),
            ("*.example", "*.example"),
            ("*", "*"),
            ("2001:db8::1", "2001:db8::1"),
            ("2001:0DB8::0:1", "2001:db8::1"),
        ] {
            assert_eq!(full_host(host, "ns", "cluster.local"), full, "{host}");
        }
    }

    #[test]
    fn one_address_has_many_spellings() {
        for (host, spelled) in [
            ("2001:DB8:0::1", "2001:db8::1"),
            ("2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
            ("10.0.0.1", "10.0.0.1"),
            ("A.Example.", "a.example"),
            ("*.A.example", "*.a.example"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(canonical_host(host), spelled, "{host}");
        }
    }

    #[test]
    fn a_label_has_no_dots_and_no_dash_at_its_ends() {
        for (text, is_one) in [
            ("http", true),
            ("http-0", true),
            ("HTTP", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("a.b", false),
            ("a_b", false),
        ] {
            assert_eq!(is_label(text), is_one, "{text}");
        }
        assert!(is_label(&"a".repeat(63)) && !is_label(&"a".repeat(64)));
    }
}
