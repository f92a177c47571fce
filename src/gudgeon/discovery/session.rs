//! One ADS stream as the rest of the program sees it: pages read its state, and the push loop enqueues one pending push, into which
//! later ones merge; the stream's task sends it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use xds::node::{Node, clipped};
use xds::reason::Reasons;
use xds::snapshot::Snapshot;
use xds::stream::{
    Client, Fault, Lists, NameBudget, Protocol, Push, PushScope, Request, RequestOutcome, Response,
    Stall, Stream,
};
use xds::view::{Type, View};

use crate::grpc::Address;

/// One stream of one client.
#[derive(Debug)]
pub(crate) struct Session {
    /// Counted from the start.
    pub(crate) number: u64,
    pub(crate) node: Arc<Node>,
    pub(crate) peer: Address,
    pub(crate) connected: Duration,
    pub(crate) protocol: Protocol,
    inner: Mutex<Inner>,
    /// PendingPush has come.
    pub(super) woken: Notify,
}

#[derive(Debug)]
struct Inner {
    stream: Stream,
    /// Newer ones merge into it.
    pending: Option<PendingPush>,
    /// Snapshots since the one that it looks at, of which none concerns it.
    deferred: usize,
}

/// Snapshots that a stream may be behind. Each of them is memory for as long as a stream looks at it; and each time fewer costs
/// the streams of all that a change does not concern one more turn.
pub(super) const MAX_DEFERRED: usize = 4;

/// A push that its stream has not taken in yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingPush {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) scope: PushScope,
    pub(crate) reasons: Reasons,
    /// The time of the first change, and the time at which the push was enqueued (`put`).
    pub(crate) since: Duration,
    pub(crate) put: Duration,
}

/// The outcome of a push that was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushOutcome {
    View,
    /// A mistake of this program.
    Nothing,
}

impl PendingPush {
    fn merge(&mut self, newer: Self) {
        // A stream that rests has waited for nothing.
        if self.is_nothing() {
            (self.since, self.put) = (newer.since, newer.put);
        }
        self.snapshot = newer.snapshot;
        self.reasons = self.reasons.and(newer.reasons);
        self.scope.merge(newer.scope);
    }

    /// Returns true if the stream only takes the new snapshot.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self.scope, PushScope::Nothing)
    }
}

impl Session {
    pub(crate) fn new(
        number: u64,
        node: &Arc<Node>,
        peer: Address,
        connected: Duration,
        protocol: Protocol,
        view: Arc<dyn View>,
        lists: &Arc<Lists>,
    ) -> Arc<Self> {
        let client = if node.grpc {
            Client::Grpc
        } else {
            Client::Envoy
        };
        let stream = Stream::new(protocol, client, view).sharing(lists);
        Arc::new(Self {
            number,
            node: Arc::clone(node),
            peer,
            connected,
            protocol,
            inner: Mutex::new(Inner {
                stream,
                pending: None,
                deferred: 0,
            }),
            woken: Notify::new(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it share the bytes of names of nothing with the other streams of its address, before its first request.
    pub(super) fn share_names(&self, budget: Arc<NameBudget>) {
        self.inner().stream.share_names(budget);
    }

    /// `NODE-ID-NUMBER`, as the pages name it.
    pub(crate) fn connection(&self) -> String {
        format!("{}-{}", clipped(&self.node.id), self.number)
    }

    /// Calls a function with the stream, under its lock.
    pub(crate) fn with_stream<T>(&self, at: impl FnOnce(&Stream) -> T) -> T {
        at(&self.inner().stream)
    }

    /// Returns true if a push is pending or a response is due.
    pub(crate) fn is_pending(&self) -> bool {
        let inner = self.inner();
        inner.stream.is_pending()
            || inner
                .pending
                .as_ref()
                .is_some_and(|pending| !pending.is_nothing())
    }

    /// Enqueues a push, and wakes the stream; but a snapshot that does not concern the stream waits until another event wakes it.
    /// Returns true if the push concerns it.
    pub(crate) fn enqueue(&self, pending: PendingPush) -> bool {
        let is_nothing = pending.is_nothing();
        let mut inner = self.inner();
        inner.deferred += usize::from(is_nothing);
        let may_rest = is_nothing && inner.deferred <= MAX_DEFERRED;
        match &mut inner.pending {
            Some(waiting) => waiting.merge(pending),
            waiting => *waiting = Some(pending),
        }
        drop(inner);
        if !may_rest {
            self.woken.notify_one();
        }
        !is_nothing
    }

    pub(super) fn has_pending(&self) -> bool {
        self.inner().pending.is_some()
    }

    /// Takes in the pending push. A proxy whose view cannot be made keeps the one it has.
    pub(super) fn take_pending(&self) -> Option<(PendingPush, PushOutcome)> {
        let pending = {
            let mut inner = self.inner();
            inner.deferred = 0;
            inner.pending.take()?
        };
        // The view is made without the lock: it may take a while, and pages read the stream meanwhile.
        let earlier = Arc::clone(self.inner().stream.view());
        let make = || pending.snapshot.view_after(&earlier, &self.node);
        let view = catch_unwind(AssertUnwindSafe(make));
        let Ok(view) = view else {
            return Some((pending, PushOutcome::Nothing));
        };
        self.inner().stream.merge_push(Push {
            view,
            scope: pending.scope.clone(),
            reasons: pending.reasons,
        });
        Some((pending, PushOutcome::View))
    }

    pub(super) fn receive(
        &self,
        now: Duration,
        request: &Request,
    ) -> Result<RequestOutcome, Fault> {
        self.inner().stream.request(now, request)
    }

    /// The next response, where its writer is free.
    pub(super) fn next(&self, now: Duration) -> Option<Response> {
        self.inner().stream.next(now)
    }

    /// Takes the types of which a resource could not be built.
    pub(super) fn take_build_errors(&self) -> BTreeSet<Type> {
        self.inner().stream.take_failed()
    }

    /// Types that the client has subscribed to.
    pub(super) fn subscribed_types(&self) -> BTreeSet<Type> {
        let inner = self.inner();
        let is_subscribed = |kind: &Type| inner.stream.status(*kind).is_some();
        Type::ALL.into_iter().filter(is_subscribed).collect()
    }

    pub(super) fn written(&self) {
        self.inner().stream.written();
    }

    pub(super) fn stall(&self, now: Duration) -> Option<Stall> {
        self.inner().stream.stall(now)
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.inner().stream.deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::testing::hub;

    fn pending(scope: PushScope, at: u64) -> PendingPush {
        PendingPush {
            snapshot: hub().snapshot().unwrap(),
            scope,
            reasons: Reasons::default(),
            since: Duration::from_secs(at),
            put: Duration::from_secs(at + 1),
        }
    }

    #[test]
    fn a_stream_that_rests_has_not_waited() {
        let of = |first: PushScope, second: PushScope| {
            let mut waiting = pending(first, 10);
            waiting.merge(pending(second, 3600));
            (waiting.since.as_secs(), waiting.put.as_secs())
        };
        let names = PushScope::Endpoints(Arc::new(["a".into()].into()));
        assert_eq!(of(PushScope::Nothing, PushScope::Full), (3600, 3601));
        assert_eq!(of(PushScope::Nothing, names.clone()), (3600, 3601));
        assert_eq!(of(PushScope::Nothing, PushScope::Nothing), (3600, 3601));
        assert_eq!(of(names.clone(), PushScope::Full), (10, 11));
        assert_eq!(of(names, PushScope::Nothing), (10, 11));
        assert_eq!(of(PushScope::Full, PushScope::Nothing), (10, 11));
    }
}
