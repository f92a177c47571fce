//! Names that a client asks for although there is nothing of them. A stream remembers them, for they may come to be there; so
//! they are bounded, as all is that a client can think of in any number. A client may have been told of more of them by a server
//! that it had before: those beyond the bound are answered once and not remembered.
//!
//! A client may have thousands of streams, so that those of one address have a bound together, too: what a stream remembers, and
//! what it answers until that is written. Names beyond it are those beyond the bound of the stream.
//!
//! A name that was there when it was asked for and is gone later does not count: that is not the client's doing. Its string is
//! the one that all streams share.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::message::{Fault, MAX_NAME_BYTES, OWED_BYTES, UNKNOWN_NAMES};
use super::name_budget::{NameBudget, cost, total_cost};
use crate::version::Version;
use crate::view::Type;

/// The unknown names of one stream.
#[derive(Debug, Default)]
pub(super) struct UnknownNames {
    by_type: [UnknownNamesOfType; 5],
    budget: Arc<NameBudget>,
    /// The cost of names that are answered: the response is not written yet.
    answering: usize,
}

#[derive(Debug, Default)]
struct UnknownNamesOfType {
    remembered: BTreeSet<Arc<str>>,
    /// Beyond the bound: the next response says that there is nothing of them.
    owed: Vec<Arc<str>>,
    /// That response could not be built: its names go with the next one of the type.
    waits: bool,
    /// State of the world: all beyond the bound in the last request. Each acknowledgement has them once more.
    last: Option<Version>,
}

/// One request's names against what a stream has.
pub(super) struct RequestedNames<'a, 'n> {
    /// Sorted, each once.
    pub(super) names: &'n [&'n str],
    /// State of the world: there are no others from now on.
    pub(super) all: bool,
    /// A response can say that there is nothing of a name.
    pub(super) signals_absence: bool,
    /// The stream has it already.
    pub(super) is_subscribed: &'a dyn Fn(&str) -> bool,
    /// Returns true if a resource has that name.
    pub(super) is_there: &'a dyn Fn(&str) -> bool,
}

/// Bytes that a name takes while it waits for its answer.
const fn size(name: &str) -> usize {
    name.len()
        .saturating_add(size_of::<(Arc<str>, [usize; 2])>())
}

impl UnknownNames {
    const fn at(kind: Type) -> usize {
        match kind {
            Type::Cluster => 0,
            Type::Endpoint => 1,
            Type::Listener => 2,
            Type::Route => 3,
            Type::Secret => 4,
        }
    }

    /// Makes the stream share the bytes of an address with others. It has no names yet.
    pub(super) fn share(&mut self, budget: Arc<NameBudget>) {
        self.budget = budget;
    }

    /// Takes a request's names in, and returns those that the stream is to have: not those beyond the bound. If one is too long,
    /// nothing changes.
    pub(super) fn subscribe<'n>(
        &mut self,
        kind: Type,
        asked: &RequestedNames<'_, 'n>,
    ) -> Result<Cow<'n, [&'n str]>, Fault> {
        let place = Self::at(kind);
        let of_others = self.by_type.iter().enumerate();
        let of_others = of_others.filter(|(at, _)| *at != place);
        let others: usize = of_others.map(|(_, one)| one.remembered.len()).sum();
        let Some(known) = self.by_type.get_mut(place) else {
            return Ok(Cow::Borrowed(asked.names));
        };
        // Those that are remembered stay, whichever comes before them.
        let stays = |name: &&Arc<str>| {
            let is_asked = !asked.all || asked.names.binary_search(&&***name).is_ok();
            is_asked && !(asked.is_there)(name)
        };
        let mut next: BTreeSet<_> = known.remembered.iter().filter(stays).cloned().collect();
        let mut beyond = Vec::new();
        let mut taken = 0;
        for name in asked.names {
            if known.remembered.contains(*name)
                || (asked.is_subscribed)(name)
                || (asked.is_there)(name)
            {
                continue;
            }
            if name.len() > MAX_NAME_BYTES {
                self.budget.remembered.give_back(taken);
                return Err(Fault::LongName(name.len()));
            }
            if others + next.len() < UNKNOWN_NAMES && self.budget.remembered.take(cost(name)) {
                taken += cost(name);
                next.insert(Arc::from(*name));
            } else {
                beyond.push(*name);
            }
        }
        let gone = known.remembered.difference(&next);
        self.budget.remembered.give_back(total_cost(gone));
        known.remembered = next;
        // One hash stands for the names beyond the bound, which a client may choose in any number.
        let last = (!beyond.is_empty()).then(|| Version::of(beyond.join("\0").as_bytes()));
        let repeats = asked.all && last == known.last;
        known.last = last.filter(|_| asked.all);
        if asked.all && !repeats {
            // This request stands in the place of the earlier one.
            self.budget.answered.give_back(total_cost(&known.owed));
            known.owed.clear();
        }
        if beyond.is_empty() {
            return Ok(Cow::Borrowed(asked.names));
        }
        let accepted = asked.names.iter().copied();
        let accepted = accepted.filter(|name| beyond.binary_search(name).is_err());
        let accepted = Cow::Owned(accepted.collect());
        if asked.signals_absence && !repeats {
            self.answer(kind, &beyond);
        }
        Ok(accepted)
    }

    /// The next response says that there is nothing of these. Returns false if they are too many: it says that of some.
    pub(super) fn answer(&mut self, kind: Type, names: &[&str]) -> bool {
        let waiting = self.by_type.iter().flat_map(|one| &one.owed);
        let mut total: usize = waiting.map(|name| size(name)).sum();
        let Some(known) = self.by_type.get_mut(Self::at(kind)) else {
            return false;
        };
        for name in names {
            total = total.saturating_add(size(name));
            if total > OWED_BYTES || !self.budget.answered.take(cost(name)) {
                return false;
            }
            known.owed.push(Arc::from(*name));
            known.waits = false;
        }
        true
    }

    /// Takes the bytes of a name that the client reports to have, until a response is written: it says that there is nothing of it.
    pub(super) fn reserve(&mut self, name: &str) -> bool {
        let is_taken = self.budget.answered.take(cost(name));
        if is_taken {
            self.answering += cost(name);
        }
        is_taken
    }

    /// The response was written.
    pub(super) fn written(&mut self) {
        let answered = std::mem::take(&mut self.answering);
        self.budget.answered.give_back(answered);
    }

    /// Returns true if a response is owed to names beyond the bound.
    pub(super) fn owes(&self, kind: Type) -> bool {
        let known = self.by_type.get(Self::at(kind));
        known.is_some_and(|known| !known.owed.is_empty() && !known.waits)
    }

    /// Gives up a response that cannot be made: its names wait for another one.
    pub(super) fn give_up(&mut self, kind: Type) {
        if let Some(known) = self.by_type.get_mut(Self::at(kind)) {
            known.waits = true;
        }
    }

    /// A new push may build what could not be built.
    pub(super) fn retry(&mut self) {
        self.by_type
            .iter_mut()
            .for_each(|known| known.waits = false);
    }

    /// The names beyond the bound that the next response speaks of.
    pub(super) fn take_owed(&mut self, kind: Type) -> Vec<Arc<str>> {
        let known = self.by_type.get_mut(Self::at(kind));
        let owed = known.map_or_else(Vec::new, |known| std::mem::take(&mut known.owed));
        self.answering += total_cost(&owed);
        owed
    }

    /// Delta: these names are not asked for any more.
    pub(super) fn unsubscribe(&mut self, kind: Type, names: &[&str]) {
        if let Some(known) = self.by_type.get_mut(Self::at(kind)) {
            for name in names {
                if let Some(name) = known.remembered.take(*name) {
                    self.budget.remembered.give_back(cost(&name));
                }
            }
            let is_gone = |name: &mut Arc<str>| names.binary_search(&&**name).is_ok();
            let gone: Vec<_> = known.owed.extract_if(.., is_gone).collect();
            self.budget.answered.give_back(total_cost(&gone));
        }
    }
}

impl Drop for UnknownNames {
    fn drop(&mut self) {
        let remembered = self.by_type.iter().flat_map(|one| &one.remembered);
        self.budget.remembered.give_back(total_cost(remembered));
        let owed = self.by_type.iter().flat_map(|one| &one.owed);
        let answered = self.answering.saturating_add(total_cost(owed));
        self.budget.answered.give_back(answered);
    }
}

#[cfg(test)]
mod tests {
    use super::super::name_budget::MAX_ADDRESS_BYTES;
    use super::*;

    /// The number of names that are kept.
    fn subscribe(
        unknown: &mut UnknownNames,
        kind: Type,
        names: &[&str],
        all: bool,
    ) -> Result<usize, Fault> {
        let asked = RequestedNames {
            names,
            all,
            signals_absence: true,
            is_subscribed: &|name| name.starts_with("held"),
            is_there: &|name| name.starts_with("there"),
        };
        unknown.subscribe(kind, &asked).map(|known| known.len())
    }

    fn names(word: &str, count: usize) -> Vec<String> {
        (0..count).map(|at| format!("{word}{at:06}")).collect()
    }

    fn refs(names: &[String]) -> Vec<&str> {
        names.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_thousand_names_of_nothing_are_remembered() {
        let mut unknown = UnknownNames::default();
        for word in ["held", "there"] {
            let many = names(word, 50_000);
            let known = subscribe(&mut unknown, Type::Endpoint, &refs(&many), true);
            assert_eq!(known, Ok(50_000));
        }
        let some = names("x", UNKNOWN_NAMES - 1);
        let known = subscribe(&mut unknown, Type::Endpoint, &refs(&some), true);
        assert_eq!(known, Ok(UNKNOWN_NAMES - 1));
        // All types together.
        assert_eq!(subscribe(&mut unknown, Type::Route, &["y"], false), Ok(1));
        assert!(!unknown.owes(Type::Route));
        assert_eq!(subscribe(&mut unknown, Type::Route, &["z"], false), Ok(0));
        assert_eq!(unknown.take_owed(Type::Route), ["z".into()]);
        assert_eq!(
            subscribe(&mut unknown, Type::Route, &["z"], true),
            Ok(1),
            "instead"
        );
        assert_eq!(subscribe(&mut unknown, Type::Route, &["y"], false), Ok(0));
        unknown.unsubscribe(Type::Route, &["y", "z"]);
        assert!(!unknown.owes(Type::Route));
        assert_eq!(subscribe(&mut unknown, Type::Route, &["y"], false), Ok(1));
        // Others each time.
        for word in ["a", "b", "c"] {
            let some = names(word, UNKNOWN_NAMES - 1);
            let known = subscribe(&mut unknown, Type::Endpoint, &refs(&some), true);
            assert_eq!(known, Ok(UNKNOWN_NAMES - 1));
        }
    }

    /// Those that come first in the alphabet take nothing from those that were there before.
    #[test]
    fn names_beyond_the_bound_are_answered_once() {
        let mut unknown = UnknownNames::default();
        let (first, more) = (names("x", UNKNOWN_NAMES), names("a", 500));
        subscribe(&mut unknown, Type::Endpoint, &refs(&first), true).unwrap();
        let all = [refs(&more), refs(&first)].concat();
        for expected in [500, 0, 0] {
            let known = subscribe(&mut unknown, Type::Endpoint, &all, true);
            assert_eq!(known, Ok(UNKNOWN_NAMES));
            assert_eq!(unknown.take_owed(Type::Endpoint).len(), expected);
        }
        // Others are others, and whoever comes back is told again.
        let known = subscribe(&mut unknown, Type::Endpoint, &all[1..], true);
        assert_eq!(known, Ok(UNKNOWN_NAMES));
        assert_eq!(unknown.take_owed(Type::Endpoint).len(), 499);
        subscribe(&mut unknown, Type::Endpoint, &refs(&first), true).unwrap();
        assert!(!unknown.owes(Type::Endpoint));
        subscribe(&mut unknown, Type::Endpoint, &all, true).unwrap();
        assert_eq!(unknown.take_owed(Type::Endpoint).len(), 500);
    }

    #[test]
    fn answers_that_wait_are_bounded() {
        let mut unknown = UnknownNames::default();
        let many = names("x", 50_000);
        for kind in Type::ALL {
            subscribe(&mut unknown, kind, &refs(&many), false).unwrap();
            subscribe(&mut unknown, kind, &refs(&many), false).unwrap();
        }
        let all = unknown.by_type.iter().flat_map(|one| &one.owed);
        let total: usize = all.map(|name| size(name)).sum();
        assert!(total <= OWED_BYTES && total > OWED_BYTES * 9 / 10);
        assert!(!unknown.answer(
            Type::Cluster,
            &["one more, which is longer than what is left"; 2]
        ));
    }

    /// Six hundred streams of one address took all the memory that the manifest allows.
    #[test]
    fn streams_of_one_address_share_their_bytes() {
        let budget = Arc::new(NameBudget::default());
        let stream = || {
            let mut unknown = UnknownNames::default();
            unknown.share(Arc::clone(&budget));
            unknown
        };
        let long = names(&"x".repeat(MAX_NAME_BYTES - 6), UNKNOWN_NAMES);
        let mut streams = vec![stream()];
        while subscribe(
            streams.last_mut().unwrap(),
            Type::Endpoint,
            &refs(&long),
            true,
        ) == Ok(UNKNOWN_NAMES)
        {
            streams.push(stream());
        }
        assert_eq!(
            streams.len(),
            1 + MAX_ADDRESS_BYTES / (UNKNOWN_NAMES * (MAX_NAME_BYTES + 256))
        );
        // Each is still answered, if it reads its answers.
        let mut more = stream();
        for _ in 0..100 {
            assert_eq!(
                subscribe(&mut more, Type::Route, &refs(&long), false),
                Ok(0)
            );
            assert!(more.take_owed(Type::Route).len() > 900);
            more.written();
        }
        while subscribe(
            streams.last_mut().unwrap(),
            Type::Route,
            &refs(&long),
            false,
        )
        .is_ok()
            && streams.last().unwrap().owes(Type::Route)
        {
            streams.push(stream());
        }
        let answered = MAX_ADDRESS_BYTES / (UNKNOWN_NAMES * (MAX_NAME_BYTES + 256));
        assert!(streams.len() <= 2 * answered + 10, "{}", streams.len());
        // Another address has its own.
        let mut other = UnknownNames::default();
        let known = subscribe(&mut other, Type::Endpoint, &refs(&long), true);
        assert_eq!(known, Ok(UNKNOWN_NAMES));
        drop((streams, more));
        assert_eq!(budget.used(), [0, 0]);
    }

    #[test]
    fn bytes_are_given_back_with_their_names() {
        let budget = Arc::new(NameBudget::default());
        let mut unknown = UnknownNames::default();
        unknown.share(Arc::clone(&budget));
        let used = || budget.used().map(|bytes| bytes / cost("x"));
        let ask = |unknown: &mut UnknownNames, names: &[&str], all| {
            subscribe(unknown, Type::Endpoint, names, all).unwrap()
        };
        ask(&mut unknown, &["a", "b", "c"], false);
        assert_eq!(used(), [3, 0]);
        ask(&mut unknown, &["c", "d"], true);
        assert_eq!(used(), [2, 0]);
        let longer = "x".repeat(MAX_NAME_BYTES + 1);
        let refused = subscribe(&mut unknown, Type::Endpoint, &["e", &longer], true);
        assert!(refused.is_err() && used() == [2, 0]);
        unknown.unsubscribe(Type::Endpoint, &["c", "z"]);
        assert_eq!(used(), [1, 0]);
        assert!(unknown.answer(Type::Cluster, &["f", "g"]) && unknown.reserve("h"));
        assert_eq!(used(), [1, 3]);
        unknown.unsubscribe(Type::Cluster, &["f"]);
        assert_eq!(unknown.take_owed(Type::Cluster).len(), 1);
        assert_eq!(used(), [1, 2]);
        unknown.written();
        assert_eq!(used(), [1, 0]);
        drop(unknown);
        assert_eq!(used(), [0, 0]);
    }

    #[test]
    fn a_long_name_of_nothing_is_refused() {
        let mut unknown = UnknownNames::default();
        let [long, longer] = [MAX_NAME_BYTES, MAX_NAME_BYTES + 1].map(|length| "x".repeat(length));
        assert_eq!(
            subscribe(&mut unknown, Type::Cluster, &[&long], true),
            Ok(1)
        );
        let beyond = subscribe(&mut unknown, Type::Cluster, &[&longer], true);
        assert_eq!(beyond, Err(Fault::LongName(MAX_NAME_BYTES + 1)));
        let there = format!("there{longer}");
        assert_eq!(
            subscribe(&mut unknown, Type::Cluster, &[&there], true),
            Ok(1)
        );
    }
}
