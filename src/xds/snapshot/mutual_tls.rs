//! Mutual TLS between clients and the services of one state of the mesh (discovery.md §18).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use api::model::{Endpoint, ObjectRef, Registry, Service, ServiceKey, TlsMode, World};

use super::{Snapshot, accounts};
use crate::common::tls::PlaintextReason;
use crate::node::Node;
use crate::resources::endpoints::EndpointContext;
use crate::resources::mesh::{Mesh, MutualTls};
use crate::rules::peer_authentication::{MtlsMode, MtlsModes, takes_tls};
use crate::scope::policies::Policies;

/// PeerAuthentications that are named at the clusters of one service. Chosen: a service has workloads of a few kinds.
const MAX_NAMED: usize = 20;

/// Services whose workloads accept mutual TLS because policies say so, where the mesh itself has none.
#[derive(Debug, Default)]
pub(super) struct AcceptingServices {
    /// Namespaces with policies that may make workloads accept it; the root's may do so in all.
    namespaces: HashSet<Arc<str>>,
    /// The services, each with the policies by which its workloads accept it.
    all: HashMap<ServiceKey, BTreeSet<ObjectRef>>,
}

impl AcceptingServices {
    pub(super) fn new(world: &World, mesh: &Mesh, policies: &Policies) -> Self {
        // The mesh's own setting lets all clusters speak mutual TLS: no policy has to.
        if mesh.tls != MutualTls::Off {
            return Self::default();
        }
        let accepting = policies.all_peers().filter(|rule| takes_tls(rule.spec()));
        let mut services = Self {
            namespaces: accepting.map(|rule| rule.namespace().clone()).collect(),
            all: HashMap::new(),
        };
        if services.namespaces.is_empty() {
            return services;
        }
        for service in world.services.values() {
            let accepted = services.policies_in(world, (mesh, policies), service);
            if !accepted.is_empty() {
                services.all.insert(service.key.clone(), accepted);
            }
        }
        services
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The policies by which workloads of a service accept mutual TLS.
    pub(super) fn policies(&self, service: &ServiceKey) -> impl Iterator<Item = &ObjectRef> {
        self.all.get(service).into_iter().flatten()
    }

    /// Returns the policies by which the endpoints that a service has in `world` accept mutual TLS.
    fn policies_in(
        &self,
        world: &World,
        (mesh, policies): (&Mesh, &Policies),
        service: &Service,
    ) -> BTreeSet<ObjectRef> {
        let namespace = &service.key.namespace;
        let mut namespaces = [namespace, policies.root()].into_iter();
        let mut named = BTreeSet::new();
        if service.mesh_external || !namespaces.any(|one| self.namespaces.contains(one)) {
            return named;
        }
        let endpoints = world.endpoints_of(&service.key);
        for (_, endpoint) in endpoints.filter(|(_, one)| one.tls == TlsMode::Istio) {
            let who = (namespace, &*endpoint.labels);
            let modes = MtlsModes::new(policies, who, mesh.usual_mode(true));
            if modes.of_clients(endpoint.port) != MtlsMode::Disable {
                named.extend(modes.deciding(endpoint.port).cloned());
            }
            // The first ones by name stay, in whatever order endpoints come.
            if named.len() > MAX_NAMED {
                named.pop_last();
            }
        }
        named
    }
}

impl Snapshot {
    /// Returns true if a proxy goes without automatic mutual TLS, because it has no certificates.
    #[must_use]
    pub fn is_plain(&self, node: &Node) -> bool {
        // Endpoints come and go, and what is told of the proxy once does not.
        let by_policies = || !self.base.accepting.namespaces.is_empty();
        node.without_certificates
            && match self.base.mesh.tls {
                MutualTls::Auto => true,
                MutualTls::Off => by_policies(),
                MutualTls::Strict => false,
            }
    }

    /// The mode in which clients speak to an endpoint of a service in this namespace.
    #[must_use]
    pub fn tls_of(&self, namespace: &Arc<str>, endpoint: &Endpoint) -> TlsMode {
        if self.endpoint_context().takes_tls(namespace, endpoint) {
            TlsMode::Istio
        } else {
            TlsMode::Disabled
        }
    }

    /// Returns true if clients speak mutual TLS to workloads of a service that can, where no rule says something else.
    pub(super) fn has_tls(&self, service: &ServiceKey) -> bool {
        self.base.mesh.tls != MutualTls::Off || self.base.accepting.all.contains_key(service)
    }

    /// The reasons why some of a service's endpoints in `world` are called in plain text though their labels ask for mutual TLS.
    pub(super) fn plaintext_reasons(
        &self,
        world: &World,
        service: &Service,
    ) -> BTreeSet<PlaintextReason> {
        let context = self.endpoint_context_of(world);
        if context.plaintext.is_empty() && !context.policies.has_peers() {
            return BTreeSet::new();
        }
        let namespace = &service.key.namespace;
        let endpoints = world.endpoints_of(&service.key);
        endpoints
            .filter(|(_, endpoint)| endpoint.tls == TlsMode::Istio)
            .filter_map(|(_, endpoint)| context.plaintext_reason(namespace, endpoint))
            .collect()
    }

    /// Returns true if the clusters of a service say the same of mutual TLS with the endpoints that it has in `world`.
    pub(super) fn has_same_tls(&self, world: &World, service: &Service) -> bool {
        let base = &self.base;
        let now = base.accepting.policies(&service.key);
        if !now.eq(&base
            .accepting
            .policies_in(world, (&base.mesh, &base.policies), service))
        {
            return false;
        }
        let has_tls = self.has_tls(&service.key);
        // Its clusters say that connections are made anew.
        let reasons = |world| self.plaintext_reasons(world, service);
        if has_tls && reasons(&self.world) != reasons(world) {
            return false;
        }
        // Accounts are in clusters only where these check who answers; those of a ServiceEntry also where a rule has TLS of its own.
        let of_entry = base.checks_by_rules.names && service.registry == Registry::External;
        !(has_tls || base.checks_by_rules.accounts || of_entry)
            || accounts(&self.world, service) == accounts(world, service)
    }

    pub(super) fn endpoint_context(&self) -> EndpointContext<'_> {
        self.endpoint_context_of(&self.world)
    }

    fn endpoint_context_of<'a>(&'a self, world: &'a World) -> EndpointContext<'a> {
        EndpointContext {
            networks: &self.base.networks,
            plaintext: &world.plaintext,
            mesh: &self.base.mesh,
            policies: &self.base.policies,
        }
    }
}
