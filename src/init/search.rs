//! Searches for a text in a text, byte by byte: `str`'s own, which prepare the search of long ones, are 3 kB of the program.

#![forbid(unsafe_code)]

/// Returns the text before the first `mark`, and the text behind it.
pub(crate) fn split_once<'t>(text: &'t str, mark: &str) -> Option<(&'t str, &'t str)> {
    let first = mark.bytes().next()?;
    let bytes = text.as_bytes();
    let is_there = |(at, byte): &(usize, &u8)| {
        **byte == first
            && bytes
                .get(*at..)
                .is_some_and(|rest| rest.starts_with(mark.as_bytes()))
    };
    let (at, _) = bytes.iter().enumerate().find(is_there)?;
    Some((text.get(..at)?, text.get(at + mark.len()..)?))
}

pub(crate) fn contains(text: &str, mark: &str) -> bool {
    split_once(text, mark).is_some()
}

/// Returns true if `list`, with blanks between its words, has this one. A table of texts takes 16 bytes more for each.
#[inline(never)]
pub(crate) fn is_one_of(word: &str, list: &str) -> bool {
    !word.is_empty() && list.split(' ').any(|known| known == word)
}

/// `text` with `new` for every `mark`.
pub(crate) fn replace(text: &str, mark: &str, new: &str) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some((before, after)) = split_once(rest, mark) {
        replaced.push_str(before);
        replaced.push_str(new);
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

/// Returns the text before the last `mark`, an ASCII character, and the text behind it.
pub(crate) fn split_last(text: &str, mark: u8) -> Option<(&str, &str)> {
    let behind = behind_last(text, mark);
    Some((text.get(..behind.checked_sub(1)?)?, text.get(behind..)?))
}

/// Returns the position behind the last `mark`, an ASCII character: 0 without one.
#[inline(never)]
pub(crate) fn behind_last(text: &str, mark: u8) -> usize {
    let at = text.bytes().rposition(|byte| byte == mark);
    at.map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_mark_is_found_as_str_finds_it(text in "[aäb]{0,12}", mark in "[aäb]{1,3}", new in "[aä]{0,2}") {
            prop_assert_eq!(split_once(&text, &mark), text.split_once(mark.as_str()));
            prop_assert_eq!(contains(&text, &mark), text.contains(mark.as_str()));
            prop_assert_eq!(replace(&text, &mark, &new), text.replace(mark.as_str(), &new));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_last_mark_is_found_as_str_finds_it(text in "[aäb:]{0,12}") {
            prop_assert_eq!(split_last(&text, b':'), text.rsplit_once(':'));
            prop_assert_eq!(&text[behind_last(&text, b':')..], text.rsplit(':').next().unwrap());
        }
    }

    #[test]
    fn nothing_is_found_nowhere() {
        assert_eq!(split_once("a", ""), None);
        assert_eq!(replace("a", "", "b"), "a");
    }
}
