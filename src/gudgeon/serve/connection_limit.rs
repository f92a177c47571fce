//! The connection limit of one listener: a fixed number of slots, and the choice of the connection to evict.
//!
//! Clients without an answered request are evicted first; then established ones with a request that does not arrive; then idle
//! ones; and last the busy ones of an address with more than a quarter of all slots. Within each group the address with the most
//! connections loses one: the one without progress for the longest time, whether silent or slow. So a crowd evicts itself, not
//! the API server's kept connections.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// A request without progress for so long may be evicted for a newcomer. Chosen: half of the ten seconds that an API server waits by
/// default.
const STALLED: Duration = Duration::from_secs(5);
/// A younger request is not evicted, however many connections its address has. Chosen: an API server's review takes milliseconds.
const MIN_AGE: Duration = Duration::from_secs(1);
/// The interval between two searches for a connection to evict, when none has become idle. Chosen: a quarter of [`MIN_AGE`].
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct ConnectionLimit {
    max_connections: usize,
    members: Mutex<SlotTable>,
    /// A place was freed, or a connection became idle.
    moved: Notify,
}

#[derive(Debug, Default)]
struct SlotTable {
    next: u64,
    all: HashMap<u64, SlotHolder>,
}

#[derive(Debug)]
struct SlotHolder {
    network: IpAddr,
    /// A request on it was answered, and none was too slow since.
    established: bool,
    /// Requests in work.
    busy: u32,
    /// The time since which a request is in work.
    began: Instant,
    /// The time of the connection's begin, of the last begin or end of a request, or of the last relevant part of one.
    moved: Instant,
    leave: Arc<Notify>,
}

/// A connection's place, free again when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    connection_limit: Arc<ConnectionLimit>,
    id: u64,
    network: IpAddr,
    leave: Arc<Notify>,
}

impl ConnectionLimit {
    pub(super) fn new(max_connections: usize) -> Self {
        Self {
            max_connections,
            members: Mutex::default(),
            moved: Notify::new(),
        }
    }

    fn members(&self) -> MutexGuard<'_, SlotTable> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when another connection may be accepted: a slot is free, or a connection can be evicted.
    pub(super) async fn ready(&self) {
        loop {
            let moved = self.moved.notified();
            {
                let members = self.members();
                if members.all.len() < self.max_connections
                    || members.eviction_victim(self.max_connections).is_some()
                {
                    return;
                }
            }
            // A busy connection becomes evictable by time alone, which notifies no waiter.
            let _late = tokio::time::timeout(CHECK_INTERVAL, moved).await;
        }
    }

    /// Takes a slot; evicts a connection at once if none is free.
    pub(super) fn enter(this: &Arc<Self>, network: IpAddr) -> Slot {
        let leave = Arc::new(Notify::new());
        if this.members().all.len() >= this.max_connections {
            // The victim that `room` found may have become busy since: the listener has one connection more
            // then.
            this.evict();
        }
        let mut members = this.members();
        let id = members.next;
        members.next += 1;
        members.all.insert(
            id,
            SlotHolder {
                network,
                established: false,
                busy: 0,
                began: Instant::now(),
                moved: Instant::now(),
                leave: Arc::clone(&leave),
            },
        );
        Slot {
            connection_limit: Arc::clone(this),
            id,
            network,
            leave,
        }
    }

    /// Asks the one to leave that deserves its place least.
    pub(super) fn evict(&self) {
        let mut members = self.members();
        let first = members.eviction_victim(self.max_connections);
        if let Some(member) = first.and_then(|id| members.all.remove(&id)) {
            member.leave.notify_one();
        }
    }
}

impl SlotTable {
    /// The connection that is evicted next.
    fn eviction_victim(&self, max_connections: usize) -> Option<u64> {
        let now = Instant::now();
        // Strangers count separately: a client with kept connections may open one more.
        let mut shares: HashMap<(IpAddr, bool), usize> = HashMap::new();
        for member in self.all.values() {
            *shares.entry(member.share()).or_default() += 1;
        }
        let ranked = self.all.iter().filter_map(|(id, member)| {
            let share = shares.get(&member.share()).copied().unwrap_or_default();
            let rank = member.rank(now, share > (max_connections / 4).max(1))?;
            Some((rank, Reverse(share), member.moved, *id))
        });
        ranked.min().map(|(_, _, _, id)| id)
    }
}

/// The order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Stranger,
    Stalled,
    Idle,
    /// Busy for long, from an address that has more than its share.
    Crowded,
}

impl SlotHolder {
    /// Returns the group in whose share the connection counts.
    fn share(&self) -> (IpAddr, bool) {
        (self.network, self.established)
    }

    /// `None`: it has its place for sure. `crowded`: its address has more than its share.
    fn rank(&self, now: Instant, crowded: bool) -> Option<Rank> {
        match (self.established, self.busy) {
            (false, _) => Some(Rank::Stranger),
            (true, 0) => Some(Rank::Idle),
            (true, _) if now.duration_since(self.moved) >= STALLED => Some(Rank::Stalled),
            (true, _) if crowded && now.duration_since(self.began) >= MIN_AGE => {
                Some(Rank::Crowded)
            }
            (true, _) => None,
        }
    }
}

impl Slot {
    pub(super) fn network(&self) -> IpAddr {
        self.network
    }

    /// Returns when this connection has to go.
    pub(super) async fn left(&self) {
        self.leave.notified().await;
    }

    /// Evicts this connection.
    pub(super) fn evict_self(&self) {
        self.connection_limit.members().all.remove(&self.id);
        self.leave.notify_one();
        self.connection_limit.moved.notify_one();
    }

    fn with(&self, change: impl FnOnce(&mut SlotHolder)) {
        if let Some(member) = self.connection_limit.members().all.get_mut(&self.id) {
            change(member);
            member.moved = Instant::now();
        }
    }

    pub(super) fn begin(&self) {
        self.with(|member| {
            if member.busy == 0 {
                member.began = Instant::now();
            }
            member.busy += 1;
        });
    }

    pub(super) fn end(&self) {
        self.with(|member| member.busy = member.busy.saturating_sub(1));
        self.connection_limit.moved.notify_one();
    }

    /// Records progress of the awaited request.
    pub(super) fn moved(&self) {
        self.with(|_| {});
    }

    /// Sets whether the connection counts as established.
    pub(super) fn establish(&self, established: bool) {
        // A demotion is no progress of a request, so `moved` stays, unlike in `with`.
        if let Some(member) = self.connection_limit.members().all.get_mut(&self.id) {
            member.established = established;
        }
    }

    pub(super) fn is_established(&self) -> bool {
        let members = self.connection_limit.members();
        let member = members.all.get(&self.id);
        member.is_some_and(|member| member.established)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connection_limit.members().all.remove(&self.id);
        self.connection_limit.moved.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(connection_limit: &Arc<ConnectionLimit>, last: u8) -> Slot {
        ConnectionLimit::enter(connection_limit, IpAddr::from([10, 0, 0, last]))
    }

    /// Takes a slot from an address of its own, so that no share matters.
    fn enter(connection_limit: &Arc<ConnectionLimit>) -> Slot {
        let count = connection_limit.members().next;
        at(connection_limit, u8::try_from(count).unwrap())
    }

    fn asked_to_leave(place: &Slot) -> bool {
        !place.connection_limit.members().all.contains_key(&place.id)
    }

    fn answered(place: &Slot) {
        place.begin();
        place.end();
        place.establish(true);
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_go_before_the_idle_and_the_busy_stay() {
        let connection_limit = Arc::new(ConnectionLimit::new(3));
        let busy = enter(&connection_limit);
        answered(&busy);
        busy.begin();
        let known = enter(&connection_limit);
        answered(&known);
        let stranger = enter(&connection_limit);
        tokio::time::advance(Duration::from_secs(1)).await;
        let younger = enter(&connection_limit);
        assert!(asked_to_leave(&stranger) && !asked_to_leave(&known));
        stranger.left().await;
        answered(&younger);
        younger.begin();
        let last = enter(&connection_limit);
        assert!(asked_to_leave(&known), "the longest idle");
        answered(&last);
        last.begin();
        assert!(!asked_to_leave(&busy) && !asked_to_leave(&younger));
        let wait = tokio::time::timeout(Duration::from_secs(1), connection_limit.ready());
        assert!(wait.await.is_err(), "all are busy");
        last.end();
        connection_limit.ready().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_that_is_slow_goes_before_one_that_has_just_come() {
        let connection_limit = Arc::new(ConnectionLimit::new(3));
        let known = enter(&connection_limit);
        answered(&known);
        let [slow, moves] = [(), ()].map(|()| enter(&connection_limit));
        slow.begin();
        moves.begin();
        tokio::time::advance(Duration::from_secs(1)).await;
        moves.moved();
        connection_limit.ready().await;
        let comes = enter(&connection_limit);
        assert!(asked_to_leave(&slow) && !asked_to_leave(&moves) && !asked_to_leave(&known));
        tokio::time::advance(Duration::from_secs(1)).await;
        comes.moved();
        let last = enter(&connection_limit);
        assert!(asked_to_leave(&moves) && !asked_to_leave(&comes) && !asked_to_leave(&known));
        // An answered client is no longer a stranger, until it is demoted.
        answered(&last);
        last.begin();
        last.establish(false);
        tokio::time::advance(Duration::from_secs(1)).await;
        comes.moved();
        let _next = enter(&connection_limit);
        assert!(asked_to_leave(&last) && !asked_to_leave(&known));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_request_is_evicted_for_a_newcomer() {
        let connection_limit = Arc::new(ConnectionLimit::new(2));
        let all = [(), ()].map(|()| enter(&connection_limit));
        for place in &all {
            answered(place);
            place.begin();
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        let [_, moves] = &all;
        moves.moved();
        let start = Instant::now();
        connection_limit.ready().await;
        assert!(start.elapsed() <= STALLED);
        let _comes = enter(&connection_limit);
        let [stalled, moves] = &all;
        assert!(asked_to_leave(stalled) && !asked_to_leave(moves));
    }

    /// 512 slots with slow bodies after one review each used to lock out all others.
    #[tokio::test(start_paused = true)]
    async fn a_busy_client_leaves_slots_to_others() {
        let connection_limit = Arc::new(ConnectionLimit::new(8));
        let server = at(&connection_limit, 1);
        answered(&server);
        server.begin();
        let many: Vec<_> = (0..7).map(|_| at(&connection_limit, 2)).collect();
        for place in &many {
            answered(place);
            place.begin();
        }
        let gone = || many.iter().filter(|place| asked_to_leave(place)).count();
        let start = Instant::now();
        let mut others = Vec::new();
        // An address keeps a quarter of the slots.
        for last in 3..8 {
            while tokio::time::timeout(CHECK_INTERVAL, connection_limit.ready())
                .await
                .is_err()
            {
                many.iter().for_each(Slot::moved);
                server.moved();
                assert!(start.elapsed() < STALLED, "nobody leaves");
            }
            let comes = at(&connection_limit, last);
            answered(&comes);
            comes.begin();
            others.push(comes);
        }
        assert_eq!(gone(), 5);
        assert!(start.elapsed() >= MIN_AGE && !asked_to_leave(&server));
        let wait = tokio::time::timeout(MIN_AGE, connection_limit.ready());
        assert!(
            wait.await.is_err(),
            "all are busy, and nobody has more than his share"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_stranger_whose_address_has_most_connections_goes() {
        let connection_limit = Arc::new(ConnectionLimit::new(5));
        let older: Vec<_> = (0..2).map(|_| at(&connection_limit, 1)).collect();
        older.iter().for_each(answered);
        let mut last = at(&connection_limit, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        let _crowd: Vec<_> = (0..20)
            .map(|_| {
                let place = at(&connection_limit, 2);
                assert!(!asked_to_leave(&last));
                place
            })
            .collect();
        answered(&last);
        last = at(&connection_limit, 1);
        assert!(!asked_to_leave(&last) && !older.iter().any(asked_to_leave));
    }
}
