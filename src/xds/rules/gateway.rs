//! Gateway: what a router listens on (discovery.md §16). Servers of all Gateways of a router are merged by port: the older one has
//! it, and others are there beside it as far as a connection can be told from the older one's.

pub(crate) mod hosts;
mod misdirected;
pub(crate) mod secrets;
pub(crate) mod tls;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use api::istio::networking::v1alpha3::Server;
use api::model::{ObjectRef, Protocol};
use api::networking::{Gateway, server_tls_settings::TlSmode};

use self::hosts::ServerHosts;
pub(crate) use self::misdirected::MisdirectedHosts;
use self::misdirected::MisdirectedRoutes;
use crate::common::conflict::{Conflict, Conflicts, REJECTED_CONFIG};
use crate::common::fair_budget::FairBudget;
use crate::common::steps::step;
use crate::scope::virtual_service_limits::{HostNames, RouteEstimate, RulesWithoutRoom};
use crate::scope::{ProxyRules, Rule};

/// The handling of connections by a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerHandling {
    /// Requests in plain text.
    Http,
    /// TLS ends here, and there are requests in it.
    Https,
    /// TLS ends here, and another protocol is in it.
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
    /// The port number as the Gateway has it, which the matches of rules refer to.
    pub(crate) number: u16,
    /// The hosts of the server, without those that an older server of the port has.
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

    /// Returns true if it takes no request of a client without a certificate.
    fn requires_client_certificates(&self) -> bool {
        let tls = self.spec().and_then(|server| server.tls.as_ref());
        self.handling == ServerHandling::Https
            && tls.is_some_and(|tls| matches!(tls.mode(), TlSmode::Mutual | TlSmode::IstioMutual))
    }

    pub(crate) fn protocol(&self) -> Protocol {
        let port = self.spec().and_then(|server| server.port.as_ref());
        let protocol = port.and_then(|port| Protocol::of_service_entry(&port.protocol));
        protocol.unwrap_or(Protocol::Tcp)
    }
}

/// The address and the port that a router listens on; `None`: all addresses.
pub(crate) type BoundPort = (Option<IpAddr>, u16);

/// A server that other routers with the same Gateways may have, and the port where it would be; 0: all of its ports.
pub(crate) type Absent = (ObjectRef, usize, u16);

/// All servers of a router.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// The servers of each port, in order. Either all servers of a port have server names, or none has.
    pub(crate) by_port: BTreeMap<BoundPort, Vec<Serving>>,
    /// Servers that are left out for what this router is, which another one may not be.
    pub(crate) absent: BTreeSet<Absent>,
    pub(crate) conflicts: Vec<Conflict>,
    /// Servers by the name of their routes: their place, and their number there.
    by_routes: BTreeMap<Arc<str>, Vec<(BoundPort, usize)>>,
    /// VirtualServices for which there is no room; found once routes are made.
    without_room: OnceLock<Arc<RulesWithoutRoom>>,
    /// By the name of routes.
    misdirected: HashMap<Arc<str>, MisdirectedHosts>,
}

/// Places of one router.
pub(crate) trait Ports {
    /// The ports on which it listens for a port that clients know, as its services say them.
    fn targets(&self, port: u16) -> Vec<u16>;

    /// Returns true if the proxy has that port itself.
    fn is_reserved(&self, port: u16) -> bool;

    /// Returns true if the proxy can listen on that address alone: Envoy refuses a listener that it cannot bind, and is not
    /// ready.
    fn can_bind(&self, address: IpAddr) -> bool;
}

/// Bytes that each chain of a router has in it besides what servers and rules say, and room for all of them, which the namespaces
/// of Gateways share.
#[derive(Debug)]
pub(crate) struct ChainRoom {
    /// Bytes of a chain of requests.
    pub(crate) http: usize,
    /// Bytes of one of other connections.
    pub(crate) tcp: usize,
    pub(crate) room: FairBudget,
}

impl ChainRoom {
    /// Returns true if there is room for one more chain.
    fn take(&mut self, gateway: &ObjectRef, handling: ServerHandling) -> bool {
        let bytes = match handling {
            ServerHandling::Http | ServerHandling::Https => self.http,
            ServerHandling::Tls
            | ServerHandling::Passthrough
            | ServerHandling::AutoPassthrough
            | ServerHandling::Tcp => self.tcp,
        };
        let left = self.room.of(gateway).unwrap_or_default();
        if left < bytes {
            return false;
        }
        self.room.spend(gateway, bytes);
        true
    }
}

/// The Gateways that listen on a port: the oldest of each namespace.
#[derive(Default)]
struct PortOwners {
    on_all_addresses: BTreeMap<Arc<str>, ObjectRef>,
    on_one_address: BTreeMap<Arc<str>, ObjectRef>,
}

impl PortOwners {
    /// A Gateway of another namespace whose connections a server would take, or that would take those of the server: the kernel
    /// gives them to whoever listens on their address alone.
    fn in_the_way(&self, bind: Option<IpAddr>, namespace: &Arc<str>) -> Option<&ObjectRef> {
        let all = match bind {
            Some(_) => &self.on_all_addresses,
            None => &self.on_one_address,
        };
        let mut others = all.iter().filter(|(of, _)| *of != namespace);
        others.next().map(|(_, gateway)| gateway)
    }

    fn add(&mut self, bind: Option<IpAddr>, gateway: &Rule<Gateway>) {
        let all = match bind {
            Some(_) => &mut self.on_one_address,
            None => &mut self.on_all_addresses,
        };
        let of_namespace = all.entry(gateway.namespace().clone());
        of_namespace.or_insert_with(|| gateway.from.clone());
    }
}

impl Merged {
    /// `gateways`: in order.
    pub(crate) fn new(
        gateways: &[Arc<Rule<Gateway>>],
        ports: &impl Ports,
        room: ChainRoom,
    ) -> Self {
        let mut merging = Merging {
            ports,
            room,
            merged: Self::default(),
            names: HashMap::new(),
            owners: HashMap::new(),
            conflicts: Conflicts::default(),
        };
        for gateway in gateways {
            for (at, server) in gateway.spec().servers.iter().enumerate() {
                merging.add(gateway, at, server);
            }
        }
        let Merging {
            mut merged,
            mut conflicts,
            ..
        } = merging;
        let namespaces: BTreeSet<_> = gateways.iter().map(|one| one.namespace()).collect();
        let mut misdirected = MisdirectedRoutes::new(namespaces.len(), &mut conflicts);
        for (place, servers) in &merged.by_port {
            misdirected.add(servers);
            for (at, server) in servers.iter().enumerate() {
                if server.has_routes() {
                    let of_name = merged.by_routes.entry(server.routes.clone());
                    of_name.or_default().push((*place, at));
                }
            }
        }
        merged.misdirected = misdirected.finish();
        merged.conflicts = conflicts.finish();
        merged
    }

    /// Servers whose requests have routes by this name, in order.
    pub(crate) fn of_routes(&self, name: &str) -> Vec<(BoundPort, &Serving)> {
        let all = self.by_routes.get(name).into_iter().flatten();
        all.filter_map(|(place, at)| Some((*place, self.by_port.get(place)?.get(*at)?)))
            .collect()
    }

    /// Returns the VirtualServices for which there is no room at its servers.
    pub(crate) fn without_room(&self, rules: &ProxyRules) -> Arc<RulesWithoutRoom> {
        let find = || Arc::new(self.route_estimate(rules).without_room());
        self.without_room.get_or_init(find).clone()
    }

    fn route_estimate<'a>(&self, rules: &'a ProxyRules) -> RouteEstimate<'a> {
        let mut estimate = RouteEstimate::at_router();
        let servers = self.by_routes.keys().map(|name| self.of_routes(name));
        for (_, server) in servers.flatten() {
            // Any number of rules may have one wildcard, and there may be any number of hosts below it.
            let mut wildcards: HashMap<(&str, &str), HostNames> = HashMap::new();
            let bound = rules.bound(server.from()).into_iter();
            for rule in bound.filter(|rule| !rule.spec().http.is_empty()) {
                for host in rule.hosts() {
                    if estimate.is_full(rule) {
                        break;
                    }
                    let namespace = rule.namespace();
                    let measure = || server.hosts.measure_common(host, namespace);
                    let names = match host.starts_with('*') {
                        true => *wildcards.entry((host, namespace)).or_insert_with(measure),
                        false => measure(),
                    };
                    estimate.add(rule, host, names);
                }
            }
        }
        estimate
    }

    /// Returns the hosts for which routes of this name must not answer, if there are any.
    pub(crate) fn misdirected(&self, name: &str) -> Option<&MisdirectedHosts> {
        self.misdirected.get(name)
    }

    /// Names of all routes, each once.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_routes.keys()
    }

    /// The string of this name that all share.
    pub(crate) fn routes_name(&self, name: &str) -> Option<&Arc<str>> {
        self.by_routes.get_key_value(name).map(|(name, _)| name)
    }

    /// Returns true if some connections go to the cluster that their server name is.
    pub(crate) fn has_auto_passthrough(&self) -> bool {
        let mut all = self.by_port.values().flatten();
        all.any(|one| one.handling == ServerHandling::AutoPassthrough)
    }
}

/// Servers while they are merged, the oldest first.
struct Merging<'a, P> {
    ports: &'a P,
    room: ChainRoom,
    merged: Merged,
    /// Hosts that servers with server names have at each place.
    names: HashMap<BoundPort, HashSet<String>>,
    owners: HashMap<u16, PortOwners>,
    conflicts: Conflicts,
}

impl<P: Ports> Merging<'_, P> {
    fn lose(&mut self, gateway: &Rule<Gateway>, at: usize, what: &str) {
        self.conflicts
            .push(REJECTED_CONFIG, Some(&gateway.from), || {
                let Conflict { key, message, .. } = lost(gateway, at, what);
                (key, message)
            });
    }

    /// Loses a server that another router may have.
    fn lose_here(&mut self, gateway: &Rule<Gateway>, (at, port): (usize, u16), what: &str) {
        self.merged.absent.insert((gateway.from.clone(), at, port));
        self.lose(gateway, at, what);
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
        let older = self.names.entry(place).or_default();
        let mut reserved = Vec::new();
        let own = all.without(|name| {
            let is_reserved = step(|| older.contains(name));
            reserved.extend(is_reserved.then(|| name.to_owned()));
            is_reserved
        });
        let Some((name, others)) = reserved.split_first() else {
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

    fn add(&mut self, gateway: &Arc<Rule<Gateway>>, at: usize, server: &Server) {
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
        if let Some(address) = bind.filter(|address| !self.ports.can_bind(*address)) {
            let why = format!("is left out: {address} is no address of the router");
            return self.lose_here(gateway, (at, 0), &why);
        }
        let all = Arc::new(ServerHosts::new(&server.hosts, gateway.namespace()));
        for target in self.ports.targets(number) {
            let place = (bind, target);
            if !self.has_place(gateway, (at, handling), place) {
                continue;
            }
            let Some(hosts) = self.hosts(gateway, (at, handling), &all, place) else {
                continue;
            };
            // Servers in plain text share one chain.
            let shares =
                handling == ServerHandling::Http && self.merged.by_port.contains_key(&place);
            if !shares && !self.room.take(&gateway.from, handling) {
                let why = "is left out: the policies of the router leave no room for more servers of its namespace";
                self.lose_here(gateway, (at, target), why);
                continue;
            }
            // Only now: a server without room keeps no hosts from younger ones.
            if handling.has_server_name() {
                self.names.entry(place).or_default().extend(hosts.names());
            }
            self.owners.entry(target).or_default().add(bind, gateway);
            let serving = Serving {
                gateway: gateway.clone(),
                at,
                handling,
                number,
                hosts,
                routes: routes_name(place, handling, &port.name, &gateway.from),
            };
            self.merged.by_port.entry(place).or_default().push(serving);
        }
    }

    /// Returns true if nothing else is at the place of a server.
    fn has_place(
        &mut self,
        gateway: &Rule<Gateway>,
        (at, handling): (usize, ServerHandling),
        place: BoundPort,
    ) -> bool {
        let (bind, port) = place;
        if self.ports.is_reserved(port) {
            let why = format!("is left out: the proxy itself listens on port {port}");
            self.lose(gateway, at, &why);
            return false;
        }
        let older = self.merged.by_port.get(&place);
        // The first stands for all: either all servers of a port have server names, or none has.
        if let Some(first) = older.and_then(|older| older.first())
            && !fits(handling, first.handling)
        {
            let why = format!(
                "is left out: {} has port {port} with a protocol that cannot share it",
                first.from()
            );
            self.lose(gateway, at, &why);
            return false;
        }
        let owners = self.owners.get(&port);
        if let Some(older) = owners.and_then(|owners| owners.in_the_way(bind, gateway.namespace()))
        {
            let on = match bind {
                Some(_) => "all addresses",
                None => "one address",
            };
            let why = format!("is left out: {older} of another namespace has port {port} on {on}");
            self.lose(gateway, at, &why);
            return false;
        }
        true
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
    // Servers of one port at two addresses have routes of their own.
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
