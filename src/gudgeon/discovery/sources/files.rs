//! The directory of YAML: read, watched, read again.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::config::FindingList;
use api::model::Registry;
use sources::catalogue::{ConfigReport, CoreKind, Message, Refused};
use sources::contribution::{SourceId, SyncState};
use sources::directory::{CoreOrigin, Files, Outcome};
use sources::kubernetes::BrokenCredentials;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use super::{ConfigObjects, names};
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
    config_objects: ConfigObjects,
    /// True while the directory's rules count.
    counts: watch::Receiver<bool>,
    report: LastReport,
    /// Messages beside the report that were logged already.
    logged: BTreeSet<Message>,
}

impl DirectoryReader for Files {
    type Found = Outcome;

    fn scan(&mut self, _: bool) -> io::Result<Scan<Outcome>> {
        let mut scan = self.read()?;
        Ok(Scan {
            folders: std::mem::take(&mut scan.folders),
            hangs: scan.hangs,
            found: scan,
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
    config_objects: ConfigObjects,
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
        config_objects,
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
        let broken = Arc::new(broken_secrets(&outcome.report));
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
            .config_objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = outcome.written;
        self.hub.put(&self.id, outcome.contribution);
        // The state comes after the objects: it may complete the first snapshot.
        self.hub.set_sync_state(&self.id, SyncState::Synced);
    }
}

/// The refused Secrets of a report, with the causes. A duplicate breaks nothing: the first of that name is served.
pub(super) fn broken_secrets(report: &ConfigReport) -> BrokenCredentials {
    let refused = report.refused.iter();
    let of_secrets = refused.filter(|one| one.id.core_kind() == Some(CoreKind::Secret));
    let broken = of_secrets.filter(|one| !is_duplicate(one));
    let with_cause = broken.map(|one| {
        let (namespace, name) = one.id.namespace_and_name();
        let cause = secrets::redact_text(&FindingList(&one.findings).to_string());
        ((namespace.into(), name.into()), (*cause).into())
    });
    with_cause.collect()
}

/// A Secret without a usable name is that of no Gateway, so that its name is at fault as a duplicate only.
fn is_duplicate(refused: &Refused) -> bool {
    let mut paths = refused.findings.iter().map(|finding| &finding.path);
    paths.all(|path| path == "metadata.name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::testing::hub;

    /// One that is not read yet.
    async fn directory(hub: &Arc<Hub>, root: &Path, counts: watch::Receiver<bool>) -> Directory {
        let (path, own) = (root.to_owned(), Arc::clone(hub));
        let opened = move || {
            let cluster = own.options.settings.cluster.clone();
            Files::new(&path, names(&own, cluster), CoreOrigin::Files)
        };
        Directory {
            hub: Arc::clone(hub),
            id: SourceId {
                registry: Registry::External,
                cluster: hub.options.settings.cluster.clone(),
            },
            files: DirectoryFollower::new(root, Some(SHORT), opened).await,
            config_objects: ConfigObjects::default(),
            counts,
            report: LastReport::default(),
            logged: BTreeSet::new(),
        }
    }

    /// The rules of sources that had come to count while the directory was read were replaced by those of the directory.
    #[tokio::test]
    async fn a_scan_that_ends_after_others_rules_count_changes_nothing() {
        let (hub, root) = (hub(), tempfile::tempdir().unwrap());
        let (counting, counts) = watch::channel(true);
        let mut directory = directory(&hub, root.path(), counts).await;
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

    /// The Gateway said that its Secret cannot be used, while the first of that name was served.
    #[tokio::test]
    async fn a_duplicate_of_a_secret_breaks_nothing() {
        let (hub, root) = (hub(), tempfile::tempdir().unwrap());
        let (_counting, counts) = watch::channel(true);
        let mut directory = directory(&hub, root.path(), counts).await;
        let head =
            "apiVersion: v1\nkind: Secret\ntype: Opaque\nmetadata: {name: a, namespace: n}\n";
        let write = |file: &str, data: &str| {
            std::fs::write(root.path().join(file), format!("{head}data: {data}\n")).unwrap();
        };
        for (first, is_broken) in [("{}", false), ("{tls.crt: '!!', tls.key: '!!'}", true)] {
            write("a.yaml", first);
            write("b.yaml", "{}");
            let scanned = directory.files.scan().await.unwrap();
            let refused = scanned.report.refused.len();
            assert_eq!(refused, 1 + usize::from(is_broken), "{:?}", scanned.report);
            directory.take(scanned);
            let broken = hub.facts.broken_secrets();
            assert_eq!(!broken.is_empty(), is_broken, "{broken:?}");
        }
    }
}
