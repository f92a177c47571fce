//! One place where a port of a service is served.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::Labels;

/// The address that an endpoint listens at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndpointAddress {
    Ip(IpAddr),
    /// To be resolved by the proxy.
    Name(Arc<str>),
    /// The path of a socket of the machine.
    Pipe(Arc<str>),
}

impl EndpointAddress {
    /// `unix:///path`, an address, else a name; empty text is no address.
    #[must_use]
    pub fn read(text: &str) -> Self {
        match text.strip_prefix("unix://") {
            Some(path) => Self::Pipe(path.into()),
            None => text
                .parse()
                .map_or_else(|_| Self::Name(text.into()), Self::Ip),
        }
    }

    /// Returns true if the endpoint has no address: clients reach it only by the gateways of its network.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Name(name) if name.is_empty())
    }

    #[must_use]
    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Name(_) | Self::Pipe(_) => None,
        }
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(to),
            Self::Name(name) => name.fmt(to),
            Self::Pipe(path) => write!(to, "unix://{path}"),
        }
    }
}

/// The location of a workload, `region/zone/sub-zone`; the last parts may be missing. Empty: unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locality(Arc<str>);

impl Locality {
    #[must_use]
    pub fn new(region: &str, zone: &str, sub_zone: &str) -> Self {
        Self::from(format!("{region}/{zone}/{sub_zone}").as_str())
    }

    /// Reads the label of a pod, in which dots stand for slashes: `region.zone.sub-zone`.
    #[must_use]
    pub fn of_label(text: &str) -> Self {
        if text.contains('/') {
            return text.into();
        }
        text.replace('.', "/").as_str().into()
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn region(&self) -> &str {
        self.part(0)
    }

    #[must_use]
    pub fn zone(&self) -> &str {
        self.part(1)
    }

    /// All behind the second slash.
    #[must_use]
    pub fn sub_zone(&self) -> &str {
        self.part(2)
    }

    fn part(&self, at: usize) -> &str {
        self.0.splitn(3, '/').nth(at).unwrap_or("")
    }
}

impl Default for Locality {
    fn default() -> Self {
        Self("".into())
    }
}

impl From<&str> for Locality {
    /// One text for one place: without slashes at the end.
    fn from(text: &str) -> Self {
        Self(text.trim_end_matches('/').into())
    }
}

impl fmt::Display for Locality {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// The mutual TLS that an endpoint takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsMode {
    #[default]
    Disabled,
    Istio,
}

impl TlsMode {
    /// The label of pods that says it.
    pub const LABEL: &'static str = "security.istio.io/tlsMode";

    #[must_use]
    pub fn of_labels(labels: &Labels) -> Self {
        match labels.get(Self::LABEL) {
            Some(mode) if &**mode == "istio" => Self::Istio,
            Some(_) | None => Self::Disabled,
        }
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Istio => "istio",
        }
    }
}

/// The readiness of an endpoint, which decides whether requests go to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    #[default]
    Ready,
    /// Serving while it ends: used only while the same service and port has no ready endpoint at all.
    Terminating,
    /// Never used; but the workload is still one of the service.
    NotReady,
}

impl Health {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "HEALTHY",
            Self::Terminating => "DRAINING",
            Self::NotReady => "UNHEALTHY",
        }
    }
}

/// One place where a port of a service is served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub address: EndpointAddress,
    /// The port that it listens at; 0 for a pipe.
    pub port: u16,
    /// The name of the service's port.
    pub port_name: Arc<str>,
    pub labels: Arc<Labels>,
    pub locality: Locality,
    /// As its source says it: its own field, the label of its pod or namespace. The mesh's networks add theirs later, by its
    /// address or its cluster.
    pub network: Option<Arc<str>>,
    /// Its identity, `spiffe://cluster.local/ns/demo/sa/b`.
    pub account: Option<Arc<str>>,
    pub tls: TlsMode,
    pub health: Health,
    /// Its share of the requests, against that of others; 0: not used.
    pub weight: u32,
    /// `NAMESPACE/NAME` of its pod, if that is known.
    pub pod: Option<Arc<str>>,
    /// `NAMESPACE/NAME` of the pod that its source names, while nothing is known of that pod.
    pub unknown_pod: Option<Arc<str>>,
    /// The name of the pod's owner, such as its Deployment.
    pub workload: Option<Arc<str>>,
}

impl Endpoint {
    /// Creates an endpoint without further properties: ready, of weight 1.
    #[must_use]
    pub fn new(address: EndpointAddress, port: u16, port_name: &str) -> Self {
        Self {
            address,
            port,
            port_name: port_name.into(),
            labels: Arc::default(),
            locality: Locality::default(),
            network: None,
            account: None,
            tls: TlsMode::Disabled,
            health: Health::Ready,
            weight: 1,
            pod: None,
            unknown_pod: None,
            workload: None,
        }
    }

    /// `NAMESPACE/NAME` of its pod, whether or not more is known of that pod.
    #[must_use]
    pub fn named_pod(&self) -> Option<&Arc<str>> {
        self.pod.as_ref().or(self.unknown_pod.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locality_has_up_to_three_parts() {
        for (text, parts) in [
            ("", ["", "", ""]),
            ("eu", ["eu", "", ""]),
            ("eu/west", ["eu", "west", ""]),
            ("eu/west/rack1", ["eu", "west", "rack1"]),
            ("eu//rack1", ["eu", "", "rack1"]),
            ("eu/west/rack1/u3", ["eu", "west", "rack1/u3"]),
        ] {
            let locality = Locality::from(text);
            assert_eq!(
                [locality.region(), locality.zone(), locality.sub_zone()],
                parts,
                "{text}"
            );
        }
        assert_eq!(Locality::new("eu", "", ""), Locality::from("eu"));
        assert_eq!(Locality::of_label("eu.west.rack1"), "eu/west/rack1".into());
        assert_eq!(Locality::of_label("eu/west.1"), "eu/west.1".into());
        assert!(Locality::new("", "", "").is_unknown());
    }

    #[test]
    fn an_address_is_an_ip_a_pipe_or_a_name() {
        for (text, address) in [
            ("10.0.0.1", EndpointAddress::Ip([10, 0, 0, 1].into())),
            ("unix:///run/a", EndpointAddress::Pipe("/run/a".into())),
            ("a.example", EndpointAddress::Name("a.example".into())),
        ] {
            assert_eq!(EndpointAddress::read(text), address);
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn a_label_says_whether_a_pod_takes_mutual_tls() {
        let labelled = |value: &str| Labels::from([(TlsMode::LABEL.into(), value.into())]);
        assert_eq!(TlsMode::of_labels(&labelled("istio")), TlsMode::Istio);
        assert_eq!(TlsMode::of_labels(&labelled("disabled")), TlsMode::Disabled);
        assert_eq!(TlsMode::of_labels(&Labels::new()), TlsMode::Disabled);
    }
}
