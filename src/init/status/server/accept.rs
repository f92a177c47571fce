//! Accepts connections and finds a place for each.

#![forbid(unsafe_code)]

use std::io;
use std::time::Instant;

use mio::Poll;

use super::connection::Connection;
use super::limits::{ACCEPT_PAUSE, HEAD_TIMEOUT, PLACES};
use super::{Pause, StatusServer};
use crate::status::{Turn, count};
use sys::Watch;

impl StatusServer {
    /// Accepts one connection, or beside others all that wait: a probe behind a crowd is not to wait a turn for each of
    /// it, for scrapes make turns long. Alone, a client is not worth a call that finds nobody else; the socket stays ready.
    pub(crate) fn accept(&mut self, turn: &mut Turn<'_>, poll: &Poll) {
        let alone = self.is_idle();
        for _ in 0..PLACES {
            if !self.accept_one(turn, poll) || alone {
                return;
            }
        }
    }

    /// Whether there was one.
    fn accept_one(&mut self, turn: &mut Turn<'_>, poll: &Poll) -> bool {
        let Some(place) = self.free_place(turn) else {
            self.pause(turn, poll, true);
            return false;
        };
        let Some(listener) = &self.listener else {
            return false;
        };
        match listener.accept() {
            Ok((stream, peer)) => {
                count(&mut turn.counters.connections);
                let deadline = turn.after(HEAD_TIMEOUT);
                let mut connection = Connection::new(
                    stream,
                    self.token(place),
                    // An IPv4 client of an IPv6 socket has a mapped address.
                    peer.ip().to_canonical(),
                    (turn.now, deadline),
                );
                connection.kept = self.is_kept(connection.from);
                self.put(place, Box::new(connection));
                self.step(turn, place);
                true
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
                false
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
        let place = self.late_place(turn.now)?;
        self.give_way(turn, place);
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::counters::Counters;
    use crate::status::stories::clock;
    use crate::status::tests::settings;

    /// Returns the number of connections after one call more.
    fn accept(server: &mut StatusServer, poll: &Poll) -> usize {
        let mut turn = Turn {
            registry: poll.registry(),
            now: clock(),
            counters: &mut Counters::default(),
        };
        server.accept(&mut turn, poll);
        server.connections().count()
    }

    fn connect(server: &StatusServer) -> TcpStream {
        let address = server.listener.as_ref().unwrap().local_addr().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /").unwrap();
        stream
    }

    /// Each was accepted in a turn of its own: a probe behind 264 scrapes waited for 264 turns, a second and more.
    #[test]
    fn a_crowd_is_accepted_in_one_turn() {
        let poll = Poll::new().unwrap();
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = StatusServer::open(Some(anywhere), settings(), (1, 2)).unwrap();
        server.register(&poll).unwrap();
        let began = clock();
        let mut clients = vec![connect(&server)];
        while accept(&mut server, &poll) == 0 {
            assert!(began.elapsed() < Duration::from_secs(20));
        }
        // The kernel may hand over one later than its connection was made.
        let at_once = (0..10).any(|_| {
            let before = server.connections().count();
            clients.extend((0..4).map(|_| connect(&server)));
            accept(&mut server, &poll) - before > 1
        });
        assert!(at_once);
    }
}
