//! Operations on one of several: filters of a chain, routes of a host.

use api::networking::envoy_filter::patch::Operation;
use prost::{Message, Name};

use super::PatchBudget;
use crate::scope::envoy_filters::Patch;

/// The items of a list that a patch is for.
pub(super) struct ListOperation<'a, T> {
    /// Returns true if the patch is for this item.
    pub(super) is_meant: &'a dyn Fn(&T) -> bool,
    /// The patch says which one; else all are meant.
    pub(super) is_chosen: bool,
    /// Returns true if no item may be behind this one: added ones come before it.
    pub(super) is_last: &'a dyn Fn(&T) -> bool,
}

impl<T: Message + Default + Name> ListOperation<'_, T> {
    /// Applies a patch to the items.
    pub(super) fn apply(&self, items: &mut Vec<T>, patch: &Patch, work: &PatchBudget<'_>) {
        let at = match patch.operation {
            Operation::Remove => {
                let before = items.len();
                items.retain(|item| !(self.is_meant)(item));
                if items.len() < before {
                    work.touch();
                }
                return;
            }
            Operation::Merge | Operation::MergeAndReplaceList => {
                let meant = items.iter_mut().filter(|item| (self.is_meant)(item));
                meant.for_each(|item| work.change(patch, item));
                return;
            }
            // All of them would be one and the same.
            Operation::Replace => {
                let meant = items
                    .iter_mut()
                    .filter(|item| self.is_chosen && (self.is_meant)(item));
                meant.for_each(|item| work.change(patch, item));
                return;
            }
            Operation::InsertAfter if self.is_chosen => {
                items.iter().position(self.is_meant).map(|at| at + 1)
            }
            // Behind none in particular is the end of the list.
            Operation::Add | Operation::InsertAfter => {
                let ends = items.last().is_some_and(self.is_last);
                Some(items.len() - usize::from(ends))
            }
            Operation::InsertFirst => Some(0),
            Operation::InsertBefore if self.is_chosen => items.iter().position(self.is_meant),
            Operation::InsertBefore => Some(0),
            Operation::Invalid => None,
        };
        if let Some(at) = at
            && let Some(value) = work.value(patch)
        {
            items.insert(at, value);
            work.touch();
        }
    }
}
