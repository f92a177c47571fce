//! SDS: secrets that a router is given. No cache keeps them beside what streams have, and they are never printed.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::istio::networking::v1alpha3::Subset;
use api::model::{ClusterId, CredentialKey, ObjectRef, World};
use api::networking::Server;
use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret as Message, TlsCertificate, secret,
};

use super::proxy::ProxyView;
use super::{Conflict, Snapshot, SnapshotBase};
use crate::common::conflict::TOO_LARGE;
use crate::common::fair_budget::FairBudget;
use crate::common::service_ports::ServicePort;
use crate::common::tls::SYSTEM_ROOTS;
use crate::finish::Draft;
use crate::node::{Kind, Node};
use crate::resources::log_service::LogService;
use crate::resources::mesh::Mesh;
use crate::rules::destination_rule::{
    ServicePolicies, has_client_files, has_credentials, named_by,
};
use crate::rules::file_secrets::{FileRoot, FileSecrets};
use crate::rules::gateway::secrets::{ProxySecrets, Secret, named, namespaces_of};
use crate::rules::gateway::tls::in_files;
use crate::scope::reference;
use crate::settings::Settings;
use crate::view::{Resource, Set};

fn inline(bytes: &[u8]) -> Option<DataSource> {
    Some(DataSource {
        specifier: Some(data_source::Specifier::InlineBytes(bytes.to_vec())),
        ..DataSource::default()
    })
}

fn resource(name: &str, secret: &Secret<'_>) -> Resource {
    let message = Message {
        name: name.to_owned(),
        r#type: Some(match secret {
            Secret::Pair(chain, key) => secret::Type::TlsCertificate(TlsCertificate {
                certificate_chain: inline(chain),
                private_key: inline(key),
                ..TlsCertificate::default()
            }),
            Secret::Root(root) => secret::Type::ValidationContext(CertificateValidationContext {
                trusted_ca: inline(root),
                ..CertificateValidationContext::default()
            }),
        }),
    };
    Draft::new(name, message).finish()
}

/// Names of Secrets that Gateways of a world want, each in the namespaces of the pods that they select and in their own, and
/// those that rules for connections name there, or for workloads of their own namespace.
#[must_use]
pub fn named_credentials(world: &World, settings: &Settings) -> BTreeSet<CredentialKey> {
    let mut wanted = BTreeSet::new();
    let of_rules = world.destination_rules.values();
    let of_rules: Vec<_> = of_rules
        .filter(|rule| has_credentials(&rule.spec))
        .collect();
    let for_routers = of_rules
        .iter()
        .any(|rule| rule.spec.workload_selector.is_none());
    let mut routers = BTreeSet::new();
    for gateway in world.gateways.values() {
        let spec = &gateway.spec;
        let is_by_name = |server: &Server| {
            let tls = server.tls.as_ref();
            tls.is_some_and(|tls| {
                !tls.credential_name.is_empty() || !tls.credential_names.is_empty()
            })
        };
        if !for_routers && !spec.servers.iter().any(is_by_name) {
            continue;
        }
        let namespaces = namespaces_of(gateway, world, cluster_of_pods(settings));
        for namespace in &namespaces {
            let names = named(spec, namespace).into_iter();
            wanted.extend(names.map(|name| (namespace.clone(), Arc::from(name))));
        }
        routers.extend(namespaces);
    }
    for rule in of_rules {
        let own = BTreeSet::from([rule.namespace.clone()]);
        let namespaces = match rule.spec.workload_selector {
            Some(_) => &own,
            None => &routers,
        };
        for namespace in namespaces {
            let names = named_by(&rule.spec, namespace).into_iter();
            wanted.extend(names.map(|name| (namespace.clone(), Arc::from(name))));
        }
    }
    wanted
}

/// The Gateways and the rules for connections that name this Secret: it is one of [`named_credentials`].
#[must_use]
pub fn objects_naming(
    world: &World,
    settings: &Settings,
    (namespace, name): &CredentialKey,
) -> Vec<ObjectRef> {
    let gateways = world.gateways.values().filter(|gateway| {
        named(&gateway.spec, namespace).contains(&**name)
            && namespaces_of(gateway, world, cluster_of_pods(settings)).contains(namespace)
    });
    let rules = world.destination_rules.values().filter(|rule| {
        let is_here = rule.spec.workload_selector.is_none() || rule.namespace == *namespace;
        is_here && named_by(&rule.spec, namespace).contains(&**name)
    });
    let gateways = gateways.map(|one| reference(one));
    gateways.chain(rules.map(|one| reference(one))).collect()
}

/// The cluster whose pods of other namespaces may listen for a Gateway.
fn cluster_of_pods(settings: &Settings) -> Option<&ClusterId> {
    (!settings.gateways_of_own_namespace).then_some(&settings.cluster)
}

/// The proxies for which rules for connections name certificates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientCredentials {
    /// True if rules name certificates for all routers.
    of_routers: bool,
    /// Namespaces for whose workloads rules name certificates.
    pub(super) of_sidecars: BTreeSet<Arc<str>>,
}

impl ClientCredentials {
    pub(super) fn new(world: &World) -> Self {
        let rules = world.destination_rules.values();
        let named: Vec<_> = rules.filter(|rule| has_credentials(&rule.spec)).collect();
        let for_some = named.iter();
        let for_some = for_some.filter(|rule| rule.spec.workload_selector.is_some());
        Self {
            of_routers: !named.is_empty(),
            of_sidecars: for_some.map(|rule| rule.namespace.clone()).collect(),
        }
    }
}

/// Files that rules may have the clusters of one proxy ask for. Chosen: a proxy is sent each by itself and answers before the next,
/// each time with all names, so that the last of 400 is there in a second; a mesh has some tens.
pub(super) const MAX_CLIENT_FILES: usize = 400;
/// Files that one rule may have them ask for.
pub(super) const MAX_FILES_PER_RULE: usize = 100;

/// The use of proxies' files by clusters; unused files are not looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientFiles {
    Asked,
    Unused,
}

impl ClientFiles {
    pub(super) fn of(world: &World, mesh: &Mesh) -> Self {
        let mut rules = world.destination_rules.values();
        let logs = mesh.log_service.iter();
        let mut logs = logs.flat_map(LogService::secrets_in_files);
        match logs.next().is_some() || rules.any(|rule| has_client_files(&rule.spec)) {
            true => Self::Asked,
            false => Self::Unused,
        }
    }
}

impl SnapshotBase {
    /// The namespace of a proxy whose connections may have certificates by name, and whether it has shown who it is.
    pub(super) fn client_secrets(&self, node: &Node) -> Option<(Arc<str>, bool)> {
        let known = &self.client_credentials;
        let may = match node.is_sidecar() {
            true => known.of_sidecars.contains(&node.namespace),
            false => known.of_routers,
        };
        let is_trusted = node.router.may_have_secrets;
        (may && !node.grpc).then(|| (node.namespace.clone(), is_trusted))
    }
}

impl Snapshot {
    /// Returns true if it matters to a proxy which certificates there are by name.
    #[must_use]
    pub fn has_credentials_for(&self, node: &Node) -> bool {
        node.kind == Kind::Router || self.base.client_secrets(node).is_some()
    }
}

impl ProxyView {
    pub(super) fn credentials(&self) -> ProxySecrets<'_> {
        let node = &self.inputs.proxy.node;
        ProxySecrets {
            all: &self.snapshot.world.credentials,
            namespace: &node.namespace,
            is_trusted: node.kind == Kind::Router && !node.grpc && node.router.may_have_secrets,
        }
    }

    /// The credentials that a cluster with these rules may have; `None`: the rules name none for this proxy.
    pub(super) fn client_credentials(
        &self,
        policies: &ServicePolicies,
    ) -> Option<ProxySecrets<'_>> {
        let (namespace, is_trusted) = self.inputs.client.secrets.as_ref()?;
        let may = self.inputs.client.kind == Kind::Router || policies.are_for_sidecars();
        may.then(|| ProxySecrets {
            all: &self.snapshot.world.credentials,
            namespace,
            is_trusted: *is_trusted,
        })
    }

    /// Names that its clusters ask for.
    fn names_of_clusters(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        if self.inputs.client.secrets.is_none() {
            return names;
        }
        for service_port in self.inputs.rules.service_ports().all() {
            let policies = ServicePolicies::of_service(&self.inputs.rules, &service_port.service);
            let Some(secrets) = self.client_credentials(&policies) else {
                continue;
            };
            let of_subsets = policies.subsets().into_iter().map(Some);
            for subset in of_subsets.chain([None]) {
                let policy = policies.of(subset, service_port.port.number);
                names.extend(policy.credentials(secrets).names());
            }
        }
        names
    }

    /// Returns the secrets that its Gateways name, and the rules for its connections.
    pub(super) fn secrets(&self) -> Arc<Set> {
        let secrets = self.credentials();
        let mut names = self.inputs.merged.secrets(secrets);
        let of_clusters = self.names_of_clusters();
        // Clusters have names only of what a trusted stream was granted, so these may be read.
        let is_asked = secrets.is_trusted || !of_clusters.is_empty();
        names.extend(of_clusters);
        let secrets = ProxySecrets {
            is_trusted: is_asked,
            ..secrets
        };
        let all = names.into_iter();
        let all = all
            .filter_map(|name| Some(Arc::new(resource(&name, &secrets.by_resource_name(&name)?))));
        // Places of what a proxy has itself: nothing of it is known here.
        let mut files = self.files();
        let of_clusters = self.client_files();
        // A file that servers and clusters both name is told at the objects of both.
        for one in &*of_clusters {
            files.also_of(&one.name, &one.from);
        }
        let files = files.resources().chain(of_clusters.iter().cloned());
        Arc::new(all.chain(files).collect())
    }

    /// The secrets that servers of a router name, and the ingress of a Sidecar.
    fn files(&self) -> FileSecrets {
        let files = &self.inputs.proxy.node.server;
        let mut all = self.inputs.merged.files(files);
        for inbound_port in &self.inputs.inbound_ports {
            if let (Some(tls), [from, ..]) = (&inbound_port.tls, &*inbound_port.from) {
                all.add(in_files(tls, files), std::slice::from_ref(from));
            }
        }
        all
    }

    /// The secrets in files that its clusters ask for, which all share that have these clusters.
    fn client_files(&self) -> Arc<Set> {
        // They are made with the clusters.
        drop(self.outbound_clusters());
        let scope = self.inputs.rules.clusters.clone();
        self.parts.clusters.secrets.get(scope, Arc::default)
    }

    /// Secrets of the mesh's own connections.
    pub(super) fn files_of_mesh(&self) -> FileSecrets {
        let mut all = FileSecrets::default();
        if !self.inputs.client.grpc {
            let logs = self.mesh().log_service.iter();
            all.add(logs.flat_map(LogService::secrets_in_files), &[]);
        }
        all
    }

    /// Adds the secrets in files that the cluster of a port or of a subset asks for. Returns the conflict where there is no room for
    /// them: the cluster is left out then.
    pub(super) fn add_client_files(
        &self,
        service_port: &ServicePort,
        policies: &ServicePolicies,
        subset: Option<&Subset>,
        (room, files): (&mut FairBudget, &mut FileSecrets),
    ) -> Option<Conflict> {
        if self.snapshot.base.client_files == ClientFiles::Unused {
            return None;
        }
        let policy = policies.of(subset, service_port.port.number);
        let secrets = policy.secrets_in_files(self.client_credentials(policies));
        let secrets: Vec<_> = secrets.collect();
        let rule = policies.first()?;
        let is_new = |secret: &&Message| secret.name != system_roots() && !files.has(&secret.name);
        let new = secrets.iter().filter(is_new).count();
        if !room.has_room_for(rule, new) {
            let name = service_port.cluster(subset.map_or("", |subset| &subset.name));
            let message = format!(
                "{name} is left out: rules name more than {MAX_CLIENT_FILES} files of a proxy, or one of them more than \
                 {MAX_FILES_PER_RULE}, and those of its namespace more than their share"
            );
            return Some(Conflict::new(TOO_LARGE, &*name, message).because_of(rule));
        }
        room.spend(rule, new);
        files.add(secrets, &policies.from(subset));
        None
    }
}

/// The name of the system's roots, of which no proxy has others: they take no room.
fn system_roots() -> String {
    let (root, crl) = (SYSTEM_ROOTS, "");
    FileRoot { root, crl }.name()
}
