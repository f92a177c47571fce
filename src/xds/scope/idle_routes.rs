//! Routes of VirtualServices that come to nothing, whoever sees them: no port of a service with their hosts, and of no Gateway, is
//! one that they are for. A service may get such a port later, so it is nothing that a rule says by itself.

use std::cell::{Cell, LazyCell, OnceCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use api::model::{Protocol, World};
use api::networking::VirtualService;

use super::exported::{Exported, ExportedObjects};
use super::gateways::{GENERATED, full_name};
use super::{MESH, Rule, is_of_mesh, patterns};
use crate::common::conflict::{Conflict, Conflicts, REJECTED_CONFIG};
use crate::common::service_ports::{ServicePort, ServicePorts};

/// Ports of services that are looked at for one rule. Chosen: a rule has a few, and of one with more nothing is told.
const MOST_PORTS: usize = 1000;
/// Ports that are looked at for all rules together, anew with each full push. Chosen: some milliseconds, and meshes of ten
/// thousand rules have fewer.
const MOST_LOOKUPS: usize = 50_000;
/// Services that are looked at for one wildcard.
const MOST_SERVICES: usize = 100;
/// Ports of Gateways that the matches of one rule are compared with.
const MOST_COMPARISONS: usize = 1000;

/// A list of routes of a VirtualService.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteList {
    Http,
    Tls,
    Tcp,
}

impl RouteList {
    const ALL: [Self; 3] = [Self::Http, Self::Tls, Self::Tcp];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tls => "tls",
            Self::Tcp => "tcp",
        }
    }

    /// The protocols of its ports.
    const fn protocols(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Tls => "HTTPS or TLS",
            Self::Tcp => "TCP",
        }
    }

    /// Returns true if sidecars ask such routes at a port.
    fn is_at(self, service_port: &ServicePort) -> bool {
        let protocol = service_port.protocol;
        match self {
            Self::Http => service_port.carries_http(),
            Self::Tls => protocol.has_server_name(),
            Self::Tcp => !protocol.is_http() && !protocol.has_server_name(),
        }
    }

    /// The matches of each route of this kind.
    fn matches(self, spec: &VirtualService) -> Vec<Vec<PortMatch<'_>>> {
        let http = spec.http.iter().map(|route| {
            let all = route.r#match.iter();
            all.map(|one| (&*one.gateways, one.port)).collect()
        });
        let tls = spec.tls.iter().map(|route| {
            let all = route.r#match.iter();
            all.map(|one| (&*one.gateways, one.port)).collect()
        });
        let tcp = spec.tcp.iter().map(|route| {
            let all = route.r#match.iter();
            all.map(|one| (&*one.gateways, one.port)).collect()
        });
        match self {
            Self::Http => http.collect(),
            Self::Tls => tls.collect(),
            Self::Tcp => tcp.collect(),
        }
    }
}

/// The gateways of a match, and its port; 0: any.
type PortMatch<'a> = (&'a [String], u32);

/// The ports of the services that have hosts of one rule.
#[derive(Debug, Default)]
struct PortsOfRule<'a> {
    all: Vec<&'a ServicePort>,
    /// A host is one that no service has, a wildcard, or below one of a service.
    has_others: bool,
    /// A Sidecar may say that requests are connections, with the port of an egress listener.
    may_be_connections: bool,
    /// There are more.
    is_cut: bool,
}

impl PortsOfRule<'_> {
    /// Returns true if sidecars may ask routes of this kind somewhere.
    fn may_have(&self, kind: RouteList) -> bool {
        let is_at = |kind: RouteList| self.all.iter().any(|one| kind.is_at(one));
        self.is_unknown(kind)
            || is_at(kind)
            // There `tls` is asked for, which is told where the listener is made.
            || kind == RouteList::Tcp && is_at(RouteList::Tls)
    }

    /// Returns true if sidecars may ask it at ports that are not looked at. Hosts that no service has stand at those of destinations.
    fn is_unknown(&self, kind: RouteList) -> bool {
        self.is_cut
            || match kind {
                RouteList::Http => self.has_others,
                RouteList::Tls | RouteList::Tcp => self.may_be_connections,
            }
    }

    /// Numbers of ports at which nothing has to be said of a match.
    fn numbers(&self, kind: RouteList) -> BTreeSet<u32> {
        let is_told = |one: &ServicePort| kind == RouteList::Tcp && RouteList::Tls.is_at(one);
        let all = self.all.iter();
        let all = all.filter(|one| kind.is_at(one) || is_told(one));
        all.map(|one| u32::from(one.port.number)).collect()
    }
}

/// The ports of a world.
struct WorldPorts<'a> {
    world: &'a World,
    services: &'a ServicePorts,
    /// Hosts of services, by how they read from their ends.
    hosts: OnceCell<BTreeMap<String, &'a str>>,
    gateways: OnceCell<GatewayPorts<'a>>,
    /// A Sidecar declares a port of another protocol than HTTP.
    declares_connections: bool,
    /// Look-ups that are left.
    left: Cell<usize>,
}

/// Ports of Gateways, by namespace and name.
type GatewayPorts<'a> = HashMap<(&'a str, &'a str), HashSet<u32>>;

impl<'a> WorldPorts<'a> {
    fn new(world: &'a World, services: &'a ServicePorts) -> Self {
        let listeners = world.sidecars.values().flat_map(|one| &one.spec.egress);
        let mut declared = listeners.filter_map(|one| one.port.as_ref());
        Self {
            world,
            services,
            hosts: OnceCell::new(),
            gateways: OnceCell::new(),
            declares_connections: declared.any(|port| {
                let protocol = Protocol::of_service_entry(&port.protocol);
                !port.protocol.is_empty() && protocol.is_some_and(|one| !one.is_http())
            }),
            left: Cell::new(MOST_LOOKUPS),
        }
    }

    /// Adds the ports of a host; false: it has none.
    fn add(&self, found: &mut PortsOfRule<'a>, host: &str) -> bool {
        let before = found.all.len();
        for one in self.services.of_world(host) {
            let left = self.left.get();
            if found.all.len() == MOST_PORTS || left == 0 {
                found.is_cut = true;
                return true;
            }
            self.left.set(left - 1);
            found.all.push(one);
        }
        found.all.len() > before
    }

    fn hosts(&self) -> &BTreeMap<String, &'a str> {
        self.hosts.get_or_init(|| {
            let all = self.services.hosts_of_world();
            all.map(|host| (reversed(host), host)).collect()
        })
    }

    fn gateways(&self) -> &GatewayPorts<'a> {
        self.gateways.get_or_init(|| {
            let all = self.world.gateways.iter();
            all.map(|((namespace, name), gateway)| {
                let ports = gateway.spec.servers.iter().flat_map(|one| &one.port);
                let ports = ports.map(|port| port.number).collect();
                ((&**namespace, &**name), ports)
            })
            .collect()
        })
    }

    /// Returns true if a service has a wildcard that means a host: requests for the host come in at the ports of both.
    fn is_below_wildcard(&self, host: &str) -> bool {
        let mut wildcards = match self.services.has_wildcards() {
            true => patterns(host).into_iter().skip(1),
            false => return false,
        };
        wildcards.any(|wildcard| self.services.of_world(&wildcard).next().is_some())
    }

    fn of_rule(&self, rule: &Rule<VirtualService>) -> PortsOfRule<'a> {
        let mut found = PortsOfRule {
            may_be_connections: self.declares_connections,
            is_cut: self.left.get() == 0,
            ..PortsOfRule::default()
        };
        for host in rule.hosts() {
            // Nothing is told of it then.
            if found.is_cut {
                break;
            }
            let end = host.strip_prefix('*').map(reversed);
            let Some(end) = end else {
                found.has_others |= !self.add(&mut found, host);
                found.has_others |= self.is_below_wildcard(host);
                continue;
            };
            // The wildcard of a service is a host of its own.
            found.has_others |= self.services.of_world(host).next().is_none();
            let below = self.hosts().range(end.clone()..);
            let mut below = below.take_while(|(host, _)| host.starts_with(&end));
            for (_, host) in below.by_ref().take(MOST_SERVICES) {
                self.add(&mut found, host);
            }
            found.is_cut |= below.next().is_some();
        }
        found
    }

    /// Returns true if a Gateway that a rule of a namespace names may have a server on this port.
    fn may_serve(&self, (namespace, name): (&str, &str), port: u32) -> bool {
        // Of one that is not there nothing is known, and Ingresses have any number.
        let ports = self.gateways().get(&(namespace, name));
        (namespace, name) == GENERATED || ports.is_none_or(|ports| ports.contains(&port))
    }
}

impl ExportedObjects {
    /// Tells of routes that are for no port that there is, for sidecars or at Gateways.
    pub(super) fn idle_routes(&self, world: &World) -> Vec<Conflict> {
        let ports = WorldPorts::new(world, &self.services);
        let mut lost = Conflicts::default();
        for Exported { rule, .. } in &self.virtual_services {
            IdleRoutes::of(rule, &ports).find(&mut lost);
        }
        lost.finish()
    }
}

/// One rule while it is looked at.
struct IdleRoutes<'a, 'w> {
    rule: &'a Rule<VirtualService>,
    ports: &'a WorldPorts<'w>,
    /// `None`: it is for no sidecars.
    of_sidecars: Option<PortsOfRule<'w>>,
    /// The gateways that the rule names.
    gateways: OnceCell<HashSet<NamedGateway<'a>>>,
    /// Comparisons that are left.
    comparisons: Cell<usize>,
}

/// A Gateway by namespace and name; `None`: sidecars.
type NamedGateway<'a> = Option<(&'a str, &'a str)>;

impl<'a, 'w> IdleRoutes<'a, 'w> {
    fn of(rule: &'a Rule<VirtualService>, ports: &'a WorldPorts<'w>) -> Self {
        let spec = rule.spec();
        let is_for_sidecars = is_of_mesh(&spec.gateways) && !rule.hosts().is_empty();
        Self {
            rule,
            ports,
            of_sidecars: is_for_sidecars.then(|| ports.of_rule(rule)),
            gateways: OnceCell::new(),
            comparisons: Cell::new(MOST_COMPARISONS),
        }
    }

    fn find(&self, lost: &mut Conflicts) {
        let mut is_without_services = false;
        for kind in RouteList::ALL {
            let routes = kind.matches(self.rule.spec());
            let is_for_sidecars = |matches: &Vec<PortMatch<'_>>| {
                let mut all = matches.iter();
                matches.is_empty() || all.any(|(gateways, _)| is_of_mesh(gateways))
            };
            let ports = self.of_sidecars.as_ref();
            let ports = ports.filter(|ports| !ports.may_have(kind));
            let ports = ports.filter(|_| routes.iter().any(is_for_sidecars));
            if let Some(ports) = ports {
                // What is said of `tls` is said of `tcp`, too.
                if !ports.all.is_empty() || !is_without_services {
                    self.tell(lost, || without_port(kind, ports));
                }
                is_without_services |= ports.all.is_empty();
            }
            // Those of a rule with delegates are others than it writes, and those of a delegate are for the gateways of its roots.
            if self.rule.with.is_empty() && !self.rule.hosts().is_empty() {
                self.find_matches(kind, &routes, ports.is_some(), lost);
            }
        }
    }

    /// `is_idle`: that no route of this kind applies to sidecars is told.
    fn find_matches(
        &self,
        kind: RouteList,
        routes: &[Vec<PortMatch<'_>>],
        is_idle: bool,
        lost: &mut Conflicts,
    ) {
        let of_sidecars = self.of_sidecars.as_ref();
        let known = of_sidecars.filter(|ports| !is_idle && !ports.is_unknown(kind));
        let numbers = LazyCell::new(|| known.map(|ports| ports.numbers(kind)));
        let namespace = self.rule.namespace();
        for (route, matches) in routes.iter().enumerate() {
            for (at, &(gateways, port)) in matches.iter().enumerate() {
                let place = || format!("spec.{}[{route}].match[{at}]", kind.as_str());
                let mut named = gateways_of(gateways, namespace);
                if !gateways.is_empty() && !named.any(|one| self.is_for(one)) {
                    let why = "none of its gateways is one of spec.gateways";
                    self.tell(lost, || format!("{} never matches: {why}", place()));
                    continue;
                }
                let may_be_there = |gateway: NamedGateway<'_>| match gateway {
                    Some(gateway) => self.ports.may_serve(gateway, port),
                    None => {
                        let numbers = numbers.as_ref();
                        numbers.is_none_or(|numbers| numbers.contains(&port))
                    }
                };
                if let Some(places) = self.without((gateways, port), may_be_there) {
                    self.tell(lost, || {
                        let why = no_port(kind, port, places);
                        format!("{} never matches: {why}", place())
                    });
                }
            }
        }
    }

    /// Returns true if a Gateway is one of the rule's.
    fn is_for(&self, gateway: NamedGateway<'_>) -> bool {
        let all = self.gateways.get_or_init(|| {
            gateways_of(&self.rule.spec().gateways, self.rule.namespace()).collect()
        });
        all.contains(&gateway)
    }

    /// Returns whether a match is for sidecars, and for Gateways, if none of these may have its port.
    fn without(
        &self,
        (gateways, port): PortMatch<'_>,
        may_be_there: impl Fn(NamedGateway<'_>) -> bool,
    ) -> Option<[bool; 2]> {
        let written = match gateways.is_empty() {
            true => &self.rule.spec().gateways[..],
            false => gateways,
        };
        let mut places = [false; 2];
        for gateway in gateways_of(written, self.rule.namespace()) {
            // Nothing is told of a match with more gateways.
            let left = self.comparisons.get().checked_sub(1)?;
            if port == 0 || may_be_there(gateway) {
                return None;
            }
            self.comparisons.set(left);
            match gateway {
                None => places[0] = true,
                Some(_) => places[1] = true,
            }
        }
        Some(places)
    }

    fn tell(&self, lost: &mut Conflicts, message: impl FnOnce() -> String) {
        let from = &self.rule.from;
        lost.push(REJECTED_CONFIG, Some(from), || {
            (from.to_string(), message())
        });
    }
}

/// Says that neither sidecars nor Gateways, as far as a match is for them, have a port.
fn no_port(kind: RouteList, port: u32, [of_sidecars, of_gateways]: [bool; 2]) -> String {
    let protocols = kind.protocols();
    let services = format!("no service with one of its hosts has a port {port} of {protocols}");
    let gateways = format!("none of its gateways has a server on port {port}");
    match (of_sidecars, of_gateways) {
        (true, true) => format!("{services}, and {gateways}"),
        (false, true) => gateways,
        (_, false) => services,
    }
}

/// Says that no route of a kind applies.
fn without_port(kind: RouteList, ports: &PortsOfRule<'_>) -> String {
    if ports.all.is_empty() {
        return "no tls or tcp route of it applies to sidecars: no service has one of its hosts"
            .to_owned();
    }
    let (routes, protocols) = (kind.as_str(), kind.protocols());
    format!(
        "no {routes} route of it applies to sidecars: no service with one of its hosts has a port of {protocols}"
    )
}

/// Gateways by namespace and name, as a rule of a namespace writes them, in a match or for all of it; `None`: sidecars.
fn gateways_of<'a>(
    written: &'a [String],
    namespace: &'a str,
) -> impl Iterator<Item = NamedGateway<'a>> {
    let usual = written.is_empty().then_some(MESH);
    let all = written.iter().map(String::as_str).chain(usual);
    all.map(move |one| full_name(one, namespace))
}

/// Returns the host in lower case, from its end.
fn reversed(host: &str) -> String {
    let letters = host.chars().rev();
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}
