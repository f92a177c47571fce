//! Reports of one configuration's status to the log and to status pages.

use api::times;

use super::configuration::ConfigurationReconciler;
use super::goal::Goal;
use crate::reconcile::reconcile_status::{ReconcileFailure, ReconcileState};
use crate::reconcile::webhook::{Webhook, WebhookConfiguration};

impl ConfigurationReconciler {
    /// Reports the failure policy, and the entries that other programs own.
    pub(super) fn policy(&mut self, live: Option<&WebhookConfiguration>) {
        let others = live.map_or_else(Vec::new, |live| self.goal.foreign_entries(live));
        let is_ours = |entry: &&Webhook| !others.iter().any(|other| other == entry.name());
        let entries = live.iter().flat_map(|live| live.webhooks.iter().flatten());
        let ours: Vec<_> = entries.filter(is_ours).collect();
        let is_entered = !ours.is_empty();
        let ignores = ours.into_iter().any(Webhook::ignores);
        let policy = live.map(|_| if ignores { "Ignore" } else { "Fail" });
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
        let message = format!(
            "there is no {resource}.{group} {}: waiting for it",
            self.name
        );
        if self.repeats.observe_change(&message) {
            tracing::warn!("{message}");
            self.note(|status| status.failed(ReconcileFailure::ConfigNotFound));
        }
        self.note(|status| {
            status.state = ReconcileState::Missing;
            status.entries.clear();
            status.error = Some(message);
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
        let message =
            format!("{name} has no entry named {entry} or ending in .{entry}: waiting for one");
        if self.repeats.observe_change(&message) {
            tracing::error!("{message}");
            self.note(|status| status.failed(ReconcileFailure::EntryNotFound));
        }
        self.note(|status| {
            status.state = ReconcileState::NoEntry;
            status.entries.clear();
            status.error = Some(message);
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
        let message = format!("the API server drops fields of {}", self.name);
        self.failing(message, "");
    }

    pub(super) fn failing(&mut self, message: String, then: &str) {
        if let Some(count) = self.repeats.observe(&message) {
            tracing::error!("{message}{}{then}", times(count));
        }
        self.note(|status| {
            status.failed(ReconcileFailure::Update);
            status.state = ReconcileState::Failing;
            status.error = Some(message);
        });
    }
}
