//! Room that rules of many namespaces share.
//!
//! First come, first served would leave the room to whoever is first in order, and a tenant can see to that. So one half is reserved
//! for the namespaces that have rules, as much for each; the other half is for those who need more, in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::ObjectRef;

/// The room that is left.
#[derive(Debug)]
pub(crate) struct FairBudget {
    common: usize,
    /// Room for each namespace, while it has taken nothing.
    reserved: usize,
    of_rule: usize,
    by_namespace: BTreeMap<Arc<str>, usize>,
    /// `usize::MAX`: it was given up.
    by_rule: BTreeMap<ObjectRef, usize>,
}

impl FairBudget {
    /// `of_rule`: what one rule may have at most.
    pub(crate) fn new(all: usize, of_rule: usize, namespaces: usize) -> Self {
        let reserved = all / 2 / namespaces.max(1);
        Self {
            common: all - reserved * namespaces.max(1),
            reserved,
            of_rule,
            by_namespace: BTreeMap::new(),
            by_rule: BTreeMap::new(),
        }
    }

    /// Room that a rule still has; `None`: the rule was given up.
    pub(crate) fn of(&self, rule: &ObjectRef) -> Option<usize> {
        let spent = self.by_rule.get(rule).copied().unwrap_or_default();
        // A rule that was given up has spent `usize::MAX`, and the subtraction fails.
        let own = self.of_rule.checked_sub(spent)?;
        Some(own.min(self.reserved_for(rule).saturating_add(self.common)))
    }

    /// Returns true if a rule may spend so much; one that was given up may not.
    pub(crate) fn has_room_for(&self, rule: &ObjectRef, amount: usize) -> bool {
        self.of(rule).is_some_and(|room| amount <= room)
    }

    fn reserved_for(&self, rule: &ObjectRef) -> usize {
        let spent = self.by_namespace.get(&rule.namespace).copied();
        self.reserved.saturating_sub(spent.unwrap_or_default())
    }

    /// Spends bytes, or pieces: a budget counts in the unit that it was made with.
    pub(crate) fn spend(&mut self, rule: &ObjectRef, amount: usize) {
        // Before the namespace's spending rises: its reserve pays first, the common room pays the rest.
        let more = amount.saturating_sub(self.reserved_for(rule));
        self.common = self.common.saturating_sub(more);
        let of_namespace = self.by_namespace.entry(rule.namespace.clone());
        let of_namespace = of_namespace.or_default();
        *of_namespace = of_namespace.saturating_add(amount);
        let of_rule = self.by_rule.entry(rule.clone()).or_default();
        *of_rule = of_rule.saturating_add(amount);
    }

    /// Leaves a rule one of so many equal parts of what one rule may have: it has as much again elsewhere.
    pub(crate) fn divide(&mut self, rule: &ObjectRef, parts: usize) {
        let elsewhere = self.of_rule - self.of_rule / parts.max(1);
        let of_rule = self.by_rule.entry(rule.clone()).or_default();
        *of_rule = of_rule.saturating_add(elsewhere);
    }

    /// Excludes a rule from further tries; returns false if it was excluded before.
    pub(crate) fn give_up(&mut self, rule: &ObjectRef) -> bool {
        self.by_rule.insert(rule.clone(), usize::MAX) != Some(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(namespace: &str, name: &str) -> ObjectRef {
        ObjectRef {
            kind: "VirtualService",
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn the_first_rule_leaves_each_namespace_its_share() {
        let mut room = FairBudget::new(1000, 300, 5);
        // Of 1,000, five namespaces have 100 each; the first takes all that is common.
        let mut taken = 0;
        for name in ["a", "b", "c", "d"] {
            let rule = rule("first", name);
            let left = room.of(&rule).unwrap();
            room.spend(&rule, left);
            taken += left;
        }
        assert_eq!(taken, 600);
        assert_eq!(room.of(&rule("first", "e")), Some(0));
        for namespace in ["b", "c", "d", "e"] {
            let rule = rule(namespace, "one");
            assert_eq!(room.of(&rule), Some(100), "{namespace}");
            room.spend(&rule, 100);
        }
        // More than was said there would be.
        assert_eq!(room.of(&rule("f", "one")), Some(100));
    }

    #[test]
    fn one_rule_has_so_much_and_none_once_it_is_given_up() {
        let mut room = FairBudget::new(1000, 300, 0);
        let one = rule("a", "one");
        assert_eq!(room.of(&one), Some(300));
        room.spend(&one, 100);
        assert_eq!(room.of(&one), Some(200));
        room.spend(&one, usize::MAX);
        assert_eq!(room.of(&one), None);
        let other = rule("a", "other");
        assert_eq!(room.of(&other), Some(0));
        assert!(room.give_up(&other));
        assert_eq!(room.of(&other), None);
        assert!(!room.give_up(&other));
        let mut room = FairBudget::new(1000, 300, 0);
        let shared = rule("a", "shared");
        room.divide(&shared, 0);
        room.divide(&shared, 1);
        assert_eq!(room.of(&shared), Some(300));
        room.divide(&shared, 3);
        assert_eq!(room.of(&shared), Some(100));
    }
}
