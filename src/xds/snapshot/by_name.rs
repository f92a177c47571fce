//! Resources that are made by name: assignments, and all that a program with gRPC in it asks for.

use std::sync::Arc;

use api::istio::networking::v1alpha3::Subset;
use api::model::{Locality, Resolution, ServiceKey};

use super::proxy::{ProxyView, network};
use super::shared_resources::GrpcResource;
use super::{AssignmentKey, Assignments};
use crate::cluster_names;
use crate::common::service_ports::{self, ServicePort};
use crate::resource_names::ResourceNames;
use crate::resources::clusters::ByServerName;
use crate::resources::endpoints::{self, Names, Viewer};
use crate::resources::grpc::{self, GrpcClient, Target};
use crate::resources::locality::Preference;
use crate::resources::routes;
use crate::rules::destination_rule::{EffectivePolicy, ServicePolicies};
use crate::view::{Resource, Type};

impl ProxyView {
    /// The cache of assignments with this preference, shared by all who see the same.
    fn assignments_by(&self, preference: &Preference<'_>) -> &Assignments {
        match preference {
            Preference::None => &self.parts.assignments,
            Preference::Levels(_) if preference.is_by_labels() => &self.parts.ranked,
            Preference::Levels(_) | Preference::Shares(_) => &self.parts.near,
        }
    }

    /// The port of a cluster, and its subset, which may not be there.
    fn service_port<'a>(&'a self, name: &'a str) -> Option<(&'a Arc<ServicePort>, &'a str)> {
        let service_ports = self.inputs.rules.service_ports();
        let whole = service_ports
            .by_name(name)
            .map(|service_port| (service_port, ""));
        let found = whole.or_else(|| service_ports.by_subset(name));
        found.or_else(|| self.by_server_name(name))
    }

    /// Returns the port and the subset of a cluster that TLS is led to by its server name.
    fn by_server_name<'a>(&'a self, name: &'a str) -> Option<(&'a Arc<ServicePort>, &'a str)> {
        let is_asked = self.inputs.client.by_server_name == ByServerName::Always;
        let (port, subset, host) = is_asked.then(|| cluster_names::of_server_name(name))??;
        let service_port = self
            .inputs
            .rules
            .service_ports()
            .by_name(&service_ports::cluster_name(port, host))?;
        Some((service_port, subset))
    }

    /// The services that a cluster, an assignment, a listener or the routes of one port are about.
    pub(super) fn services_by_name(&self, kind: Type, name: &str) -> Vec<ServiceKey> {
        let service_port = match kind {
            Type::Cluster | Type::Endpoint => self.service_port(name).map(|(found, _)| found),
            Type::Route => self.service_port_of_routes(name),
            Type::Listener if self.is_sidecar() && !self.inputs.proxy.node.grpc => {
                let all = self.outbound_listeners();
                let built = all.listeners.get(name);
                return built.map_or_else(Vec::new, |built| built.services.to_vec());
            }
            Type::Listener | Type::Secret => None,
        };
        let key = service_port.map(|service_port| service_port.service.key.clone());
        key.into_iter().collect()
    }

    /// The port whose routes have the name `HOST:PORT`.
    fn service_port_of_routes(&self, name: &str) -> Option<&Arc<ServicePort>> {
        let (host, port) = name.rsplit_once(':')?;
        let name = service_ports::cluster_name(port.parse().ok()?, host);
        self.inputs.rules.service_ports().by_name(&name)
    }

    /// The name that all share who have it.
    pub(super) fn assignment_name(&self, name: &str) -> Option<Arc<str>> {
        self.assignment_name_of(name, self.service_port(name)?)
    }

    fn assignment_name_of(
        &self,
        name: &str,
        (service_port, subset): (&Arc<ServicePort>, &str),
    ) -> Option<Arc<str>> {
        if !self.is_by_eds(name) {
            return None;
        }
        if subset.is_empty() && *service_port.name == *name {
            return Some(service_port.name.clone());
        }
        if self.inputs.proxy.node.grpc {
            let policies = ServicePolicies::of_service(&self.inputs.rules, &service_port.service);
            return policies.subset(subset).map(|_| name.into());
        }
        // A subset beyond the bounds has no cluster, so nobody may ask for its endpoints.
        let clusters = self.outbound_clusters();
        clusters.get(name).map(|cluster| cluster.name.clone())
    }

    /// The key of an assignment: its name, the service's namespace, and the rules that had a part in it.
    fn assignment_key(
        (name, namespace): (Arc<str>, &Arc<str>),
        policies: &ServicePolicies,
        policy: &EffectivePolicy<'_>,
        subset: Option<&Subset>,
    ) -> AssignmentKey {
        let is_near = policy.locality().is_some() || policy.zones().is_some();
        // The key has the rules only where they change the assignment: all other proxies share it.
        let by_rules = subset.is_some() || is_near;
        let from = if by_rules {
            policies.from(subset).into()
        } else {
            Arc::default()
        };
        (name, namespace.clone(), from)
    }

    /// Ports and endpoints of which no assignment was made yet.
    pub(super) fn unbuilt_assignments(&self, names: &ResourceNames) -> usize {
        let snapshot = &self.snapshot;
        let service_ports = names.iter().filter_map(|name| {
            let (service_port, subset) = self.service_port(name)?;
            let policies = ServicePolicies::of_service(&self.inputs.rules, &service_port.service);
            let subset = match subset {
                "" => None,
                subset => Some(policies.subset(subset)?),
            };
            let policy = policies.of(subset, service_port.port.number);
            let name = (name.into(), &service_port.service.key.namespace);
            let key = Self::assignment_key(name, &policies, &policy, subset);
            let assignments = self.assignments_by(&self.preference(service_port, &policy));
            (!assignments.has(&key)).then_some(service_port)
        });
        service_ports
            .map(|service_port| {
                let key = &service_port.service.key;
                let endpoints =
                    snapshot
                        .by_port()
                        .count(&snapshot.world, key, &service_port.port.name);
                endpoints.saturating_add(1)
            })
            .sum()
    }

    /// Ports of all services, with the parts of each that make more of it: addresses, and the accounts that may answer; and the
    /// rules. If endpoints have listeners of their own, those count, too.
    pub(super) fn unbuilt_of_services(&self) -> usize {
        let snapshot = &self.snapshot;
        let service_ports = self.inputs.rules.service_ports();
        let headless = snapshot.settings.headless.listeners;
        let headless = service_ports
            .all()
            .filter(|service_port| headless && service_port.has_listeners());
        let endpoints = headless.map(|service_port| {
            let (key, port) = (&service_port.service.key, &service_port.port.name);
            snapshot.by_port().count(&snapshot.world, key, port)
        });
        let size = service_ports.size.saturating_add(endpoints.sum());
        size.saturating_add(snapshot.base.rule_pieces)
    }

    pub(super) fn assignment(&self, name: &str) -> Option<Arc<Resource>> {
        let snapshot = &self.snapshot;
        let (service_port, subset_name) = self.service_port(name)?;
        let policies = ServicePolicies::of_service(&self.inputs.rules, &service_port.service);
        let subset = match subset_name {
            "" => None,
            subset => Some(policies.subset(subset)?),
        };
        let policy = policies.of(subset, service_port.port.number);
        if self.resolution(service_port, &policy, subset) != Resolution::Static {
            return None;
        }
        let preference = self.preference(service_port, &policy);
        let name = self.assignment_name_of(name, (service_port, subset_name))?;
        let namespace = &service_port.service.key.namespace;
        let key = Self::assignment_key((name.clone(), namespace), &policies, &policy, subset);
        let from = key.2.clone();
        Some(self.assignments_by(&preference).get(key, || {
            // Gateways take nothing but mutual TLS, which clients do not speak to what accepts none.
            let has_tls = snapshot.has_tls(&service_port.service.key);
            let network = network(snapshot, &self.inputs.proxy, &self.inputs.client);
            let viewer = Viewer {
                families: self.inputs.proxy.families,
                network: network.filter(|_| has_tls),
                // The preference has them already.
                locality: Locality::default(),
                labels: Arc::default(),
                beside: self.inputs.client.beside.clone(),
                grpc: self.inputs.client.grpc,
            };
            let groups = endpoints::groups(
                service_port,
                self.endpoints(service_port, subset).into_iter(),
                &viewer,
                Names::LeftOut,
                snapshot.endpoint_context(),
                &preference,
            );
            let mut draft = endpoints::assignment(&name, groups);
            draft.from = from.to_vec();
            Arc::new(draft.finish())
        }))
    }

    /// A listener has one name of those that a client may write for it.
    pub(super) fn grpc_name(&self, kind: Type, name: &str) -> Option<Arc<str>> {
        if kind == Type::Secret {
            return None;
        }
        if kind != Type::Listener {
            return self.assignment_name(name);
        }
        Target::read(name)?.is_written(name).then_some(())?;
        self.grpc(kind, name).map(|listener| listener.name.clone())
    }

    /// Remembers a service that a program with gRPC in it asks for, of which it may be given less than an Envoy.
    fn remember_grpc_service(&self, name: &str) {
        if let Some((service_port, _)) = self.service_port(name) {
            let (key, proxy) = (&service_port.service.key, &self.inputs.proxy);
            let networks = &self.snapshot.base.networks;
            self.snapshot.caches.add_grpc_service(key, proxy, networks);
        }
    }

    pub(super) fn grpc(&self, kind: Type, name: &str) -> Option<Arc<Resource>> {
        let service_ports = self.inputs.rules.service_ports();
        let mut subset = "";
        let (service_port, usual) = match kind {
            Type::Endpoint => {
                self.remember_grpc_service(name);
                return self.assignment(name);
            }
            Type::Secret => return None,
            Type::Cluster => {
                let (service_port, of_name) = self.service_port(name)?;
                subset = of_name;
                (service_port, true)
            }
            Type::Route => (service_ports.by_name(name)?, true),
            Type::Listener => {
                let target = Target::read(name)?;
                let client = GrpcClient {
                    domain: &self.inputs.proxy.node.domain,
                    cluster: self.inputs.proxy.cluster.as_str(),
                    families: self.inputs.proxy.families,
                };
                (
                    target.service_port(service_ports, &client)?,
                    target.is_written(name),
                )
            }
        };
        let policies = ServicePolicies::of_service(&self.inputs.rules, &service_port.service);
        let subset = match subset {
            "" => None,
            subset => Some(policies.subset(subset)?),
        };
        let name: Arc<str> = name.into();
        let make = || {
            let mut conflicts = Vec::new();
            let resource = Arc::new(match kind {
                Type::Cluster | Type::Endpoint | Type::Secret => {
                    // It has no names of certificates.
                    let (draft, _secured) = self.cluster(service_port, &policies, subset);
                    draft.finish()
                }
                Type::Listener => grpc::listener(&name, service_port, self.mesh()).finish(),
                Type::Route => {
                    let (draft, lost) = routes::grpc(service_port, self.mesh(), &self.inputs.rules);
                    conflicts = lost;
                    draft.finish()
                }
            });
            GrpcResource {
                resource,
                conflicts: self.snapshot.base.conflict_pool.share(conflicts),
            }
        };
        // What a client could write in any number of ways is not remembered.
        if !usual {
            return Some(make().resource);
        }
        let scope = self.inputs.rules.scope.clone();
        let key = (kind, name.clone(), service_port.name.clone(), scope);
        let cluster = self.parts.clusters.named.get(key, make);
        let caches = &self.snapshot.caches;
        caches.report_shared(cluster.conflicts, &self.inputs.proxy.node.id);
        Some(cluster.resource)
    }
}
