//! The place of a walk in an object, as findings say it.

use crate::finding::{push_index, push_key};

/// A path that grows and shrinks with the walk.
#[derive(Debug, Default)]
pub(super) struct Path {
    text: String,
}

impl Path {
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Down to a field, or to the value of a key. The length to go back to.
    pub(super) fn enter(&mut self, name: &str) -> usize {
        let length = self.text.len();
        push_key(&mut self.text, name);
        length
    }

    /// Down to an item of a list.
    pub(super) fn enter_item(&mut self, at: usize) -> usize {
        let length = self.text.len();
        push_index(&mut self.text, at);
        length
    }

    pub(super) fn back(&mut self, length: usize) {
        self.text.truncate(length);
    }
}
