//! Ingresses: parts that nothing is made of, as discovery and galley say it.

use std::collections::BTreeMap;

use api::mesh::mesh_config::IngressControllerMode;
use transform::Key;
use transform::ingress::{Settings, transform};
use transform::kubernetes::Ingress;

use super::codes;
use super::inventory::{Inventory, Item, list, text};
use super::messages::Message;
use super::references::push;

/// Ingresses of another controller are its own: those of Istio's class count, and those of none.
pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
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
    let mut mesh = api::mesh::discovery_defaults();
    mesh.set_ingress_controller_mode(IngressControllerMode::Default);
    let settings = Settings::new(&mesh, &all.domain);
    for finding in transform(&ingresses, &settings, &port).findings {
        if let Some(item) = items.get(&finding.ingress) {
            push(found, &codes::NOTED, item, finding.path, finding.message);
        }
    }
}
