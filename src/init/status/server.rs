//! The listening socket and the places of its clients.

#![forbid(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Poll, Token};

use super::connection::{Ask, Connection, Flow, Form, Phase};
use super::merge::{Merge, Pumped};
use super::probing::{Errand, Probing, Progress, line};
use super::routes::{Peer, Route, Topic, route};
use super::target::Target;
use super::{
    ACCEPT_PAUSE, Demand, FAIR_SHARE, HEAD_TIMEOUT, HELPERS, LINGER, PAUSE, PLACES, Settings, Stage,
    Turn, View, answer, count, json, metrics, page,
};
use crate::config::ProbeAction;
use crate::http::{Parsed, Request};
use crate::sys::{self, Watch};

/// Of a scrape's bytes so much is passed on before others have their turn: 16 reads.
const ROUNDS: usize = 16;
/// With this header Prometheus says when it will have lost its patience.
const SCRAPE_TIMEOUT: &str = "x-prometheus-scrape-timeout-seconds";

/// See the module.
#[derive(Debug)]
pub(crate) struct StatusServer {
    settings: Settings,
    listener: Option<TcpListener>,
    listener_token: usize,
    /// Place n has the tokens `first` + 2n, and one more for whom it asks.
    first: usize,
    places: Vec<Option<Box<Connection>>>,
    /// Accepting is paused: until then, or until a place is free.
    paused: Option<Option<Instant>>,
    wants_readiness: bool,
    demands: Vec<Demand>,
    /// Scrapes that have more to pass on at once.
    runnable: bool,
    helpers: u64,
}

impl StatusServer {
    /// Listens on `address`; without one, nothing is served.
    ///
    /// # Errors
    /// The address is taken, or not ours.
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
            places: Vec::new(),
            paused: None,
            wants_readiness: false,
            demands: Vec::new(),
            runnable: false,
            helpers: 0,
        })
    }

    /// # Errors
    /// No memory.
    pub(crate) fn register(&self, poll: &Poll) -> io::Result<()> {
        self.listener.as_ref().map_or(Ok(()), |listener| {
            sys::watch_level(poll, listener, self.listener_token, Watch::Begin)
        })
    }

    /// Somebody wants to know whether the proxy is ready; said once.
    pub(crate) fn wants_readiness(&mut self) -> bool {
        std::mem::take(&mut self.wants_readiness)
    }

    /// What clients want done.
    pub(crate) fn demands(&mut self) -> Vec<Demand> {
        std::mem::take(&mut self.demands)
    }

    /// Accepts one connection; the socket stays ready while there are more.
    pub(crate) fn accept(&mut self, turn: &mut Turn<'_>, poll: &Poll) {
        let Some(place) = self.free_place(turn) else {
            self.pause(poll, None);
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
                    self.pause(poll, Some(turn.after(ACCEPT_PAUSE)));
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
        let gives_way = |connection: &Connection| match connection.phase {
            Phase::Head | Phase::Lingering { .. } => true,
            Phase::Waiting(_) | Phase::Probing(_) | Phase::Merging(_) | Phase::Finishing => {
                turn.now.saturating_duration_since(connection.opened) > FAIR_SHARE
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

    fn pause(&mut self, poll: &Poll, until: Option<Instant>) {
        if self.paused.is_none() && self.watch(poll, Watch::Pause) {
            self.paused = Some(until);
        }
    }

    /// Accepts again, if that was paused and the reason has gone.
    pub(crate) fn resume(&mut self, now: Instant, poll: &Poll) {
        let over = match self.paused {
            None => false,
            Some(Some(until)) => until <= now,
            Some(None) => self.places.iter().any(Option::is_none),
        };
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

    /// One of our sockets is ready.
    pub(crate) fn ready(&mut self, turn: &mut Turn<'_>, token: Token) {
        let place = token.0.saturating_sub(self.first) / 2;
        self.step(turn, place);
    }

    /// Goes on with the scrapes that had to let others have their turn.
    pub(crate) fn run(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::take(&mut self.runnable) {
            return;
        }
        for place in 0..self.places.len() {
            let merging = self.connection(place).map(|connection| &connection.phase);
            if matches!(merging, Some(Phase::Merging(_))) {
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
            Phase::Head => self.read_head(turn, place, &mut connection),
            Phase::Probing(_) => {
                self.advance_probe(turn, place, &mut connection);
                Flow::Later
            }
            Phase::Merging(_) => self.merge(turn, place, &mut connection),
            Phase::Waiting(_) | Phase::Finishing => Flow::Later,
            Phase::Lingering { .. } => connection.discard(),
        };
        self.settle(turn, place, connection, flow);
    }

    /// Sends an answer that is there; keeps the connection, or closes it.
    fn settle(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        mut connection: Box<Connection>,
        mut flow: Flow,
    ) {
        if matches!(connection.phase, Phase::Finishing) && flow != Flow::Broken {
            flow = connection.flush();
            if flow == Flow::Done && connection.unread {
                connection.linger();
                connection.deadline = turn.after(LINGER);
                flow = connection.discard();
            } else if flow == Flow::Later {
                connection.deadline = turn.after(PAUSE);
            }
        }
        let waits_for_client = match connection.phase {
            Phase::Waiting(_) | Phase::Probing(_) => false,
            Phase::Merging(_) => connection.has_unsent(),
            Phase::Head | Phase::Finishing | Phase::Lingering { .. } => true,
        };
        if flow == Flow::Later && waits_for_client {
            flow = connection.watch(turn.registry);
        }
        let helped = is_helped(&connection);
        if flow == Flow::Later {
            self.put(place, connection);
        } else {
            drop(connection);
        }
        // Somebody may wait for the place of a helper that has just gone.
        if !helped {
            self.start_queued(turn);
        }
    }

    fn read_head(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
    ) -> Flow {
        let peer = connection.peer;
        let mut meaning = None;
        let flow = connection.read_head(&mut |bytes| {
            meaning = understand(bytes, peer, &self.settings);
            meaning.is_some()
        });
        let Some(meaning) = meaning else {
            return flow;
        };
        connection.unread = meaning.unread;
        self.begin(turn, place, connection, meaning);
        Flow::Later
    }

    fn begin(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        meaning: Meaning,
    ) {
        let form = meaning.form;
        match meaning.route {
            Route::Alive => connection.answer(200, answer::TEXT, b"alive\n", form),
            Route::Drain => {
                self.demands.push(Demand::Drain);
                connection.answer(200, answer::TEXT, b"draining\n", form);
            }
            Route::Quit => {
                self.demands.push(Demand::Quit);
                connection.answer(200, answer::TEXT, b"stopping\n", form);
            }
            Route::Refused(status, why) => {
                if status == 431 {
                    count(&mut turn.counters.connections_refused);
                }
                connection.answer(status, answer::TEXT, &line(&[why]), form);
            }
            Route::About(topic) => {
                self.wants_readiness = true;
                connection.deadline = turn.after(PAUSE);
                connection.phase = Phase::Waiting(Ask {
                    topic,
                    form,
                    query: meaning.query,
                    patience: meaning.patience,
                });
            }
            Route::Probe(_) | Route::Forward(_) => {
                if let Some(errand) = meaning.errand {
                    connection.deadline = turn.after(errand.timeout);
                    let deadline = connection.deadline;
                    let probing = Probing::new(errand.errand, form, errand.follow, deadline);
                    connection.phase = Phase::Probing(Box::new(probing));
                    self.begin_probe(turn, place, connection);
                }
            }
        }
    }

    fn begin_probe(&mut self, turn: &mut Turn<'_>, place: usize, connection: &mut Connection) {
        let token = self.far_token(place);
        if let Phase::Probing(probing) = &mut connection.phase {
            let progress = probing.begin(turn, token);
            self.progressed(turn, place, connection, progress);
        }
    }

    fn advance_probe(&mut self, turn: &mut Turn<'_>, place: usize, connection: &mut Connection) {
        let token = self.far_token(place);
        if let Phase::Probing(probing) = &mut connection.phase {
            let progress = probing.advance(turn, token);
            self.progressed(turn, place, connection, progress);
        }
    }

    fn progressed(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        progress: Progress,
    ) {
        match progress {
            Progress::Going => {}
            Progress::NeedsHelper if self.helped() < HELPERS => {
                self.demand_helper(turn, place, connection);
            }
            // Its turn comes when another ends.
            Progress::NeedsHelper => {}
            Progress::Answer(status, body) => finish_probe(turn, connection, status, &body),
        }
    }

    /// Connections whose helper runs.
    fn helped(&self) -> usize {
        self.connections()
            .filter(|(_, connection)| is_helped(connection))
            .count()
    }

    fn demand_helper(&mut self, turn: &mut Turn<'_>, place: usize, connection: &mut Connection) {
        let token = self.far_token(place);
        let Phase::Probing(probing) = &mut connection.phase else {
            return;
        };
        self.helpers = self.helpers.saturating_add(1);
        match probing.prepare_helper(turn, token, place, self.helpers) {
            Ok(helper) => self.demands.push(Demand::Helper(helper)),
            Err(error) => {
                let body = line(&["cannot open a pair of sockets: ", &error.to_string()]);
                finish_probe(turn, connection, 500, &body);
            }
        }
    }

    fn start_queued(&mut self, turn: &mut Turn<'_>) {
        let queued = |connection: &Connection| match &connection.phase {
            Phase::Probing(probing) => probing.is_queued(),
            _ => false,
        };
        while self.helped() < HELPERS {
            let oldest = self
                .connections()
                .filter(|(_, connection)| queued(connection))
                .min_by_key(|(_, connection)| connection.opened);
            let Some((place, _)) = oldest else {
                return;
            };
            let Some(mut connection) = self.take(place) else {
                return;
            };
            self.demand_helper(turn, place, &mut connection);
            if matches!(connection.phase, Phase::Finishing) && connection.flush() != Flow::Later {
                continue;
            }
            self.put(place, connection);
        }
    }

    /// A helper could not be started.
    pub(crate) fn helper_failed(&mut self, turn: &mut Turn<'_>, place: usize, why: &str) {
        if let Some(mut connection) = self.take(place) {
            finish_probe(turn, &mut connection, 500, &line(&[why]));
            self.settle(turn, place, connection, Flow::Later);
        }
    }

    /// Whether the proxy is ready is known: all that wait for it are answered.
    pub(crate) fn answer(&mut self, turn: &mut Turn<'_>, stage: Stage, view: &View<'_>) {
        for place in 0..self.places.len() {
            let waits = self.connection(place).map(|connection| &connection.phase);
            if !matches!(waits, Some(Phase::Waiting(_))) {
                continue;
            }
            let Some(mut connection) = self.take(place) else {
                continue;
            };
            let Phase::Waiting(ask) = std::mem::replace(&mut connection.phase, Phase::Finishing)
            else {
                continue;
            };
            let flow = self.answer_one(turn, place, &mut connection, (ask, stage), view);
            self.settle(turn, place, connection, flow);
        }
    }

    fn answer_one(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        (ask, stage): (Ask, Stage),
        view: &View<'_>,
    ) -> Flow {
        match ask.topic {
            Topic::Ready => {
                let (status, counter) = if stage.is_ready() {
                    (200, &mut turn.counters.ready_probes)
                } else {
                    (503, &mut turn.counters.unready_probes)
                };
                count(counter);
                let body = line(&[&stage.to_string()]);
                connection.answer(status, answer::TEXT, &body, ask.form);
            }
            Topic::Status => {
                connection.answer(200, answer::JSON, &json::render(view), ask.form);
            }
            Topic::Page => connection.answer(200, answer::HTML, &page::render(view), ask.form),
            Topic::Metrics => {
                count(&mut turn.counters.scrapes);
                let own = metrics::render(view, &metrics::Usage::read());
                return self.begin_merge(turn, place, connection, (ask, own));
            }
        }
        Flow::Later
    }

    /// Ours first: they are there whatever becomes of the others.
    fn begin_merge(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        (ask, own): (Ask, Vec<u8>),
    ) -> Flow {
        let length = if ask.form.chunks {
            answer::Length::Chunked
        } else {
            answer::Length::Close
        };
        let mut bytes = answer::head(200, answer::METRICS, length);
        if ask.form.head_only {
            connection.put(bytes);
            return Flow::Later;
        }
        if ask.form.chunks {
            answer::chunk(&mut bytes, &own);
        } else {
            bytes.extend_from_slice(&own);
        }
        connection.put(bytes);
        let merge = Merge::new(ask.form, ask.query, ask.patience);
        connection.phase = Phase::Merging(Box::new(merge));
        self.merge(turn, place, connection)
    }

    /// Reads from a source only what the client has room for.
    fn merge(&mut self, turn: &mut Turn<'_>, place: usize, connection: &mut Connection) -> Flow {
        let token = self.far_token(place);
        for _ in 0..ROUNDS {
            match connection.flush() {
                Flow::Done => {}
                Flow::Later => {
                    connection.deadline = turn.after(PAUSE);
                    return Flow::Later;
                }
                Flow::Broken => return Flow::Broken,
            }
            let mut out = Vec::new();
            let Phase::Merging(merge) = &mut connection.phase else {
                return Flow::Later;
            };
            match merge.pump(turn, token, &self.settings, &mut out) {
                Pumped::More => connection.put(out),
                Pumped::Waiting => {
                    connection.deadline = merge.deadline().unwrap_or(turn.now);
                    return Flow::Later;
                }
                Pumped::End => {
                    connection.put(out);
                    connection.phase = Phase::Finishing;
                    return Flow::Later;
                }
            }
        }
        self.runnable = true;
        Flow::Later
    }

    /// When something is late, or accepting begins again.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let nearest = self
            .connections()
            .map(|(_, connection)| connection.deadline)
            .min();
        nearest
            .into_iter()
            .chain(self.paused.and_then(|until| until))
            .min()
    }

    /// Ends what is late.
    pub(crate) fn expire(&mut self, turn: &mut Turn<'_>) {
        for place in 0..self.places.len() {
            let late = self
                .connection(place)
                .is_some_and(|connection| connection.deadline <= turn.now);
            if late {
                self.expire_one(turn, place);
            }
        }
    }

    fn expire_one(&mut self, turn: &mut Turn<'_>, place: usize) {
        let Some(mut connection) = self.take(place) else {
            return;
        };
        match &connection.phase {
            Phase::Probing(probing) => {
                if let Some(serial) = probing.helper() {
                    self.demands.push(Demand::KillHelper(serial));
                }
                finish_probe(turn, &mut connection, 500, &line(&["no answer in time"]));
                self.settle(turn, place, connection, Flow::Later);
            }
            // The source is late; if it were the client, there would be something for it.
            Phase::Merging(_) if !connection.has_unsent() => {
                let flow = self.merge(turn, place, &mut connection);
                self.settle(turn, place, connection, flow);
            }
            Phase::Lingering { .. } => {}
            Phase::Head | Phase::Waiting(_) | Phase::Merging(_) | Phase::Finishing => {
                count(&mut turn.counters.connections_refused);
            }
        }
    }

    fn close(&mut self, turn: &mut Turn<'_>, place: usize) {
        let connection = self.take(place);
        if let Some(Phase::Probing(probing)) = connection.map(|connection| connection.phase) {
            if let Some(serial) = probing.helper() {
                self.demands.push(Demand::KillHelper(serial));
            }
            count(&mut turn.counters.app_probes_failed);
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

    const fn token(&self, place: usize) -> Token {
        Token(self.first.saturating_add(place.saturating_mul(2)))
    }

    /// Of the socket to whom a connection asks.
    const fn far_token(&self, place: usize) -> Token {
        Token(self.token(place).0.saturating_add(1))
    }
}

/// What a head means, without the bytes that it stood in.
struct Meaning {
    route: Route,
    form: Form,
    unread: bool,
    errand: Option<Order>,
    query: Option<Box<str>>,
    patience: Duration,
}

/// What an application is to be asked.
struct Order {
    errand: Errand,
    timeout: Duration,
    follow: bool,
}

/// `None`: the head goes on.
fn understand(bytes: &[u8], peer: Peer, settings: &Settings) -> Option<Meaning> {
    let refuse = |status, why| Meaning {
        route: Route::Refused(status, why),
        form: Form {
            head_only: false,
            chunks: false,
        },
        unread: true,
        errand: None,
        query: None,
        patience: PAUSE,
    };
    match Request::parse(bytes) {
        Parsed::Incomplete => None,
        Parsed::TooLarge => Some(refuse(431, "the request's head is too large")),
        Parsed::Malformed => Some(refuse(400, "not an HTTP request")),
        Parsed::Request(request) => {
            let route = route(&request, peer, settings);
            let about_metrics = route == Route::About(Topic::Metrics);
            Some(Meaning {
                route,
                form: Form {
                    head_only: request.method == "HEAD",
                    chunks: request.chunks,
                },
                unread: request.more || request.body,
                errand: order(route, &request, settings),
                query: request.query.filter(|_| about_metrics).map(Box::from),
                patience: patience(&request, settings),
            })
        }
    }
}

/// A source of metrics may not use up the time that Prometheus has for all of them.
fn patience(request: &Request<'_>, settings: &Settings) -> Duration {
    let given = request
        .header(SCRAPE_TIMEOUT)
        .and_then(|value| std::str::from_utf8(value).ok())
        .and_then(|text| text.split('.').next()?.parse().ok())
        .map(Duration::from_secs);
    let sources = u32::try_from(settings.scrape.len().saturating_add(1)).unwrap_or(u32::MAX);
    given.map_or(PAUSE, |given| {
        let share = given
            .saturating_mul(3)
            .checked_div(sources.saturating_mul(4))
            .unwrap_or(PAUSE);
        share.clamp(Duration::from_millis(100), PAUSE)
    })
}

fn order(route: Route, request: &Request<'_>, settings: &Settings) -> Option<Order> {
    match route {
        Route::Forward(port) => {
            let path = match request.query {
                Some(query) => [request.path, "?", query].concat(),
                None => request.path.to_owned(),
            };
            Some(Order {
                errand: Errand::Http(Target::new(request, port, &path, &[])),
                timeout: PAUSE,
                follow: false,
            })
        }
        Route::Probe(index) => {
            let prober = settings.probers.get(index)?;
            let errand = match &prober.action {
                ProbeAction::Http(http) => {
                    let mut target = Target::new(request, http.port, &http.path, &http.headers);
                    target.https = http.https;
                    Errand::Http(target)
                }
                ProbeAction::Tcp { port } => Errand::Tcp { port: *port },
                ProbeAction::Grpc { port, service } => Errand::Grpc {
                    port: *port,
                    service: service.clone(),
                },
            };
            Some(Order {
                errand,
                timeout: prober.timeout,
                follow: true,
            })
        }
        Route::Alive | Route::About(_) | Route::Drain | Route::Quit | Route::Refused(..) => None,
    }
}

fn is_helped(connection: &Connection) -> bool {
    match &connection.phase {
        Phase::Probing(probing) => probing.helper().is_some(),
        Phase::Head
        | Phase::Waiting(_)
        | Phase::Merging(_)
        | Phase::Finishing
        | Phase::Lingering { .. } => false,
    }
}

fn finish_probe(turn: &mut Turn<'_>, connection: &mut Connection, status: u16, body: &[u8]) {
    let form = match &connection.phase {
        Phase::Probing(probing) => probing.form,
        Phase::Head
        | Phase::Waiting(_)
        | Phase::Merging(_)
        | Phase::Finishing
        | Phase::Lingering { .. } => return,
    };
    count(if status < 400 {
        &mut turn.counters.app_probes_passed
    } else {
        &mut turn.counters.app_probes_failed
    });
    connection.answer(status, answer::TEXT, body, form);
}

/// `::` without IPv6 on the host is `0.0.0.0`.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = match sys::listen(address) {
        Err(_) if address.ip().is_unspecified() && address.is_ipv6() => {
            sys::listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
        }
        result => result,
    };
    listener.map(TcpListener::from_std)
}

/// An IPv4 client of an IPv6 socket has a mapped address.
fn whence(peer: SocketAddr) -> Peer {
    let local = match peer.ip() {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
    };
    if local { Peer::Loopback } else { Peer::Elsewhere }
}
