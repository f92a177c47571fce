//! "Did you mean": the known name nearest to an unknown one.

/// More than so many letters apart is another word.
const MAX_DISTANCE: usize = 3;

/// A name longer than this is no typing error.
const MAX_NAME_BYTES: usize = 64;

/// The nearest of some names; of equally near ones the first.
pub(crate) fn nearest<'name>(
    word: &str,
    names: impl IntoIterator<Item = &'name str>,
) -> Option<&'name str> {
    names
        .into_iter()
        .filter_map(|name| near(word, name).map(|far| (far, name)))
        .min_by_key(|(far, _)| *far)
        .map(|(_, name)| name)
}

/// As [`distance`]; `None` if so many letters differ that the text hardly means the name.
pub(crate) fn near(word: &str, name: &str) -> Option<usize> {
    let letters = word.chars().count();
    distance(word, name).filter(|far| far.saturating_mul(2) <= letters)
}

/// Letters to add, drop or change; `None` beyond [`MAX_DISTANCE`].
fn distance(one: &str, other: &str) -> Option<usize> {
    // Lengths in bytes, of which a letter has up to four: names too far apart cost no table.
    if one.len() > MAX_NAME_BYTES || one.len().abs_diff(other.len()) > MAX_DISTANCE * 4 {
        return None;
    }
    let other: Vec<char> = other.chars().collect();
    // One row of Levenshtein's table at a time: a cell needs its neighbours alone.
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = at;
        let mut left = at + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, against) in row.iter_mut().skip(1).zip(&other) {
            let changed = diagonal + usize::from(letter != *against);
            diagonal = *cell;
            left = changed.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
    }
    row.last().copied().filter(|far| *far <= MAX_DISTANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_apart() {
        for (one, other, want) in [
            ("http", "http", Some(0)),
            ("htp", "http", Some(1)),
            ("htp", "tcp", Some(2)),
            ("route", "redirect", None),
            ("kitten", "sitting", Some(3)),
            ("", "tls", Some(3)),
            ("", "http", None),
            ("größe", "grosse", Some(3)),
        ] {
            assert_eq!(distance(one, other), want, "{one} {other}");
            assert_eq!(distance(other, one), want, "{other} {one}");
        }
    }

    #[test]
    fn the_nearest_is_said_and_of_two_the_first() {
        assert_eq!(nearest("htp", ["tcp", "tls", "http"]), Some("http"));
        assert_eq!(nearest("aa", ["ab", "ac"]), Some("ab"));
        assert_eq!(nearest("somethingElse", ["http"]), None);
        // Nearly every letter is another one.
        assert_eq!(nearest("foo", ["ca"]), None);
        assert_eq!(nearest("data", ["ca"]), None);
        assert_eq!(nearest("", ["tls"]), None);
        assert_eq!(nearest(&"a".repeat(100_000), ["http"]), None);
    }
}
