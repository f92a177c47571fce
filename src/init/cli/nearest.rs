//! "Did you mean": the known word that is the fewest edits away.

#![forbid(unsafe_code)]

/// Longer words are not compared: the cost is the product of the lengths, and nobody mistypes that much.
const LONGEST: usize = 64;

/// The nearest of `known`, unless it is so far that naming it would only confuse.
pub(super) fn nearest(
    word: &str,
    known: &mut dyn Iterator<Item = &'static str>,
) -> Option<&'static str> {
    if word.len() > LONGEST {
        return None;
    }
    let (distance, near) = known
        .map(|candidate| (distance(word, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= word.len() / 3 + 1).then_some(near)
}

/// Levenshtein's distance in bytes.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = i;
        let mut before = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(right.bytes()) {
            let cost = diagonal + usize::from(a != b);
            diagonal = *cell;
            before = cost.min(diagonal + 1).min(before + 1);
            *cell = before;
        }
        // The first column is the length of what was read of `left`.
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let table = [
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("proxy", "proxy", 0),
            ("porxy", "proxy", 2),
        ];
        for (left, right, expected) in table {
            assert_eq!(distance(left, right), expected, "{left} {right}");
        }
    }

    #[test]
    fn far_words_are_not_named() {
        let known = ["proxy", "init", "version"];
        assert_eq!(nearest("prox", &mut known.into_iter()), Some("proxy"));
        assert_eq!(nearest("inti", &mut known.into_iter()), Some("init"));
        assert_eq!(nearest("collateral", &mut known.into_iter()), None);
        assert_eq!(nearest(&"x".repeat(1000), &mut known.into_iter()), None);
    }
}
