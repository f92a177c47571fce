//! Namespaces that a rule is exported to.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Namespaces that see a rule.
#[derive(Debug)]
pub(super) enum Audience {
    All,
    Some(BTreeSet<Arc<str>>),
}

impl Audience {
    /// `.` is the rule's own namespace, `*` all, `~` none.
    pub(super) fn of(written: &[String], usual: &[String], own: &Arc<str>) -> Self {
        let words = if written.is_empty() { usual } else { written };
        if words.is_empty() || words.iter().any(|word| word == "*") {
            return Self::All;
        }
        let named = words.iter().filter(|word| *word != "~");
        Self::Some(
            named
                .map(|word| match word.as_str() {
                    "." => own.clone(),
                    name => name.into(),
                })
                .collect(),
        )
    }

    pub(super) fn has(&self, namespace: Option<&Arc<str>>) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => namespace.is_some_and(|name| names.contains(name)),
        }
    }
}

/// Namespaces that see it by their names.
pub(super) fn named(to: &Audience) -> impl Iterator<Item = Arc<str>> {
    let names = match to {
        Audience::All => None,
        Audience::Some(names) => Some(names),
    };
    names.into_iter().flatten().cloned()
}
