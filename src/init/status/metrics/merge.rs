//! Metrics of others, passed on to a client: Envoy's, then the application's. One at a time, line by line, and read
//! only as fast as the client reads.

#![forbid(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::Token;

use super::scrape::Lines;
use crate::http::{Decoder, Exchange, Malformed, request_head};
use crate::log;
use crate::status::response::{self, Framing};
use crate::status::target::{ACCEPT, Redirect, RequestTarget};
use crate::status::{Settings, Turn, count};

/// Bytes that are read at once, and so go on to the client at once. Chosen: half of what Envoy writes at once, 16 kB.
const READ_BYTES: usize = 8 * 1024;
/// Bytes that are read of an application's answer. Source: pilot-agent takes no more.
const APPLICATION_BYTES: usize = 10 * 1024 * 1024;
/// Time in which no second source is told of that fails. Chosen: a client that gives no time makes all of them fail, and
/// one that follows it does not.
const QUIET: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(crate) struct Merge {
    framing: Framing,
    /// For Envoy: what the client asked for (`usedonly`, say).
    query: Option<Box<str>>,
    /// The longest time that a source may take from one line that passes to the next.
    pause: Duration,
    /// The time at which the client will have lost its patience.
    end: Instant,
    /// The time at which the share of the source in turn is over, once it was asked.
    share: Option<Instant>,
    /// The source in turn: 0 is Envoy, n the application's target n - 1.
    source: usize,
    /// The application was not reached by IPv4, and is tried by IPv6.
    six: bool,
    /// The request to the application, after a redirect another than at first.
    target: Option<RequestTarget>,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    exchange: Exchange,
    decoder: Decoder,
    lines: Lines,
    /// The time-out of what the source says next.
    deadline: Instant,
    /// Bytes read.
    read: usize,
}

/// The sources that failed the last time, as far as the log says so: it tells when one begins to fail, and when that ends.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    /// A bit for each source.
    told: u32,
    /// No other is told of until then.
    quiet: Option<Instant>,
}

impl Failing {
    /// Returns true if its failure is to be told.
    fn begins(&mut self, source: usize, turn: &Turn<'_>) -> bool {
        let new = self.told & bit(source) == 0 && self.quiet.is_none_or(|end| end <= turn.now);
        if new {
            self.told |= bit(source);
            self.quiet = Some(turn.after(QUIET));
        }
        new
    }

    /// Returns true if the end of its failures is to be told.
    const fn ends(&mut self, source: usize) -> bool {
        let told = self.told & bit(source) != 0;
        self.told &= !bit(source);
        told
    }
}

/// There are 17 sources at most.
const fn bit(source: usize) -> u32 {
    1 << (source % 32)
}

/// The end of a step of the merge.
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
        (pause, end): (Duration, Instant),
        first: usize,
    ) -> Self {
        Self {
            framing,
            query,
            pause,
            end,
            share: None,
            source: first,
            six: false,
            target: None,
            current: None,
        }
    }

    /// Reads once from the source whose turn it is; lines go to `out`, framed for the client.
    pub(crate) fn pump(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        (settings, failing): (&Settings, &mut Failing),
        out: &mut Vec<u8>,
    ) -> Pumped {
        if self.current.is_none() && !self.open(turn, token, settings, failing) {
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
        let endless = self.source > 0 && current.read > APPLICATION_BYTES;
        let goes_on = !endless && self.share.is_none_or(|share| share > turn.now);
        match result {
            Ok(Read::Nothing) if current.deadline > turn.now => return Pumped::Waiting,
            Ok(Read::Some) if goes_on && !text.is_empty() => {
                // Envoy's come first and are many: while they do, they may take of the others' time.
                if self.source == 0 {
                    self.share = None;
                }
                self.expect(turn, settings);
            }
            // Bytes that are dropped do not extend the deadline.
            Ok(Read::Some) if goes_on && current.deadline > turn.now => {}
            Ok(Read::End) if current.lines.dropped() == 0 => {
                if failing.ends(self.source) {
                    let (who, port) = self.who(settings);
                    log::info!("{who} can be scraped at port {port} again");
                }
                self.next();
            }
            Err(_) if current.decoder.head().is_none() && self.tries_six() => {}
            Err(_) if self.follows() => {}
            // All of it but for lines that nobody could have wanted counts as a failure, too: somebody should look.
            failed => {
                let cause = match failed {
                    Ok(Read::End) => "not all of it is metrics",
                    Ok(_) if endless => "it is more than 10 MiB",
                    Ok(_) => "no answer in time",
                    Err(cause) => cause,
                };
                self.fail(turn, settings, failing, cause);
            }
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

    /// Returns the time at which the source runs out of time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.deadline)
    }

    /// The source in turn says more within a pause, and ends within its share of the time: what the sources before it have
    /// left is shared by it and those behind it.
    fn expect(&mut self, turn: &Turn<'_>, settings: &Settings) {
        let sources = settings.scrape.len().saturating_add(1);
        let left = sources.saturating_sub(self.source).max(1);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let time = self.end.saturating_duration_since(turn.now);
        let share = self.share.unwrap_or_else(|| turn.after(time / left));
        self.share = Some(share);
        if let Some(current) = &mut self.current {
            current.deadline = turn.after(self.pause).min(share);
        }
    }

    /// Opens the next source that can be opened; `false`: there is none.
    fn open(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        settings: &Settings,
        failing: &mut Failing,
    ) -> bool {
        while let Some((address, request)) = self.request(settings) {
            match Exchange::connect(turn.registry, token, address, request) {
                Ok(exchange) => {
                    self.current = Some(Current {
                        exchange,
                        decoder: Decoder::new(),
                        lines: Lines::default(),
                        deadline: turn.now,
                        read: 0,
                    });
                    self.expect(turn, settings);
                    return true;
                }
                Err(_) if self.tries_six() => {}
                Err(error) => self.fail(turn, settings, failing, cause(&error)),
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

    /// A redirect of the application's leads to another request.
    fn follows(&mut self) -> bool {
        let head = self.current.as_ref().and_then(|now| now.decoder.head());
        let location = head.and_then(|head| head.location.as_deref());
        if let (Some(location), Some(target)) = (location, self.target.take())
            && let Redirect::Follow(next) = target.redirect(location)
            && !next.https
        {
            self.target = Some(next);
            self.current = None;
            return true;
        }
        false
    }

    fn request(&mut self, settings: &Settings) -> Option<(SocketAddr, Vec<u8>)> {
        let Some(place) = self.source.checked_sub(1) else {
            let query = self.query.as_deref().unwrap_or_default();
            let mark = if query.is_empty() { "" } else { "?" };
            let path = ["/stats/prometheus", mark, query];
            let head = request_head("GET", &path, "localhost", ACCEPT);
            return Some((settings.admin, head));
        };
        let first = settings.scrape.get(place)?;
        let target = self
            .target
            .get_or_insert_with(|| RequestTarget::metrics((first.port, settings.own), &first.path));
        let address: IpAddr = if self.six {
            Ipv6Addr::LOCALHOST.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        };
        Some((SocketAddr::new(address, target.port), target.bytes()))
    }

    fn next(&mut self) {
        self.current = None;
        self.share = None;
        self.six = false;
        self.target = None;
        self.source = self.source.saturating_add(1);
    }

    /// Leaves out a source that failed; lines that it sent before stay.
    fn fail(
        &mut self,
        turn: &mut Turn<'_>,
        settings: &Settings,
        failing: &mut Failing,
        cause: &str,
    ) {
        let counter = if self.source == 0 {
            &mut turn.counters.envoy_scrape_failures
        } else {
            &mut turn.counters.application_scrape_failures
        };
        count(counter);
        if failing.begins(self.source, turn) {
            let (who, port) = self.who(settings);
            let head = self.current.as_ref().and_then(|now| now.decoder.head());
            let status = head.map(|head| head.status).filter(|status| *status != 200);
            let status = status.map(|status| ["status ", &status.to_string()].concat());
            let cause = status.as_deref().unwrap_or(cause);
            log::warning!("cannot scrape {who} at port {port}: {cause}");
        }
        self.next();
    }

    /// The source in turn, and its port.
    fn who(&self, settings: &Settings) -> (&'static str, u16) {
        let place = self.source.checked_sub(1);
        let application = place.and_then(|place| settings.scrape.get(place));
        match application {
            Some(target) => ("the application", target.port),
            None => ("Envoy", settings.admin.port()),
        }
    }
}

fn cause(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        "connection refused"
    } else {
        "the connection failed"
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
    fn read(&mut self, text: &mut Vec<u8>) -> Result<Read, &'static str> {
        let mut buffer = [0; READ_BYTES];
        let read = self.exchange.read(&mut buffer);
        let Some(read) = read.map_err(|error| cause(&error))? else {
            return Ok(Read::Nothing);
        };
        self.read = self.read.saturating_add(read);
        let Self { decoder, lines, .. } = self;
        if read == 0 {
            return if decoder.close() {
                lines.finish(text);
                Ok(Read::End)
            } else {
                Err("it ended early")
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
        fed.map_err(|Malformed| "what came back is not HTTP")?;
        if bad {
            return Err("it is compressed");
        }
        if decoder.is_done() {
            lines.finish(text);
            return Ok(Read::End);
        }
        Ok(Read::Some)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use mio::{Events, Poll};

    use super::*;
    use crate::config::ScrapeTarget;
    use crate::counters::Counters;
    use crate::status::stories::clock;

    /// The pause that a source may make.
    const PAUSE: Duration = Duration::from_secs(10);

    /// A server that does this with each client, whose head it has read.
    #[expect(
        clippy::disallowed_methods,
        reason = "a server beside a test forks nothing"
    )]
    fn server(serve: impl Fn(&str, TcpStream) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut head) = (stream.unwrap(), [0; 1024]);
                let length = stream.read(&mut head).unwrap();
                serve(std::str::from_utf8(&head[..length]).unwrap(), stream);
            }
        });
        address
    }

    fn says(text: &'static str) -> SocketAddr {
        server(move |_, mut stream| {
            let all = ["HTTP/1.0 200 OK\r\n\r\n", text].concat();
            stream.write_all(all.as_bytes()).unwrap();
        })
    }

    /// A scrape of Envoy and applications, on a clock of its own.
    struct Scrape {
        merge: Merge,
        settings: Settings,
        poll: Poll,
        began: Instant,
        counters: Counters,
        failing: Failing,
        said: Vec<u8>,
    }

    impl Scrape {
        /// One that may last so many seconds.
        fn new(envoy: SocketAddr, applications: &[SocketAddr], seconds: u64) -> Self {
            let mut settings = crate::status::tests::settings();
            settings.admin = envoy;
            let targets = applications.iter().map(|at| ScrapeTarget {
                port: at.port(),
                path: "/metrics".to_owned(),
            });
            settings.scrape = targets.collect();
            let framing = Framing {
                head_only: false,
                chunks: false,
            };
            let began = clock();
            let end = began + Duration::from_secs(seconds);
            Self {
                merge: Merge::new(framing, None, (PAUSE, end), 0),
                settings,
                poll: Poll::new().unwrap(),
                began,
                counters: Counters::default(),
                failing: Failing::default(),
                said: Vec::new(),
            }
        }

        fn pump(&mut self, seconds: u64) -> Pumped {
            let mut turn = Turn {
                registry: self.poll.registry(),
                now: self.began + Duration::from_secs(seconds),
                counters: &mut self.counters,
            };
            let (token, out) = (Token(1), &mut self.said);
            let of = (&self.settings, &mut self.failing);
            self.merge.pump(&mut turn, token, of, out)
        }

        /// Goes on at that second until it waits for that source, or to the end.
        fn goes_on(&mut self, seconds: u64, source: Option<usize>) {
            let mut events = Events::with_capacity(4);
            loop {
                match self.pump(seconds) {
                    Pumped::More => {}
                    Pumped::End => return assert_eq!(source, None),
                    Pumped::Waiting if source == Some(self.merge.source) => return,
                    Pumped::Waiting => {
                        let max = Some(Duration::from_secs(20));
                        self.poll.poll(&mut events, max).unwrap();
                        assert!(!events.is_empty(), "nothing comes");
                    }
                }
            }
        }

        fn failures(&self) -> (u64, u64) {
            let counters = &self.counters;
            (
                counters.envoy_scrape_failures,
                counters.application_scrape_failures,
            )
        }
    }

    /// Each source had three eighths of the time, whatever the others took.
    #[test]
    fn a_source_has_the_time_that_others_left() {
        let (tell, told) = std::sync::mpsc::channel();
        let slow = server(move |_, mut stream| {
            told.recv().unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\napp 1\n").unwrap();
        });
        let mut scrape = Scrape::new(says("envoy 1\n"), &[slow], 9);
        scrape.goes_on(0, Some(1));
        scrape.goes_on(8, Some(1));
        tell.send(()).unwrap();
        scrape.goes_on(8, None);
        assert_eq!(scrape.said, b"envoy 1\napp 1\n");
        assert_eq!(scrape.failures(), (0, 0));
    }

    #[test]
    fn a_source_that_is_late_leaves_the_others_their_share() {
        let silent = server(|_, stream| std::mem::forget(stream));
        let mut scrape = Scrape::new(says("envoy 1\n"), &[silent, says("app 1\n")], 9);
        scrape.goes_on(1, Some(1));
        scrape.goes_on(4, Some(1));
        scrape.goes_on(5, None);
        assert_eq!(scrape.said, b"envoy 1\napp 1\n");
        assert_eq!(scrape.failures(), (0, 1));
    }

    /// FastAPI's `/metrics` is at `/metrics/`, of the host that the request names.
    #[test]
    fn a_redirect_of_an_application_is_followed() {
        let app = server(|head, mut stream| {
            let host = head.split_once("Host: ").unwrap().1;
            let host = host.split_once("\r\n").unwrap().0;
            let answer = if head.starts_with("GET /metrics/ HTTP/1.1\r\n") {
                "HTTP/1.0 200 OK\r\n\r\napp 1\n".to_owned()
            } else {
                format!("HTTP/1.0 307 X\r\nLocation: http://{host}/metrics/\r\n\r\napp 2\n")
            };
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let mut scrape = Scrape::new(says("envoy 1\n"), &[app], 9);
        scrape.goes_on(0, None);
        assert_eq!(scrape.said, b"envoy 1\napp 1\n");
        assert_eq!(scrape.failures(), (0, 0));
    }

    /// As no probe's.
    #[test]
    fn no_redirect_leads_to_envoy_or_without_end() {
        let envoy = says("envoy 1\n");
        let to = |location: String| {
            let answer = format!("HTTP/1.0 302 X\r\nLocation: {location}\r\n\r\n");
            server(move |_, mut stream| stream.write_all(answer.as_bytes()).unwrap())
        };
        let apps = [to(format!("http://{envoy}/x")), to("/metrics".to_owned())];
        let mut scrape = Scrape::new(envoy, &apps, 9);
        scrape.settings.own[0] = envoy.port();
        scrape.goes_on(0, None);
        assert_eq!(scrape.said, b"envoy 1\n");
        assert_eq!(scrape.failures(), (0, 2));
    }

    #[test]
    fn a_failure_and_its_end_are_told_once() {
        let (poll, began) = (Poll::new().unwrap(), clock());
        let turn = |seconds| Turn {
            registry: poll.registry(),
            now: began + Duration::from_secs(seconds),
            counters: Box::leak(Box::default()),
        };
        let mut failing = Failing::default();
        assert!(!failing.ends(1));
        assert!(failing.begins(1, &turn(0)));
        assert!(!failing.begins(1, &turn(600)));
        assert!(failing.ends(1) && !failing.ends(1));
        assert!(failing.begins(0, &turn(600)));
        assert!(!failing.begins(16, &turn(659)), "not at once");
        assert!(failing.begins(16, &turn(660)));
        assert!(failing.ends(16) && failing.ends(0));
    }

    fn endless() -> SocketAddr {
        server(|_, mut stream| {
            drop(stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n"));
            let lines = b"a 1\n".repeat(4096);
            while stream.write_all(&lines).is_ok() {}
        })
    }

    /// It took as long as its client, and as much of the processor as there is.
    #[test]
    fn an_application_without_end_is_cut_off() {
        let mut scrape = Scrape::new(says("envoy 1\n"), &[endless(), says("app 1\n")], 9);
        scrape.goes_on(0, None);
        let max = APPLICATION_BYTES + READ_BYTES + 64;
        assert!(scrape.said.len() < max, "{}", scrape.said.len());
        assert!(scrape.said.ends_with(b"\na 1\napp 1\n"));
        assert_eq!(scrape.failures(), (0, 1));
    }

    #[test]
    fn no_source_goes_on_when_the_time_is_over() {
        for (envoy, application) in [(endless(), says("")), (says("envoy 1\n"), endless())] {
            let mut scrape = Scrape::new(envoy, &[application], 9);
            let mut events = Events::with_capacity(4);
            while scrape.said.len() < 100_000 {
                if scrape.pump(0) == Pumped::Waiting {
                    scrape.poll.poll(&mut events, None).unwrap();
                }
            }
            scrape.goes_on(9, None);
            let (envoy, application) = scrape.failures();
            assert!(envoy + application >= 1);
        }
    }
}
