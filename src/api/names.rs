//! Checks for host names, port names and socket paths.

/// A DNS name; services may have underscores in front of them, numbers alone are a broken address.
#[must_use]
pub fn is_name(host: &str) -> bool {
    const LONGEST: usize = 253;
    const LONGEST_PART: usize = 63;
    let host = host.strip_suffix('.').unwrap_or(host);
    let parts_are_right = host.split('.').all(|part| {
        !part.is_empty()
            && part.len() <= LONGEST_PART
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
    host.len() <= LONGEST && parts_are_right && last_is_a_word
}

/// The longest path of a socket: Linux has 108 bytes for it (`sun_path` of `sockaddr_un`, unix(7)), and Envoy puts a NUL at its
/// end, as it does for the name of an abstract one.
pub(crate) const LONGEST_SOCKET: usize = 107;

/// The reason for [`LONGEST_SOCKET`] in messages.
pub(crate) const ROOM_FOR_SOCKET: &str = "sun_path of sockaddr_un has 108 with the NUL at its end";

/// As [`is_name`], or `*.` and such a name.
pub(crate) fn is_host_pattern(host: &str) -> bool {
    is_name(host.strip_prefix("*.").unwrap_or(host))
}

/// Returns true for a port name: letters, digits and dashes, as in a label of DNS.
#[must_use]
pub fn is_label(text: &str) -> bool {
    const LONGEST: usize = 63;
    !text.is_empty()
        && text.len() <= LONGEST
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

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
