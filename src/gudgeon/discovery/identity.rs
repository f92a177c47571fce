//! For which nodes a client may speak, by what its certificate says.

use xds::node::Node;

use crate::grpc::Peer;

/// The workload that a certificate was made out for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity<'a> {
    Workload {
        namespace: &'a str,
        account: &'a str,
    },
    /// Anybody else's; the names in it.
    Other(&'a [String]),
}

impl<'a> Identity<'a> {
    /// The first of the names that is `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT`.
    fn of(names: &'a [String]) -> Self {
        let workload = |name: &'a String| {
            let rest = name.strip_prefix("spiffe://")?;
            let parts: Vec<&str> = rest.split('/').collect();
            match parts.as_slice() {
                [_, "ns", namespace, "sa", account] => Some(Self::Workload { namespace, account }),
                _ => None,
            }
        };
        let mut names_of = names.iter();
        names_of.find_map(workload).unwrap_or(Self::Other(names))
    }
}

/// Whether a client may be told what this node is to know.
///
/// # Errors
/// Both names, if it may not.
pub(super) fn speaks_for(peer: &Peer, node: &Node, check: bool) -> Result<(), String> {
    let Some(leaf) = peer.leaf.as_ref().filter(|_| check) else {
        return Ok(());
    };
    let wanted = match &node.account {
        Some(account) => format!("ns/{}/sa/{account}", node.namespace),
        None => format!("ns/{}", node.namespace),
    };
    let found = match Identity::of(&leaf.names) {
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use envoy_types::pb::envoy::config::core::v3 as core;

    use super::*;
    use crate::grpc::{Address, Leaf};

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
        let address = Address::Ip((Ipv4Addr::LOCALHOST, 1).into());
        for (name, account, may) in [
            (b, None, true),
            (b, Some("b"), true),
            (b, Some("c"), false),
            ("spiffe://cluster.local/ns/other/sa/b", None, false),
            ("spiffe://cluster.local/ns/demo", None, false),
            ("b.demo", None, false),
        ] {
            let leaf = Leaf {
                names: vec!["b.example".to_owned(), name.to_owned()],
                uris: Vec::new(),
            };
            let peer = Peer::new(address.clone(), Some(leaf));
            let heard = speaks_for(&peer, &node(account), true);
            assert_eq!(heard.is_ok(), may, "{name} {heard:?}");
            assert_eq!(speaks_for(&peer, &node(account), false), Ok(()));
        }
        let plain = Peer::new(address, None);
        assert_eq!(speaks_for(&plain, &node(Some("x")), true), Ok(()));
    }
}
