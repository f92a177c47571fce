//! Containers that run as the user of the proxy: what that user sends is taken for the proxy's own, and bypasses it.

use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, list, text};
use super::messages::Message;
use super::references::push;

/// The user that Istio's proxies run as, whom the rules of interception leave out.
const PROXY: u64 = 1337;

/// Kinds with pods, and where the spec of these is.
const PODS: [(&str, &str); 7] = [
    ("CronJob", "spec.jobTemplate.spec.template.spec"),
    ("DaemonSet", "spec.template.spec"),
    ("Deployment", "spec.template.spec"),
    ("Job", "spec.template.spec"),
    ("Pod", "spec"),
    ("ReplicaSet", "spec.template.spec"),
    ("StatefulSet", "spec.template.spec"),
];

pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
    for (kind, place) in PODS {
        let pointer = format!("/{}", place.replace('.', "/"));
        for item in all.of(kind) {
            let Some(spec) = item.body.pointer(&pointer) else {
                continue;
            };
            for field in ["containers", "initContainers"] {
                for (at, container) in list(spec, &format!("/{field}")) {
                    let name = text(container, "/name");
                    if runs_as_proxy(spec, container) && !name.starts_with("istio-") {
                        let path = format!("{place}.{field}[{at}]");
                        let message = format!(
                            "{name} runs as user {PROXY}, as the proxy does: its connections bypass the proxy"
                        );
                        push(found, &codes::USER_ID, item, path, message);
                    }
                }
            }
        }
    }
}

/// The user of a container is its own, or else that of its pod.
fn runs_as_proxy(spec: &Json, container: &Json) -> bool {
    let user = |of: &Json| {
        of.pointer("/securityContext/runAsUser")
            .and_then(Json::as_u64)
    };
    user(container).or_else(|| user(spec)) == Some(PROXY)
}
