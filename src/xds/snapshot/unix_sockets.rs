//! Sockets of Sidecars in the place of files (discovery.md §17): Envoy would remove what is there, or be refused a directory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::{EndpointAddress, Service, World};

use super::proxy::ProxyView;

/// Endpoints that are sockets, by the namespaces of their services and their paths: the host of the first such service.
pub(super) type EndpointSockets = BTreeMap<(Arc<str>, Arc<str>), Arc<str>>;

pub(super) fn endpoint_sockets<'a>(
    world: &World,
    services: impl IntoIterator<Item = &'a Arc<Service>>,
) -> EndpointSockets {
    let mut all = EndpointSockets::new();
    for service in services {
        for (_, endpoint) in world.endpoints_of(&service.key) {
            if let EndpointAddress::Pipe(path) = &endpoint.address {
                let at = (service.key.namespace.clone(), path.clone());
                let host = &service.key.hostname;
                all.entry(at).or_insert_with(|| host.clone());
            }
        }
    }
    all
}

/// Returns true if a file is at a socket's path, or below it.
fn is_at(file: &str, socket: &str) -> bool {
    let rest = file.strip_prefix(socket);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl ProxyView {
    /// Returns the reason why no listener can be at a socket; `None`: one can.
    pub(super) fn file_at(&self, socket: &str) -> Option<Cow<'static, str>> {
        let places = self.inputs.inbound_ports.iter().map(|one| &one.place);
        let mut applications = places.filter_map(|(address, _)| match address {
            EndpointAddress::Pipe(path) => Some(path),
            EndpointAddress::Ip(_) | EndpointAddress::Name(_) => None,
        });
        if applications.any(|path| is_at(path, socket)) {
            return Some("the proxy's application is there".into());
        }
        let node = &self.inputs.proxy.node;
        let certificates = [&node.server, &node.client].into_iter();
        let mut files = certificates.flat_map(|files| [&*files.chain, &*files.key, &*files.root]);
        let log = &self.snapshot.world.mesh.access_log_file;
        if is_at(log, socket) || files.any(|file| is_at(file, socket)) {
            return Some("a file of the proxy's own is there".into());
        }
        // A socket is beside each proxy, and its service for those of its namespace alone.
        let from: (Arc<str>, Arc<str>) = (node.namespace.clone(), socket.into());
        let sockets = self.snapshot.base.endpoint_sockets.range(from..);
        let mut sockets = sockets.take_while(|((namespace, path), _)| {
            **namespace == *node.namespace && path.starts_with(socket)
        });
        let ((_, path), host) = sockets.find(|((_, path), _)| is_at(path, socket))?;
        let why = format!("unix://{path} is an endpoint of {host}, and Envoy would remove it");
        Some(why.into())
    }
}
