//! The ports of a world, by the hosts that rules have: what no port is for is found by them.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, HashMap, HashSet};

use api::model::{Protocol, Service, World};

use super::gateways::GENERATED;
use super::{Rule, patterns};
use crate::common::service_ports::{ServicePort, ServicePorts};

/// Ports of services that are looked at for one rule. Chosen: a rule has a few, and of one with more nothing is told.
const MAX_PORTS: usize = 1000;
/// Ports that are looked at for all rules together, anew with each full push. Chosen: some milliseconds, and meshes of ten
/// thousand rules have fewer.
const MAX_LOOKUPS: usize = 50_000;
/// Services that are looked at for one wildcard.
const MAX_SERVICES: usize = 100;

/// The ports of the services that have hosts of one rule.
#[derive(Debug, Default)]
pub(super) struct PortsOfRule<'a> {
    pub(super) all: Vec<&'a ServicePort>,
    /// Ports of services whose wildcards mean a host.
    pub(super) below: Vec<&'a ServicePort>,
    /// A host is one that no service has, a wildcard, or below one of a service.
    pub(super) has_others: bool,
    /// A Sidecar may say that requests are connections, with the port of an egress listener.
    pub(super) may_be_connections: bool,
    /// There are more.
    pub(super) is_cut: bool,
}

/// The ports of a world.
pub(super) struct WorldPorts<'a> {
    world: &'a World,
    services: &'a ServicePorts,
    /// Hosts of services, by how they read from their ends.
    hosts: OnceCell<BTreeMap<String, &'a str>>,
    gateways: OnceCell<GatewayPorts<'a>>,
    /// A Sidecar declares a port of another protocol than HTTP.
    pub(super) declares_connections: bool,
    /// A Sidecar declares a port of HTTP, outbound or inbound, or does not say of what: requests of it may lead to ports of any protocol.
    pub(super) declares_requests: bool,
    /// Look-ups that are left.
    left: Cell<usize>,
}

/// Ports of Gateways, by namespace and name.
type GatewayPorts<'a> = HashMap<(&'a str, &'a str), HashSet<u32>>;

impl<'a> WorldPorts<'a> {
    pub(super) fn new(world: &'a World, services: &'a ServicePorts) -> Self {
        let sidecars = || world.sidecars.values().map(|one| &one.spec);
        let egress = || {
            let listeners = sidecars().flat_map(|one| &one.egress);
            listeners.filter_map(|one| Some(one.port.as_ref()?.protocol.as_str()))
        };
        // An ingress listener has the pool of its service's rules, and its own protocol.
        let ingress = sidecars().flat_map(|one| &one.ingress);
        let ingress = ingress.filter_map(|one| Some(one.port.as_ref()?.protocol.as_str()));
        let declares_connections = egress().any(|name| {
            let protocol = Protocol::of_service_entry(name);
            !name.is_empty() && protocol.is_some_and(|one| !one.is_http())
        });
        let mut all = egress().chain(ingress).map(Protocol::of_service_entry);
        let declares_requests =
            all.any(|one| one.is_some_and(|one| one.is_http() || one.is_auto()));
        Self {
            world,
            services,
            hosts: OnceCell::new(),
            gateways: OnceCell::new(),
            declares_connections,
            declares_requests,
            left: Cell::new(MAX_LOOKUPS),
        }
    }

    /// Each sort of rules has as many look-ups.
    pub(super) fn renew(&self) {
        self.left.set(MAX_LOOKUPS);
    }

    /// Returns true if the endpoints of a service are known.
    pub(super) fn has_endpoints(&self, service: &Service) -> bool {
        self.world.endpoints_of(&service.key).next().is_some()
    }

    /// Adds the ports of a host; false: it has none.
    fn add(&self, ports: &mut PortsOfRule<'a>, host: &str) -> bool {
        let before = ports.all.len();
        for one in self.services.of_world(host) {
            let remaining = self.left.get();
            if ports.all.len() == MAX_PORTS || remaining == 0 {
                ports.is_cut = true;
                return true;
            }
            self.left.set(remaining - 1);
            ports.all.push(one);
        }
        ports.all.len() > before
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

    /// Adds the ports of services whose wildcards mean a host: what is for the host comes in at these, too.
    fn add_wildcards(&self, ports: &mut PortsOfRule<'a>, host: &str) {
        if !self.services.has_wildcards() {
            return;
        }
        for wildcard in patterns(host).iter().skip(1) {
            for one in self.services.of_world(wildcard) {
                let remaining = self.left.get();
                if ports.below.len() == MAX_PORTS || remaining == 0 {
                    ports.is_cut = true;
                    return;
                }
                self.left.set(remaining - 1);
                ports.below.push(one);
            }
        }
    }

    pub(super) fn of_rule<T>(&self, rule: &Rule<T>) -> PortsOfRule<'a> {
        let mut ports = PortsOfRule {
            may_be_connections: self.declares_connections,
            is_cut: self.left.get() == 0,
            ..PortsOfRule::default()
        };
        for host in rule.hosts() {
            // Nothing is told of it then.
            if ports.is_cut {
                break;
            }
            self.add_wildcards(&mut ports, host);
            ports.has_others |= !ports.below.is_empty();
            let end = host.strip_prefix('*').map(reversed);
            let Some(end) = end else {
                ports.has_others |= !self.add(&mut ports, host);
                continue;
            };
            // The wildcard of a service is a host of its own.
            ports.has_others |= self.services.of_world(host).next().is_none();
            let below = self.hosts().range(end.clone()..);
            let mut below = below.take_while(|(host, _)| host.starts_with(&end));
            for (_, host) in below.by_ref().take(MAX_SERVICES) {
                self.add(&mut ports, host);
            }
            ports.is_cut |= below.next().is_some();
        }
        ports
    }

    /// Returns true if a Gateway that a rule of a namespace names may have a server on this port.
    pub(super) fn may_serve(&self, (namespace, name): (&str, &str), port: u32) -> bool {
        // Of one that is not there nothing is known, and Ingresses have any number.
        let ports = self.gateways().get(&(namespace, name));
        (namespace, name) == GENERATED || ports.is_none_or(|ports| ports.contains(&port))
    }
}

/// Returns the host in lower case, from its end.
fn reversed(host: &str) -> String {
    let letters = host.chars().rev();
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}
