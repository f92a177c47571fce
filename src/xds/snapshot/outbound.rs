//! Clusters of services, as one proxy has them: each port's own, and one for each subset that rules make of its endpoints.

use std::sync::Arc;

use api::istio::networking::v1alpha3::Subset;
use api::model::{ClusterId, Endpoint, EndpointAddress, Locality, ObjectRef, Resolution, Service};
use prost::Message as _;

use super::Conflict;
use super::proxy::ProxyView;
use super::refused_endpoints::Refusal;
use super::secrets::{MAX_CLIENT_FILES, MAX_FILES_PER_RULE};
use super::server_names;
use super::shared_resources::BuiltCluster;
use crate::common::conflict::{Conflicts, REJECTED_CONFIG, TOO_LARGE};
use crate::common::fair_budget::FairBudget;
use crate::common::service_ports::ServicePort;
use crate::finish::{ClusterParts, Draft};
use crate::resources::clusters::{self, ByServerName, Inputs};
use crate::resources::endpoints::{self, Names, Viewer};
use crate::resources::grpc;
use crate::resources::locality::{
    self, ClientLocality, EndpointTopology, LocalityOverride, Preference,
};
use crate::rules::destination_rule::{self, EffectivePolicy, Purpose, ServicePolicies};
use crate::rules::envoy_filter::{Direction, Patcher};
use crate::rules::file_secrets::FileSecrets;
use crate::view::Resource;

/// Clusters of subsets that one proxy is given. Chosen: a mesh of 1,000 services has ten for each; a wildcard whose rule has a
/// thousand subsets does not give them to every port.
const MAX_SUBSETS: usize = 10_000;
/// Bytes of those clusters, and of the TLS settings that rules add to the others. Chosen: ten subsets of 1,000 services come to
/// two thirds of it.
const RULE_BYTES: usize = 16 << 20;

/// The remainder of these bounds, which tenants share.
struct ClusterBudget {
    subsets: FairBudget,
    bytes: FairBudget,
    /// Room for the files that they ask for.
    files: FairBudget,
}

impl ClusterBudget {
    /// Returns false if the rule has no room for so many bytes, and for none any more.
    fn pays(&mut self, rule: &ObjectRef, bytes: usize) -> bool {
        let has_room = self.bytes.of(rule) >= Some(bytes);
        if has_room {
            self.bytes.spend(rule, bytes);
        } else {
            self.bytes.give_up(rule);
        }
        has_room
    }
}

/// The clusters of one scope while they are made.
pub(super) struct BuiltClusters {
    pub(super) members: Vec<Arc<Resource>>,
    /// The secrets in files that they ask for.
    pub(super) files: FileSecrets,
    pub(super) lost: Conflicts,
}

/// Makes the clusters of one port.
struct ClusterMaker<'a> {
    view: &'a ProxyView,
    service_port: &'a ServicePort,
    policies: ServicePolicies,
    patcher: &'a Patcher<'a>,
}

impl ClusterMaker<'_> {
    /// The cluster of a subset, or of all endpoints: the same for all proxies for which the same rules hold, whatever else those
    /// see. `None`: it cannot be secured, or a patch removes it.
    fn cluster(&self, subset: Option<&Subset>, lost: &mut Conflicts) -> Option<Arc<Resource>> {
        let (view, policies) = (self.view, &self.policies);
        let from: Arc<[ObjectRef]> = policies.from(subset).into();
        let name = self
            .service_port
            .cluster(subset.map_or("", |subset| &subset.name));
        let patches = view.inputs.rules.patches_of_clusters().clone();
        let namespace = self.service_port.service.key.namespace.clone();
        let limits = self.patcher.limits().filter(|_| !patches.is_empty());
        let rules = (from.clone(), policies.shared_facts());
        let key = (name, namespace, rules, (patches, limits));
        let make = || {
            let (draft, secured) = view.cluster(self.service_port, policies, subset);
            if let Err(why) = secured {
                let message = format!("{} is left out: {why}", draft.name);
                let conflict = Conflict::new(REJECTED_CONFIG, &*draft.name, message);
                let conflict = from.first().map(|rule| conflict.because_of(rule));
                return BuiltCluster {
                    conflict: conflict.map(Arc::new),
                    ..BuiltCluster::default()
                };
            }
            let (made, effective) = self.patcher.finish_apart(draft, Direction::Outbound);
            BuiltCluster {
                resource: made.map(Arc::new),
                effective,
                conflict: None,
            }
        };
        let made = view.parts.clusters.each.get(key, make);
        self.patcher.add_effective(&made.effective);
        if let Some(conflict) = made.conflict {
            lost.add(0, Arc::unwrap_or_clone(conflict));
        }
        made.resource
    }

    /// The cluster that a gateway between networks leads to by the server name; TLS goes through it as it is. `None`: the proxy
    /// is no such gateway, or the service is outside of the mesh, where no workload asks clients for their certificates.
    fn by_server_name(&self, subset: Option<&Subset>) -> Option<Arc<Resource>> {
        let is_outside = self.service_port.service.mesh_external;
        if is_outside || self.view.inputs.client.by_server_name != ByServerName::Always {
            return None;
        }
        let (mut draft, _secured) = self.view.cluster(self.service_port, &self.policies, subset);
        draft.from = self.policies.from(subset);
        let subset = subset.map_or("", |subset| &subset.name);
        let draft = server_names::by_server_name(draft, self.service_port, subset);
        self.patcher
            .finish(draft, Direction::Outbound)
            .map(Arc::new)
    }

    fn has_room_for_files(
        &self,
        subset: Option<&Subset>,
        room: &mut ClusterBudget,
        made: &mut BuiltClusters,
    ) -> bool {
        let room = (&mut room.files, &mut made.files);
        let conflict = self
            .view
            .add_client_files(self.service_port, &self.policies, subset, room);
        let is_added = conflict.is_none();
        conflict.into_iter().for_each(|one| made.lost.add(0, one));
        is_added
    }
}

impl ProxyView {
    pub(super) fn preference<'a>(
        &'a self,
        service_port: &ServicePort,
        policy: &EffectivePolicy<'a>,
    ) -> Preference<'a> {
        let setting = self.snapshot.world.mesh.locality_lb_setting.as_ref();
        let of_rules = LocalityOverride {
            locality: policy.locality(),
            zones: policy.zones(),
        };
        let client = ClientLocality {
            locality: &self.inputs.proxy.locality,
            labels: &self.inputs.preferred,
        };
        locality::preference(setting, of_rules, &service_port.service, client)
    }

    /// The way in which a cluster finds its endpoints.
    pub(super) fn resolution(
        &self,
        service_port: &ServicePort,
        policy: &EffectivePolicy<'_>,
        subset: Option<&Subset>,
    ) -> Resolution {
        let client = &self.inputs.client;
        if client.grpc
            && service_port.service.resolution.is_dns()
            && grpc::is_one_name(&self.resolved(service_port, policy, subset))
        {
            return Resolution::DnsRoundRobin;
        }
        if policy.is_passthrough() && client.intercepts && !client.grpc {
            return Resolution::None;
        }
        clusters::resolution(service_port, client)
    }

    /// Returns true if a cluster may not lead to a place: one that means every proxy itself is for no cluster, and one beside each
    /// proxy is for proxies of the service's namespace. [`RefusedEndpoints`] tells of them.
    ///
    /// [`RefusedEndpoints`]: super::refused_endpoints::RefusedEndpoints
    fn refuses(&self, service: &Service, address: &EndpointAddress, port: u16) -> bool {
        match Refusal::of(address, port, self.mesh()) {
            Some(Refusal::ToAll) => true,
            Some(Refusal::ToOtherNamespaces) => {
                service.key.namespace != self.inputs.proxy.node.namespace
            }
            None => false,
        }
    }

    /// The endpoints of a port that a cluster leads to; of a subset those that have its labels. Whether some of the port are ready
    /// counts, and not of the subset: its last ones that end are not served beside ready ones of others.
    pub(super) fn endpoints(
        &self,
        service_port: &ServicePort,
        subset: Option<&Subset>,
    ) -> Vec<(&ClusterId, &Endpoint)> {
        let service = &service_port.service;
        let snapshot = &self.snapshot;
        let port = &service_port.port.name;
        let of_port = snapshot.by_port().of(&snapshot.world, &service.key, port);
        let mut all = endpoints::served(
            of_port
                .filter(|(_, endpoint)| !self.refuses(service, &endpoint.address, endpoint.port)),
        );
        if let Some(subset) = subset {
            all.retain(|(cluster, endpoint)| {
                let network = snapshot.network_of(cluster, endpoint);
                let topology = EndpointTopology::of(cluster, network, endpoint);
                destination_rule::is_in(subset, endpoint, |name| topology.label(name))
            });
        }
        all
    }

    /// Adds the clusters of a port: all its endpoints', and those of subsets as far as there is room for them.
    fn add_clusters(
        &self,
        service_port: &ServicePort,
        patcher: &Patcher<'_>,
        room: &mut ClusterBudget,
        made: &mut BuiltClusters,
    ) {
        let maker = ClusterMaker {
            view: self,
            service_port,
            policies: ServicePolicies::of_service(&self.inputs.rules, &service_port.service),
            patcher,
        };
        // The rules of a host are of one namespace: the first one pays for all.
        let rule = maker.policies.first();
        let policy = maker.policies.of(None, service_port.port.number);
        // A name that a certificate must have takes as much again for its matcher.
        let added = policy.tls().map_or(0, |tls| 2 * tls.encoded_len());
        if let Some(rule) = rule.filter(|_| added > 0)
            && !room.pays(rule, added)
        {
            return made.lost.add(0, without_room(service_port, rule));
        }
        let whole = maker.cluster(None, &mut made.lost);
        let whole = whole.filter(|_| maker.has_room_for_files(None, room, made));
        made.members.extend(whole);
        made.members.extend(maker.by_server_name(None));
        let subsets = maker.policies.subsets();
        let Some(rule) = rule.filter(|_| !subsets.is_empty()) else {
            return;
        };
        if room.subsets.has_room_for(rule, subsets.len()) {
            room.subsets.spend(rule, subsets.len());
            let are_made = subsets.into_iter().all(|subset| {
                let Some(cluster) = maker.cluster(Some(subset), &mut made.lost) else {
                    return true;
                };
                let bytes = cluster.body.len();
                if !room.bytes.has_room_for(rule, bytes) {
                    return false;
                }
                room.bytes.spend(rule, bytes);
                if !maker.has_room_for_files(Some(subset), room, made) {
                    return true;
                }
                made.members.push(cluster);
                made.members.extend(maker.by_server_name(Some(subset)));
                true
            });
            if are_made {
                return;
            }
        }
        made.lost.add(0, without_room(service_port, rule));
    }

    /// The cluster of a port or of a subset; and why it must not be served, where it cannot be secured.
    pub(super) fn cluster(
        &self,
        service_port: &ServicePort,
        policies: &ServicePolicies,
        subset: Option<&Subset>,
    ) -> (Draft<ClusterParts>, Result<(), String>) {
        let world = &self.snapshot.world;
        let policy = policies.of(subset, service_port.port.number);
        let resolution = self.resolution(service_port, &policy, subset);
        let groups = if resolution.is_dns() {
            self.resolved(service_port, &policy, subset)
        } else {
            Vec::new()
        };
        let service = &service_port.service;
        let accounts = self.snapshot.by_port().accounts(world, service);
        let has_tls = self.snapshot.has_tls(&service.key);
        let inputs = Inputs {
            mesh: self.mesh(),
            client: &self.inputs.client,
            accounts: &accounts,
            plaintext: has_tls.then(|| self.snapshot.plaintext_reasons(world, service)),
            weighted: self.preference(service_port, &policy).is_weighted(),
            groups,
            subset: subset.map_or("", |subset| &subset.name),
            resolution,
        };
        let mut draft = clusters::outbound(service_port, inputs);
        let purpose = Purpose {
            protocol: service_port.protocol,
            port: service_port.port.number,
            subset: subset.map_or("", |subset| &subset.name),
            host: service_port.host(),
            registry: service.registry,
            accounts: &accounts,
            files: &self.inputs.client.files,
            oldest_tls: self.mesh().oldest_tls,
            grpc: self.inputs.client.grpc,
            secrets: self.client_credentials(policies),
            initial_fetch_timeout: self.mesh().initial_fetch_timeout,
        };
        let secured = destination_rule::cluster(&mut draft.message, policies, &policy, &purpose);
        draft.from = policies.from(subset);
        // It has files of the client in it because of them.
        if !draft.message.cluster.transport_socket_matches.is_empty() {
            let accepting = self.snapshot.base.accepting.policies(&service.key);
            draft.from.extend(accepting.cloned());
        }
        (draft, secured)
    }

    /// Endpoints of a cluster that resolves names itself; an entry that names no endpoints means its own name.
    fn resolved(
        &self,
        service_port: &ServicePort,
        policy: &EffectivePolicy<'_>,
        subset: Option<&Subset>,
    ) -> Vec<crate::resources::LocalityLbEndpoints> {
        let service = &service_port.service;
        let endpoints = || self.snapshot.world.endpoints_of(&service.key);
        if endpoints().next().is_none() && service.selector.is_empty() {
            // It has no labels.
            if subset.is_some_and(|subset| !subset.labels.is_empty()) {
                return Vec::new();
            }
            let address = EndpointAddress::read(service_port.host());
            if self.refuses(service, &address, endpoints::own_port(&service_port.port)) {
                return Vec::new();
            }
            return endpoints::itself(service_port);
        }
        let viewer = Viewer {
            families: self.inputs.proxy.families,
            network: None,
            locality: Locality::default(),
            labels: Arc::default(),
            beside: None,
            grpc: self.inputs.client.grpc,
        };
        endpoints::groups(
            service_port,
            self.endpoints(service_port, subset).into_iter(),
            &viewer,
            Names::Resolved,
            self.snapshot.endpoint_context(),
            &self.preference(service_port, policy),
        )
    }

    pub(super) fn make_clusters(&self, patcher: &Patcher<'_>) -> BuiltClusters {
        let mut made = BuiltClusters {
            members: Vec::new(),
            files: self.files_of_mesh(),
            lost: Conflicts::default(),
        };
        let namespaces = self.inputs.rules.namespaces_of_destination_rules();
        let mut room = ClusterBudget {
            subsets: FairBudget::new(MAX_SUBSETS, MAX_SUBSETS, namespaces),
            bytes: FairBudget::new(RULE_BYTES, RULE_BYTES, namespaces),
            files: FairBudget::new(MAX_CLIENT_FILES, MAX_FILES_PER_RULE, namespaces),
        };
        for service_port in self.inputs.rules.service_ports().all() {
            self.add_clusters(service_port, patcher, &mut room, &mut made);
        }
        self.add_fixed_clusters(patcher, &mut made.members);
        self.add_refused_endpoints(&mut made.lost);
        made
    }
}

/// Says at a rule that there was no room for its subsets.
fn without_room(service_port: &ServicePort, rule: &ObjectRef) -> Conflict {
    let message = format!(
        "clusters of {} are left out: rules make more than {MAX_SUBSETS} subsets, or more than {} MiB of them and of TLS settings \
         of other clusters, and those of its namespace more than their share",
        service_port.authority(),
        RULE_BYTES >> 20
    );
    Conflict::new(TOO_LARGE, &*service_port.name, message).because_of(rule)
}
