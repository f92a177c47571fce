//! A crowd of clients, for tests of who gets what; and the listening socket.

#![forbid(unsafe_code)]

use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::time::Duration;

use super::*;
use crate::counters::Counters;
use crate::status::stories::clock;
use crate::status::tests::settings;

/// A server whose connections are put into their places by a test.
pub(super) struct Crowd {
    pub(super) server: StatusServer,
    listener: TcpListener,
    pub(super) began: Instant,
    count: u32,
}

impl Crowd {
    pub(super) fn new() -> Self {
        let mut server = StatusServer::open(None, settings(), (1, 2)).unwrap();
        server.settings.node = Some("10.0.0.1".parse().unwrap());
        Self {
            server,
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(),
            began: clock(),
            count: 0,
        }
    }

    /// The newest of all.
    pub(super) fn connection(
        &mut self,
        from: &str,
        page: bool,
        phase: ConnectionPhase,
    ) -> Connection {
        let to = self.listener.local_addr().unwrap();
        let stream = TcpStream::connect(to).unwrap();
        drop(self.listener.accept().unwrap());
        stream.set_nonblocking(true).unwrap();
        self.count += 1;
        let opened = self.began + Duration::from_millis(self.count.into());
        let stream = mio::net::TcpStream::from_std(stream);
        let times = (opened, opened);
        let mut connection = Connection::new(stream, Token(9), from.parse().unwrap(), times);
        connection.kept = self.server.is_kept(connection.from);
        connection.page = page;
        connection.phase = phase;
        connection
    }

    pub(super) fn learn(&mut self, from: &str) {
        let mut probe = self.connection(from, false, ConnectionPhase::Head);
        self.server.learn_node(&mut probe, self.began);
    }

    pub(super) fn add(&mut self, from: &str, page: bool, phase: ConnectionPhase) {
        let connection = self.connection(from, page, phase);
        self.server.places.push(Some(Box::new(connection)));
    }

    /// Whether a request of that kind is let in, a second after the last; and how many had to go for it, of whom.
    pub(super) fn asks(
        &mut self,
        from: &str,
        page: bool,
        topic: Option<Topic>,
    ) -> (bool, Vec<String>) {
        let newcomer = self.connection(from, page, ConnectionPhase::Head);
        let poll = Poll::new().unwrap();
        let mut turn = Turn {
            registry: poll.registry(),
            now: newcomer.opened,
            counters: &mut Counters::default(),
        };
        let before = self.addresses();
        let room = self.server.evict_for(&mut turn, &newcomer, topic);
        let mut after = self.addresses().into_iter();
        let mut next = after.next();
        let gone = before.into_iter().filter(|old| {
            let same = next.as_ref() == Some(old);
            if same {
                next = after.next();
            }
            !same
        });
        (room, gone.map(|(from, _)| from).collect())
    }

    fn addresses(&self) -> Vec<(String, usize)> {
        let all = self.server.connections();
        all.map(|(place, connection)| (connection.from.to_string(), place))
            .collect()
    }
}

/// Its holder may have it for IPv6 alone: half of a status port would be served.
#[test]
fn a_port_that_is_taken_is_no_reason_for_the_other_family() {
    let Ok(other) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
        // No IPv6: nobody can have it.
        return;
    };
    let port = other.local_addr().unwrap().port();
    let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    assert_eq!(listen(all).unwrap_err().kind(), io::ErrorKind::AddrInUse);
}

/// No host of these tests lacks IPv6: the kernel's words for that are EAFNOSUPPORT and EADDRNOTAVAIL.
#[test]
fn only_all_addresses_of_a_host_without_ipv6_are_those_of_ipv4() {
    for (address, number, expected) in [
        ("[::]:15020", 97, true),
        ("[::]:15020", 99, true),
        ("[::]:15020", 98, false),
        ("[::1]:15020", 99, false),
        ("0.0.0.0:15020", 99, false),
    ] {
        let error = io::Error::from_raw_os_error(number);
        let lacks = lacks_ipv6(address.parse().unwrap(), &error);
        assert_eq!(lacks, expected, "{address}: {error}");
    }
}
