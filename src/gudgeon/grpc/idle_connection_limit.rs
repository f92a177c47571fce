//! The connection limit of a port with streams: bounds its idle connections, and chooses the one to evict for the next.
//!
//! A newcomer is never closed in favour of older connections. Silent ones are evicted first, then those that have sent bytes
//! and are not authenticated, then those without a stream; of these one from the address with the most, and the oldest
//! there. Each connection has a grace period first. Newcomers wait for it in the kernel's queue, first in, first out: so clients
//! that reconnect in a loop evict each other, and a client that sends at once is accepted.
//!
//! The grace period is counted in turns of this program and not by the clock: in a turn every ready task has run. A server
//! that is busy with the responses of thousands of proxies is late with all of them, which is not their fault.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use tokio::sync::Notify;
use tracing::warn;

use super::address::Address;

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionProgress {
    /// No byte was received.
    Silent,
    /// A byte was received: a handshake is under way, or no request has come.
    Speaking,
    /// The client's certificate was verified, or it had a stream.
    Known,
}

/// The minimum length of a turn; longer while the ready tasks take longer, since the task that counts queues behind them.
const TURN: Duration = Duration::from_millis(10);

impl ConnectionProgress {
    /// Turns for which a connection is safe from newcomers. The first bytes of a client follow its connection at once; a
    /// handshake takes a few round trips, on a machine that may have hundreds of them to do after a restart. 50 ms and 1 s
    /// on an idle server.
    const fn patience(self) -> u64 {
        match self {
            Self::Silent => 5,
            Self::Speaking | Self::Known => 100,
        }
    }
}

/// The limit of one port.
#[derive(Debug)]
pub(super) struct IdleConnectionLimit {
    slots: usize,
    members: Mutex<Members>,
    /// A slot was freed, or a client made progress.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Members {
    next: u64,
    /// Counted only while a caller waits, which alone reads it.
    turn: u64,
    all: BTreeMap<u64, Member>,
    evicted: u64,
}

#[derive(Debug)]
struct Member {
    /// `None`: of a socket in the file system.
    address: Option<IpAddr>,
    progress: ConnectionProgress,
    /// The turn in which it came.
    since: u64,
    evicted: Arc<Notify>,
}

impl Member {
    /// True once the connection has been there for its patience.
    const fn is_due(&self, turn: u64) -> bool {
        turn - self.since >= self.progress.patience()
    }
}

/// A connection's slot, free again when dropped.
#[derive(Debug)]
pub(super) struct IdleSlot {
    limit: Arc<IdleConnectionLimit>,
    id: u64,
    evicted: Arc<Notify>,
}

impl IdleConnectionLimit {
    pub(super) fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            slots,
            members: Mutex::default(),
            changed: Notify::new(),
        })
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when another connection may be accepted: a slot is free, or a connection has used up its grace period.
    /// Cancel-safe.
    pub(super) async fn ready(&self) {
        loop {
            let changed = self.changed.notified();
            {
                let members = self.members();
                let turn = members.turn;
                let mut all = members.all.values();
                if members.all.len() < self.slots || all.any(|member| member.is_due(turn)) {
                    return;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(TURN) => self.members().turn += 1,
                () = changed => {}
            }
        }
    }

    /// Takes a slot; evicts a connection at once if none is free.
    pub(super) fn enter(
        this: &Arc<Self>,
        address: &Address,
        progress: ConnectionProgress,
    ) -> IdleSlot {
        let mut members = this.members();
        if members.all.len() >= this.slots {
            members.evict();
        }
        let id = members.next;
        members.next += 1;
        let evicted = Arc::new(Notify::new());
        let member = Member {
            address: address.network(),
            progress,
            since: members.turn,
            evicted: Arc::clone(&evicted),
        };
        members.all.insert(id, member);
        drop(members);
        IdleSlot {
            limit: Arc::clone(this),
            id,
            evicted,
        }
    }

    /// Evicts a connection because accepting fails otherwise.
    pub(super) fn evict(&self) {
        self.members().evict();
    }
}

impl Members {
    fn evict(&mut self) {
        let mut shares: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for member in self.all.values() {
            *shares.entry(member.address).or_default() += 1;
        }
        // Ids grow with time.
        let chosen = self.all.iter().min_by_key(|(id, member)| {
            let share = shares.get(&member.address).copied().unwrap_or_default();
            (
                !member.is_due(self.turn),
                member.progress,
                Reverse(share),
                **id,
            )
        });
        let chosen = chosen.map(|(id, _)| *id);
        if let Some(member) = chosen.and_then(|id| self.all.remove(&id)) {
            // The slot counts as free at once; the task closes the connection when it runs next.
            member.evicted.notify_one();
            self.evicted += 1;
            if should_log_repeat(self.evicted) {
                let times = self.evicted;
                warn!(
                    "closed a connection for the next one: too many are without a stream{repeated}",
                    repeated = api::times(times)
                );
            }
        }
    }
}

impl IdleSlot {
    /// Sets the connection's progress.
    pub(super) fn reaches(&self, progress: ConnectionProgress) {
        if let Some(member) = self.limit.members().all.get_mut(&self.id) {
            member.progress = progress;
        }
    }

    /// Returns when this connection has to go.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for IdleSlot {
    fn drop(&mut self) {
        self.limit.members().all.remove(&self.id);
        self.limit.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    fn at(host: &str) -> Address {
        Address::Ip(format!("{host}:1").parse().unwrap())
    }

    fn is_evicted(slot: &IdleSlot) -> bool {
        !slot.limit.members().all.contains_key(&slot.id)
    }

    fn enter(limit: &Arc<IdleConnectionLimit>, host: &str) -> IdleSlot {
        IdleConnectionLimit::enter(limit, &at(host), ConnectionProgress::Silent)
    }

    #[tokio::test]
    async fn silent_connections_are_evicted_first_and_each_has_a_while() {
        let limit = IdleConnectionLimit::new(4);
        let known = enter(&limit, "10.0.0.1");
        known.reaches(ConnectionProgress::Known);
        let speaking = enter(&limit, "10.0.0.1");
        speaking.reaches(ConnectionProgress::Speaking);
        limit.members().turn += 100;
        let silent = enter(&limit, "10.0.0.1");
        limit.ready().await;
        let last = enter(&limit, "10.0.0.1");
        assert!(!is_evicted(&silent) && !is_evicted(&speaking) && !is_evicted(&known));
        // Connections whose time is over go before the others; known ones go last.
        let next = enter(&limit, "10.0.0.1");
        assert!(is_evicted(&speaking) && !is_evicted(&silent));
        timeout(Duration::ZERO, speaking.evicted()).await.unwrap();
        limit.members().turn += 5;
        let another = enter(&limit, "10.0.0.1");
        assert!(is_evicted(&silent) && !is_evicted(&last) && !is_evicted(&known));
        drop((next, another));
        limit.ready().await;
        drop((known, last));
        assert!(limit.members().all.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn newcomers_wait_for_the_while_of_the_oldest() {
        let limit = IdleConnectionLimit::new(2);
        let mut slots = Vec::new();
        let begun = Instant::now();
        for at in 0..20 {
            limit.ready().await;
            slots.push(enter(&limit, &format!("10.0.0.{at}")));
        }
        assert!(
            begun.elapsed() >= Duration::from_millis(450),
            "{:?}",
            begun.elapsed()
        );
        // A connection that has spoken meanwhile has more time.
        slots[19].reaches(ConnectionProgress::Speaking);
        slots[18].reaches(ConnectionProgress::Speaking);
        let waits = Instant::now();
        limit.ready().await;
        assert!(
            waits.elapsed() >= Duration::from_millis(800),
            "{:?}",
            waits.elapsed()
        );
        let waits = tokio::spawn({
            let limit = Arc::clone(&limit);
            async move { limit.ready().await }
        });
        slots.clear();
        waits.await.unwrap();
    }

    /// The server is late with all tasks: 200 of them want 1 ms each, again and again, and one of them is the handshake.
    #[tokio::test]
    async fn a_busy_server_gives_each_a_turn() {
        let limit = IdleConnectionLimit::new(1);
        let slot = enter(&limit, "10.0.0.1");
        let mut others = tokio::task::JoinSet::new();
        let busy = || async {
            let end = Instant::now() + Duration::from_millis(1);
            while Instant::now() < end {}
            tokio::task::yield_now().await;
        };
        for _ in 0..200 {
            others.spawn(async move {
                for _ in 0..4 {
                    busy().await;
                }
            });
        }
        let handshake = tokio::spawn(async move {
            for _ in 0..3 {
                busy().await;
            }
            assert!(!is_evicted(&slot));
            slot.reaches(ConnectionProgress::Speaking);
            slot
        });
        let next = tokio::spawn(async move {
            limit.ready().await;
            enter(&limit, "10.0.0.2")
        });
        let slot = handshake.await.unwrap();
        assert!(!is_evicted(&slot) && !next.is_finished());
        drop(slot);
        next.await.unwrap();
    }

    #[tokio::test]
    async fn the_address_with_more_connections_gives_way() {
        let limit = IdleConnectionLimit::new(4);
        let one = enter(&limit, "10.0.0.1");
        let crowd: Vec<_> = ["[2001:db8::1]", "[2001:db8::2]", "[2001:db8::3]"]
            .iter()
            .map(|host| enter(&limit, host))
            .collect();
        limit.members().turn += 100;
        let next = enter(&limit, "10.0.0.1");
        assert!(!is_evicted(&one) && is_evicted(&crowd[0]) && !is_evicted(&crowd[1]));
        drop(next);
    }
}
