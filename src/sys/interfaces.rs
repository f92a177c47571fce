//! The host's addresses, asked of the kernel directly: the C library asks for every interface with all its counters
//! first, which is a tenth of a start, and brings its `malloc`.

use std::ffi::{c_int, c_uint};
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Addresses that are kept at most. Chosen: no host has more that matter.
const MAX_ADDRESSES: usize = 256;
/// Bytes of an answer that are read at once. Source: netlink's `NLMSG_GOODSIZE` with the largest pages that it counts.
const ANSWER_BYTES: usize = 8192;
/// Bytes of `nlmsghdr` and `ifaddrmsg`; attributes follow, each with a head of four bytes.
const ADDRESS: usize = 24;
/// Message types of netlink: NLMSG_DONE, RTM_GETADDR, RTM_NEWADDR.
const DONE: u16 = 3;
const GET_ADDRESS: u16 = 22;
const NEW_ADDRESS: u16 = 20;

/// Addresses of interfaces that are up, in the kernel's order; none where it does not tell. Loopback is left out, but for its
/// first address where there is no other. The socket that they came by is for the caller to close, since that takes as long
/// as to open it.
#[must_use]
pub fn interface_addresses() -> (Vec<IpAddr>, Option<OwnedFd>) {
    let mut found = Vec::new();
    let socket = open().ok();
    if let Some(socket) = &socket {
        // What was found before an error counts.
        drop(collect(socket, &mut found));
    }
    (found, socket)
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: `socket` takes three integers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn collect(socket: &OwnedFd, found: &mut Vec<IpAddr>) -> io::Result<()> {
    ask(socket)?;
    // Not on the stack, where these pages would be nobody's afterwards.
    let mut answer = Box::new_uninit_slice(ANSWER_BYTES);
    // The addresses of an interface come one after another.
    let mut last = (0, None);
    let mut loopback = None;
    loop {
        let mut rest = receive(socket, &mut answer)?;
        if rest.is_empty() {
            return Ok(());
        }
        while let Some((message, after)) = split(rest, 4) {
            rest = after;
            if number(message, 4) == Some(DONE) || found.len() >= MAX_ADDRESSES {
                if found.is_empty() {
                    found.extend(loopback);
                }
                return Ok(());
            }
            if number(message, 4) == Some(NEW_ADDRESS) {
                match address(socket, message, &mut last) {
                    Some((address, false)) => found.push(address),
                    Some((address, true)) => loopback = loopback.or(Some(address)),
                    None => {}
                }
            }
        }
    }
}

/// All addresses of all families.
fn ask(socket: &OwnedFd) -> io::Result<()> {
    let mut request = [0_u8; ADDRESS];
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).unwrap_or(0);
    let fields = [(0, 24), (4, GET_ADDRESS), (6, flags), (8, 1)];
    for (at, value) in fields {
        for (place, byte) in request.iter_mut().skip(at).zip(value.to_ne_bytes()) {
            *place = byte;
        }
    }
    let pointer = request.as_ptr().cast();
    // SAFETY: the pointer and the length describe the request, which outlives the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), pointer, ADDRESS, 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn receive<'b>(socket: &OwnedFd, into: &'b mut [MaybeUninit<u8>]) -> io::Result<&'b [u8]> {
    let pointer = into.as_mut_ptr().cast();
    // The answer is there as soon as the question has been sent.
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: the pointer and the length describe the buffer, which outlives the call.
    let read = unsafe { libc::recv(socket.as_raw_fd(), pointer, into.len(), flags) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    let filled = into.get(..read).unwrap_or_default();
    // SAFETY: the kernel has written that many.
    Ok(unsafe { filled.assume_init_ref() })
}

/// The first record of a list, which begins with its length in `width` bytes, and what follows it at a multiple of 4.
fn split(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let length = usize::from(number(bytes, 0)?);
    let record = bytes.get(..length).filter(|_| length >= width)?;
    let after = bytes.get(length.next_multiple_of(4)..);
    Some((record, after.unwrap_or_default()))
}

/// Two bytes of a record. Lengths that fill four are below 64 kB, and this machine puts their lower half first.
fn number(record: &[u8], at: usize) -> Option<u16> {
    let bytes = record.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_ne_bytes(*bytes))
}

/// The address that a message tells of, of an interface that is up, and whether that is loopback. `last`: an interface, and
/// what `is_loopback` says of it.
fn address(
    socket: &OwnedFd,
    message: &[u8],
    last: &mut (c_int, Option<bool>),
) -> Option<(IpAddr, bool)> {
    let index = message.get(ADDRESS - 4..)?.first_chunk::<4>()?;
    let index = c_int::from_ne_bytes(*index);
    if last.0 != index {
        *last = (index, is_loopback(socket, index));
    }
    let loopback = last.1?;
    let mut rest = message.get(ADDRESS..)?;
    let mut address = None;
    while let Some((attribute, after)) = split(rest, 4) {
        rest = after;
        let value = attribute.get(4..)?;
        // On a line with two ends the first is the other end's, the second this host's.
        match number(attribute, 2) {
            Some(libc::IFA_ADDRESS) => address = address.or_else(|| ip(value)),
            Some(libc::IFA_LOCAL) => address = ip(value).or(address),
            _ => {}
        }
    }
    Some((address?, loopback))
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// Whether the interface is loopback; `None` where it is not up.
fn is_loopback(socket: &OwnedFd, index: c_int) -> Option<bool> {
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    request.ifr_ifru.ifru_ifindex = index;
    for question in [libc::SIOCGIFNAME, libc::SIOCGIFFLAGS] {
        #[allow(clippy::useless_conversion, reason = "the type is the C library's")]
        let question = question.try_into().ok()?;
        // SAFETY: both read and write an `ifreq`, which lives on this stack frame.
        if unsafe { libc::ioctl(socket.as_raw_fd(), question, &raw mut request) } < 0 {
            return None;
        }
    }
    // SAFETY: the second question has written this member.
    let flags = c_uint::from(unsafe { request.ifr_ifru.ifru_flags }.cast_unsigned());
    let is = |flag: c_int| flags & flag.cast_unsigned() != 0;
    is(libc::IFF_UP).then(|| is(libc::IFF_LOOPBACK))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback has the same messages.
    #[test]
    fn no_loopback_address_beside_others_and_each_once() {
        let (found, _) = interface_addresses();
        let loopback = found.iter().any(IpAddr::is_loopback);
        assert!(!loopback || found.len() == 1, "{found:?}");
        for (at, address) in found.iter().enumerate() {
            assert!(!found[..at].contains(address), "{found:?}");
        }
    }

    #[test]
    fn truncated_messages_are_left_out() {
        assert_eq!(split(&[8, 0, 1, 0, 127], 4), None);
        assert_eq!(split(&[0, 0, 1, 0, 127], 4), None);
        assert_eq!(split(&[], 4), None);
        let (record, after) = split(&[5, 0, 1, 0, 9, 0, 0, 0, 7], 4).unwrap();
        assert_eq!((record, after), (&[5, 0, 1, 0, 9][..], &[7][..]));
        assert_eq!(ip(&[10, 0, 0, 1]), Some(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(ip(&[10, 0, 0]), None);
    }
}
