//! Addresses of services with requests. Such services share the listener of their port and have none at their addresses, so a
//! listener or a range of another service must not take what goes there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Address, Network, Registry};

use super::{Builder, EndpointAddresses, OutboundParameters};
use crate::common::conflict::{Conflict, TCP_OVER_HTTP};
use crate::common::service_ports::{ServicePort, ServicePorts};
use crate::common::steps::step;
use crate::common::wire;
use crate::resources::filters::Extras;
use crate::resources::listeners::chain::{Match, key};
use crate::resources::listeners::name;
use crate::rules::virtual_service::connections::Connections;

/// The first services with requests at an address: of those that have it themselves, and of headless ones with an endpoint there.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressOwners {
    by_address: Option<Arc<ServicePort>>,
    by_endpoint: Option<Arc<ServicePort>>,
}

/// The owners of addresses, for each port that was looked up.
#[derive(Debug, Default)]
pub(super) struct HttpAddresses(BTreeMap<u16, Arc<OfPort>>);

/// The owners of the addresses of one port.
pub(super) type OfPort = BTreeMap<IpAddr, AddressOwners>;

impl AddressOwners {
    /// One that comes before another service, and whether by an endpoint. The endpoints of a headless service are whatever its
    /// author writes, so they hold an address against ServiceEntries alone, and never against a Service of Kubernetes.
    fn before(&self, other: &ServicePort) -> Option<(&ServicePort, bool)> {
        let is_first = |one: &&Arc<ServicePort>| {
            let (own, other) = (&one.service, &other.service);
            own.precedence(other).is_lt() && own.key != other.key
        };
        let by_address = self.by_address.as_ref().filter(is_first);
        let may_hold = other.service.registry != Registry::Kubernetes;
        let by_endpoint = self.by_endpoint.as_ref().filter(|_| may_hold);
        let by_address = by_address.map(|one| (&**one, false));
        by_address.or_else(|| Some((&**by_endpoint.filter(is_first)?, true)))
    }
}

impl HttpAddresses {
    fn of_port(
        &mut self,
        port: u16,
        all: &ServicePorts,
        parameters: &OutboundParameters,
        endpoints: &EndpointAddresses<'_>,
    ) -> &Arc<OfPort> {
        self.0
            .entry(port)
            .or_insert_with(|| Arc::new(of_port(port, all, parameters, endpoints)))
    }
}

fn of_port(
    port: u16,
    all: &ServicePorts,
    parameters: &OutboundParameters,
    endpoints: &EndpointAddresses<'_>,
) -> OfPort {
    let mut owners = OfPort::new();
    let mut add = |address: IpAddr, service_port: &Arc<ServicePort>, endpoint: bool| {
        let owners: &mut AddressOwners = step(|| owners.entry(address)).or_default();
        let first = match endpoint {
            true => &mut owners.by_endpoint,
            false => &mut owners.by_address,
        };
        // Ports come by precedence of their services: the first to arrive holds the address.
        first.get_or_insert_with(|| service_port.clone());
    };
    let with_requests = || all.of_port(port).filter(|one| one.protocol.is_http());
    for one in with_requests() {
        for address in one.addresses(parameters.cluster.as_str(), parameters.families) {
            if let Address::Plain(address) = address {
                add(address, one, false);
            }
        }
    }
    for one in with_requests().filter(|one| one.service.is_headless()) {
        let reached = endpoints(one).into_iter();
        for address in reached.filter(|address| parameters.families.has(*address)) {
            add(address, one, true);
        }
    }
    owners
}

impl Builder<'_> {
    fn http_addresses_at(&mut self, port: u16) -> Arc<OfPort> {
        let all = self.rules.service_ports();
        let of_port = self
            .http_addresses
            .of_port(port, all, self.parameters, self.endpoints);
        of_port.clone()
    }

    /// The service with requests that has an address before this one, and why.
    pub(super) fn owner_of_requests(
        &mut self,
        service_port: &ServicePort,
        address: IpAddr,
    ) -> Option<String> {
        let owners = self.http_addresses_at(service_port.port.number);
        let (owner, by_endpoint) = owners.get(&address)?.before(service_port)?;
        let what = match by_endpoint {
            true => "an endpoint of ",
            false => "",
        };
        let why = owner.service.why_first(&service_port.service);
        let host = &owner.service.key.hostname;
        Some(format!("{what}{host} has it, which {why}"))
    }

    /// Addresses in these ranges of services with requests that come before this one, as far as no range left them to those yet.
    pub(super) fn http_addresses_in(
        &mut self,
        service_port: &ServicePort,
        ranges: impl Iterator<Item = Network>,
    ) -> Vec<IpAddr> {
        let port = service_port.port.number;
        let all = self.http_addresses_at(port);
        let shared = self.shared.entry(port).or_default();
        let unreserved = shared.unreserved.get_or_insert_with(|| (*all).clone());
        let mut addresses = Vec::new();
        // What a service before has whole it keeps, and its addresses were looked at: of different ranges around one address there
        // are as many as it has bits.
        let matched = &shared.matched;
        let ranges = ranges.filter(|range| !matched.contain(&key(Some(range), "", None)));
        for range in widest(ranges) {
            let within = unreserved.range(range.first()..);
            let within = within.take_while(|(address, _)| step(|| range.contains(**address)));
            let before = within.filter(|(_, owners)| owners.before(service_port).is_some());
            addresses.extend(before.map(|(address, _)| *address));
        }
        for address in &addresses {
            unreserved.remove(address);
        }
        addresses
    }

    /// Leaves those addresses the requests that a listener of ranges would take.
    pub(super) fn route_http_addresses(&mut self, port: u16, addresses: &[IpAddr]) {
        let shared = self.shared.entry(port).or_default();
        let mut addresses = addresses.to_vec();
        addresses.retain(|address| {
            let one = Network::new(*address, wire::all_bits(*address));
            shared.matched.reserve(key(one.as_ref(), "", None), None)
        });
        if addresses.is_empty() {
            return;
        }
        let listener = name(self.wildcard.address, port);
        let requests = self.http(&listener, port.to_string(), Extras::default());
        let shared = self.shared.entry(port).or_default();
        shared.routed = true;
        let chain = Match::any().addresses(&addresses).chain(requests);
        shared.chains.push(chain.into());
    }

    /// Takes from a rule the ranges that are one address which another service holds, and tells it. Returns those that are left.
    pub(super) fn without_http_addresses(
        &mut self,
        service_port: &ServicePort,
        rule: &mut Connections,
    ) -> Vec<Network> {
        let mut ranges = Vec::new();
        let mut lost = 0_usize;
        rule.targets.retain_mut(|target| {
            let before = target.ranges.len();
            target
                .ranges
                .retain(|range| !self.is_http_address(service_port, range));
            ranges.extend(target.ranges.iter().copied());
            lost += before - target.ranges.len();
            // A target without ranges means every address: one that loses its last must go.
            before == 0 || !target.ranges.is_empty()
        });
        if lost > 0 {
            let message = format!(
                "{lost} destinationSubnets of {} are left out for {}: they are addresses of services with requests that come first",
                rule.from,
                service_port.authority()
            );
            let conflict = Conflict::new(TCP_OVER_HTTP, &*service_port.name, message);
            self.lost.add(0, conflict.because_of(&rule.from));
        }
        ranges
    }

    /// Returns true if a range is one address that another service holds.
    pub(super) fn is_http_address(&mut self, service_port: &ServicePort, range: &Network) -> bool {
        let address = range.first();
        range.prefix() == wire::all_bits(address)
            && self.owner_of_requests(service_port, address).is_some()
    }
}

/// Ranges without those that are in another one.
fn widest(ranges: impl Iterator<Item = Network>) -> Vec<Network> {
    let mut all: Vec<_> = ranges.collect();
    all.sort_unstable();
    // In order a range stands behind those around it.
    all.dedup_by(|inner, outer| outer.contains(inner.first()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_in_another_is_not_looked_through_twice() {
        let of = |written: &[&str]| {
            let all = written.iter().map(|one| one.parse().unwrap());
            let widest = widest(all).into_iter();
            widest.map(|one| one.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            of(&[
                "10.1.0.0/16",
                "10.0.0.0/8",
                "10.0.0.0/9",
                "10.2.0.0/16",
                "11.0.0.0/16",
                "fd00::/8",
                "fd00:1::/32"
            ]),
            ["10.0.0.0/8", "11.0.0.0/16", "fd00::/8"]
        );
    }
}
