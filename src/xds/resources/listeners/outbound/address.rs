//! Listeners of one address: a service's own, or an endpoint's.

use std::net::IpAddr;
use std::sync::Arc;

use api::model::{ObjectRef, Registry, ServiceKey};
use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3::FilterChain;

use super::{Builder, Built, extras};
use crate::common::conflict::{Conflict, TCP_OVER_HTTP, TCP_OVER_TCP};
use crate::common::service_ports::ServicePort;
use crate::resources::filters::Extras;
use crate::resources::listeners::chain::{self, ChainConditions, Match, Reservation};
use crate::resources::listeners::ranges::{self, OwnedChain};
use crate::resources::listeners::{Frame, Inspect, ListenAddress, name};
use crate::rules::virtual_service::connections::Connections;
use crate::scope::is_sidecar;

impl Builder<'_> {
    /// Says that a service comes before this one, and why.
    fn has_it(&self, winner: &ServiceKey, service_port: &ServicePort) -> String {
        let host = winner.hostname.to_ascii_lowercase();
        let mut all = self.rules.service_ports().by_host(&host);
        let first = all.find(|one| one.service.key == *winner);
        let first = first.map_or("is older", |one| {
            one.service.why_first(&service_port.service)
        });
        format!("{} has it, which {first}", winner.hostname)
    }

    /// The service that has the address of a headless service's endpoint before it, and why. Endpoints are whatever the author of
    /// the service writes: those of Kubernetes that have the address themselves come first at any age. A ServiceEntry, whose
    /// addresses are its author's choice as well, comes behind.
    fn owner_of_endpoint(&self, service_port: &ServicePort, address: IpAddr) -> Option<String> {
        let (cluster, families) = (self.parameters.cluster.as_str(), self.parameters.families);
        let own = &service_port.service;
        let all = self.rules.service_ports();
        let mut all = all.at_address(address, service_port.port.number, cluster, families);
        let owner = all.find(|one| one.service.key != own.key)?;
        let host = &owner.service.key.hostname;
        match owner.service.precedence(own).is_lt() {
            true => Some(format!(
                "{host} has it, which {}",
                owner.service.why_first(own)
            )),
            false if owner.service.registry == Registry::Kubernetes => {
                Some(format!("{host} has it, and here it is an endpoint's"))
            }
            false => None,
        }
    }

    /// Returns true if an address belongs to another service, and adds the conflict.
    fn is_taken(&mut self, service_port: &ServicePort, address: IpAddr, endpoint: bool) -> bool {
        let owner = match endpoint {
            true => self.owner_of_endpoint(service_port, address),
            false => self.owner_of_requests(service_port, address),
        };
        let Some(why) = owner else {
            return false;
        };
        let message = format!("{} is left out: {why}", service_port.authority());
        let name = name(address, service_port.port.number);
        let conflict = Conflict::new(TCP_OVER_HTTP, name, message);
        let conflict = conflict.of_service(&service_port.service.key);
        self.lost.add(0, conflict);
        true
    }

    /// The conflict of a service whose address and port have this listener already.
    fn taken(&self, built: &Built, name: String, service_port: &ServicePort) -> Conflict {
        // The Sidecar's listeners come before those of all other services.
        let of_sidecar = built.resource.from.iter();
        let mut of_sidecar = of_sidecar.filter(|from| is_sidecar(from));
        let why = match (self.sidecar, of_sidecar.next(), built.services.first()) {
            (None, Some(sidecar), _) => format!("{sidecar} has a listener there"),
            (_, _, Some(winner)) => self.has_it(winner, service_port),
            (_, _, None) => "another listener is there".to_owned(),
        };
        let message = format!("{} is left out: {why}", service_port.authority());
        let conflict = Conflict::new(TCP_OVER_TCP, name, message);
        conflict.of_service(&service_port.service.key)
    }

    /// A listener of one address.
    pub(super) fn own_address(
        &mut self,
        service_port: &Arc<ServicePort>,
        address: IpAddr,
        endpoint: bool,
    ) {
        let port = service_port.port.number;
        let name = name(address, port);
        if let Some(built) = self.out.listeners.get(&name) {
            // One endpoint may serve two names.
            if !built.endpoint || !endpoint {
                let conflict = self.taken(built, name, service_port);
                self.lost.add(0, conflict);
            }
            return;
        }
        if self.is_taken(service_port, address, endpoint) {
            return;
        }
        let mut routes = Vec::new();
        let sniffs = service_port.protocol.is_auto() && !endpoint;
        let rule = self.connections(service_port);
        let by_rule = rule.as_ref().filter(|_| !service_port.protocol.is_http());
        let to = by_rule.and_then(|rule| rule.rest.as_deref());
        let mut from: Vec<ObjectRef> = by_rule.map(|rule| rule.from.clone()).into_iter().collect();
        let mut carries = Vec::new();
        let tcp = self.tcp(service_port, to, &mut carries);
        // What a rule leaves goes to the service, as it does without a rule.
        let sniffed = sniffs.then(|| self.http(&name, service_port.authority(), Extras::default()));
        // The listener is this service's alone, so no other rule has its conditions.
        let mut conditions = ChainConditions::default();
        let mut below = self.chains_below_wildcard(service_port, &mut conditions, &mut from);
        let has_names = !below.is_empty() || by_rule.is_some_and(Connections::has_names);
        let chains = by_rule.map_or_else(Vec::new, |rule| {
            let mut reservation = Reservation::new(&mut conditions, &rule.from);
            let make = |matching: Match, tcp| match &sniffed {
                Some(http) => chain::sniffed(&matching, http.clone(), vec![tcp]),
                None => vec![matching.chain(tcp)],
            };
            self.chains((service_port, rule), &mut reservation, &mut from, make)
        });
        let own = if service_port.protocol.is_http() {
            let route = port.to_string();
            routes.push(route.as_str().into());
            let http = self.http(&name, route, extras(service_port));
            vec![Match::any().chain(http)]
        } else if let Some(http) = sniffed {
            // The rules of the filter count only where the listener has the filter.
            from.append(&mut carries);
            routes.push(service_port.authority().as_str().into());
            chain::sniffed(&Match::any(), http, vec![tcp])
        } else {
            from.append(&mut carries);
            vec![Match::any().chain(tcp)]
        };
        let of_rule = |chain| match by_rule {
            Some(rule) => OwnedChain::of(&rule.from, chain),
            None => OwnedChain::from(chain),
        };
        below.extend(chains.into_iter().chain(own).map(of_rule));
        let chains = self.completed(below, &name);
        let frame = Frame {
            name,
            address: ListenAddress::Port(address, None, port),
            direction: TrafficDirection::Outbound,
            bound: false,
            inspect: Inspect {
                tls: sniffs || has_names,
                http: sniffs,
            },
            chains,
            default: None,
        };
        let own = [service_port.service.key.clone()];
        self.insert(frame, routes, Some(address), endpoint, from, &own);
    }

    /// The chains of a listener of one address, with those that ranges of a rule need.
    fn completed(&mut self, chains: Vec<OwnedChain>, name: &str) -> Vec<FilterChain> {
        let completed = ranges::complete(chains, self.room);
        self.lost.extend(completed.conflicts(name));
        completed.chains
    }

    pub(super) fn each_endpoint(&mut self, service_port: &Arc<ServicePort>) {
        for address in (self.endpoints)(service_port) {
            if self.parameters.families.has(address) && !address.is_unspecified() {
                self.own_address(service_port, address, true);
            }
        }
    }
}
