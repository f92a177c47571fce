//! Tells streams of a snapshot: streams that it concerns take it in at once, others find it when something else wakes them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::model::Reason;
use xds::debounce::DueBatch;
use xds::snapshot::{NextSnapshot, Snapshot};
use xds::stream::PushScope;
use xds::view::Type;

use super::Hub;
use crate::discovery::push_record::assignments;
use crate::discovery::session::{PendingPush, nothing};

impl Hub {
    /// Enqueues the snapshot at all sessions, and wakes those that it concerns. Returns their number.
    pub(super) fn notify(
        &self,
        due: &DueBatch,
        earlier: &Snapshot,
        next: &NextSnapshot,
        now: Duration,
    ) -> usize {
        let batch = &due.batch;
        let names = Arc::new(assignments(next.snapshot.world(), &batch.hosts));
        let local = &self.options.settings.cluster;
        let mut told = 0;
        let mut resting = HashSet::new();
        let mut as_before = HashSet::new();
        for session in self.sessions.all() {
            let node = &session.node;
            let of_proxy = || {
                batch.proxies.iter().any(|key| {
                    key.name == node.name
                        && key.namespace == node.namespace
                        && key.cluster == *node.cluster.as_ref().unwrap_or(local)
                }) || node.addresses.iter().any(|at| next.moved.contains(at))
            };
            let everybody = batch.reasons.has(Reason::Debug);
            let concerned = || next.full && (everybody || next.concerns(node));
            let scope = if concerned() || of_proxy() {
                PushScope::Full
            } else if names.is_empty() {
                nothing()
            } else {
                PushScope::Endpoints(Arc::clone(&names))
            };
            if !matches!(scope, PushScope::Full) {
                as_before.insert(node.id.clone());
            }
            let is_nothing = matches!(&scope, PushScope::Endpoints(names) if names.is_empty());
            let pending = PendingPush {
                snapshot: Arc::clone(&next.snapshot),
                scope,
                reasons: batch.reasons,
                since: due.since,
                put: now,
            };
            if is_nothing {
                resting.insert(node.id.clone());
                session.enqueue_without_wake(pending);
            } else {
                told += 1;
                session.enqueue(pending);
            }
        }
        next.snapshot
            .keep_conflicts(earlier, |proxy| resting.contains(proxy));
        next.snapshot
            .keep_patch_matches(earlier, |proxy| as_before.contains(proxy));
        told
    }

    /// A response is on its way, that took so long to make.
    pub(in crate::discovery) fn sent(&self, kind: Type, took: Duration) {
        self.metrics.sent(kind, took);
        // Assignments are in conflict with nothing.
        if kind != Type::Endpoint {
            self.made.notify_one();
        }
    }
}
