//! Certificates that Gateways and rules for connections name, off the Secrets of the local cluster: only those are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::{Objects, Registry, Workload, WorkloadKey};
use api::networking::{DestinationRule, Gateway};
use sources::contribution::SourceId;
use sources::kubernetes::{
    Cluster, FoundCredentials, WantedCredentials, WatchTiming, credentials as look_for,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use xds::snapshot::named_credentials;

use crate::discovery::hub::{Hub, PendingLookup};

/// Looks for them from now on. Routers that come before it is known which there are wait for that: a listener without a chain
/// that it had would end connections.
pub(super) fn start(hub: &Arc<Hub>, cluster: Cluster, pace: WatchTiming, loops: &mut JoinSet<()>) {
    let looking = hub.edge.begin();
    let (wanted_sender, wanted) = watch::channel(Arc::default());
    let (to, credentials) = watch::channel(FoundCredentials::default());
    loops.spawn(look_for(cluster, pace, wanted, to));
    loops.spawn(follow(Arc::clone(hub), wanted_sender, credentials, looking));
}

async fn follow(
    hub: Arc<Hub>,
    wanted_sender: watch::Sender<Arc<WantedCredentials>>,
    mut credentials: watch::Receiver<FoundCredentials>,
    looking: PendingLookup,
) {
    let mut looking = Some(looking);
    let source = SourceId {
        registry: Registry::Kubernetes,
        cluster: hub.options.settings.cluster.clone(),
    };
    let mut snapshots = hub.current.watch();
    let mut last: Option<NamedSources> = None;
    let mut is_known = false;
    loop {
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() { return },
            changed = credentials.changed() => {
                if changed.is_err() {
                    return;
                }
                let FoundCredentials { all, broken, .. } = credentials.borrow_and_update().clone();
                hub.facts.set_broken_secrets(&source, broken);
                hub.update(|registries| registries.set_credentials(all));
            }
        }
        let now = snapshots.borrow_and_update().clone();
        let Some(snapshot) = now else {
            continue;
        };
        let names = (
            Arc::clone(&snapshot.world().gateways),
            Arc::clone(&snapshot.world().workloads),
            Arc::clone(&snapshot.world().destination_rules),
        );
        if last.as_ref().is_none_or(|last| !is_same(last, &names)) {
            let settings = Arc::clone(&hub.options.settings);
            let of = Arc::clone(&snapshot);
            let pods = snapshot.world().workloads.len();
            let rules = snapshot.world().destination_rules.len();
            let size = pods.saturating_mul(snapshot.world().gateways.len());
            let size = size.saturating_add(rules);
            let wanted = hub
                .blocking
                .run(size, move || named_credentials(of.world(), &settings))
                .await;
            is_known |= replace(&wanted_sender, wanted);
            last = Some(names);
        }
        let credentials = credentials.borrow();
        let served = &snapshot.world().credentials;
        let is_served = credentials
            .all
            .iter()
            .all(|(key, one)| served.get(key) == Some(one));
        // Routers may come once the Secrets that are named now were looked for, and are in this snapshot.
        if is_known
            && looking.is_some()
            && credentials.resolved == **wanted_sender.borrow()
            && is_served
        {
            looking = None;
        }
    }
}

/// Replaces the wanted credentials; returns true if they are known. `None`: looking for them has panicked, and the last ones stay,
/// since without any each gateway would lose its certificates.
fn replace(
    current: &watch::Sender<Arc<WantedCredentials>>,
    wanted: Option<WantedCredentials>,
) -> bool {
    let Some(wanted) = wanted else {
        return false;
    };
    current.send_if_modified(|current| {
        let is_news = **current != wanted;
        if is_news {
            *current = Arc::new(wanted);
        }
        is_news
    });
    true
}

/// The objects that `named_credentials` takes names from, compared by pointer.
type NamedSources = (
    Arc<Objects<Gateway>>,
    Arc<BTreeMap<WorkloadKey, Arc<Workload>>>,
    Arc<Objects<DestinationRule>>,
);

fn is_same(one: &NamedSources, other: &NamedSources) -> bool {
    Arc::ptr_eq(&one.0, &other.0) && Arc::ptr_eq(&one.1, &other.1) && Arc::ptr_eq(&one.2, &other.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mistake in what looks for them used to take the certificates of all gateways away.
    #[test]
    fn the_last_known_credentials_stay_when_looking_for_them_panics() {
        let (wanted, mut watched) = watch::channel(Arc::default());
        assert!(!replace(&wanted, None));
        assert!(replace(&wanted, Some(WantedCredentials::default())));
        assert!(!watched.has_changed().unwrap());
        let one = WantedCredentials::from_iter([("a".into(), "b".into())]);
        assert!(replace(&wanted, Some(one.clone())));
        assert!(watched.has_changed().unwrap());
        watched.mark_unchanged();
        assert!(!replace(&wanted, None));
        assert!(replace(&wanted, Some(one.clone())));
        assert!(!watched.has_changed().unwrap());
        assert_eq!(**wanted.borrow(), one);
    }
}
