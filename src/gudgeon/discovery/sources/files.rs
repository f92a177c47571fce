//! The directory of YAML: read, watched, read again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::model::Registry;
use cluster::registry::{Files, Message, Outcome, SourceId, Standing};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::{Shelf, names};
use crate::discovery::facts::ROUTES;
use crate::discovery::hub::Hub;
use crate::exit::Failure;
use crate::watch::Folders;

/// From an event to the look: who writes a file often writes another. It counts towards the debounce.
const SETTLE: Duration = Duration::from_millis(20);
/// A look in any case.
const SELDOM: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Directory {
    hub: Arc<Hub>,
    id: SourceId,
    path: PathBuf,
    files: Files,
    folders: Folders,
    shelf: Shelf,
    /// Whether what it says counts.
    counts: watch::Receiver<bool>,
    /// What was said of it already.
    told: BTreeSet<Message>,
    lost: bool,
}

/// Reads it once, and then keeps reading.
///
/// # Errors
/// It is not there.
pub(super) fn start(
    hub: &Arc<Hub>,
    path: &Path,
    kubernetes: bool,
    shelf: Shelf,
    counts: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let cluster = hub.options.settings.cluster.clone();
    let mut directory = Directory {
        hub: Arc::clone(hub),
        files: Files::new(path, names(hub, cluster.clone()), kubernetes),
        id: SourceId {
            registry: Registry::External,
            cluster,
        },
        path: path.to_owned(),
        folders: Folders::new(),
        shelf,
        counts,
        told: BTreeSet::new(),
        lost: false,
    };
    directory.look().map_err(|cause| {
        Failure::config(format!(
            "cannot read --configDir {}: {cause}",
            path.display()
        ))
    })?;
    tokio::spawn(directory.run());
    Ok(())
}

impl Directory {
    async fn run(mut self) {
        if let Some(why) = self.folders.degraded() {
            warn!(
                "looking at {} every {} s: {why}",
                self.path.display(),
                SELDOM.as_secs()
            );
        }
        let mut trust = self.hub.trust_domains();
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
            if let Err(cause) = self.look() {
                self.hub.stand(
                    &self.id,
                    Standing::Stale {
                        error: cause.to_string().into(),
                    },
                );
                if !self.lost {
                    error!(
                        "cannot read {}: {cause}: what it said last is served on",
                        self.path.display()
                    );
                }
                self.lost = true;
            }
        }
    }

    /// Until it is to be looked at.
    async fn waits(&mut self, trust: &mut watch::Receiver<Arc<str>>) {
        tokio::select! {
            _ = self.counts.changed() => {}
            () = self.folders.changed() => tokio::time::sleep(SETTLE).await,
            () = tokio::time::sleep(SELDOM) => {}
            Ok(()) = trust.changed() => {
                let domain = trust.borrow_and_update().clone();
                let said = self.files.set_trust_domain(&domain);
                self.hub.update(|registries| registries.put(&self.id, said));
            }
        }
    }

    fn look(&mut self) -> std::io::Result<()> {
        let mut outcome = self.files.read()?;
        if self.folders.follow(&outcome.folders) {
            // What changed between the look and the watch.
            outcome = self.files.read()?;
        }
        self.take(outcome);
        Ok(())
    }

    fn take(&mut self, outcome: Outcome) {
        if self.lost {
            info!("{} can be read again", self.path.display());
            self.lost = false;
        }
        let messages: BTreeSet<Message> = outcome.messages.into_iter().collect();
        for message in messages.difference(&self.told) {
            warn!("{}: {message}", self.path.display());
        }
        let rejected = messages.iter().filter_map(|message| message.object.clone());
        self.hub.facts.reject(&self.id, rejected);
        let written = outcome.written.iter();
        let routes = written.filter(|one| one.accepted && *one.kind == *ROUTES);
        self.hub.facts.route(&self.id, routes.count());
        self.hub.facts.count(&self.id, outcome.objects);
        self.told = messages;
        *self.shelf.lock().unwrap_or_else(PoisonError::into_inner) = outcome.written;
        self.hub
            .update(|registries| registries.put(&self.id, outcome.contribution));
        self.hub.stand(&self.id, Standing::Synced);
    }
}
