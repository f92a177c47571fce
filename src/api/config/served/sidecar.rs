//! Notes about a Sidecar that discovery cannot serve as it is written.

use serde_json::Value as Json;

use super::items;
use crate::config::Finding;

/// Listeners of a Sidecar's egress that discovery makes. Chosen: each port of a proxy that somebody could tell from another.
pub const MOST_EGRESS_LISTENERS: usize = 256;

pub(super) fn notes(spec: &Json) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, listener) in items(spec, "egress") {
        let number = listener.get("port").map(|port| port.get("number"));
        if number.is_some_and(|number| number.and_then(Json::as_u64).is_none_or(|one| one == 0)) {
            let why = "is not served in this release: it is a socket of the file system";
            found.push(Finding::warning(format!("spec.egress[{at}]"), why));
        }
    }
    if items(spec, "egress").count() > MOST_EGRESS_LISTENERS {
        let why = format!("is served in part: the first {MOST_EGRESS_LISTENERS} listeners count");
        found.push(Finding::warning("spec.egress", why));
    }
    for (at, listener) in items(spec, "ingress") {
        let endpoint = listener.get("defaultEndpoint").and_then(Json::as_str);
        let endpoint = endpoint.unwrap_or_default();
        if endpoint.starts_with("0.0.0.0:") || endpoint.starts_with("[::]:") {
            let path = format!("spec.ingress[{at}].defaultEndpoint");
            let how = "is served at the loopback address: what listens on the pod's own alone is not reached";
            found.push(Finding::warning(path, how));
        }
    }
    found
}
