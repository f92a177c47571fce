//! Addresses of proxies that have no certificates. Clients speak plain to such an address until its proxy says that it has some:
//! with the labels of a pod alone they would try mutual TLS, which the proxy cannot answer.
//!
//! A proxy is believed for the address that it calls from, and no other: no proxy may take mutual TLS from a neighbour. Replicas
//! do not tell each other of their proxies; clients of the others try mutual TLS.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tracing::warn;
use xds::node::{Node, clipped};

use super::Hub;
use crate::discovery::session::Session;
use crate::grpc::Address;
use crate::serve::is_local;

/// An address is remembered for so long when its proxy's stream has ended: the proxy serves on without it, and comes back.
const LINGER: Duration = Duration::from_secs(600);
/// Addresses that are known; later ones are served as their labels say.
const MAX_ADDRESSES: usize = 20_000;

/// Streams of proxies at one address.
#[derive(Debug, Default)]
struct AddressStreams {
    /// The number of the stream with which the address became known. Older streams are not counted here.
    since: u64,
    without: usize,
    /// Streams with certificates that began beside the others: an epoch that takes over.
    with: usize,
    /// The time at which the last stream without certificates ended.
    left: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Plaintext {
    addresses: BTreeMap<IpAddr, AddressStreams>,
    /// Addresses whose last stream without certificates has ended, by the time at which each expires unless one comes back.
    lingering: BTreeSet<(Duration, IpAddr)>,
    is_changed: bool,
}

impl Plaintext {
    /// Counts a stream that has begun, by its number, which grows with each. Returns true if one of its addresses is new.
    fn join(&mut self, number: u64, addresses: &[IpAddr], has_certificates: bool) -> bool {
        let before = self.addresses.len();
        for address in addresses {
            if has_certificates {
                if let Some(streams) = self.addresses.get_mut(address) {
                    streams.with += 1;
                }
                self.reconcile(*address);
            } else if self.addresses.len() < MAX_ADDRESSES || self.addresses.contains_key(address) {
                let streams = self.addresses.entry(*address);
                let streams = streams.or_insert_with(|| AddressStreams {
                    since: number,
                    ..AddressStreams::default()
                });
                if streams.without == 0 {
                    self.lingering.remove(&(streams.left + LINGER, *address));
                }
                streams.without += 1;
            }
        }
        let is_news = self.addresses.len() > before;
        self.is_changed |= is_news;
        is_news
    }

    fn remove_stream(
        &mut self,
        number: u64,
        addresses: &[IpAddr],
        has_certificates: bool,
        now: Duration,
    ) {
        for address in addresses {
            let streams = self.addresses.get_mut(address);
            // One that began before the address was known was not counted, and would leave in place of another.
            let Some(streams) = streams.filter(|streams| streams.since <= number) else {
                continue;
            };
            if has_certificates {
                streams.with = streams.with.saturating_sub(1);
                continue;
            }
            let is_counted = streams.without > 0;
            streams.without = streams.without.saturating_sub(1);
            // Streams that join later take it out of the set by this time.
            if streams.without == 0 && is_counted {
                streams.left = now;
                self.lingering.insert((now + LINGER, *address));
            }
            self.reconcile(*address);
        }
    }

    /// Forgets an address that only proxies with certificates still use: it is served as its labels say.
    fn reconcile(&mut self, address: IpAddr) {
        let streams_of_address = self.addresses.get(&address);
        let streams_of_address =
            streams_of_address.filter(|streams| streams.without == 0 && streams.with > 0);
        if let Some(streams) = streams_of_address {
            self.lingering.remove(&(streams.left + LINGER, address));
            self.addresses.remove(&address);
            self.is_changed = true;
        }
    }

    /// Returns the earliest time at which an address may expire.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.lingering.first().map(|(at, _)| *at)
    }

    /// Forgets addresses whose streams ended long ago. It costs by the streams that have ended, and not by the addresses known:
    /// thousands of proxies may leave and come back at once.
    fn expire(&mut self, now: Duration) {
        while let Some((_, address)) = self.lingering.first().copied().filter(|(at, _)| *at <= now)
        {
            self.lingering.pop_first();
            self.addresses.remove(&address);
            self.is_changed = true;
        }
    }
}

/// Returns the addresses of a proxy that it may speak for.
fn believed(node: &Node, peer: &Address) -> Vec<IpAddr> {
    let all = node.addresses.iter().copied();
    match peer {
        // A client on this machine shows no address of its own.
        Address::Ip(peer) if is_local(peer.ip()) => all.collect(),
        Address::Ip(peer) => {
            // A dual-stack socket shows an IPv4 peer as `::ffff:a.b.c.d`.
            let peer = peer.ip().to_canonical();
            all.filter(|address| address.to_canonical() == peer)
                .collect()
        }
        Address::Unix => all.collect(),
        Address::Dialled(_) => Vec::new(),
    }
}

impl Hub {
    /// Counts a stream that begins, by whether its proxy has certificates.
    pub(super) fn learn_certificates(&self, session: &Session) {
        let node = &session.node;
        let addresses = believed(node, &session.peer);
        let has_certificates = !node.without_certificates;
        let mut inputs = self.inputs();
        let joined = &mut inputs.plaintext;
        let is_news = joined.join(session.number, &addresses, has_certificates);
        drop(inputs);
        let is_plain = self
            .snapshot()
            .is_some_and(|snapshot| snapshot.is_plain(node));
        if is_plain
            && (is_news || addresses.is_empty())
            && let Some(more) = self.log_rate_limiters.plaintext.suffix_if_allowed()
        {
            warn!(
                "{} has no certificates: it is served without mutual TLS{more}",
                clipped(&node.id)
            );
        }
        self.changed.notify_one();
    }

    /// Takes a stream that has ended out of the count.
    pub(super) fn forget_certificates(&self, session: &Session) {
        let addresses = believed(&session.node, &session.peer);
        let has_certificates = !session.node.without_certificates;
        let now = self.clock.now();
        let mut inputs = self.inputs();
        let joined = &mut inputs.plaintext;
        joined.remove_stream(session.number, &addresses, has_certificates, now);
        drop(inputs);
        self.changed.notify_one();
    }

    /// Applies the addresses that were learned or expired since the last call, for all streams that began or ended meanwhile at
    /// once.
    pub(super) fn emit_certificates(&self) {
        let now = self.clock.now();
        let mut inputs = self.inputs();
        inputs.plaintext.expire(now);
        if !std::mem::take(&mut inputs.plaintext.is_changed) {
            return;
        }
        let addresses = inputs.plaintext.addresses.keys().copied().collect();
        drop(inputs);
        self.update(|registries| registries.set_plaintext(addresses));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xds::stream::Protocol;

    use super::*;
    use crate::discovery::testing::hub;

    fn at(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn known(plaintext: &mut Plaintext) -> Option<Vec<IpAddr>> {
        let is_changed = std::mem::take(&mut plaintext.is_changed);
        is_changed.then(|| plaintext.addresses.keys().copied().collect())
    }

    /// The older of two epochs, which has no certificates, is still there when the newer one comes.
    #[test]
    fn an_address_is_plain_until_only_proxies_with_certificates_are_there() {
        let mut all = Plaintext::default();
        assert!(!all.join(1, &[at(1)], true));
        assert_eq!(known(&mut all), None);
        assert!(all.join(2, &[at(1)], false));
        assert_eq!(known(&mut all), Some(vec![at(1)]));
        all.join(3, &[at(1)], true);
        assert_eq!(known(&mut all), None);
        all.remove_stream(2, &[at(1)], false, second(3));
        assert_eq!(known(&mut all), Some(vec![]));
        assert!(all.addresses.is_empty());
    }

    /// Its end used to count as that of the epoch that takes over, and the address stayed plain for ten minutes.
    #[test]
    fn a_stream_from_before_the_address_was_known_leaves_alone() {
        let mut all = Plaintext::default();
        all.join(1, &[at(1)], true);
        all.join(2, &[at(1)], false);
        all.join(3, &[at(1)], true);
        all.remove_stream(1, &[at(1)], true, second(3));
        all.remove_stream(2, &[at(1)], false, second(4));
        assert_eq!(known(&mut all), Some(vec![]));
    }

    /// It serves on while nobody hears of it.
    #[test]
    fn an_address_stays_plain_for_a_while_when_its_stream_is_lost() {
        let mut all = Plaintext::default();
        all.join(1, &[at(1)], false);
        all.join(2, &[at(2)], false);
        assert_eq!(known(&mut all), Some(vec![at(1), at(2)]));
        all.remove_stream(1, &[at(1)], false, second(5));
        all.remove_stream(2, &[at(2)], false, second(5));
        // One comes back as it was, the other with certificates.
        assert!(!all.join(3, &[at(1)], false));
        assert_eq!(known(&mut all), None);
        all.join(4, &[at(2)], true);
        assert_eq!(known(&mut all), Some(vec![at(1)]));
        all.remove_stream(3, &[at(1)], false, second(7));
        assert_eq!(all.deadline(), Some(second(607)), "of the last stream");
        all.expire(second(606));
        assert_eq!(known(&mut all), None);
        all.expire(second(607));
        assert_eq!((known(&mut all), all.deadline()), (Some(vec![]), None));
    }

    /// The address used to stay plain until another stream began or ended.
    #[tokio::test(start_paused = true)]
    async fn an_address_expires_though_no_stream_begins_or_ends() {
        let hub = hub();
        tokio::spawn(Arc::clone(&hub).run());
        let mut node = node("10.0.0.1");
        node.without_certificates = true;
        let (node, peer) = (Arc::new(node), Address::Ip("10.0.0.1:7".parse().unwrap()));
        let view = hub.snapshot().unwrap().view(&node);
        let stream = hub.join(&node, &peer, Protocol::StateOfTheWorld, view);
        let plain = || hub.world().plaintext;
        let after = async |seconds| {
            tokio::time::sleep(second(seconds)).await;
            plain().iter().copied().collect::<Vec<_>>()
        };
        assert_eq!(after(1000).await, [at(1)]);
        drop(stream);
        assert_eq!(after(599).await, [at(1)]);
        assert_eq!(after(2).await, [] as [IpAddr; 0]);
    }

    fn node(ip: &str) -> Node {
        let node = envoy_types::pb::envoy::config::core::v3::Node {
            id: format!("sidecar~{ip}~a.demo~x"),
            ..Default::default()
        };
        Node::read(Some(&node)).unwrap()
    }

    #[test]
    fn a_proxy_cannot_speak_for_its_neighbour() {
        let peer = |text: &str| Address::Ip(text.parse().unwrap());
        let node = node("10.0.0.1");
        for (peer, own) in [
            (peer("10.0.0.1:7"), true),
            (peer("[::ffff:10.0.0.1]:7"), true),
            (peer("10.0.0.2:7"), false),
            (peer("127.0.0.1:7"), true),
            // Envoy passes on by it what came from outside.
            (peer("127.0.0.6:7"), false),
            (Address::Unix, true),
        ] {
            let expected = Vec::from_iter(own.then_some(at(1)));
            assert_eq!(believed(&node, &peer), expected, "{peer}");
        }
    }

    #[test]
    fn addresses_are_bounded() {
        let mut all = Plaintext::default();
        for number in 0..30_000u32 {
            let address = [IpAddr::V4(number.into())];
            all.join(number.into(), &address, false);
        }
        assert_eq!(all.addresses.len(), MAX_ADDRESSES);
    }
}
