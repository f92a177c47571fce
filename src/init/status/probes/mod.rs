//! An application's probe under way: a request to loopback, a connection, or a helper program that makes one of TLS or
//! gRPC.

#![forbid(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::Token;
use mio::net::UnixStream;

use crate::http::{Exchange, Response};
use crate::status::Turn;
use crate::status::response::{Framing, line};
use crate::status::target::{Redirect, RequestTarget};

/// Bytes of an application's answer that are passed on. Source: pilot-agent's limit; kubelet reads no more.
const BODY_BYTES: usize = 10 * 1024;
/// The difference between a helper's time-out and the agent's. Chosen: its own report of the time-out arrives first.
const HEAD_START: Duration = Duration::from_millis(50);
/// Status codes whose `Location` Go's HTTP client, and so kubelet, follows.
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// Errors of a connection to 127.0.0.1 after which ::1 is tried, and then the pod's address. Of any they are reported as
/// `connection refused`: what a later try says, of an address that nobody configured, would mislead.
const REFUSED: [io::ErrorKind; 4] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::AddrNotAvailable,
    // A host without an IPv4 loopback.
    io::ErrorKind::NetworkUnreachable,
    // From `PASS_THROUGH` to an address that is not the host's, as `--ip` may be.
    io::ErrorKind::InvalidInput,
];

/// From where the pod's address is asked: what comes from Envoy's own addresses goes to the application and not back to
/// Envoy, by the rules that Istio gives the pod's network.
const PASS_THROUGH: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6)),
    IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6)),
];

/// See the module.
#[derive(Debug)]
pub(crate) struct Probing {
    pub(crate) framing: Framing,
    check: Check,
    follow: bool,
    /// The pod's own address, if it has another than loopback's.
    pod: Option<IpAddr>,
    /// The first request, if a redirect has led elsewhere.
    first: Option<Check>,
    /// The deadline of the probe, redirects included.
    deadline: Instant,
    state: ProbeState,
    response: Response,
}

/// The check of a probe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Http(RequestTarget),
    Tcp { port: u16 },
    Grpc { port: u16, service: String },
}

/// A helper program to be run.
#[derive(Debug)]
pub(crate) struct Helper {
    /// The connection that it works for, to be told of a failure.
    pub(crate) place: usize,
    /// The helper's serial number, never used twice.
    pub(crate) serial: u64,
    pub(crate) arguments: Vec<String>,
    pub(crate) socket: std::os::unix::net::UnixStream,
}

#[derive(Debug)]
enum ProbeState {
    /// Shares the answer of the connection in this place, which asks the same.
    Shared(usize),
    /// Not begun, or queued until a helper may run.
    Idle,
    Direct {
        exchange: Exchange,
        address: IpAddr,
    },
    Helped {
        exchange: Exchange,
        serial: u64,
    },
}

/// The end of a step of the probe.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Wait for a socket or the deadline.
    Going,
    /// A helper program must be run.
    NeedsHelper,
    Answer(u16, Vec<u8>),
}

impl Probing {
    pub(crate) fn new(
        (check, follow): (Check, bool),
        framing: Framing,
        pod: Option<IpAddr>,
        deadline: Instant,
    ) -> Self {
        Self {
            framing,
            check,
            follow,
            pod,
            first: None,
            deadline,
            state: ProbeState::Idle,
            response: Response::new(BODY_BYTES),
        }
    }

    /// The helper that works for it.
    pub(crate) const fn helper(&self) -> Option<u64> {
        match &self.state {
            ProbeState::Helped { serial, .. } => Some(*serial),
            ProbeState::Idle | ProbeState::Shared(_) | ProbeState::Direct { .. } => None,
        }
    }

    /// Whether it asks what `other` is going to ask, byte for byte: the headers of a stranger must not decide about a
    /// probe of kubelet's.
    pub(crate) fn asks(&self, other: &Self) -> bool {
        let asked = self.first.as_ref().unwrap_or(&self.check);
        self.follow == other.follow && *asked == other.check
    }

    /// The place whose answer is shared.
    pub(crate) const fn shares(&self) -> Option<usize> {
        match self.state {
            ProbeState::Shared(place) => Some(place),
            ProbeState::Idle | ProbeState::Direct { .. } | ProbeState::Helped { .. } => None,
        }
    }

    /// Sends nothing itself, and shares the answer of `place`.
    pub(crate) fn share(&mut self, place: usize) {
        self.state = ProbeState::Shared(place);
    }

    /// Waits for a place for its helper.
    pub(crate) const fn is_queued(&self) -> bool {
        matches!(self.state, ProbeState::Idle)
    }

    /// Begins, or begins again after a redirect.
    pub(crate) fn begin(&mut self, turn: &Turn<'_>, token: Token) -> Progress {
        self.state = ProbeState::Idle;
        match &self.check {
            Check::Grpc { .. } => Progress::NeedsHelper,
            Check::Http(target) if target.https => Progress::NeedsHelper,
            Check::Http(_) | Check::Tcp { .. } => {
                self.connect(turn, token, Ipv4Addr::LOCALHOST.into())
            }
        }
    }

    fn connect(&mut self, turn: &Turn<'_>, token: Token, address: IpAddr) -> Progress {
        let (port, bytes) = match &self.check {
            Check::Http(target) => (target.port, target.bytes()),
            Check::Tcp { port } | Check::Grpc { port, .. } => (*port, Vec::new()),
        };
        self.response = self.fresh_response();
        let socket = SocketAddr::new(address, port);
        // The socket of the try before is closed here at the latest.
        self.state = ProbeState::Idle;
        let exchange = if Some(address) == self.pod {
            let [four, six] = PASS_THROUGH;
            let source = if address.is_ipv4() { four } else { six };
            Exchange::connect_from(turn.registry, token, (source, socket), bytes)
        } else {
            Exchange::connect(turn.registry, token, socket, bytes)
        };
        match exchange {
            Ok(exchange) => {
                self.state = ProbeState::Direct { exchange, address };
                Progress::Going
            }
            Err(error) => self.failed(turn, token, address, &error),
        }
    }

    fn fresh_response(&self) -> Response {
        match &self.check {
            Check::Http(target) if target.is_head() => Response::without_body(),
            Check::Http(_) | Check::Tcp { .. } | Check::Grpc { .. } => Response::new(BODY_BYTES),
        }
    }

    /// An application that listens on IPv6 only is tried there, and one that listens on the pod's address only at that.
    fn failed(
        &mut self,
        turn: &Turn<'_>,
        token: Token,
        address: IpAddr,
        error: &io::Error,
    ) -> Progress {
        let refused = REFUSED.contains(&error.kind());
        let next = if Some(address) == self.pod {
            None
        } else if address.is_ipv4() {
            Some(Ipv6Addr::LOCALHOST.into())
        } else {
            self.pod
        };
        if let Some(next) = next.filter(|_| refused) {
            return self.connect(turn, token, next);
        }
        let port = match &self.check {
            Check::Http(target) => target.port,
            Check::Tcp { port } | Check::Grpc { port, .. } => *port,
        };
        let port = port.to_string();
        let said;
        let text = if refused {
            "connection refused"
        } else if error.kind() == io::ErrorKind::UnexpectedEof {
            "closed without an answer"
        } else if error.kind() == io::ErrorKind::InvalidData {
            "what came back is not HTTP"
        } else {
            said = error.to_string();
            &said
        };
        Progress::Answer(500, line(&["cannot probe port ", &port, ": ", text]))
    }

    /// Its socket is ready.
    pub(crate) fn advance(&mut self, turn: &Turn<'_>, token: Token) -> Progress {
        let result = match (&mut self.state, &self.check) {
            (ProbeState::Idle | ProbeState::Shared(_), _) => return Progress::Going,
            (ProbeState::Direct { exchange, .. }, Check::Tcp { .. }) => exchange.is_connected(),
            (ProbeState::Direct { exchange, .. } | ProbeState::Helped { exchange, .. }, _) => {
                let response = &mut self.response;
                exchange.receive(turn.registry, token, &mut |bytes| response.take(bytes))
            }
        };
        match (result, &self.state) {
            (Ok(false), _) => Progress::Going,
            (Ok(true), _) => self.conclude(turn, token),
            (Err(error), ProbeState::Direct { address, .. }) => {
                let address = *address;
                self.failed(turn, token, address, &error)
            }
            (Err(_), ProbeState::Idle | ProbeState::Shared(_) | ProbeState::Helped { .. }) => {
                Progress::Answer(
                    500,
                    line(&["pintle-probe gave no answer; its reason is in the log"]),
                )
            }
        }
    }

    fn conclude(&mut self, turn: &Turn<'_>, token: Token) -> Progress {
        let target = match &self.check {
            Check::Tcp { .. } => return Progress::Answer(200, Vec::new()),
            Check::Http(target) => target,
            Check::Grpc { .. } => return self.pass_on(),
        };
        let head = self.response.head();
        let location = head
            .filter(|head| self.follow && REDIRECTS.contains(&head.status))
            .and_then(|head| head.location.as_deref());
        let Some(location) = location else {
            return self.pass_on();
        };
        match target.clone().redirect(location) {
            Redirect::Follow(next) => {
                let asked = std::mem::replace(&mut self.check, Check::Http(next));
                self.first.get_or_insert(asked);
                self.state = ProbeState::Idle;
                self.begin(turn, token)
            }
            // As kubelet sees it: the application answered.
            Redirect::Elsewhere => Progress::Answer(200, line(&["redirected to ", location])),
            Redirect::TooMany => Progress::Answer(500, line(&["stopped after 10 redirects"])),
            Redirect::Malformed => {
                Progress::Answer(500, line(&["the redirect's location cannot be understood"]))
            }
        }
    }

    fn pass_on(&self) -> Progress {
        let status = match self.response.status() {
            // A redirect that is not followed any more is a good sign, as kubelet counts it.
            Some(300..=399) if self.follow => 200,
            Some(status) => status,
            None => 500,
        };
        Progress::Answer(status, self.response.body().to_vec())
    }

    /// Makes the pair of sockets for a helper; what to run it with.
    ///
    /// # Errors
    /// No descriptor left.
    pub(crate) fn prepare_helper(
        &mut self,
        turn: &Turn<'_>,
        token: Token,
        place: usize,
        serial: u64,
    ) -> io::Result<Helper> {
        let left = self.deadline.saturating_duration_since(turn.now);
        // The helper's own report of being late comes before the agent's.
        let left = left.saturating_sub(HEAD_START);
        let timeout = ["--timeout-millis".to_owned(), millis(left)];
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
        let (mut arguments, request) = match &self.check {
            Check::Http(target) => (vec!["https".to_owned(), at(target.port)], target.bytes()),
            Check::Grpc { port, service } => {
                let service = ["--service=", service].concat();
                (vec!["grpc".to_owned(), at(*port), service], Vec::new())
            }
            Check::Tcp { .. } => return Err(io::ErrorKind::Unsupported.into()),
        };
        arguments.extend(timeout);
        self.response = self.fresh_response();
        let (stream, socket) = pair()?;
        let exchange = Exchange::with(turn.registry, token, stream, request)?;
        self.state = ProbeState::Helped { exchange, serial };
        Ok(Helper {
            place,
            serial,
            arguments,
            socket,
        })
    }
}

/// At least one: 0 would be no time-out to many.
fn millis(left: Duration) -> String {
    let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    millis.max(1).to_string()
}

/// A pair of sockets: the agent's, and the helper program's.
fn pair() -> io::Result<(UnixStream, std::os::unix::net::UnixStream)> {
    let (own, other) = std::os::unix::net::UnixStream::pair()?;
    own.set_nonblocking(true)?;
    Ok((UnixStream::from_std(own), other))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use mio::{Events, Poll};

    use super::*;
    use crate::counters::Counters;
    use crate::status::stories::clock;

    /// The result of a probe of that port.
    fn probed(port: u16, pod: Option<IpAddr>) -> Progress {
        let framing = Framing {
            head_only: false,
            chunks: false,
        };
        let (mut poll, token, now) = (Poll::new().unwrap(), Token(1), clock());
        let what = (Check::Tcp { port }, true);
        let mut probing = Probing::new(what, framing, pod, now + Duration::from_secs(9));
        let mut events = Events::with_capacity(4);
        let mut begun = false;
        loop {
            let turn = Turn {
                registry: poll.registry(),
                now,
                counters: &mut Counters::default(),
            };
            let step = if begun {
                Probing::advance
            } else {
                Probing::begin
            };
            match step(&mut probing, &turn, token) {
                Progress::Going => {}
                end @ (Progress::NeedsHelper | Progress::Answer(..)) => return end,
            }
            begun = true;
            poll.poll(&mut events, None).unwrap();
        }
    }

    /// It listens on an address that is not loopback's first, as one does that asks for the pod's.
    #[test]
    fn an_application_that_listens_on_the_pods_address_only_is_found() {
        let pod = IpAddr::from([127, 0, 0, 2]);
        let listener = TcpListener::bind((pod, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(matches!(probed(port, None), Progress::Answer(500, _)));
        assert!(matches!(probed(port, Some(pod)), Progress::Answer(200, _)));
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), PASS_THROUGH[0]);
        drop(listener);
        let Progress::Answer(500, body) = probed(port, Some(pod)) else {
            panic!()
        };
        let said = format!("cannot probe port {port}: connection refused\n");
        assert_eq!(String::from_utf8(body).unwrap(), said);
    }

    /// `--ip` may be another's: nothing leads there from where Envoy's would come.
    #[test]
    fn an_address_that_is_not_the_hosts_is_no_other_failure() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let Progress::Answer(500, body) = probed(port, Some([192, 0, 2, 1].into())) else {
            panic!()
        };
        let said = format!("cannot probe port {port}: connection refused\n");
        assert_eq!(String::from_utf8(body).unwrap(), said);
    }
}
