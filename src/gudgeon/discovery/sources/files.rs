//! The directory of YAML: read, watched, read again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::model::Registry;
use sources::registry::{Files, Message, Outcome, SourceId, SyncState};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::{WrittenObjects, names};
use crate::discovery::hub::Hub;
use crate::discovery::rules_without_effect::RuleCounts;
use crate::discovery::source_facts::ROUTES;
use crate::exit::Failure;
use crate::process;
use crate::secrets;
use crate::watch::{DebounceOptions, PlaceWatcher};

/// Shorter than that of others, because it counts towards the debounce.
const SHORT: DebounceOptions = DebounceOptions {
    quiet: Duration::from_millis(20),
    max: Duration::from_millis(20),
};
/// A look in any case.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The same where the kernel does not tell, something does not answer, or there is nothing to watch.
const DEGRADED_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Directory {
    hub: Arc<Hub>,
    id: SourceId,
    path: PathBuf,
    kubernetes: bool,
    files: Files,
    watcher: PlaceWatcher,
    /// Requests to read all files again.
    again: watch::Receiver<u64>,
    written_objects: WrittenObjects,
    /// True while the directory's rules count.
    counts: watch::Receiver<bool>,
    /// Messages that were logged already.
    told: BTreeSet<Message>,
    lost: bool,
    /// Something in it does not answer.
    hangs: bool,
}

/// Reads it once, and then keeps reading.
///
/// # Errors
/// It is not there.
pub(super) async fn start(
    hub: &Arc<Hub>,
    path: &Path,
    kubernetes: bool,
    written_objects: WrittenObjects,
    counts: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let cluster = hub.options.settings.cluster.clone();
    let mut directory = Directory {
        hub: Arc::clone(hub),
        kubernetes,
        files: files(hub, path, kubernetes),
        id: SourceId {
            registry: Registry::External,
            cluster,
        },
        path: path.to_owned(),
        watcher: PlaceWatcher::new(path),
        again: process::reload_requests(),
        written_objects,
        counts,
        told: BTreeSet::new(),
        lost: false,
        hangs: false,
    };
    directory.watcher.follow_path().await;
    directory.scan().await.map_err(|cause| {
        Failure::config(format!(
            "cannot read --configDir {}: {cause}",
            path.display()
        ))
    })?;
    tokio::spawn(directory.run());
    Ok(())
}

/// The files of a directory, none of them read yet.
fn files(hub: &Hub, path: &Path, kubernetes: bool) -> Files {
    let cluster = hub.options.settings.cluster.clone();
    Files::new(path, names(hub, cluster), kubernetes)
}

impl Directory {
    async fn run(mut self) {
        let mut warned = false;
        let mut trust = self.hub.trust.watch();
        loop {
            if let Some(why) = self.watcher.degraded()
                && !std::mem::replace(&mut warned, true)
            {
                warn!("polling {} every second: {why}", self.path.display());
            }
            if *self.counts.borrow_and_update() {
                self.waits(&mut trust).await;
            } else if self.counts.wait_for(|counts| *counts).await.is_err() {
                return;
            }
            // Somebody else gives rules: it is not even read.
            if !*self.counts.borrow() {
                continue;
            }
            if let Err(cause) = self.scan().await {
                self.hub.set_sync_state(
                    &self.id,
                    SyncState::Stale {
                        error: cause.to_string().into(),
                    },
                );
                if !self.lost {
                    error!(
                        "cannot read {}: {cause}; serving the last good content",
                        self.path.display()
                    );
                }
                self.lost = true;
            }
        }
    }

    /// Until it is to be looked at.
    async fn waits(&mut self, trust: &mut watch::Receiver<Arc<str>>) {
        let often = self.lost || self.hangs || self.watcher.degraded().is_some();
        let pause = if often {
            DEGRADED_INTERVAL
        } else {
            POLL_INTERVAL
        };
        tokio::select! {
            _ = self.counts.changed() => {}
            Ok(()) = self.again.changed() => self.files.forget_stamps(),
            () = self.watcher.due(SHORT, pause) => {}
            Ok(()) = trust.changed() => {
                let domain = trust.borrow_and_update().clone();
                let said = self.files.set_trust_domain(&domain);
                self.hub.update(|registries| registries.put(&self.id, said));
            }
        }
    }

    async fn scan(&mut self) -> std::io::Result<()> {
        loop {
            let mut outcome = self.read().await?;
            let folders = std::mem::take(&mut outcome.folders);
            self.take(outcome);
            // What changed between the look and the watch.
            if !self.watcher.follow(folders).await {
                return Ok(());
            }
        }
    }

    /// Reads the directory on a blocking thread.
    async fn read(&mut self) -> std::io::Result<Outcome> {
        let fresh = files(&self.hub, &self.path, self.kubernetes);
        let mut files = std::mem::replace(&mut self.files, fresh);
        let read = tokio::task::spawn_blocking(move || {
            let outcome = files.read();
            (files, outcome)
        });
        // Where that panics all is read anew.
        let (files, outcome) = read.await.map_err(std::io::Error::other)?;
        self.files = files;
        outcome
    }

    fn take(&mut self, outcome: Outcome) {
        self.hangs = outcome.hangs;
        if self.lost {
            info!("{} can be read again", self.path.display());
            self.lost = false;
        }
        let messages: BTreeSet<Message> = outcome.messages.into_iter().collect();
        for message in messages.difference(&self.told) {
            let line = message.below(&self.path).to_string();
            warn!("{}", secrets::redact_text(&line));
        }
        let rejected = messages.iter().filter_map(|message| message.object.clone());
        self.hub.facts.reject(&self.id, rejected);
        let written = outcome.written.iter();
        let routes = written.filter(|one| one.accepted && *one.kind == *ROUTES);
        self.hub.facts.route(&self.id, routes.count());
        self.hub.facts.count(&self.id, outcome.objects);
        let mut rules = RuleCounts::default();
        // One that is refused is there once more as it was before.
        let objects = outcome.written.iter().map(|one| {
            let group = one.api_version.split_once('/');
            let group = group.map_or("", |(group, _)| group);
            (group, &*one.kind, &*one.namespace, &*one.name)
        });
        for (group, kind, ..) in objects.collect::<BTreeSet<_>>() {
            rules.add(group, kind);
        }
        self.hub.facts.rule(&self.id, rules);
        self.told = messages;
        *self
            .written_objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = outcome.written;
        self.hub
            .update(|registries| registries.put(&self.id, outcome.contribution));
        self.hub.set_sync_state(&self.id, SyncState::Synced);
    }
}
