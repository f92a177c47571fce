//! Clusters of services, as one proxy has them: each port's own, and one for each subset that rules make of its endpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::istio::networking::v1alpha3::Subset;
use api::model::{ClusterId, Endpoint, EndpointAddress, Locality, ObjectRef, Resolution};

use super::Conflict;
use super::proxy::{ProxyView, finished};
use super::router;
use crate::common::conflict::{INVALID_LISTENER, TOO_LARGE};
use crate::common::outlets::Outlet;
use crate::finish::{ClusterParts, Draft};
use crate::node::Kind;
use crate::resources::clusters::{self, ByServerName, Inputs};
use crate::resources::endpoints::{self, Names, Viewer};
use crate::resources::listeners::{is_beside, is_every_proxys};
use crate::resources::locality::{self, Preference};
use crate::rules::destination_rule::{self, Policies, Policy, Purpose};
use crate::rules::envoy_filter::Patcher;
use crate::view::{Resource, Set};

/// Clusters of subsets that one proxy is given. Chosen: a mesh of 1,000 services has ten for each; a wildcard whose rule has a
/// thousand subsets does not give them to every port.
const MOST_SUBSETS: usize = 10_000;
/// And their bytes.
const SUBSET_BYTES: usize = 32 << 20;

/// What is left of both.
struct Room {
    subsets: usize,
    bytes: usize,
}

impl ProxyView {
    pub(super) fn preference<'a>(&'a self, outlet: &Outlet, policy: &Policy<'a>) -> Preference<'a> {
        let setting = self.snapshot.world.mesh.locality_lb_setting.as_ref();
        let locality = &self.proxy.locality;
        locality::preference(setting, policy.locality(), &outlet.service, locality)
    }

    /// How the endpoints of a cluster are found.
    pub(super) fn resolution(&self, outlet: &Outlet, policy: &Policy<'_>) -> Resolution {
        let client = &self.client;
        if policy.is_passthrough() && client.intercepts && !client.grpc {
            return Resolution::None;
        }
        clusters::resolution(outlet, client)
    }

    /// Why a cluster may not lead to a place; `None`: it may. What stands for every proxy itself is for nobody, and what is
    /// beside it is for those of the service's namespace.
    fn refuses(&self, outlet: &Outlet, address: &EndpointAddress, port: u16) -> Option<Conflict> {
        let key = &outlet.service.key;
        let why = if is_every_proxys(address, port, self.mesh()) {
            "each proxy itself listens there"
        } else if is_beside(address) && key.namespace != self.proxy.node.namespace {
            "it is beside each proxy, and for those of the namespace alone"
        } else {
            return None;
        };
        let (namespace, hostname) = (&key.namespace, &key.hostname);
        let message = format!(
            "the endpoint {address}, port {port}, of {namespace}/{hostname} is left out: {why}"
        );
        Some(Conflict::new(INVALID_LISTENER, &*outlet.name, message).of_service(key))
    }

    /// The endpoints of a port that a cluster may have; of a subset those that have its labels.
    pub(super) fn endpoints(
        &self,
        outlet: &Outlet,
        subset: Option<&Subset>,
    ) -> Vec<(&ClusterId, &Endpoint)> {
        let key = &outlet.service.key;
        let snapshot = &self.snapshot;
        let of_port = snapshot
            .by_port()
            .of(&snapshot.world, key, &outlet.port.name);
        let of_port = of_port.filter(|(_, endpoint)| {
            subset.is_none_or(|subset| destination_rule::is_in(subset, endpoint))
        });
        let mut lost = Vec::new();
        let kept = of_port.filter(|(_, endpoint)| {
            let why = self.refuses(outlet, &endpoint.address, endpoint.port);
            let is_kept = why.is_none();
            lost.extend(why);
            is_kept
        });
        let kept = kept.collect();
        self.snapshot.made.tell(lost, &self.proxy.node.id);
        kept
    }

    /// Adds the clusters of a port: all its endpoints', and those of subsets as far as there is room for them.
    fn add_clusters(
        &self,
        outlet: &Outlet,
        patcher: &Patcher<'_>,
        room: &mut Room,
        members: &mut Vec<Arc<Resource>>,
    ) {
        let policies = Policies::of_service(&self.rules, &outlet.service);
        let from: Arc<[ObjectRef]> = policies.from().into();
        // The same rules make the same of it, whoever else sees what.
        let made = |subset: Option<&Subset>| {
            let name = outlet.cluster(subset.map_or("", |subset| &subset.name));
            let patches = self.rules.patches_of_clusters().clone();
            let namespace = outlet.service.key.namespace.clone();
            let key = (name, namespace, from.clone(), patches);
            let make = || {
                let draft = self.cluster(outlet, &policies, subset);
                patcher.finish(draft, false).map(Arc::new)
            };
            self.parts.clusters.each.get(key, make)
        };
        let by_server_name = |subset: Option<&Subset>| {
            if self.client.by_server_name != ByServerName::Always {
                return None;
            }
            {
                let draft = self.cluster(outlet, &policies, subset);
                let subset = subset.map_or("", |subset| &subset.name);
                let draft = router::by_server_name(draft, outlet, subset);
                patcher.finish(draft, false).map(Arc::new)
            }
        };
        members.extend(made(None));
        members.extend(by_server_name(None));
        let subsets = policies.subsets();
        if subsets.is_empty() {
            return;
        }
        if room.subsets >= subsets.len() {
            room.subsets -= subsets.len();
            let made = subsets.into_iter().all(|subset| {
                let Some(cluster) = made(Some(subset)) else {
                    return true;
                };
                let left = room.bytes.checked_sub(cluster.body.len());
                room.bytes = left.unwrap_or_default();
                members.extend(left.map(|_| cluster));
                members.extend(left.and_then(|_| by_server_name(Some(subset))));
                left.is_some()
            });
            if made {
                return;
            }
        }
        let message = format!(
            "subsets of {} are left out: rules make more than {MOST_SUBSETS}, or more than {} MiB of them",
            outlet.authority(),
            SUBSET_BYTES >> 20
        );
        let conflict = Conflict::new(TOO_LARGE, &*outlet.name, message);
        let lost = from.first().map(|rule| conflict.because_of(rule));
        self.snapshot.made.tell(lost, &self.proxy.node.id);
    }

    pub(super) fn cluster(
        &self,
        outlet: &Outlet,
        policies: &Policies,
        subset: Option<&Subset>,
    ) -> Draft<ClusterParts> {
        let world = &self.snapshot.world;
        let policy = policies.of(subset, outlet.port.number);
        let resolution = self.resolution(outlet, &policy);
        let groups = if resolution.is_dns() {
            self.resolved(outlet, &policy, subset)
        } else {
            Vec::new()
        };
        let accounts = self.snapshot.by_port().accounts(world, &outlet.service);
        let inputs = Inputs {
            mesh: self.mesh(),
            client: &self.client,
            accounts: &accounts,
            plain: self.snapshot.plain_places(&outlet.service),
            weighted: self.preference(outlet, &policy).is_weighted(),
            groups,
            subset: subset.map_or("", |subset| &subset.name),
            resolution,
        };
        let mut draft = clusters::outbound(outlet, inputs);
        let purpose = Purpose {
            protocol: outlet.protocol,
            port: outlet.port.number,
            subset: subset.map_or("", |subset| &subset.name),
            host: outlet.host(),
            accounts: &accounts,
            files: &self.client.files,
            grpc: self.client.grpc,
        };
        destination_rule::cluster(&mut draft.message, policies, &policy, &purpose);
        draft.from = policies.from();
        draft
    }

    /// Of a cluster that resolves names itself; an entry that names no endpoints means its own name.
    fn resolved(
        &self,
        outlet: &Outlet,
        policy: &Policy<'_>,
        subset: Option<&Subset>,
    ) -> Vec<crate::resources::Group> {
        let service = &outlet.service;
        let endpoints = || self.snapshot.world.endpoints_of(&service.key);
        if endpoints().next().is_none() && service.selector.is_empty() {
            // It has no labels.
            if subset.is_some_and(|subset| !subset.labels.is_empty()) {
                return Vec::new();
            }
            let address = EndpointAddress::read(outlet.host());
            let lost = self.refuses(outlet, &address, endpoints::own_port(outlet));
            if lost.is_some() {
                self.snapshot.made.tell(lost, &self.proxy.node.id);
                return Vec::new();
            }
            return endpoints::itself(outlet);
        }
        let viewer = Viewer {
            families: self.proxy.families,
            network: None,
            locality: Locality::default(),
            beside: None,
        };
        endpoints::groups(
            outlet,
            self.endpoints(outlet, subset).into_iter(),
            &viewer,
            Names::Resolved,
            self.snapshot.places(),
            &self.preference(outlet, policy),
        )
    }

    pub(super) fn outbound_clusters(&self) -> Arc<Set> {
        let scope = self.rules.clusters.clone();
        self.parts.clusters.all.get(scope, || self.make_clusters())
    }

    fn make_clusters(&self) -> Arc<Set> {
        let mut members = Vec::new();
        let mut room = Room {
            subsets: MOST_SUBSETS,
            bytes: SUBSET_BYTES,
        };
        let patcher = self.patcher();
        for outlet in self.rules.outlets().all() {
            self.add_clusters(outlet, &patcher, &mut room, &mut members);
        }
        let mut fixed = vec![clusters::black_hole(self.mesh())];
        let mut inbound = Vec::new();
        if self.client.kind == Kind::Sidecar {
            fixed.push(clusters::passthrough(self.mesh()));
            let logs = self.mesh().log_service.as_ref();
            fixed.extend(logs.map(|it| it.cluster(self.mesh(), &self.client)));
        }
        if self.client.intercepts {
            let families = self.proxy.families;
            for v6 in [false, true] {
                if (v6 && families.v6) || (!v6 && families.v4) {
                    inbound.push(clusters::inbound_passthrough(self.mesh(), v6));
                }
            }
        }
        members.extend(finished(&patcher, fixed, false));
        members.extend(finished(&patcher, inbound, true));
        let added = if self.rules.patches.is_empty() {
            Vec::new()
        } else {
            let names: BTreeSet<&str> = members.iter().map(|one| &*one.name).collect();
            patcher.added::<ClusterParts>(false, |name| names.contains(name))
        };
        members.extend(added.into_iter().map(Arc::new));
        self.snapshot.made.tell(patcher.lost(), &self.proxy.node.id);
        Arc::new(Set::new(members))
    }
}
