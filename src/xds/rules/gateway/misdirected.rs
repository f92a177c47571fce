//! Requests that come to a server with a wildcard, for a host that a narrower server of the port has.
//!
//! A client chooses the server by the name that it says in TLS, and the host by each request. Where the narrower server requires
//! certificates of clients, the wider one must not answer in its place.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::model::ObjectRef;

use super::{ServerHandling, Serving};
use crate::common::conflict::{Conflicts, TOO_LARGE};
use crate::common::fair_budget::FairBudget;
use crate::common::steps::step;
use crate::scope::patterns;

/// Hosts that a server must not answer for, each with the Gateway that serves it.
pub(crate) type MisdirectedHosts = BTreeMap<String, ObjectRef>;

/// Bytes of hosts below the second wildcard above them, the third and so on, in all routes of a router; the nearest one costs what
/// the hosts cost as they are written. Chosen: a host of a hundred labels may have a hundred wildcards above it, and few have two.
const ROOM: usize = 1 << 20;
/// Bytes of a host besides its name: its entry, and its Gateway there.
const HOST_BYTES: usize = 100;

/// The misdirected hosts of a router, while they are found.
pub(super) struct MisdirectedRoutes<'a> {
    /// By the names of the wider servers' routes.
    by_name: HashMap<Arc<str>, MisdirectedHosts>,
    /// The namespaces of the narrower servers share it.
    room: FairBudget,
    conflicts: &'a mut Conflicts,
}

impl<'a> MisdirectedRoutes<'a> {
    /// `namespaces`: how many have Gateways.
    pub(super) fn new(namespaces: usize, conflicts: &'a mut Conflicts) -> Self {
        Self {
            by_name: HashMap::new(),
            room: FairBudget::new(ROOM, ROOM, namespaces),
            conflicts,
        }
    }

    /// Adds the hosts of the servers of one port.
    pub(super) fn add(&mut self, servers: &[Serving]) {
        let wildcards = wildcards(servers);
        if wildcards.is_empty() {
            return;
        }
        for server in servers
            .iter()
            .filter(|server| server.requires_client_certificates())
        {
            for host in server.hosts.names() {
                self.add_host(&host, server, &wildcards);
            }
        }
    }

    fn add_host(&mut self, host: &str, server: &Serving, wildcards: &HashMap<String, &Serving>) {
        let mut narrower: Option<String> = None;
        for pattern in patterns(host).into_iter().skip(1) {
            let Some(wide) = step(|| wildcards.get(&pattern)) else {
                continue;
            };
            if wide.routes == server.routes {
                continue;
            }
            self.add_at(wide, host, server, narrower.as_deref());
            narrower = Some(pattern);
        }
    }

    /// Adds a host to the routes of a wider server. `narrower`: a wildcard between the two that another server has.
    fn add_at(&mut self, wide: &Serving, host: &str, server: &Serving, narrower: Option<&str>) {
        // One server may have several wildcards above a host.
        if self.hosts(wide).contains_key(host) {
            return;
        }
        if let Some(narrower) = narrower {
            let bytes = host.len() + HOST_BYTES;
            if !self.room.has_room_for(server.from(), bytes) {
                return self.add_wildcard(wide, narrower, server);
            }
            self.room.spend(server.from(), bytes);
        }
        let from = server.from().clone();
        self.hosts(wide).insert(host.to_owned(), from);
    }

    /// Leaves all below a wildcard to the server that has it. Each wildcard has one next above it, so they come to no more than what
    /// is written.
    fn add_wildcard(&mut self, wide: &Serving, narrower: &str, server: &Serving) {
        let hosts = self.hosts(wide);
        if hosts.contains_key(narrower) {
            return;
        }
        hosts.insert(narrower.to_owned(), server.from().clone());
        self.conflicts.push(TOO_LARGE, Some(wide.from()), || {
            let called = wide.called();
            let message = format!(
                "{called} answers 421 for all of {narrower}: {} has too many hosts below it that require certificates of clients",
                server.from()
            );
            (called, message)
        });
    }

    fn hosts(&mut self, wide: &Serving) -> &mut MisdirectedHosts {
        self.by_name.entry(wide.routes.clone()).or_default()
    }

    pub(super) fn finish(self) -> HashMap<Arc<str>, MisdirectedHosts> {
        self.by_name
    }
}

fn wildcards(servers: &[Serving]) -> HashMap<String, &Serving> {
    let mut wildcards = HashMap::new();
    let of_requests = servers
        .iter()
        .filter(|server| server.handling == ServerHandling::Https);
    for server in of_requests {
        let names = server.hosts.names().filter(|name| name.starts_with('*'));
        wildcards.extend(names.map(|name| (name, server)));
    }
    wildcards
}
