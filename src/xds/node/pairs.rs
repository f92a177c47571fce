//! Metadata that EnvoyFilters may ask for: any key with any value.
//!
//! Each pair is kept as a hash alone, so that a proxy that says much costs no more than one that says little.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// Pairs of one proxy that are known. Chosen: an injector writes some thirty, and annotations and labels are not among them.
const MAX_PAIRS: usize = 512;

/// Pairs of keys and texts, sorted by their hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataPairs(Arc<[u64]>);

impl MetadataPairs {
    pub(super) fn new<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> Self {
        let mut all: Vec<u64> = pairs.map(|(key, value)| hash(key, &value)).collect();
        // Sorted before the cut: the pairs come from a hash map, and the same ones must stay each time.
        all.sort_unstable();
        all.truncate(MAX_PAIRS);
        Self(all.into())
    }

    /// Returns true if a key has this value.
    pub(crate) fn has(&self, key: &str, value: &str) -> bool {
        self.0.binary_search(&hash(key, value)).is_ok()
    }
}

fn hash(key: &str, value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_known_as_a_whole() {
        let pairs = [("a", "1"), ("b", "2")];
        let known = MetadataPairs::new(
            pairs
                .into_iter()
                .map(|(key, value)| (key, value.to_owned())),
        );
        for (key, value, want) in [
            ("a", "1", true),
            ("b", "2", true),
            ("a", "2", false),
            ("c", "", false),
        ] {
            assert_eq!(known.has(key, value), want, "{key} {value}");
        }
        assert!(!MetadataPairs::default().has("a", "1"));
    }
}
