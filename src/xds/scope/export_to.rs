//! Namespaces that a rule or a service is exported to.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Namespaces that see a rule or a service.
#[derive(Debug)]
pub(super) enum ExportTo {
    All,
    Some(BTreeSet<Arc<str>>),
}

impl ExportTo {
    /// `.` is the own namespace, `*` all, `~` none.
    pub(super) fn of(entries: &[impl AsRef<str>], usual: &[String], own: &Arc<str>) -> Self {
        if entries.is_empty() {
            Self::read(usual.iter().map(String::as_str), own)
        } else {
            Self::read(entries.iter().map(AsRef::as_ref), own)
        }
    }

    fn read<'a>(entries: impl Iterator<Item = &'a str> + Clone, own: &Arc<str>) -> Self {
        let is_silent = entries.clone().next().is_none();
        // Where neither the object nor the mesh says a namespace, all see it (discovery.md §13).
        if is_silent || entries.clone().any(|entry| entry == "*") {
            return Self::All;
        }
        let namespaces = entries.filter(|entry| *entry != "~");
        Self::Some(
            namespaces
                .map(|entry| match entry {
                    "." => own.clone(),
                    name => name.into(),
                })
                .collect(),
        )
    }

    /// Returns true if this namespace sees it, and no other.
    pub(super) fn is_only(&self, namespace: &str) -> bool {
        match self {
            Self::All => false,
            Self::Some(names) => names.len() == 1 && names.contains(namespace),
        }
    }

    pub(super) fn has(&self, namespace: Option<&Arc<str>>) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => namespace.is_some_and(|name| names.contains(name)),
        }
    }
}

/// Namespaces that see it by their names.
pub(super) fn named(to: &ExportTo) -> impl Iterator<Item = Arc<str>> {
    let names = match to {
        ExportTo::All => None,
        ExportTo::Some(names) => Some(names),
    };
    names.into_iter().flatten().cloned()
}
