//! How clients get their places.

#![forbid(unsafe_code)]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use mio::Poll;

use super::connection::{Connection, Phase};
use super::routes::Peer;
use super::server::{Pause, StatusServer};
use super::{ACCEPT_PAUSE, FAIR_SHARE, HEAD_TIMEOUT, PLACES, Turn, UNREAD, count};
use crate::sys::{self, Watch};

impl StatusServer {
    /// Accepts one connection; the socket stays ready while there are more.
    pub(crate) fn accept(&mut self, turn: &mut Turn<'_>, poll: &Poll) {
        let Some(place) = self.free_place(turn) else {
            self.pause(turn, poll, true);
            return;
        };
        let Some(listener) = &self.listener else {
            return;
        };
        match listener.accept() {
            Ok((stream, peer)) => {
                count(&mut turn.counters.connections);
                let deadline = turn.after(HEAD_TIMEOUT);
                let connection = Connection::new(
                    stream,
                    self.token(place),
                    whence(peer),
                    (turn.now, deadline),
                );
                self.put(place, Box::new(connection));
                self.step(turn, place);
            }
            Err(error) => {
                let passing = [
                    io::ErrorKind::WouldBlock,
                    io::ErrorKind::Interrupted,
                    io::ErrorKind::ConnectionAborted,
                ];
                if !passing.contains(&error.kind()) {
                    crate::log::warning!("cannot accept on the status port: {error}");
                    self.pause(turn, poll, false);
                }
            }
        }
    }

    /// A free place, if need be one that is made free.
    fn free_place(&mut self, turn: &mut Turn<'_>) -> Option<usize> {
        if let Some(free) = self.places.iter().position(Option::is_none) {
            return Some(free);
        }
        if self.places.len() < PLACES {
            self.places.push(None);
            return Some(self.places.len().saturating_sub(1));
        }
        let gives_way = |connection: &Connection| {
            let age = turn.now.saturating_duration_since(connection.opened);
            match connection.phase {
                Phase::Head | Phase::Lingering { .. } => true,
                Phase::Finishing => age > UNREAD,
                Phase::Waiting(_) | Phase::Probing(_) | Phase::Merging(_) => age > FAIR_SHARE,
            }
        };
        let (place, _) = self
            .connections()
            .filter(|(_, connection)| gives_way(connection))
            .min_by_key(|(_, connection)| connection.opened)?;
        count(&mut turn.counters.connections_refused);
        self.close(turn, place);
        Some(place)
    }

    fn pause(&mut self, turn: &Turn<'_>, poll: &Poll, for_a_place: bool) {
        if self.watch(poll, Watch::Pause) {
            let until = turn.after(ACCEPT_PAUSE);
            self.paused = Some(Pause { until, for_a_place });
        }
    }

    /// Accepts again, if that was paused and the reason may have gone.
    pub(crate) fn resume(&mut self, now: Instant, poll: &Poll) {
        let over = self.paused.is_some_and(|pause| {
            pause.until <= now || (pause.for_a_place && self.places.iter().any(Option::is_none))
        });
        if over && self.watch(poll, Watch::Resume) {
            self.paused = None;
        }
    }

    fn watch(&self, poll: &Poll, watch: Watch) -> bool {
        let Some(listener) = &self.listener else {
            return false;
        };
        sys::watch_level(poll, listener, self.listener_token, watch).is_ok()
    }
}

/// An IPv4 client of an IPv6 socket has a mapped address.
fn whence(peer: SocketAddr) -> Peer {
    let local = match peer.ip() {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
    };
    if local {
        Peer::Loopback
    } else {
        Peer::Elsewhere
    }
}
