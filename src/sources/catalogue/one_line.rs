//! Texts for logs and pages.

use api::config::Finding;
use api::text::{excerpt, is_control};

/// Characters of one message at most.
pub(crate) const MAX_LETTERS: usize = 1000;

/// Reduces a text to one line of limited length, for logs and pages.
pub(crate) fn one_line(text: &str) -> String {
    let (head, more) = excerpt(text, MAX_LETTERS);
    head.replace(is_control, " ") + more
}

/// The same of a finding: its path quotes keys that were written, too.
pub(crate) fn one_line_of(finding: &Finding) -> Finding {
    Finding {
        path: one_line(&finding.path),
        message: one_line(&finding.message),
        severity: finding.severity,
        kind: finding.kind,
    }
}

/// Returns a name on one line, with control characters escaped.
pub(crate) fn printable(name: &str) -> String {
    match name.contains(is_control) {
        true => name.escape_debug().to_string(),
        false => name.to_owned(),
    }
}
