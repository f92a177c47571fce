//! Requests that come to a server with a wildcard, for a host that a narrower server of the port has.
//!
//! A client chooses the server by the name that it says in TLS, and the host by each request. Where the narrower server requires
//! certificates of clients, the wider one must not answer in its place.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::model::ObjectRef;

use super::{ServerHandling, Serving};
use crate::common::steps::step;
use crate::scope::patterns;

/// Hosts that a server must not answer for, each with the Gateway that serves it.
pub(crate) type MisdirectedHosts = BTreeMap<String, ObjectRef>;

/// Adds the misdirected hosts of the servers of one port, by the names of the wider servers' routes.
pub(super) fn add(servers: &[Serving], found: &mut HashMap<Arc<str>, MisdirectedHosts>) {
    let mut wildcards = HashMap::new();
    let of_requests = servers
        .iter()
        .filter(|server| server.handling == ServerHandling::Https);
    for server in of_requests {
        let names = server.hosts.names().filter(|name| name.starts_with('*'));
        wildcards.extend(names.map(|name| (name, &server.routes)));
    }
    if wildcards.is_empty() {
        return;
    }
    for server in servers
        .iter()
        .filter(|server| server.requires_client_certificates())
    {
        for host in server.hosts.names() {
            let covering = patterns(&host).into_iter().skip(1);
            let wider = covering.filter_map(|pattern| step(|| wildcards.get(&pattern)));
            for routes in wider.filter(|routes| ***routes != server.routes) {
                let hosts = found.entry((*routes).clone()).or_default();
                hosts
                    .entry(host.clone())
                    .or_insert_with(|| server.from().clone());
            }
        }
    }
}
