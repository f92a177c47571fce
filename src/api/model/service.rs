//! A service: the name that clients use, its ports and its source.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::{Address, ClusterId, Labels, Protocol};

/// The identity of a service: its full name and its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// The full name, `b.demo.svc.cluster.local`; may begin with `*.`.
    pub hostname: Arc<str>,
    pub namespace: Arc<str>,
}

impl ServiceKey {
    #[must_use]
    pub fn new(hostname: &str, namespace: &str) -> Self {
        Self {
            hostname: hostname.into(),
            namespace: namespace.into(),
        }
    }
}

/// The source of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Registry {
    Kubernetes,
    /// ServiceEntries.
    External,
    Consul,
    /// Services that requests put into memory.
    Memory,
}

impl Registry {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kubernetes => "Kubernetes",
            Self::External => "External",
            Self::Consul => "Consul",
            Self::Memory => "Mock",
        }
    }
}

/// The way in which a client finds the address of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resolution {
    /// The proxy chooses among the endpoints.
    Static,
    /// The proxy resolves the endpoints' names and chooses among all answers.
    Dns,
    /// The proxy resolves, and takes one answer for each new connection.
    DnsRoundRobin,
    /// The address that the client connected to.
    None,
}

impl Resolution {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Static => "STATIC",
            Self::Dns => "DNS",
            Self::DnsRoundRobin => "DNS_ROUND_ROBIN",
            Self::None => "NONE",
        }
    }

    #[must_use]
    pub const fn is_dns(self) -> bool {
        matches!(self, Self::Dns | Self::DnsRoundRobin)
    }
}

/// The port that a workload listens at for a port of its service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    Number(u16),
    /// The name of a port of the workload.
    Name(Arc<str>),
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Endpoints belong to a port by this name; may be empty.
    pub name: Arc<str>,
    /// The number that clients use.
    pub number: u16,
    pub protocol: Protocol,
    /// The workload's port if no endpoint says it: the number again if the source says nothing.
    pub target: Target,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub key: ServiceKey,
    pub registry: Registry,
    /// The ports, in the source's order: each number and each name once, without UDP.
    pub ports: Vec<Port>,
    /// Each cluster's own, in the source's order, none twice.
    pub addresses: BTreeMap<ClusterId, Vec<Address>>,
    /// The cluster whose attributes these are, and whose addresses a proxy of another cluster sees.
    pub cluster: ClusterId,
    pub resolution: Resolution,
    /// Not a part of the mesh: no mutual TLS to it.
    pub mesh_external: bool,
    /// The workloads that are it, of its namespace; empty: none by labels.
    pub selector: Labels,
    /// Seconds since 1970.
    pub created: Option<i64>,
    /// Identities, such as `spiffe://cluster.local/ns/demo/sa/b`, that the source names for the service itself.
    pub accounts: BTreeSet<Arc<str>>,
    /// Endpoints near the client come first, in spite of the mesh configuration.
    pub prefers_close: bool,
    /// Namespaces that its source exports it to, as they are written: `.` is its own, `*` all, `~` none. Empty: the default.
    pub exported_to: Vec<Arc<str>>,
    /// Addresses of the load balancers of each cluster that answer for it: used as gateways between networks only.
    pub balancers: BTreeMap<ClusterId, Vec<IpAddr>>,
}

impl Service {
    /// A service of Kubernetes without an address: clients get the endpoints' addresses from DNS.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.registry == Registry::Kubernetes && self.resolution == Resolution::None
    }

    /// Its name stands for many.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.key.hostname.starts_with('*')
    }

    /// Its addresses as a proxy of that cluster sees them: the own cluster's, else those of the service's first.
    #[must_use]
    pub fn addresses_in(&self, cluster: &str) -> &[Address] {
        self.addresses_for(cluster)
            .map_or(&[], |(_, addresses)| addresses.as_slice())
    }

    /// The cluster whose addresses those are; `None`: it has none anywhere.
    #[must_use]
    pub fn address_cluster_for(&self, cluster: &str) -> Option<&ClusterId> {
        self.addresses_for(cluster).map(|(cluster, _)| cluster)
    }

    fn addresses_for(&self, cluster: &str) -> Option<(&ClusterId, &Vec<Address>)> {
        self.addresses
            .get_key_value(cluster)
            .or_else(|| self.addresses.get_key_value(&self.cluster))
            .or_else(|| self.addresses.first_key_value())
    }

    /// The port of this number.
    #[must_use]
    pub fn port(&self, number: u16) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// Orders two services of which one can have a name, a domain or an address: Services of Kubernetes first, because the author
    /// of a ServiceEntry chooses its host, its addresses and, in a file, its age; then [`Self::older`]. In discovery.md §3 age
    /// comes first.
    #[must_use]
    pub fn precedence(&self, other: &Self) -> Ordering {
        let rank = |one: &Self| one.registry != Registry::Kubernetes;
        let by_rank = rank(self).cmp(&rank(other));
        by_rank.then_with(|| self.older(other))
    }

    /// Orders two services by age, then by hostname, then by namespace. One without a time is oldest.
    #[must_use]
    pub fn older(&self, other: &Self) -> Ordering {
        let by_age = self.created.cmp(&other.created);
        by_age.then_with(|| self.key.cmp(&other.key))
    }

    /// Returns the reason for this order, as words behind the service's name.
    #[must_use]
    pub fn why_first(&self, other: &Self) -> &'static str {
        if self.registry == Registry::Kubernetes && other.registry != Registry::Kubernetes {
            return "is of Kubernetes";
        }
        "is older"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(hostname: &str, namespace: &str, created: Option<i64>) -> Service {
        Service {
            key: ServiceKey::new(hostname, namespace),
            registry: Registry::Kubernetes,
            ports: Vec::new(),
            addresses: BTreeMap::new(),
            cluster: "west".into(),
            resolution: Resolution::Static,
            mesh_external: false,
            selector: Labels::new(),
            created,
            accounts: BTreeSet::new(),
            prefers_close: false,
            exported_to: Vec::new(),
            balancers: BTreeMap::new(),
        }
    }

    /// The author of a ServiceEntry chooses its host and its age.
    #[test]
    fn a_service_of_kubernetes_comes_before_all_that_are_written() {
        let of = |registry: Registry, created: Option<i64>| Service {
            registry,
            ..service("a", "x", created)
        };
        let own = of(Registry::Kubernetes, Some(9));
        for registry in [Registry::External, Registry::Consul, Registry::Memory] {
            for created in [None, Some(1), Some(9)] {
                let other = of(registry, created);
                assert_eq!(own.precedence(&other), Ordering::Less, "{other:?}");
                assert_eq!(other.precedence(&own), Ordering::Greater, "{other:?}");
                assert_eq!(own.why_first(&other), "is of Kubernetes");
            }
        }
        let (one, two) = (
            of(Registry::External, Some(1)),
            of(Registry::Consul, Some(2)),
        );
        assert_eq!(one.precedence(&two), Ordering::Less, "by age");
        assert_eq!(one.why_first(&two), "is older");
    }

    #[test]
    fn the_older_wins_then_the_name_then_the_namespace() {
        let mut services = [
            service("b", "x", Some(2)),
            service("a", "y", Some(2)),
            service("a", "x", Some(2)),
            service("z", "z", Some(1)),
            service("y", "z", None),
        ];
        services.sort_by(Service::precedence);
        let order: Vec<_> = services
            .iter()
            .map(|service| format!("{}/{}", service.key.namespace, service.key.hostname))
            .collect();
        assert_eq!(order, ["z/y", "z/z", "x/a", "y/a", "x/b"]);
    }

    #[test]
    fn a_proxy_sees_its_own_clusters_address_else_the_first() {
        let at = |text: &str| vec![text.parse::<Address>().unwrap()];
        let mut shared = service("a", "x", None);
        assert_eq!(shared.addresses_in("east"), []);
        shared.addresses = BTreeMap::from([
            ("central".into(), at("10.0.0.1")),
            ("east".into(), at("10.1.0.1")),
            ("west".into(), at("10.2.0.1")),
        ]);
        assert_eq!(shared.addresses_in("east"), at("10.1.0.1"));
        assert_eq!(shared.addresses_in("north"), at("10.2.0.1"));
        shared.cluster = "gone".into();
        assert_eq!(shared.addresses_in("north"), at("10.0.0.1"));
    }
}
