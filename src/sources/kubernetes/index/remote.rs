//! Other clusters: a Secret holds a kubeconfig for each, by the cluster's id. They come, change and go while this runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::kubernetes::{ObjectMeta, nullable};
use api::model::ClusterId;
use k8s_openapi::ByteString;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::cluster_state::ClusterUpdate;
use super::source::{self, ClusterSettings};
use super::wire::MetadataView as _;
use crate::contribution::SyncState;
use crate::kind::{Key, Kind, Resource};
use crate::kubernetes::connect::Cluster;
use crate::kubernetes::store::{Changes, store};
use crate::kubernetes::watcher::{ObjectSource as _, Selection, Watcher};
use crate::panics::{Panicked, caught};

const LABEL: &str = "istio/multiCluster=true";

/// Remote clusters, by their ids.
pub type Remotes = BTreeMap<ClusterId, ClusterUpdate>;

/// A Secret of kubeconfigs.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(from = "RawKubeconfigSecret")]
struct Secret {
    key: Key,
    kubeconfigs: BTreeMap<Box<str>, ByteString>,
}

/// Omits the secrets.
impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Secret")
            .field("key", &self.key)
            .field("clusters", &self.kubeconfigs.keys())
            .finish()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawKubeconfigSecret {
    metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    data: BTreeMap<Box<str>, ByteString>,
}

impl From<RawKubeconfigSecret> for Secret {
    fn from(raw: RawKubeconfigSecret) -> Self {
        Self {
            key: raw.metadata.key(),
            kubeconfigs: raw.data,
        }
    }
}

impl Kind for Secret {
    const RESOURCE: Resource = Resource::core("secrets");

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn size(&self) -> usize {
        let data = self.kubeconfigs.iter();
        let data = data.map(|(name, ByteString(text))| name.len().saturating_add(text.len()));
        data.sum::<usize>().saturating_add(size_of::<Self>())
    }
}

/// Watches the Secrets of a namespace and the clusters that they name, with the settings of the local cluster but without
/// configuration, and sends the state of all of them for as long as there is a receiver. A cluster with an unusable
/// kubeconfig is listed, too, with the reason; a removed one is dropped at once, with all its objects. `known` becomes true
/// once the set of clusters is known: when the Secrets were listed, when the account has no permission, or after a deadline.
pub async fn remotes(
    local: Cluster,
    namespace: String,
    mut settings: ClusterSettings,
    trust_domain: watch::Receiver<Arc<str>>,
    to: watch::Sender<Remotes>,
    known: watch::Sender<bool>,
) {
    settings.configuration = false;
    let selection = Selection {
        namespace: Some(namespace),
        labels: Some(LABEL.to_owned()),
        name: None,
    };
    let (writer, mut secrets) = store::<Secret>();
    let mut tasks = JoinSet::new();
    let watcher = Watcher::new(local, selection, settings.pace);
    tasks.spawn(async move { match watcher.run(writer).await {} });
    let (emit, mut events) = mpsc::channel(1);
    let mut clusters = RemoteClusters {
        settings,
        trust_domain,
        emit,
        tasks,
        secrets: BTreeMap::new(),
        clusters: BTreeMap::new(),
        unused: BTreeSet::new(),
        generation: 0,
    };
    let is_known = || {
        let _is_news = known.send_if_modified(|known| !std::mem::replace(known, true));
    };
    let late = Instant::now() + clusters.settings.late;
    loop {
        tokio::select! {
            Some(changes) = secrets.changed() => {
                let freshness = changes.freshness.clone();
                clusters.apply(changes);
                clusters.reconcile(&to);
                if freshness.listed || freshness.refused {
                    is_known();
                }
            }
            () = sleep_until(late), if !*known.borrow() => {
                tracing::warn!("serving without other clusters: their list was not read in time");
                is_known();
            }
            Some((id, generation, event)) = events.recv() => clusters.forward_event(&id, generation, event, &to),
            () = to.closed() => return,
        }
    }
}

/// A message of a remote cluster's task.
#[allow(
    clippy::large_enum_variant,
    reason = "almost all are of that variant, and one is sent at a time"
)]
enum RemoteEvent {
    /// The kubeconfig cannot be used.
    Broken(Arc<str>),
    /// The cluster was not listed within the deadline.
    Late,
    Updated(ClusterUpdate),
}

/// A cluster that is read.
struct RemoteCluster {
    kubeconfig: ByteString,
    /// Distinguishes the clusters that have had this ID.
    generation: u64,
    task: AbortHandle,
}

struct RemoteClusters {
    settings: ClusterSettings,
    trust_domain: watch::Receiver<Arc<str>>,
    emit: mpsc::Sender<(ClusterId, u64, RemoteEvent)>,
    tasks: JoinSet<()>,
    secrets: BTreeMap<Key, Arc<Secret>>,
    clusters: BTreeMap<Box<str>, RemoteCluster>,
    /// Warnings about clusters that are not used.
    unused: BTreeSet<String>,
    generation: u64,
}

impl RemoteClusters {
    fn apply(&mut self, changes: Changes<Secret>) {
        if changes.whole {
            self.secrets.clear();
        }
        for change in changes.changes {
            match change {
                crate::kubernetes::store::Change::Set(key, secret) => {
                    self.secrets.insert(key, secret)
                }
                crate::kubernetes::store::Change::Gone(key) => self.secrets.remove(&key),
            };
        }
    }

    /// Returns the clusters that the Secrets name: of two Secrets with one cluster the first counts.
    fn desired_clusters(&mut self) -> BTreeMap<Box<str>, ByteString> {
        let mut unused = BTreeSet::new();
        let mut wanted: BTreeMap<Box<str>, (&Key, ByteString)> = BTreeMap::new();
        for (key, secret) in &self.secrets {
            for (id, kubeconfig) in &secret.kubeconfigs {
                if **id == *self.settings.names.cluster.as_str() {
                    unused.insert(format!(
                        "cannot use cluster {id} of secret {key}: the local cluster has this name"
                    ));
                } else if let Some((first, _)) = wanted.get(id) {
                    unused.insert(format!(
                        "cannot use cluster {id} of secret {key}: secret {first} has one of that name"
                    ));
                } else {
                    wanted.insert(id.clone(), (key, kubeconfig.clone()));
                }
            }
        }
        let wanted = wanted
            .into_iter()
            .map(|(id, (_, kubeconfig))| (id, kubeconfig))
            .collect();
        for message in unused.difference(&self.unused) {
            tracing::warn!("{message}");
        }
        self.unused = unused;
        wanted
    }

    fn reconcile(&mut self, to: &watch::Sender<Remotes>) {
        let wanted = self.desired_clusters();
        let gone: Vec<Box<str>> = self
            .clusters
            .keys()
            .filter(|id| !wanted.contains_key(*id))
            .cloned()
            .collect();
        for id in gone {
            if let Some(one) = self.clusters.remove(&id) {
                one.task.abort();
            }
            tracing::info!("cluster {id}: removed");
            to.send_if_modified(|all| all.remove(&*id).is_some());
        }
        for (id, kubeconfig) in wanted {
            match self.clusters.get(&id) {
                Some(one) if one.kubeconfig == kubeconfig => continue,
                Some(one) => {
                    one.task.abort();
                    tracing::info!("cluster {id}: another kubeconfig");
                }
                None => {
                    tracing::info!("cluster {id}: added");
                    let place = ClusterId::from(&*id);
                    to.send_if_modified(|all| {
                        all.insert(place, ClusterUpdate::default()).is_none()
                    });
                }
            }
            let one = self.start(&id, kubeconfig);
            self.clusters.insert(id, one);
        }
    }

    fn start(&mut self, id: &str, kubeconfig: ByteString) -> RemoteCluster {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let cluster = ClusterId::from(id);
        let mut settings = self.settings.clone();
        settings.names.cluster = cluster.clone();
        let (trust_domain, emit) = (self.trust_domain.clone(), self.emit.clone());
        let text = kubeconfig.clone();
        // Reaps the tasks that have ended.
        while self.tasks.try_join_next().is_some() {}
        let task = self.tasks.spawn(async move {
            let name = cluster.clone();
            let send = move |event| {
                let (emit, cluster) = (emit.clone(), cluster.clone());
                async move { emit.send((cluster, generation, event)).await.is_ok() }
            };
            let reading = read(text, settings, trust_domain, send.clone());
            // A cluster whose task is gone would be waited for.
            let panicked = |Panicked| Err("reading it panicked, see the log".to_owned());
            let Err(why) = caught(reading).await.unwrap_or_else(panicked) else {
                return;
            };
            tracing::warn!("cannot use cluster {name}: {why}");
            let _nobody_listens = send(RemoteEvent::Broken(why.into())).await;
        });
        RemoteCluster {
            kubeconfig,
            generation,
            task,
        }
    }

    fn forward_event(
        &self,
        id: &ClusterId,
        generation: u64,
        event: RemoteEvent,
        to: &watch::Sender<Remotes>,
    ) {
        // A message of a cluster that was replaced or removed meanwhile is dropped.
        let current = self.clusters.get(id.as_str());
        if current.is_none_or(|one| one.generation != generation) {
            return;
        }
        to.send_if_modified(|all| {
            let old = all.entry(id.clone()).or_default();
            let new = after(old, event);
            let changed = *old != new;
            *old = new;
            changed
        });
    }
}

/// Reads a cluster for as long as there is a receiver.
///
/// # Errors
/// The kubeconfig cannot be used.
async fn read<F: Future<Output = bool>>(
    kubeconfig: ByteString,
    settings: ClusterSettings,
    trust_domain: watch::Receiver<Arc<str>>,
    emit: impl Fn(RemoteEvent) -> F,
) -> Result<(), String> {
    let opened = Cluster::of_kubeconfig(&kubeconfig.0).await;
    let opened = opened.map_err(|error| error.to_string())?;
    let opened = opened.named(settings.names.cluster.as_str());
    let (to, from) = watch::channel(ClusterUpdate::default());
    let forwarding = forward(from, settings.late, emit);
    tokio::join!(source::run(opened, settings, trust_domain, to), forwarding);
    Ok(())
}

/// Forwards the states of a cluster, and that it was not listed in time, for as long as there is a receiver.
async fn forward<F: Future<Output = bool>>(
    mut from: watch::Receiver<ClusterUpdate>,
    late: Duration,
    emit: impl Fn(RemoteEvent) -> F,
) {
    let deadline = Instant::now() + late;
    let mut waiting = true;
    loop {
        let event = tokio::select! {
            changed = from.changed() => match changed {
                Ok(()) => RemoteEvent::Updated(from.borrow_and_update().clone()),
                Err(_) => return,
            },
            () = sleep_until(deadline), if waiting => RemoteEvent::Late,
        };
        waiting = match &event {
            RemoteEvent::Updated(update) => waiting && update.sync_state == SyncState::Syncing,
            RemoteEvent::Late | RemoteEvent::Broken(_) => false,
        };
        if !emit(event).await {
            return;
        }
    }
}

/// With a new kubeconfig the old state is served until the first complete list.
fn after(old: &ClusterUpdate, event: RemoteEvent) -> ClusterUpdate {
    let stale = |error: Arc<str>| ClusterUpdate {
        sync_state: SyncState::Stale {
            error: Arc::clone(&error),
        },
        error: Some(error),
        ..old.clone()
    };
    match event {
        RemoteEvent::Broken(error) => stale(error),
        RemoteEvent::Late if old.sync_state == SyncState::Syncing => {
            let error = old.error.clone();
            stale(error.unwrap_or_else(|| "not read yet".into()))
        }
        RemoteEvent::Late => old.clone(),
        RemoteEvent::Updated(update)
            if update.sync_state == SyncState::Syncing && old.sync_state != update.sync_state =>
        {
            stale(update.error.unwrap_or_else(|| "not read anew yet".into()))
        }
        RemoteEvent::Updated(update) => update,
    }
}
