//! Addresses as Go programs have them: `:8080` is every address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use tokio::net::TcpListener;

use super::Door;
use crate::exit::Failure;

/// What the kernel says where it has no IPv6.
const NO_FAMILY: [i32; 2] = [97, 99];

/// Listens where a flag says.
///
/// # Errors
/// Nobody can listen there, or it is no address.
pub(crate) async fn bind(flag: &str, address: &str) -> Result<TcpListener, Failure> {
    let bound = match address.strip_prefix(':') {
        Some(port) => match at(flag, address, &format!("[::]:{port}")).await {
            Err(Cause::Refused(cause))
                if cause
                    .raw_os_error()
                    .is_some_and(|code| NO_FAMILY.contains(&code)) =>
            {
                at(flag, address, &format!("0.0.0.0:{port}")).await
            }
            bound => bound,
        },
        None => at(flag, address, address).await,
    };
    bound.map_err(|cause| match cause {
        Cause::Malformed(failure) => failure,
        Cause::Refused(cause) => {
            Failure::system(format!("cannot listen on --{flag} {address}: {cause}"))
        }
    })
}

enum Cause {
    Malformed(Failure),
    Refused(std::io::Error),
}

async fn at(flag: &str, shown: &str, address: &str) -> Result<TcpListener, Cause> {
    let found = address
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next());
    let found = found.ok_or_else(|| {
        Cause::Malformed(Failure::config(format!(
            "cannot use --{flag} {shown:?}: want HOST:PORT"
        )))
    })?;
    TcpListener::bind(found).await.map_err(Cause::Refused)
}

/// A port on all addresses, of both kinds where the host has both.
///
/// # Errors
/// Nobody can listen there.
pub(crate) async fn everywhere(flag: &str, port: u16, places: usize) -> Result<Door, Failure> {
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
    let listener = bound
        .map_err(|cause| Failure::system(format!("cannot listen on --{flag} {port}: {cause}")))?;
    Ok(Door {
        listener,
        tls: None,
        places,
    })
}
