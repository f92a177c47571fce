//! Routes of VirtualServices that come to nothing, whoever sees them: no port of a service with their hosts, and of no Gateway, is
//! one that they are for. A service may get such a port later, so it is nothing that a rule says by itself.

use std::cell::{Cell, LazyCell, OnceCell};
use std::collections::{BTreeSet, HashSet};

use api::networking::VirtualService;

use super::exported::{Exported, ExportedObjects};
use super::gateways::full_name;
use super::world_ports::{PortsOfRule, WorldPorts};
use super::{MESH, Rule, is_of_mesh};
use crate::common::conflict::{Conflict, Conflicts, REJECTED_CONFIG};
use crate::common::service_ports::ServicePort;

/// Ports of Gateways that the matches of one rule are compared with.
const MAX_COMPARISONS: usize = 1000;

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

impl PortsOfRule<'_> {
    /// Returns true if sidecars may ask routes of this kind somewhere.
    fn may_have(&self, kind: RouteList) -> bool {
        let is_at = |kind: RouteList| self.all.iter().any(|one| kind.is_at(one));
        self.is_unknown(kind)
            || is_at(kind)
            // There `tls` is asked for, which is told where the listener is made.
            || kind == RouteList::Tcp && is_at(RouteList::Tls)
            || self.below_wildcards(kind).next().is_some()
    }

    /// Returns true if sidecars may ask it at ports that are not looked at. Hosts that no service has stand at those of destinations.
    fn is_unknown(&self, kind: RouteList) -> bool {
        self.is_cut
            || match kind {
                RouteList::Http => self.has_others,
                RouteList::Tls | RouteList::Tcp => self.may_be_connections,
            }
    }

    /// Ports of wildcards above its hosts at which sidecars ask such routes: TLS alone says the host of a connection.
    fn below_wildcards(&self, kind: RouteList) -> impl Iterator<Item = &ServicePort> {
        let all = self.below.iter().copied();
        all.filter(move |one| kind == RouteList::Tls && kind.is_at(one))
    }

    /// Numbers of ports at which nothing has to be said of a match.
    fn numbers(&self, kind: RouteList) -> BTreeSet<u32> {
        let is_reported_for_tls =
            |one: &ServicePort| kind == RouteList::Tcp && RouteList::Tls.is_at(one);
        let all = self.all.iter();
        let all = all
            .copied()
            .filter(|one| kind.is_at(one) || is_reported_for_tls(one));
        let all = all.chain(self.below_wildcards(kind));
        all.map(|one| u32::from(one.port.number)).collect()
    }
}

impl ExportedObjects {
    /// Tells of routes that are for no port that there is, for sidecars or at Gateways.
    pub(super) fn idle_routes(&self, ports: &WorldPorts<'_>) -> Vec<Conflict> {
        let mut lost = Conflicts::default();
        for Exported { rule, .. } in &self.virtual_services {
            IdleRoutes::of(rule, ports).find(&mut lost);
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
            comparisons: Cell::new(MAX_COMPARISONS),
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
                let has_services = !ports.all.is_empty() || !ports.below.is_empty();
                if has_services || !is_without_services {
                    self.report(lost, || without_port(kind, ports));
                }
                is_without_services |= !has_services;
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
        let ports_of_kind = of_sidecars.filter(|ports| !is_idle && !ports.is_unknown(kind));
        let numbers = LazyCell::new(|| ports_of_kind.map(|ports| ports.numbers(kind)));
        let namespace = self.rule.namespace();
        for (route, matches) in routes.iter().enumerate() {
            for (at, &(gateways, port)) in matches.iter().enumerate() {
                let place = || format!("spec.{}[{route}].match[{at}]", kind.as_str());
                let mut gateway_names = gateways_of(gateways, namespace);
                if !gateways.is_empty() && !gateway_names.any(|one| self.is_for(one)) {
                    let why = "none of its gateways is one of spec.gateways";
                    self.report(lost, || format!("{} never matches: {why}", place()));
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
                    self.report(lost, || {
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

    fn report(&self, lost: &mut Conflicts, message: impl FnOnce() -> String) {
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
    if ports.all.is_empty() && kind == RouteList::Tcp && !ports.below.is_empty() {
        return "no tcp route of it applies to sidecars: services have its hosts below wildcards alone, and connections of TCP do \
                not say which host they are for"
            .to_owned();
    }
    if ports.all.is_empty() && ports.below.is_empty() {
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
    gateways: &'a [String],
    namespace: &'a str,
) -> impl Iterator<Item = NamedGateway<'a>> {
    let usual = gateways.is_empty().then_some(MESH);
    let all = gateways.iter().map(String::as_str).chain(usual);
    all.map(move |one| full_name(one, namespace))
}
