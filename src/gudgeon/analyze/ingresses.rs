//! Ingresses: parts that nothing is made of, as discovery and galley say it.

use std::collections::BTreeMap;

use api::kubernetes::{Ingress, PortOrName};
use api::mesh::mesh_config::IngressControllerMode;
use api::model::Labels;
use transform::Key;
use transform::ingress::{Settings, transform, without_router};

use super::codes;
use super::inventory::{Inventory, Item, list, text};
use super::messages::{Message, missing, push};

/// Ingresses of another controller are its own: those of the mesh's class count, and those of none. Without a mesh configuration
/// its class is Istio's, and whether it serves those of none is not known.
pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    let mut items: BTreeMap<Key, &Item> = BTreeMap::new();
    let mut ingresses = BTreeMap::new();
    for item in all.of("Ingress") {
        let key = Key::new(&*item.namespace, &*item.name);
        if let Ok(ingress) = serde_json::from_value::<Ingress>(item.body.clone()) {
            ingresses.insert(key.clone(), ingress);
            items.insert(key, item);
        }
    }
    let port = |service: &Key, name: &str| {
        let service = all.find("Service", &service.namespace, &service.name)?;
        let mut ports = list(&service.body, "/spec/ports");
        let (_, port) = ports.find(|(_, port)| text(port, "/name") == name)?;
        u16::try_from(port.get("port")?.as_u64()?).ok()
    };
    let settings = match &all.mesh {
        Some(mesh) => {
            let settings = Settings::new(mesh, &all.domain);
            unserved(all, &settings, &ingresses, &items, messages);
            settings
        }
        None => {
            let mut mesh = api::mesh::discovery_defaults();
            mesh.set_ingress_controller_mode(IngressControllerMode::Default);
            Settings::new(&mesh, &all.domain)
        }
    };
    for (key, ingress) in ingresses.iter().filter(|(_, one)| settings.takes(one)) {
        if let Some(item) = items.get(key) {
            backends(all, item, ingress, messages);
            secrets(all, item, messages);
        }
    }
    for finding in transform(&ingresses, &settings, &port).findings {
        if let Some(item) = items.get(&finding.ingress) {
            push(messages, &codes::NOTED, item, finding.path, finding.message);
        }
    }
}

/// Ingresses that the mesh does not serve, in the words of discovery's own notes.
fn unserved(
    all: &Inventory,
    settings: &Settings,
    ingresses: &BTreeMap<Key, Ingress>,
    items: &BTreeMap<Key, &Item>,
    messages: &mut Vec<Message>,
) {
    let label = settings.router_label();
    let selector = Labels::from_iter([("istio".into(), label.into())]);
    // Without any workload the router runs elsewhere, too.
    let has_router = all.workloads.is_empty() || all.selects_any(&selector, &all.root);
    for (key, ingress) in ingresses {
        let Some(item) = items.get(key) else { continue };
        if let Some(message) = settings.refusal(ingress) {
            push(
                messages,
                &codes::NOTED,
                item,
                "spec.ingressClassName",
                message,
            );
        } else if settings.takes(ingress) && !has_router {
            let message = without_router(label, "the analyzed objects show", "workload");
            push(messages, &codes::NOTED, item, "spec", message);
        }
    }
}

/// Finds the Services that the paths of an Ingress lead to.
fn backends(all: &Inventory, item: &Item, ingress: &Ingress, messages: &mut Vec<Message>) {
    for (rule, one) in ingress.spec.rules.iter().enumerate() {
        for (at, path) in one.http.paths.iter().enumerate() {
            let place = format!("spec.rules[{rule}].http.paths[{at}].backend");
            let (name, number, place) = match (&path.backend.service, &path.backend.service_name) {
                (Some(service), _) => {
                    let place = format!("{place}.service.");
                    (&service.name, service.port.number, place)
                }
                (None, Some(name)) => {
                    let number = match path.backend.service_port {
                        Some(PortOrName::Port(number)) => number,
                        Some(PortOrName::Name(_)) | None => 0,
                    };
                    (name, number, format!("{place}.service"))
                }
                (None, None) => continue,
            };
            let host = all.full_host(name, &item.namespace);
            let hosts = all.hosts_of(&host, &item.namespace);
            let is_old = !place.ends_with('.');
            if hosts.is_empty() {
                let field = if is_old { "Name" } else { "name" };
                missing(messages, item, &format!("{place}{field}"), "service", name);
            } else if number > 0 && !hosts.iter().any(|one| one.ports.contains(&number.into())) {
                let field = if is_old { "Port" } else { "port" };
                let message = format!("{name:?} has no port {number}");
                push(
                    messages,
                    &codes::NOT_FOUND,
                    item,
                    format!("{place}{field}"),
                    message,
                );
            }
        }
    }
}

/// Secrets with its certificates: the router may run anywhere.
fn secrets(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    for (at, tls) in list(&item.body, "/spec/tls") {
        let name = text(tls, "/secretName");
        if !name.is_empty() && !all.secrets.iter().any(|(_, secret)| secret == name) {
            let path = format!("spec.tls[{at}].secretName");
            let message = format!("the secret {name:?} does not exist");
            push(messages, &codes::NOTED, item, path, message);
        }
    }
}
