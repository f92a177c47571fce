//! Rules with selectors that hold for sidecars alone. A router that one of them selects takes nothing of it.

use api::model::{Labels, ObjectRef};

use super::Rule;
use crate::common::conflict::Conflict;

/// A rule for sidecars that its selector finds.
#[derive(Clone, Debug)]
pub(crate) struct SelectingRule {
    pub(crate) from: ObjectRef,
    pub(crate) selector: Labels,
    /// The metric and the words that say that it finds routers alone.
    reason: (&'static str, &'static str),
}

impl SelectingRule {
    pub(super) fn new<T>(
        rule: &Rule<T>,
        selector: Labels,
        reason: (&'static str, &'static str),
    ) -> Self {
        Self {
            from: rule.from.clone(),
            selector,
            reason,
        }
    }

    /// The conflict of a rule that selects routers and nobody else.
    pub(crate) fn conflict(&self) -> Conflict {
        let (metric, message) = self.reason;
        let conflict = Conflict::new(metric, self.from.to_string(), message.to_owned());
        conflict.because_of(&self.from)
    }
}
