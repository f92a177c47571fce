//! Rules that discovery reads itself, from `--configDir` or from API servers: they count as long as no MCP source is named.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

/// The longest wait for Ingresses once the other rules of clusters are there. Chosen: an API server that is there answers in less, and
/// an account without the right to list them does not keep others' rules in force.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(10);

/// Own rules of clusters, for the tasks that put them into the hub.
#[derive(Clone, Debug)]
pub(super) struct ClusterRules {
    /// Receives true while they count.
    pub(super) counts: watch::Receiver<bool>,
    put: Arc<PutRules>,
}

/// The rules of clusters that are in the hub since they count.
#[derive(Debug)]
struct PutRules {
    configuration: watch::Sender<bool>,
    ingresses: watch::Sender<PutIngresses>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PutIngresses {
    /// Discovery reads no Ingresses.
    Unwatched,
    Awaited,
    Put,
}

impl Default for PutRules {
    fn default() -> Self {
        Self {
            configuration: watch::Sender::new(false),
            ingresses: watch::Sender::new(PutIngresses::Unwatched),
        }
    }
}

impl PutRules {
    /// Returns once they are in the hub, with the Ingresses if these are in time.
    async fn are_there(&self) {
        let mut configuration = self.configuration.subscribe();
        drop(configuration.wait_for(|is_put| *is_put).await);
        let mut ingresses = self.ingresses.subscribe();
        let are_settled = |ingresses: &PutIngresses| *ingresses != PutIngresses::Awaited;
        drop(timeout(MAX_WAIT, ingresses.wait_for(are_settled)).await);
    }

    /// Forgets what was put when they counted before.
    fn reset(&self) {
        self.configuration.send_replace(false);
        self.ingresses.send_if_modified(|ingresses| {
            let are_put = *ingresses == PutIngresses::Put;
            if are_put {
                *ingresses = PutIngresses::Awaited;
            }
            are_put
        });
    }
}

impl ClusterRules {
    #[cfg(test)]
    pub(super) fn new(counts: watch::Receiver<bool>) -> Self {
        Self {
            counts,
            put: Arc::default(),
        }
    }

    /// Tells that the rules were put into the hub while they count.
    pub(super) fn are_put(&self) {
        self.put.configuration.send_replace(true);
    }

    /// Tells whether the hub has the Ingresses that count.
    pub(super) fn ingresses_are_put(&self, are_put: bool) {
        self.put.ingresses.send_replace(match are_put {
            true => PutIngresses::Put,
            false => PutIngresses::Awaited,
        });
    }

    /// Returns each time that they have begun to count and are in the hub; `false`: they never will again.
    pub(super) async fn put_again(&mut self) -> bool {
        while self.counts.changed().await.is_ok() {
            while *self.counts.borrow_and_update() {
                tokio::select! {
                    biased;
                    // What was waited for is that of a time which is over.
                    changed = self.counts.changed() => if changed.is_err() { return false },
                    () = self.put.are_there() => return true,
                }
            }
        }
        false
    }
}

#[derive(Debug)]
pub(super) struct Own {
    counts: watch::Sender<bool>,
    put: Arc<PutRules>,
    /// True if own rules are read: no other source was named at the start.
    is_there: bool,
    is_directory: bool,
    /// True if an API server is read, whose rules will be put.
    has_clusters: AtomicBool,
}

impl Own {
    pub(super) fn new(others_are_named: bool, is_directory: bool) -> Self {
        Self {
            counts: watch::Sender::new(!others_are_named),
            put: Arc::default(),
            is_there: !others_are_named,
            is_directory,
            has_clusters: AtomicBool::new(false),
        }
    }

    /// Receives true while they count.
    pub(super) fn counts(&self) -> watch::Receiver<bool> {
        self.counts.subscribe()
    }

    /// Returns the rules for the task that puts those of clusters into the hub: the others' rules wait for it from now on.
    pub(super) fn of_clusters(&self) -> ClusterRules {
        self.has_clusters.store(true, Ordering::Relaxed);
        self.cluster_rules()
    }

    /// Returns the rules for a task that waits for those of clusters.
    pub(super) fn cluster_rules(&self) -> ClusterRules {
        ClusterRules {
            counts: self.counts(),
            put: Arc::clone(&self.put),
        }
    }

    /// Returns true if there is a task that puts rules of clusters into the hub.
    pub(super) fn has_clusters(&self) -> bool {
        self.has_clusters.load(Ordering::Relaxed)
    }

    /// Returns true while they count.
    pub(super) fn count(&self) -> bool {
        *self.counts.borrow()
    }

    /// Returns true if the others' rules count now. They take over when all of them have sent all, and give back when none of
    /// them is left.
    pub(super) fn yields(&self, others_are_named: bool, others_are_synced: bool) -> bool {
        let counts = self.count();
        match (counts, others_are_named) {
            (true, true) if others_are_synced => {
                info!("configuration comes from configSources from now on");
                self.counts.send_replace(false);
                true
            }
            (true, _) => false,
            (false, false) if self.is_there => {
                info!("configuration no longer comes from configSources");
                self.put.reset();
                self.counts.send_replace(true);
                // The directory's rules replace those of the sources in one step. Those of clusters, if there are any, come
                // before the others go: no moment is without rules.
                !self.is_directory
            }
            (false, false) => {
                warn!(
                    "configSources were removed, and no other source was read at the start: no rules are served"
                );
                true
            }
            (false, true) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_take_over_once_they_are_complete_and_give_back_when_there_are_none() {
        for is_directory in [true, false] {
            let own = Own::new(false, is_directory);
            let counts = own.counts();
            for (named, synced, others, ours) in [
                (true, false, false, true),
                (false, true, false, true),
                (true, true, true, false),
                // They are heard from then on, whoever comes later.
                (true, false, true, false),
                (false, true, !is_directory, true),
            ] {
                assert_eq!(own.yields(named, synced), others, "{named} {synced}");
                assert_eq!(*counts.borrow(), ours, "{named} {synced}");
            }
        }
        let own = Own::new(true, true);
        assert!(own.yields(true, false) && own.yields(false, true));
        assert!(!*own.counts().borrow());
    }
}
