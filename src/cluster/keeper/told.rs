//! How it stands with one configuration, told to the log and to whoever looks in.

use super::goal::Goal;
use super::one::One;
use crate::ledger::{Failed, State};
use crate::repeats::times;
use crate::webhook::{Webhook, WebhookConfiguration};

impl One {
    /// What happens where we are away, and which entries that does not hold for.
    pub(super) fn policy(&mut self, seen: Option<&WebhookConfiguration>) {
        let others = seen.map_or_else(Vec::new, |seen| self.goal.others(seen));
        let is_ours = |entry: &&Webhook| !others.iter().any(|other| other == entry.name());
        let entries = seen.iter().flat_map(|seen| seen.webhooks.iter().flatten());
        let ignores = entries.filter(is_ours).any(Webhook::ignores);
        let policy = seen.map(|_| if ignores { "Ignore" } else { "Fail" });
        if !others.is_empty() && others != self.others {
            tracing::warn!(
                "entries of {} lead elsewhere and are left as they are: {}",
                self.name,
                others.join(", ")
            );
        }
        self.others.clone_from(&others);
        self.note(|standing| {
            standing.policy = policy;
            standing.others = others;
        });
    }

    pub(super) fn missing(&mut self) {
        let resource = self.goal.resource().name;
        let group = self.goal.resource().group;
        let words = format!(
            "there is no {resource}.{group} {}: waiting for it",
            self.name
        );
        if self.repeats.worth_saying(&words) == Some(1) {
            tracing::warn!("{words}");
            self.note(|standing| standing.failed(Failed::ConfigNotFound));
        }
        self.note(|standing| {
            standing.state = State::Missing;
            standing.entries.clear();
            standing.error = Some(words);
        });
    }

    pub(super) fn gone(&mut self) {
        self.repeats.forget();
        self.note(|standing| {
            standing.state = State::Gone;
            standing.entries.clear();
            standing.error = None;
        });
    }

    pub(super) fn no_entry(&mut self) {
        let Goal::Bundle { entry } = &self.goal else {
            return;
        };
        let name = &self.name;
        let words =
            format!("{name} has no entry named {entry} or ending in .{entry}: waiting for one");
        if self.repeats.worth_saying(&words) == Some(1) {
            tracing::error!("{words}");
            self.note(|standing| standing.failed(Failed::EntryNotFound));
        }
        self.note(|standing| {
            standing.state = State::NoEntry;
            standing.entries.clear();
            standing.error = Some(words);
        });
    }

    pub(super) fn held(&mut self, number: u64, entries: Vec<String>, stale: Option<&String>) {
        if self.repeats.forget() {
            tracing::info!("{} has its CA bundle", self.name);
        }
        self.note(|standing| {
            standing.hold(number);
            standing.entries = entries;
            // It was so when it was last seen.
            standing.error = stale.cloned();
        });
    }

    /// The server took what was written, and shows something else.
    pub(super) fn not_kept(&mut self) {
        let words = format!(
            "the API server does not keep all that {} should say",
            self.name
        );
        self.failing(words, "");
    }

    pub(super) fn failing(&mut self, words: String, then: &str) {
        if let Some(count) = self.repeats.worth_saying(&words) {
            tracing::error!("{words}{}{then}", times(count));
        }
        self.note(|standing| {
            standing.failed(Failed::Update);
            standing.state = State::Failing;
            standing.error = Some(words);
        });
    }
}
