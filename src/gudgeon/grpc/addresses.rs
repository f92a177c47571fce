//! Limits of connections and streams for each address: a client with one address, or one network of IPv6, leaves places for
//! all others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::log_repeats::should_log_repeat;
use tracing::warn;

use super::address::Address;

/// Connections or streams by where they come from, of one port.
#[derive(Debug)]
pub(crate) struct AddressLimit {
    /// `connection`.
    what: &'static str,
    max: usize,
    connections: Mutex<HashMap<IpAddr, usize>>,
    refused: AtomicU64,
}

/// A connection's place in its address's share, released when dropped.
#[derive(Debug)]
pub(crate) struct AddressPermit {
    limit: Arc<AddressLimit>,
    key: Option<IpAddr>,
}

impl AddressLimit {
    pub(crate) fn new(what: &'static str, max: usize) -> Arc<Self> {
        Arc::new(Self {
            what,
            max,
            connections: Mutex::default(),
            refused: AtomicU64::new(0),
        })
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: this address has as many as it may. A socket in the file system has no address, and no bound but the port's.
    pub(crate) fn enter(self: &Arc<Self>, address: &Address) -> Option<AddressPermit> {
        let key = address.network();
        if let Some(key) = key {
            let mut connections = self.connections();
            let count = connections.entry(key).or_default();
            if *count >= self.max {
                // The log line is written without the lock, which every accept of the port takes.
                drop(connections);
                self.refuse(address);
                return None;
            }
            *count += 1;
        }
        Some(AddressPermit {
            limit: Arc::clone(self),
            key,
        })
    }
}

impl AddressLimit {
    fn refuse(&self, address: &Address) {
        let times = 1 + self.refused.fetch_add(1, Ordering::Relaxed);
        if should_log_repeat(times) {
            let Self { what, max, .. } = self;
            warn!(
                "refused a {what} of {address}: its address has {max}{repeated}",
                repeated = api::times(times)
            );
        }
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let Some(key) = self.key else {
            return;
        };
        let mut connections = self.limit.connections();
        if let Some(count) = connections.get_mut(&key) {
            *count -= 1;
            // A client chooses its addresses freely, so an entry without connections must not stay.
            if *count == 0 {
                connections.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_and_no_more() {
        let limit = AddressLimit::new("connection", 2);
        let enter = |text: &str| {
            let address: IpAddr = text.parse().unwrap();
            limit.enter(&Address::Ip((address, 1).into()))
        };
        let one = enter("10.0.0.1");
        let same = enter("::ffff:10.0.0.1");
        assert!(one.is_some() && same.is_some() && enter("10.0.0.1").is_none());
        assert!(enter("10.0.0.2").is_some());
        let near = [enter("2001:db8::1"), enter("2001:db8::ffff:2")];
        assert!(near.iter().all(Option::is_some) && enter("2001:db8::3").is_none());
        assert!(enter("2001:db8:0:1::3").is_some());
        drop(one);
        let again = enter("10.0.0.1");
        assert!(again.is_some() && enter("10.0.0.1").is_none());
        drop((same, again, near));
        assert!(limit.connections().is_empty());
        let unix: Vec<_> = (0..10).map(|_| limit.enter(&Address::Unix)).collect();
        assert!(unix.iter().all(Option::is_some));
    }
}
