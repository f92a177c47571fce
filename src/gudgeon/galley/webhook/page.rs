//! The webhook's part of page and document: its configuration, and the last decisions.

use std::fmt::Write as _;

use api::counted;
use serde_json::{Value, json};
use sources::reconcile::ReconcileStatus;

use super::ValidationWebhook;
use super::decisions::ValidationDecision;
use crate::html::escaped;
use crate::log;

impl ValidationWebhook {
    /// Renders the webhook's state as JSON.
    pub(in crate::galley) fn json(&self) -> Value {
        let decisions: Vec<Value> = self
            .reviews
            .decisions()
            .iter()
            .map(ValidationDecision::json)
            .collect();
        json!({
            "configuration": self.reconcile_status().map(|status| of(&status)),
            "decisions": decisions,
        })
    }

    /// Renders the webhook's state for a browser.
    pub(in crate::galley) fn draw(&self, page: &mut String) {
        // Writing to a string cannot fail, here and below.
        page.push_str("<h2>Webhook</h2>");
        match self.reconcile_status() {
            None => page.push_str("<p>Another program manages its configuration.</p>\n"),
            Some(status) => configuration(page, &status),
        }
        let decisions = self.reviews.decisions();
        if decisions.is_empty() {
            page.push_str("<p>No review yet.</p>\n");
            return;
        }
        page.push_str("<table><tr><th>time<th>what<th>operation<th>decision<th>why</tr>\n");
        for one in &decisions {
            let (class, label) = match (one.allowed, one.reason) {
                (true, "" | "unsupported_operation") => ("good", "allowed"),
                _ => ("bad", "denied"),
            };
            let _written = writeln!(
                page,
                "<tr><td>{}<td>{}<br>{}/{}<td>{}{}<td class=\"{class}\">{label}{}<td>{}</tr>",
                log::stamp(one.time),
                escaped(&one.kind),
                escaped(&one.namespace),
                escaped(&one.name),
                escaped(&one.operation),
                if one.dry_run { ", a dry run" } else { "" },
                match one.warnings {
                    0 => String::new(),
                    some => format!(", {}", counted(some, "warning")),
                },
                escaped(&one.message)
            );
        }
        page.push_str("</table>\n");
    }
}

fn of(status: &ReconcileStatus) -> Value {
    json!({
        "name": status.configuration,
        "state": status.state.as_str(),
        "failurePolicy": status.policy,
        "waits": status.waits,
        "overdue": status.overdue,
        "entries": status.entries,
        "others": status.others,
        "error": status.error,
    })
}

fn configuration(page: &mut String, status: &ReconcileStatus) {
    let _written = write!(
        page,
        "<p>Its configuration {}: {}",
        escaped(&status.configuration),
        status.state.as_str()
    );
    if let Some(policy) = status.policy {
        let _written = write!(page, ", failurePolicy {policy}");
    }
    if let Some(waits) = &status.waits {
        let _written = write!(page, " until it was seen to work: {}", escaped(waits));
    }
    if !status.others.is_empty() {
        let names = status.others.join(", ");
        let _written = write!(
            page,
            "; left as they are, because they lead elsewhere: {}",
            escaped(&names)
        );
    }
    if let Some(error) = &status.error {
        let _written = write!(page, " <span class=\"bad\">{}</span>", escaped(error));
    }
    page.push_str("</p>\n");
}
