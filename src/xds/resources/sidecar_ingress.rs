//! A Sidecar's `ingress`: explicit inbound ports, in place of those of the services.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::istio::networking::v1alpha3::ServerTlsSettings;
use api::model::{Configured, EndpointAddress, Protocol};
use api::networking::server_tls_settings::TlSmode;
use api::networking::{CaptureMode, IstioIngressListener, Sidecar, default_endpoint};

use super::clusters;
use super::instances::Instance;
use super::listeners::inbound::{InboundPort, cluster_name, declared};
use super::listeners::is_own;
use super::mesh::Mesh;
use super::proxy::Proxy;
use crate::common::conflict::{Conflict, INVALID_LISTENER};
use crate::scope::reference;

/// The inbound ports of a Sidecar; `None` where it says nothing of them. `lost`: those that cannot be.
pub(crate) fn inbound_ports(
    sidecar: &Configured<Sidecar>,
    proxy: &Proxy,
    instances: &[Instance],
    mesh: &Mesh,
    sniffs: bool,
    lost: &mut Vec<Conflict>,
) -> Option<Vec<InboundPort>> {
    let ingress = &sidecar.spec.ingress;
    if ingress.is_empty() {
        return None;
    }
    let mut by_target: BTreeMap<u16, &Instance> = BTreeMap::new();
    for instance in instances {
        // Instances come by precedence of their services: the first one at a port counts.
        by_target.entry(instance.target).or_insert(instance);
    }
    Some(
        ingress
            .iter()
            .filter_map(|item| inbound_port(item, sidecar, proxy, &by_target, mesh, sniffs, lost))
            .collect(),
    )
}

/// Returns true if TLS ends there.
fn ends(tls: &ServerTlsSettings) -> bool {
    match tls.mode() {
        TlSmode::Simple | TlSmode::Mutual | TlSmode::OptionalMutual => true,
        TlSmode::Passthrough | TlSmode::AutoPassthrough | TlSmode::IstioMutual => false,
    }
}

fn inbound_port(
    item: &IstioIngressListener,
    sidecar: &Configured<Sidecar>,
    proxy: &Proxy,
    by_target: &BTreeMap<u16, &Instance>,
    mesh: &Mesh,
    sniffs: bool,
    lost: &mut Vec<Conflict>,
) -> Option<InboundPort> {
    let port = item.port.as_ref()?;
    let number = u16::try_from(port.number)
        .ok()
        .filter(|number| *number > 0)?;
    let bound = !proxy.intercepts() || item.capture_mode() == CaptureMode::None;
    let instance = by_target.get(&number);
    let service = instance.map(|instance| &instance.service);
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
        let conflict = Conflict::new(INVALID_LISTENER, &*cluster, message);
        lost.push(conflict.because_of(&reference(sidecar)));
        return None;
    }
    let protocol = Protocol::of_service_entry(&port.protocol)?;
    // Without a word of it connections go where those of services do.
    let place = match item.default_endpoint.as_str() {
        "" => (EndpointAddress::Ip(proxy.families.loopback()), number),
        endpoint => default_endpoint(endpoint)?,
    };
    // A port that ends TLS speaks what is in it.
    let tls = item.tls.as_ref().filter(|tls| ends(tls));
    let protocol = match (tls, protocol) {
        (Some(_), Protocol::Https) => Protocol::Http,
        (Some(_), Protocol::Tls) => Protocol::Tcp,
        (_, protocol) => protocol,
    };
    let pool = item.connection_pool.as_ref();
    Some(InboundPort {
        bind,
        port: number,
        bound,
        protocol: declared(protocol, sniffs),
        cluster,
        host,
        service_port: number,
        // The number says where the application is; a DestinationRule knows the service's port.
        pool_port: instance.map_or(number, |instance| instance.port.number),
        place,
        // The pattern is made of what a service is called.
        alt_stat_name: service.map_or_else(String::new, |service| {
            clusters::stat_name(&mesh.inbound_stat, service, (&port.name, number), "")
        }),
        tls: tls.cloned().map(Arc::new),
        pool: pool.cloned().map(Arc::new),
        from: vec![reference(sidecar)],
    })
}
