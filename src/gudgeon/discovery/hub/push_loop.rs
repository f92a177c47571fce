//! Builds a snapshot of the changes once their debounce is over, one after the other, and enqueues a pending push at each stream.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use api::model::{Changes, TriggerReason};
use xds::debounce::DueBatch;
use xds::snapshot::{NextSnapshot, Snapshot};

use super::Hub;
use super::blocking_jobs::LARGE;
use super::inputs::{DueInputs, WorldInputs};
use super::snapshot_build::catch_panic;
use crate::discovery::push_record::{Pushed, assignments};

impl Hub {
    /// Applies updates, makes snapshots of them and tells of these, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        tokio::join!(self.apply_updates(), self.push_changes());
    }

    async fn push_changes(self: &Arc<Self>) {
        // Updates before the first snapshot gather in the inputs, and `begin` takes them all.
        drop(self.current.first().await);
        loop {
            self.emit_certificates();
            let deadline = self.inputs().deadline();
            let due = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(self.clock.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = due => {}
            }
            let due = self.inputs().take_due(self.clock.now());
            if let Some(DueInputs {
                batch,
                inputs,
                changes,
            }) = due
            {
                let is_made = self.push(&batch, inputs, changes).await;
                self.inputs().pushed(&batch, is_made);
            }
        }
    }

    /// Returns false if no snapshot could be made: the last one is served on.
    async fn push(
        self: &Arc<Self>,
        due: &DueBatch,
        inputs: WorldInputs,
        changes: Option<Arc<Changes>>,
    ) -> bool {
        let Some(current) = self.snapshot() else {
            return false;
        };
        let begun = self.clock.now();
        let Some((next, names)) = self.make(&current, inputs, due, changes).await else {
            return false;
        };
        // The snapshot is served before it is notified, so that a stream which joins next begins with it.
        self.serve(Arc::clone(&next.snapshot));
        let made_at = self.clock.now();
        let streams = self.notify(due, &current, &next, &names, made_at);
        let pushed = Pushed {
            at: made_at,
            waited: begun.saturating_sub(due.since),
            build_time: made_at.saturating_sub(begun),
            full: next.full,
            reasons: due.batch.reasons,
            streams,
        };
        self.metrics.pushed(&pushed);
        pushed.log();
        self.pushes.add(pushed);
        true
    }

    /// Makes the next snapshot, with the resources of the proxies that it concerns, and the names of the assignments that have
    /// changed. A large one is made beside the event loop.
    async fn make(
        self: &Arc<Self>,
        current: &Arc<Snapshot>,
        inputs: WorldInputs,
        due: &DueBatch,
        changes: Option<Arc<Changes>>,
    ) -> Option<(NextSnapshot, Arc<BTreeSet<Arc<str>>>)> {
        let hosts = (!due.batch.full).then(|| due.batch.hosts.clone());
        // Each stream is asked whether the change concerns it.
        let size = inputs.size.saturating_add(self.sessions.len());
        let nodes: Vec<_> = if size < LARGE {
            Vec::new()
        } else {
            let sessions = self.sessions.all();
            sessions
                .iter()
                .map(|session| Arc::clone(&session.node))
                .collect()
        };
        let (this, earlier) = (Arc::clone(self), Arc::clone(current));
        let everybody = due.batch.reasons.has(TriggerReason::Debug);
        let (changed_hosts, is_partial) = (due.batch.hosts.clone(), due.partial);
        let make = move || {
            let next = || {
                if is_partial {
                    // Other changes wait for their own debounce: all but these endpoints stays as it is served.
                    let world = earlier.world_with_endpoints(&inputs.world, &changed_hosts);
                    return earlier.next(world, hosts.as_ref(), changes.as_deref());
                }
                let (world, of_ingresses) = this.complete(inputs);
                let changes = joined(changes, of_ingresses);
                earlier.next(world, hosts.as_ref(), changes.as_deref())
            };
            let next = catch_panic(&this.metrics, next)?;
            // A stream that asks for it meets a panic again, and counts it.
            let ahead = || {
                let mut nodes = nodes;
                nodes.retain(|node| !next.full || everybody || next.concerns(node));
                next.snapshot.make_ahead(&earlier, &nodes);
            };
            let _made = catch_unwind(AssertUnwindSafe(ahead));
            let names = Arc::new(assignments(next.snapshot.world(), &changed_hosts));
            Some((next, names))
        };
        self.blocking.run(size, make).await.flatten()
    }
}

/// Joins the objects that changed; `None`: more may have changed than is known.
fn joined(changes: Option<Arc<Changes>>, more: Option<Changes>) -> Option<Arc<Changes>> {
    let (mut all, more) = changes.zip(more)?;
    if !more.is_empty() {
        Arc::make_mut(&mut all).extend(&more);
    }
    Some(all)
}
