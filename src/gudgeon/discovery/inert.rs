//! Objects of configuration by kind, with what each kind changes: whoever moves a mesh over reads which of its rules nothing
//! enforces.

use std::collections::{BTreeMap, BTreeSet};

use api::config::{Effect, KINDS, Kind, LATER, named};

/// Objects of security that are known by their names, of one source; all are counted.
const MOST_NAMED: usize = 1000;
/// Names in one line.
const MOST_SHOWN: usize = 5;

/// An object's kind, and `NAMESPACE/NAME`.
pub(crate) type Named = (&'static str, String);

/// Configuration of one source, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleCounts {
    /// By group and kind.
    kinds: BTreeMap<(&'static str, &'static str), usize>,
    /// Objects that say who may do what, and that nothing enforces.
    pub(crate) security: BTreeSet<Named>,
}

impl RuleCounts {
    /// One more object; a kind that is not of the mesh's configuration does not count.
    pub(crate) fn add(&mut self, group: &str, kind: &str, namespace: &str, name: &str) {
        let Some(kind) = named(group, kind) else {
            return;
        };
        *self.kinds.entry((kind.group, kind.kind)).or_default() += 1;
        if kind.is_security() && kind.effect == Effect::None {
            self.name(kind.kind, namespace, name);
        }
    }

    /// So many of a kind, whose names are not told here: no two groups of the mesh's have one of the same name.
    pub(crate) fn count(&mut self, kind: &str, count: usize) {
        if let Some(kind) = KINDS.iter().chain(LATER).find(|row| row.kind == kind) {
            *self.kinds.entry((kind.group, kind.kind)).or_default() += count;
        }
    }

    pub(crate) fn name(&mut self, kind: &'static str, namespace: &str, name: &str) {
        if self.security.len() < MOST_NAMED {
            self.security.insert((kind, format!("{namespace}/{name}")));
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (kind, count) in &other.kinds {
            *self.kinds.entry(*kind).or_default() += count;
        }
        self.security.extend(other.security.iter().cloned());
    }

    /// Each kind that there are objects of, and their number.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&'static Kind, usize)> {
        let kinds = self.kinds.iter();
        kinds.filter_map(|((group, kind), count)| Some((named(group, kind)?, *count)))
    }

    /// The same of kinds that nothing acts on.
    pub(crate) fn without_effect(&self) -> impl Iterator<Item = (&'static Kind, usize)> {
        self.kinds().filter(|(kind, _)| kind.effect == Effect::None)
    }

    /// Which those are, in one line; `None`: there are none.
    pub(crate) fn line(&self) -> Option<String> {
        let all: Vec<_> = self
            .without_effect()
            .map(|(kind, count)| format!("{count} {}", kind.kind))
            .collect();
        (!all.is_empty()).then(|| format!("{} have no effect in this release", all.join(", ")))
    }

    /// Why nothing is served beside these; `None`: nothing speaks against it.
    pub(crate) fn refusal(&self) -> Option<String> {
        if self.security.is_empty() {
            return None;
        }
        Some(format!(
            "cannot start beside {}: this release does not enforce this kind of security.istio.io, and what it forbids would be \
             allowed; --ignoreSecurityPolicies starts all the same",
            shown(&self.security)
        ))
    }
}

/// Some of them by name, and how many there are besides.
pub(crate) fn shown<'a>(all: impl IntoIterator<Item = &'a Named>) -> String {
    let mut all = all.into_iter();
    let first = all.by_ref().take(MOST_SHOWN);
    let first: Vec<_> = first.map(|(kind, name)| format!("{kind} {name}")).collect();
    let first = first.join(", ");
    match all.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_without_effect_are_counted_and_those_of_security_named() {
        let mut one = RuleCounts::default();
        assert_eq!((one.line(), one.refusal()), (None, None));
        for name in ["a", "b"] {
            one.add("networking.istio.io", "ServiceEntry", "n", name);
        }
        one.add("apps", "Deployment", "n", "a");
        assert_eq!((one.line(), one.refusal()), (None, None));
        one.count("ServiceRole", 2);
        let words = |words: &str| Some(format!("{words} have no effect in this release"));
        assert_eq!((one.line(), one.refusal()), (words("2 ServiceRole"), None));
        one.add(
            "security.istio.io",
            "RequestAuthentication",
            "istio-system",
            "default",
        );
        let mut all = RuleCounts::default();
        all.merge(&one);
        for at in 0..MOST_NAMED {
            all.add(
                "security.istio.io",
                "RequestAuthentication",
                "shop",
                &format!("p{at:04}"),
            );
        }
        assert_eq!(
            all.line(),
            words("2 ServiceRole, 1001 RequestAuthentication")
        );
        let refusal = all.refusal().unwrap();
        let begin = "cannot start beside RequestAuthentication istio-system/default, RequestAuthentication shop/p0000, ";
        assert!(
            refusal.starts_with(begin) && refusal.contains(" and 995 more: "),
            "{refusal}"
        );
        let refusal = one.refusal().unwrap();
        assert!(
            refusal.starts_with("cannot start beside RequestAuthentication istio-system/default: "),
            "{refusal}"
        );
        assert_eq!(all.kinds().count(), 3);
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
        let words =
            "1 MeshPolicy, 1 rule, 1 ServiceRole, 1 Telemetry have no effect in this release";
        assert_eq!((one.line().as_deref(), one.refusal()), (Some(words), None));
    }
}
