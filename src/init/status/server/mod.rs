//! The listening socket and the places of its clients.

#![forbid(unsafe_code)]

mod accept;
mod connection;
mod late;
mod limits;
mod places;
pub(super) mod request;
pub(super) mod routes;
mod serving;
mod sharing;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use mio::event::Event;
use mio::net::TcpListener;
use mio::{Poll, Token};

use self::connection::{Connection, ConnectionPhase, Flow, PendingRequest};
pub(crate) use self::limits::PLACES;
use self::limits::{LINGER, PAUSE};
use self::places::Nodes;
use self::request::{ParsedRequest, parse};
use self::routes::{ONLY_POST, Peer, Route, Topic};
use super::metrics::merge::Failing;
use super::probes::{Helper, Probing};
use super::response::{self, line};
use super::{Settings, Turn, count};
use crate::config::Prober;
use sys::Watch;

/// An action of the agent that a client's request asks for.
#[derive(Debug)]
pub(crate) enum Effect {
    Drain,
    Quit,
    /// Run `pintle-probe`; the agent keeps the other end of its stdin and stdout.
    Helper(Helper),
    /// Kill the helper of this serial number: its time is over.
    KillHelper(u64),
}

/// Why and for how long no connection is accepted.
#[derive(Clone, Copy, Debug)]
struct Pause {
    /// `accept` is tried again at this time.
    until: Instant,
    /// Or as soon as a place is free.
    for_a_place: bool,
}

/// The server of the status port.
#[derive(Debug)]
pub(crate) struct StatusServer {
    settings: Settings,
    listener: Option<TcpListener>,
    listener_token: usize,
    /// Place n has the token `first` + 2n, and the next one for its upstream.
    first: usize,
    places: Vec<Option<Box<Connection>>>,
    paused: Option<Pause>,
    wants_readiness: bool,
    effects: Vec<Effect>,
    /// A scrape has more to pass on without waiting for a socket.
    runnable: bool,
    used_seldom: bool,
    /// Helper programs asked for so far, and those of them that have not been reaped.
    helpers: u64,
    helpers_alive: usize,
    nodes: Nodes,
    failing: Failing,
}

impl StatusServer {
    /// Listens on `address`; without one, nothing is served.
    ///
    /// # Errors
    /// The address is taken, or not this host's.
    pub(crate) fn open(
        address: Option<SocketAddr>,
        settings: Settings,
        (listener_token, first): (usize, usize),
    ) -> io::Result<Self> {
        let listener = address.map(listen).transpose()?;
        Ok(Self {
            settings,
            listener,
            listener_token,
            first,
            // Allocated once at the start: grown later, the list would lie above what a crowd used, and keep the heap from shrinking.
            places: Vec::with_capacity(PLACES),
            paused: None,
            wants_readiness: false,
            effects: Vec::new(),
            runnable: false,
            used_seldom: false,
            helpers: 0,
            helpers_alive: 0,
            nodes: Nodes::default(),
            failing: Failing::default(),
        })
    }

    /// # Errors
    /// No memory.
    pub(crate) fn register(&self, poll: &Poll) -> io::Result<()> {
        self.listener.as_ref().map_or(Ok(()), |listener| {
            sys::watch_level(poll, listener, self.listener_token, Watch::Begin)
        })
    }

    /// The application's probes.
    pub(crate) fn probers(&self) -> impl Iterator<Item = &Prober> {
        self.settings.probers.iter()
    }

    /// Whether a page, the status or metrics were served since the last call: they use code that is given back.
    pub(crate) fn used_seldom(&mut self) -> bool {
        std::mem::take(&mut self.used_seldom)
    }

    /// Whether nobody is connected.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections().next().is_none()
    }

    /// Whether a client waits for readiness; true once for each time that one began to.
    pub(crate) fn wants_readiness(&mut self) -> bool {
        std::mem::take(&mut self.wants_readiness)
    }

    /// Takes the effects that requests have asked for.
    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// A socket of a connection, or of its upstream, is ready.
    pub(crate) fn ready(&mut self, turn: &mut Turn<'_>, event: &Event) {
        let offset = event.token().0.saturating_sub(self.first);
        let place = offset / 2;
        if offset.is_multiple_of(2) && event.is_read_closed() {
            self.ask_whether_there(place);
        }
        self.step(turn, place);
    }

    /// A client that says no more may still listen. A scrape has to know, for its source may give no occasion to find out.
    fn ask_whether_there(&mut self, place: usize) {
        if let Some(Some(connection)) = self.places.get_mut(place)
            && let ConnectionPhase::Merging(merge) = &connection.phase
            && !connection.has_unsent()
        {
            let blank = merge.blank();
            connection.put(blank);
        }
    }

    /// Goes on with the scrapes that had to let others have their turn.
    pub(crate) fn run(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::take(&mut self.runnable) {
            return;
        }
        for place in 0..self.places.len() {
            let merging = self.connection(place).map(|connection| &connection.phase);
            if matches!(merging, Some(ConnectionPhase::Merging(_))) {
                self.step(turn, place);
            }
        }
    }

    /// Whether `run` has something to do.
    pub(crate) const fn is_runnable(&self) -> bool {
        self.runnable
    }

    /// Takes a connection as far as it goes.
    fn step(&mut self, turn: &mut Turn<'_>, place: usize) {
        let Some(mut connection) = self.take(place) else {
            return;
        };
        let flow = match connection.phase {
            ConnectionPhase::Head => self.read_head(turn, place, &mut connection),
            ConnectionPhase::Probing(_) => {
                self.probe(turn, place, &mut connection, Probing::advance);
                Flow::Later
            }
            ConnectionPhase::Merging(_) => self.merge(turn, place, &mut connection),
            ConnectionPhase::Waiting(_) | ConnectionPhase::Finishing => Flow::Later,
            ConnectionPhase::Lingering { .. } => connection.discard(),
        };
        self.flush_or_close(turn, place, connection, flow);
    }

    /// Flushes a finished answer; keeps the connection, or closes it.
    fn flush_or_close(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        mut connection: Box<Connection>,
        mut flow: Flow,
    ) {
        // What has been sent whole is not there any more.
        let large = connection.is_large();
        if matches!(connection.phase, ConnectionPhase::Finishing) && flow != Flow::Broken {
            flow = connection.flush();
            if flow == Flow::Done && connection.unread {
                connection.linger();
                connection.deadline = turn.after(LINGER);
                flow = connection.discard();
            } else if flow == Flow::Later {
                connection.expect_reading(turn.after(PAUSE));
            }
        }
        let waits_for_client = match connection.phase {
            ConnectionPhase::Waiting(_) | ConnectionPhase::Probing(_) => false,
            // A scrape ends with its client.
            ConnectionPhase::Merging(_)
            | ConnectionPhase::Head
            | ConnectionPhase::Finishing
            | ConnectionPhase::Lingering { .. } => true,
        };
        if flow == Flow::Later && waits_for_client {
            flow = connection.watch(turn.registry);
        }
        if flow == Flow::Later {
            self.put(place, connection);
        } else {
            self.used_seldom |= large;
        }
    }

    fn read_head(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
    ) -> Flow {
        let peer = Peer::at(connection.from);
        let mut request = None;
        let flow = connection.read_head(&mut |bytes| {
            request = parse(bytes, peer, &self.settings);
            request.is_some()
        });
        let Some(request) = request else {
            return flow;
        };
        connection.unread = request.unread;
        self.begin(turn, place, connection, request);
        Flow::Later
    }

    fn begin(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        request: ParsedRequest,
    ) {
        let framing = request.framing;
        if request.kubelet {
            self.learn_node(connection, turn.now);
        }
        match request.route {
            Route::Alive => connection.answer(200, response::TEXT, b"alive\n", framing),
            Route::Drain => {
                self.effects.push(Effect::Drain);
                connection.answer(200, response::TEXT, b"draining\n", framing);
            }
            Route::Quit => {
                self.effects.push(Effect::Quit);
                connection.answer(200, response::TEXT, b"stopping\n", framing);
            }
            Route::Refused(status, why) => {
                if status == 431 {
                    count(&mut turn.counters.connections_refused);
                }
                connection.answer(status, kind_of_refusal(status, why), &line(&[why]), framing);
            }
            Route::About(topic) => {
                connection.page = topic != Topic::Ready;
                if self.evict_for(turn, connection, Some(topic)) {
                    self.wants_readiness = true;
                    connection.deadline = turn.after(PAUSE);
                    connection.phase = ConnectionPhase::Waiting(PendingRequest {
                        topic,
                        framing,
                        query: request.query,
                        end: turn.after(request.patience),
                    });
                } else {
                    connection.page = false;
                    connection.answer(503, response::TEXT, b"too many requests at once\n", framing);
                }
            }
            Route::Probe(_) | Route::Forward(_) => {
                if !self.evict_for(turn, connection, None) {
                    connection.answer(503, response::TEXT, b"too many probes at once\n", framing);
                } else if let Some(probe) = request.probe {
                    connection.deadline = turn.after(probe.timeout);
                    let deadline = connection.deadline;
                    let probing = Probing::new(
                        (probe.check, probe.follow),
                        framing,
                        self.settings.pod,
                        deadline,
                    );
                    self.begin_probe(turn, place, connection, probing);
                }
            }
        }
    }

    fn connections(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.places
            .iter()
            .enumerate()
            .filter_map(|(place, connection)| Some((place, connection.as_deref()?)))
    }

    fn connection(&self, place: usize) -> Option<&Connection> {
        self.places.get(place)?.as_deref()
    }

    fn take(&mut self, place: usize) -> Option<Box<Connection>> {
        self.places.get_mut(place)?.take()
    }

    fn put(&mut self, place: usize, connection: Box<Connection>) {
        if let Some(slot) = self.places.get_mut(place) {
            *slot = Some(connection);
        }
    }

    pub(super) const fn token(&self, place: usize) -> Token {
        Token(self.first.saturating_add(place.saturating_mul(2)))
    }

    /// Returns the token of a connection's upstream socket.
    pub(super) const fn far_token(&self, place: usize) -> Token {
        Token(self.token(place).0.saturating_add(1))
    }
}

/// Returns the header fields of a refusal: its body says what may be asked instead.
fn kind_of_refusal(status: u16, why: &str) -> &'static str {
    match status {
        405 if why == ONLY_POST => response::TEXT_POST,
        405 => response::TEXT_GET,
        _ => response::TEXT,
    }
}

/// `::` without IPv6 on the host is `0.0.0.0`.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = match sys::listen(address) {
        Err(error) if lacks_ipv6(address, &error) => {
            sys::listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
        }
        result => result,
    };
    listener.map(TcpListener::from_std)
}

/// Returns true if all addresses cannot be had for want of IPv6.
fn lacks_ipv6(address: SocketAddr, error: &io::Error) -> bool {
    address.ip().is_unspecified() && address.is_ipv6() && sys::is_not_there(error)
}
