//! One request and its answer on a connection of its own: the commands of a person or a script, not the agent.
//!
//! Bytes are handed on as they arrive, so an answer of any length passes within its time. The time that this command's own
//! reader takes (a pager) does not count.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use crate::clock;
use crate::http::{Exchange, request_head};
use crate::supervisor::Seconds;
use crate::url::{Host, Url};

/// Bytes read at once. Chosen: an answer may have a hundred megabytes.
const READ_BYTES: usize = 32 * 1024;

/// Why there is no answer, or not the one that was wanted.
///
/// A cause is a text from the beginning: nobody here decides by it, and a text is lighter than what it is made of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection: nobody has had the request.
    Unheard(String),
    /// The allowance, which is spent.
    Late(Duration),
    /// The reader of stdout has gone, as `head` goes when it has its lines.
    ReaderGone,
    /// This command's output takes nothing.
    Output(String),
    Other(String),
}

impl Failure {
    pub(super) fn other(why: &str) -> Self {
        Self::Other(why.to_owned())
    }

    pub(super) fn malformed() -> Self {
        Self::other("the answer is not HTTP")
    }

    fn io(error: &io::Error) -> Self {
        let why = error.to_string();
        if UNHEARD.contains(&error.kind()) {
            Self::Unheard(why)
        } else {
            Self::Other(why)
        }
    }

    /// The cause, in words.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Unheard(why) | Self::Output(why) | Self::Other(why) => why.clone(),
            Self::Late(whole) => ["no answer within ", &Seconds(*whole).to_string()].concat(),
            Self::ReaderGone => String::new(),
        }
    }
}

/// Ends of a connection that has never been one.
const UNHEARD: [ErrorKind; 4] = [
    ErrorKind::ConnectionRefused,
    ErrorKind::HostUnreachable,
    ErrorKind::NetworkUnreachable,
    ErrorKind::AddrNotAvailable,
];

/// The time that a server may take, in all: to answer, and to come to the end of it.
#[derive(Debug)]
pub(crate) struct Allowance {
    whole: Duration,
    began: Instant,
    /// Not the server's doing.
    excused: Cell<Duration>,
}

impl Allowance {
    #[must_use]
    pub(crate) fn new(whole: Duration) -> Self {
        Self {
            whole,
            began: clock::read(),
            excused: Cell::new(Duration::ZERO),
        }
    }

    /// Does what costs nothing of it.
    pub(super) fn excuse<T>(&self, action: impl FnOnce() -> T) -> T {
        let began = clock::read();
        let result = action();
        let spent = clock::read().saturating_duration_since(began);
        self.excused.set(self.excused.get().saturating_add(spent));
        result
    }

    /// # Errors
    /// Nothing is left.
    fn left(&self) -> Result<Duration, Failure> {
        let passed = clock::read().saturating_duration_since(self.began);
        let spent = passed.saturating_sub(self.excused.get());
        let left = self.whole.checked_sub(spent);
        left.filter(|left| !left.is_zero())
            .ok_or(Failure::Late(self.whole))
    }

    /// Waits until something can be read or sent, or the allowance is spent.
    fn wait(&self, poll: &mut Poll) -> Result<(), Failure> {
        match poll.poll(&mut Events::with_capacity(1), Some(self.left()?)) {
            // Stopped and continued: no byte is lost.
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(Failure::io(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// A method, and a body where there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) body: Option<&'a str>,
}

impl HttpRequest<'static> {
    pub(crate) const GET: Self = Self {
        method: "GET",
        body: None,
    };
    pub(crate) const POST: Self = Self {
        method: "POST",
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
    request: HttpRequest<'_>,
    allowance: &Allowance,
    take: Take<'_>,
) -> Result<(), Failure> {
    let mut poll = Poll::new().map_err(|error| Failure::io(&error))?;
    let (address, other) = match url.host {
        Host::Loopback => (Ipv4Addr::LOCALHOST.into(), Some(Ipv6Addr::LOCALHOST.into())),
        Host::Address(address) => (address, None),
    };
    let mut to = |address: IpAddr| {
        let address = SocketAddr::new(address, url.port);
        converse(&mut poll, address, render(url, request), allowance, take)
    };
    let first = to(address);
    match (&first, other) {
        (Err(Failure::Unheard(_)), Some(other)) => match to(other) {
            Err(Failure::Unheard(_)) => first,
            second => second,
        },
        _ => first,
    }
}

fn converse(
    poll: &mut Poll,
    address: SocketAddr,
    request: Vec<u8>,
    allowance: &Allowance,
    take: Take<'_>,
) -> Result<(), Failure> {
    let mut exchange = Exchange::connect(poll.registry(), Token(0), address, request)
        .map_err(|error| Failure::io(&error))?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match exchange.read(&mut buffer) {
            Err(error) => return Err(Failure::io(&error)),
            Ok(None) => allowance.wait(poll)?,
            Ok(Some(read)) => {
                if take(buffer.get(..read).unwrap_or_default())? {
                    return Ok(());
                }
                if read == 0 {
                    return Err(Failure::other("the connection ended before the answer did"));
                }
                // A server that never pauses is never waited for.
                allowance.left()?;
            }
        }
    }
}

fn render(url: &Url, request: HttpRequest<'_>) -> Vec<u8> {
    let host = [&url.host.to_string(), ":", &*url.port.to_string()].concat();
    // Servers want to know that there is no body, where there could be one.
    let body = request.body.unwrap_or_default();
    let number = body.len().to_string();
    let length = if request.body.is_some() || !matches!(request.method, "GET" | "HEAD") {
        ["Content-Length: ", &number, "\r\n"]
    } else {
        [""; 3]
    };
    let headers = ["User-Agent: pintle\r\n", &length.concat()].concat();
    let mut bytes = request_head(request.method, &[&url.path], &host, headers.as_bytes());
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(request: HttpRequest<'_>) -> String {
        String::from_utf8(render(&Url::here(15000, "/x".to_owned()), request)).unwrap()
    }

    #[test]
    fn a_request_says_its_length_where_there_could_be_a_body() {
        assert_eq!(
            head(HttpRequest::GET),
            "GET /x HTTP/1.1\r\nHost: localhost:15000\r\nUser-Agent: pintle\r\nConnection: close\r\n\r\n"
        );
        let post = |body| {
            head(HttpRequest {
                method: "POST",
                body,
            })
        };
        assert!(post(None).ends_with("Content-Length: 0\r\nConnection: close\r\n\r\n"));
        assert!(post(Some("é")).ends_with("Content-Length: 2\r\nConnection: close\r\n\r\né"));
    }

    #[test]
    fn a_spent_allowance_waits_for_nothing() {
        let mut poll = Poll::new().unwrap();
        let late = Allowance::new(Duration::ZERO).wait(&mut poll);
        assert!(matches!(late, Err(Failure::Late(_))));
    }

    #[test]
    fn causes_are_plain_words() {
        let why = |failure: Failure| failure.why();
        assert_eq!(
            why(Failure::Late(Duration::from_secs(60))),
            "no answer within 60s"
        );
        assert_eq!(
            why(Failure::Late(Duration::from_millis(1500))),
            "no answer within 1.5s"
        );
        let refused = Failure::io(&io::Error::from_raw_os_error(111));
        assert_eq!(
            refused,
            Failure::Unheard("Connection refused (os error 111)".to_owned())
        );
        let reset = Failure::io(&io::Error::from_raw_os_error(104));
        assert_eq!(
            reset,
            Failure::Other("Connection reset by peer (os error 104)".to_owned())
        );
    }
}
