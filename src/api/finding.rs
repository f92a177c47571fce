//! A finding about an object: path, message and severity.
//!
//! All checks name a place by the same path, so that each caller can find the line from it.

use std::fmt;

use crate::text::excerpt;
use crate::url::quotation_without_credentials;

/// An error refuses the object; a warning does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
}

/// The kind of a finding, by which a reader acts: the message is for people alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    #[default]
    General,
    /// A field or a kind has a successor, or is gone from later releases.
    Deprecated,
    /// No request reaches a route.
    Unreachable,
    /// Two members of a oneof are set. All of the message was read.
    OneofConflict,
    /// An object, or one of its targets, is given to no proxy.
    HoldsForNone,
    /// A target of an object is a Service, whose workloads it holds for.
    HoldsForWorkloads,
    /// A policy in dry run is tried and not enforced.
    Tried,
    /// A policy in dry run has an action that no proxy tries.
    Untried,
    /// So many findings of its severity were not kept.
    Omitted(usize),
}

/// An error or a warning about one place of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// From the object's root: `spec.http[0].route[1].weight`, `metadata.labels["a/b"]`.
    pub path: String,
    pub message: String,
    pub severity: Severity,
    pub kind: FindingKind,
}

impl Finding {
    pub fn error(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
            severity: Severity::Error,
            kind: FindingKind::General,
        }
    }

    pub fn warning(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
            severity: Severity::Warning,
            kind: FindingKind::General,
        }
    }

    /// Warns of a deprecation; `instead` names the replacement, or the last release that reads the field.
    pub fn deprecated(path: impl Into<String>, instead: &str) -> Self {
        Self {
            kind: FindingKind::Deprecated,
            ..Self::warning(path, format!("deprecated, {instead}"))
        }
    }

    /// Warns of a route that no request reaches.
    pub fn unreachable(path: impl Into<String>, why: &str) -> Self {
        Self {
            kind: FindingKind::Unreachable,
            ..Self::warning(path, format!("never reached: {why}"))
        }
    }

    /// Stands for findings that were not kept.
    pub(crate) fn omitted(severity: Severity, count: usize) -> Self {
        Self {
            path: String::new(),
            message: format!("… and {count} more"),
            severity,
            kind: FindingKind::Omitted(count),
        }
    }

    #[must_use]
    pub(crate) fn of_kind(self, kind: FindingKind) -> Self {
        Self { kind, ..self }
    }

    /// The number of findings that this one stands for.
    #[must_use]
    pub const fn count(&self) -> usize {
        if let FindingKind::Omitted(count) = self.kind {
            count
        } else {
            1
        }
    }

    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Findings up to a bound, beyond which they are counted. Errors and warnings have one each: an object with many warnings must
/// not lose the cause of its refusal.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    kept: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

impl Findings {
    /// Findings of each severity that are kept, in the order in which they are found: far more than are shown, so that the first
    /// of the text are among them.
    const MAX_PER_SEVERITY: usize = 10_000;

    pub(crate) const fn count(&self, severity: Severity) -> usize {
        match severity {
            Severity::Error => self.errors,
            Severity::Warning => self.warnings,
        }
    }

    /// Adds a finding, which is made only if it is kept.
    pub(crate) fn add(&mut self, severity: Severity, make: impl FnOnce() -> Finding) {
        let count = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= Self::MAX_PER_SEVERITY {
            self.kept.push(make());
        }
    }

    pub(crate) const fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// All that are kept, and one of each severity for those that are not.
    pub(crate) fn into_vec(self) -> Vec<Finding> {
        let mut all = self.kept;
        for (severity, count) in [
            (Severity::Error, self.errors),
            (Severity::Warning, self.warnings),
        ] {
            if let Some(omitted @ 1..) = count.checked_sub(Self::MAX_PER_SEVERITY) {
                all.push(Finding::omitted(severity, omitted));
            }
        }
        all
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_error() {
            to.write_str("warning: ")?;
        }
        if !self.path.is_empty() {
            write!(to, "{}: ", self.path)?;
        }
        to.write_str(&self.message)
    }
}

/// Findings in one line, as logs and reports tell them.
#[derive(Clone, Copy, Debug)]
pub struct FindingList<'a>(pub &'a [Finding]);

impl fmt::Display for FindingList<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, finding) in self.0.iter().enumerate() {
            if at > 0 {
                to.write_str("; ")?;
            }
            write!(to, "{finding}")?;
        }
        Ok(())
    }
}

/// Maximum length of a key or value in a message.
const MAX_SHOWN: usize = 256;

/// Goes on to a field, or to a key of a map: `.name`, or `["a/b"]` where it has other letters.
pub fn push_key(path: &mut String, key: &str) {
    let simple = !key.is_empty()
        && key.len() <= MAX_SHOWN
        && key
            .bytes()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_'));
    if !simple {
        path.push('[');
        path.push_str(&quoted(key));
        path.push(']');
        return;
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

/// Goes on to an element of a list: `[3]`.
pub fn push_index(path: &mut String, index: usize) {
    path.push('[');
    path.push_str(&index.to_string());
    path.push(']');
}

/// A value as a message shows it: in quotes, escaped as JSON has it, short, and without the credentials of a URL.
#[must_use]
pub fn quoted(text: &str) -> String {
    // A URL that is cut within its password shows no end of it.
    let text = quotation_without_credentials(text);
    let (head, mark) = excerpt(&text, MAX_SHOWN);
    serde_json::Value::String(format!("{head}{mark}")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_credentials_of_a_url_are_not_quoted() {
        for (text, shown) in [
            ("a://b:c/d", r#""a://b:c/d""#),
            ("https://me:S3CRET@a:x/b", r#""https://…@a:x/b""#),
            ("https://me:S3 CRET@a/b", r#""https://…@a/b""#),
            ("https://me:S3\"CRET@a/b", r#""https://…@a/b""#),
        ] {
            assert_eq!(quoted(text), shown);
        }
        for length in [MAX_SHOWN - 12, 9000] {
            let long = format!("https://me:{}S3CRET@a:x/b", "m".repeat(length));
            assert_eq!(quoted(&long), r#""https://…@a:x/b""#);
            let long = format!("me:{}S3CRET@a:x/b", "m".repeat(length));
            assert_eq!(quoted(&long), r#""…@a:x/b""#);
        }
    }

    #[test]
    fn a_path_shows_fields_keys_and_indices() {
        let mut path = String::new();
        push_key(&mut path, "spec");
        push_key(&mut path, "http");
        push_index(&mut path, 0);
        push_key(&mut path, "x-y_Z9");
        assert_eq!(path, "spec.http[0].x-y_Z9");
        for (key, written) in [
            ("a/b", r#"["a/b"]"#),
            ("", r#"[""]"#),
            ("a\"\n", r#"["a\"\n"]"#),
        ] {
            let mut path = String::from("m");
            push_key(&mut path, key);
            assert_eq!(path, format!("m{written}"));
        }
        let mut path = String::new();
        push_key(&mut path, &"x".repeat(5000));
        assert!(path.len() < 300, "{path}");
    }
}
