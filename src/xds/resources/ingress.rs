//! A Sidecar's `ingress`: doors that somebody wrote down, in place of those of the services.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Configured, EndpointAddress, ObjectRef, Protocol};
use api::networking::{CaptureMode, IstioIngressListener, Kind as _, Sidecar, default_endpoint};

use super::clusters;
use super::instances::Instance;
use super::listeners::inbound::{Door, cluster_name, declared};
use super::listeners::is_own;
use super::mesh::Mesh;
use super::proxy::Proxy;
use crate::common::conflict::{Conflict, INVALID_LISTENER};

/// The doors of a Sidecar; `None` where it says nothing of them. `lost`: those that cannot be.
pub(crate) fn doors(
    sidecar: &Configured<Sidecar>,
    proxy: &Proxy,
    instances: &[Instance],
    mesh: &Mesh,
    sniffs: bool,
    lost: &mut Vec<Conflict>,
) -> Option<Vec<Door>> {
    let ingress = &sidecar.spec.ingress;
    if ingress.is_empty() {
        return None;
    }
    let mut by_target: BTreeMap<u16, &Instance> = BTreeMap::new();
    for instance in instances {
        by_target.entry(instance.target).or_insert(instance);
    }
    Some(
        ingress
            .iter()
            .filter_map(|item| door(item, sidecar, proxy, &by_target, mesh, sniffs, lost))
            .collect(),
    )
}

fn door(
    item: &IstioIngressListener,
    sidecar: &Configured<Sidecar>,
    proxy: &Proxy,
    by_target: &BTreeMap<u16, &Instance>,
    mesh: &Mesh,
    sniffs: bool,
    lost: &mut Vec<Conflict>,
) -> Option<Door> {
    let port = item.port.as_ref()?;
    let number = u16::try_from(port.number)
        .ok()
        .filter(|number| *number > 0)?;
    let bound = !proxy.intercepts() || item.capture_mode() == CaptureMode::None;
    let service = by_target.get(&number).map(|instance| &instance.service);
    let host: Arc<str> = service.map_or_else(
        || format!("{}.{}", sidecar.name, sidecar.namespace).into(),
        |service| service.key.hostname.clone(),
    );
    let cluster = cluster_name(number, &port.name, &host);
    // What is only intercepted is found by its port. On all addresses it would take the place of the services of that port.
    let bind = item.bind.parse::<IpAddr>().ok();
    let bind = bind.filter(|bind| bound || !bind.is_unspecified());
    let bind = bind.unwrap_or(proxy.address);
    let for_applications = number == mesh.http_port && bind == proxy.loopback();
    if bound && (is_own(number, mesh) || for_applications) {
        let (namespace, name) = (&sidecar.namespace, &sidecar.name);
        let message = format!(
            "the ingress of Sidecar {namespace}/{name} on {number} is left out: the proxy listens there"
        );
        let from = ObjectRef {
            kind: Sidecar::NAME,
            namespace: namespace.clone(),
            name: name.clone(),
        };
        let conflict = Conflict::new(INVALID_LISTENER, &*cluster, message);
        lost.push(conflict.because_of(&from));
        return None;
    }
    let protocol = Protocol::of_service_entry(&port.protocol)?;
    // Without a word of it connections go where those of services do.
    let place = match item.default_endpoint.as_str() {
        "" => (EndpointAddress::Ip(proxy.families.loopback()), number),
        endpoint => default_endpoint(endpoint)?,
    };
    Some(Door {
        bind,
        port: number,
        bound,
        protocol: declared(protocol, sniffs),
        cluster,
        host,
        service_port: number,
        place,
        // The pattern is made of what a service is called.
        alt_stat_name: service.map_or_else(String::new, |service| {
            clusters::stat_name(&mesh.inbound_stat, service, (&port.name, number), "")
        }),
    })
}
