//! API servers: the local one, and those that its Secrets name.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::model::{ClusterId, Registry};
use cluster::registry::kubernetes::{self, Remotes, Settings, Told};
use cluster::registry::{SourceId, Standing};
use cluster::{Access, Cluster};
use tokio::sync::watch;

use super::names;
use crate::cli::DiscoveryFlags;
use crate::discovery::hub::Hub;
use crate::exit::Failure;

fn id(cluster: &ClusterId) -> SourceId {
    SourceId {
        registry: Registry::Kubernetes,
        cluster: cluster.clone(),
    }
}

/// Reads the local cluster and the remote ones from now on. Returns the local one's name, and what it tells.
///
/// # Errors
/// There is no way to a cluster.
pub(super) async fn start(
    flags: &DiscoveryFlags,
    hub: &Arc<Hub>,
    configuration: bool,
) -> Result<(ClusterId, watch::Receiver<Told>), Failure> {
    let access = match &flags.kubeconfig {
        Some(file) => Access::Kubeconfig {
            file: Some(file.clone()),
            context: None,
        },
        None if Access::in_cluster() => Access::InCluster,
        None => {
            return Err(Failure::config(
                "cannot read services from Kubernetes: not in a cluster, and no --kubeconfig",
            ));
        }
    };
    let cluster = Cluster::open(&access).await.map_err(|cause| {
        Failure::config(format!("cannot read services from Kubernetes: {cause}"))
    })?;
    let local = hub.options.settings.cluster.clone();
    let settings = Settings {
        namespace: flags.app_namespace.clone(),
        configuration,
        ..Settings::new(names(hub, local.clone()))
    };
    hub.stand(&id(&local), Standing::Syncing);
    let trust = hub.trust_domains();
    let (to, told) = watch::channel(Told::default());
    tokio::spawn(kubernetes::run(
        cluster.clone(),
        settings.clone(),
        trust.clone(),
        to,
    ));
    tokio::spawn(follow(Arc::clone(hub), local.clone(), told.clone()));
    let namespace = flags
        .cluster_registries_namespace
        .clone()
        .unwrap_or_else(|| hub.options.namespace.to_string());
    let (to, remotes) = watch::channel(Remotes::default());
    tokio::spawn(kubernetes::remotes(cluster, namespace, settings, trust, to));
    tokio::spawn(follow_all(Arc::clone(hub), remotes));
    Ok((local, told))
}

fn tell(hub: &Hub, cluster: &ClusterId, told: &Told) {
    let id = id(cluster);
    hub.facts.put(&id, told);
    hub.update(|registries| registries.put(&id, told.contribution.clone()));
    hub.stand(&id, told.standing.clone());
}

async fn follow(hub: Arc<Hub>, local: ClusterId, mut told: watch::Receiver<Told>) {
    while told.changed().await.is_ok() {
        let now = told.borrow_and_update().clone();
        tell(&hub, &local, &now);
    }
}

/// All remote clusters: those that are not there any more are gone at once.
async fn follow_all(hub: Arc<Hub>, mut remotes: watch::Receiver<Remotes>) {
    let mut known: Remotes = Remotes::new();
    while remotes.changed().await.is_ok() {
        let now = remotes.borrow_and_update().clone();
        for (cluster, told) in &now {
            if known.get(cluster) != Some(told) {
                tell(&hub, cluster, told);
            }
        }
        let gone: BTreeSet<_> = known
            .keys()
            .filter(|cluster| !now.contains_key(*cluster))
            .collect();
        for cluster in gone {
            hub.forget(&id(cluster));
        }
        known = now;
    }
}
