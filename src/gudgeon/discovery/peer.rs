//! Who is at the other end of a connection, and for which nodes it may speak.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use xds::node::Node;

/// One connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// `None`: a plain port. Else what the client's certificate says it is.
    pub(crate) identity: Option<Identity>,
    streams: AtomicUsize,
    cut: Notify,
}

/// The workload that a certificate was made out for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Workload {
        namespace: String,
        account: String,
    },
    /// Anybody else's; the names in it.
    Other(Vec<String>),
}

impl Identity {
    /// The first of the names that is `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT`.
    pub(crate) fn of(names: &[String]) -> Self {
        let workload = |name: &String| {
            let rest = name.strip_prefix("spiffe://")?;
            let parts: Vec<&str> = rest.split('/').collect();
            match parts.as_slice() {
                [_, "ns", namespace, "sa", account] => Some(Self::Workload {
                    namespace: (*namespace).to_owned(),
                    account: (*account).to_owned(),
                }),
                _ => None,
            }
        };
        names
            .iter()
            .find_map(workload)
            .unwrap_or_else(|| Self::Other(names.to_vec()))
    }
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, identity: Option<Identity>) -> Self {
        Self {
            address,
            identity,
            streams: AtomicUsize::new(0),
            cut: Notify::new(),
        }
    }

    pub(super) fn opens(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closes(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Streams that are open now.
    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// The connection ends, unless it carries others.
    pub(super) fn cut_if_alone(&self) {
        if self.streams() <= 1 {
            self.cut.notify_one();
        }
    }

    /// Returns when it is to end.
    pub(super) async fn is_cut(&self) {
        self.cut.notified().await;
    }

    /// Whether it may be told what this node is to know.
    ///
    /// # Errors
    /// Both names, if it may not.
    pub(crate) fn speaks_for(&self, node: &Node, check: bool) -> Result<(), String> {
        let Some(identity) = self.identity.as_ref().filter(|_| check) else {
            return Ok(());
        };
        let wanted = match &node.account {
            Some(account) => format!("ns/{}/sa/{account}", node.namespace),
            None => format!("ns/{}", node.namespace),
        };
        let found = match identity {
            Identity::Workload { namespace, account } => {
                let same_account = node.account.as_deref().is_none_or(|name| name == account);
                if *namespace == *node.namespace && same_account {
                    return Ok(());
                }
                format!("ns/{namespace}/sa/{account}")
            }
            Identity::Other(names) => format!("no workload ({})", names.join(", ")),
        };
        Err(format!(
            "the certificate is for {found}, the node {} is {wanted}",
            node.id
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use envoy_types::pb::envoy::config::core::v3 as core;

    use super::*;

    fn node(account: Option<&str>) -> Node {
        let mut node = Node::read(Some(&core::Node {
            id: "sidecar~10.0.0.1~b-1.demo~demo.svc.cluster.local".to_owned(),
            ..core::Node::default()
        }))
        .unwrap();
        node.account = account.map(Into::into);
        node
    }

    #[test]
    fn a_certificate_speaks_for_its_namespace_and_account() {
        let b = "spiffe://cluster.local/ns/demo/sa/b";
        for (name, account, may) in [
            (b, None, true),
            (b, Some("b"), true),
            (b, Some("c"), false),
            ("spiffe://cluster.local/ns/other/sa/b", None, false),
            ("spiffe://cluster.local/ns/demo", None, false),
            ("b.demo", None, false),
        ] {
            let identity = Identity::of(&["b.example".to_owned(), name.to_owned()]);
            let peer = Peer::new((Ipv4Addr::LOCALHOST, 1).into(), Some(identity));
            let heard = peer.speaks_for(&node(account), true);
            assert_eq!(heard.is_ok(), may, "{name} {heard:?}");
            assert_eq!(peer.speaks_for(&node(account), false), Ok(()));
        }
        let plain = Peer::new((Ipv4Addr::LOCALHOST, 1).into(), None);
        assert_eq!(plain.speaks_for(&node(Some("x")), true), Ok(()));
    }
}
