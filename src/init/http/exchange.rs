//! One request on its way to a server and the bytes that come back, non-blocking.

#![forbid(unsafe_code)]

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use super::Malformed;

/// Bytes read at once. Chosen: more than a probe and its answers need, and little of the stack.
pub(crate) const READ_BYTES: usize = 2 * 1024;
/// Reads from one peer in a turn, 16 KiB in all. Chosen: seventy peers that send without end make a turn of milliseconds.
const READS: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Exchange {
    link: Link,
    /// Not sent yet.
    unsent: Vec<u8>,
}

#[derive(Debug)]
enum Link {
    Tcp(TcpStream),
    /// To a helper program.
    Unix(UnixStream),
}

impl Exchange {
    /// Connects and sends what can be sent at once: at loopback that is all of it, which saves a turn.
    ///
    /// # Errors
    /// No connection, or no descriptor left.
    pub(crate) fn connect(
        registry: &Registry,
        token: Token,
        address: SocketAddr,
        request: Vec<u8>,
    ) -> io::Result<Self> {
        let link = Link::Tcp(TcpStream::connect(address)?);
        Self::begin(registry, token, link, request)
    }

    /// The same from an address of this machine's.
    ///
    /// # Errors
    /// As for `connect`, and there is no such address.
    pub(crate) fn connect_from(
        registry: &Registry,
        token: Token,
        (source, address): (IpAddr, SocketAddr),
        request: Vec<u8>,
    ) -> io::Result<Self> {
        let stream = sys::connect_from(source, address)?;
        let link = Link::Tcp(TcpStream::from_std(stream));
        Self::begin(registry, token, link, request)
    }

    /// The same with somebody at the other end of a pair of sockets.
    ///
    /// # Errors
    /// As for `connect`.
    pub(crate) fn with(
        registry: &Registry,
        token: Token,
        stream: UnixStream,
        request: Vec<u8>,
    ) -> io::Result<Self> {
        Self::begin(registry, token, Link::Unix(stream), request)
    }

    fn begin(registry: &Registry, token: Token, link: Link, request: Vec<u8>) -> io::Result<Self> {
        let connect_only = request.is_empty();
        let mut this = Self {
            link,
            unsent: request,
        };
        // What is out needs no turn of its own to hear that more could be sent.
        let interest = if this.send()? && !connect_only {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        match &mut this.link {
            Link::Tcp(stream) => registry.register(stream, token, interest)?,
            Link::Unix(stream) => registry.register(stream, token, interest)?,
        }
        Ok(this)
    }

    /// Sends what can be sent. Whether all is out.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) fn send(&mut self) -> io::Result<bool> {
        while !self.unsent.is_empty() {
            let written = match &mut self.link {
                Link::Tcp(stream) => stream.write(&self.unsent),
                Link::Unix(stream) => stream.write(&self.unsent),
            };
            match written {
                Ok(written) => {
                    self.unsent.drain(..written.min(self.unsent.len()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The connection is not there yet: the next readiness says.
                Err(error) => return quiet(error).map(|()| false),
            }
        }
        Ok(true)
    }

    /// Sends what is left, then reads once; `None`: nothing is there yet, 0: the other side has closed.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if !self.send()? {
            return Ok(None);
        }
        loop {
            let read = match &mut self.link {
                Link::Tcp(stream) => stream.read(buffer),
                Link::Unix(stream) => stream.read(buffer),
            };
            match read {
                Ok(read) => return Ok(Some(read)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return quiet(error).map(|()| None),
            }
        }
    }

    /// Hands on what is there, nothing once the other side has closed, until `take` says that it was all. What is more
    /// than a turn's share is for the next turn: epoll is made to tell of it again.
    ///
    /// # Errors
    /// The connection failed, or ended before it was all; `take` refused something.
    pub(crate) fn receive(
        &mut self,
        registry: &Registry,
        token: Token,
        take: &mut dyn FnMut(&[u8]) -> Result<bool, Malformed>,
    ) -> io::Result<bool> {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS {
            let Some(read) = self.read(&mut buffer)? else {
                return Ok(false);
            };
            let bytes = buffer.get(..read).unwrap_or_default();
            if take(bytes).map_err(|Malformed| io::ErrorKind::InvalidData)? {
                return Ok(true);
            }
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        // All has been sent.
        match &mut self.link {
            Link::Tcp(stream) => registry.reregister(stream, token, Interest::READABLE)?,
            Link::Unix(stream) => registry.reregister(stream, token, Interest::READABLE)?,
        }
        Ok(false)
    }

    /// Whether the connection is there.
    ///
    /// # Errors
    /// It failed.
    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        let Link::Tcp(stream) = &self.link else {
            return Ok(true);
        };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) => quiet(error).map(|()| false),
        }
    }
}

/// Errors that only mean "later".
fn quiet(error: io::Error) -> io::Result<()> {
    let later = [io::ErrorKind::WouldBlock, io::ErrorKind::NotConnected];
    if later.contains(&error.kind()) {
        Ok(())
    } else {
        Err(error)
    }
}

/// The head of every request that goes out, by parts; `headers` are lines with their ends. One request a connection.
#[must_use]
pub(crate) fn request_head(method: &str, path: &[&str], host: &str, headers: &[u8]) -> Vec<u8> {
    let path = path.concat();
    let line = [method, " ", &path, " HTTP/1.1\r\nHost: ", host, "\r\n"];
    let mut head = line.concat().into_bytes();
    head.extend_from_slice(headers);
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    head
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;

    /// epoll tells of new bytes once: what a turn leaves has to be told of again.
    #[test]
    fn bytes_that_a_turn_leaves_are_read_in_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mut poll, token) = (Poll::new().unwrap(), Token(7));
        let mut exchange =
            Exchange::connect(poll.registry(), token, address, b"x".to_vec()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let all = 5 * READS * READ_BYTES + 1;
        peer.write_all(&vec![b'x'; all]).unwrap();
        let mut events = Events::with_capacity(4);
        let (mut seen, mut turns) = (0, 0);
        while seen < all {
            poll.poll(&mut events, Some(Duration::from_secs(20)))
                .unwrap();
            assert!(!events.is_empty(), "nobody tells of the rest after {seen}");
            let before = seen;
            let received = exchange.receive(poll.registry(), token, &mut |bytes| {
                seen += bytes.len();
                Ok(false)
            });
            assert!(!received.unwrap());
            assert!(seen - before <= READS * READ_BYTES);
            turns += 1;
        }
        assert!(turns > 5);
    }
}
