//! An API server as the source: its changes are passed on as they arrive.

use std::sync::Arc;

use sources::catalogue::EntryChange;
use sources::kubernetes::config::{ConfigWatcher, ServerUpdate, WatchSettings};
use sources::kubernetes::{Access, Cluster, WithoutRoom};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::updates;
use crate::exit::Failure;
use crate::galley::engine::{GalleyEngine, SourceEvent};
use crate::shared::{LastReport, RuleChannel, RuleUpdate, Shared};

/// The source.
pub(crate) struct ClusterSource {
    cluster: Cluster,
    settings: WatchSettings,
    last_report: LastReport,
    /// All kinds have been listed once.
    synced: bool,
    stale: Option<String>,
    left_out: WithoutRoom,
    engine: Arc<GalleyEngine>,
    /// The channel to another role of the process, which acts on the objects.
    rules: Option<mpsc::Sender<RuleUpdate>>,
}

impl ClusterSource {
    /// # Errors
    /// No client of the cluster can be built.
    pub(crate) async fn new(
        shared: &Shared,
        access: &Access,
        settings: WatchSettings,
        engine: Arc<GalleyEngine>,
    ) -> Result<Self, Failure> {
        let cluster = shared.cluster(access).await.map_err(|cause| {
            Failure::config(format!("cannot read configuration from a cluster: {cause}"))
        })?;
        Ok(Self {
            cluster,
            settings,
            last_report: LastReport::default(),
            synced: false,
            stale: None,
            left_out: WithoutRoom::default(),
            engine,
            rules: shared.rules().map(RuleChannel::sender),
        })
    }

    /// Sends all objects and then their changes, for ever.
    pub(crate) async fn follow(mut self) {
        let mut server = ConfigWatcher::start(self.cluster.clone(), self.settings.clone());
        self.engine.connected().await;
        loop {
            let update = server.changed().await;
            self.emit(update).await;
        }
    }

    async fn emit(&mut self, update: ServerUpdate) {
        let ServerUpdate {
            changes,
            report,
            synced,
            missing,
            stale,
            left_out,
            checked,
            broken,
        } = update;
        self.engine.count_checked(checked, broken);
        let is_new = self.last_report.log(&report);
        let report = is_new.then(|| Arc::clone(self.last_report.redacted()));
        let is_new = synced && !self.synced;
        self.synced |= synced;
        if is_new {
            info!("initial lists complete");
        }
        if !self.synced {
            let missing = missing.join(", ");
            self.engine.waits(format!("no list yet of {missing}"));
        }
        if is_new || report.is_some() || !changes.is_empty() {
            let shared = self.rules.as_ref().map(|_| changes.clone());
            // A move alone is no news to the engine.
            let is_moved = |change: &EntryChange| matches!(change, EntryChange::Moved(..));
            if is_new || report.is_some() || !changes.iter().all(is_moved) {
                let complete = self.synced;
                // A list may have thousands of objects to convert.
                let event = move || SourceEvent {
                    changes: updates(changes),
                    whole: false,
                    complete,
                    report,
                };
                self.engine.emit_made(event).await;
            }
            if let (Some(rules), Some(changes)) = (&self.rules, shared) {
                let update = RuleUpdate {
                    changes,
                    is_whole: false,
                    report: Arc::clone(self.last_report.redacted()),
                    is_complete: self.synced,
                };
                // Only the end of the process ends the receiver: a panic of it is one.
                let _sent = rules.send(update).await;
            }
        }
        if left_out != self.left_out {
            self.engine.leaves_out(&left_out);
            self.left_out = left_out;
        }
        let stale = stale.map(|(_, why)| why);
        if stale != self.stale {
            match &stale {
                Some(why) => {
                    warn!("cannot read the API server: {why}; serving the last good objects");
                }
                None => info!("the API server responds again"),
            }
            self.engine.set_stale(stale.clone());
            self.stale = stale;
        }
    }
}
