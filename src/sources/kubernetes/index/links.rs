//! An index of look-ups, in both directions: from a looker to its targets, and back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::kind::Key;

/// The target of a look-up, existing or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LookupTarget {
    Pod(Key),
    /// The pod that has this address.
    Address(IpAddr),
    Node(Box<str>),
    Namespace(Box<str>),
}

/// The index. Most lists have one or two entries, and there are as many of them as endpoints: sorted like a set, but small.
#[derive(Debug, Default)]
pub(super) struct Links {
    targets: BTreeMap<Key, Box<[LookupTarget]>>,
    lookers: BTreeMap<LookupTarget, Vec<Key>>,
}

impl Links {
    /// Replaces the targets of a looker.
    pub(super) fn set(&mut self, looker: &Key, targets: BTreeSet<LookupTarget>) {
        let before = self.targets.remove(looker).unwrap_or_default();
        for target in before.iter().filter(|target| !targets.contains(target)) {
            self.cut(looker, target);
        }
        for target in &targets {
            if before.binary_search(target).is_err() {
                let lookers = self.lookers.entry(target.clone()).or_default();
                if let Err(at) = lookers.binary_search(looker) {
                    lookers.insert(at, looker.clone());
                }
            }
        }
        if !targets.is_empty() {
            let targets = targets.into_iter().collect();
            self.targets.insert(looker.clone(), targets);
        }
    }

    fn cut(&mut self, looker: &Key, target: &LookupTarget) {
        let Some(lookers) = self.lookers.get_mut(target) else {
            return;
        };
        if let Ok(at) = lookers.binary_search(looker) {
            lookers.remove(at);
        }
        if lookers.is_empty() {
            self.lookers.remove(target);
        }
    }

    /// Iterates over the lookers of a target.
    pub(super) fn of(&self, target: &LookupTarget) -> impl Iterator<Item = &Key> {
        self.lookers.get(target).into_iter().flatten()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.lookers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_two_ends_and_goes_as_a_whole() {
        let (a, b) = (Key::new("x", "a"), Key::new("x", "b"));
        let node = |name: &str| LookupTarget::Node(name.into());
        let mut links = Links::default();
        links.set(&a, [node("1"), node("2")].into());
        links.set(&b, [node("2")].into());
        assert_eq!(links.of(&node("2")).collect::<Vec<_>>(), [&a, &b]);
        links.set(&a, [node("3")].into());
        assert_eq!(links.of(&node("1")).count(), 0);
        assert_eq!(links.of(&node("2")).collect::<Vec<_>>(), [&b]);
        links.set(&a, BTreeSet::new());
        links.set(&b, BTreeSet::new());
        assert!(links.is_empty());
    }
}
