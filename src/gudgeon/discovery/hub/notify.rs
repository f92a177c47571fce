//! Tells streams of a snapshot: streams that it concerns take it in at once, others find it when another event wakes them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::model::TriggerReason;
use xds::debounce::DueBatch;
use xds::snapshot::{NextSnapshot, Snapshot};
use xds::stream::PushScope;
use xds::view::Type;

use super::Hub;
use crate::discovery::session::PendingPush;

impl Hub {
    /// Enqueues the snapshot at all sessions, and wakes those that it concerns. Returns their number. `names`: the assignments
    /// that an endpoints-only push is about.
    pub(super) fn notify(
        &self,
        due: &DueBatch,
        earlier: &Snapshot,
        next: &NextSnapshot,
        names: &Arc<BTreeSet<Arc<str>>>,
        now: Duration,
    ) -> usize {
        let batch = &due.batch;
        let local = &self.options.settings.cluster;
        let mut woken = 0;
        // Those whose resources, but for assignments, are those of the snapshot before.
        let mut as_before = HashSet::new();
        for session in self.sessions.all() {
            let node = &session.node;
            let has_changed = || batch.proxies.contains(&node.workload_key(local));
            let of_proxy = || {
                // This runs for each stream: the key is built only if the batch names proxies.
                !batch.proxies.is_empty() && has_changed()
                    || node.addresses.iter().any(|at| next.moved.contains(at))
            };
            let everybody = batch.reasons.has(TriggerReason::Debug);
            let concerned = || next.full && (everybody || next.concerns(node));
            let scope = match concerned() || of_proxy() {
                true => PushScope::Full,
                false => PushScope::of_endpoints(names),
            };
            if !matches!(scope, PushScope::Full) {
                as_before.insert(node.id.clone());
            }
            let pending = PendingPush {
                snapshot: Arc::clone(&next.snapshot),
                scope,
                reasons: batch.reasons,
                since: due.since,
                put: now,
            };
            woken += usize::from(session.enqueue(pending));
        }
        // Conflicts come up while resources are made, and those of these proxies are not made again.
        let rests = |proxy: &str| as_before.contains(proxy);
        next.snapshot.take_over_conflicts(earlier, rests);
        next.snapshot.take_over_patch_matches(earlier, rests);
        woken
    }

    /// Takes note of a response that was sent, and of the time that it took.
    pub(in crate::discovery) fn sent(&self, kind: Type, took: Duration) {
        self.metrics.sent(kind, took);
        // Assignments are in conflict with nothing.
        if kind != Type::Endpoint {
            self.built.notify_one();
        }
    }
}
