//! Rounds: marks that are set faster than they are worked off keep none of the others waiting for ever.

use std::collections::BTreeSet;

/// Marked things, worked off in rounds: one that is marked again waits until all that were marked before it have had their turn.
#[derive(Debug)]
pub struct Rounds<T> {
    /// The rest of the present round.
    round: BTreeSet<T>,
    /// The marks of the next round.
    waiting: BTreeSet<T>,
    has_ended_one: bool,
}

impl<T> Rounds<T> {
    pub const fn new() -> Self {
        Self {
            round: BTreeSet::new(),
            waiting: BTreeSet::new(),
            has_ended_one: false,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.round.is_empty() && self.waiting.is_empty()
    }

    /// Returns true if a round has ended, or nothing is marked: all that was marked when the work began is done.
    pub fn has_ended_one(&self) -> bool {
        self.has_ended_one || self.is_empty()
    }
}

impl<T: Ord> Rounds<T> {
    /// Takes the first thing of the round. The next round begins where none is left.
    pub fn pop_first(&mut self) -> Option<T> {
        if self.round.is_empty() {
            self.round = std::mem::take(&mut self.waiting);
        }
        let first = self.round.pop_first()?;
        // It is done as it is now: the later mark has no work left.
        self.waiting.remove(&first);
        self.has_ended_one |= self.round.is_empty();
        Some(first)
    }

    /// Returns true if a thing is marked.
    pub fn contains(&self, thing: &T) -> bool {
        self.round.contains(thing) || self.waiting.contains(thing)
    }
}

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Ord> Extend<T> for Rounds<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, things: I) {
        self.waiting.extend(things);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_marked_again_waits_for_the_others() {
        let mut rounds = Rounds::new();
        rounds.extend(['a', 'b', 'c']);
        let mut order = Vec::new();
        for _ in 0..6 {
            order.extend(rounds.pop_first());
            rounds.extend(['a']);
        }
        assert_eq!(order, ['a', 'b', 'c', 'a', 'a', 'a']);
    }

    #[test]
    fn the_first_round_ends_although_others_follow() {
        let mut rounds = Rounds::new();
        rounds.extend(['a', 'b']);
        assert_eq!(rounds.pop_first(), Some('a'));
        assert!(rounds.contains(&'b') && !rounds.contains(&'a'));
        rounds.extend(['a', 'b']);
        assert!(rounds.contains(&'b') && rounds.contains(&'a'));
        assert!(!rounds.has_ended_one());
        assert_eq!(rounds.pop_first(), Some('b'));
        assert!(rounds.has_ended_one() && !rounds.is_empty());
        assert_eq!((rounds.pop_first(), rounds.pop_first()), (Some('a'), None));
        assert!(rounds.is_empty());
    }
}
