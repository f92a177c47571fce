//! The protocol of a port, and its detection from names and numbers.

use std::fmt;

/// The protocol of a port. Detection looks at the words that people wrote, never at traffic; a port without any is `Auto`, and
/// there the proxy looks at the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Http,
    Http2,
    Https,
    Grpc,
    GrpcWeb,
    Mongo,
    MySql,
    Redis,
    Tcp,
    Tls,
    /// Sources drop ports of it: no proxy here carries it.
    Udp,
    /// Undeclared.
    Auto,
}

/// A word that is no protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProtocol(pub String);

impl fmt::Display for UnknownProtocol {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "unknown protocol {:?}", self.0)
    }
}

impl std::error::Error for UnknownProtocol {}

const PROTOCOL_NAMES: [(&str, Protocol); 11] = [
    ("HTTP", Protocol::Http),
    ("HTTP2", Protocol::Http2),
    ("HTTPS", Protocol::Https),
    ("GRPC", Protocol::Grpc),
    ("GRPC-WEB", Protocol::GrpcWeb),
    ("MONGO", Protocol::Mongo),
    ("MYSQL", Protocol::MySql),
    ("REDIS", Protocol::Redis),
    ("TCP", Protocol::Tcp),
    ("TLS", Protocol::Tls),
    ("UDP", Protocol::Udp),
];

/// Requests in the form for a forward proxy: HTTP for routing.
const HTTP_PROXY: &str = "HTTP_PROXY";

impl std::str::FromStr for Protocol {
    type Err = UnknownProtocol;

    /// Parses the name of a protocol, in any case.
    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        PROTOCOL_NAMES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, protocol)| *protocol)
            .ok_or_else(|| UnknownProtocol(name.to_owned()))
    }
}

impl Protocol {
    /// The protocol of a port of a Kubernetes Service, from its transport (`protocol`, absent is TCP), its `appProtocol`, its
    /// name and its number. `None`: proxies do not serve the protocol, and the port is dropped.
    #[must_use]
    pub fn of_kubernetes(
        transport: &str,
        app_protocol: Option<&str>,
        name: &str,
        number: u16,
    ) -> Option<Self> {
        if !(transport.is_empty() || transport.eq_ignore_ascii_case("TCP")) {
            return None;
        }
        let protocol = app_protocol
            // An appProtocol that names no protocol says nothing: the port's name counts.
            .and_then(Self::of_app_protocol)
            .or_else(|| Self::of_port_name(name))
            .unwrap_or_else(|| Self::of_number(number));
        (protocol != Self::Udp).then_some(protocol)
    }

    /// The protocol of a port of a ServiceEntry. `None`: UDP; the port is dropped.
    #[must_use]
    pub fn of_service_entry(name: &str) -> Option<Self> {
        let protocol = match name.eq_ignore_ascii_case(HTTP_PROXY) {
            true => Self::Http,
            false => name.parse().unwrap_or(Self::Auto),
        };
        (protocol != Self::Udp).then_some(protocol)
    }

    fn of_app_protocol(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "kubernetes.io/h2c" => Some(Self::Http2),
            "kubernetes.io/ws" => Some(Self::Http),
            "kubernetes.io/wss" => Some(Self::Https),
            name => name.parse().ok(),
        }
    }

    /// The word up to the first dash; but `grpc-web` has one itself.
    fn of_port_name(name: &str) -> Option<Self> {
        const DASHED: &str = "grpc-web";
        let begins_so = name
            .get(..DASHED.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(DASHED));
        if begins_so {
            return Some(Self::GrpcWeb);
        }
        name.split('-').next().and_then(|word| word.parse().ok())
    }

    /// Well-known ports on which Istio never detects the protocol: where the server speaks first, waiting for the client's
    /// bytes would cost every connection a timeout.
    const fn of_number(number: u16) -> Self {
        match number {
            25 | 53 | 3306 | 27017 => Self::Tcp,
            _ => Self::Auto,
        }
    }

    /// Routed by requests.
    #[must_use]
    pub const fn is_http(self) -> bool {
        match self {
            Self::Http | Self::Http2 | Self::Grpc | Self::GrpcWeb => true,
            Self::Https
            | Self::Mongo
            | Self::MySql
            | Self::Redis
            | Self::Tcp
            | Self::Tls
            | Self::Udp
            | Self::Auto => false,
        }
    }

    /// Returns true if the server speaks HTTP/2.
    #[must_use]
    pub const fn is_http2(self) -> bool {
        self.is_http() && !matches!(self, Self::Http)
    }

    /// The client brings TLS, so that its server name can be matched.
    #[must_use]
    pub const fn has_server_name(self) -> bool {
        matches!(self, Self::Https | Self::Tls)
    }

    #[must_use]
    pub const fn is_auto(self) -> bool {
        matches!(self, Self::Auto)
    }

    /// The word; undeclared has none.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        PROTOCOL_NAMES
            .iter()
            .find(|(_, protocol)| *protocol == self)
            .map_or("", |(name, _)| name)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names as people give them, with what each is.
    const NAMES: [(&str, Protocol); 19] = [
        ("", Protocol::Auto),
        ("http", Protocol::Http),
        ("http-web", Protocol::Http),
        ("HTTP-x", Protocol::Http),
        ("httptest", Protocol::Auto),
        ("http-test", Protocol::Http),
        ("http2", Protocol::Http2),
        ("HTTP2-test", Protocol::Http2),
        ("http2test", Protocol::Auto),
        ("https", Protocol::Https),
        ("https-admin", Protocol::Https),
        ("grpc", Protocol::Grpc),
        ("grpc-web", Protocol::GrpcWeb),
        ("grpc-web-api", Protocol::GrpcWeb),
        ("grpc-test", Protocol::Grpc),
        ("mongo-0", Protocol::Mongo),
        ("redis", Protocol::Redis),
        ("tls-db", Protocol::Tls),
        ("web", Protocol::Auto),
    ];

    #[test]
    fn the_name_of_a_port_says_what_it_speaks() {
        for (name, protocol) in NAMES {
            assert_eq!(
                Protocol::of_kubernetes("TCP", None, name, 8080),
                Some(protocol),
                "{name}"
            );
            // Where the API server left the default out.
            assert_eq!(
                Protocol::of_kubernetes("", None, name, 8080),
                Some(protocol),
                "{name}"
            );
        }
    }

    #[test]
    fn a_port_that_no_proxy_carries_is_dropped() {
        assert_eq!(
            Protocol::of_kubernetes("UDP", Some("http"), "http", 80),
            None
        );
        assert_eq!(Protocol::of_kubernetes("SCTP", None, "tcp", 80), None);
        assert_eq!(Protocol::of_kubernetes("TCP", None, "udp-dns", 53), None);
        assert_eq!(Protocol::of_service_entry("udp"), None);
    }

    #[test]
    fn app_protocol_wins_over_the_name_and_the_name_over_the_number() {
        for (app, name, number, protocol) in [
            (Some("grpc"), "http", 80, Protocol::Grpc),
            (Some("GRPC-Web"), "http", 80, Protocol::GrpcWeb),
            (Some("kubernetes.io/h2c"), "tcp", 80, Protocol::Http2),
            (Some("kubernetes.io/ws"), "tcp", 80, Protocol::Http),
            (Some("kubernetes.io/wss"), "tcp", 80, Protocol::Https),
            (Some("example.com/own"), "mysql-0", 80, Protocol::MySql),
            (Some("example.com/own"), "own", 80, Protocol::Auto),
            (None, "", 25, Protocol::Tcp),
            (None, "dns", 53, Protocol::Tcp),
            (None, "db", 3306, Protocol::Tcp),
            (None, "db", 27017, Protocol::Tcp),
            (None, "http", 3306, Protocol::Http),
        ] {
            assert_eq!(
                Protocol::of_kubernetes("TCP", app, name, number),
                Some(protocol),
                "{app:?} {name} {number}"
            );
        }
    }

    #[test]
    fn a_service_entry_says_it_by_a_word_or_not_at_all() {
        for (word, protocol) in [
            ("http", Protocol::Http),
            ("HTTP_PROXY", Protocol::Http),
            ("http_proxy", Protocol::Http),
            ("GRPC-WEB", Protocol::GrpcWeb),
            ("grpc-web", Protocol::GrpcWeb),
            ("TCP", Protocol::Tcp),
            ("", Protocol::Auto),
            ("http-web", Protocol::Auto),
            ("quic", Protocol::Auto),
        ] {
            assert_eq!(Protocol::of_service_entry(word), Some(protocol), "{word}");
        }
    }

    #[test]
    fn every_protocol_is_of_one_kind() {
        for (word, protocol) in PROTOCOL_NAMES {
            assert_eq!(protocol.as_str(), word);
            assert!(!protocol.is_http2() || protocol.is_http(), "{word}");
        }
        assert!(!Protocol::Auto.is_http());
        assert!(Protocol::GrpcWeb.is_http2() && !Protocol::Http.is_http2());
        assert!(Protocol::Tls.has_server_name() && !Protocol::Https.is_http());
    }
}
