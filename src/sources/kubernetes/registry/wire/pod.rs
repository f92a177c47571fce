//! Pod.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Health, Labels};
use serde::Deserialize;

use super::{RawMetadata, Wrong, labels, non_empty, or_default, shared};
use crate::kind::{Key, Kind, Resource, bytes};

const IDENTITY: &str = "alpha.istio.io/identity";

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "RawPod")]
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawPod {
    metadata: RawMetadata,
    #[serde(deserialize_with = "or_default")]
    spec: RawPodSpec,
    #[serde(deserialize_with = "or_default")]
    status: RawPodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawPodSpec {
    service_account_name: Option<Box<str>>,
    node_name: Option<Box<str>>,
    host_network: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    containers: Vec<RawContainer>,
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<RawContainer>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawContainer {
    restart_policy: Option<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<RawContainerPort>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawContainerPort {
    name: Option<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    container_port: i64,
    protocol: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawPodStatus {
    phase: Option<Box<str>>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pod_ips: Vec<RawIp>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<RawCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawCondition {
    #[serde(rename = "type", deserialize_with = "or_default")]
    what: Box<str>,
    #[serde(deserialize_with = "or_default")]
    status: Box<str>,
}

impl RawPodStatus {
    /// Returns ready unless a condition denies it; a pod that is being deleted serves for as long as it is ready.
    fn health(&self, deleted: bool) -> Health {
        let refuses =
            |condition: &RawCondition| &*condition.what == "Ready" && &*condition.status != "True";
        if self.conditions.iter().any(refuses) {
            Health::NotReady
        } else if deleted {
            Health::Terminating
        } else {
            Health::Ready
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawIp {
    ip: Option<String>,
}

impl From<RawPod> for Pod {
    fn from(raw: RawPod) -> Self {
        let RawPod {
            metadata,
            spec,
            status,
        } = raw;
        let mut wrong = Wrong::default();
        let health = status.health(metadata.deletion_timestamp.is_some());
        let texts = status.pod_ips.into_iter().filter_map(|ip| ip.ip);
        let mut texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
        if texts.is_empty() {
            texts.extend(status.pod_ip.filter(|text| !text.is_empty()));
        }
        let addresses = texts.iter();
        let addresses = addresses.filter_map(|text| wrong.address("status.podIPs.ip", text));
        let addresses = addresses.collect();
        // Sidecar containers (`restartPolicy: Always`) have ports, too.
        let mut init = spec.init_containers;
        init.retain(|container| container.restart_policy.as_deref() == Some("Always"));
        let mut ports = BTreeMap::new();
        for port in spec
            .containers
            .into_iter()
            .chain(init)
            .flat_map(|one| one.ports)
        {
            let Some(name) = non_empty(port.name) else {
                continue;
            };
            if port
                .protocol
                .as_deref()
                .is_some_and(|protocol| protocol != "TCP")
            {
                continue;
            }
            if let Some(number) =
                wrong.port("spec.containers.ports.containerPort", port.container_port)
            {
                ports.entry(name.into()).or_insert(number);
            }
        }
        Self {
            key: metadata.key(),
            created: metadata.created(),
            identity: metadata.annotation(IDENTITY).map(Box::from),
            account: non_empty(spec.service_account_name).unwrap_or_else(|| "default".into()),
            node: non_empty(spec.node_name),
            host_network: spec.host_network == Some(true),
            over: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            health,
            addresses,
            ports,
            owner: shared(&owner(&metadata)),
            labels: Arc::new(labels(metadata.labels)),
            problem: wrong.0,
        }
    }
}

/// Returns the name of the workload's owner: of the Deployment rather than its ReplicaSet; of the pod if it has no
/// controller.
fn owner(metadata: &RawMetadata) -> String {
    let controller = metadata
        .owner_references
        .iter()
        .find(|owner| owner.controller == Some(true) && !owner.name.is_empty());
    let Some(controller) = controller else {
        return metadata.name.to_string();
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
