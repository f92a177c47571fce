//! Hosts of a server, each with the namespaces whose rules may have it, and what they have in common with hosts of rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names::canonical_host;

use crate::common::steps::step;
use crate::scope::patterns;
use crate::scope::virtual_service_limits::HostNames;

/// Namespaces whose rules may have a host; empty: all.
type Namespaces = Vec<Arc<str>>;

/// Hosts of a server: `HOST`, `NAMESPACE/HOST`, `./HOST`, `*/HOST`. In lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerHosts {
    /// Each from its end, so that those that end alike stand together.
    reversed: BTreeMap<String, Namespaces>,
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

impl ServerHosts {
    /// Reads the hosts of a server as they are written, in a Gateway of this namespace.
    pub(crate) fn new(written: &[String], namespace: &Arc<str>) -> Self {
        let mut hosts = Self::default();
        for one in written {
            let (of, host) = one.split_once('/').unwrap_or(("*", one));
            let host = canonical_host(host);
            let of: Option<Arc<str>> = match of {
                "*" => None,
                "." => Some(namespace.clone()),
                of => Some(of.into()),
            };
            let key = reversed(&host);
            match (hosts.reversed.get_mut(&key), of) {
                (None, of) => {
                    hosts.reversed.insert(key, of.into_iter().collect());
                }
                (Some(namespaces), None) => namespaces.clear(),
                (Some(namespaces), Some(of))
                    if !namespaces.is_empty() && !namespaces.contains(&of) =>
                {
                    namespaces.push(of);
                }
                (Some(_), Some(_)) => {}
            }
        }
        hosts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reversed.is_empty()
    }

    /// Returns the hosts without those for which `is_reserved` holds; it is asked about each in order.
    pub(crate) fn without(&self, mut is_reserved: impl FnMut(&str) -> bool) -> Self {
        let all = self.reversed.iter();
        let remaining = all.filter(|(host, _)| !is_reserved(&reversed(host)));
        Self {
            reversed: remaining
                .map(|(host, of)| (host.clone(), of.clone()))
                .collect(),
        }
    }

    /// Returns true if this very host, or wildcard, is one of them.
    pub(crate) fn has(&self, host: &str) -> bool {
        self.reversed.contains_key(&reversed(host))
    }

    /// Returns all hosts, without regard to namespaces.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.reversed.keys().map(|host| reversed(host))
    }

    /// Its hosts that a host or a wildcard of a rule of this namespace means as well: the narrower of each two.
    fn each<'a>(&'a self, host: &'a str, namespace: &'a str) -> impl Iterator<Item = String> + 'a {
        let (is_covered, below) = self.covering_and_below(host, namespace);
        let own = is_covered.then(|| host.to_owned());
        own.into_iter().chain(below.map(|one| reversed(one)))
    }

    /// Returns true if one of its hosts covers the rule's, and else its own hosts below that, each from its end.
    fn covering_and_below<'a>(
        &'a self,
        host: &'a str,
        namespace: &'a str,
    ) -> (bool, impl Iterator<Item = &'a String> + 'a) {
        let is_open =
            move |of: &Namespaces| of.is_empty() || of.iter().any(|one| **one == *namespace);
        let covering = patterns(host);
        let mut covering = covering.iter();
        let is_covered = covering.any(|one| self.reversed.get(&reversed(one)).is_some_and(is_open));
        // A host of the server that covers the rule's has all below it: narrower ones are not named.
        let suffix = host.strip_prefix('*').filter(|_| !is_covered);
        let end = suffix.map(reversed);
        let from = end.clone().unwrap_or_default();
        let below = self.reversed.range::<String, _>(from..);
        let is_below = move |one: &String| {
            let end = end.as_ref();
            end.is_some_and(|end| step(|| one.starts_with(end)))
        };
        let below = below
            .take_while(move |(one, _)| is_below(one))
            .filter(move |(_, of)| is_open(of))
            .map(|(one, _)| one);
        (is_covered, below)
    }

    /// Returns the hosts of [`Self::each`]; each takes its length of the room. `None`: there is no room for all.
    pub(crate) fn common(
        &self,
        host: &str,
        namespace: &str,
        room: &mut usize,
    ) -> Option<Vec<String>> {
        let mut common_hosts = Vec::new();
        *room = room.checked_sub(host.len())?;
        for one in self.each(host, namespace) {
            *room = room.checked_sub(one.len())?;
            common_hosts.push(one);
        }
        Some(common_hosts)
    }

    /// Measures the hosts of [`Self::each`].
    pub(crate) fn measure_common(&self, host: &str, namespace: &str) -> HostNames {
        let (is_covered, below) = step(|| self.covering_and_below(host, namespace));
        let lengths = below.map(String::len);
        let own = is_covered.then_some(host.len());
        HostNames::of_lengths(own.into_iter().chain(lengths))
    }

    /// Returns true if there are any.
    pub(crate) fn meet(&self, host: &str, namespace: &str) -> bool {
        step(|| self.each(host, namespace).next().is_some())
    }
}

/// Servers by their hosts, each known by a number.
#[derive(Debug, Default)]
pub(crate) struct HostIndex {
    /// Each from its end.
    reversed: BTreeMap<String, Vec<usize>>,
}

impl HostIndex {
    pub(crate) fn add(&mut self, hosts: &ServerHosts, number: usize) {
        for host in hosts.reversed.keys() {
            self.reversed.entry(host.clone()).or_default().push(number);
        }
    }

    /// Those that have a host which this host or wildcard means, or which means it, whoever may have it. One of several such hosts
    /// is there as often.
    pub(crate) fn meeting(&self, host: &str) -> impl Iterator<Item = usize> {
        let covering = patterns(host).into_iter();
        let covering: Vec<_> = covering
            .filter_map(|one| self.reversed.get(&reversed(&one)))
            .collect();
        let end = host.strip_prefix('*').map(reversed);
        let from = end.clone().unwrap_or_default();
        let below = self.reversed.range::<String, _>(from..);
        let below = below.take_while(move |(one, _)| {
            let end = end.as_ref();
            step(|| end.is_some_and(|end| one.starts_with(end)))
        });
        let below = below.map(|(_, numbers)| numbers);
        covering.into_iter().chain(below).flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(written: &[&str]) -> ServerHosts {
        let written: Vec<_> = written.iter().map(|one| (*one).to_owned()).collect();
        ServerHosts::new(&written, &"edge".into())
    }

    #[test]
    fn the_narrower_of_two_hosts_is_what_they_have_in_common() {
        for (server, rule, common) in [
            (&["a.example"][..], "a.example", &["a.example"][..]),
            (&["A.Example."], "a.example", &["a.example"]),
            (&["*.example"], "a.example", &["a.example"]),
            (&["*"], "a.example", &["a.example"]),
            (&["*"], "*", &["*"]),
            (
                &["a.example", "b.example", "c.other"],
                "*.example",
                &["a.example", "b.example"],
            ),
            (
                &["a.example", "*.b.example"],
                "*",
                &["*.b.example", "a.example"],
            ),
            (&["*.example", "a.example"], "*.example", &["*.example"]),
            (&["*.a.example"], "b.example", &[]),
            (&["*.example"], "example", &[]),
            (&["ab.example"], "*.b.example", &[]),
            (&["2001:0DB8::0:1"], "2001:db8::1", &["2001:db8::1"]),
        ] {
            let mut room = 100;
            let mut found = hosts(server).common(rule, "demo", &mut room).unwrap();
            found.sort();
            assert_eq!(found, common, "{server:?} {rule}");
            let lengths = HostNames::of_lengths(common.iter().map(|one| one.len()));
            assert_eq!(hosts(server).measure_common(rule, "demo"), lengths);
            assert_eq!(hosts(server).meet(rule, "demo"), !common.is_empty());
            let mut index = HostIndex::default();
            index.add(&hosts(&["z.else"]), 1);
            index.add(&hosts(server), 2);
            let others = index.meeting(rule).filter(|number| *number == 1);
            assert_eq!(others.count(), usize::from(rule == "*"), "{rule}");
            let found = index.meeting(rule).any(|number| number == 2);
            assert_eq!(found, !common.is_empty(), "{server:?} {rule}");
        }
    }

    /// A thousand wildcards that mean a thousand hosts each are a million names.
    #[test]
    fn names_take_room() {
        let server = hosts(&["a.example", "b.example"]);
        let mut room = 27;
        assert!(server.common("*.example", "demo", &mut room).is_some());
        assert_eq!((room, server.common("c", "demo", &mut room)), (0, None));
        assert_eq!(server.common("*.example", "demo", &mut 26), None);
    }

    #[test]
    fn a_host_is_for_rules_of_its_namespaces() {
        for (server, namespace, found) in [
            (&["*/a.example"][..], "demo", true),
            (&["./a.example"], "demo", false),
            (&["./a.example"], "edge", true),
            (&["demo/a.example"], "demo", true),
            (&["demo/a.example"], "edge", false),
            (&["demo/a.example", "./a.example"], "edge", true),
            (&["demo/a.example", "*/a.example"], "edge", true),
            (&["demo/a.example", "*/*.example"], "edge", true),
            (&["*/a.example", "demo/a.example"], "edge", true),
        ] {
            let common = hosts(server).meet("a.example", namespace);
            assert_eq!(common, found, "{server:?} {namespace}");
        }
    }
}
