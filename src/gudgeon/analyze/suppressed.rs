//! Findings that are not to be told: `CODE=KIND NAME.NAMESPACE`.

use super::messages::Located;

/// One of `--suppress`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suppressed {
    code: String,
    /// `KIND NAME.NAMESPACE` or `KIND NAMESPACE/NAME`; `*` stands for any letters.
    origin: String,
}

impl Suppressed {
    /// # Errors
    ///
    /// The text has not this form.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let read = text.split_once('=').map(|(code, origin)| Self {
            code: code.trim().to_owned(),
            origin: origin.trim().to_owned(),
        });
        let read = read.filter(|one| !one.code.is_empty() && !one.origin.is_empty());
        read.ok_or_else(|| {
            let quoted = api::config::quoted(text);
            format!("cannot use --suppress: want CODE=KIND NAME.NAMESPACE, got {quoted}")
        })
    }

    pub(super) fn has(&self, message: &Located) -> bool {
        let Located {
            kind,
            namespace,
            name,
            ..
        } = message;
        let ways = match namespace.is_empty() {
            true => vec![format!("{kind} {name}")],
            false => vec![
                format!("{kind} {name}.{namespace}"),
                format!("{kind} {namespace}/{name}"),
            ],
        };
        let is_code = self.code == message.code.name || self.code == "*";
        is_code && ways.iter().any(|way| matches(&self.origin, way))
    }
}

/// Returns true if the pattern matches: each `*` stands for any letters, and the earliest place of each part between is as good as
/// any.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in between {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_letters() {
        for (pattern, text, want) in [
            ("Pod a.b", "Pod a.b", true),
            ("Pod a.b", "Pod a.bc", false),
            ("Pod *.b", "Pod a.b", true),
            ("Pod *", "Service a.b", false),
            ("*", "", true),
            ("*a*a*", "xaxax", true),
            ("*a*a", "xa", false),
            ("a*", "", false),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern} {text}");
        }
    }

    #[test]
    fn malformed_suppressions_are_refused() {
        for text in ["", "IST0101", "=Pod a", "IST0101="] {
            assert!(Suppressed::read(text).is_err(), "{text}");
        }
    }
}
