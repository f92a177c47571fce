//! Listeners at the proxy's own addresses that end connections to ports which are not its application's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::proxy::ProxyView;
use crate::resources::listeners::name;
use crate::resources::listeners::outbound::Outbound;
use crate::resources::listeners::virtual_listeners::black_hole;
use crate::view::Resource;

/// A proxy says itself which addresses it has, and each costs it a listener for each port.
const MAX_ADDRESSES: usize = 8;

/// Addresses and ports, by the names of their listeners.
type ListenAddresses = BTreeMap<String, (IpAddr, u16)>;

impl ProxyView {
    /// Returns the proxy's own addresses with each port for which services have a listener of all addresses. Interception as
    /// Istio 1.1 had it looks for inbound connections among outbound listeners: a stranger on the network would call services
    /// as this proxy.
    pub(super) fn addresses_in_services(&self, shared: &Outbound) -> ListenAddresses {
        let bound: BTreeSet<String> = self.own().bound().collect();
        let listeners = shared.listeners.iter();
        let listeners = listeners.filter(|(name, _)| !bound.contains(*name));
        let ports = listeners.filter_map(|(_, built)| built.port_of_all);
        let addresses = self.inputs.proxy.node.addresses.iter().copied();
        let addresses = addresses.filter(|address| !address.is_unspecified());
        let addresses = addresses.take(MAX_ADDRESSES);
        ports
            .flat_map(|port| addresses.clone().map(move |address| (address, port)))
            .map(|(address, port)| (name(address, port), (address, port)))
            // A Sidecar may bind a listener of services at an address of the proxy.
            .filter(|(name, _)| !shared.listeners.get(name).is_some_and(|one| self.has(one)))
            .collect()
    }

    /// Adds a listener at each of these places where the proxy has none of its own. Proxies share the listeners of services, so
    /// those have no chains for the addresses of one proxy. No patch changes what it adds: one for a port of the application that
    /// names a port of services would seem to match.
    pub(super) fn add_black_holes(
        &self,
        mut addresses: ListenAddresses,
        own: &mut Vec<Arc<Resource>>,
    ) {
        for one in &*own {
            addresses.remove(&*one.name);
        }
        for name in self.own().bound() {
            addresses.remove(&name);
        }
        let addresses = addresses.into_values();
        own.extend(addresses.map(|(address, port)| {
            let draft = black_hole(address, port, self.mesh());
            Arc::new(draft.finish())
        }));
    }
}
