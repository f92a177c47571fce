//! What programs with gRPC in them ask for: everything by name.

use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3::{ApiListener, Listener};
use prost::Message;

use super::domains;
use super::filters;
use super::mesh::Mesh;
use super::outlets::{Outlet, Outlets};
use super::wire;
use crate::view::Resource;

/// The port that a target such as `b.demo:8080` means to a client of this domain.
pub(crate) fn target<'a>(
    name: &str,
    outlets: &'a Outlets,
    domain: &str,
) -> Option<&'a Arc<Outlet>> {
    let (host, port) = match name.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse::<u16>().ok()?)),
        None => (name, None),
    };
    let found = full_names(host, domain)
        .into_iter()
        .map(|full| outlets.by_host(&full))
        .find(|found| !found.is_empty())?;
    match port {
        Some(port) => found.iter().find(|outlet| outlet.port.number == port),
        None => match found {
            [only] => Some(only),
            several => several.iter().find(|outlet| outlet.port.number == 80),
        },
    }
}

/// The full names that a host may be short for.
fn full_names(host: &str, domain: &str) -> Vec<String> {
    let mut names = vec![host.to_owned()];
    let parts: Vec<&str> = domain.split('.').filter(|part| !part.is_empty()).collect();
    for at in 0..parts.len() {
        let Some(rest) = parts.get(at..) else {
            continue;
        };
        let full = format!("{host}.{}", rest.join("."));
        if domains::forms(&full, domain)
            .iter()
            .any(|form| form == host)
        {
            names.push(full);
        }
    }
    names
}

/// Of exactly this name; requests go to the port's cluster by a route of its name.
pub(crate) fn listener(name: &Arc<str>, outlet: &Outlet, mesh: &Mesh) -> Resource {
    let manager = filters::grpc(mesh, outlet.name.to_string());
    let listener = Listener {
        name: name.to_string(),
        api_listener: Some(ApiListener {
            api_listener: Some(wire::any(&manager)),
        }),
        ..Listener::default()
    };
    Resource::new(name.clone(), listener.encode_to_vec())
}
