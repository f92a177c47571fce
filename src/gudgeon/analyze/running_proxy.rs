//! The proxy that a workload runs, as far as its object shows.

use serde_json::Value as Json;

use super::workload_index::RunningProxy;

/// The proxy of a workload whose pod, or the template of it, stands at a place of its object.
pub(super) fn of(object: &Json, place: &str) -> RunningProxy {
    let is_made = object.pointer("/metadata/ownerReferences").is_some();
    match object.pointer(place) {
        Some(pod) if runs_router(pod) => RunningProxy::Router,
        _ if is_made => RunningProxy::OfMaker,
        _ => RunningProxy::Other,
    }
}

/// Returns true for a pod that the injector makes a router, or one whose container runs a router.
fn runs_router(pod: &Json) -> bool {
    let templates = pod.pointer("/metadata/annotations/inject.istio.io~1templates");
    let templates = templates.and_then(Json::as_str).unwrap_or_default();
    templates.split(',').any(|one| one.trim() == "gateway")
        || items(pod.pointer("/spec/containers")).any(starts_router)
}

fn starts_router(container: &Json) -> bool {
    let words = ["command", "args"].map(|field| items(container.get(field)));
    let words: Vec<&str> = words
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let mut pairs = words.windows(2);
    pairs.any(|pair| *pair == ["proxy", "router"] || *pair == ["proxy", "ingress"])
}

fn items(list: Option<&Json>) -> impl Iterator<Item = &Json> {
    list.and_then(Json::as_array).into_iter().flatten()
}
