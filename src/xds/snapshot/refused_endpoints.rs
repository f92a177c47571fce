//! Endpoints that clusters of proxies may not lead to: they mean each proxy itself.

use std::collections::BTreeMap;

use api::model::{EndpointAddress, Service, ServiceKey, World};

use super::Conflict;
use crate::common::conflict::{Conflicts, INVALID_LISTENER};
use crate::resources::endpoints::own_port;
use crate::resources::listeners::{is_beside, is_every_proxys};
use crate::resources::mesh::Mesh;

/// The reason why no cluster leads to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refusal {
    /// A port of each proxy's own.
    ToAll,
    /// A place beside each proxy: those of the service's namespace have it.
    ToOtherNamespaces,
}

impl Refusal {
    /// `None`: clusters may lead there.
    pub(super) fn of(address: &EndpointAddress, port: u16, mesh: &Mesh) -> Option<Self> {
        if is_every_proxys(address, port, mesh) {
            return Some(Self::ToAll);
        }
        is_beside(address).then_some(Self::ToOtherNamespaces)
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::ToAll => "each proxy itself listens there",
            Self::ToOtherNamespaces => {
                "it is beside each proxy, and for those of the namespace alone"
            }
        }
    }
}

/// Endpoints of one service that are refused for one reason.
#[derive(Debug, PartialEq, Eq)]
struct RefusedOfService {
    first: (EndpointAddress, u16),
    count: usize,
}

impl RefusedOfService {
    fn conflict(&self, service: &ServiceKey, refusal: Refusal) -> Conflict {
        let (namespace, hostname) = (&service.namespace, &service.hostname);
        let (address, port) = &self.first;
        let more = match self.count {
            0 | 1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        let message = format!(
            "the endpoint {address}, port {port}{more}, of {namespace}/{hostname} is left out: {}",
            refusal.reason()
        );
        Conflict::new(INVALID_LISTENER, &**hostname, message)
            .of_service(service)
            .standing_for(self.count)
    }
}

/// The endpoints of a world that are refused, by service and reason.
#[derive(Debug, Default)]
pub(super) struct RefusedEndpoints(BTreeMap<ServiceKey, ByRefusal>);

type ByRefusal = BTreeMap<Refusal, RefusedOfService>;

impl RefusedEndpoints {
    pub(super) fn new(world: &World, mesh: &Mesh) -> Self {
        let services = world.services.values();
        let all = services.map(|service| (service.key.clone(), refused_of(world, service, mesh)));
        Self(all.filter(|(_, refused)| !refused.is_empty()).collect())
    }

    /// Returns true if a later world has other ones of this service.
    pub(super) fn differ(&self, later: &World, service: &Service, mesh: &Mesh) -> bool {
        let later = refused_of(later, service, mesh);
        self.0.get(&service.key).unwrap_or(&ByRefusal::new()) != &later
    }

    /// The conflicts of those that are no proxy's, one for each service.
    pub(super) fn conflicts(&self) -> Vec<Conflict> {
        let mut conflicts = Conflicts::default();
        for (service, refused) in &self.0 {
            if let Some(refused) = refused.get(&Refusal::ToAll) {
                conflicts.add(0, refused.conflict(service, Refusal::ToAll));
            }
        }
        conflicts.finish()
    }

    /// The conflict of those that proxies of other namespaces than the service's do not have.
    pub(super) fn for_others(&self, service: &ServiceKey) -> Option<Conflict> {
        let refusal = Refusal::ToOtherNamespaces;
        let refused = self.0.get(service)?.get(&refusal)?;
        Some(refused.conflict(service, refusal))
    }
}

fn refused_of(world: &World, service: &Service, mesh: &Mesh) -> ByRefusal {
    let mut all = ByRefusal::new();
    let mut add = |address: &EndpointAddress, port: u16| {
        if let Some(refusal) = Refusal::of(address, port, mesh) {
            let refused = all.entry(refusal).or_insert_with(|| RefusedOfService {
                first: (address.clone(), port),
                count: 0,
            });
            refused.count += 1;
        }
    };
    let mut endpoints = world.endpoints_of(&service.key).peekable();
    let means_itself = service.resolution.is_dns() && service.selector.is_empty();
    if means_itself && endpoints.peek().is_none() {
        let address = EndpointAddress::read(&service.key.hostname);
        let ports = service.ports.iter();
        ports.for_each(|port| add(&address, own_port(port)));
    }
    endpoints.for_each(|(_, endpoint)| add(&endpoint.address, endpoint.port));
    all
}
