//! All objects of the sources go to the hub as one update: those that come while it applies others wait for the next one.

use std::sync::{Arc, MutexGuard, PoisonError};

use sources::contribution::{Contribution, SyncState};

use super::counts::{OtherObjects, count};
use super::source::{lost, missing};
use super::union_state::UnionState;
use super::{McpSources, config_objects};

impl McpSources {
    /// Puts all objects into the hub, or marks them to be put there after the updates that it applies.
    pub(super) fn publish_or_mark(&self, state: MutexGuard<'_, UnionState>) {
        if self.hub.is_applying_updates() {
            self.is_unpublished.send_replace(true);
        } else {
            self.publish(state);
        }
    }

    /// Puts the objects that are marked into the hub, each time that the updates before them are applied.
    pub(super) fn publish_later(self: &Arc<Self>) -> impl Future<Output = ()> + use<> {
        let (mcp_sources, hub) = (Arc::downgrade(self), Arc::clone(&self.hub));
        let mut is_unpublished = self.is_unpublished.subscribe();
        async move {
            while is_unpublished.wait_for(|is| *is).await.is_ok() {
                hub.updates_applied().await;
                let Some(mcp_sources) = mcp_sources.upgrade() else {
                    return;
                };
                let state = mcp_sources.state();
                // Meanwhile others' rules may have come to count.
                if *is_unpublished.borrow() {
                    // Whatever other sources enqueue: otherwise they might always be first.
                    mcp_sources.publish(state);
                }
            }
        }
    }

    /// Lets the rules of sources stay in the hub until it has those of clusters again. An API server that was never heard keeps
    /// them there until it answers: they are the last good ones.
    pub(super) fn give_back(&self, mut state: MutexGuard<'_, UnionState>) {
        state.gives_back = true;
        self.is_unpublished.send_replace(false);
    }

    /// Takes the rules of sources out of the hub, each time that it has those of clusters again.
    pub(super) fn withdraw_later(self: &Arc<Self>) -> impl Future<Output = ()> + use<> {
        let (mcp_sources, mut own) = (Arc::downgrade(self), self.own.cluster_rules());
        async move {
            while own.put_again().await {
                let Some(mcp_sources) = mcp_sources.upgrade() else {
                    return;
                };
                mcp_sources.withdraw();
            }
        }
    }

    fn withdraw(&self) {
        let mut state = self.state();
        if !std::mem::take(&mut state.gives_back) {
            return;
        }
        if state.sources.is_empty() {
            self.publish(state);
            return;
        }
        // Others are named by now, and count once they have sent all.
        let has_services = state.has_services;
        drop(state);
        self.hub.facts.forget(&self.rules);
        self.hub.facts.forget(&self.services);
        self.hub.put(&self.rules, Contribution::default());
        if has_services {
            self.hub.put(&self.services, Contribution::default());
        }
    }

    /// Puts all objects and their sync state into the hub.
    pub(super) fn publish(&self, mut state: MutexGuard<'_, UnionState>) {
        state.gives_back = false;
        self.is_unpublished.send_replace(false);
        let hub = &self.hub;
        let rules = state.contribution();
        let services = Contribution {
            configuration: state.services.configuration().clone(),
            ..Contribution::default()
        };
        let others = OtherObjects {
            plain: state.of_files.counts(),
            refused: state.of_files.refused().collect(),
            unchecked: config_objects::unchecked_kinds(&state.sources),
            broken: Arc::new(state.broken_secrets()),
        };
        count(&hub.facts, &self.rules, &state.rules, others);
        let none = OtherObjects::default();
        count(&hub.facts, &self.services, &state.services, none);
        let missing = missing(&state.sources);
        let sync_state = sync_state(
            state.is_synced(),
            state.late,
            &missing,
            lost(&state.sources),
        );
        let has_services = state.has_services;
        drop(state);
        let mut awaited = hub.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.insert(self.rules.clone(), missing);
        drop(awaited);
        hub.put(&self.rules, rules);
        if has_services {
            hub.put(&self.services, services);
            hub.set_sync_state(&self.services, sync_state.clone());
        }
        // The state comes after the objects: it may complete the first snapshot.
        hub.set_sync_state(&self.rules, sync_state);
    }
}

/// The sync state of all sources as one. `missing` and `lost` name the sources that have not sent all, and those that give nothing
/// any more.
fn sync_state(is_synced: bool, is_late: bool, missing: &str, lost: String) -> SyncState {
    match (is_synced, is_late) {
        (true, _) if lost.is_empty() => SyncState::Synced,
        (true, _) => SyncState::Stale { error: lost.into() },
        (false, true) => SyncState::Stale {
            error: missing.into(),
        },
        (false, false) => SyncState::Syncing,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use api::model::Registry;
    use serde_json::json;
    use sources::catalogue::{Entry, EntryChange, EntryId, Origin};
    use sources::contribution::SourceId;
    use tokio::sync::mpsc;
    use tokio::task::JoinSet;
    use tokio::time::{sleep, timeout};

    use super::super::start;
    use crate::discovery::testing::{flags, hub_of, large_contribution};
    use crate::shared::RuleUpdate;

    fn entry(name: &str) -> EntryChange {
        let (object, found) = api::config::read(&json!({
            "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": {"name": name, "namespace": "n"},
            "spec": {"hosts": [format!("{name}.example")], "resolution": "DNS", "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]},
        }));
        assert!(found.is_empty(), "{found:?}");
        let id = EntryId {
            collection: "istio/networking/v1alpha3/serviceentries",
            name: format!("n/{name}").into(),
        };
        let entry = Entry::Object {
            object: object.unwrap().into(),
            created: None,
        };
        EntryChange::Set(id, entry, Origin::file("a.yaml"))
    }

    /// In a large mesh each response added updates, and each of those merges all sources anew.
    #[tokio::test]
    async fn responses_that_come_while_the_hub_applies_updates_become_one() {
        const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
        let (rules, updates) = mpsc::channel(1);
        let (mut loops, hub) = (JoinSet::new(), hub_of(&[]));
        let sources = start(Some(updates), &flags(&[]), &hub, &mut loops).unwrap();
        let other = SourceId {
            registry: Registry::External,
            cluster: "other".into(),
        };
        hub.put(&other, large_contribution());
        assert_eq!(hub.enqueued_updates(), 1);
        for (at, name) in NAMES.iter().enumerate() {
            let update = RuleUpdate {
                changes: vec![entry(name)],
                is_whole: at == 0,
                report: Arc::default(),
                is_complete: true,
            };
            rules.send(update).await.unwrap();
        }
        let wait = || sleep(Duration::from_millis(1));
        let read = || -> usize {
            let state = sources.state();
            let counts = state.rules.configuration().counts();
            counts.map(|(_, count)| count).sum()
        };
        let all = async {
            while read() < NAMES.len() {
                wait().await;
            }
            assert_eq!(hub.enqueued_updates(), 1);
            loops.spawn(Arc::clone(&hub).run());
            while hub.world().services.len() < NAMES.len() {
                wait().await;
            }
        };
        timeout(Duration::from_secs(20), all).await.unwrap();
        hub.updates_applied().await;
        // The rules and their sync state.
        assert_eq!(hub.enqueued_updates(), 3);
    }
}
