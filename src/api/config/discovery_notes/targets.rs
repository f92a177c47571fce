//! Notes on policies with targets in place of a selector: there are no gateways of the Gateway API, and no waypoints.

use serde_json::Value as Json;

use super::items;
use crate::config::{Finding, FindingKind};

/// Returns true if a reference means a service of Kubernetes, so that a policy holds for the workloads behind it.
#[must_use]
pub fn is_service(group: &str, kind: &str) -> bool {
    kind == "Service" && matches!(group, "" | "core")
}

pub(super) fn notes(spec: &Json) -> Vec<Finding> {
    let one = spec.get("targetRef");
    let one = one.map(|target| ("spec.targetRef".to_owned(), target));
    let all = items(spec, "targetRefs");
    let all = all.map(|(at, target)| (format!("spec.targetRefs[{at}]"), target));
    let notes = one.into_iter().chain(all).map(|(path, target)| {
        let text = |name: &str| target.get(name).and_then(Json::as_str).unwrap_or_default();
        if is_service(text("group"), text("kind")) {
            let why = "holds for all ports of the workloads that the Service selects: there are no waypoints";
            return Finding::warning(path, why).of_kind(FindingKind::HoldsForWorkloads);
        }
        let why = format!(
            "there is no {} to enforce it; a selector finds workloads",
            text("kind")
        );
        holds_for_none(path, &why)
    });
    notes.collect()
}

/// The note of an object, or of one of its targets, that no proxy is given.
pub(super) fn holds_for_none(path: impl Into<String>, why: &str) -> Finding {
    Finding::warning(path, format!("holds for no proxy: {why}")).of_kind(FindingKind::HoldsForNone)
}
