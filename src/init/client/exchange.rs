//! One request and its answer on a connection of its own: the commands of a person or a script, not the agent.
//!
//! What arrives is handed on as it comes, so an answer of any length passes. Waiting for the server is what is bounded:
//! a reader of ours that is slow (a pager) costs nothing of the allowance.
//!
//! Names are looked up in `/etc/hosts` and nowhere else: the C library's resolver would weigh 19 kB.

#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::url::{Host, Url, addresses_of};
use crate::http::Exchange;

/// What is read at once; an answer may have a hundred megabytes.
const READ_BYTES: usize = 32 * 1024;
/// Names that need no DNS; kubelet writes the pod's own into it.
const HOSTS: &str = "/etc/hosts";

/// Why there is no answer, or not the one that was wanted.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The network.
    Io(io::Error),
    /// `/etc/hosts` does not know the name.
    NoAddress,
    /// The allowance, which is spent.
    Late(Duration),
    /// The connection ended before the answer did.
    Closed,
    /// It is not HTTP.
    Malformed,
    /// The answer is longer than these bytes, which are kept of it.
    Long(usize),
    /// The answer is not a success; with the beginning of its body, made harmless.
    Status(u16, String),
    /// The answer is not what `/status` says.
    Foreign,
    /// Our own output cannot be written.
    Output(io::Error),
    /// Whoever reads our output has what it wanted, like `head`.
    ReaderGone,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NoAddress => {
                f.write_str("the name is not in /etc/hosts, and DNS is not asked: give an address")
            }
            Self::Late(allowance) => {
                let millis = allowance.as_millis();
                if millis.is_multiple_of(1000) {
                    write!(f, "no answer within {} s", millis / 1000)
                } else {
                    write!(f, "no answer within {millis} ms")
                }
            }
            Self::Closed => f.write_str("the connection ended before the answer did"),
            Self::Malformed => f.write_str("the answer is not HTTP"),
            Self::Long(bytes) => write!(f, "the answer is longer than {bytes} bytes"),
            Self::Status(status, body) => {
                let colon = if body.is_empty() { "" } else { ": " };
                write!(f, "status {status}{colon}{body}")
            }
            Self::Foreign => f.write_str("the answer is not a status of pintle's"),
            Self::Output(error) => write!(f, "the output: {error}"),
            Self::ReaderGone => f.write_str("nobody reads the output"),
        }
    }
}

/// How long a server may be waited for, in all.
#[derive(Debug)]
pub(crate) struct Allowance {
    whole: Duration,
    left: Duration,
}

impl Allowance {
    #[must_use]
    pub(crate) const fn new(whole: Duration) -> Self {
        Self { whole, left: whole }
    }

    /// Waits until something can be read or sent, or the allowance is spent.
    fn wait(&mut self, poll: &mut Poll) -> Result<(), Failure> {
        if self.left.is_zero() {
            return Err(Failure::Late(self.whole));
        }
        let began = read_clock();
        let polled = poll.poll(&mut Events::with_capacity(1), Some(self.left));
        let spent = read_clock().saturating_duration_since(began);
        self.left = self.left.saturating_sub(spent);
        match polled {
            // Stopped and continued: no byte is lost.
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(Failure::Io(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// A method, and a body where there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    pub(crate) body: Option<&'a str>,
}

impl Ask<'static> {
    pub(crate) const GET: Self = Self {
        method: "GET",
        body: None,
    };
}

/// Takes what arrived, nothing once the other side has closed; says whether that was all.
pub(crate) type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<bool, Failure>;

/// Sends the request and hands on the answer.
///
/// # Errors
/// The network's, the allowance's, and those of `take`.
pub(crate) fn exchange(
    url: &Url,
    ask: Ask<'_>,
    allowance: &mut Allowance,
    take: Take<'_>,
) -> Result<(), Failure> {
    let mut poll = Poll::new().map_err(Failure::Io)?;
    let mut first = None;
    for address in addresses(url) {
        match converse(&mut poll, address, request(url, ask), allowance, take) {
            // Nobody has had the request.
            Err(Failure::Io(error)) if UNHEARD.contains(&error.kind()) => {
                first = first.or(Some(Failure::Io(error)));
            }
            result => return result,
        }
    }
    Err(first.unwrap_or(Failure::NoAddress))
}

/// Ends of a connection that has never been one.
const UNHEARD: [ErrorKind; 4] = [
    ErrorKind::ConnectionRefused,
    ErrorKind::HostUnreachable,
    ErrorKind::NetworkUnreachable,
    ErrorKind::AddrNotAvailable,
];

fn converse(
    poll: &mut Poll,
    address: SocketAddr,
    request: String,
    allowance: &mut Allowance,
    take: Take<'_>,
) -> Result<(), Failure> {
    let request = request.into_bytes();
    let exchange = Exchange::connect(poll.registry(), Token(0), address, request);
    let mut exchange = exchange.map_err(Failure::Io)?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let Some(read) = exchange.read(&mut buffer).map_err(Failure::Io)? else {
            allowance.wait(poll)?;
            continue;
        };
        if take(buffer.get(..read).unwrap_or_default())? {
            return Ok(());
        }
        if read == 0 {
            return Err(Failure::Closed);
        }
    }
}

fn addresses(url: &Url) -> Vec<SocketAddr> {
    let addresses = match &url.host {
        Host::Loopback => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        Host::Address(address) => vec![*address],
        // A file of the machine's own; one that cannot be read knows no name.
        Host::Name(name) => addresses_of(name, &std::fs::read(HOSTS).unwrap_or_default()),
    };
    let at = |address: IpAddr| SocketAddr::new(address, url.port);
    addresses.into_iter().map(at).collect()
}

fn request(url: &Url, ask: Ask<'_>) -> String {
    let host = url.host.to_string();
    let port = url.port.to_string();
    // Servers want to know that there is no body, where there could be one.
    let body = ask.body.unwrap_or_default();
    let length = if ask.body.is_some() || !matches!(ask.method, "GET" | "HEAD") {
        ["Content-Length: ", &body.len().to_string(), "\r\n"].concat()
    } else {
        String::new()
    };
    [
        ask.method,
        " ",
        &url.path,
        " HTTP/1.1\r\nHost: ",
        &host,
        ":",
        &port,
        "\r\nUser-Agent: pintle\r\nConnection: close\r\n",
        &length,
        "\r\n",
        body,
    ]
    .concat()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a command of its own, without the event loop: what a call took is read off the clock here, and nowhere else"
)]
pub(super) fn read_clock() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(ask: Ask<'_>) -> String {
        request(&Url::here(15000, "/x".to_owned()), ask)
    }

    #[test]
    fn a_request_says_its_length_where_there_could_be_a_body() {
        assert_eq!(
            head(Ask::GET),
            "GET /x HTTP/1.1\r\nHost: localhost:15000\r\nUser-Agent: pintle\r\nConnection: close\r\n\r\n"
        );
        let post = |body| {
            head(Ask {
                method: "POST",
                body,
            })
        };
        assert!(post(None).ends_with("Content-Length: 0\r\n\r\n"));
        assert!(post(Some("é")).ends_with("Content-Length: 2\r\n\r\né"));
    }

    #[test]
    fn a_spent_allowance_waits_for_nothing() {
        let mut poll = Poll::new().unwrap();
        let late = Allowance::new(Duration::ZERO).wait(&mut poll);
        assert!(matches!(late, Err(Failure::Late(_))));
    }

    #[test]
    fn causes_are_one_line_in_plain_words() {
        let table = [
            (
                Failure::Late(Duration::from_secs(60)),
                "no answer within 60 s",
            ),
            (
                Failure::Late(Duration::from_millis(1500)),
                "no answer within 1500 ms",
            ),
            (Failure::Status(503, String::new()), "status 503"),
            (
                Failure::Status(503, "draining".to_owned()),
                "status 503: draining",
            ),
        ];
        for (failure, expected) in table {
            assert_eq!(failure.to_string(), expected);
        }
    }
}
