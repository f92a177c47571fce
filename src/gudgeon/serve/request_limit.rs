//! Permits: limits the requests with a body at a time, and the memory of their bodies.
//!
//! No request waits for a permit. It gets one at once, or 429: so slow clients cannot fill a queue. If none is left, a
//! request evicts a less deserving one: one whose body has stalled; if it comes over an established connection, one of a
//! stranger; and among equals one that holds much more, or one of an address that does: one with more than half of all is
//! evicted even for strangers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection::Connection;
use super::worker::JobOwner;

/// A body without progress in this time gives way to any other. Chosen: many round trips of an API server in the same cluster.
pub(super) const STALE: Duration = Duration::from_millis(250);
/// Bytes that count as progress of a body. Chosen: a page, so that single bytes do not keep a permit.
pub(super) const STEP: usize = 4 << 10;
/// Among equals, a permit is taken from a request that holds at least this many times as much. Chosen: bodies of one kind differ less.
const MUCH: usize = 4;

/// All permits of a listener.
#[derive(Debug)]
pub(crate) struct RequestLimit {
    /// The least that a permit counts for.
    floor: usize,
    state: Mutex<PermitState>,
}

/// No permit, since the limit of requests or of bytes is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// No other request can be evicted.
    Full,
    /// The permit was given to another request.
    Evicted,
}

#[derive(Debug)]
struct PermitState {
    next: u64,
    /// The total bytes.
    bytes: usize,
    free: usize,
    holders: BTreeMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    connection: Arc<Connection>,
    bytes: usize,
    progress: RequestProgress,
    /// The time of the last relevant part of the body, or of the last change of progress.
    moved: Instant,
    /// Bytes of the body since then.
    came: usize,
    evicted: Arc<Notify>,
}

/// The progress of a request with a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestProgress {
    /// The body comes.
    Reading,
    /// The body is complete, and other requests are before it.
    Queued,
    /// The request is worked on: it keeps its permit in any case.
    Working,
    /// The answer is to be taken.
    Answering,
}

/// Leave to be under way, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    request_limit: Arc<RequestLimit>,
    connection: Arc<Connection>,
    id: u64,
    evicted: Arc<Notify>,
}

impl RequestLimit {
    /// Creates permits for so many bytes, and so many requests.
    pub(crate) fn new(bytes: usize, requests: usize) -> Arc<Self> {
        Arc::new(Self {
            // Bytes alone bound the number of requests, since each counts for at least its share of them.
            floor: bytes.checked_div(requests).unwrap_or(bytes).max(1),
            state: Mutex::new(PermitState {
                next: 0,
                bytes,
                free: bytes,
                holders: BTreeMap::new(),
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, PermitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires a permit for a request of this connection.
    ///
    /// # Errors
    /// The limit is reached, and no other request can be evicted.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
    ) -> Result<Permit, Rejected> {
        let now = Instant::now();
        let evicted = Arc::new(Notify::new());
        let id = {
            let mut state = self.state();
            let id = state.next;
            state.evict(id, connection, self.floor, self.floor, now)?;
            state.next += 1;
            // `evict` has freed at least `floor` bytes.
            state.free -= self.floor;
            state.holders.insert(
                id,
                Holder {
                    connection: Arc::clone(connection),
                    bytes: self.floor,
                    progress: RequestProgress::Reading,
                    moved: now,
                    came: 0,
                    evicted: Arc::clone(&evicted),
                },
            );
            id
        };
        Ok(Permit {
            request_limit: Arc::clone(self),
            connection: Arc::clone(connection),
            id,
            evicted,
        })
    }
}

impl PermitState {
    /// Evicts as many requests as have to go so that `wanted` bytes are free, or none. The caller will hold `all` bytes
    /// then.
    fn evict(
        &mut self,
        own: u64,
        connection: &Connection,
        wanted: usize,
        all: usize,
        now: Instant,
    ) -> Result<(), Rejected> {
        if self.free >= wanted {
            return Ok(());
        }
        let shares = self.shares();
        let has = self.holders.get(&own).map_or(0, |holder| holder.bytes);
        let mine = shares.get(&connection.network()).copied();
        let claim = Claim {
            connection,
            all,
            mine: mine.unwrap_or_default().saturating_sub(has) + all,
            half: self.bytes / 2,
        };
        let others = self.holders.iter().filter(|(id, _)| **id != own);
        let candidates = others.filter_map(|(id, holder)| {
            let theirs = shares.get(&holder.connection.network()).copied();
            let order = claim.order(holder, theirs.unwrap_or_default(), now)?;
            Some((order, *id, holder.bytes))
        });
        let mut chosen: Vec<_> = candidates.collect();
        chosen.sort_unstable();
        let mut free = self.free;
        let enough = chosen.iter().position(|(_, _, bytes)| {
            free += bytes;
            free >= wanted
        });
        let count = enough.ok_or(Rejected::Full)? + 1;
        for (_, id, _) in chosen.into_iter().take(count) {
            if let Some(holder) = self.holders.remove(&id) {
                self.free += holder.bytes;
                holder.evict(now);
            }
        }
        Ok(())
    }
}

/// A request that wants room.
struct Claim<'a> {
    connection: &'a Connection,
    /// Bytes that it will hold.
    all: usize,
    /// Bytes that its network will hold.
    mine: usize,
    /// Half of the bytes of all.
    half: usize,
}

/// The order in which requests are evicted: the least one first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionOrder {
    is_established: bool,
    is_moving: bool,
    /// The largest of those that move goes first.
    bytes: Reverse<usize>,
    moved: Instant,
}

impl Claim<'_> {
    /// Returns the place of a request in the order of eviction; `None`: it keeps its permit. `theirs`: the bytes of its network.
    fn order(&self, holder: &Holder, theirs: usize, now: Instant) -> Option<EvictionOrder> {
        if holder.progress == RequestProgress::Working {
            return None;
        }
        let is_known = self.connection.is_established();
        let is_other = holder.connection.network() != self.connection.network();
        let has_majority = is_other && theirs > self.half && self.mine <= self.half;
        let is_stale = holder.is_stale(now);
        let is_established = !is_stale && !has_majority && holder.connection.is_established();
        // A network with more than half takes nothing from another one, established or not.
        let takes_from_strangers = is_known && (!is_other || self.mine <= self.half);
        // The other network keeps at least as much as the caller then has, so two do not evict each other in turns.
        let has_more = is_other && theirs.saturating_sub(holder.bytes) >= self.mine;
        let gives_way = has_majority
            || (takes_from_strangers && !is_established)
            || (is_established == is_known
                && (is_stale || has_more || holder.bytes / MUCH >= self.all));
        gives_way.then_some(EvictionOrder {
            is_established,
            is_moving: !is_stale,
            bytes: Reverse(if is_stale { 0 } else { holder.bytes }),
            moved: holder.moved,
        })
    }
}

impl PermitState {
    /// Bytes by address.
    fn shares(&self) -> HashMap<IpAddr, usize> {
        let mut shares: HashMap<IpAddr, usize> = HashMap::new();
        for holder in self.holders.values() {
            *shares.entry(holder.connection.network()).or_default() += holder.bytes;
        }
        shares
    }
}

impl Holder {
    /// Notifies it; a connection that cannot be notified is cut.
    fn evict(self, now: Instant) {
        match self.progress {
            RequestProgress::Answering => self.connection.cut(),
            RequestProgress::Reading | RequestProgress::Queued | RequestProgress::Working => {
                self.evicted.notify_one();
            }
        }
        // The client has stalled: an answered request no longer vouches for its connection.
        if self.is_stale(now) {
            self.connection.demote();
        }
    }

    /// Returns true if the program waits for the client, which has stalled.
    fn is_stale(&self, now: Instant) -> bool {
        matches!(
            self.progress,
            RequestProgress::Reading | RequestProgress::Answering
        ) && now.duration_since(self.moved) >= STALE
    }
}

impl Permit {
    /// Counts bytes of the body that have arrived.
    pub(super) fn came(&self, bytes: usize) {
        let mut state = self.request_limit.state();
        let Some(holder) = state.holders.get_mut(&self.id) else {
            return;
        };
        holder.came = holder.came.saturating_add(bytes);
        if holder.came >= STEP {
            (holder.came, holder.moved) = (0, Instant::now());
            self.connection.moved();
        }
    }

    /// Reserves so many bytes for the body.
    ///
    /// # Errors
    /// The limit is reached, or the permit was evicted: the caller drops the permit.
    pub(super) fn grow(&self, bytes: usize) -> Result<(), Rejected> {
        let mut state = self.request_limit.state();
        let has = state.holders.get(&self.id).map(|holder| holder.bytes);
        let has = has.ok_or(Rejected::Evicted)?;
        let wanted = bytes.saturating_sub(has);
        if wanted == 0 {
            return Ok(());
        }
        state.evict(self.id, &self.connection, wanted, bytes, Instant::now())?;
        // `evict` has freed at least `wanted` bytes.
        state.free -= wanted;
        if let Some(holder) = state.holders.get_mut(&self.id) {
            holder.bytes = bytes;
        }
        Ok(())
    }

    /// Advances to the next progress.
    ///
    /// # Errors
    /// The permit was evicted, and the notification is pending.
    pub(crate) fn begin(&self, progress: RequestProgress) -> Result<(), Rejected> {
        let mut state = self.request_limit.state();
        let holder = state.holders.get_mut(&self.id);
        let holder = holder.ok_or(Rejected::Evicted)?;
        (holder.progress, holder.moved) = (progress, Instant::now());
        Ok(())
    }

    /// Returns when the permit was given to another request.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Returns the notification of an eviction.
    pub(crate) fn eviction(&self) -> Arc<Notify> {
        Arc::clone(&self.evicted)
    }

    /// Returns the flow whose jobs take turns with others.
    pub(crate) fn owner(&self) -> JobOwner {
        JobOwner {
            network: self.connection.network(),
            established: self.connection.is_established(),
        }
    }

    /// Establishes the client: its request is one that an API server sends.
    pub(crate) fn establish(&self) {
        self.connection.establish();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.request_limit.state();
        if let Some(holder) = state.holders.remove(&self.id) {
            state.free += holder.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::super::connection_limit::ConnectionLimit;
    use super::*;

    const MORE: Duration = STALE.saturating_add(Duration::from_millis(1));

    /// The first `known` of them were answered before.
    fn lines<const COUNT: usize>(known: usize) -> [Arc<Connection>; COUNT] {
        lines_of(known, 1)
    }

    /// The same of an address.
    fn lines_of<const COUNT: usize>(known: usize, last: u8) -> [Arc<Connection>; COUNT] {
        let connection_limit = Arc::new(ConnectionLimit::new(COUNT));
        std::array::from_fn(|at| {
            let peer = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 1));
            let line = Connection::new(peer, ConnectionLimit::enter(&connection_limit, peer.ip()));
            if at < known {
                line.establish();
            }
            line
        })
    }

    async fn happens(what: impl Future) -> bool {
        tokio::time::timeout(Duration::ZERO, what).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_client_evicts_strangers() {
        let [known, one, two, three] = lines(1);
        let request_limit = RequestLimit::new(20, 2);
        let first = request_limit.acquire(&one).unwrap();
        let second = request_limit.acquire(&two).unwrap();
        // Both are as good as a third.
        assert_eq!(request_limit.acquire(&three).unwrap_err(), Rejected::Full);
        let third = request_limit.acquire(&known).unwrap();
        assert!(happens(first.evicted()).await && !happens(second.evicted()).await);
        assert_eq!(first.begin(RequestProgress::Queued), Err(Rejected::Evicted));
        assert_eq!(first.grow(11), Err(Rejected::Evicted));
        drop(first);
        let fourth = request_limit.acquire(&known).unwrap();
        assert!(happens(second.evicted()).await && !happens(third.evicted()).await);
        // An established holder keeps its permit, unless it stalls.
        assert_eq!(request_limit.acquire(&three).unwrap_err(), Rejected::Full);
        tokio::time::advance(MORE).await;
        fourth.came(STEP);
        let fifth = request_limit.acquire(&three).unwrap();
        assert!(happens(third.evicted()).await && !happens(fourth.evicted()).await);
        drop((second, third, fourth, fifth));
        assert_eq!(request_limit.state().free, 20);
    }

    #[tokio::test(start_paused = true)]
    async fn among_equals_who_does_not_move_gives_way() {
        let [one, two, three, four] = lines(0);
        let request_limit = RequestLimit::new(20_000, 2);
        let slow = request_limit.acquire(&one).unwrap();
        let moves = request_limit.acquire(&two).unwrap();
        for _ in 0..4 {
            tokio::time::advance(STALE / 2).await;
            slow.came(1);
            moves.came(STEP);
        }
        let third = request_limit.acquire(&three).unwrap();
        assert!(happens(slow.evicted()).await && !happens(moves.evicted()).await);
        assert!(!happens(one.left()).await, "it is told over its connection");
        // The body is complete: the delay is this program's.
        for progress in [RequestProgress::Queued, RequestProgress::Working] {
            moves.begin(progress).unwrap();
            third.begin(progress).unwrap();
            tokio::time::advance(MORE).await;
            assert_eq!(request_limit.acquire(&four).unwrap_err(), Rejected::Full);
        }
        // The client does not read the answer.
        moves.begin(RequestProgress::Answering).unwrap();
        assert_eq!(request_limit.acquire(&four).unwrap_err(), Rejected::Full);
        tokio::time::advance(MORE).await;
        request_limit.acquire(&four).unwrap();
        assert!(happens(two.left()).await && !happens(three.left()).await);
        assert!(!happens(moves.evicted()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_request_gives_way_to_a_small_one() {
        let [one, two, three, four] = lines(4);
        let request_limit = RequestLimit::new(40, 8);
        let large = request_limit.acquire(&one).unwrap();
        large.grow(25).unwrap();
        let small = request_limit.acquire(&two).unwrap();
        assert_eq!(
            small.grow(20),
            Err(Rejected::Full),
            "half of them is not little"
        );
        assert!(
            !happens(small.evicted()).await,
            "nobody had to go for nothing"
        );
        small.grow(15).unwrap();
        let third = request_limit.acquire(&three).unwrap();
        assert!(happens(large.evicted()).await && !happens(small.evicted()).await);
        drop((large, small, third));
        assert_eq!(request_limit.state().free, 40);
        // A request that is worked on is never evicted.
        let [stranger, _, _, _] = lines(0);
        let working = request_limit.acquire(&stranger).unwrap();
        working.grow(40).unwrap();
        working.begin(RequestProgress::Working).unwrap();
        assert_eq!(request_limit.acquire(&four).unwrap_err(), Rejected::Full);
    }

    /// 256 clients with one answered review each, whose bodies come just fast enough, used to hold all permits.
    #[tokio::test(start_paused = true)]
    async fn the_address_with_the_most_requests_gives_way() {
        for known in [1, 0] {
            let many: [_; 8] = lines_of(8, 1);
            let [server] = lines_of(known, 2);
            let request_limit = RequestLimit::new(80, 8);
            let mut permits: Vec<_> = many
                .iter()
                .map(|one| request_limit.acquire(one).unwrap())
                .collect();
            let mut own: Vec<Permit> = Vec::new();
            for _ in 0..4 {
                tokio::time::advance(STALE / 2).await;
                permits
                    .iter()
                    .chain(&own)
                    .for_each(|permit| permit.came(STEP));
                own.push(request_limit.acquire(&server).unwrap());
            }
            // An address with half of all permits is not evicted.
            assert_eq!(request_limit.acquire(&server).unwrap_err(), Rejected::Full);
            assert_eq!(request_limit.acquire(&many[0]).unwrap_err(), Rejected::Full);
            let mut evicted = 0;
            for permit in &permits {
                evicted += usize::from(happens(permit.evicted()).await);
            }
            assert_eq!(evicted, 4, "{known}");
            permits.clear();
            own.clear();
            assert_eq!(request_limit.state().free, 80);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_connection_that_was_too_slow_is_a_stranger() {
        let [one, other] = lines(2);
        let request_limit = RequestLimit::new(10, 1);
        let slow = request_limit.acquire(&one).unwrap();
        tokio::time::advance(MORE).await;
        let _taken = request_limit.acquire(&other).unwrap();
        assert!(happens(slow.evicted()).await);
        assert!(!one.is_established() && other.is_established());
    }
}
