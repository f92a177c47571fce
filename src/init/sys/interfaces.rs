//! The host's addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// No host has more that matter.
const MOST_ADDRESSES: usize = 256;

/// Addresses of interfaces that are up, loopback left out, in the kernel's order.
#[must_use]
pub(crate) fn interface_addresses() -> Vec<IpAddr> {
    let mut list = ptr::null_mut();
    // SAFETY: `getifaddrs` writes a pointer to a live variable.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut entry = list;
    while !entry.is_null() && found.len() < MOST_ADDRESSES {
        // SAFETY: `entry` is a node of the list, which lives until `freeifaddrs`.
        let node = unsafe { &*entry };
        if is_up(node.ifa_flags) {
            found.extend(address(node.ifa_addr));
        }
        entry = node.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs` and is not used again.
    unsafe { libc::freeifaddrs(list) };
    found
}

fn is_up(flags: libc::c_uint) -> bool {
    let is = |flag: libc::c_int| flags & flag.cast_unsigned() != 0;
    is(libc::IFF_UP) && !is(libc::IFF_LOOPBACK)
}

fn address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null (an interface without an address) or a pointer to a `sockaddr` of the list.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a `sockaddr_in`.
            let inet = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(
                inet.sin_addr.s_addr,
            ))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a `sockaddr_in6`.
            let inet = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(inet.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}
