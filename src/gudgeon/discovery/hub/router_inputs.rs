//! Routers that connect before certificates and Ingresses were read for the first time: their views wait for these.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use xds::node::Node;
use xds::snapshot::Snapshot;

use super::Hub;
use crate::discovery::identity::may_have_secrets;
use crate::grpc::Peer;

/// The longest wait of routers for that, from the start. Chosen: an API server that is there answers in less; without one, the
/// known objects are served.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The number of searches that routers wait for, and the end of that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouterInputs(Arc<watch::Sender<(usize, Option<Instant>)>>);

/// One search, until this is dropped.
#[derive(Debug)]
pub(crate) struct PendingLookup(RouterInputs);

impl Drop for PendingLookup {
    fn drop(&mut self) {
        let looking = &self.0.0;
        looking.send_modify(|(count, _)| *count = count.saturating_sub(1));
    }
}

impl RouterInputs {
    pub(crate) fn begin(&self) -> PendingLookup {
        self.0.send_modify(|(count, late)| {
            *count = count.saturating_add(1);
            *late = Some(Instant::now() + MAX_WAIT);
        });
        PendingLookup(self.clone())
    }

    /// Returns when all is there that listeners of routers, and connections with certificates by name, are made of, or did not
    /// come in time.
    pub(crate) async fn ready(&self) {
        let mut looking = self.0.subscribe();
        let Some(late) = looking.borrow().1 else {
            return;
        };
        let _late = timeout_at(late, looking.wait_for(|(count, _)| *count == 0)).await;
    }
}

impl Hub {
    /// Returns the node with the rights that its peer's certificate gives it.
    pub(crate) fn of_peer(&self, peer: &Peer, mut node: Node) -> Arc<Node> {
        node.router.may_have_secrets = may_have_secrets(peer, &node, &self.trust.domains());
        Arc::new(node)
    }

    /// Waits for the first snapshot, and returns the current one with the inputs of this node's listeners.
    pub(crate) async fn snapshot_for(&self, node: &Node) -> Arc<Snapshot> {
        let first = self.current.first().await;
        let waits = first.has_credentials_for(node);
        drop(first);
        if waits {
            self.edge.ready().await;
        }
        // The credentials may have come with a newer snapshot.
        self.current.first().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn routers_wait_for_what_they_listen_for_and_not_for_ever() {
        let all = RouterInputs::default();
        let waited = async || {
            let begin = Instant::now();
            all.ready().await;
            begin.elapsed()
        };
        assert_eq!(waited().await, Duration::ZERO);
        let (one, other) = (all.begin(), all.begin());
        assert_eq!(waited().await, MAX_WAIT);
        // Nobody waits twice.
        assert_eq!(waited().await, Duration::ZERO);
        drop((one, other));
        let one = all.begin();
        let task = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(one);
        });
        assert_eq!(waited().await, Duration::from_secs(1));
        task.await.unwrap();
    }
}
