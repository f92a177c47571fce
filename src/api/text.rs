//! Texts of others, shortened: a log line, a page and the memory have room for no text of any length.

/// Returns the first `most` bytes, cut between two characters.
#[must_use]
pub fn cut(text: &str, most: usize) -> &str {
    let end = text.floor_char_boundary(most);
    text.get(..end).unwrap_or_default()
}

/// Returns the first `most` characters.
#[must_use]
pub fn first_letters(text: &str, most: usize) -> &str {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// Returns the first `most` characters, and the mark of an omission: empty for a text that is whole.
#[must_use]
pub fn excerpt(text: &str, most: usize) -> (&str, &'static str) {
    let head = first_letters(text, most);
    let mark = if head.len() < text.len() { "…" } else { "" };
    (head, mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, most, bytes, letters) in [
            ("abé", 2, "ab", "ab"),
            ("abé", 3, "ab", "abé"),
            ("abé", 4, "abé", "abé"),
            ("abé", 100, "abé", "abé"),
            ("éé", 1, "", "é"),
            ("é", 0, "", ""),
            ("", 0, "", ""),
            ("", 5, "", ""),
        ] {
            assert_eq!(cut(text, most), bytes, "{text} {most}");
            assert_eq!(first_letters(text, most), letters, "{text} {most}");
            let mark = if letters == text { "" } else { "…" };
            assert_eq!(excerpt(text, most), (letters, mark), "{text} {most}");
        }
    }
}
