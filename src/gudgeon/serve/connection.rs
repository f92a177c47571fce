//! The state of one connection, and the handle by which answers act on it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection_limit::Slot;
use super::frames::Frames;

/// The timeout of a handshake, and that from the first byte of a head to its last; of the first head: since the handshake. Chosen: half
/// of the ten seconds that an API server waits by default.
pub(super) const HEAD: Duration = Duration::from_secs(5);
/// The same during shutdown. Chosen: less than `--drainDuration`.
pub(super) const LAST_HEAD: Duration = Duration::from_secs(1);

/// The handle by which an answer acts on its connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    slot: Slot,
    state: Mutex<ConnectionState>,
    /// `finish` was called.
    finish: Notify,
}

#[derive(Debug)]
struct ConnectionState {
    phase: Phase,
    protocol: WireProtocol,
}

#[derive(Debug)]
pub(super) enum WireProtocol {
    /// Before the first byte, during TLS.
    Tls,
    /// Bytes of an idle connection begin a head.
    Http1,
    /// HTTP/2. Bytes may be a ping, so only a part of a frame of a request counts.
    Http2(Frames),
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// A head has to be there by then.
    Head(Instant),
    Idle,
    Busy(u32),
}

impl Connection {
    pub(super) fn new(peer: SocketAddr, slot: Slot) -> Arc<Self> {
        Arc::new(Self {
            peer,
            slot,
            state: Mutex::new(ConnectionState {
                phase: Phase::Head(Instant::now() + HEAD),
                protocol: WireProtocol::Tls,
            }),
            finish: Notify::new(),
        })
    }

    /// The connection ends after the answers in work.
    pub(crate) fn finish(&self) {
        self.finish.notify_one();
    }

    /// The connection ends now.
    pub(crate) fn cut(&self) {
        self.slot.evict_self();
    }

    /// Returns when it was made to go.
    pub(super) async fn left(&self) {
        self.slot.left().await;
    }

    /// The network that counts for shares.
    pub(super) fn network(&self) -> IpAddr {
        self.slot.network()
    }

    /// Returns true if a request on it was answered, and none was too slow since.
    pub(super) fn is_established(&self) -> bool {
        self.slot.is_established()
    }

    pub(super) fn establish(&self) {
        self.slot.establish(true);
    }

    /// Revokes `establish`: a request was too slow.
    pub(super) fn demote(&self) {
        self.slot.establish(false);
    }

    /// Records progress: a relevant part of a body has arrived.
    pub(super) fn moved(&self) {
        self.slot.moved();
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// TLS is there: the first head has its whole time.
    pub(super) fn secured(&self) {
        self.state().phase = Phase::Head(Instant::now() + HEAD);
    }

    pub(super) fn speaks(&self, protocol: WireProtocol) {
        self.state().protocol = protocol;
    }

    /// Returns when [`finish`](Self::finish) was called.
    pub(super) async fn finished(&self) {
        self.finish.notified().await;
    }

    /// Returns true if it has had a request.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.state().phase, Phase::Head(_))
    }

    pub(super) fn begin(&self) {
        let mut state = self.state();
        state.phase = match state.phase {
            Phase::Head(_) | Phase::Idle => Phase::Busy(1),
            Phase::Busy(count) => Phase::Busy(count + 1),
        };
        // The slot takes the listener's lock: no thread holds both.
        drop(state);
        self.slot.begin();
    }

    pub(super) fn end(&self) {
        let mut state = self.state();
        state.phase = match state.phase {
            Phase::Busy(count) if count > 1 => Phase::Busy(count - 1),
            Phase::Head(_) | Phase::Idle | Phase::Busy(_) => Phase::Idle,
        };
        // The slot takes the listener's lock: no thread holds both.
        drop(state);
        self.slot.end();
    }

    pub(super) fn came(&self, bytes: &[u8]) {
        let mut state = self.state();
        let ConnectionState { phase, protocol } = &mut *state;
        match (protocol, &phase) {
            (WireProtocol::Http1, Phase::Idle) => *phase = Phase::Head(Instant::now() + HEAD),
            (WireProtocol::Http2(frames), _) => frames.take(bytes, Instant::now()),
            (WireProtocol::Http1 | WireProtocol::Tls, _) => {}
        }
    }

    /// The connection is about to end: a head that has begun has to be there soon.
    pub(super) fn hurry(&self) {
        if let Phase::Head(deadline) = &mut self.state().phase {
            *deadline = (Instant::now() + LAST_HEAD).min(*deadline);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let state = self.state();
        if let Phase::Head(deadline) = state.phase {
            return Some(deadline);
        }
        let WireProtocol::Http2(frames) = &state.protocol else {
            return None;
        };
        Some(frames.open_since()? + HEAD)
    }
}
