//! Secrets with certificates, each looked up by its name: no other Secret of a cluster is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::kubernetes::ObjectMeta;
use api::model::{Credential, CredentialKey, Credentials};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::wire::MetadataView as _;
use crate::contribution::SecretData;
use crate::kind::{Key, Kind, Resource};
use crate::kubernetes::connect::Cluster;
use crate::kubernetes::store::{Reader, store};
use crate::kubernetes::watcher::{ObjectSource as _, Selection, WatchTiming, Watcher};
use crate::panics::RestartingTasks;

/// Secrets that are looked for at once: each is a watch of its own. Chosen: an edge has a few dozen certificates.
pub const MAX_CREDENTIALS: usize = 200;

/// Secrets by their namespaces and names.
pub type WantedCredentials = BTreeSet<CredentialKey>;

/// Secrets that cannot be used, with the causes.
pub type BrokenCredentials = BTreeMap<CredentialKey, Arc<str>>;

/// Certificates from the Secrets that were wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundCredentials {
    pub all: Arc<Credentials>,
    /// The last good certificate of these is in `all`, where there was one.
    pub broken: Arc<BrokenCredentials>,
    /// Secrets that need no more waiting: the API server has answered for them, or there are too many to look for.
    pub resolved: WantedCredentials,
}

/// A Secret that was requested.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "RawNamedSecret")]
struct NamedSecret {
    key: Key,
    data: SecretData,
}

#[derive(Deserialize)]
struct RawNamedSecret {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(flatten)]
    data: SecretData,
}

impl From<RawNamedSecret> for NamedSecret {
    fn from(raw: RawNamedSecret) -> Self {
        Self {
            key: raw.metadata.key(),
            data: raw.data,
        }
    }
}

impl Kind for NamedSecret {
    const RESOURCE: Resource = Resource::core("secrets");

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn size(&self) -> usize {
        self.data.size().saturating_add(size_of::<Self>())
    }
}

/// The answer of the API server about one Secret.
enum CredentialEvent {
    Read(Option<Arc<NamedSecret>>),
    /// The account has no right to it.
    Refused,
}

/// A Secret that is looked up.
struct SecretLookup {
    /// Distinguishes lookups of the same name.
    generation: u64,
    task: AbortHandle,
}

struct SecretLookups {
    cluster: Cluster,
    pace: WatchTiming,
    events: mpsc::Sender<(CredentialKey, u64, CredentialEvent)>,
    tasks: RestartingTasks,
    lookups: BTreeMap<CredentialKey, SecretLookup>,
    generation: u64,
}

/// Looks up the wanted Secrets, follows their changes, and emits the state for as long as there is a receiver. An incomplete Secret
/// is reported, and its last good version is served.
pub async fn credentials(
    cluster: Cluster,
    pace: WatchTiming,
    mut wanted: watch::Receiver<Arc<WantedCredentials>>,
    to: watch::Sender<FoundCredentials>,
) {
    let (events, mut received) = mpsc::channel(1);
    let mut lookups = SecretLookups {
        cluster,
        pace,
        events,
        tasks: RestartingTasks::new(pace.bounds()),
        lookups: BTreeMap::new(),
        generation: 0,
    };
    loop {
        tokio::select! {
            changed = wanted.changed() => match changed {
                Ok(()) => {
                    let now = Arc::clone(&wanted.borrow_and_update());
                    lookups.seek(&now, &to);
                }
                Err(_) => return,
            },
            Some((key, generation, event)) = received.recv() => lookups.handle_event(&key, generation, event, &to),
            () = to.closed() => return,
        }
    }
}

impl SecretLookups {
    fn seek(&mut self, wanted: &WantedCredentials, to: &watch::Sender<FoundCredentials>) {
        let watched: WantedCredentials = wanted.iter().take(MAX_CREDENTIALS).cloned().collect();
        if wanted.len() > watched.len() {
            tracing::warn!(
                "Gateways name {} secrets: {MAX_CREDENTIALS} are looked for, and certificates of the others are not served",
                wanted.len()
            );
        }
        let gone: Vec<_> = self
            .lookups
            .keys()
            .filter(|key| !watched.contains(*key))
            .cloned()
            .collect();
        for key in &gone {
            if let Some(one) = self.lookups.remove(key) {
                one.task.abort();
            }
        }
        to.send_if_modified(|credentials| {
            let mut is_modified = false;
            for key in &gone {
                // A certificate is there only once its Secret is resolved, so that `resolved` alone tells the
                // change.
                is_modified |= credentials.resolved.remove(key);
                set_broken(&mut credentials.broken, key, None);
                if credentials.all.contains_key(key) {
                    Arc::make_mut(&mut credentials.all).remove(key);
                }
            }
            // A Secret beyond the limit is not looked up, and counts as resolved.
            for key in wanted.difference(&watched) {
                is_modified |= credentials.resolved.insert(key.clone());
            }
            is_modified
        });
        for key in watched {
            if self.lookups.contains_key(&key) {
                continue;
            }
            self.generation = self.generation.wrapping_add(1);
            let task = self.start(key.clone());
            let generation = self.generation;
            self.lookups.insert(key, SecretLookup { generation, task });
        }
    }

    fn start(&mut self, key: CredentialKey) -> AbortHandle {
        let (cluster, pace, events) = (self.cluster.clone(), self.pace, self.events.clone());
        let generation = self.generation;
        let name = format!("the watch of secret {}/{}", key.0, key.1);
        self.tasks.spawn(name, move || {
            look_up(
                cluster.clone(),
                pace,
                key.clone(),
                generation,
                events.clone(),
            )
        })
    }

    fn handle_event(
        &self,
        key: &CredentialKey,
        generation: u64,
        event: CredentialEvent,
        to: &watch::Sender<FoundCredentials>,
    ) {
        let is_current = |one: &SecretLookup| one.generation == generation;
        // A task that was aborted may have sent its event before.
        if !self.lookups.get(key).is_some_and(is_current) {
            return;
        }
        let (namespace, name) = key;
        let usable: Result<Option<Arc<Credential>>, String> = match event {
            CredentialEvent::Refused => {
                tracing::warn!(
                    "cannot read secret {namespace}/{name}: the account has no right to it"
                );
                Ok(None)
            }
            CredentialEvent::Read(None) => Ok(None),
            CredentialEvent::Read(Some(secret)) => secret.data.usable(),
        };
        let (change, broken) = match usable {
            Ok(change) => (change, None),
            Err(why) => {
                tracing::warn!("cannot use secret {namespace}/{name}: {why}");
                (to.borrow().all.get(key).cloned(), Some(why.into()))
            }
        };
        to.send_if_modified(|credentials| {
            let is_new = credentials.resolved.insert(key.clone());
            let is_broken_changed = set_broken(&mut credentials.broken, key, broken);
            let is_same = credentials.all.get(key) == change.as_ref();
            if !is_same {
                let all = Arc::make_mut(&mut credentials.all);
                match change {
                    Some(one) => all.insert(key.clone(), one),
                    None => all.remove(key),
                };
            }
            is_new || is_broken_changed || !is_same
        });
    }
}

/// Sets the cause for which a Secret cannot be used. Returns true if it is another one now.
fn set_broken(
    all: &mut Arc<BrokenCredentials>,
    key: &CredentialKey,
    cause: Option<Arc<str>>,
) -> bool {
    if all.get(key) == cause.as_ref() {
        return false;
    }
    let all = Arc::make_mut(all);
    match cause {
        Some(cause) => all.insert(key.clone(), cause),
        None => all.remove(key),
    };
    true
}

/// Follows one Secret for as long as there is a receiver.
async fn look_up(
    cluster: Cluster,
    pace: WatchTiming,
    key: CredentialKey,
    generation: u64,
    events: mpsc::Sender<(CredentialKey, u64, CredentialEvent)>,
) {
    let selection = Selection {
        namespace: Some(key.0.to_string()),
        name: Some(key.1.to_string()),
        labels: None,
    };
    let (writer, reader) = store::<NamedSecret>();
    let watcher = Watcher::new(cluster, selection, pace);
    tokio::select! {
        never = watcher.run(writer) => match never {},
        () = emit(reader, key, generation, events) => {}
    }
}

async fn emit(
    mut secrets: Reader<NamedSecret>,
    key: CredentialKey,
    generation: u64,
    events: mpsc::Sender<(CredentialKey, u64, CredentialEvent)>,
) {
    let own = Key::new(&key.0, &key.1);
    while let Some(changes) = secrets.changed().await {
        let freshness = changes.freshness;
        let event = if freshness.listed {
            CredentialEvent::Read(secrets.get(&own))
        } else if freshness.refused {
            CredentialEvent::Refused
        } else {
            continue;
        };
        if events.send((key.clone(), generation, event)).await.is_err() {
            return;
        }
    }
}
