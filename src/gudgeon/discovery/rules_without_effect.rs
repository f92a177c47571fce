//! Objects of configuration by kind, with the effect of each kind: an operator who moves a mesh over reads which of its rules are
//! not enforced.

use std::collections::BTreeMap;

use api::config::{Effect, KINDS, Kind, LATER, named, unread_kind};

/// Configuration of one source, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleCounts {
    /// By group and kind.
    kinds: BTreeMap<(&'static str, &'static str), usize>,
    /// Objects of other APIs that nothing here reads, by the full names of their kinds.
    unread: BTreeMap<&'static str, usize>,
}

impl RuleCounts {
    /// Counts an object; a kind that is not of the mesh's configuration does not count.
    pub(crate) fn add(&mut self, group: &str, kind: &str) {
        if let Some(kind) = named(group, kind) {
            *self.kinds.entry((kind.group, kind.kind)).or_default() += 1;
        } else if let Some(kind) = unread_kind(group, kind) {
            *self.unread.entry(kind).or_default() += 1;
        }
    }

    /// So many of a kind, whose names are not told here: no two groups of the mesh's have one of the same name.
    pub(crate) fn count(&mut self, kind: &str, count: usize) {
        if let Some(kind) = KINDS.iter().chain(LATER).find(|row| row.kind == kind) {
            *self.kinds.entry((kind.group, kind.kind)).or_default() += count;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (kind, count) in &other.kinds {
            *self.kinds.entry(*kind).or_default() += count;
        }
        for (kind, count) in &other.unread {
            *self.unread.entry(kind).or_default() += count;
        }
    }

    /// Iterates over the kinds that have objects, each with their number.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&'static Kind, usize)> {
        let kinds = self.kinds.iter();
        kinds.filter_map(|((group, kind), count)| Some((named(group, kind)?, *count)))
    }

    /// Iterates over the kinds of other APIs that gudgeon does not read, each with the number of its objects.
    pub(crate) fn unread(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.unread.iter().map(|(kind, count)| (*kind, *count))
    }

    /// Returns the counts of kinds without effect.
    pub(crate) fn without_effect(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let own = self.kinds().filter(|(kind, _)| kind.effect == Effect::None);
        let own = own.map(|(kind, count)| (kind.kind, count));
        own.chain(self.unread())
    }

    /// Returns one line about kinds without effect; `None` if there are no such objects.
    pub(crate) fn line(&self) -> Option<String> {
        let all: Vec<_> = self
            .without_effect()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        (!all.is_empty()).then(|| format!("{} have no effect in this release", all.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_without_effect_are_counted() {
        let mut one = RuleCounts::default();
        assert_eq!(one.line(), None);
        for kind in ["ServiceEntry", "ServiceEntry"] {
            one.add("networking.istio.io", kind);
        }
        one.add("security.istio.io", "RequestAuthentication");
        one.add("apps", "Deployment");
        assert_eq!(one.line(), None);
        one.count("ServiceRole", 2);
        let line = |line: &str| Some(format!("{line} have no effect in this release"));
        assert_eq!(one.line(), line("2 ServiceRole"));
        let mut all = RuleCounts::default();
        all.merge(&one);
        all.add("rbac.istio.io", "ServiceRole");
        assert_eq!(all.line(), line("3 ServiceRole"));
        assert_eq!(all.kinds().count(), 3);
    }

    /// A Gateway of theirs is not one of ours.
    #[test]
    fn objects_of_the_gateway_api_are_counted_by_their_full_names() {
        let mut one = RuleCounts::default();
        for (group, kind) in [
            ("networking.istio.io", "Gateway"),
            ("gateway.networking.k8s.io", "Gateway"),
            ("gateway.networking.k8s.io", "HTTPRoute"),
            ("gateway.networking.k8s.io", "HTTPRoute"),
            ("gateway.networking.k8s.io", "Mine"),
        ] {
            one.add(group, kind);
        }
        let mut all = RuleCounts::default();
        all.merge(&one);
        let line = "1 Gateway.gateway.networking.k8s.io, 2 HTTPRoute.gateway.networking.k8s.io have no effect in this release";
        assert_eq!(all.line().as_deref(), Some(line));
        assert_eq!((all.kinds().count(), all.unread().count()), (1, 2));
    }

    #[test]
    fn kinds_of_older_releases_are_counted_too() {
        let mut one = RuleCounts::default();
        for kind in [
            "MeshPolicy",
            "ServiceRole",
            "rule",
            "Telemetry",
            "Pod",
            "Service",
        ] {
            one.count(kind, 1);
        }
        let line =
            "1 MeshPolicy, 1 rule, 1 ServiceRole, 1 Telemetry have no effect in this release";
        assert_eq!(one.line().as_deref(), Some(line));
    }
}
