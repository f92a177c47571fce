//! Texts for logs and pages.

use api::text::excerpt;

/// Characters of one message at most.
pub(super) const MAX_LETTERS: usize = 1000;

/// Reduces a text to one line of limited length, for logs and pages.
pub(super) fn one_line(text: &str) -> String {
    let (shown, more) = excerpt(text, MAX_LETTERS);
    shown.replace(char::is_control, " ") + more
}
