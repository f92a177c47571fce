//! Marks in a template's tree: texts that are passed to the output, which counts and does not print them.
//!
//! The engine writes a text of the tree from its place in memory, so a mark is known by its address, which no other text has
//! while the tree lives. A call that prints nothing would work as well, and cost ten times as much.

use std::sync::Arc;

/// The text of all marks. Any text may be equal, at another address.
const MARK_TEXT: &str = "\u{1}";

/// The marks of a template that is being rewritten, with their lines.
#[derive(Debug, Default)]
pub(super) struct NewMarks(Vec<(Arc<str>, usize)>);

impl NewMarks {
    /// Returns a new mark for a line.
    pub(super) fn add(&mut self, line: usize) -> Arc<str> {
        let mark: Arc<str> = Arc::from(MARK_TEXT);
        self.0.push((Arc::clone(&mark), line));
        mark
    }
}

/// The marks of one template with their lines, sorted by address.
#[derive(Debug)]
pub(super) struct Marks(Vec<(Arc<str>, usize)>);

impl From<NewMarks> for Marks {
    fn from(NewMarks(mut marks): NewMarks) -> Self {
        marks.sort_unstable_by_key(|(mark, _)| mark.as_ptr());
        Self(marks)
    }
}

impl Marks {
    /// Returns the line of a mark; `None` for any other text.
    pub(super) fn line(&self, text: &str) -> Option<usize> {
        if text.len() != MARK_TEXT.len() {
            return None;
        }
        let place = self
            .0
            .binary_search_by_key(&text.as_ptr(), |(mark, _)| mark.as_ptr());
        self.0.get(place.ok()?).map(|(_, line)| *line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_known_by_its_address() {
        let mut new = NewMarks::default();
        let made: Vec<_> = (0..100).map(|line| new.add(line)).collect();
        let marks = Marks::from(new);
        for (line, mark) in made.iter().enumerate() {
            assert_eq!(marks.line(mark), Some(line));
            let copy = String::from(mark.as_ref());
            assert_eq!(marks.line(&copy), None);
        }
        assert_eq!(marks.line(MARK_TEXT), None);
    }
}
