//! Differences between two contributions of a source, and objects that two sources have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::Workload;

use super::precedence::first;
use super::report::Report;
use super::{Settings, Sources};
use crate::contribution::{ConfigurationKind, Contribution};

/// Adds the keys of different values. Equal pointers are equal values.
pub(super) fn differ<K: Ord + Clone, V: PartialEq + ?Sized>(
    old: &Arc<BTreeMap<K, Arc<V>>>,
    new: &Arc<BTreeMap<K, Arc<V>>>,
    keys: &mut BTreeSet<K>,
) {
    if Arc::ptr_eq(old, new) {
        return;
    }
    for (key, was) in old.iter() {
        let same = new
            .get(key)
            .is_some_and(|now| Arc::ptr_eq(was, now) || **was == **now);
        if !same {
            keys.insert(key.clone());
        }
    }
    let added = new.keys().filter(|key| !old.contains_key(*key));
    keys.extend(added.cloned());
}

pub(super) fn differ_all<K: Ord + Clone, V: PartialEq + ?Sized>(
    old: &Arc<BTreeMap<K, Arc<V>>>,
    new: &Arc<BTreeMap<K, Arc<V>>>,
) -> BTreeSet<K> {
    let mut keys = BTreeSet::new();
    differ(old, new, &mut keys);
    keys
}

/// Returns true if the workload's own proxies see a difference. Where one is missing, it came or went.
pub(super) fn affects_proxies(old: Option<&Workload>, new: Option<&Workload>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            old.labels != new.labels
                || old.locality != new.locality
                || old.network != new.network
                || old.ports != new.ports
        }
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    }
}

/// Reports objects that a source with precedence has, too.
pub(super) fn doubles<'a, T: ConfigurationKind>(
    settings: &'a Settings,
    sources: &'a Sources,
) -> impl Iterator<Item = Report> {
    let pick = |contribution: &'a Contribution| T::of(&contribution.configuration);
    sources.iter().flat_map(move |(id, source)| {
        pick(&source.contribution).keys().filter_map(move |key| {
            let (used, _) = first(settings, sources, |one| pick(one).get(key))?;
            let (namespace, name) = key;
            (used != id).then(|| Report {
                source: id.clone(),
                kind: T::NAME,
                namespace: namespace.clone(),
                name: name.clone(),
                message: format!("not used: {used} has one of this name"),
                whole: true,
            })
        })
    })
}
