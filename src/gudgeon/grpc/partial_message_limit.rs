//! Limits the memory of incomplete messages, and chooses the stream to end for another.
//!
//! A message is read whole, so its beginning waits in memory for its end. A connection may have as much as one message of
//! the greatest length, a port a few times that. At the limit a stream of the address with the most ends for one of an
//! address with less.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::log_repeats::should_log_repeat;
use tokio::sync::Notify;
use tonic::Status;
use tracing::warn;

use super::address::Address;

/// Bytes of all connections of a port.
const PORT_BYTES: usize = 32 << 20;
/// Bytes of a message that do not count: most messages are shorter.
const FREE_BYTES: usize = 4 << 10;

/// The limit of one port.
#[derive(Default)]
pub(super) struct PartialMessageLimit(Mutex<PartialMessages>);

impl fmt::Debug for PartialMessageLimit {
    /// Omits the messages: each of them has a connection, which has this.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "PartialMessageLimit({} bytes)", self.state().bytes)
    }
}

/// The budget of one connection in the limit of its port.
#[derive(Debug)]
pub(super) struct ConnectionBudget {
    address: Address,
    limit: Arc<PartialMessageLimit>,
}

impl ConnectionBudget {
    pub(super) fn new(address: &Address, limit: &Arc<PartialMessageLimit>) -> Arc<Self> {
        Arc::new(Self {
            address: address.clone(),
            limit: Arc::clone(limit),
        })
    }

    fn network(&self) -> Option<IpAddr> {
        self.address.network()
    }
}

#[derive(Debug, Default)]
struct PartialMessages {
    next: u64,
    bytes: usize,
    /// The messages, in the order in which they began.
    all: BTreeMap<u64, PartialMessageEntry>,
    evicted: u64,
}

#[derive(Debug)]
struct PartialMessageEntry {
    budget: Arc<ConnectionBudget>,
    bytes: usize,
    evicted: Arc<Notify>,
}

/// A message's part of it, free again when dropped.
#[derive(Debug)]
pub(super) struct PartialMessage {
    budget: Arc<ConnectionBudget>,
    id: u64,
    evicted: Arc<Notify>,
}

impl PartialMessageLimit {
    fn state(&self) -> MutexGuard<'_, PartialMessages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialMessage {
    /// Registers an unfinished message with so many bytes; `None` if they are too few to count.
    ///
    /// # Errors
    /// The connection or the port has reached its limit.
    pub(super) fn begin(
        budget: &Arc<ConnectionBudget>,
        bytes: usize,
        max: usize,
    ) -> Result<Option<Self>, Status> {
        if bytes <= FREE_BYTES {
            return Ok(None);
        }
        let (id, evicted) = {
            let mut state = budget.limit.state();
            state.evict_for(budget, bytes, max)?;
            let id = state.next;
            state.next += 1;
            state.bytes += bytes;
            let evicted = Arc::new(Notify::new());
            let entry = PartialMessageEntry {
                budget: Arc::clone(budget),
                bytes,
                evicted: Arc::clone(&evicted),
            };
            state.all.insert(id, entry);
            (id, evicted)
        };
        Ok(Some(Self {
            budget: Arc::clone(budget),
            id,
            evicted,
        }))
    }

    /// Sets the bytes that have arrived.
    ///
    /// # Errors
    /// The limit is reached, or the message was evicted.
    pub(super) fn grow(&self, bytes: usize, max: usize) -> Result<(), Status> {
        let mut state = self.budget.limit.state();
        let has = state.all.get(&self.id).map(|entry| entry.bytes);
        // An evicted message is not in the table, and its stream ends even before it sees the notification.
        let has = has.ok_or_else(evicted_status)?;
        let more = bytes.saturating_sub(has);
        if more > 0 {
            state.evict_for(&self.budget, more, max)?;
            // `evict_for` evicts messages of other networks only, so this entry is still there.
            if let Some(entry) = state.all.get_mut(&self.id) {
                entry.bytes += more;
                state.bytes += more;
            }
        }
        Ok(())
    }

    /// Returns when its bytes were given to another message.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// The status of a stream that ends for another.
pub(super) fn evicted_status() -> Status {
    Status::resource_exhausted("cannot wait for the rest of a message: others need its memory")
}

impl PartialMessages {
    /// Evicts messages of networks with a larger share until `more` bytes fit.
    fn evict_for(
        &mut self,
        budget: &Arc<ConnectionBudget>,
        more: usize,
        max: usize,
    ) -> Result<(), Status> {
        let of_connection = self.all.values();
        let of_connection = of_connection.filter(|entry| Arc::ptr_eq(&entry.budget, budget));
        let has: usize = of_connection.map(|entry| entry.bytes).sum();
        if has + more > max {
            return Err(Status::resource_exhausted(format!(
                "cannot read messages of {} bytes at once: a connection may have {max}",
                has + more
            )));
        }
        // A port whose messages may be longer than half of its bytes still has room for two.
        while self.bytes + more > PORT_BYTES.max(2 * max) {
            let shares = self.shares();
            let own = shares.get(&budget.network()).copied().unwrap_or_default();
            let largest = shares.into_iter().max_by_key(|(_, share)| *share);
            let (largest, _) = largest
                // Only a larger share gives way, or two networks would evict each other's messages in turns.
                .filter(|(network, share)| *network != budget.network() && *share > own + more)
                .ok_or_else(evicted_status)?;
            let mut all = self.all.iter();
            let oldest = all.find(|(_, entry)| entry.budget.network() == largest);
            let oldest = oldest.map(|(id, _)| *id).ok_or_else(evicted_status)?;
            self.evict(oldest);
        }
        Ok(())
    }

    fn shares(&self) -> HashMap<Option<IpAddr>, usize> {
        let mut shares: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for entry in self.all.values() {
            *shares.entry(entry.budget.network()).or_default() += entry.bytes;
        }
        shares
    }

    fn evict(&mut self, id: u64) {
        let Some(entry) = self.all.remove(&id) else {
            return;
        };
        self.bytes -= entry.bytes;
        entry.evicted.notify_one();
        self.evicted += 1;
        if should_log_repeat(self.evicted) {
            let (address, times) = (&entry.budget.address, self.evicted);
            warn!("ended a stream of {address}: too many partial messages ({times} times)");
        }
    }
}

impl Drop for PartialMessage {
    fn drop(&mut self) {
        let mut state = self.budget.limit.state();
        if let Some(entry) = state.all.remove(&self.id) {
            state.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, timeout};
    use tonic::Code;

    use super::*;

    const MAX_MESSAGE_BYTES: usize = 4 << 20;

    fn budget(limit: &Arc<PartialMessageLimit>, last: u8) -> Arc<ConnectionBudget> {
        let address = Address::Ip(([10, 0, 0, last], 1).into());
        ConnectionBudget::new(&address, limit)
    }

    fn begin(budget: &Arc<ConnectionBudget>, bytes: usize) -> Result<Option<PartialMessage>, Code> {
        PartialMessage::begin(budget, bytes, MAX_MESSAGE_BYTES).map_err(|status| status.code())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_as_much_as_one_message_and_the_rest_gives_way() {
        let limit = Arc::new(PartialMessageLimit::default());
        let one = budget(&limit, 1);
        assert!(begin(&one, FREE_BYTES).unwrap().is_none());
        let half = begin(&one, MAX_MESSAGE_BYTES / 2).unwrap().unwrap();
        half.grow(MAX_MESSAGE_BYTES - 5000, MAX_MESSAGE_BYTES)
            .unwrap();
        assert_eq!(begin(&one, 5001).unwrap_err(), Code::ResourceExhausted);
        assert!(half.grow(MAX_MESSAGE_BYTES + 1, MAX_MESSAGE_BYTES).is_err());
        // Others of its address fill the port.
        let others: Vec<_> = (1..PORT_BYTES / MAX_MESSAGE_BYTES)
            .map(|_| {
                begin(&budget(&limit, 1), MAX_MESSAGE_BYTES)
                    .unwrap()
                    .unwrap()
            })
            .collect();
        assert_eq!(
            begin(&budget(&limit, 1), MAX_MESSAGE_BYTES).unwrap_err(),
            Code::ResourceExhausted
        );
        // An address with less takes from the one with the most, whose oldest message is evicted.
        let last = begin(&budget(&limit, 2), MAX_MESSAGE_BYTES)
            .unwrap()
            .unwrap();
        timeout(Duration::ZERO, half.evicted()).await.unwrap();
        assert!(half.grow(MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES).is_err());
        assert!(
            others
                .iter()
                .all(|one| one.grow(MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES).is_ok())
        );
        drop((half, others, last));
        let state = limit.state();
        assert!(state.bytes == 0 && state.all.is_empty());
    }
}
