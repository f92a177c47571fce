//! Indices: the values of a key, as a set.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

/// Adds a value to the set of a key.
pub(crate) fn insert<K: Ord, V: Ord>(
    index: &mut BTreeMap<K, BTreeSet<V>>,
    key: &(impl ToOwned<Owned = K> + ?Sized),
    value: V,
) {
    index.entry(key.to_owned()).or_default().insert(value);
}

/// Removes a value from the set of a key, and an empty set from the index.
pub(crate) fn remove<K, Q, V>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &Q, value: &V)
where
    K: Ord + Borrow<Q>,
    Q: Ord + ?Sized,
    V: Ord,
{
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}
