//! The choice of the connection that is evicted when all places are taken.
//!
//! Probes from loopback and from the node are kubelet's, or the pod's own: `KEPT` places are reserved for them, and a
//! connection from anywhere else (a stranger) is evicted for one of them. The node's address is what `HOST_IP` says, which not every injector sets and not every
//! network plugin sends probes from; so the first few addresses from which kubelet's probes come count as well, each for
//! as long as it goes on. Anybody can say to be kubelet, so such an address has no more than `KEPT` places of that kind;
//! with others it is a stranger. Among equals no address holds a place that one with fewer wants.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::StatusServer;
use super::connection::{Connection, ConnectionPhase};
use super::limits::{FAIR_SHARE, KEPT, PAGES, PLACES, SPARE, UNREAD};
use super::routes::{Peer, Topic};
use crate::status::{Turn, count};

/// Addresses that are remembered as the node's. Chosen: two of each family, since kubelet probes from one, or from two
/// while the network is set up.
const NODES: usize = 4;
/// Time without a probe after which an address may be replaced. Chosen: probes with a period of minutes keep theirs.
const FORGET: Duration = Duration::from_secs(3600);

/// From where kubelet's probes came, and when the last did.
#[derive(Debug, Default)]
pub(super) struct Nodes([Option<(IpAddr, Instant)>; NODES]);

impl Nodes {
    fn knows(&self, from: IpAddr) -> bool {
        self.0.iter().flatten().any(|(known, _)| *known == from)
    }

    fn learn(&mut self, from: IpAddr, now: Instant) {
        let is_free = |seen: Instant| now.saturating_duration_since(seen) > FORGET;
        let at = self
            .0
            .iter()
            .position(|node| node.is_some_and(|(known, _)| known == from))
            .or_else(|| {
                let free = |node: &Option<_>| node.is_none_or(|(_, seen)| is_free(seen));
                self.0.iter().position(free)
            });
        if let Some(node) = at.and_then(|at| self.0.get_mut(at)) {
            *node = Some((from, now));
        }
    }
}

/// The group of connections among which one is evicted.
#[derive(Clone, Copy)]
enum Among {
    Everyone,
    /// Strangers with a whole request.
    Strangers,
    Pages,
    /// Requests that may last: all but readiness probes and heads that are still being read.
    Lasting,
}

/// Weights of eviction, above any count of connections from one address (at most `PLACES`): a late connection goes first,
/// then a stranger, then a page; among equals the address with the most connections loses one.
const STRANGER: usize = 2 * PLACES;
const LATE: usize = 4 * PLACES;

impl StatusServer {
    /// True if a place is kept for one more connection from there.
    pub(super) fn is_kept(&self, from: IpAddr) -> bool {
        let kept = |(_, other): &(usize, &Connection)| other.kept && other.from == from;
        self.is_certain(from)
            || self.nodes.knows(from) && self.connections().filter(kept).count() < KEPT
    }

    /// Returns true for loopback and the node, whatever a client says about itself.
    pub(super) fn is_certain(&self, from: IpAddr) -> bool {
        Peer::at(from) == Peer::Loopback || self.settings.node == Some(from)
    }

    /// A probe of kubelet's, as it says.
    pub(super) fn learn_node(&mut self, connection: &mut Connection, now: Instant) {
        let from = connection.from;
        if Peer::at(from) != Peer::Loopback {
            self.nodes.learn(from, now);
        }
        connection.kept |= self.is_kept(from);
    }

    /// Evicts another connection if a request that will have to wait has no room. Returns true if it has room now.
    pub(super) fn evict_for(
        &mut self,
        turn: &mut Turn<'_>,
        newcomer: &Connection,
        topic: Option<Topic>,
    ) -> bool {
        let among = if newcomer.page && self.count(Among::Pages) >= PAGES {
            Among::Pages
        } else if !newcomer.kept && self.count(Among::Strangers) >= PLACES.saturating_sub(KEPT) {
            Among::Strangers
        } else if topic != Some(Topic::Ready)
            && self.count(Among::Lasting) >= PLACES.saturating_sub(SPARE)
        {
            Among::Lasting
        } else {
            return true;
        };
        let own = self.burden(among, newcomer);
        let Some((place, burden)) = self.heaviest(among, turn.now) else {
            return false;
        };
        // With one more than the newcomer's address would have, it would only be the other way round.
        let has_room = burden > own.saturating_add(1);
        if has_room {
            self.give_way(turn, place);
        }
        has_room
    }

    /// All places are taken: one that anybody may evict.
    pub(super) fn late_place(&self, now: Instant) -> Option<usize> {
        let (place, burden) = self.heaviest(Among::Everyone, now)?;
        (burden >= LATE).then_some(place)
    }

    pub(super) fn give_way(&mut self, turn: &mut Turn<'_>, place: usize) {
        count(&mut turn.counters.connections_refused);
        self.close(turn, place);
    }

    fn belongs(&self, among: Among, connection: &Connection) -> bool {
        let asks = !matches!(
            connection.phase,
            ConnectionPhase::Head | ConnectionPhase::Lingering { .. }
        );
        match among {
            Among::Everyone => true,
            Among::Strangers => asks && !connection.kept,
            Among::Pages => connection.page,
            Among::Lasting => {
                let ready = matches!(&connection.phase, ConnectionPhase::Waiting(pending) if pending.topic == Topic::Ready);
                asks && !ready
            }
        }
    }

    fn members(&self, among: Among) -> impl Iterator<Item = (usize, &Connection)> {
        self.connections()
            .filter(move |(_, connection)| self.belongs(among, connection))
    }

    fn count(&self, among: Among) -> usize {
        self.members(among).count()
    }

    /// Returns its weight on the others: see `STRANGER`.
    fn burden(&self, among: Among, connection: &Connection) -> usize {
        let same = |(_, other): &(usize, &Connection)| other.from == connection.from;
        let page = if connection.page { PLACES } else { 0 };
        let stranger = if connection.kept { 0 } else { STRANGER };
        self.members(among)
            .filter(same)
            .count()
            .saturating_add(page)
            .saturating_add(stranger)
    }

    /// The oldest of those that weigh most.
    fn heaviest(&self, among: Among, now: Instant) -> Option<(usize, usize)> {
        let weighed = self.members(among).map(|(place, connection)| {
            let late = if is_late(connection, now) { LATE } else { 0 };
            let burden = self.burden(among, connection).saturating_add(late);
            (burden, Reverse(connection.opened), place)
        });
        let (burden, _, place) = weighed.max()?;
        Some((place, burden))
    }
}

/// Whether it may be asked to go when places are scarce: without a whole request at once.
fn is_late(connection: &Connection, now: Instant) -> bool {
    let age = now.saturating_duration_since(connection.opened);
    match connection.phase {
        ConnectionPhase::Head | ConnectionPhase::Lingering { .. } => true,
        ConnectionPhase::Finishing => age > UNREAD,
        ConnectionPhase::Waiting(_) | ConnectionPhase::Probing(_) | ConnectionPhase::Merging(_) => {
            age > FAIR_SHARE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::status::server::tests::Crowd;
    use crate::status::stories::clock;

    fn gone(from: &str) -> (bool, Vec<String>) {
        (true, vec![from.to_owned()])
    }

    const REFUSED: (bool, Vec<String>) = (false, Vec::new());
    const THERE_IS: (bool, Vec<String>) = (true, Vec::new());

    #[test]
    fn pages_have_sixteen_places_and_no_address_has_all() {
        let mut crowd = Crowd::new();
        for _ in 0..PAGES {
            assert_eq!(crowd.asks("10.0.0.9", true, Some(Topic::Page)), THERE_IS);
            crowd.add("10.0.0.9", true, ConnectionPhase::Finishing);
        }
        for topic in [Topic::Page, Topic::Status, Topic::Metrics] {
            assert_eq!(crowd.asks("10.0.0.9", true, Some(topic)), REFUSED);
        }
        assert_eq!(crowd.asks("10.0.0.9", false, Some(Topic::Ready)), THERE_IS);
        assert_eq!(
            crowd.asks("10.0.0.8", true, Some(Topic::Page)),
            gone("10.0.0.9")
        );
        crowd.add("10.0.0.8", true, ConnectionPhase::Finishing);
        assert_eq!(
            crowd.asks("127.0.0.1", true, Some(Topic::Page)),
            gone("10.0.0.9")
        );
    }

    #[test]
    fn strangers_leave_eight_places_to_loopback_and_the_node() {
        let mut crowd = Crowd::new();
        crowd.learn("10.0.0.2");
        for number in 0..PLACES - KEPT {
            let from = format!("10.0.1.{number}");
            assert_eq!(crowd.asks(&from, false, None), THERE_IS);
            crowd.add(&from, false, ConnectionPhase::Finishing);
        }
        // Each has one: no other stranger is better.
        assert_eq!(crowd.asks("10.0.0.9", false, None), REFUSED);
        assert_eq!(crowd.asks("127.0.0.6", false, None), REFUSED);
        for (number, from) in (0_usize..).zip(["127.0.0.1", "10.0.0.1", "10.0.0.2", "::1"]) {
            assert_eq!(crowd.asks(from, false, None), THERE_IS, "{from}");
            assert_eq!(
                crowd.asks(from, false, Some(Topic::Ready)),
                THERE_IS,
                "{from}"
            );
            crowd.add(from, false, ConnectionPhase::Finishing);
            assert!(crowd.server.connections().count() == PLACES - KEPT + number + 1);
        }
        crowd.add("127.0.0.1", false, ConnectionPhase::Finishing);
        // With three left a stranger goes.
        assert_eq!(crowd.asks("10.0.0.1", false, None), gone("10.0.1.0"));
    }

    #[test]
    fn a_stranger_with_many_places_gives_way_to_one_with_none() {
        let mut crowd = Crowd::new();
        crowd.add("10.0.0.8", false, ConnectionPhase::Finishing);
        for _ in 0..PLACES - KEPT - 1 {
            crowd.add("10.0.0.9", false, ConnectionPhase::Finishing);
        }
        assert_eq!(crowd.asks("10.0.0.9", false, None), REFUSED);
        for topic in [None, Some(Topic::Ready)] {
            assert_eq!(crowd.asks("10.0.0.8", false, topic), gone("10.0.0.9"));
            crowd.add("10.0.0.8", false, ConnectionPhase::Finishing);
        }
    }

    /// Four addresses that said so held all places, and kubelet's probes were refused.
    #[test]
    fn clients_that_claim_to_be_kubelet_have_a_few_places_and_no_more() {
        let mut crowd = Crowd::new();
        crowd.server.settings.node = None;
        let liars = ["10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8"];
        for liar in liars {
            crowd.learn(liar);
        }
        for from in liars.into_iter().cycle().take(PLACES - SPARE) {
            assert_eq!(crowd.asks(from, false, None), THERE_IS);
            crowd.add(from, false, ConnectionPhase::Finishing);
        }
        assert_eq!(crowd.asks("10.0.0.5", false, None), REFUSED);
        for _ in 0..KEPT {
            let (room, gone) = crowd.asks("10.0.0.9", false, None);
            assert!(room && gone.len() == 1 && liars.contains(&&*gone[0]));
            crowd.add("10.0.0.9", false, ConnectionPhase::Finishing);
        }
    }

    /// All of loopback's addresses are each container's: one that used 97 kept out the node's probes.
    #[test]
    fn loopback_is_one_party_by_whatever_addresses() {
        let mut crowd = Crowd::new();
        for number in 0..97 {
            let from = format!("127.0.1.{number}");
            if crowd.asks(&from, false, None).0 {
                crowd.add(&from, false, ConnectionPhase::Finishing);
            }
        }
        assert_eq!(crowd.server.connections().count(), PLACES - SPARE);
        for from in ["127.0.0.1", "::1"] {
            assert_eq!(crowd.asks(from, false, None), REFUSED, "{from}");
        }
        for _ in 0..PLACES / 2 - SPARE {
            let (room, gone) = crowd.asks("10.0.0.1", false, None);
            assert!(room && gone.len() == 1 && gone[0].starts_with("127."));
            crowd.add("10.0.0.1", false, ConnectionPhase::Finishing);
        }
    }

    #[test]
    fn a_page_gives_way_to_a_probe() {
        let mut crowd = Crowd::new();
        for _ in 0..PLACES - SPARE - 1 {
            crowd.add("127.0.0.1", false, ConnectionPhase::Finishing);
        }
        crowd.add("127.0.0.2", true, ConnectionPhase::Finishing);
        assert_eq!(crowd.asks("127.0.0.1", false, Some(Topic::Ready)), THERE_IS);
        assert_eq!(crowd.asks("127.0.0.1", false, None), gone("127.0.0.1"));
        crowd.add("127.0.0.1", false, ConnectionPhase::Finishing);
        assert_eq!(crowd.asks("127.0.0.1", false, None), REFUSED);
        assert_eq!(crowd.asks("127.0.0.1", true, Some(Topic::Status)), REFUSED);
    }

    #[test]
    fn without_a_request_strangers_go_first_and_the_oldest_of_them() {
        let mut crowd = Crowd::new();
        crowd.add("127.0.0.1", false, ConnectionPhase::Head);
        assert_eq!(crowd.server.late_place(crowd.began), Some(0));
        for from in ["10.0.0.8", "10.0.0.9", "127.0.0.1"] {
            crowd.add(from, false, ConnectionPhase::Head);
        }
        crowd.add("10.0.0.7", false, ConnectionPhase::Finishing);
        assert_eq!(crowd.server.late_place(crowd.began), Some(1));
        crowd.add("10.0.0.9", false, ConnectionPhase::Head);
        assert_eq!(crowd.server.late_place(crowd.began), Some(2), "it has two");
    }

    #[test]
    fn a_few_nodes_are_remembered_as_long_as_they_probe() {
        let mut nodes = Nodes::default();
        let address = |n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n));
        let began = clock();
        for n in 0..6 {
            nodes.learn(address(n), began);
        }
        let known = |nodes: &Nodes| {
            (0..9)
                .filter(|n| nodes.knows(address(*n)))
                .collect::<Vec<_>>()
        };
        assert_eq!(known(&nodes), [0, 1, 2, 3]);
        nodes.learn(address(1), began + FORGET);
        nodes.learn(address(7), began + FORGET + Duration::from_secs(1));
        nodes.learn(address(1), began + FORGET + Duration::from_secs(1));
        assert_eq!(known(&nodes), [1, 2, 3, 7]);
    }
}
