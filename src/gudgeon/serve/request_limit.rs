//! Permits: limits the requests with a body at a time, and the memory of their bodies.
//!
//! A stranger's request gets a permit at once, or 429: so slow clients cannot fill a queue. An established client's waits for a
//! while, since an API server refuses the pod whose review got 429: the network that holds the least is first, then the oldest
//! request. A smaller request overtakes one that there is no room for yet, until a whole limit of bytes has done so; then no request
//! behind it in that order is admitted for a moment, in which the holders end. If no permit is left, a request evicts a less deserving
//! one: one whose body has stalled; if it comes over an established connection, one of a stranger; and among equals one that holds
//! much more, or one of an address that does: one with more than half of all is evicted even for strangers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::connection::Connection;
use super::worker::JobOwner;

/// A body without progress in this time gives way to any other. Chosen: many round trips of an API server in the same cluster.
pub(super) const STALE: Duration = Duration::from_millis(250);
/// Bytes that count as progress of a body. Chosen: a page, so that single bytes do not keep a permit.
pub(super) const STEP: usize = 4 << 10;
/// Among equals, a permit is taken from a request that holds at least this many times as much. Chosen: bodies of one kind differ less.
const MUCH: usize = 4;

/// The longest wait for a permit. Chosen: less than half of the five seconds of the shipped `timeoutSeconds`.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Requests that wait at most. Chosen: as many as the streams of two API servers.
const MAX_WAITING: usize = 256;
/// The time in which no request behind that one is admitted. Chosen: far more than reviews take, and an eighth of the wait: a large
/// request and slow holders together do not keep others from their permits for longer.
const IN_ORDER: Duration = STALE;

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
    /// The requests that wait, the oldest first.
    waiting: BTreeMap<u64, WaitingRequest>,
    overtaking: Overtaking,
}

/// Tells whether a request may overtake another one that there is no room for.
#[derive(Debug)]
enum Overtaking {
    /// The bytes of the requests that did so.
    Allowed(usize),
    ForbiddenUntil(Instant),
}

/// A request without a permit yet.
#[derive(Debug)]
struct WaitingRequest {
    connection: Arc<Connection>,
    bytes: usize,
    permit: oneshot::Sender<Permit>,
}

/// The slot of a request that waits, given up when dropped.
#[derive(Debug)]
struct WaitingSlot<'a> {
    request_limit: &'a RequestLimit,
    id: u64,
    permit: oneshot::Receiver<Permit>,
}

impl Drop for WaitingSlot<'_> {
    fn drop(&mut self) {
        self.request_limit.state().waiting.remove(&self.id);
    }
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
                waiting: BTreeMap::new(),
                overtaking: Overtaking::Allowed(0),
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, PermitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires a permit for a request of this connection, at once.
    ///
    /// # Errors
    /// The limit is reached, and no other request can be evicted.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
    ) -> Result<Permit, Rejected> {
        self.grant(&mut self.state(), connection, self.floor)
    }

    /// Acquires a permit for a request whose body will have so many bytes. If the connection is established, the request waits for
    /// it, and has room for the whole body then.
    ///
    /// # Errors
    /// The limit is reached: no other request can be evicted, and too few end in time.
    pub(crate) async fn acquire_in_turn(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        body: usize,
    ) -> Result<Permit, Rejected> {
        if !connection.is_established() {
            return self.acquire(connection);
        }
        let mut slot = {
            let mut state = self.state();
            let bytes = body.max(self.floor);
            if bytes > state.bytes {
                return Err(Rejected::Full);
            }
            if state.waiting.is_empty()
                && let Ok(permit) = self.grant(&mut state, connection, bytes)
            {
                return Ok(permit);
            }
            self.enter(&mut state, connection, bytes)?
        };
        // The network may hold less than those that wait, or the request may overtake one.
        self.admit();
        let deadline = Instant::now() + MAX_WAIT;
        while Instant::now() < deadline {
            // A holder becomes stale by time alone, which wakes nobody.
            let late = tokio::time::timeout(STALE, &mut slot.permit);
            if let Ok(permit) = late.await {
                return permit.map_err(|_| Rejected::Full);
            }
            self.admit();
        }
        slot.permit.try_recv().map_err(|_| Rejected::Full)
    }

    /// Gives a permit for so many bytes to a request, if there is room.
    fn grant(
        self: &Arc<Self>,
        state: &mut PermitState,
        connection: &Arc<Connection>,
        bytes: usize,
    ) -> Result<Permit, Rejected> {
        let now = Instant::now();
        let id = state.next;
        state.evict(id, connection, bytes, bytes, now)?;
        state.next += 1;
        // `evict` has freed at least so many bytes.
        state.free -= bytes;
        let evicted = Arc::new(Notify::new());
        let holder = Holder {
            connection: Arc::clone(connection),
            bytes,
            progress: RequestProgress::Reading,
            moved: now,
            came: 0,
            evicted: Arc::clone(&evicted),
        };
        state.holders.insert(id, holder);
        Ok(Permit {
            request_limit: Arc::clone(self),
            connection: Arc::clone(connection),
            id,
            evicted,
        })
    }

    /// Enters a request among those that wait. If all slots are taken, the newest of the network that has the most leaves for
    /// one of a network that has fewer.
    fn enter(
        &self,
        state: &mut PermitState,
        connection: &Arc<Connection>,
        bytes: usize,
    ) -> Result<WaitingSlot<'_>, Rejected> {
        if state.waiting.len() >= MAX_WAITING {
            let newest = state.surplus_waiting(connection.network());
            // The task that waits for it gets an error.
            state.waiting.remove(&newest.ok_or(Rejected::Full)?);
        }
        let id = state.next;
        state.next += 1;
        let (permit, receiver) = oneshot::channel();
        let request = WaitingRequest {
            connection: Arc::clone(connection),
            bytes,
            permit,
        };
        state.waiting.insert(id, request);
        Ok(WaitingSlot {
            request_limit: self,
            id,
            permit: receiver,
        })
    }

    /// Gives permits to the requests that wait, as far as there is room: to the network that holds the least first, and of those that
    /// hold as much, to the one whose request is the oldest.
    fn admit(self: &Arc<Self>) {
        let mut admitted = Vec::new();
        {
            let mut state = self.state();
            let now = Instant::now();
            let mut blocked = HashSet::new();
            while let Some(id) = state.next_waiting(&blocked) {
                let Some(request) = state.waiting.remove(&id) else {
                    break;
                };
                match self.grant(&mut state, &request.connection, request.bytes) {
                    Ok(permit) => {
                        if !blocked.is_empty() {
                            state.overtaking.count(request.bytes);
                        }
                        admitted.push((request.permit, permit));
                    }
                    Err(_) => {
                        // What is behind it in its network must not overtake it.
                        blocked.insert(request.connection.network());
                        state.waiting.insert(id, request);
                        let limit = state.bytes;
                        if !state.overtaking.is_allowed(limit, now) {
                            break;
                        }
                    }
                }
            }
        }
        for (request, permit) in admitted {
            // A permit that comes too late is dropped, which needs the lock.
            drop(request.send(permit));
        }
    }
}

impl Overtaking {
    fn count(&mut self, bytes: usize) {
        if let Self::Allowed(overtook) = self {
            *overtook = overtook.saturating_add(bytes);
        }
    }

    /// Returns true if requests may overtake now. Once `limit` bytes have, none may for a moment.
    fn is_allowed(&mut self, limit: usize, now: Instant) -> bool {
        match *self {
            Self::Allowed(overtook) if overtook >= limit => {
                *self = Self::ForbiddenUntil(now + IN_ORDER);
            }
            Self::ForbiddenUntil(end) if now >= end => *self = Self::Allowed(0),
            Self::Allowed(_) | Self::ForbiddenUntil(_) => {}
        }
        matches!(self, Self::Allowed(_))
    }
}

impl PermitState {
    /// The request to admit next, of a network that is not blocked.
    fn next_waiting(&self, blocked: &HashSet<IpAddr>) -> Option<u64> {
        if self.waiting.is_empty() {
            return None;
        }
        let shares = self.shares();
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|(id, request)| (*id, request.connection.network()));
        let open = waiting.filter(|(_, network)| !blocked.contains(network));
        let share = |network| shares.get(&network).copied().unwrap_or_default();
        let next = open.min_by_key(|(id, network)| (share(*network), *id));
        next.map(|(id, _)| id)
    }

    /// The newest request of the network with the most that wait, if `network` has fewer even with one more.
    fn surplus_waiting(&self, network: IpAddr) -> Option<u64> {
        let mut counts: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for (id, request) in &self.waiting {
            let (count, newest) = counts.entry(request.connection.network()).or_default();
            (*count, *newest) = (*count + 1, *id);
        }
        let own = counts.get(&network).map_or(0, |(count, _)| *count);
        let (count, newest) = counts.into_values().max()?;
        (count > own + 1).then_some(newest)
    }

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
        let evictor = Evictor {
            connection,
            bytes: all,
            network_bytes: mine.unwrap_or_default().saturating_sub(has) + all,
            half: self.bytes / 2,
        };
        let others = self.holders.iter().filter(|(id, _)| **id != own);
        let candidates = others.filter_map(|(id, holder)| {
            let theirs = shares.get(&holder.connection.network()).copied();
            let order = evictor.order(holder, theirs.unwrap_or_default(), now)?;
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

/// The request for which others are evicted.
struct Evictor<'a> {
    connection: &'a Connection,
    /// Bytes that it will hold.
    bytes: usize,
    /// Bytes that its network will hold.
    network_bytes: usize,
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

impl Evictor<'_> {
    /// Returns the place of a request in the order of eviction; `None`: it keeps its permit. `theirs`: the bytes of its network.
    fn order(&self, holder: &Holder, theirs: usize, now: Instant) -> Option<EvictionOrder> {
        if holder.progress == RequestProgress::Working {
            return None;
        }
        let is_known = self.connection.is_established();
        let is_other = holder.connection.network() != self.connection.network();
        let has_majority = is_other && theirs > self.half && self.network_bytes <= self.half;
        let is_stale = holder.is_stale(now);
        let is_established = !is_stale && !has_majority && holder.connection.is_established();
        // A network with more than half takes nothing from another one, established or not.
        let takes_from_strangers = is_known && (!is_other || self.network_bytes <= self.half);
        // The other network keeps at least as much as the caller then has, so two do not evict each other in turns.
        let has_more = is_other && theirs.saturating_sub(holder.bytes) >= self.network_bytes;
        let gives_way = has_majority
            || (takes_from_strangers && !is_established)
            || (is_established == is_known
                && (is_stale || has_more || holder.bytes / MUCH >= self.bytes));
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
        {
            let mut state = self.request_limit.state();
            if let Some(holder) = state.holders.remove(&self.id) {
                state.free += holder.bytes;
            }
        }
        self.request_limit.admit();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::net::{Ipv4Addr, SocketAddr};

    use tokio::task::JoinHandle;

    use super::super::connection_limit::ConnectionLimit;
    use super::*;

    const MORE: Duration = STALE.saturating_add(Duration::from_millis(1));

    /// The first `known` of them were answered before.
    fn connections<const COUNT: usize>(known: usize) -> [Arc<Connection>; COUNT] {
        connections_of(known, 1)
    }

    /// The same of an address.
    fn connections_of<const COUNT: usize>(known: usize, last: u8) -> [Arc<Connection>; COUNT] {
        let connection_limit = Arc::new(ConnectionLimit::new(COUNT));
        std::array::from_fn(|at| {
            let peer = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 1));
            let connection =
                Connection::new(peer, ConnectionLimit::enter(&connection_limit, peer.ip()));
            if at < known {
                connection.establish();
            }
            connection
        })
    }

    async fn happens(what: impl Future) -> bool {
        tokio::time::timeout(Duration::ZERO, what).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_client_evicts_strangers() {
        let [known, one, two, three] = connections(1);
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
        let [one, two, three, four] = connections(0);
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
        let [one, two, three, four] = connections(4);
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
        let [stranger, _, _, _] = connections(0);
        let working = request_limit.acquire(&stranger).unwrap();
        working.grow(40).unwrap();
        working.begin(RequestProgress::Working).unwrap();
        assert_eq!(request_limit.acquire(&four).unwrap_err(), Rejected::Full);
    }

    /// 256 clients with one answered review each, whose bodies come just fast enough, used to hold all permits.
    #[tokio::test(start_paused = true)]
    async fn the_address_with_the_most_requests_gives_way() {
        for known in [1, 0] {
            let many: [_; 8] = connections_of(8, 1);
            let [server] = connections_of(known, 2);
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

    /// An API server refuses the pod whose review got 429: of 64 bodies of 300 kB at once most used to.
    #[tokio::test(start_paused = true)]
    async fn requests_of_established_clients_wait_for_their_turn() {
        let three: [_; 3] = connections(3);
        let request_limit = RequestLimit::new(40, 8);
        let first = request_limit.acquire_in_turn(&three[0], 30).await.unwrap();
        first.begin(RequestProgress::Queued).unwrap();
        let waits = |at: usize, body: usize| {
            let (request_limit, connection) = (Arc::clone(&request_limit), Arc::clone(&three[at]));
            tokio::spawn(async move { request_limit.acquire_in_turn(&connection, body).await })
        };
        let large = waits(1, 20);
        tokio::task::yield_now().await;
        // It would have room, and does not overtake.
        let small = waits(2, 10);
        tokio::task::yield_now().await;
        assert!(!large.is_finished() && !small.is_finished());
        drop(first);
        let large = large.await.unwrap().unwrap();
        let small = small.await.unwrap().unwrap();
        // The body's bytes are there, so that no two bodies wait for each other's.
        large.grow(20).unwrap();
        assert_eq!(request_limit.state().free, 10);
        drop((large, small));
        assert_eq!(request_limit.state().free, 40);
        assert!(request_limit.state().waiting.is_empty());
    }

    /// A request of an established connection, of which the body has arrived once it has its permit.
    struct Requester {
        connection: Arc<Connection>,
        request_limit: Arc<RequestLimit>,
    }

    impl Requester {
        fn of(request_limit: &Arc<RequestLimit>, last: u8) -> Self {
            let [connection] = connections_of(1, last);
            let request_limit = Arc::clone(request_limit);
            Self {
                connection,
                request_limit,
            }
        }

        async fn wait(&self, body: usize) -> JoinHandle<Permit> {
            let (request_limit, connection) = (
                Arc::clone(&self.request_limit),
                Arc::clone(&self.connection),
            );
            let task = tokio::spawn(async move {
                let permit = request_limit
                    .acquire_in_turn(&connection, body)
                    .await
                    .unwrap();
                permit.begin(RequestProgress::Working).unwrap();
                permit
            });
            tokio::task::yield_now().await;
            task
        }
    }

    /// Each permit that ended used to go to the next small request of another network, until the large one was refused.
    #[tokio::test(start_paused = true)]
    async fn a_large_request_is_not_overtaken_for_ever() {
        let request_limit = RequestLimit::new(40, 8);
        let network = |last| Requester::of(&request_limit, last);
        let mut held = VecDeque::new();
        for last in 1..5 {
            held.push_back(network(last).wait(10).await.await.unwrap());
        }
        let large = network(5).wait(20).await;
        let mut waiting = Vec::new();
        for last in 6.. {
            drop(held.pop_front());
            tokio::task::yield_now().await;
            if large.is_finished() {
                break;
            }
            let small = network(last).wait(10).await;
            match small.is_finished() {
                true => held.push_back(small.await.unwrap()),
                false => waiting.push(small),
            }
            assert!(last < 20, "it is overtaken again and again");
        }
        assert!(!waiting.is_empty() && waiting.iter().all(|small| !small.is_finished()));
        drop(large.await.unwrap());
        for small in waiting {
            small.await.unwrap();
        }
        held.clear();
        assert_eq!(request_limit.state().free, 40);
    }

    /// Large requests and slow holders of established strangers would refuse all others, if nothing ever overtook.
    #[tokio::test(start_paused = true)]
    async fn a_large_request_without_room_does_not_hold_up_others_for_long() {
        let request_limit = RequestLimit::new(40, 8);
        let network = |last| Requester::of(&request_limit, last);
        let slow = network(1).wait(25).await.await.unwrap();
        let large = network(2).wait(20).await;
        for last in 3..6 {
            drop(network(last).wait(15).await.await.unwrap());
        }
        let begun = Instant::now();
        let small = network(6).wait(15).await;
        assert!(!small.is_finished(), "the large one is before it");
        drop(small.await.unwrap());
        assert!((IN_ORDER..IN_ORDER + STALE * 2).contains(&begun.elapsed()));
        drop(slow);
        large.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn of_those_that_wait_the_network_that_holds_the_least_is_first() {
        let request_limit = RequestLimit::new(30, 3);
        let network = |last| Requester::of(&request_limit, last);
        let (greedy, other) = (network(1), network(2));
        let _held = greedy.wait(20).await.await.unwrap();
        let third = network(3).wait(10).await.await.unwrap();
        let older = greedy.wait(10).await;
        let newer = other.wait(10).await;
        drop(third);
        let newer = newer.await.unwrap();
        assert!(!older.is_finished());
        drop(newer);
        older.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_for_long_and_a_strangers_not_at_all() {
        let [known, other, stranger] = connections(2);
        let request_limit = RequestLimit::new(10, 1);
        let working = request_limit.acquire(&known).unwrap();
        working.begin(RequestProgress::Working).unwrap();
        let begun = Instant::now();
        let rejected = request_limit.acquire_in_turn(&stranger, 1).await;
        assert_eq!(rejected.unwrap_err(), Rejected::Full);
        let too_large = request_limit.acquire_in_turn(&other, 11).await;
        assert_eq!(too_large.unwrap_err(), Rejected::Full);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let late = request_limit.acquire_in_turn(&other, 1).await;
        assert_eq!(late.unwrap_err(), Rejected::Full);
        assert!((MAX_WAIT..MAX_WAIT + STALE).contains(&begun.elapsed()));
        // Another that has stalled gives way, which is seen without an event.
        working.begin(RequestProgress::Reading).unwrap();
        request_limit.acquire_in_turn(&other, 1).await.unwrap();
        assert!(begun.elapsed() < MAX_WAIT + 2 * STALE);
        assert!(happens(working.evicted()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_gives_its_permit_to_the_next() {
        let [one, two, three] = connections(3);
        let request_limit = RequestLimit::new(10, 1);
        let first = request_limit.acquire(&one).unwrap();
        first.begin(RequestProgress::Working).unwrap();
        let mut gone = std::pin::pin!(request_limit.acquire_in_turn(&two, 1));
        assert!(!happens(&mut gone).await);
        let mut last = std::pin::pin!(request_limit.acquire_in_turn(&three, 1));
        assert!(!happens(&mut last).await);
        // The permit is granted, and nobody takes it.
        drop(first);
        gone.set(request_limit.acquire_in_turn(&one, 1));
        assert!(last.await.is_ok());
    }

    /// A network fills its own places, not those of others.
    #[tokio::test(start_paused = true)]
    async fn the_places_to_wait_are_bounded_and_shared() {
        const MANY: usize = MAX_WAITING + 1;
        let many: [_; MANY] = connections_of(MANY, 1);
        let [working] = connections_of(1, 3);
        let [server] = connections_of(1, 2);
        let request_limit = RequestLimit::new(10, 1);
        let first = request_limit.acquire(&working).unwrap();
        first.begin(RequestProgress::Working).unwrap();
        let wait = |connection: &Arc<Connection>| {
            let (request_limit, connection) = (Arc::clone(&request_limit), Arc::clone(connection));
            tokio::spawn(async move {
                request_limit
                    .acquire_in_turn(&connection, 1)
                    .await
                    .map(drop)
            })
        };
        let mut all: Vec<_> = many.iter().map(wait).collect();
        tokio::task::yield_now().await;
        let beyond = all.pop().unwrap();
        assert_eq!(beyond.await.unwrap(), Err(Rejected::Full));
        let server = wait(&server);
        tokio::task::yield_now().await;
        let newest = all.pop().unwrap();
        assert_eq!(newest.await.unwrap(), Err(Rejected::Full));
        drop(first);
        assert_eq!(server.await.unwrap(), Ok(()));
        for waits in all {
            assert_eq!(waits.await.unwrap(), Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_connection_that_was_too_slow_is_a_stranger() {
        let [one, other] = connections(2);
        let request_limit = RequestLimit::new(10, 1);
        let slow = request_limit.acquire(&one).unwrap();
        tokio::time::advance(MORE).await;
        let _taken = request_limit.acquire(&other).unwrap();
        assert!(happens(slow.evicted()).await);
        assert!(!one.is_established() && other.is_established());
    }
}
