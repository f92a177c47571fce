//! Texts for logs and pages.

use api::text::excerpt;

/// Characters of one message at most.
pub(super) const MAX_LETTERS: usize = 1000;

/// Reduces a text to one line of limited length, for logs and pages.
pub(super) fn one_line(text: &str) -> String {
    let (head, more) = excerpt(text, MAX_LETTERS);
    head.replace(char::is_control, " ") + more
}
