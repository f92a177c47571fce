//! Metrics of others, passed on to a client: Envoy's, then the application's. One at a time, line by line, and read
//! only as fast as the client reads.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::Token;

use super::scrape::Lines;
use crate::http::{Decoder, Exchange, request_head};
use crate::status::response::{self, Framing};
use crate::status::{Settings, Turn, count};

/// Bytes that are read at once, and so go on to the client at once. Chosen: half of what Envoy writes at once, 16 kB.
const READ_BYTES: usize = 8 * 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Merge {
    framing: Framing,
    /// For Envoy: what the client asked for (`usedonly`, say).
    query: Option<Box<str>>,
    /// How long a source may take from one line that passes to the next.
    patience: Duration,
    /// The source in turn: 0 is Envoy, n the application's target n - 1.
    source: usize,
    /// The application was not reached by IPv4, and is tried by IPv6.
    six: bool,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    exchange: Exchange,
    decoder: Decoder,
    lines: Lines,
    /// The time-out of what the source says next.
    deadline: Instant,
}

/// How a step of the merge ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// Bytes for the client were written to the buffer.
    More,
    /// The source has sent nothing new: wait for it.
    Waiting,
    /// All sources were merged.
    End,
}

impl Merge {
    /// `first`: 0 begins with Envoy, 1 leaves it out.
    pub(crate) fn new(
        framing: Framing,
        query: Option<Box<str>>,
        patience: Duration,
        first: usize,
    ) -> Self {
        Self {
            framing,
            query,
            patience,
            source: first,
            six: false,
            current: None,
        }
    }

    /// Reads once from the source whose turn it is; lines go to `out`, framed for the client.
    pub(crate) fn pump(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        settings: &Settings,
        out: &mut Vec<u8>,
    ) -> Pumped {
        if self.current.is_none() && !self.open(turn, token, settings) {
            if self.framing.chunks {
                out.extend_from_slice(response::LAST_CHUNK);
            }
            return Pumped::End;
        }
        let Some(current) = &mut self.current else {
            return Pumped::Waiting;
        };
        let mut text = Vec::new();
        let result = current.read(&mut text);
        match result {
            Ok(Read::Nothing) if current.deadline > turn.now => return Pumped::Waiting,
            Ok(Read::Some) if !text.is_empty() => {
                current.deadline = turn.after(self.patience);
            }
            // Bytes that are dropped do not extend the deadline.
            Ok(Read::Some) if current.deadline > turn.now => {}
            Ok(Read::End) if current.lines.dropped() == 0 => self.next(),
            Err(()) if current.decoder.head().is_none() && self.tries_six() => {}
            // All of it but for lines that nobody could have wanted counts as a failure, too: somebody should look.
            Ok(_) | Err(()) => self.fail(turn),
        }
        if self.framing.chunks {
            response::chunk(out, &text);
        } else {
            out.append(&mut text);
        }
        Pumped::More
    }

    /// An empty line: no metric, but the write fails if the client has gone.
    pub(crate) fn blank(&self) -> Vec<u8> {
        let mut blank = Vec::new();
        if self.framing.chunks {
            response::chunk(&mut blank, b"\n");
        } else {
            blank.push(b'\n');
        }
        blank
    }

    /// When the source runs out of time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.deadline)
    }

    /// Opens the next source that can be opened; `false`: there is none.
    fn open(&mut self, turn: &mut Turn<'_>, token: Token, settings: &Settings) -> bool {
        while let Some((address, request)) = self.request(settings) {
            match Exchange::connect(turn.registry, token, address, request) {
                Ok(exchange) => {
                    self.current = Some(Current {
                        exchange,
                        decoder: Decoder::new(),
                        lines: Lines::default(),
                        deadline: turn.after(self.patience),
                    });
                    return true;
                }
                Err(_) if self.tries_six() => {}
                Err(_) => self.fail(turn),
            }
        }
        false
    }

    /// An application that gave no answer by IPv4 is asked by IPv6, once.
    fn tries_six(&mut self) -> bool {
        let tries = self.source > 0 && !self.six;
        if tries {
            self.six = true;
            self.current = None;
        }
        tries
    }

    fn request(&self, settings: &Settings) -> Option<(SocketAddr, Vec<u8>)> {
        let (address, path, query) = match self.source.checked_sub(1) {
            None => (
                settings.admin,
                "/stats/prometheus",
                self.query.as_deref().unwrap_or_default(),
            ),
            Some(place) => {
                let target = settings.scrape.get(place)?;
                let address: IpAddr = if self.six {
                    Ipv6Addr::LOCALHOST.into()
                } else {
                    Ipv4Addr::LOCALHOST.into()
                };
                let address = SocketAddr::new(address, target.port);
                (address, target.path.as_str(), "")
            }
        };
        let mark = if query.is_empty() { "" } else { "?" };
        let path = [path, mark, query];
        let head = request_head("GET", &path, "localhost", b"Accept: text/plain\r\n");
        Some((address, head))
    }

    fn next(&mut self) {
        self.current = None;
        self.six = false;
        self.source = self.source.saturating_add(1);
    }

    /// Leaves out a source that failed; lines that it sent before stay.
    fn fail(&mut self, turn: &mut Turn<'_>) {
        let counter = if self.source == 0 {
            &mut turn.counters.envoy_scrape_failures
        } else {
            &mut turn.counters.application_scrape_failures
        };
        count(counter);
        self.next();
    }
}

/// The result of one read from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Nothing,
    Some,
    /// The source has ended as it should.
    End,
}

impl Current {
    /// Only the body of a 200 is metrics, and only if it is plain text.
    fn read(&mut self, text: &mut Vec<u8>) -> Result<Read, ()> {
        let mut buffer = [0; READ_BYTES];
        let Some(read) = self.exchange.read(&mut buffer).map_err(drop)? else {
            return Ok(Read::Nothing);
        };
        let Self { decoder, lines, .. } = self;
        if read == 0 {
            return if decoder.close() {
                lines.finish(text);
                Ok(Read::End)
            } else {
                Err(())
            };
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        let fed = decoder.feed(bytes, &mut |piece| lines.feed(piece, text));
        let bad = decoder
            .head()
            .is_some_and(|head| head.status != 200 || head.encoded);
        if bad {
            // What came with a bad head is not metrics.
            text.clear();
        }
        fed.map_err(drop)?;
        if bad {
            return Err(());
        }
        if decoder.is_done() {
            lines.finish(text);
            return Ok(Read::End);
        }
        Ok(Read::Some)
    }
}
