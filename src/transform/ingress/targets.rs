//! The units of work, and those that a change of an Ingress has a part in.

use api::kubernetes::{Ingress, IngressRule, ObjectMeta};

use super::{SUFFIX, host_of};
use crate::Key;

/// A unit of work: the objects or findings that are made together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The findings about an Ingress itself.
    Ingress(Key),
    /// The Gateway of all Ingresses of a name.
    Name(String),
    /// The VirtualService of a host.
    Host(String),
}

/// Returns the targets that an Ingress has a part in.
pub(super) fn targets(key: &Key, ingress: &Ingress) -> impl Iterator<Item = Target> {
    let hosts = ingress.spec.rules.iter().map(host_target);
    let own = [Target::Ingress(key.clone()), Target::Name(key.name.clone())];
    own.into_iter().chain(hosts)
}

fn host_target(rule: &IngressRule) -> Target {
    Target::Host(host_of(rule).to_owned())
}

/// Returns the targets that the change of an Ingress has a part in: a host or name that it leaves is made again without it.
pub(super) fn changed_targets(
    key: &Key,
    old: Option<&Ingress>,
    new: Option<&Ingress>,
) -> Vec<Target> {
    let (Some(before), Some(after)) = (old, new) else {
        let all = old.into_iter().chain(new);
        return all.flat_map(|one| targets(key, one)).collect();
    };
    if !has_same_metadata(&before.metadata, &after.metadata) {
        return targets(key, before).chain(targets(key, after)).collect();
    }
    let mut changed = vec![Target::Ingress(key.clone())];
    if before.spec.tls != after.spec.tls {
        changed.push(Target::Name(key.name.clone()));
    }
    for (_, old, new) in differing_rules(Some(before), Some(after)) {
        changed.extend(old.into_iter().chain(new).map(host_target));
    }
    changed
}

/// Returns true if objects of both have the same labels, annotations and creation time: their other fields stay with the Ingress.
fn has_same_metadata(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    one.labels == other.labels
        && one.annotations == other.annotations
        && one.creation_timestamp == other.creation_timestamp
}

/// Returns the rules that differ, by their numbers. Findings name the number of a rule, so one that has moved differs, too.
pub(super) fn differing_rules<'a>(
    old: Option<&'a Ingress>,
    new: Option<&'a Ingress>,
) -> impl Iterator<Item = (usize, Option<&'a IngressRule>, Option<&'a IngressRule>)> {
    let [old, new] = [old, new].map(|one| one.map_or(&[][..], |one| &one.spec.rules));
    let rules = (0..old.len().max(new.len())).map(|at| (at, old.get(at), new.get(at)));
    rules.filter(|(_, old, new)| old != new)
}

/// Returns the target that makes the Gateway of a name.
pub(super) fn target_named(name: &str) -> Option<Target> {
    let ingress = name.strip_suffix(SUFFIX)?.strip_suffix('-')?;
    Some(Target::Name(ingress.to_owned()))
}
