//! The desired state of a configuration.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::kind::{Kind as _, Resource};
use crate::kubernetes::WatchTiming;
use crate::reconcile::ca_bundle::CaBundle;
use crate::reconcile::ca_bundle_patch::{self, Decision, Write};
use crate::reconcile::validation::{self, Validation};
use crate::reconcile::webhook::{VALIDATING, WebhookConfiguration};

/// Patches within a minute that are sent at once; each later one waits twice as long as the one before.
const AT_ONCE: usize = 3;
/// The time for which writes count as recent.
pub(super) const RECENT: Duration = Duration::from_secs(60);
/// The shortest interval between two writes of a whole configuration.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) enum Goal {
    /// The bundle, in entries of this name.
    Bundle { entry: String },
    /// The whole configuration.
    Validation(Validation),
}

impl Goal {
    pub(super) const fn resource(&self) -> Resource {
        match self {
            Self::Bundle { .. } => WebhookConfiguration::RESOURCE,
            Self::Validation(_) => VALIDATING,
        }
    }

    /// The decision; `None`: it needs a bundle first.
    pub(super) fn decide(
        &self,
        live: Option<&WebhookConfiguration>,
        bundle: Option<&CaBundle>,
        fail: bool,
        now: SystemTime,
    ) -> Option<Decision> {
        Some(match self {
            Self::Validation(wanted) if wanted.unregistered => match live {
                None => Decision::Gone,
                Some(_) => Decision::Write(Write::Delete),
            },
            Self::Validation(wanted) => validation::decide(wanted, live, bundle?, fail, now),
            Self::Bundle { entry } => ca_bundle_patch::decide_ca_bundle(live, entry, bundle?, now),
        })
    }

    /// Names of entries of other programs, in a configuration that this one shares with them.
    pub(super) fn foreign_entries(&self, live: &WebhookConfiguration) -> Vec<String> {
        match self {
            Self::Validation(wanted) => validation::foreign_entries(wanted, live),
            Self::Bundle { .. } => Vec::new(),
        }
    }

    /// Returns true if another program has to create the configuration.
    pub(super) const fn waits(&self) -> bool {
        matches!(self, Self::Bundle { .. })
    }

    /// Returns the time of the next write, after those of the last minute; the last of them is the newest.
    pub(super) fn next_write(&self, recent: &[Instant], pace: &WatchTiming) -> Option<Instant> {
        let last = *recent.last()?;
        match self {
            Self::Validation(_) => Some(last + MIN_WRITE_INTERVAL.min(pace.max)),
            Self::Bundle { .. } => {
                let more = recent.len().checked_sub(AT_ONCE)?;
                let more = u32::try_from(more).unwrap_or(u32::MAX);
                Some(last + pace.bounds().step(more))
            }
        }
    }
}
