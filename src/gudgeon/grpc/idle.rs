//! Connections of a port that carry nothing yet: so many at a time, and which of them is evicted for the next one.
//!
//! A newcomer is never closed for those before it. Who says nothing goes first, then who has said something and not who it
//! is, then who has no stream; of these one from the address that has the most, and the longest there. Each has a while
//! first, for which newcomers wait in the kernel's queue, in the order in which they came: so a crowd that connects again
//! and again pushes out itself, and who speaks at once is let in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use super::peer::Address;
use crate::log;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    /// Nothing was heard.
    Silent,
    /// Something was heard: a handshake is under way, or no request has come.
    Speaking,
    /// Its certificate was verified, or it had a stream.
    Known,
}

impl Progress {
    /// Newcomers wait until the oldest has been there for so long. The first bytes of a client follow its connection at once,
    /// and a crowd of hundreds is through in less than a second; a handshake takes a few turns of the network, on a machine
    /// that may have hundreds of them to do after a restart.
    const fn patience(self) -> Duration {
        match self {
            Self::Silent => Duration::from_millis(50),
            Self::Speaking | Self::Known => Duration::from_secs(1),
        }
    }
}

/// The limit of one port.
#[derive(Debug)]
pub(super) struct IdleLimit {
    slots: usize,
    members: Mutex<Members>,
    /// A slot was freed, or somebody speaks.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Members {
    next: u64,
    all: BTreeMap<u64, Member>,
    evicted: u64,
}

#[derive(Debug)]
struct Member {
    /// `None`: of a socket in the file system.
    address: Option<IpAddr>,
    progress: Progress,
    since: Instant,
    evicted: Arc<Notify>,
}

impl Member {
    fn due(&self) -> Instant {
        self.since + self.progress.patience()
    }
}

/// A connection's slot, free again when dropped.
#[derive(Debug)]
pub(super) struct IdleSlot {
    limit: Arc<IdleLimit>,
    id: u64,
    evicted: Arc<Notify>,
}

impl IdleLimit {
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

    /// Returns when one more may come: a slot is free, or somebody has had his while. May be dropped while it waits.
    pub(super) async fn room(&self) {
        loop {
            let changed = self.changed.notified();
            let due = {
                let members = self.members();
                if members.all.len() < self.slots {
                    return;
                }
                members.all.values().map(Member::due).min()
            };
            match due {
                Some(due) if due > Instant::now() => {
                    tokio::select! {
                        () = tokio::time::sleep_until(due) => {}
                        () = changed => {}
                    }
                    // Who has spoken meanwhile is to have said so, however late this program is.
                    tokio::task::yield_now().await;
                }
                Some(_) | None => return,
            }
        }
    }

    /// Takes a slot; who has to give way for it is evicted at once.
    pub(super) fn enter(this: &Arc<Self>, address: &Address, progress: Progress) -> IdleSlot {
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
            since: Instant::now(),
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

    /// For a connection that cannot be accepted otherwise.
    pub(super) fn evict(&self) {
        self.members().evict();
    }
}

impl Members {
    fn evict(&mut self) {
        let now = Instant::now();
        let mut shares: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for member in self.all.values() {
            *shares.entry(member.address).or_default() += 1;
        }
        // Ids grow with time.
        let chosen = self.all.iter().min_by_key(|(id, member)| {
            let share = shares.get(&member.address).copied().unwrap_or_default();
            (member.due() > now, member.progress, Reverse(share), **id)
        });
        let chosen = chosen.map(|(id, _)| *id);
        if let Some(member) = chosen.and_then(|id| self.all.remove(&id)) {
            member.evicted.notify_one();
            self.evicted += 1;
            if log::worth_a_line(self.evicted) {
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
    /// It is so far now.
    pub(super) fn reaches(&self, progress: Progress) {
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
    use tokio::time::{advance, timeout};

    use super::*;

    fn at(host: &str) -> Address {
        Address::Ip(format!("{host}:1").parse().unwrap())
    }

    fn is_evicted(slot: &IdleSlot) -> bool {
        !slot.limit.members().all.contains_key(&slot.id)
    }

    fn enter(limit: &Arc<IdleLimit>, host: &str) -> IdleSlot {
        IdleLimit::enter(limit, &at(host), Progress::Silent)
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_goes_first_and_each_has_a_while() {
        let limit = IdleLimit::new(4);
        let known = enter(&limit, "10.0.0.1");
        known.reaches(Progress::Known);
        let speaking = enter(&limit, "10.0.0.1");
        speaking.reaches(Progress::Speaking);
        advance(Duration::from_secs(5)).await;
        let silent = enter(&limit, "10.0.0.1");
        limit.room().await;
        let last = enter(&limit, "10.0.0.1");
        assert!(!is_evicted(&silent) && !is_evicted(&speaking) && !is_evicted(&known));
        // Those who have had their while before those who have not; who is known last of all.
        let next = enter(&limit, "10.0.0.1");
        assert!(is_evicted(&speaking) && !is_evicted(&silent));
        timeout(Duration::ZERO, speaking.evicted()).await.unwrap();
        advance(Duration::from_millis(200)).await;
        let another = enter(&limit, "10.0.0.1");
        assert!(is_evicted(&silent) && !is_evicted(&last) && !is_evicted(&known));
        drop((next, another));
        limit.room().await;
        drop((known, last));
        assert!(limit.members().all.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn newcomers_wait_for_the_while_of_the_oldest() {
        let limit = IdleLimit::new(2);
        let mut slots = Vec::new();
        let begun = Instant::now();
        for at in 0..20 {
            limit.room().await;
            slots.push(enter(&limit, &format!("10.0.0.{at}")));
        }
        assert!(
            begun.elapsed() >= Duration::from_millis(450),
            "{:?}",
            begun.elapsed()
        );
        // Who has spoken meanwhile has longer.
        slots[19].reaches(Progress::Speaking);
        slots[18].reaches(Progress::Speaking);
        let waits = Instant::now();
        limit.room().await;
        assert!(
            waits.elapsed() >= Duration::from_millis(800),
            "{:?}",
            waits.elapsed()
        );
        let waits = tokio::spawn({
            let limit = Arc::clone(&limit);
            async move { limit.room().await }
        });
        slots.clear();
        waits.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_addresses_the_one_with_more_gives_way() {
        let limit = IdleLimit::new(4);
        let one = enter(&limit, "10.0.0.1");
        let crowd: Vec<_> = ["[2001:db8::1]", "[2001:db8::2]", "[2001:db8::3]"]
            .iter()
            .map(|host| enter(&limit, host))
            .collect();
        advance(Duration::from_secs(1)).await;
        let next = enter(&limit, "10.0.0.1");
        assert!(!is_evicted(&one) && is_evicted(&crowd[0]) && !is_evicted(&crowd[1]));
        drop(next);
    }
}
