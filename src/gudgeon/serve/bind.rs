//! Addresses as Go programs have them: `:8080` is every address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use tokio::net::{TcpListener, TcpSocket};

use super::Listener;
use crate::exit::Failure;

/// The kernel's error without IPv6.
const NO_FAMILY: [i32; 2] = [97, 99];
/// Connections that wait to be accepted.
pub(crate) const BACKLOG: u32 = 1024;

/// Binds a flag's address.
///
/// # Errors
/// The address is malformed, or cannot be bound.
pub(crate) async fn bind(flag: &str, address: &str) -> Result<TcpListener, Failure> {
    let socket = reserve(flag, address)?;
    listen(socket).map_err(|cause| refused(flag, address, &cause))
}

/// Binds an address, without listening yet.
///
/// # Errors
/// The address is malformed, or cannot be bound.
pub(crate) fn reserve(flag: &str, address: &str) -> Result<TcpSocket, Failure> {
    let bound = match address.strip_prefix(':') {
        Some(port) => match at(flag, address, &format!("[::]:{port}")) {
            // A host without IPv6 has no `[::]`.
            Err(BindCause::Refused(cause))
                if cause
                    .raw_os_error()
                    .is_some_and(|code| NO_FAMILY.contains(&code)) =>
            {
                at(flag, address, &format!("0.0.0.0:{port}"))
            }
            bound => bound,
        },
        None => at(flag, address, address),
    };
    bound.map_err(|cause| match cause {
        BindCause::Malformed(failure) => failure,
        BindCause::Refused(cause) => refused(flag, address, &cause),
    })
}

/// Opens it.
pub(crate) fn listen(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)
}

fn refused(flag: &str, address: &str, cause: &io::Error) -> Failure {
    Failure::system(format!("cannot listen on --{flag} {address}: {cause}"))
}

enum BindCause {
    Malformed(Failure),
    Refused(io::Error),
}

fn at(flag: &str, value: &str, address: &str) -> Result<TcpSocket, BindCause> {
    let addresses = address
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next());
    let addresses = addresses.ok_or_else(|| {
        BindCause::Malformed(Failure::config(format!(
            "cannot use --{flag} {value:?}: want HOST:PORT"
        )))
    })?;
    let socket = if addresses.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    let socket = socket.map_err(BindCause::Refused)?;
    // A restart must not wait for the predecessor's connections in TIME_WAIT.
    socket.set_reuseaddr(true).map_err(BindCause::Refused)?;
    socket.bind(addresses).map_err(BindCause::Refused)?;
    Ok(socket)
}

/// A port on all addresses, of both kinds where the host has both.
///
/// # Errors
/// The address cannot be bound.
pub(crate) async fn everywhere(
    flag: &str,
    port: u16,
    max_connections: usize,
) -> Result<Listener, Failure> {
    let six = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
    let four = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    let bound = match TcpListener::bind(six).await {
        // A host without IPv6.
        Err(cause)
            if cause
                .raw_os_error()
                .is_some_and(|code| NO_FAMILY.contains(&code)) =>
        {
            TcpListener::bind(four).await
        }
        bound => bound,
    };
    let listener = bound.map_err(|cause| {
        let remedy = remedy(flag, port, &cause);
        Failure::system(format!("cannot listen on --{flag} {port}: {cause}{remedy}"))
    })?;
    Ok(Listener {
        listener,
        tls: None,
        max_connections,
    })
}

/// Explains three alternatives if a privileged port is denied.
fn remedy(flag: &str, port: u16, cause: &io::Error) -> String {
    /// Ports that are the kernel's to give.
    const LOW: u16 = 1024;
    if port >= LOW || cause.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    format!(
        ": give the container NET_BIND_SERVICE or the pod the sysctl net.ipv4.ip_unprivileged_port_start=0, or --{flag} 9443 with \
         that targetPort in its Service"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_port_that_may_not_be_had_has_a_remedy() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let taken = io::Error::from(io::ErrorKind::AddrInUse);
        assert!(remedy("validation-port", 443, &denied).contains("--validation-port 9443"));
        assert_eq!(remedy("validation-port", 443, &taken), "");
        assert_eq!(remedy("validation-port", 9443, &denied), "");
    }
}
