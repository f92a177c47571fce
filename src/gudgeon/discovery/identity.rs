//! Checks for which nodes a client may speak, by what its certificate says.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds::node::{Node, clipped};

use super::refused_streams::RefusalReason;
use crate::grpc::{Address, Peer};
use crate::serve::is_local;

/// The workload that a certificate was made out for: `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity<'a> {
    trust_domain: &'a str,
    namespace: &'a str,
    account: &'a str,
}

impl<'a> Identity<'a> {
    /// Reads the one URI among a certificate's names. SPIFFE allows no more: a program that takes one of several may take another
    /// one than the next program does.
    fn of(uris: &'a [String]) -> Result<Self, String> {
        let [uri] = uris else {
            return Err(match uris.len() {
                0 => "no SPIFFE ID".to_owned(),
                count => format!("{count} URIs, where a SPIFFE ID is the only one"),
            });
        };
        Self::read(uri).ok_or_else(|| {
            let found = clipped(uri);
            format!("{found:?}, where spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT is wanted")
        })
    }

    fn read(uri: &'a str) -> Option<Self> {
        let mut parts = uri.strip_prefix("spiffe://")?.split('/');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let trust_domain = next()?;
        let namespace = next().filter(|part| *part == "ns").and_then(|_| next())?;
        let account = next().filter(|part| *part == "sa").and_then(|_| next())?;
        // A longer path is another identity, and its beginning must not count.
        parts.next().is_none().then_some(Self {
            trust_domain,
            namespace,
            account,
        })
    }
}

/// Trust domains whose certificates count in this mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TrustDomains {
    pub(super) own: Arc<str>,
    pub(super) aliases: BTreeSet<String>,
}

impl TrustDomains {
    fn has(&self, name: &str) -> bool {
        *self.own == *name || self.aliases.contains(name)
    }
}

/// Checks whether a client may receive the resources of this node. `trusted`: `None` where identities are not checked.
///
/// # Errors
/// Both names, if it may not.
pub(super) fn speaks_for(
    peer: &Peer,
    node: &Node,
    trusted: Option<&TrustDomains>,
) -> Result<(), (RefusalReason, String)> {
    let (Some(leaf), Some(trusted)) = (&peer.leaf, trusted) else {
        return Ok(());
    };
    let namespace = format!("ns/{}", clipped(&node.namespace));
    let wanted = match &node.account {
        Some(account) => format!("{namespace}/sa/{}", clipped(account)),
        None => namespace,
    };
    let refused = |reason: RefusalReason, found: &str| {
        let id = clipped(&node.id);
        let message = format!("the certificate is for {found}, the node {id} is {wanted}");
        Err((reason, message))
    };
    let identity = match Identity::of(&leaf.uris) {
        Ok(identity) => identity,
        Err(found) => {
            let found = format!("no workload: it has {found}");
            return refused(RefusalReason::Certificate, &found);
        }
    };
    let Identity {
        trust_domain,
        namespace,
        account,
    } = identity;
    let [domain, ns, sa] = [trust_domain, namespace, account].map(clipped);
    if !trusted.has(trust_domain) {
        let found = format!(
            "ns/{ns}/sa/{sa} of trust domain {domain:?}, which is neither {:?} nor an alias of it",
            trusted.own
        );
        return refused(RefusalReason::TrustDomain, &found);
    }
    let found = format!("ns/{ns}/sa/{sa}");
    if *namespace != *node.namespace {
        return refused(RefusalReason::Namespace, &found);
    }
    // A node that names no account is bound by its namespace alone.
    if node.account.as_deref().is_some_and(|name| name != account) {
        return refused(RefusalReason::ServiceAccount, &found);
    }
    Ok(())
}

/// Returns true if a client may have what is secret in the namespace of its node: it is on this machine, or its certificate is
/// for a workload there. A certificate of another namespace is never enough, whatever the check of identities allows otherwise.
pub(super) fn may_have_secrets(peer: &Peer, node: &Node, trusted: &TrustDomains) -> bool {
    match (&peer.leaf, &peer.address) {
        (Some(_), _) => speaks_for(peer, node, Some(trusted)).is_ok(),
        (None, Address::Ip(address)) => is_local(address.ip()),
        // Only users of this machine may open the socket.
        (None, Address::Unix) => true,
        (None, Address::Dialled(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use envoy_types::pb::envoy::config::core::v3 as core;

    use super::*;
    use crate::grpc::Leaf;

    fn node(account: Option<&str>) -> Node {
        let mut node = Node::read(Some(&core::Node {
            id: "sidecar~10.0.0.1~b-1.demo~demo.svc.cluster.local".to_owned(),
            ..core::Node::default()
        }))
        .unwrap();
        node.account = account.map(Into::into);
        node
    }

    fn trusted() -> TrustDomains {
        TrustDomains {
            own: "mesh.example".into(),
            aliases: ["old.example".to_owned(), String::new()].into(),
        }
    }

    fn peer(uris: &[&str]) -> Peer {
        let uris: Vec<String> = uris.iter().map(|&uri| uri.to_owned()).collect();
        let names = std::iter::once("b.example".to_owned())
            .chain(uris.clone())
            .collect();
        let address = Address::Ip((Ipv4Addr::LOCALHOST, 1).into());
        Peer::new(address, Some(Leaf { names, uris }))
    }

    fn outcome(uris: &[&str], account: Option<&str>) -> Result<(), &'static str> {
        let peer = peer(uris);
        assert_eq!(speaks_for(&peer, &node(account), None), Ok(()), "{uris:?}");
        let checked = speaks_for(&peer, &node(account), Some(&trusted()));
        checked.map_err(|(reason, cause)| {
            assert!(
                cause.contains("is ns/demo") && cause.len() < 2000,
                "{cause}"
            );
            reason.as_str()
        })
    }

    #[test]
    fn a_certificate_speaks_for_its_namespace_and_account() {
        let b = "spiffe://mesh.example/ns/demo/sa/b";
        let long = format!("spiffe://mesh.example/ns/demo/sa/{}", "b".repeat(100_000));
        for (uris, account, expected) in [
            (&[b][..], None, Ok(())),
            (&[b], Some("b"), Ok(())),
            (&["spiffe://old.example/ns/demo/sa/b"], None, Ok(())),
            (&[b], Some("c"), Err("service_account")),
            (&[&long], Some("c"), Err("service_account")),
            (
                &["spiffe://mesh.example/ns/other/sa/b"],
                None,
                Err("namespace"),
            ),
            // The same root may sign for other meshes.
            (
                &["spiffe://evil.example/ns/demo/sa/b"],
                None,
                Err("trust_domain"),
            ),
            (
                &["spiffe://MESH.example/ns/demo/sa/b"],
                None,
                Err("trust_domain"),
            ),
        ] {
            assert_eq!(outcome(uris, account), expected, "{:?}", uris[0].get(..50));
        }
        let plain = Peer::new(Address::Unix, None);
        let anybody = speaks_for(&plain, &node(Some("x")), Some(&trusted()));
        assert_eq!(anybody, Ok(()));
    }

    /// A node may say a kilobyte of each, and a log line has a quarter of it.
    #[test]
    fn a_refusal_truncates_what_it_quotes() {
        let mut node = node(Some(&"a".repeat(1000)));
        node.namespace = "n".repeat(1000).into();
        let peer = peer(&["spiffe://mesh.example/ns/demo/sa/b"]);
        let (_, cause) = speaks_for(&peer, &node, Some(&trusted())).unwrap_err();
        for letter in ["a", "n"] {
            let quoted = letter.repeat(256);
            assert!(
                cause.contains(&quoted) && !cause.contains(&format!("{quoted}{letter}")),
                "{cause}"
            );
        }
    }

    #[test]
    fn an_identity_is_one_and_complete() {
        let b = "spiffe://mesh.example/ns/demo/sa/b";
        for uris in [
            &[][..],
            &[b, b],
            &[b, "https://b.example"],
            &["spiffe://mesh.example/ns/other/sa/b", b],
            // An alias that is empty is none.
            &["spiffe:///ns/demo/sa/b"],
            &["spiffe://mesh.example/ns//sa/b"],
            &["spiffe://mesh.example/ns/demo/sa/"],
            &["spiffe://mesh.example/ns/demo/sa"],
            &["spiffe://mesh.example/ns/demo"],
            &["spiffe://mesh.example/ns/demo/sa/b/"],
            &["spiffe://mesh.example/ns/demo/sa/b/c"],
            &["spiffe://mesh.example/x/demo/sa/b"],
            &["https://mesh.example/ns/demo/sa/b"],
            &["b.demo"],
        ] {
            assert_eq!(outcome(uris, None), Err("certificate"), "{uris:?}");
        }
    }

    #[test]
    fn secrets_are_for_the_namespace_and_this_machine() {
        let node = node(None);
        let own = "spiffe://mesh.example/ns/demo/sa/b";
        for (peer, may) in [
            (peer(&[own]), true),
            (peer(&["spiffe://old.example/ns/demo/sa/b"]), true),
            (peer(&["spiffe://mesh.example/ns/other/sa/b"]), false),
            (peer(&["spiffe://else.example/ns/demo/sa/b"]), false),
            (peer(&[]), false),
            (peer(&[own, own]), false),
        ] {
            assert_eq!(may_have_secrets(&peer, &node, &trusted()), may, "{peer:?}");
        }
        for (address, may) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("127.0.0.6:1", false),
            ("10.0.0.7:1", false),
            ("[2001:db8::1]:1", false),
        ] {
            let peer = Peer::new(Address::Ip(address.parse().unwrap()), None);
            assert_eq!(may_have_secrets(&peer, &node, &trusted()), may, "{address}");
        }
        let unix = Peer::new(Address::Unix, None);
        assert!(may_have_secrets(&unix, &node, &trusted()));
    }
}
