//! Parts of an object that cannot be used, and the parts of its version before that stay in their place: what is written wrong
//! changes nothing that is served.

use std::collections::BTreeMap;

/// Items of a list that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnusableParts {
    /// The field is no list.
    is_no_list: bool,
    parts: Vec<UnusablePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UnusablePart {
    /// The index in the list without the items that do not count.
    at: usize,
    name: Option<Box<str>>,
}

impl UnusableParts {
    pub(super) const fn is_empty(&self) -> bool {
        !self.is_no_list && self.parts.is_empty()
    }

    /// Bytes that it holds.
    pub(super) fn size(&self) -> usize {
        let names = self.parts.iter().filter_map(|part| part.name.as_deref());
        let names = names.map(str::len).sum::<usize>();
        size_of::<UnusablePart>().saturating_mul(self.parts.len()) + names
    }

    /// Adds an item behind so many that can be used.
    pub(super) fn add(&mut self, usable: usize, name: Option<&str>) {
        self.parts.push(UnusablePart {
            at: usable.saturating_add(self.parts.len()),
            name: name.map(Box::from),
        });
    }

    pub(super) const fn add_all(&mut self) {
        self.is_no_list = true;
    }

    /// Puts items of the version before into the places of those that cannot be used. A named one is the one of its name; another
    /// is the one at its index, or else the last of those that the list has no more. `is_there`: the list has a part of the version
    /// before, or one that excludes it. Returns true if any part stays.
    pub(super) fn fill<P: Clone>(
        &self,
        parts: &mut Vec<P>,
        before: &[P],
        is_there: impl Fn(&P) -> bool,
        name: impl Fn(&P) -> Option<String>,
    ) -> bool {
        if self.is_empty() {
            return false;
        }
        let missing = before.iter().enumerate();
        let missing = missing.filter(|(_, part)| !is_there(part));
        let mut missing: BTreeMap<usize, &P> = missing.collect();
        if self.is_no_list {
            let count = missing.len();
            parts.extend(missing.into_values().cloned());
            return count > 0;
        }
        let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, part) in missing.iter().rev() {
            if let Some(name) = name(part) {
                by_name.entry(name).or_default().push(*at);
            }
        }
        let mut kept: BTreeMap<usize, &P> = BTreeMap::new();
        for part in &self.parts {
            let named = part.name.as_deref().and_then(|name| by_name.get_mut(name));
            let old = named.and_then(Vec::pop).and_then(|at| missing.remove(&at));
            kept.extend(old.map(|old| (part.at, old)));
        }
        let unnamed = || self.parts.iter().filter(|part| part.name.is_none());
        for part in unnamed() {
            kept.extend(missing.remove(&part.at).map(|old| (part.at, old)));
        }
        for part in unnamed() {
            if !kept.contains_key(&part.at) {
                kept.extend(missing.pop_last().map(|(_, old)| (part.at, old)));
            }
        }
        let is_any = !kept.is_empty();
        let mut usable = std::mem::take(parts).into_iter();
        for (at, old) in kept {
            let more = at.saturating_sub(parts.len());
            parts.extend(usable.by_ref().take(more));
            parts.push(old.clone());
        }
        parts.extend(usable);
        is_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A letter in upper case cannot be used: `A` is named `a`, and `X` has no name.
    fn filled(before: &str, now: &str) -> String {
        let (mut unusable, mut parts) = (UnusableParts::default(), Vec::new());
        for letter in now.chars() {
            match letter {
                'X' => unusable.add(parts.len(), None),
                _ if letter.is_ascii_uppercase() => {
                    let name = letter.to_ascii_lowercase().to_string();
                    unusable.add(parts.len(), Some(&name));
                }
                _ => parts.push(letter),
            }
        }
        let before: Vec<_> = before.chars().collect();
        let count = parts.len();
        let name = |part: &char| Some(part.to_string());
        let is_any = unusable.fill(&mut parts, &before, |part| now.contains(*part), name);
        assert_eq!(is_any, parts.len() > count);
        parts.into_iter().collect()
    }

    #[test]
    fn parts_that_cannot_be_used_are_as_they_were() {
        for (before, now, expected) in [
            ("abc", "aBc", "abc"),
            // It was not there before.
            ("ac", "aBc", "ac"),
            ("abc", "aXc", "abc"),
            ("abc", "nabX", "nabc"),
            ("ab", "XXXX", "ab"),
            ("abc", "cX", "cb"),
            ("abc", "XB", "ab"),
            ("abc", "BX", "bc"),
            ("abc", "ac", "ac"),
            ("", "aX", "a"),
        ] {
            assert_eq!(filled(before, now), expected, "{before} {now}");
        }
        let mut all = UnusableParts::default();
        all.add_all();
        let mut parts = vec!['b'];
        assert!(all.fill(&mut parts, &['a', 'b'], |part| *part == 'b', |_| None));
        assert_eq!(parts, ['b', 'a']);
    }
}
