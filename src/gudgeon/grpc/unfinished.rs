//! Messages of which only a part has come: how many bytes they take together, and who ends for whom.
//!
//! A message is read whole, so its begin waits in memory for its end. A connection may have as much as one message that is as long
//! as it may be, a port a few of those. Where they are all taken, a stream of the address that has the most ends for one of an
//! address that has less.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tonic::Status;
use tracing::warn;

use super::peer::Peer;
use crate::log;

/// Of all connections of a port.
const PORT_BYTES: usize = 32 << 20;
/// So much of a message counts for nothing: most are shorter.
const FREE_BYTES: usize = 4 << 10;

/// The limit of one port.
#[derive(Default)]
pub(super) struct UnfinishedLimit(Mutex<UnfinishedMessages>);

impl fmt::Debug for UnfinishedLimit {
    /// Without its messages: each of them has a connection, which has this.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "UnfinishedLimit({} bytes)", self.state().bytes)
    }
}

#[derive(Debug, Default)]
struct UnfinishedMessages {
    next: u64,
    bytes: usize,
    /// In the order in which they began.
    all: BTreeMap<u64, UnfinishedMessage>,
    evicted: u64,
}

#[derive(Debug)]
struct UnfinishedMessage {
    peer: Arc<Peer>,
    bytes: usize,
    evicted: Arc<Notify>,
}

/// A message's part of it, free again when dropped.
#[derive(Debug)]
pub(super) struct Unfinished {
    peer: Arc<Peer>,
    id: u64,
    evicted: Arc<Notify>,
}

impl UnfinishedLimit {
    fn state(&self) -> MutexGuard<'_, UnfinishedMessages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unfinished {
    /// So much of a message is there. `None`: it is too little to count.
    ///
    /// # Errors
    /// Its connection or its port has as much as it may.
    pub(super) fn begin(
        peer: &Arc<Peer>,
        bytes: usize,
        most: usize,
    ) -> Result<Option<Self>, Status> {
        if bytes <= FREE_BYTES {
            return Ok(None);
        }
        let (id, evicted) = {
            let mut state = peer.unfinished().state();
            state.make_room(peer, bytes, most)?;
            let id = state.next;
            state.next += 1;
            state.bytes += bytes;
            let evicted = Arc::new(Notify::new());
            let held = UnfinishedMessage {
                peer: Arc::clone(peer),
                bytes,
                evicted: Arc::clone(&evicted),
            };
            state.all.insert(id, held);
            (id, evicted)
        };
        Ok(Some(Self {
            peer: Arc::clone(peer),
            id,
            evicted,
        }))
    }

    /// So much of it is there now.
    ///
    /// # Errors
    /// There is no more, or it was taken.
    pub(super) fn grow(&self, bytes: usize, most: usize) -> Result<(), Status> {
        let mut state = self.peer.unfinished().state();
        let has = state.all.get(&self.id).map(|held| held.bytes);
        let has = has.ok_or_else(taken)?;
        let more = bytes.saturating_sub(has);
        if more > 0 {
            state.make_room(&self.peer, more, most)?;
            if let Some(held) = state.all.get_mut(&self.id) {
                held.bytes += more;
                state.bytes += more;
            }
        }
        Ok(())
    }

    /// Returns when its bytes are another's.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// To a stream that ends for another.
pub(super) fn taken() -> Status {
    Status::resource_exhausted("cannot wait for the rest of a message: others need its memory")
}

impl UnfinishedMessages {
    fn make_room(&mut self, peer: &Arc<Peer>, more: usize, most: usize) -> Result<(), Status> {
        let of_peer = self.all.values();
        let of_peer = of_peer.filter(|held| Arc::ptr_eq(&held.peer, peer));
        let has: usize = of_peer.map(|held| held.bytes).sum();
        if has + more > most {
            return Err(Status::resource_exhausted(format!(
                "cannot read messages of {} bytes at once: a connection may have {most}",
                has + more
            )));
        }
        while self.bytes + more > PORT_BYTES.max(2 * most) {
            let shares = self.shares();
            let own = shares.get(&peer.network()).copied().unwrap_or_default();
            let largest = shares.into_iter().max_by_key(|(_, share)| *share);
            let (largest, _) = largest
                .filter(|(network, share)| *network != peer.network() && *share > own + more)
                .ok_or_else(taken)?;
            let mut all = self.all.iter();
            let oldest = all.find(|(_, held)| held.peer.network() == largest);
            let oldest = oldest.map(|(id, _)| *id).ok_or_else(taken)?;
            self.evict(oldest);
        }
        Ok(())
    }

    fn shares(&self) -> HashMap<Option<IpAddr>, usize> {
        let mut shares: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for held in self.all.values() {
            *shares.entry(held.peer.network()).or_default() += held.bytes;
        }
        shares
    }

    fn evict(&mut self, id: u64) {
        let Some(held) = self.all.remove(&id) else {
            return;
        };
        self.bytes -= held.bytes;
        held.evicted.notify_one();
        self.evicted += 1;
        if log::worth_a_line(self.evicted) {
            let (address, times) = (&held.peer.address, self.evicted);
            warn!("ended a stream of {address}: too many messages are not whole ({times} times)");
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut state = self.peer.unfinished().state();
        if let Some(held) = state.all.remove(&self.id) {
            state.bytes -= held.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, timeout};
    use tonic::Code;

    use super::super::peer::Address;
    use super::super::tasks::Spawner;
    use super::*;

    const MOST: usize = 4 << 20;

    fn peer(limit: &Arc<UnfinishedLimit>, last: u8) -> Arc<Peer> {
        let address = Address::Ip(([10, 0, 0, last], 1).into());
        Arc::new(Peer::new(address, None).on(limit, Spawner::default()))
    }

    fn begin(peer: &Arc<Peer>, bytes: usize) -> Result<Option<Unfinished>, Code> {
        Unfinished::begin(peer, bytes, MOST).map_err(|status| status.code())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_as_much_as_one_message_and_the_rest_gives_way() {
        let limit = Arc::new(UnfinishedLimit::default());
        let one = peer(&limit, 1);
        assert!(begin(&one, FREE_BYTES).unwrap().is_none());
        let half = begin(&one, MOST / 2).unwrap().unwrap();
        half.grow(MOST - 5000, MOST).unwrap();
        assert_eq!(begin(&one, 5001).unwrap_err(), Code::ResourceExhausted);
        assert!(half.grow(MOST + 1, MOST).is_err());
        // Others of its address fill the port.
        let others: Vec<_> = (1..PORT_BYTES / MOST)
            .map(|_| begin(&peer(&limit, 1), MOST).unwrap().unwrap())
            .collect();
        assert_eq!(
            begin(&peer(&limit, 1), MOST).unwrap_err(),
            Code::ResourceExhausted
        );
        // Whoever has less has his part of it: the oldest ends.
        let last = begin(&peer(&limit, 2), MOST).unwrap().unwrap();
        timeout(Duration::ZERO, half.evicted()).await.unwrap();
        assert!(half.grow(MOST, MOST).is_err());
        assert!(others.iter().all(|one| one.grow(MOST, MOST).is_ok()));
        drop((half, others, last));
        let state = limit.state();
        assert!(state.bytes == 0 && state.all.is_empty());
    }
}
