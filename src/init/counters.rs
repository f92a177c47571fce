//! The counters behind the metrics. Plain numbers: there is one thread.

#![forbid(unsafe_code)]

use crate::supervisor::{ExitStatus, Note, Reason};

/// Since the agent's start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Proxy processes started, by reason, in the order of `REASONS`.
    pub(crate) epochs_started: [u64; REASONS.len()],
    /// Proxy processes that could not be started, crashed, or died before they were LIVE.
    pub(crate) epochs_failed: u64,
    /// Tries after a failure (the retry budget was asked).
    pub(crate) retries: u64,
    /// New configurations that were given up when the budget was spent.
    pub(crate) given_up: u64,
    /// Configurations that `--validate` refused.
    pub(crate) refused: u64,
    /// The configuration became another one.
    pub(crate) configuration_changes: u64,
    /// Adopted processes reaped.
    pub(crate) orphans_reaped: u64,
    /// Times that inotify lost events.
    pub(crate) watch_overflows: u64,
    /// Readiness probes answered with 200 and with 503.
    pub(crate) ready_probes: u64,
    pub(crate) unready_probes: u64,
    /// Application probes passed on: an answer below 400, and all others.
    pub(crate) app_probes_passed: u64,
    pub(crate) app_probes_failed: u64,
    /// Calls to the admin port that failed or were not answered in time.
    pub(crate) admin_errors: u64,
    /// Scrapes of the metrics.
    pub(crate) scrapes: u64,
    /// Sources that failed in a scrape.
    pub(crate) envoy_scrape_failures: u64,
    pub(crate) application_scrape_failures: u64,
    /// Connections to the status port accepted.
    pub(crate) connections: u64,
    /// Connections closed for a limit: too large a head, too slow, no place.
    pub(crate) connections_refused: u64,
}

/// The order of `Counters::epochs_started`.
pub(crate) const REASONS: [Reason; 5] = [
    Reason::Start,
    Reason::Change,
    Reason::Crash,
    Reason::Signal,
    Reason::Rescan,
];

impl Counters {
    /// A proxy process was started.
    pub(crate) fn started(&mut self, reason: Reason) {
        let at = REASONS.iter().position(|known| *known == reason);
        if let Some(count) = at.and_then(|at| self.epochs_started.get_mut(at)) {
            *count = count.saturating_add(1);
        }
    }

    /// A proxy process ended. The end of a parent that had handed over is none of its failures.
    pub(crate) fn ended(&mut self, how: ExitStatus, asked: Asked) {
        if how != ExitStatus::Code(0) && asked == Asked::No {
            self.epochs_failed = self.epochs_failed.saturating_add(1);
        }
    }

    /// The core said something.
    pub(crate) fn noted(&mut self, note: &Note) {
        let count = if matches!(note, Note::Changed(_)) {
            &mut self.configuration_changes
        } else if matches!(note, Note::RetryIn { .. }) {
            &mut self.retries
        } else if matches!(note, Note::GaveUp { again: false, .. }) {
            &mut self.given_up
        } else if matches!(note, Note::Refused { .. }) {
            &mut self.refused
        } else if matches!(
            note,
            Note::ChildFailed {
                how: ExitStatus::Code(0),
                ..
            }
        ) {
            // Its end was taken for a clean one.
            &mut self.epochs_failed
        } else {
            return;
        };
        *count = count.saturating_add(1);
    }
}

/// Whether the agent had asked a process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::Epoch;

    /// The history said that it had failed, and the metric did not.
    #[test]
    fn a_child_that_ends_with_0_before_it_was_live_has_failed_like_any_other() {
        for how in [ExitStatus::Code(0), ExitStatus::Code(1)] {
            let mut counters = Counters::default();
            counters.ended(how, Asked::No);
            let (epoch, parent) = (Epoch(1), Epoch(0));
            counters.noted(&Note::ChildFailed { epoch, how, parent });
            assert_eq!(counters.epochs_failed, 1, "{how}");
        }
    }
}
