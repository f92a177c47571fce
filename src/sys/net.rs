//! The listening socket of the status port, and connections from an address of one's choice.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::check;

/// Connections that the kernel queues between two turns. Without room in the queue a probe loses a second, until its SYN is
/// sent again. Chosen: 50 ms of work; the memory is the kernel's.
const BACKLOG: c_int = 1024;
/// Seconds that the kernel waits for the first bytes before it hands out a connection (TCP_DEFER_ACCEPT, rounded up to a
/// retransmission). Chosen: the least.
const SILENCE: c_int = 1;

/// A socket that listens without blocking. For `::` it takes IPv4 as well, whatever the host's default is.
///
/// A connection is handed out with its first bytes: a client that connects and sends nothing costs nothing, and a probe is
/// read in the turn in which it is accepted.
///
/// # Errors
/// The address is taken, not this host's, or of a family that the host has not.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if address.is_ipv6() {
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    }
    // Only a saving: without it the first read finds nothing.
    drop(set(
        &socket,
        libc::IPPROTO_TCP,
        libc::TCP_DEFER_ACCEPT,
        SILENCE,
    ));
    bind(&socket, address)?;
    // SAFETY: `listen` takes two integers.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(TcpListener::from(socket))
}

/// Returns true if the host does not have the family, or none of its addresses.
#[must_use]
pub fn is_not_there(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::EADDRNOTAVAIL)
    )
}

#[allow(clippy::cast_possible_truncation, reason = "they are 2 and 10")]
const fn family(address: SocketAddr) -> libc::sa_family_t {
    match address {
        SocketAddr::V4(_) => libc::AF_INET as libc::sa_family_t,
        SocketAddr::V6(_) => libc::AF_INET6 as libc::sa_family_t,
    }
}

pub(crate) fn set(socket: &OwnedFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_u32::<c_int>(),
        )
    })
}

pub(crate) fn bind(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    name(socket, address, libc::bind)
}

/// Begins to connect from an address of this machine's, without blocking.
///
/// # Errors
/// There is no such address, or nobody listens.
#[cold]
#[inline(never)]
pub fn connect_from(source: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket(address)?;
    bind(&socket, SocketAddr::new(source, 0))?;
    match name(&socket, address, libc::connect) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(TcpStream::from(socket)),
    }
}

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = c_int::from(family(address));
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `socket` takes three integers.
    let fd = unsafe { libc::socket(family, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `bind` or `connect`: a descriptor, an address and its length.
type Name = unsafe extern "C" fn(c_int, *const libc::sockaddr, libc::socklen_t) -> c_int;

#[inline(never)]
fn name(socket: &OwnedFd, address: SocketAddr, call: Name) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    match address {
        SocketAddr::V4(v4) => {
            let raw = ipv4(v4);
            let (place, size) = ((&raw const raw).cast(), size_of_u32::<libc::sockaddr_in>());
            // SAFETY: the pointer and the length describe `raw`, which outlives the call.
            check(unsafe { call(fd, place, size) })
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: family(address),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            let (place, size) = ((&raw const raw).cast(), size_of_u32::<libc::sockaddr_in6>());
            // SAFETY: as above.
            check(unsafe { call(fd, place, size) })
        }
    }
}

pub(crate) fn ipv4(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: family(address.into()),
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

/// Whether `epoll` tells of `socket`: on, level-triggered under `token`, or not at all.
///
/// mio knows only edges, after which one has to accept until there is nothing left: a system call for every probe.
///
/// # Errors
/// No memory, or `first` although it is there already.
pub fn watch_level(
    epoll: &impl AsRawFd,
    socket: &impl AsRawFd,
    token: usize,
    watch: Watch,
) -> io::Result<()> {
    let (operation, events) = match watch {
        Watch::Begin => (libc::EPOLL_CTL_ADD, libc::EPOLLIN),
        Watch::Resume => (libc::EPOLL_CTL_MOD, libc::EPOLLIN),
        Watch::Pause => (libc::EPOLL_CTL_MOD, 0),
    };
    let mut event = libc::epoll_event {
        events: events.cast_unsigned(),
        u64: token as u64,
    };
    // SAFETY: the event lives on this stack frame; both descriptors belong to the references.
    check(unsafe {
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            operation,
            socket.as_raw_fd(),
            &raw mut event,
        )
    })
}

/// See `watch_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Begin,
    Pause,
    Resume,
}

/// The sizes of socket addresses and options fit 32 bits.
#[allow(clippy::cast_possible_truncation, reason = "at most 28")]
pub(crate) const fn size_of_u32<T>() -> u32 {
    size_of::<T>() as u32
}
