//! How it stands with each configuration whose CA bundle is kept: for metrics and for whoever looks in. The keeper writes,
//! everybody reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How it stands with one configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Not looked at yet, or no bundle to write yet.
    #[default]
    Waiting,
    /// The bundle is in every entry.
    Held,
    /// The configuration does not exist.
    Missing,
    /// It has no entry of this program's.
    NoEntry,
    /// It should be written and could not be.
    Failing,
    /// It is not there, as it is wanted.
    Gone,
}

impl State {
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

/// Why a bundle was not written, by the names of the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failed {
    LoadCaBundle,
    ConfigNotFound,
    EntryNotFound,
    Update,
}

impl Failed {
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

/// One configuration, as it is now and as it was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub configuration: String,
    pub state: State,
    /// This program's entries in it.
    pub entries: Vec<String>,
    /// What is wrong now, with the configuration or with the way to it.
    pub error: Option<String>,
    /// What happens where the webhook is away: `Fail` or `Ignore`.
    pub policy: Option<&'static str>,
    /// Entries that lead elsewhere.
    pub others: Vec<String>,
    /// What has to be seen before that is `Fail`.
    pub waits: Option<String>,
    /// It was not seen for so long that somebody should know.
    pub overdue: bool,
    /// Writes sent; those of them that followed one that failed, and those that the server took.
    pub attempts: u64,
    pub retries: u64,
    pub written: u64,
    /// What the server did not take, by its reason.
    pub refusals: BTreeMap<&'static str, u64>,
    failures: [u64; Failed::ALL.len()],
    /// Which bundle is in place, by its number.
    held: Option<u64>,
}

impl Standing {
    #[must_use]
    pub fn failures(&self, of: Failed) -> u64 {
        Failed::ALL
            .iter()
            .position(|failed| *failed == of)
            .and_then(|at| self.failures.get(at).copied())
            .unwrap_or_default()
    }

    pub(crate) fn failed(&mut self, of: Failed) {
        let at = Failed::ALL.iter().position(|failed| *failed == of);
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
        self.state = State::Held;
        self.error = None;
        self.held = Some(number);
    }

    pub(crate) fn holds(&self, number: u64) -> bool {
        self.state == State::Held && self.held == Some(number)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Ledger(Arc<Mutex<Vec<Standing>>>);

impl Ledger {
    pub(crate) fn new(configurations: &[String]) -> Self {
        let standing = |configuration: &String| Standing {
            configuration: configuration.clone(),
            ..Standing::default()
        };
        Self(Arc::new(Mutex::new(
            configurations.iter().map(standing).collect(),
        )))
    }

    pub(crate) fn all(&self) -> Vec<Standing> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn each(&self, mut change: impl FnMut(&mut Standing)) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter_mut()
            .for_each(&mut change);
    }

    pub(crate) fn of(&self, configuration: &str, change: impl FnOnce(&mut Standing)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(standing) = all
            .iter_mut()
            .find(|standing| standing.configuration == configuration)
        {
            change(standing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_configuration_has_its_own_counts() {
        let ledger = Ledger::new(&["a".to_owned(), "b".to_owned()]);
        ledger.each(|standing| standing.failed(Failed::LoadCaBundle));
        ledger.of("b", |standing| {
            standing.failed(Failed::Update);
            standing.hold(3);
        });
        ledger.of("c", |_| panic!("there is none"));
        let all = ledger.all();
        assert_eq!(all[0].failures(Failed::LoadCaBundle), 1);
        assert_eq!(all[0].failures(Failed::Update), 0);
        assert_eq!(all[1].failures(Failed::Update), 1);
        assert_eq!(all[0].state.as_str(), "waiting");
        assert_eq!(all[1].state.as_str(), "held");
        assert!(all[1].holds(3) && !all[1].holds(4) && !all[0].holds(3));
    }
}
