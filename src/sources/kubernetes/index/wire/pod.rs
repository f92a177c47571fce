//! Pod.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::kubernetes::{self, ContainerPort, ObjectMeta, PodCondition, PodStatus};
use api::model::{Health, Labels};
use serde::Deserialize;

use super::{FirstError, MetadataView as _, labels, non_empty, shared};
use crate::kind::{Key, Kind, Resource, bytes};

const IDENTITY: &str = "alpha.istio.io/identity";

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "kubernetes::Pod")]
pub struct Pod {
    pub key: Key,
    pub(crate) created: Option<i64>,
    pub(crate) labels: Arc<Labels>,
    /// Instead of its account's.
    pub(crate) identity: Option<Box<str>>,
    pub(crate) account: Box<str>,
    pub(crate) node: Option<Box<str>>,
    /// The pod shares its node's network and addresses.
    pub(crate) host_network: bool,
    /// The pod has ended: its addresses may belong to another.
    pub(crate) over: bool,
    pub(crate) health: Health,
    /// The primary one first.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) ports: BTreeMap<Arc<str>, u16>,
    pub(crate) owner: Arc<str>,
    pub(crate) problem: Option<Box<str>>,
}

impl Kind for Pod {
    const RESOURCE: Resource = Resource::core("pods");

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn size(&self) -> usize {
        let pairs = self.labels.iter();
        let texts = pairs.flat_map(|(name, value)| [&**name, &**value]);
        let texts = texts
            .chain(self.ports.keys().map(|name| &**name))
            .chain([&*self.account, &*self.owner])
            .chain(self.identity.as_deref());
        let addresses = size_of::<IpAddr>().saturating_mul(self.addresses.len());
        bytes(texts)
            .saturating_add(addresses)
            .saturating_add(size_of::<Self>())
    }
}

/// Returns ready unless a condition denies it; a pod that is being deleted serves for as long as it is ready.
fn health(status: &PodStatus, is_deleted: bool) -> Health {
    let refuses =
        |condition: &PodCondition| condition.kind == "Ready" && condition.status != "True";
    if status.conditions.iter().any(refuses) {
        Health::NotReady
    } else if is_deleted {
        Health::Terminating
    } else {
        Health::Ready
    }
}

impl From<kubernetes::Pod> for Pod {
    fn from(raw: kubernetes::Pod) -> Self {
        let kubernetes::Pod {
            metadata,
            spec,
            status,
        } = raw;
        let mut wrong = FirstError::default();
        let health = health(&status, metadata.deletion_timestamp.is_some());
        let texts = wrong.items("status.podIPs", status.pod_ips).into_iter();
        let mut texts: Vec<_> = texts.map(|one| one.ip).collect();
        texts.retain(|text| !text.is_empty());
        if texts.is_empty() {
            texts.extend(wrong.address_text("status.podIP", status.pod_ip));
        }
        let addresses = texts.iter();
        let addresses = addresses.filter_map(|text| wrong.address("status.podIPs.ip", text));
        let addresses = addresses.collect();
        // Sidecar containers (`restartPolicy: Always`) have ports, too.
        let mut init = spec.init_containers;
        init.retain(|container| container.restart_policy == "Always");
        let containers = spec.containers.into_iter().chain(init);
        let ports = ports(containers.flat_map(|one| one.ports), &mut wrong);
        Self {
            key: metadata.key(),
            created: metadata.created_at(),
            identity: metadata.annotation(IDENTITY).map(Box::from),
            account: non_empty(spec.service_account_name).unwrap_or_else(|| "default".into()),
            node: non_empty(spec.node_name),
            host_network: spec.host_network,
            over: matches!(&*status.phase, "Succeeded" | "Failed"),
            health,
            addresses,
            ports,
            owner: shared(&owner(&metadata)),
            labels: Arc::new(labels(metadata.labels)),
            problem: wrong.0,
        }
    }
}

/// Ports of containers that have a name.
fn ports(
    written: impl Iterator<Item = ContainerPort>,
    wrong: &mut FirstError,
) -> BTreeMap<Arc<str>, u16> {
    let mut ports = BTreeMap::new();
    for port in written.filter(|port| matches!(&*port.protocol, "" | "TCP")) {
        let Some(name) = non_empty(port.name) else {
            continue;
        };
        const FIELD: &str = "spec.containers.ports.containerPort";
        if let Some(number) = wrong.number(FIELD, &port.container_port) {
            ports.entry(name.into()).or_insert(number);
        }
    }
    ports
}

/// Returns the name of the workload's owner: of the Deployment rather than its ReplicaSet; of the pod if it has no
/// controller.
fn owner(metadata: &ObjectMeta) -> String {
    let controller = metadata
        .owner_references
        .iter()
        .find(|owner| owner.controller && !owner.name.is_empty());
    let Some(controller) = controller else {
        return metadata.name.clone();
    };
    let name = controller.name.as_str();
    let behind = match controller.kind.as_str() {
        // A Rollout of Argo marks its ReplicaSets by a label of its own.
        "ReplicaSet" => ["rollouts-pod-template-hash", "pod-template-hash"]
            .into_iter()
            .find_map(|label| name.strip_suffix(metadata.label(label)?)?.strip_suffix('-')),
        // OpenShift has a DeploymentConfig behind the controller.
        "ReplicationController" => metadata.label("deploymentconfig"),
        // A CronJob's have the minute behind its name.
        "Job" => name.rsplit_once('-').and_then(|(name, minute)| {
            let is_minute = (8..=10).contains(&minute.len())
                && minute.bytes().all(|digit| digit.is_ascii_digit());
            is_minute.then_some(name)
        }),
        _ => None,
    };
    behind
        .filter(|name| !name.is_empty())
        .unwrap_or(name)
        .to_owned()
}
