//! Limits on the bytes that the patches of a proxy may add to a resource, and on the work that they may be.

use crate::scope::envoy_filters::Patches;

/// Bytes that patches may add to all resources of a type that a proxy has. Chosen: a thousand listeners may each have a script of 30 kB.
const MAX_ADDED_BYTES: usize = 32 << 20;
/// Bytes that patches may add to one resource, however many there are: a filter with a short script.
const MIN_ADDED_BYTES: usize = 8 << 10;
/// Bytes that may be read and written for that: each patch of a filter takes all of its connection manager.
const MAX_WORK_BYTES: usize = 128 << 20;
const MIN_WORK_BYTES: usize = 64 << 10;

/// Bytes that patches may add to one resource, and bytes that they may read and write for it: part of the cache key of a resource
/// that proxies share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PatchLimits {
    pub(super) added: usize,
    pub(super) work: usize,
}

impl PatchLimits {
    /// `resources`: how many of a type the proxy has, all together.
    pub(super) fn of(patches: &Patches, resources: usize) -> Self {
        // Some proxies see one service more than others: they share the resources of all others, with their limits.
        let resources = round_up(resources.max(1));
        let share = |all: usize, min: usize| patches.share(all / resources).max(patches.share(min));
        Self {
            added: share(MAX_ADDED_BYTES, MIN_ADDED_BYTES),
            work: share(MAX_WORK_BYTES, MIN_WORK_BYTES),
        }
    }
}

/// Rounds up by an eighth at most.
pub(crate) fn round_up(resources: usize) -> usize {
    let step = (resources.next_power_of_two() / 16).max(1);
    resources.next_multiple_of(step)
}
