//! Words of a peer are kept, but not at any length.

/// Bytes of a NACK's message that are stored.
pub(crate) const WORDS: usize = 4096;

/// Bytes of a name that are stored.
pub(crate) const NAME: usize = 256;

/// The first `most` bytes, at the border of a character.
pub(crate) fn cut(words: &str, most: usize) -> &str {
    let end = (0..=most.min(words.len()))
        .rev()
        .find(|end| words.is_char_boundary(*end));
    end.and_then(|end| words.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_between_characters() {
        assert_eq!(cut("abé", 2), "ab");
        assert_eq!(cut("abé", 3), "ab");
        assert_eq!(cut("abé", 4), "abé");
        assert_eq!(cut("abé", 100), "abé");
        assert_eq!(cut("é", 1), "");
        assert_eq!(cut("", 0), "");
    }
}
