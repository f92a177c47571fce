//! Containers that run as the user of the proxy: what that user sends is taken for the proxy's own, and bypasses it.

use inject::ProxyIds;
use inject::containers_of_user;
use serde_json::Value as Json;

use super::codes;
use super::inventory::Inventory;
use super::messages::{Message, push};

/// Kinds with pods, and where the pod is in them.
const PODS: [(&str, &str); 7] = [
    ("CronJob", "spec.jobTemplate.spec.template"),
    ("DaemonSet", "spec.template"),
    ("Deployment", "spec.template"),
    ("Job", "spec.template"),
    ("Pod", ""),
    ("ReplicaSet", "spec.template"),
    ("StatefulSet", "spec.template"),
];

pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    for (kind, place) in PODS {
        let (pointer, dot) = match place {
            "" => (String::new(), ""),
            place => (format!("/{}", place.replace('.', "/")), "."),
        };
        for item in all.of(kind) {
            let pod = item.body.pointer(&pointer);
            // A pod that another object makes is reported at that object.
            let owners = item.body.pointer("/metadata/ownerReferences");
            let Some(pod) = pod.filter(|pod| owners.is_none() && may_have_proxy(pod)) else {
                continue;
            };
            for (field, at, name) in containers_of_user(pod, ProxyIds::default().uid) {
                let path = format!("{place}{dot}spec.{field}[{at}]");
                let message = format!(
                    "{name} runs as user {user}, as the proxy does: its connections bypass the proxy",
                    user = ProxyIds::default().uid
                );
                push(messages, &codes::USER_ID, item, path, message);
            }
        }
    }
}

/// Returns false for a pod that says it is not injected, and for one on the host's network, which is never.
fn may_have_proxy(pod: &Json) -> bool {
    let inject_of = |of: &str| {
        let of = pod.pointer(of).and_then(Json::as_object);
        let value = of.and_then(|of| of.get("sidecar.istio.io/inject"));
        value.and_then(Json::as_str)
    };
    let is_off = [
        inject_of("/metadata/labels"),
        inject_of("/metadata/annotations"),
    ]
    .contains(&Some("false"));
    let is_of_host = pod.pointer("/spec/hostNetwork") == Some(&Json::Bool(true));
    !is_off && !is_of_host
}
