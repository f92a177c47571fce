//! The other end of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustls::pki_types::CertificateDer;
use tokio::sync::Notify;

use super::partial_message_limit::PartialMessageLimit;
use crate::serve::network;
use crate::tls;

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

/// The identities in a client's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// All subject alternative names.
    pub(crate) names: Vec<String>,
    /// URIs among the subject alternative names.
    pub(crate) uris: Vec<String>,
}

impl Leaf {
    pub(super) fn of(leaf: &CertificateDer<'_>) -> Self {
        Self {
            names: tls::names_of(leaf),
            uris: tls::uris_of(leaf),
        }
    }
}

/// The peer of one connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: Address,
    /// `None`: the port asks for no certificate.
    pub(crate) leaf: Option<Leaf>,
    asked: AtomicBool,
    streams: AtomicUsize,
    /// The first request or stream has come, or the last stream has gone.
    turned: Notify,
    cut: Notify,
    unfinished: Arc<PartialMessageLimit>,
}

impl Peer {
    pub(crate) fn new(address: Address, leaf: Option<Leaf>) -> Self {
        Self {
            address,
            leaf,
            asked: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            turned: Notify::new(),
            cut: Notify::new(),
            unfinished: Arc::default(),
        }
    }

    /// Attaches the limit of a port.
    pub(super) fn on(mut self, limit: &Arc<PartialMessageLimit>) -> Self {
        self.unfinished = Arc::clone(limit);
        self
    }

    pub(super) fn unfinished(&self) -> &PartialMessageLimit {
        &self.unfinished
    }

    pub(super) fn network(&self) -> Option<IpAddr> {
        self.address.network()
    }

    pub(super) fn asks(&self) {
        if !self.asked.swap(true, Ordering::Relaxed) {
            self.turned.notify_one();
        }
    }

    /// Returns true if a request has come on the connection.
    pub(super) fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    pub(crate) fn opens(&self) {
        if self.streams.fetch_add(1, Ordering::Relaxed) == 0 {
            self.turned.notify_one();
        }
    }

    pub(crate) fn closes(&self) {
        if self.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.turned.notify_one();
        }
    }

    /// Streams that are open now.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Returns when the first request or stream has come or the last stream has gone.
    pub(super) async fn turned(&self) {
        self.turned.notified().await;
    }

    /// The connection ends, unless it carries others.
    pub(crate) fn cut_if_alone(&self) {
        if self.streams() <= 1 {
            self.cut.notify_one();
        }
    }

    /// Returns when it is to end.
    pub(crate) async fn is_cut(&self) {
        self.cut.notified().await;
    }
}
