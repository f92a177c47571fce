//! Texts of others, shortened: a log line, a page and the memory have room for no text of any length.

/// Returns the first `max` bytes, cut between two characters.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    let end = text.floor_char_boundary(max);
    text.get(..end).unwrap_or_default()
}

/// Returns the first `max` characters.
#[must_use]
pub fn first_letters(text: &str, max: usize) -> &str {
    let end = text.char_indices().nth(max).map(|(end, _)| end);
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// Returns the first `max` characters, and the mark of an omission: empty for a text that is whole.
#[must_use]
pub fn excerpt(text: &str, max: usize) -> (&str, &'static str) {
    let head = first_letters(text, max);
    let mark = if head.len() < text.len() { "…" } else { "" };
    (head, mark)
}

/// Returns true for a character that changes how the text around it is shown: a control character, which may move the cursor of a
/// terminal, the end of a line or paragraph, and a mark that turns the direction of writing, which shows words in another order.
#[must_use]
pub fn is_control(letter: char) -> bool {
    letter.is_control() || is_directional(letter)
}

/// Returns true for those of them that JSON does not escape.
#[must_use]
pub const fn is_directional(letter: char) -> bool {
    matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_in_their_order() {
        for letter in [
            '\0', '\n', '\u{7f}', '\u{85}', '\u{202e}', '\u{2066}', '\u{2028}',
        ] {
            assert!(is_control(letter), "{letter:?}");
        }
        for letter in ['a', ' ', 'é', '\u{5d0}', '\u{627}', '\u{fffd}', '\u{1f600}'] {
            assert!(!is_control(letter), "{letter:?}");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, max, bytes, letters) in [
            ("abé", 2, "ab", "ab"),
            ("abé", 3, "ab", "abé"),
            ("abé", 4, "abé", "abé"),
            ("abé", 100, "abé", "abé"),
            ("éé", 1, "", "é"),
            ("é", 0, "", ""),
            ("", 0, "", ""),
            ("", 5, "", ""),
        ] {
            assert_eq!(cut(text, max), bytes, "{text} {max}");
            assert_eq!(first_letters(text, max), letters, "{text} {max}");
            let mark = if letters == text { "" } else { "…" };
            assert_eq!(excerpt(text, max), (letters, mark), "{text} {max}");
        }
    }
}
