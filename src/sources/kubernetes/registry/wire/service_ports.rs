//! Ports of a Service.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::kubernetes::{Items, Lenient, PortOrName, ServicePort};
use api::model::{Port, Protocol, Target};

use super::{UnusableParts, Wrong};

/// Returns the ports that a proxy carries, with unique numbers and names.
pub(super) fn service_ports(
    written: Items<ServicePort>,
    wrong: &mut Wrong,
    unusable: &mut UnusableParts,
) -> Vec<Port> {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let mut ports = Vec::new();
    for written in wrong.items("spec.ports", written, unusable) {
        let Some(written) = written else {
            unusable.add(ports.len(), None);
            continue;
        };
        let name: Arc<str> = written.name.into();
        let Some(number) = wrong.number("spec.ports.port", &written.port) else {
            unusable.add(ports.len(), Some(&name));
            continue;
        };
        let app = Some(&*written.app_protocol).filter(|app| !app.is_empty());
        // One number may be there for TCP and for UDP.
        let Some(protocol) = Protocol::of_kubernetes(&written.protocol, app, &name, number) else {
            continue;
        };
        let Some(target) = target(written.target_port, number, wrong) else {
            unusable.add(ports.len(), Some(&name));
            continue;
        };
        if names.contains(&name) || numbers.contains(&number) {
            wrong.set(|| format!("spec.ports: port {number} {name:?} is there twice"));
            unusable.add(ports.len(), Some(&name));
            continue;
        }
        names.insert(Arc::clone(&name));
        numbers.insert(number);
        ports.push(Port {
            name,
            number,
            protocol,
            target,
        });
    }
    ports
}

fn target(
    written: Lenient<Option<PortOrName<i64>>>,
    number: u16,
    wrong: &mut Wrong,
) -> Option<Target> {
    const FIELD: &str = "spec.ports.targetPort";
    let target = match written {
        Lenient::Read(None | Some(PortOrName::Port(0))) => return Some(Target::Number(number)),
        Lenient::Read(Some(PortOrName::Port(target))) => target,
        Lenient::Read(Some(PortOrName::Name(text))) if text.is_empty() => {
            return Some(Target::Number(number));
        }
        Lenient::Read(Some(PortOrName::Name(text))) => match text.parse() {
            Ok(target) => target,
            Err(_) => return Some(Target::Name(text.into())),
        },
        Lenient::Unreadable(got) => {
            wrong.no_port(FIELD, &got);
            return None;
        }
    };
    wrong.port(FIELD, target).map(Target::Number)
}
