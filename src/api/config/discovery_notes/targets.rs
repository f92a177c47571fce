//! Policies for objects in place of workloads: whom they hold for where there are no gateways of the Gateway API, and no waypoints.

use serde_json::Value as Json;

use super::items;
use crate::config::Finding;

/// The beginning of a note of an object, or of one of its targets, that no proxy is given.
pub(in crate::config) const HOLDS_FOR_NONE: &str = "holds for no proxy";

/// The beginning of the note of a target whose workloads a policy holds for.
pub(in crate::config) const HOLDS_FOR_WORKLOADS: &str =
    "holds for all ports of the workloads that the Service selects";

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
        let why = match is_service(text("group"), text("kind")) {
            true => format!("{HOLDS_FOR_WORKLOADS}: there are no waypoints"),
            false => format!(
                "{HOLDS_FOR_NONE}: there is no {} to enforce it; a selector finds workloads",
                text("kind")
            ),
        };
        Finding::warning(path, why)
    });
    notes.collect()
}
