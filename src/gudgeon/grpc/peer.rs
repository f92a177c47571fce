//! The other end of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustls::pki_types::CertificateDer;
use tokio::sync::Notify;

use super::address::Address;
use super::partial_message_limit::{ConnectionBudget, PartialMessageLimit};
use crate::tls;

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
    requested: AtomicBool,
    streams: AtomicUsize,
    /// The first request or stream has come, or the last stream has gone.
    turned: Notify,
    cut: Notify,
    budget: Arc<ConnectionBudget>,
}

impl Peer {
    pub(crate) fn new(address: Address, leaf: Option<Leaf>) -> Self {
        let budget = ConnectionBudget::new(&address, &Arc::default());
        Self {
            address,
            leaf,
            requested: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            turned: Notify::new(),
            cut: Notify::new(),
            budget,
        }
    }

    /// Attaches the limit of a port.
    pub(super) fn on(mut self, limit: &Arc<PartialMessageLimit>) -> Self {
        self.budget = ConnectionBudget::new(&self.address, limit);
        self
    }

    pub(super) const fn budget(&self) -> &Arc<ConnectionBudget> {
        &self.budget
    }

    pub(super) fn request_received(&self) {
        if !self.requested.swap(true, Ordering::Relaxed) {
            self.turned.notify_one();
        }
    }

    /// Returns true if a request has come on the connection.
    pub(super) fn has_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
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
        // The stream that asks is one of them.
        if self.streams() <= 1 {
            self.cut.notify_one();
        }
    }

    /// Returns when it is to end.
    pub(crate) async fn is_cut(&self) {
        self.cut.notified().await;
    }
}
