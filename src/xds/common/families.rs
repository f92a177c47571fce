//! The families of addresses that a proxy has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The families of a proxy's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Families {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
    /// True if its primary address is IPv6.
    pub(crate) primary_v6: bool,
}

impl Families {
    pub(crate) fn of(addresses: &[IpAddr]) -> Self {
        Self {
            v4: addresses.iter().any(IpAddr::is_ipv4),
            v6: addresses.iter().any(IpAddr::is_ipv6),
            primary_v6: addresses.first().is_some_and(IpAddr::is_ipv6),
        }
    }

    pub(crate) const fn has(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.v4,
            IpAddr::V6(_) => self.v6,
        }
    }

    /// All addresses of the machine: the primary family's, and the other's where there is one.
    pub(crate) fn wildcards(self) -> (IpAddr, Option<IpAddr>) {
        let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        match (self.primary_v6, self.v4 && self.v6) {
            (false, both) => (v4, both.then_some(v6)),
            (true, both) => (v6, both.then_some(v4)),
        }
    }

    pub(crate) const fn loopback(self) -> IpAddr {
        if self.v4 {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        } else {
            IpAddr::V6(Ipv6Addr::LOCALHOST)
        }
    }
}
