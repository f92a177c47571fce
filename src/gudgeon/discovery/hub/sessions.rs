//! All streams, in the order in which they joined.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xds::node::Node;
use xds::stream::{Lists, Protocol};
use xds::view::View;

use super::Hub;
use crate::discovery::session::Session;
use crate::grpc::Address;

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    joined: Mutex<Joined>,
    /// Lists of resource names, shared by streams with equal ones.
    lists: Arc<Lists>,
}

#[derive(Debug, Default)]
struct Joined {
    by_number: BTreeMap<u64, Arc<Session>>,
    /// The number of the session that joined last, counted from 1.
    last: u64,
}

impl Sessions {
    fn joined(&self) -> MutexGuard<'_, Joined> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session that is made with its number.
    fn add(&self, make: impl FnOnce(u64, &Arc<Lists>) -> Arc<Session>) -> Arc<Session> {
        let mut joined = self.joined();
        joined.last += 1;
        let number = joined.last;
        let session = make(number, &self.lists);
        joined.by_number.insert(number, Arc::clone(&session));
        session
    }

    fn remove(&self, number: u64) {
        self.joined().by_number.remove(&number);
    }

    /// Returns the sessions in the order in which they joined.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.joined().by_number.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.joined().by_number.len()
    }
}

/// A stream among all others; it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamRegistration {
    hub: Arc<Hub>,
    pub(crate) session: Arc<Session>,
}

impl Drop for StreamRegistration {
    fn drop(&mut self) {
        self.hub.sessions.remove(self.session.number);
        self.hub.forget_certificates(&self.session);
    }
}

impl Hub {
    /// Adds a stream that begins with this view.
    pub(crate) fn join(
        self: &Arc<Self>,
        node: &Arc<Node>,
        peer: &Address,
        protocol: Protocol,
        view: Arc<dyn View>,
    ) -> StreamRegistration {
        let (now, peer) = (self.clock.now(), peer.clone());
        let session = self
            .sessions
            .add(|number, lists| Session::new(number, node, peer, now, protocol, view, lists));
        self.learn_certificates(&session);
        let hub = Arc::clone(self);
        StreamRegistration { hub, session }
    }
}
