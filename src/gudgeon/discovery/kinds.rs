//! Bounds the kinds of proxies from one address: each kind has resources of its own for as long as one of it is connected, and
//! proxies themselves state what sets a kind apart. Each stream keeps its node, too, so that all of an address have a bound in bytes.
//!
//! A proxy like another one of its address costs little, so thousands may come through one translation of addresses.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xds::node::Node;
use xds::stream::NameBudget;

use super::refused_streams::RefusalReason;
use crate::grpc::Address;

/// Kinds by what whole sets of clusters and endpoints differ in: certificates' files, localities, networks, clusters.
const KINDS: usize = 64;
/// Kinds by domain, too: a mesh has one for each namespace, and routes by it.
const DOMAINS: usize = 256;
/// Bytes of memory of the nodes of one address. Chosen: ten thousand streams, as many as an address may have, with 250 labels of 200
/// bytes would take some 900 MB, and the manifest allows 512 MiB. Stock proxies have some 2 KiB each.
const MAX_NODE_BYTES: usize = 64 << 20;

/// The kinds of the connected proxies, by address.
#[derive(Debug, Default)]
pub(crate) struct ProxyKinds {
    hasher: RandomState,
    all: Mutex<HashMap<IpAddr, KindsOfAddress>>,
}

/// The number of proxies of each kind, by a hash of it, and what they keep together.
#[derive(Debug, Default)]
struct KindsOfAddress {
    kinds: HashMap<u64, usize>,
    domains: HashMap<u64, usize>,
    node_bytes: usize,
    names: Arc<NameBudget>,
}

/// A proxy among those of its kind, until it is dropped.
#[derive(Debug)]
pub(crate) struct ProxyKind {
    among: Arc<ProxyKinds>,
    /// `None`: of a socket in the file system.
    share: Option<AddressShare>,
    names: Arc<NameBudget>,
}

/// The share of a proxy in what its address has.
#[derive(Clone, Copy, Debug)]
struct AddressShare {
    network: IpAddr,
    kind: u64,
    domain: u64,
    node_bytes: usize,
}

impl ProxyKind {
    /// The bytes of names of nothing that the proxies of its address may have together.
    pub(crate) fn names(&self) -> Arc<NameBudget> {
        Arc::clone(&self.names)
    }
}

impl ProxyKinds {
    fn all(&self) -> MutexGuard<'_, HashMap<IpAddr, KindsOfAddress>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// The address has all the kinds that it may have, and the proxy is of another one; or the nodes of the address take all the
    /// memory that they may take.
    pub(crate) fn enter(
        self: &Arc<Self>,
        address: &Address,
        node: &Node,
    ) -> Result<ProxyKind, (RefusalReason, String)> {
        let Some(network) = address.network() else {
            return Ok(ProxyKind {
                among: Arc::clone(self),
                share: None,
                names: Arc::default(),
            });
        };
        let [kind, domain] = self.hashes(node);
        let node_bytes = node.memory_bytes();
        let mut all = self.all();
        let of_address = all.entry(network).or_default();
        if !of_address.kinds.contains_key(&kind) && of_address.kinds.len() >= KINDS {
            return Err((
                RefusalReason::Kinds,
                format!(
                    "cannot serve another kind of proxy: its address has {KINDS} with other files, localities, networks or clusters"
                ),
            ));
        }
        if !of_address.domains.contains_key(&domain) && of_address.domains.len() >= DOMAINS {
            return Err((
                RefusalReason::Kinds,
                format!(
                    "cannot serve another kind of proxy: its address has {DOMAINS} with other domains"
                ),
            ));
        }
        let total = of_address.node_bytes.saturating_add(node_bytes);
        if total > MAX_NODE_BYTES {
            return Err((
                RefusalReason::NodeSize,
                format!(
                    "cannot keep the node of another proxy: those of its address would take {total} bytes, {MAX_NODE_BYTES} are allowed"
                ),
            ));
        }
        of_address.node_bytes = total;
        *of_address.kinds.entry(kind).or_default() += 1;
        *of_address.domains.entry(domain).or_default() += 1;
        let names = Arc::clone(&of_address.names);
        drop(all);
        Ok(ProxyKind {
            among: Arc::clone(self),
            share: Some(AddressShare {
                network,
                kind,
                domain,
                node_bytes,
            }),
            names,
        })
    }

    fn hashes(&self, node: &Node) -> [u64; 2] {
        let place = (&node.locality, &node.network, &node.cluster);
        let options = (
            node.kind,
            node.mode,
            node.grpc,
            node.idle_timeout,
            node.http10,
        );
        // Proxies choose these values: the hasher is seeded, so that none can make two kinds collide.
        let kind = self.hasher.hash_one((&node.client, place, options));
        [kind, self.hasher.hash_one((kind, &node.domain))]
    }
}

impl Drop for ProxyKind {
    fn drop(&mut self) {
        let Some(share) = self.share else {
            return;
        };
        let mut all = self.among.all();
        let Some(of_address) = all.get_mut(&share.network) else {
            return;
        };
        of_address.node_bytes -= share.node_bytes;
        decrement(&mut of_address.kinds, share.kind);
        decrement(&mut of_address.domains, share.domain);
        if of_address.kinds.is_empty() {
            all.remove(&share.network);
        }
    }
}

fn decrement(counts: &mut HashMap<u64, usize>, hash: u64) {
    if let Some(count) = counts.get_mut(&hash) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3 as core;

    use super::*;

    fn node(region: usize, domain: usize) -> Node {
        Node::read(Some(&core::Node {
            id: format!("sidecar~10.0.0.1~b.demo~d{domain}.svc.cluster.local"),
            locality: Some(core::Locality {
                region: format!("r{region}"),
                ..core::Locality::default()
            }),
            ..core::Node::default()
        }))
        .unwrap()
    }

    fn at(last: u8) -> Address {
        Address::Ip(([10, 0, 0, last], 1).into())
    }

    /// 500 streams of one address, each with names of files of its own, held 500 sets of clusters.
    #[test]
    fn an_address_has_so_many_kinds_of_proxies_and_as_many_proxies_as_it_likes() {
        let kinds = Arc::new(ProxyKinds::default());
        let enter = |last, region, domain| kinds.enter(&at(last), &node(region, domain));
        let alike: Vec<_> = (0..2000).map(|_| enter(1, 0, 0).unwrap()).collect();
        let mut others: Vec<_> = (1..KINDS)
            .map(|region| enter(1, region, 0).unwrap())
            .collect();
        let (_, refused) = enter(1, KINDS, 0).unwrap_err();
        assert!(
            refused.contains("its address has 64 with other files"),
            "{refused}"
        );
        // Those that are there have more of theirs, and other addresses have their own.
        others.push(enter(1, 1, 0).unwrap());
        others.push(enter(2, KINDS, 0).unwrap());
        let room = DOMAINS - KINDS;
        others.extend((1..=room).map(|domain| enter(1, 0, domain).unwrap()));
        let (_, refused) = enter(1, 0, room + 1).unwrap_err();
        assert!(
            refused.contains("its address has 256 with other domains"),
            "{refused}"
        );
        let unix: Vec<_> = (0..DOMAINS + 1)
            .map(|number| kinds.enter(&Address::Unix, &node(number, number)))
            .collect();
        assert!(unix.iter().all(Result::is_ok));
        // Whoever goes makes room.
        drop(alike);
        drop(others.remove(1));
        others.push(enter(1, 1000, 0).unwrap());
        drop((others, unix));
        assert!(kinds.all().is_empty());
    }

    /// A node with so many labels of 200 bytes.
    fn labelled(labels: usize) -> Node {
        let texts = (0..labels).map(|number| (format!("l{number}"), "x".repeat(200)));
        Node {
            labels: Arc::new(
                texts
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect(),
            ),
            ..node(0, 0)
        }
    }

    #[test]
    fn the_nodes_of_an_address_have_a_bound_together() {
        let kinds = Arc::new(ProxyKinds::default());
        let (stock, large) = (labelled(4), labelled(250));
        let stocks: Vec<_> = (0..10_000)
            .map(|_| kinds.enter(&at(1), &stock).unwrap())
            .collect();
        drop(stocks);
        let mut proxies = Vec::new();
        let (reason, refused) = loop {
            match kinds.enter(&at(1), &large) {
                Ok(proxy) => proxies.push(proxy),
                Err(refused) => break refused,
            }
        };
        assert_eq!(reason, RefusalReason::NodeSize);
        assert!(
            refused.contains("the node of another proxy: those of its address"),
            "{refused}"
        );
        assert!((500..1000).contains(&proxies.len()), "{}", proxies.len());
        assert!(kinds.enter(&at(2), &large).is_ok());
        assert!(kinds.enter(&Address::Unix, &large).is_ok());
        proxies.pop();
        proxies.push(kinds.enter(&at(1), &large).unwrap());
        drop(proxies);
        assert!(kinds.all().is_empty());
    }
}
