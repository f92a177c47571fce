//! ServiceEntries of one namespace with one host: one service, whose ports and resolution are the oldest entry's, and whose
//! endpoints, addresses and accounts are those of all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::{ClusterId, Endpoint, EndpointAddress, EndpointShards, Port, Resolution, Service};

use super::ServiceCandidate;
use crate::aggregate::report::Report;
use crate::aggregate::service_entry::KIND;

/// Merges the services: the oldest one, with the addresses, accounts and endpoints of the others.
pub(super) fn service(
    oldest: &ServiceCandidate<'_>,
    others: &[&ServiceCandidate<'_>],
) -> Arc<Service> {
    let mut service = oldest.service.clone();
    for other in others.iter().map(|other| other.service) {
        let is_known = other.accounts.is_subset(&service.accounts);
        if !is_known {
            let one = Arc::make_mut(&mut service);
            one.accounts.extend(other.accounts.iter().cloned());
        }
        for (cluster, addresses) in &other.addresses {
            let known = service.addresses.get(cluster);
            let is_new = |address: &_| !known.is_some_and(|known| known.contains(address));
            let new: Vec<_> = addresses.iter().copied().filter(is_new).collect();
            if !new.is_empty() {
                let one = Arc::make_mut(&mut service);
                one.addresses
                    .entry(cluster.clone())
                    .or_default()
                    .extend(new);
            }
        }
    }
    service
}

/// The endpoints of all, under the names that the oldest one gives the ports.
pub(super) fn shards(
    oldest: &ServiceCandidate<'_>,
    others: &[&ServiceCandidate<'_>],
) -> EndpointShards {
    let mut all: BTreeMap<ClusterId, BTreeSet<Endpoint>> = BTreeMap::new();
    for candidate in std::iter::once(&oldest).chain(others) {
        let names = names(oldest.service, candidate.service);
        let shards = candidate.made.iter().flat_map(|used| used.shards.iter());
        for (cluster, shard) in shards {
            let usable = shard
                .iter()
                .filter(|endpoint| !is_unresolved(oldest, endpoint));
            let renamed = usable.filter_map(|endpoint| {
                let name = names.get(&endpoint.port_name)?;
                Some(Endpoint {
                    port_name: Arc::clone(name),
                    ..endpoint.clone()
                })
            });
            all.entry(cluster.clone()).or_default().extend(renamed);
        }
    }
    let all = all.into_iter().filter(|(_, shard)| !shard.is_empty());
    all.map(|(cluster, shard)| (cluster, shard.into_iter().collect()))
        .collect()
}

/// By the name of a port in an entry, its name in the oldest: the same, else that of the same number.
fn names<'a>(oldest: &'a Service, other: &'a Service) -> BTreeMap<&'a Arc<str>, &'a Arc<str>> {
    let ports = other.ports.iter();
    ports
        .filter_map(|port| Some((&port.name, &matching_port(oldest, port)?.name)))
        .collect()
}

fn matching_port<'a>(oldest: &'a Service, port: &Port) -> Option<&'a Port> {
    let by_name = oldest.ports.iter().find(|one| one.name == port.name);
    by_name.or_else(|| oldest.ports.iter().find(|one| one.number == port.number))
}

/// Envoy takes no name in an assignment.
fn is_unresolved(oldest: &ServiceCandidate<'_>, endpoint: &Endpoint) -> bool {
    let is_name = matches!(endpoint.address, EndpointAddress::Name(_));
    is_name && oldest.service.resolution == Resolution::Static
}

/// Reports the parts of an entry that are not used beside an older one.
pub(super) fn differences<'a>(
    oldest: &'a ServiceCandidate<'_>,
    other: &'a ServiceCandidate<'_>,
) -> impl Iterator<Item = Report> {
    let used = oldest.made.zip(other.made);
    used.into_iter().flat_map(move |(first, entry)| {
        let host = &other.service.key.hostname;
        let (namespace, name) = &first.key;
        let older = format!("{KIND} {namespace}/{name}, which is older");
        let (one, two) = (oldest.service.resolution, other.service.resolution);
        let resolution = (one != two).then(|| {
            format!(
                "resolution {} of {host} is not used: {older}, says {}",
                two.as_str(),
                one.as_str()
            )
        });
        let ports = other.service.ports.iter();
        let ports = ports.filter(|port| {
            !oldest
                .service
                .ports
                .iter()
                .any(|existing| is_same(existing, port))
        });
        let ports = ports.map(|port| {
            format!(
                "port {} {} {} of {host} is not used: {older}, has the ports of that name",
                port.name, port.number, port.protocol
            )
        });
        let all = resolution.into_iter().chain(ports);
        all.map(|message| Report {
            source: other.source.clone(),
            kind: KIND,
            namespace: entry.key.0.clone(),
            name: entry.key.1.clone(),
            message,
            whole: false,
        })
        .collect::<Vec<_>>()
    })
}

/// Compares number and protocol; the target port may differ between entries.
fn is_same(one: &Port, other: &Port) -> bool {
    (one.number, one.protocol) == (other.number, other.protocol)
}
