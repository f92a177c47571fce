//! One client connection: its socket, the request read so far, the response being sent.

#![forbid(unsafe_code)]

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::limits::LINGER_BYTES;
use super::routes::{Peer, Topic};
use crate::http::{HEAD_BYTES, READ_BYTES};
use crate::status::metrics::merge::Merge;
use crate::status::probes::Probing;
use crate::status::response::{self, Framing, Length};

/// See the module.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Connection {
    stream: TcpStream,
    token: Token,
    /// See `party`.
    pub(super) from: IpAddr,
    pub(super) opened: Instant,
    pub(super) deadline: Instant,
    pub(super) phase: ConnectionPhase,
    /// The head so far, then the bytes to send.
    buffer: Vec<u8>,
    sent: usize,
    /// Something was sent, or there is something new to send: its time begins anew.
    moved: bool,
    /// epoll knows the socket: only once something has to be waited for.
    registered: bool,
    /// A page, the status or metrics were asked for: see `PAGES`.
    pub(super) page: bool,
    /// It has one of the places that are kept for loopback's and the node's: see `KEPT`.
    pub(super) kept: bool,
    /// The request goes on after its head: see `LINGER`.
    pub(super) unread: bool,
}

/// The phase of a connection.
#[derive(Debug)]
pub(super) enum ConnectionPhase {
    /// The head is not there yet.
    Head,
    /// It waits to be told whether the proxy is ready.
    Waiting(PendingRequest),
    /// An application is asked, or a helper program.
    Probing(Box<Probing>),
    /// Metrics from elsewhere are passed on.
    Merging(Box<Merge>),
    /// The answer is on its way.
    Finishing,
    /// The answer is sent; the rest of the request is discarded.
    Lingering { left: usize },
}

/// A request that needs to know about readiness.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) topic: Topic,
    pub(super) framing: Framing,
    /// For Envoy's metrics.
    pub(super) query: Option<Box<str>>,
    /// The time at which the client of a scrape will have lost its patience.
    pub(super) end: Instant,
}

/// The result of an attempt to send or to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// All is done.
    Done,
    /// The socket would block.
    Later,
    /// The connection has failed or was closed.
    Broken,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        token: Token,
        from: IpAddr,
        times: (Instant, Instant),
    ) -> Self {
        let (opened, deadline) = times;
        Self {
            stream,
            token,
            from: party(from),
            opened,
            deadline,
            phase: ConnectionPhase::Head,
            buffer: Vec::new(),
            sent: 0,
            moved: false,
            registered: false,
            page: false,
            kept: false,
            unread: false,
        }
    }

    /// Makes epoll tell of the socket. What it tells first is how things are now.
    pub(super) fn watch(&mut self, registry: &Registry) -> Flow {
        if self.registered {
            return Flow::Later;
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        match registry.register(&mut self.stream, self.token, interest) {
            Ok(()) => {
                self.registered = true;
                Flow::Later
            }
            Err(_) => Flow::Broken,
        }
    }

    /// Reads more of the head; `use_head` sees all that is there and says whether that was enough. What was not is kept.
    pub(super) fn read_head(&mut self, use_head: &mut dyn FnMut(&[u8]) -> bool) -> Flow {
        let mut scratch = [0; READ_BYTES];
        loop {
            let bytes = match self.stream.read(&mut scratch) {
                Ok(0) => return Flow::Broken,
                Ok(read) => scratch.get(..read).unwrap_or_default(),
                Err(error) => match later(&error) {
                    Some(flow) => return flow,
                    None => continue,
                },
            };
            if self.buffer.is_empty() {
                if use_head(bytes) {
                    return Flow::Done;
                }
                self.buffer.reserve_exact(bytes.len());
                self.buffer.extend_from_slice(bytes);
            } else {
                // At most what is kept and one read more: the parser refuses what is longer than a head may be.
                debug_assert!(self.buffer.len() <= HEAD_BYTES);
                self.buffer.extend_from_slice(bytes);
                if use_head(&self.buffer) {
                    self.buffer = Vec::new();
                    return Flow::Done;
                }
            }
        }
    }

    /// The whole answer.
    pub(super) fn answer(&mut self, status: u16, kind: &str, body: &[u8], framing: Framing) {
        let mut bytes = response::head(status, kind, Length::Known(body.len()));
        if !framing.head_only {
            bytes.extend_from_slice(body);
        }
        self.put(bytes);
        self.phase = ConnectionPhase::Finishing;
    }

    /// Something more to send; what was there has been sent.
    pub(super) fn put(&mut self, bytes: Vec<u8>) {
        self.moved = true;
        if self.has_unsent() {
            self.buffer.extend_from_slice(&bytes);
        } else {
            self.buffer = bytes;
            self.sent = 0;
        }
    }

    /// Whether it leaves memory behind that is worth giving back: a scrape, or an answer that was cut off.
    pub(super) fn is_large(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Merging(_)) || self.buffer.capacity() > READ_BYTES
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.buffer.len()
    }

    /// Sends what can be sent.
    pub(super) fn flush(&mut self) -> Flow {
        while let Some(unsent) = self.buffer.get(self.sent..).filter(|left| !left.is_empty()) {
            match self.stream.write(unsent) {
                Ok(0) => return Flow::Broken,
                Ok(written) => {
                    self.moved = true;
                    self.sent = self.sent.saturating_add(written);
                }
                Err(error) => {
                    if let Some(flow) = later(&error) {
                        return flow;
                    }
                }
            }
        }
        self.buffer = Vec::new();
        self.sent = 0;
        Flow::Done
    }

    /// The client must take more by `deadline`. One that only goes on talking gains nothing by that.
    pub(super) fn expect_reading(&mut self, deadline: Instant) {
        if std::mem::take(&mut self.moved) {
            self.deadline = deadline;
        }
    }

    /// Shuts the sending side down and begins to discard what still arrives.
    pub(super) fn linger(&mut self) {
        drop(self.stream.shutdown(Shutdown::Write));
        self.phase = ConnectionPhase::Lingering { left: LINGER_BYTES };
    }

    /// Discards what arrives, up to the limit.
    pub(super) fn discard(&mut self) -> Flow {
        let ConnectionPhase::Lingering { left } = &mut self.phase else {
            return Flow::Broken;
        };
        let mut scratch = [0; READ_BYTES];
        while *left > 0 {
            match self.stream.read(&mut scratch) {
                Ok(0) => return Flow::Done,
                Ok(read) => *left = left.saturating_sub(read),
                Err(error) => {
                    if let Some(flow) = later(&error) {
                        return flow;
                    }
                }
            }
        }
        Flow::Done
    }
}

/// Loopback's addresses have one share together: a process that may use one of them may use all.
fn party(from: IpAddr) -> IpAddr {
    match Peer::at(from) {
        Peer::Loopback => Ipv4Addr::LOCALHOST.into(),
        Peer::Elsewhere => from,
    }
}

/// `None`: at once again.
fn later(error: &io::Error) -> Option<Flow> {
    let kind = error.kind();
    if kind == io::ErrorKind::Interrupted {
        None
    } else if kind == io::ErrorKind::WouldBlock {
        Some(Flow::Later)
    } else {
        Some(Flow::Broken)
    }
}
