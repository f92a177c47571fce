//! Names of hosts that cover each other by their wildcards, found without comparing all with all.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use crate::names::canonical_host;

/// Names and wildcards, the first of each.
#[derive(Debug, Default)]
pub(super) struct Hosts<'a> {
    /// Backwards, so that all that end alike stand together.
    backwards: BTreeMap<String, &'a str>,
    /// Hosts with a wildcard, by the text behind the star.
    wildcards: HashMap<String, &'a str>,
}

impl<'a> Hosts<'a> {
    pub(super) fn of(hosts: impl Iterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        hosts.for_each(|host| all.add(host));
        all
    }

    pub(super) fn add(&mut self, host: &'a str) {
        let plain = canonical_host(host);
        self.backwards
            .entry(plain.chars().rev().collect())
            .or_insert(host);
        if let Some(end) = plain.strip_prefix('*') {
            self.wildcards.entry(end.to_owned()).or_insert(host);
        }
    }

    /// Returns a known host that is this one, or a wildcard for it.
    pub(super) fn covering(&self, host: &str) -> Option<&'a str> {
        let plain = canonical_host(host);
        let same: String = plain.chars().rev().collect();
        if let Some(same) = self.backwards.get(&same) {
            return Some(same);
        }
        self.wider(host)
    }

    /// A wildcard that takes more than this.
    pub(super) fn wider(&self, host: &str) -> Option<&'a str> {
        let plain = canonical_host(host);
        // A wildcard stands for something: `*.a` is not `.a`, and more than itself.
        let first = if plain.starts_with('*') { 2 } else { 1 };
        let ends = plain.char_indices().map(|(at, _)| plain.get(at..));
        ends.skip(first)
            // Last the star alone, which takes every name but itself.
            .chain((plain != "*").then_some(Some("")))
            .flatten()
            .find_map(|end| self.wildcards.get(end))
            .copied()
    }

    /// Returns a known host that this one covers by its wildcard, or that covers this one.
    pub(super) fn overlapping(&self, host: &str) -> Option<&'a str> {
        if let Some(covering) = self.covering(host) {
            return Some(covering);
        }
        let plain = canonical_host(host);
        let start: String = plain.strip_prefix('*')?.chars().rev().collect();
        // The star stands for something: `*a` is not `a`.
        let longer = (Bound::Excluded(start.as_str()), Bound::Unbounded);
        let (name, covering) = self.backwards.range::<str, _>(longer).next()?;
        name.starts_with(&start).then_some(*covering)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_overlaps_what_ends_alike() {
        for (one, other, overlap) in [
            ("a.com", "a.com", true),
            ("a.com", "A.com.", true),
            ("a.com", "b.com", false),
            ("*.com", "foo.com", true),
            ("foo.com", "*.com", true),
            ("*.foo.com", "*.com", true),
            ("*.com", "*.foo.com", true),
            ("*.foo.com", "foo.com", false),
            ("foo.com", "*.foo.com", false),
            ("*oo.com", "foo.com", true),
            ("foo.com", "*oo.com", true),
            ("foo.com", "*foo.com", false),
            ("*foo.com", "foo.com", false),
            ("*foo.com", "*.foo.com", true),
            ("*.foo.com", "*foo.com", true),
            ("*", "a", true),
            ("a", "*", true),
            ("*.foo.com", "*.bar.com", false),
            ("2001:db8::1", "2001:DB8:0::1", true),
            ("2001:db8::1", "2001:db8::2", false),
            ("*", "2001:DB8:0::1", true),
        ] {
            let hosts = Hosts::of([one].into_iter());
            assert_eq!(
                hosts.overlapping(other),
                overlap.then_some(one),
                "{one} {other}"
            );
        }
    }

    #[test]
    fn a_wildcard_covers_what_is_narrower() {
        let hosts = Hosts::of(["*.com", "a.org"].into_iter());
        for (host, by) in [
            ("foo.com", Some("*.com")),
            ("*.foo.com", Some("*.com")),
            ("a.org", Some("a.org")),
            ("*", None),
            ("*.org", None),
            ("b.org", None),
            (".com", None),
        ] {
            assert_eq!(hosts.covering(host), by, "{host}");
        }
    }
}
