//! Reports of one configuration's status to the log and to status pages.

use api::times;

use super::configuration::ConfigurationReconciler;
use super::goal::Goal;
use crate::reconcile_status::{ReconcileFailure, ReconcileState};
use crate::webhook::{Webhook, WebhookConfiguration};

impl ConfigurationReconciler {
    /// Reports the failure policy, and the entries that other programs own.
    pub(super) fn policy(&mut self, seen: Option<&WebhookConfiguration>) {
        let others = seen.map_or_else(Vec::new, |seen| self.goal.others(seen));
        let is_ours = |entry: &&Webhook| !others.iter().any(|other| other == entry.name());
        let entries = seen.iter().flat_map(|seen| seen.webhooks.iter().flatten());
        let ours: Vec<_> = entries.filter(is_ours).collect();
        let is_entered = !ours.is_empty();
        let ignores = ours.into_iter().any(Webhook::ignores);
        let policy = seen.map(|_| if ignores { "Ignore" } else { "Fail" });
        if !others.is_empty() && others != self.others {
            tracing::warn!(
                "entries of {} lead elsewhere and are left as they are: {}",
                self.name,
                others.join(", ")
            );
        }
        self.others.clone_from(&others);
        self.note(|status| {
            status.policy = policy;
            status.is_entered = is_entered;
            status.others = others;
        });
    }

    pub(super) fn missing(&mut self) {
        let resource = self.goal.resource().name;
        let group = self.goal.resource().group;
        let words = format!(
            "there is no {resource}.{group} {}: waiting for it",
            self.name
        );
        if self.repeats.observe(&words) == Some(1) {
            tracing::warn!("{words}");
            self.note(|status| status.failed(ReconcileFailure::ConfigNotFound));
        }
        self.note(|status| {
            status.state = ReconcileState::Missing;
            status.entries.clear();
            status.error = Some(words);
        });
    }

    pub(super) fn gone(&mut self) {
        self.repeats.forget();
        self.note(|status| {
            status.state = ReconcileState::Gone;
            status.entries.clear();
            status.error = None;
        });
    }

    pub(super) fn no_entry(&mut self) {
        let Goal::Bundle { entry } = &self.goal else {
            return;
        };
        let name = &self.name;
        let words =
            format!("{name} has no entry named {entry} or ending in .{entry}: waiting for one");
        if self.repeats.observe(&words) == Some(1) {
            tracing::error!("{words}");
            self.note(|status| status.failed(ReconcileFailure::EntryNotFound));
        }
        self.note(|status| {
            status.state = ReconcileState::NoEntry;
            status.entries.clear();
            status.error = Some(words);
        });
    }

    pub(super) fn reconciled(&mut self, number: u64, entries: Vec<String>, stale: Option<&String>) {
        if self.repeats.forget() {
            tracing::info!("{} has its CA bundle", self.name);
        }
        self.note(|status| {
            status.hold(number);
            status.entries = entries;
            // The state is that of the last successful read.
            status.error = stale.cloned();
        });
    }

    /// Reports that the server accepted the write, and dropped a part of it.
    pub(super) fn dropped_fields(&mut self) {
        let words = format!("the API server drops fields of {}", self.name);
        self.failing(words, "");
    }

    pub(super) fn failing(&mut self, words: String, then: &str) {
        if let Some(count) = self.repeats.observe(&words) {
            tracing::error!("{words}{}{then}", times(count));
        }
        self.note(|status| {
            status.failed(ReconcileFailure::Update);
            status.state = ReconcileState::Failing;
            status.error = Some(words);
        });
    }
}
