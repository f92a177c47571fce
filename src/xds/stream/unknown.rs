//! Names that a client asks for although there is nothing of them. A stream remembers them, for they may come to be there; so
//! they are bounded, as all is that a client can think of in any number.
//!
//! A name that was there when it was asked for and is gone later does not count: that is not the client's doing. Its string is
//! the one that all streams share.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::message::{Fault, NAME_BYTES, UNKNOWN_NAMES};
use crate::view::Type;

/// The unknown names of one stream, by type.
#[derive(Debug, Default)]
pub(super) struct UnknownNames([BTreeSet<Arc<str>>; 5]);

/// One request's names against what a stream has.
pub(super) struct RequestedNames<'a> {
    /// Sorted, each once.
    pub(super) names: &'a [&'a str],
    /// State of the world: there are no others from now on.
    pub(super) all: bool,
    /// The stream has it already.
    pub(super) is_held: &'a dyn Fn(&str) -> bool,
    /// Returns true if a resource has that name.
    pub(super) is_there: &'a dyn Fn(&str) -> bool,
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

    /// Takes a request's names in. If they are too many, or one is too long, nothing changes.
    pub(super) fn ask(&mut self, kind: Type, asked: &RequestedNames<'_>) -> Result<(), Fault> {
        let place = Self::at(kind);
        let of_others = self.0.iter().enumerate().filter(|(at, _)| *at != place);
        let others: usize = of_others.map(|(_, names)| names.len()).sum();
        let Some(known) = self.0.get_mut(place) else {
            return Ok(());
        };
        let mut next = BTreeSet::new();
        if !asked.all {
            let still = known.iter().filter(|name| !(asked.is_there)(name));
            next.extend(still.cloned());
        }
        for name in asked.names {
            let name = match known.get(*name) {
                Some(known) if !(asked.is_there)(name) => known.clone(),
                Some(_) => continue,
                None if (asked.is_held)(name) || (asked.is_there)(name) => continue,
                None if name.len() > NAME_BYTES => return Err(Fault::LongName(name.len())),
                None => Arc::from(*name),
            };
            next.insert(name);
            if others + next.len() > UNKNOWN_NAMES {
                return Err(Fault::UnknownNames);
            }
        }
        *known = next;
        Ok(())
    }

    /// Delta: these names are not asked for any more.
    pub(super) fn leave(&mut self, kind: Type, names: &[&str]) {
        if let Some(known) = self.0.get_mut(Self::at(kind)) {
            for name in names {
                known.remove(*name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(unknown: &mut UnknownNames, kind: Type, names: &[&str], all: bool) -> Result<(), Fault> {
        let asked = RequestedNames {
            names,
            all,
            is_held: &|name| name.starts_with("held"),
            is_there: &|name| name.starts_with("there"),
        };
        unknown.ask(kind, &asked)
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
            assert_eq!(
                ask(&mut unknown, Type::Endpoint, &refs(&many), true),
                Ok(())
            );
        }
        let some = names("x", UNKNOWN_NAMES - 1);
        assert_eq!(
            ask(&mut unknown, Type::Endpoint, &refs(&some), true),
            Ok(())
        );
        // All types together.
        assert_eq!(ask(&mut unknown, Type::Route, &["y"], false), Ok(()));
        let beyond = ask(&mut unknown, Type::Route, &["z"], false);
        assert_eq!(beyond, Err(Fault::UnknownNames));
        assert_eq!(
            ask(&mut unknown, Type::Route, &["z"], true),
            Ok(()),
            "instead"
        );
        assert_eq!(
            ask(&mut unknown, Type::Route, &["y"], false),
            Err(Fault::UnknownNames)
        );
        unknown.leave(Type::Route, &["z"]);
        assert_eq!(ask(&mut unknown, Type::Route, &["y"], false), Ok(()));
        // Others each time.
        for word in ["a", "b", "c"] {
            let some = names(word, UNKNOWN_NAMES - 1);
            assert_eq!(
                ask(&mut unknown, Type::Endpoint, &refs(&some), true),
                Ok(())
            );
        }
    }

    #[test]
    fn a_long_name_of_nothing_is_refused() {
        let mut unknown = UnknownNames::default();
        let [long, longer] = [NAME_BYTES, NAME_BYTES + 1].map(|length| "x".repeat(length));
        assert_eq!(ask(&mut unknown, Type::Cluster, &[&long], true), Ok(()));
        let beyond = ask(&mut unknown, Type::Cluster, &[&longer], true);
        assert_eq!(beyond, Err(Fault::LongName(NAME_BYTES + 1)));
        let there = format!("there{longer}");
        assert_eq!(ask(&mut unknown, Type::Cluster, &[&there], true), Ok(()));
    }
}
