//! How many connections come from one address: whoever has one address, or one network of IPv6, leaves places for all others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::warn;

use super::peer::Address;
use crate::log;

/// Connections by where they come from, of one port.
#[derive(Debug)]
pub(super) struct AddressLimit {
    most: usize,
    connections: Mutex<HashMap<IpAddr, usize>>,
    refused: AtomicU64,
}

/// One connection among those of its address, until it is dropped.
#[derive(Debug)]
pub(super) struct AddressPermit {
    limit: Arc<AddressLimit>,
    key: Option<IpAddr>,
}

impl AddressLimit {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
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
    pub(super) fn enter(self: &Arc<Self>, address: &Address) -> Option<AddressPermit> {
        let key = match address {
            Address::Ip(address) => Some(key(address.ip())),
            Address::Unix | Address::Dialled(_) => None,
        };
        if let Some(key) = key {
            let mut connections = self.connections();
            let count = connections.entry(key).or_default();
            if *count >= self.most {
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
        if log::worth_a_line(times) {
            let most = self.most;
            warn!(
                "closed a connection of {address}: its address has {most}{repeated}",
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
            if *count == 0 {
                connections.remove(&key);
            }
        }
    }
}

/// The first 64 bits of IPv6: the rest is a machine's to choose.
fn key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_and_no_more() {
        let limit = AddressLimit::new(2);
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
