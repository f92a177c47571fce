//! Routers that come while certificates are still looked for.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use xds::node::{Kind, Node};

/// How long a router waits for them at most. Chosen: an API server that is there answers in less; without one, what is known is
/// served.
const LATE: Duration = Duration::from_secs(5);

/// Whether it is known which certificates there are of those that Gateways name.
#[derive(Debug)]
pub(crate) struct KnownCredentials(watch::Sender<bool>);

impl Default for KnownCredentials {
    /// Nobody looks for any.
    fn default() -> Self {
        Self(watch::Sender::new(true))
    }
}

impl KnownCredentials {
    /// Somebody begins to.
    pub(crate) fn wait_for_them(&self) {
        self.0.send_replace(false);
    }

    /// They are in what is served.
    pub(crate) fn are_known(&self) {
        self.0
            .send_if_modified(|known| !std::mem::replace(known, true));
    }

    /// Returns when a node's certificates are known, or did not come in time.
    pub(crate) async fn known_for(&self, node: &Node) {
        if node.kind != Kind::Router || !node.may_have_secrets {
            return;
        }
        let mut known = self.0.subscribe();
        let _late = timeout(LATE, known.wait_for(|known| *known)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use envoy_types::pb::envoy::config::core::v3 as core;
    use tokio::time::Instant;

    use super::*;

    fn node(word: &str, may: bool) -> Node {
        let mut node = Node::read(Some(&core::Node {
            id: format!("{word}~10.0.0.1~b-1.demo~demo.svc.cluster.local"),
            ..core::Node::default()
        }))
        .unwrap();
        node.may_have_secrets = may;
        node
    }

    #[tokio::test(start_paused = true)]
    async fn routers_wait_for_certificates_and_not_for_ever() {
        let all = Arc::new(KnownCredentials::default());
        let waited = async |node: Node| {
            let begin = Instant::now();
            all.known_for(&node).await;
            begin.elapsed()
        };
        assert_eq!(waited(node("router", true)).await, Duration::ZERO);
        all.wait_for_them();
        assert_eq!(waited(node("sidecar", true)).await, Duration::ZERO);
        assert_eq!(waited(node("router", false)).await, Duration::ZERO);
        assert_eq!(waited(node("router", true)).await, LATE);
        let other = Arc::clone(&all);
        let told = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            other.are_known();
        });
        assert_eq!(waited(node("router", true)).await, Duration::from_secs(1));
        told.await.unwrap();
    }
}
