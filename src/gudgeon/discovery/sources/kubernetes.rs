//! API servers: the local one, and those that its Secrets name.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::model::{ClusterId, Registry};
use cluster::registry::kubernetes::{self, Remotes, Settings, Told};
use cluster::registry::{Contribution, SourceId, Standing};
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

/// Reads the local cluster and the remote ones from now on; their rules, if any are read, while they count. Returns the local one's name, and what it tells.
///
/// # Errors
/// There is no way to a cluster.
pub(super) async fn start(
    flags: &DiscoveryFlags,
    hub: &Arc<Hub>,
    configuration: bool,
    counts: &watch::Receiver<bool>,
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
    let to_hub = follow(Arc::clone(hub), local.clone(), told.clone(), counts.clone());
    tokio::spawn(to_hub);
    let namespace = flags
        .cluster_registries_namespace
        .clone()
        .unwrap_or_else(|| hub.options.namespace.to_string());
    let (to, remotes) = watch::channel(Remotes::default());
    tokio::spawn(kubernetes::remotes(cluster, namespace, settings, trust, to));
    tokio::spawn(follow_all(Arc::clone(hub), remotes, counts.clone()));
    Ok((local, told))
}

fn tell(hub: &Hub, cluster: &ClusterId, told: &Told, with_rules: bool) {
    let id = id(cluster);
    hub.facts.put(&id, told);
    let mut said = told.contribution.clone();
    if !with_rules {
        let none = Contribution::default();
        said.entries = none.entries;
        said.workload_entries = none.workload_entries;
        said.sidecars = none.sidecars;
    }
    hub.update(|registries| registries.put(&id, said));
    hub.stand(&id, told.standing.clone());
}

async fn follow(
    hub: Arc<Hub>,
    local: ClusterId,
    mut told: watch::Receiver<Told>,
    mut counts: watch::Receiver<bool>,
) {
    // Nothing was told yet: whether rules count is no news.
    let mut has_told = false;
    loop {
        tokio::select! {
            changed = told.changed() => match changed {
                Ok(()) => has_told = true,
                Err(_) => return,
            },
            changed = counts.changed() => if changed.is_err() { return },
        }
        if has_told {
            let now = told.borrow_and_update().clone();
            tell(&hub, &local, &now, *counts.borrow_and_update());
        }
    }
}

/// All remote clusters: those that are not there any more are gone at once.
async fn follow_all(
    hub: Arc<Hub>,
    mut remotes: watch::Receiver<Remotes>,
    mut counts: watch::Receiver<bool>,
) {
    let mut known: Remotes = Remotes::new();
    let mut counted = *counts.borrow_and_update();
    loop {
        tokio::select! {
            changed = remotes.changed() => if changed.is_err() { return },
            changed = counts.changed() => if changed.is_err() { return },
        }
        let now = remotes.borrow_and_update().clone();
        let count = *counts.borrow_and_update();
        for (cluster, told) in &now {
            if known.get(cluster) != Some(told) || count != counted {
                tell(&hub, cluster, told, count);
            }
        }
        let gone: BTreeSet<_> = known
            .keys()
            .filter(|cluster| !now.contains_key(*cluster))
            .collect();
        for cluster in gone {
            hub.forget(&id(cluster));
        }
        (known, counted) = (now, count);
    }
}
