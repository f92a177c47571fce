//! The directory of YAML: read, watched, read again.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::config::FindingList;
use api::model::{CredentialKey, Registry};
use sources::catalogue::{CoreKind, Message, Refused};
use sources::contribution::{SourceId, SyncState};
use sources::directory::{CoreOrigin, Files, Outcome};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use super::{WrittenObjects, names};
use crate::discovery::hub::Hub;
use crate::discovery::rules_without_effect::RuleCounts;
use crate::discovery::source_facts::ROUTES;
use crate::exit::Failure;
use crate::secrets;
use crate::shared::LastReport;
use crate::watch::{DebounceOptions, DirectoryFollower, DirectoryReader, Scan};

/// Shorter than that of others, because it counts towards the debounce.
const SHORT: DebounceOptions = DebounceOptions {
    quiet: Duration::from_millis(20),
    max: Duration::from_millis(20),
};
struct Directory {
    hub: Arc<Hub>,
    id: SourceId,
    files: DirectoryFollower<Files>,
    written_objects: WrittenObjects,
    /// True while the directory's rules count.
    counts: watch::Receiver<bool>,
    report: LastReport,
    /// Messages beside the report that were logged already.
    logged: BTreeSet<Message>,
}

impl DirectoryReader for Files {
    type Found = Outcome;

    fn scan(&mut self, _: bool) -> io::Result<Scan<Outcome>> {
        let mut found = self.read()?;
        Ok(Scan {
            folders: std::mem::take(&mut found.folders),
            hangs: found.hangs,
            found,
        })
    }

    fn forget_stamps(&mut self) {
        self.forget_stamps();
    }
}

/// Reads it once, and then keeps reading.
///
/// # Errors
/// It is not there.
pub(super) async fn start(
    hub: &Arc<Hub>,
    path: &Path,
    core_origin: CoreOrigin,
    written_objects: WrittenObjects,
    counts: watch::Receiver<bool>,
    loops: &mut JoinSet<()>,
) -> Result<(), Failure> {
    let cluster = hub.options.settings.cluster.clone();
    let (root, own) = (path.to_owned(), Arc::clone(hub));
    let opened = move || {
        let cluster = own.options.settings.cluster.clone();
        Files::new(&root, names(&own, cluster), core_origin)
    };
    let mut directory = Directory {
        hub: Arc::clone(hub),
        files: DirectoryFollower::new(path, Some(SHORT), opened).await,
        id: SourceId {
            registry: Registry::External,
            cluster,
        },
        written_objects,
        counts,
        report: LastReport::default(),
        logged: BTreeSet::new(),
    };
    let outcome = directory.files.try_scan().await.map_err(|cause| {
        Failure::config(format!(
            "cannot read --configDir {}: {cause}",
            path.display()
        ))
    })?;
    directory.take(outcome);
    loops.spawn(directory.run());
    Ok(())
}

impl Directory {
    async fn run(mut self) {
        let mut trust = self.hub.trust.watch();
        loop {
            if *self.counts.borrow_and_update() {
                self.waits(&mut trust).await;
            } else if self.counts.wait_for(|counts| *counts).await.is_err() {
                return;
            }
            // Somebody else gives rules: it is not even read.
            if !*self.counts.borrow() {
                continue;
            }
            let scanned = self.files.scan().await;
            self.take_scan(scanned);
        }
    }

    /// Takes the result of a scan, unless others' rules have come to count meanwhile: those are in the same place of the hub.
    fn take_scan(&mut self, scanned: io::Result<Outcome>) {
        if !*self.counts.borrow() {
            return;
        }
        match scanned {
            Ok(outcome) => self.take(outcome),
            Err(cause) => {
                let error = cause.to_string().into();
                self.hub
                    .set_sync_state(&self.id, SyncState::Stale { error });
            }
        }
    }

    /// Returns when the directory is to be scanned.
    async fn waits(&mut self, trust: &mut watch::Receiver<Arc<str>>) {
        tokio::select! {
            _ = self.counts.changed() => {}
            () = self.files.due() => {}
            Ok(()) = trust.changed() => {
                let domain = trust.borrow_and_update().clone();
                if let Some(files) = self.files.reader() {
                    let contribution = files.set_trust_domain(&domain);
                    // One file of the mesh may name the domain and the sources whose rules count from now on.
                    if *self.counts.borrow() {
                        self.hub.put(&self.id, contribution);
                    }
                }
            }
        }
    }

    /// Logs what is new.
    fn log(&mut self, outcome: &Outcome) {
        self.report.log(&outcome.report);
        let messages: BTreeSet<Message> = outcome.messages.iter().cloned().collect();
        for message in messages.difference(&self.logged) {
            warn!("{}", secrets::redact_text(&message.to_string()));
        }
        self.logged = messages;
    }

    fn take(&mut self, outcome: Outcome) {
        self.log(&outcome);
        self.hub.facts.refuse(&self.id, outcome.refused());
        let broken = outcome.report.refused.iter().filter_map(broken_secret);
        let broken = Arc::new(broken.collect());
        self.hub.facts.set_broken_secrets(&self.id, broken);
        let written = outcome.written.iter();
        let routes = written.filter(|one| {
            let is_read = api::config::unread_api(&one.api_version).is_none();
            one.is_accepted && is_read && *one.kind == *ROUTES
        });
        self.hub.facts.route(&self.id, routes.count());
        self.hub.facts.count(&self.id, outcome.objects);
        let mut rules = RuleCounts::default();
        // A refused version has no effect for that reason; its last good version is there once more.
        let accepted = outcome.written.iter().filter(|one| one.is_accepted);
        let objects = accepted.map(|one| {
            let group = one.api_version.split_once('/');
            let group = group.map_or("", |(group, _)| group);
            (group, &*one.kind, &*one.namespace, &*one.name)
        });
        for (group, kind, ..) in objects.collect::<BTreeSet<_>>() {
            rules.add(group, kind);
        }
        self.hub.facts.rule(&self.id, rules);
        *self
            .written_objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = outcome.written;
        self.hub.put(&self.id, outcome.contribution);
        // The state comes after the objects: it may complete the first snapshot.
        self.hub.set_sync_state(&self.id, SyncState::Synced);
    }
}

/// A refused Secret, with the cause; `None`: an object of another kind.
fn broken_secret(refused: &Refused) -> Option<(CredentialKey, Arc<str>)> {
    if refused.id.core_kind() != Some(CoreKind::Secret) {
        return None;
    }
    let (namespace, name) = refused.id.namespace_and_name();
    let cause = FindingList(&refused.findings).to_string();
    let cause = secrets::redact_text(&cause);
    Some(((namespace.into(), name.into()), (*cause).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::testing::hub;

    /// The rules of sources that had come to count while the directory was read were replaced by those of the directory.
    #[tokio::test]
    async fn a_scan_that_ends_after_others_rules_count_changes_nothing() {
        let (hub, root) = (hub(), tempfile::tempdir().unwrap());
        let (counting, counts) = watch::channel(true);
        let opened = {
            let (root, hub) = (root.path().to_owned(), Arc::clone(&hub));
            move || {
                let cluster = hub.options.settings.cluster.clone();
                Files::new(&root, names(&hub, cluster), CoreOrigin::Files)
            }
        };
        let mut directory = Directory {
            hub: Arc::clone(&hub),
            id: SourceId {
                registry: Registry::External,
                cluster: hub.options.settings.cluster.clone(),
            },
            files: DirectoryFollower::new(root.path(), Some(SHORT), opened).await,
            written_objects: WrittenObjects::default(),
            counts,
            report: LastReport::default(),
            logged: BTreeSet::new(),
        };
        let entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: own, namespace: n}\n\
                     spec: {hosts: [own.example], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}\n";
        std::fs::write(root.path().join("own.yaml"), entry).unwrap();
        let scanned = directory.files.scan().await;
        counting.send_replace(false);
        directory.take_scan(scanned);
        directory.take_scan(Err(io::Error::other("gone")));
        assert!(hub.world().services.is_empty() && hub.source_statuses().is_empty());
        counting.send_replace(true);
        let scanned = directory.files.scan().await;
        directory.take_scan(scanned);
        assert_eq!(hub.world().services.len(), 1);
    }
}
