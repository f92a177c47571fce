//! The status of each reconciled configuration, for metrics and status pages. The reconciler alone writes it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The state of one configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReconcileState {
    /// Not read yet, or no bundle to write yet.
    #[default]
    Waiting,
    /// The bundle is in every entry.
    Held,
    /// The configuration does not exist.
    Missing,
    /// The configuration has no entry of this program.
    NoEntry,
    /// A write is needed and fails.
    Failing,
    /// The configuration does not exist, as desired.
    Gone,
}

impl ReconcileState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Missing => "missing",
            Self::NoEntry => "no entry",
            Self::Failing => "failing",
            Self::Gone => "gone",
        }
    }
}

/// Reasons why a bundle was not written, by the values of the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReconcileFailure {
    LoadCaBundle,
    ConfigNotFound,
    EntryNotFound,
    Update,
}

impl ReconcileFailure {
    pub const ALL: [Self; 4] = [
        Self::LoadCaBundle,
        Self::ConfigNotFound,
        Self::EntryNotFound,
        Self::Update,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LoadCaBundle => "load_ca_bundle_failure",
            Self::ConfigNotFound => "webhook_config_not_found",
            Self::EntryNotFound => "webhook_entry_not_found",
            Self::Update => "webhook_update_failure",
        }
    }
}

/// The status of one configuration, with its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReconcileStatus {
    pub configuration: String,
    pub state: ReconcileState,
    /// Names of this program's entries in the configuration.
    pub entries: Vec<String>,
    /// The present error, of the configuration or of the way to it.
    pub error: Option<String>,
    /// The failure policy: `Fail` or `Ignore`.
    pub policy: Option<&'static str>,
    /// Entries that lead elsewhere.
    pub others: Vec<String>,
    /// An entry of this program is in the configuration: requests may come.
    pub(crate) is_entered: bool,
    /// The condition on which it becomes `Fail`.
    pub waits: Option<String>,
    /// The condition has been missing for too long.
    pub overdue: bool,
    /// Writes that were sent; those of them that followed a failed one, and those that the server took.
    pub attempts: u64,
    pub retries: u64,
    pub written: u64,
    /// Writes that the server refused, by its reason.
    pub refusals: BTreeMap<&'static str, u64>,
    failures: [u64; ReconcileFailure::ALL.len()],
    /// The number of the bundle that is in place.
    bundle_in_place: Option<u64>,
}

impl ReconcileStatus {
    #[must_use]
    pub fn failures(&self, of: ReconcileFailure) -> u64 {
        ReconcileFailure::ALL
            .iter()
            .position(|failed| *failed == of)
            .and_then(|at| self.failures.get(at).copied())
            .unwrap_or_default()
    }

    pub(crate) fn failed(&mut self, of: ReconcileFailure) {
        let at = ReconcileFailure::ALL
            .iter()
            .position(|failed| *failed == of);
        if let Some(count) = at.and_then(|at| self.failures.get_mut(at)) {
            *count = count.saturating_add(1);
        }
    }

    /// A write was answered with this code, or not at all.
    pub(crate) fn refused(&mut self, code: Option<u16>) {
        let reason = match code {
            None => "Unreachable",
            Some(400) => "BadRequest",
            Some(401) => "Unauthorized",
            Some(403) => "Forbidden",
            Some(404) => "NotFound",
            Some(409) => "Conflict",
            Some(422) => "Invalid",
            Some(429) => "TooManyRequests",
            Some(500..) => "InternalError",
            Some(_) => "Unknown",
        };
        let count = self.refusals.entry(reason).or_default();
        *count = count.saturating_add(1);
    }

    /// The bundle of this number is in every entry.
    pub(crate) fn hold(&mut self, number: u64) {
        self.state = ReconcileState::Held;
        self.error = None;
        self.bundle_in_place = Some(number);
    }

    pub(crate) fn holds(&self, number: u64) -> bool {
        self.state == ReconcileState::Held && self.bundle_in_place == Some(number)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ReconcileStatuses(Arc<Mutex<Vec<ReconcileStatus>>>);

impl ReconcileStatuses {
    pub(crate) fn new(configurations: &[String]) -> Self {
        let status = |configuration: &String| ReconcileStatus {
            configuration: configuration.clone(),
            ..ReconcileStatus::default()
        };
        Self(Arc::new(Mutex::new(
            configurations.iter().map(status).collect(),
        )))
    }

    pub(crate) fn all(&self) -> Vec<ReconcileStatus> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn each(&self, mut change: impl FnMut(&mut ReconcileStatus)) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter_mut()
            .for_each(&mut change);
    }

    pub(crate) fn of(&self, configuration: &str, change: impl FnOnce(&mut ReconcileStatus)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(status) = all
            .iter_mut()
            .find(|status| status.configuration == configuration)
        {
            change(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_configuration_has_its_own_counts() {
        let statuses = ReconcileStatuses::new(&["a".to_owned(), "b".to_owned()]);
        statuses.each(|status| status.failed(ReconcileFailure::LoadCaBundle));
        statuses.of("b", |status| {
            status.failed(ReconcileFailure::Update);
            status.hold(3);
        });
        statuses.of("c", |_| panic!("there is none"));
        let all = statuses.all();
        assert_eq!(all[0].failures(ReconcileFailure::LoadCaBundle), 1);
        assert_eq!(all[0].failures(ReconcileFailure::Update), 0);
        assert_eq!(all[1].failures(ReconcileFailure::Update), 1);
        assert_eq!(all[0].state.as_str(), "waiting");
        assert_eq!(all[1].state.as_str(), "held");
        assert!(all[1].holds(3) && !all[1].holds(4) && !all[0].holds(3));
    }
}
