//! Listeners of one address: a service's own, or an endpoint's.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Address, Endpoint, Network, ObjectRef, ServiceKey};
use api::networking::{DiscoveryKind, Sidecar};
use envoy_types::pb::envoy::config::core::v3::TrafficDirection;

use super::{Builder, extras};
use crate::common::conflict::{Conflict, TCP_OVER_HTTP, TCP_OVER_TCP};
use crate::common::service_ports::ServicePort;
use crate::resources::filters::Extras;
use crate::resources::listeners::chain::{self, Match};
use crate::resources::listeners::{Frame, Inspect, ListenAddress, name};
use crate::rules::virtual_service::connections::Connections;

impl Builder<'_> {
    /// That a service comes before this one, and why.
    fn has_it(&self, winner: &ServiceKey, service_port: &ServicePort) -> String {
        let host = winner.hostname.to_ascii_lowercase();
        let mut all = self.rules.service_ports().by_host(&host);
        let first = all.find(|one| one.service.key == *winner);
        let first = first.map_or("is older", |one| {
            one.service.why_first(&service_port.service)
        });
        format!("{} has it, which {first}", winner.hostname)
    }

    /// The service that an address belongs to before this one. A listener of the address would take its connections: services
    /// with requests have none of their own, since they share that of their port. The endpoints of a headless service come
    /// behind every service that has the address.
    fn holder(
        &self,
        service_port: &ServicePort,
        address: IpAddr,
        endpoint: bool,
    ) -> Option<&Arc<ServicePort>> {
        let (cluster, families) = (self.place.cluster.as_str(), self.place.families);
        let all = self.rules.service_ports();
        all.by_address(address, cluster, families)
            .into_iter()
            .find(|one| {
                let (holder, own) = (&one.service, &service_port.service);
                let comes_first = one.protocol.is_http() && holder.precedence(own).is_lt();
                one.port.number == service_port.port.number
                    && holder.key != own.key
                    && (endpoint || comes_first)
            })
    }

    /// Returns true if an address belongs to another service, and adds the conflict.
    fn is_held(&mut self, service_port: &ServicePort, address: IpAddr, endpoint: bool) -> bool {
        let Some(holder) = self.holder(service_port, address, endpoint) else {
            return false;
        };
        let why = self.has_it(&holder.service.key, service_port);
        let message = format!("{} is left out: {why}", service_port.authority());
        let name = name(address, service_port.port.number);
        let conflict = Conflict::new(TCP_OVER_HTTP, name, message);
        let conflict = conflict.of_service(&service_port.service.key);
        self.out.conflicts.push(conflict);
        true
    }

    /// Addresses of services with requests that come before this one and are in its ranges.
    pub(super) fn held_in(&self, service_port: &ServicePort, ranges: &[Network]) -> Vec<IpAddr> {
        let (cluster, families) = (self.place.cluster.as_str(), self.place.families);
        let all = self.rules.service_ports();
        let first = all.of_port(service_port.port.number).filter(|one| {
            one.protocol.is_http() && one.service.precedence(&service_port.service).is_lt()
        });
        let addresses = first.flat_map(|one| one.addresses(cluster, families));
        let plain = addresses.filter_map(|address| match address {
            Address::Plain(address) => Some(address),
            Address::Range(_) => None,
        });
        plain
            .filter(|address| ranges.iter().any(|range| range.contains(*address)))
            .collect()
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
                // The Sidecar's listeners come before those of all other services.
                let of_sidecar = built.resource.from.iter();
                let mut of_sidecar = of_sidecar.filter(|from| from.kind == Sidecar::NAME);
                let why = match (self.sidecar, of_sidecar.next(), built.services.first()) {
                    (None, Some(sidecar), _) => format!("{sidecar} has a listener there"),
                    (_, _, Some(winner)) => self.has_it(winner, service_port),
                    (_, _, None) => "another listener is there".to_owned(),
                };
                let message = format!("{} is left out: {why}", service_port.authority());
                let conflict = Conflict::new(TCP_OVER_TCP, name, message);
                let conflict = conflict.of_service(&service_port.service.key);
                self.out.conflicts.push(conflict);
            }
            return;
        }
        if self.is_held(service_port, address, endpoint) {
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
        let has_names = by_rule.is_some_and(Connections::has_names);
        let sniffed = sniffs.then(|| self.http(&name, service_port.authority(), Extras::default()));
        let mut chains = by_rule.map_or_else(Vec::new, |rule| {
            self.chains(
                (service_port, rule),
                &mut BTreeSet::new(),
                &mut from,
                |matching, tcp| match &sniffed {
                    Some(http) => chain::sniffed(&matching, http.clone(), vec![tcp]),
                    None => vec![matching.chain(tcp)],
                },
            )
        });
        let own = if service_port.protocol.is_http() {
            let route = port.to_string();
            routes.push(route.as_str().into());
            let http = self.http(&name, route, extras(service_port));
            vec![Match::any().chain(http)]
        } else if let Some(http) = sniffed {
            from.append(&mut carries);
            routes.push(service_port.authority().as_str().into());
            chain::sniffed(&Match::any(), http, vec![tcp])
        } else {
            from.append(&mut carries);
            vec![Match::any().chain(tcp)]
        };
        chains.extend(own);
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

    pub(super) fn each_endpoint(
        &mut self,
        service_port: &Arc<ServicePort>,
        endpoints: &[&Endpoint],
    ) {
        for address in endpoints
            .iter()
            .filter_map(|endpoint| endpoint.address.ip())
        {
            if self.place.families.has(address) && !address.is_unspecified() {
                self.own_address(service_port, address, true);
            }
        }
    }
}
