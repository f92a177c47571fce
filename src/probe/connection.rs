//! A TCP connection to the address of a probe.

#![forbid(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::deadline::Deadline;
use crate::failure::Failure;

/// Time for a connection's orderly close, so that no server logs an error. Chosen: as a rule it takes none.
const FAREWELL: Duration = Duration::from_millis(100);

pub(crate) async fn connect(address: SocketAddr, deadline: Deadline) -> Result<TcpStream, Failure> {
    let step = format!("connect to {address}");
    deadline.run(&step, open(address)).await
}

/// An application that listens on IPv6 only is tried there, as the init does for plain HTTP.
async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    match TcpStream::connect(address).await {
        Err(error)
            // The second: there is no IPv4 loopback.
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NetworkUnreachable
            ) && address.ip() == Ipv4Addr::LOCALHOST =>
        {
            let other = TcpStream::connect((Ipv6Addr::LOCALHOST, address.port())).await;
            // What was asked for is what the reason tells of.
            other.map_err(|_| error)
        }
        result => result,
    }
}

/// Lets the task that drives a connection end it, when nothing more is asked of it.
pub(crate) async fn part<T>(task: JoinHandle<T>, deadline: Deadline) {
    let patience = FAREWELL.min(deadline.left());
    // However it ends: the answer is there.
    drop(tokio::time::timeout(patience, task).await);
}
