//! The address of the other end of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::serve::network;

/// The address of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Ip(SocketAddr),
    /// A Unix socket: its clients have no address.
    Unix,
    /// A peer that this program dialled, by the name that was dialled.
    Dialled(String),
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(to),
            Self::Unix => to.write_str("unix"),
            Self::Dialled(name) => to.write_str(name),
        }
    }
}

impl Address {
    /// The network that counts for shares; `None`: a socket in the file system, or a dialled peer.
    pub(crate) fn network(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(network(address.ip())),
            Self::Unix | Self::Dialled(_) => None,
        }
    }
}
