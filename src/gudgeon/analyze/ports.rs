//! Ports of services whose names say no protocol: their first bytes do.

use api::model::Protocol;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, list, text};
use super::messages::{Message, push};

/// Namespaces of Kubernetes itself; their services are skipped.
const SYSTEM: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];

pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    let of_users = |namespace: &str| namespace != all.root && !SYSTEM.contains(&namespace);
    for item in all.of("Service").filter(|item| of_users(&item.namespace)) {
        for (at, port) in list(&item.body, "/spec/ports") {
            let number = port.get("port").and_then(Json::as_u64).unwrap_or_default();
            let short = u16::try_from(number).unwrap_or_default();
            let (name, app) = (
                text(port, "/name"),
                port.get("appProtocol").and_then(Json::as_str),
            );
            // As discovery decides it.
            let protocol = Protocol::of_kubernetes(text(port, "/protocol"), app, name, short);
            if protocol.is_some_and(Protocol::is_auto) {
                let message = format!(
                    "the name {name:?} of port {number} declares no protocol: proxies read it from the first bytes, and a server that speaks first waits"
                );
                let path = format!("spec.ports[{at}].name");
                push(messages, &codes::PORT_NAME, item, path, message);
            }
        }
    }
}
