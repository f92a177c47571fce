//! Gateway: what a router listens on (discovery.md §16). Servers of all Gateways of a router are merged by port: the older one has
//! it, and others are there beside it as far as a connection can be told from the older one's.

pub(crate) mod hosts;
pub(crate) mod secrets;
pub(crate) mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::istio::networking::v1alpha3::Server;
use api::model::{ObjectRef, Protocol};
use api::networking::{Gateway, server_tls_settings::TlSmode};

use self::hosts::ServerHosts;
use crate::common::conflict::{Conflict, REJECTED_CONFIG};
use crate::scope::Rule;

/// The handling of connections by a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerHandling {
    /// Requests in plain text.
    Http,
    /// TLS ends here, and there are requests in it.
    Https,
    /// TLS ends here, and there is something else in it.
    Tls,
    /// TLS goes on as it is, by rules.
    Passthrough,
    /// TLS goes on as it is, to the cluster that its server name is.
    AutoPassthrough,
    Tcp,
}

impl ServerHandling {
    fn of(server: &Server) -> Option<Self> {
        let protocol = Protocol::of_service_entry(&server.port.as_ref()?.protocol)?;
        if protocol.is_http() {
            return Some(Self::Http);
        }
        if !protocol.has_server_name() {
            return Some(Self::Tcp);
        }
        Some(match server.tls.as_ref()?.mode() {
            TlSmode::Passthrough => Self::Passthrough,
            TlSmode::AutoPassthrough => Self::AutoPassthrough,
            TlSmode::Simple | TlSmode::Mutual | TlSmode::IstioMutual | TlSmode::OptionalMutual => {
                match protocol == Protocol::Https {
                    true => Self::Https,
                    false => Self::Tls,
                }
            }
        })
    }

    /// Servers of one port are told apart by the server name.
    pub(crate) const fn has_server_name(self) -> bool {
        !matches!(self, Self::Http | Self::Tcp)
    }
}

/// A server, as far as it is served.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) gateway: Arc<Rule<Gateway>>,
    /// Its place in the Gateway.
    at: usize,
    pub(crate) handling: ServerHandling,
    /// As it is written: what matches of rules speak of.
    pub(crate) number: u16,
    /// Without those that an older server of the port has.
    pub(crate) hosts: Arc<ServerHosts>,
    /// The name of the routes of its requests.
    pub(crate) routes: Arc<str>,
}

impl Serving {
    pub(crate) fn spec(&self) -> Option<&Server> {
        self.gateway.spec().servers.get(self.at)
    }

    pub(crate) fn from(&self) -> &ObjectRef {
        &self.gateway.from
    }

    pub(crate) fn redirects(&self) -> bool {
        let tls = self.spec().and_then(|server| server.tls.as_ref());
        tls.is_some_and(|tls| tls.https_redirect)
    }

    pub(crate) fn protocol(&self) -> Protocol {
        let port = self.spec().and_then(|server| server.port.as_ref());
        let protocol = port.and_then(|port| Protocol::of_service_entry(&port.protocol));
        protocol.unwrap_or(Protocol::Tcp)
    }
}

/// The address and the port that a router listens on; `None`: all addresses.
pub(crate) type BoundPort = (Option<IpAddr>, u16);

/// All servers of a router.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// In order; those of one port all have server names, or none of them has.
    pub(crate) by_port: BTreeMap<BoundPort, Vec<Serving>>,
    pub(crate) conflicts: Vec<Conflict>,
}

/// Ports of one router.
pub(crate) trait Ports {
    /// The ports on which it listens for a port that clients know, as its services say them.
    fn targets(&self, port: u16) -> Vec<u16>;

    /// Returns true if the proxy has that port itself.
    fn is_taken(&self, port: u16) -> bool;
}

impl Merged {
    pub(crate) fn new(gateways: &[Arc<Rule<Gateway>>], ports: &impl Ports) -> Self {
        let mut merged = Self::default();
        for gateway in gateways {
            for (at, server) in gateway.spec().servers.iter().enumerate() {
                merged.add(gateway, at, server, ports);
            }
        }
        merged
    }

    /// Servers whose requests have routes by this name, in order.
    pub(crate) fn of_routes(&self, name: &str) -> Vec<(BoundPort, &Serving)> {
        let all = self.by_port.iter();
        let all = all.flat_map(|(place, servers)| servers.iter().map(|one| (*place, one)));
        all.filter(|(_, one)| one.has_routes() && *one.routes == *name)
            .collect()
    }

    /// Names of all routes, each once.
    pub(crate) fn routes(&self) -> BTreeSet<&Arc<str>> {
        let all = self.by_port.values().flatten();
        all.filter(|one| one.has_routes())
            .map(|one| &one.routes)
            .collect()
    }

    /// About how many chains its listeners have.
    pub(crate) fn chains(&self) -> usize {
        self.by_port.values().map(Vec::len).sum()
    }

    /// Returns true if some connections go to the cluster that their server name is.
    pub(crate) fn has_auto_passthrough(&self) -> bool {
        let mut all = self.by_port.values().flatten();
        all.any(|one| one.handling == ServerHandling::AutoPassthrough)
    }

    fn lose(&mut self, gateway: &Rule<Gateway>, at: usize, what: &str) {
        self.conflicts.push(lost(gateway, at, what));
    }

    /// The hosts of a server that no older server of its port has; `None`: there are none.
    fn hosts(
        &mut self,
        gateway: &Rule<Gateway>,
        (at, handling): (usize, ServerHandling),
        all: &Arc<ServerHosts>,
        place: BoundPort,
    ) -> Option<Arc<ServerHosts>> {
        if !handling.has_server_name() {
            return Some(all.clone());
        }
        let older = self.by_port.get(&place).map_or(&[][..], Vec::as_slice);
        let mut taken = Vec::new();
        let own = all.without(|name| {
            let is_taken = older.iter().any(|older| older.hosts.has_name(name));
            taken.extend(is_taken.then(|| name.to_owned()));
            is_taken
        });
        let Some((name, others)) = taken.split_first() else {
            return Some(all.clone());
        };
        let what = match own.is_empty() {
            true => "is left out",
            false => "is served in part",
        };
        let others = match others.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let (_, port) = place;
        let why = format!("{what}: an older server of port {port} has {name:?}{others}");
        self.lose(gateway, at, &why);
        (!own.is_empty()).then(|| Arc::new(own))
    }

    fn add(
        &mut self,
        gateway: &Arc<Rule<Gateway>>,
        at: usize,
        server: &Server,
        ports: &impl Ports,
    ) {
        let port = server.port.as_ref();
        let number = port.and_then(|port| u16::try_from(port.number).ok());
        let (Some(port), Some(number)) = (port, number.filter(|number| *number > 0)) else {
            return self.lose(gateway, at, "is left out: it has no port of an address");
        };
        let Some(handling) = ServerHandling::of(server) else {
            return self.lose(gateway, at, "is left out: nothing serves its protocol");
        };
        let bind: Option<IpAddr> = match &*server.bind {
            "" => None,
            written => match written.parse() {
                Ok(address) => Some(address),
                Err(_) => return self.lose(gateway, at, "is left out: its bind is no address"),
            },
        };
        let bind = bind.filter(|address| !address.is_unspecified());
        let all = Arc::new(ServerHosts::new(&server.hosts, gateway.namespace()));
        for target in ports.targets(number) {
            if ports.is_taken(target) {
                let why = format!("is left out: the proxy itself listens on port {target}");
                self.lose(gateway, at, &why);
                continue;
            }
            let place = (bind, target);
            let older = self.by_port.get(&place).map_or(&[][..], Vec::as_slice);
            let first = older.first();
            if let Some(first) = first.filter(|first| !fits(handling, first.handling)) {
                let why = format!(
                    "is left out: {} has port {target} for something else",
                    first.from()
                );
                self.lose(gateway, at, &why);
                continue;
            }
            let Some(hosts) = self.hosts(gateway, (at, handling), &all, place) else {
                continue;
            };
            let serving = Serving {
                gateway: gateway.clone(),
                at,
                handling,
                number,
                hosts,
                routes: routes_name(place, handling, &port.name, &gateway.from),
            };
            self.by_port.entry(place).or_default().push(serving);
        }
    }
}

/// The conflict of a server. `what`: the words behind its name.
fn lost(gateway: &Rule<Gateway>, at: usize, what: &str) -> Conflict {
    let key = format!("{} servers[{at}]", gateway.from);
    let message = format!("spec.servers[{at}] of {} {what}", gateway.from);
    Conflict::new(REJECTED_CONFIG, key, message).because_of(&gateway.from)
}

impl Serving {
    /// The conflict of this server. `what`: the words behind its name.
    pub(crate) fn lost(&self, what: &str) -> Conflict {
        lost(&self.gateway, self.at, what)
    }

    /// Its name in messages.
    pub(crate) fn called(&self) -> String {
        format!("spec.servers[{}] of {}", self.at, self.gateway.from)
    }

    pub(crate) const fn has_routes(&self) -> bool {
        matches!(self.handling, ServerHandling::Http | ServerHandling::Https)
    }
}

/// Returns true if two servers can have one port.
const fn fits(one: ServerHandling, older: ServerHandling) -> bool {
    match (one, older) {
        (ServerHandling::Http, ServerHandling::Http) => true,
        (one, older) => one.has_server_name() && older.has_server_name(),
    }
}

/// The name of the routes of requests to a server; all servers in plain text of one port share it.
fn routes_name(
    (bind, port): BoundPort,
    handling: ServerHandling,
    port_name: &str,
    gateway: &ObjectRef,
) -> Arc<str> {
    let bind = bind.map_or_else(String::new, |address| format!(".{address}"));
    match handling {
        ServerHandling::Https => {
            let (name, namespace) = (&gateway.name, &gateway.namespace);
            format!("https.{port}.{port_name}.{name}.{namespace}{bind}").into()
        }
        ServerHandling::Http
        | ServerHandling::Tls
        | ServerHandling::Passthrough
        | ServerHandling::AutoPassthrough
        | ServerHandling::Tcp => format!("http.{port}{bind}").into(),
    }
}
