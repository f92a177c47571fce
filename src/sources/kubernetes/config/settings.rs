//! Settings of an API server as a source, and its updates.

use std::sync::Arc;
use std::time::Duration;

use api::model::ClusterId;
use tokio::time::Instant;

use crate::catalogue::{ConfigReport, EntryChange, UsabilityCheck};
use crate::kubernetes::store::WithoutRoom;
use crate::kubernetes::watcher::WatchTiming;

/// The kinds to watch, and how.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// The cluster's name in origins.
    pub cluster: ClusterId,
    pub usable: UsabilityCheck,
    /// Watches Services, their endpoints, Pods and Nodes, too.
    pub services: bool,
    /// Writes findings into the objects' `status`, which takes RBAC permission to patch it.
    pub analysis: bool,
    pub pace: WatchTiming,
    /// The interval of look-ups for a kind that the server lacks.
    pub recheck_interval: Duration,
}

impl WatchSettings {
    #[must_use]
    pub fn new(usable: UsabilityCheck, services: bool) -> Self {
        Self {
            cluster: "Kubernetes".into(),
            usable,
            services,
            analysis: false,
            pace: WatchTiming {
                first: Duration::from_secs(1),
                max: Duration::from_secs(30),
                ..WatchTiming::default()
            },
            recheck_interval: Duration::from_secs(60),
        }
    }
}

/// An update of the source.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerUpdate {
    /// By name.
    pub changes: Vec<EntryChange>,
    /// The same pointer as before if nothing is new.
    pub report: Arc<ConfigReport>,
    /// Every kind was listed once.
    pub synced: bool,
    /// Kinds that were not listed yet, as roles have them.
    pub missing: Vec<String>,
    /// The time since which the server is unreachable, and the reason.
    pub stale: Option<(Instant, String)>,
    /// Objects that are left out because their kind's room is full.
    pub left_out: WithoutRoom,
    /// Objects validated so far, and the invalid ones among them.
    pub checked: u64,
    pub broken: u64,
}
