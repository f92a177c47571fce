//! Clusters of services, as one proxy has them: each port's own, and one for each subset that rules make of its endpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::istio::networking::v1alpha3::Subset;
use api::model::{ClusterId, Endpoint, EndpointAddress, Locality, ObjectRef, Resolution};
use prost::Message as _;

use super::Conflict;
use super::proxy::{ProxyView, finished};
use super::secrets::{MOST_CLIENT_FILES, MOST_FILES_OF_RULE};
use super::server_names;
use crate::common::conflict::{INVALID_LISTENER, REJECTED_CONFIG, TOO_LARGE};
use crate::common::fair_budget::FairBudget;
use crate::common::service_ports::ServicePort;
use crate::finish::{ClusterParts, Draft};
use crate::node::Kind;
use crate::resources::clusters::{self, ByServerName, Inputs};
use crate::resources::endpoints::{self, Names, Viewer};
use crate::resources::listeners::{is_beside, is_every_proxys};
use crate::resources::locality::{
    self, ClientLocality, EndpointPlace, LocalityOverride, Preference,
};
use crate::rules::destination_rule::{self, EffectivePolicy, Purpose, ServicePolicies};
use crate::rules::envoy_filter::{Direction, PatchIds, Patcher};
use crate::rules::file_secrets::FileSecrets;
use crate::view::{Resource, Set};

/// Clusters of subsets that one proxy is given. Chosen: a mesh of 1,000 services has ten for each; a wildcard whose rule has a
/// thousand subsets does not give them to every port.
const MOST_SUBSETS: usize = 10_000;
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
    fn cluster(&self, subset: Option<&Subset>) -> Option<Arc<Resource>> {
        let (view, policies) = (self.view, &self.policies);
        let from: Arc<[ObjectRef]> = policies.from(subset).into();
        let name = self
            .service_port
            .cluster(subset.map_or("", |subset| &subset.name));
        let patches = view.rules.patches_of_clusters().clone();
        let namespace = self.service_port.service.key.namespace.clone();
        let limits = self.patcher.limits().filter(|_| !patches.is_empty());
        let rules = (from.clone(), policies.shared_facts());
        let key = (name, namespace, rules, (patches, limits));
        let make = || {
            let (draft, secured) = view.cluster(self.service_port, policies, subset);
            if let Err(why) = secured {
                let message = format!("{} is left out: {why}", draft.name);
                let lost = Conflict::new(REJECTED_CONFIG, &*draft.name, message);
                let lost = from.first().map(|rule| lost.because_of(rule));
                view.snapshot.caches.report(lost, &view.proxy.node.id);
                return (None, PatchIds::default());
            }
            let (made, effective) = self.patcher.finish_apart(draft, Direction::Outbound);
            (made.map(Arc::new), effective)
        };
        let (made, effective) = view.parts.clusters.each.get(key, make);
        self.patcher.add_effective(&effective);
        made
    }

    /// The cluster that a gateway between networks leads to by the server name; TLS goes through it as it is. `None`: the proxy
    /// is no such gateway, or the service is outside of the mesh, where no workload asks clients for their certificates.
    fn by_server_name(&self, subset: Option<&Subset>) -> Option<Arc<Resource>> {
        let is_outside = self.service_port.service.mesh_external;
        if is_outside || self.view.client.by_server_name != ByServerName::Always {
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
        files: &mut FileSecrets,
    ) -> bool {
        let room = (&mut room.files, files);
        self.view
            .add_client_files(self.service_port, &self.policies, subset, room)
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
            locality: &self.proxy.locality,
            labels: &self.preferred,
        };
        locality::preference(setting, of_rules, &service_port.service, client)
    }

    /// The way in which a cluster finds its endpoints.
    pub(super) fn resolution(
        &self,
        service_port: &ServicePort,
        policy: &EffectivePolicy<'_>,
    ) -> Resolution {
        let client = &self.client;
        if policy.is_passthrough() && client.intercepts && !client.grpc {
            return Resolution::None;
        }
        clusters::resolution(service_port, client)
    }

    /// The conflict of a place that a cluster may not lead to; `None`: it may. A place that means every proxy itself is for no
    /// cluster, and one beside each proxy is for proxies of the service's namespace.
    fn refuses(
        &self,
        service_port: &ServicePort,
        address: &EndpointAddress,
        port: u16,
    ) -> Option<Conflict> {
        let key = &service_port.service.key;
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
        Some(Conflict::new(INVALID_LISTENER, &*service_port.name, message).of_service(key))
    }

    /// The endpoints of a port that a cluster may have; of a subset those that have its labels.
    pub(super) fn endpoints(
        &self,
        service_port: &ServicePort,
        subset: Option<&Subset>,
    ) -> Vec<(&ClusterId, &Endpoint)> {
        let key = &service_port.service.key;
        let snapshot = &self.snapshot;
        let of_port = snapshot
            .by_port()
            .of(&snapshot.world, key, &service_port.port.name);
        let of_port = of_port.filter(|(cluster, endpoint)| {
            subset.is_none_or(|subset| {
                let network = snapshot.network_of(cluster, endpoint);
                let place = EndpointPlace::of(cluster, network, endpoint);
                destination_rule::is_in(subset, endpoint, |name| place.label(name))
            })
        });
        let mut lost = Vec::new();
        let accepted = of_port.filter(|(_, endpoint)| {
            let why = self.refuses(service_port, &endpoint.address, endpoint.port);
            let is_kept = why.is_none();
            lost.extend(why);
            is_kept
        });
        let accepted = accepted.collect();
        self.snapshot.caches.report(lost, &self.proxy.node.id);
        accepted
    }

    /// Adds the clusters of a port: all its endpoints', and those of subsets as far as there is room for them.
    fn add_clusters(
        &self,
        service_port: &ServicePort,
        patcher: &Patcher<'_>,
        room: &mut ClusterBudget,
        (members, files): (&mut Vec<Arc<Resource>>, &mut FileSecrets),
    ) {
        let maker = ClusterMaker {
            view: self,
            service_port,
            policies: ServicePolicies::of_service(&self.rules, &service_port.service),
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
            return self.report_without_room(service_port, rule);
        }
        let whole = maker.cluster(None);
        members.extend(whole.filter(|_| maker.has_room_for_files(None, room, files)));
        members.extend(maker.by_server_name(None));
        let subsets = maker.policies.subsets();
        let Some(rule) = rule.filter(|_| !subsets.is_empty()) else {
            return;
        };
        if room.subsets.has_room_for(rule, subsets.len()) {
            room.subsets.spend(rule, subsets.len());
            let made = subsets.into_iter().all(|subset| {
                let Some(cluster) = maker.cluster(Some(subset)) else {
                    return true;
                };
                let bytes = cluster.body.len();
                if !room.bytes.has_room_for(rule, bytes) {
                    return false;
                }
                room.bytes.spend(rule, bytes);
                if !maker.has_room_for_files(Some(subset), room, files) {
                    return true;
                }
                members.push(cluster);
                members.extend(maker.by_server_name(Some(subset)));
                true
            });
            if made {
                return;
            }
        }
        self.report_without_room(service_port, rule);
    }

    /// Says at a rule that there was no room for its subsets.
    fn report_without_room(&self, service_port: &ServicePort, rule: &ObjectRef) {
        let message = format!(
            "clusters of {} are left out: rules make more than {MOST_SUBSETS} subsets, or more than {} MiB of them and of TLS \
             settings of other clusters, and those of its namespace more than their share",
            service_port.authority(),
            RULE_BYTES >> 20
        );
        let conflict = Conflict::new(TOO_LARGE, &*service_port.name, message);
        let lost = Some(conflict.because_of(rule));
        self.snapshot.caches.report(lost, &self.proxy.node.id);
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
        let resolution = self.resolution(service_port, &policy);
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
            client: &self.client,
            accounts: &accounts,
            plain: has_tls.then(|| self.snapshot.plain_reasons(world, service)),
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
            files: &self.client.files,
            oldest_tls: self.mesh().oldest_tls,
            grpc: self.client.grpc,
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
            let lost = self.refuses(service_port, &address, endpoints::own_port(service_port));
            if lost.is_some() {
                self.snapshot.caches.report(lost, &self.proxy.node.id);
                return Vec::new();
            }
            return endpoints::itself(service_port);
        }
        let viewer = Viewer {
            families: self.proxy.families,
            network: None,
            locality: Locality::default(),
            labels: Arc::default(),
            beside: None,
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

    pub(super) fn outbound_clusters(&self) -> Arc<Set> {
        let scope = &self.rules.clusters;
        let made = &self.parts.clusters;
        made.all.get(scope.clone(), || {
            let (clusters, files, effective) = self.make_clusters();
            made.secrets.get(scope.clone(), || files);
            made.effective.get(scope.clone(), || effective);
            clusters
        })
    }

    /// The clusters, the secrets in files that they ask for, and the patches that are effective in them.
    fn make_clusters(&self) -> (Arc<Set>, Arc<Set>, PatchIds) {
        let mut members = Vec::new();
        let namespaces = self.rules.namespaces_of_destination_rules();
        let mut room = ClusterBudget {
            subsets: FairBudget::new(MOST_SUBSETS, MOST_SUBSETS, namespaces),
            bytes: FairBudget::new(RULE_BYTES, RULE_BYTES, namespaces),
            files: FairBudget::new(MOST_CLIENT_FILES, MOST_FILES_OF_RULE, namespaces),
        };
        let mut files = self.files_of_mesh();
        let patcher = self.patcher();
        for service_port in self.rules.service_ports().all() {
            let made = (&mut members, &mut files);
            self.add_clusters(service_port, &patcher, &mut room, made);
        }
        let mut fixed = vec![clusters::black_hole(self.mesh())];
        let mut inbound = Vec::new();
        if self.client.kind == Kind::Sidecar {
            fixed.push(clusters::passthrough(self.mesh()));
        }
        if !self.client.grpc {
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
        members.extend(finished(&patcher, fixed, Direction::Outbound));
        members.extend(finished(&patcher, inbound, Direction::Inbound));
        let added = if self.rules.patches.is_empty() {
            Vec::new()
        } else {
            let names: BTreeSet<&str> = members.iter().map(|one| &*one.name).collect();
            let is_taken = |name: &str| names.contains(name) || clusters::is_of_bootstrap(name);
            patcher.added::<ClusterParts>(Direction::Outbound, is_taken)
        };
        members.extend(added.into_iter().map(Arc::new));
        let effective = patcher.effective();
        self.snapshot
            .caches
            .report(patcher.lost(), &self.proxy.node.id);
        let files = files.resources().collect();
        (Arc::new(Set::new(members)), Arc::new(files), effective)
    }
}
