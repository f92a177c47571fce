//! Listeners of Sidecars at sockets: no number of a port tells there which service is meant, so all that the listener imports is
//! behind it, as its protocol says.

use std::sync::Arc;

use api::model::Protocol;

use super::{Builder, CatchAll};
use crate::common::conflict::{Conflict, REJECTED_CONFIG, TCP_OVER_TCP};
use crate::common::service_ports::{ServicePort, ServicePorts};
use crate::resources::listeners::{ListenAddress, name};
use crate::scope::EgressListener;

/// The port under which all that share a listener at a socket stand.
const PORT: u16 = 0;

impl Builder<'_> {
    /// `BIND_PORT`.
    pub(super) fn name(&self, port: u16) -> String {
        match &self.socket {
            Some(socket) => format!("unix://{}_{PORT}", socket.path),
            None => name(self.wildcard.address, port),
        }
    }

    /// The name of the routes of a listener that services share.
    pub(super) fn routes(&self, port: u16) -> String {
        match &self.socket {
            Some(socket) => socket.routes.to_string(),
            None => port.to_string(),
        }
    }

    pub(super) fn address(&self, port: u16) -> ListenAddress {
        match &self.socket {
            Some(socket) => ListenAddress::Socket(socket.path.clone()),
            None => ListenAddress::Port(self.wildcard.address, self.wildcard.more, port),
        }
    }

    /// The port of the listener that a service shares with others.
    pub(super) const fn port_of(&self, service_port: &ServicePort) -> u16 {
        match self.socket {
            Some(_) => PORT,
            None => service_port.port.number,
        }
    }

    /// Requests go by their hosts, TLS by its server names, and other connections to the oldest service: nothing tells them apart.
    /// A listener that says no protocol has all requests, and other connections go as those of TCP.
    pub(super) fn at_socket(&mut self, service_ports: &ServicePorts, listener: &EgressListener) {
        let all: Vec<_> = service_ports.all().collect();
        let carries_http = all.iter().any(|one| one.carries_http());
        match listener.protocol {
            _ if listener.is_proxy => self.requests(&all, carries_http),
            Some(protocol) if protocol.is_http() => self.requests(&all, carries_http),
            Some(protocol) if protocol.has_server_name() => {
                for service_port in all.iter().filter(|one| one.protocol.has_server_name()) {
                    self.server_name(service_port);
                }
            }
            Some(_) => self.connections_to_oldest(&all, false),
            None => {
                self.requests(&all, carries_http);
                // This replaces the reservation of the requests: `CatchAll::Auto` has both.
                self.connections_to_oldest(&all, carries_http);
            }
        }
        if self.shared.is_empty() {
            self.is_for_nothing();
        }
    }

    fn requests(&mut self, all: &[&Arc<ServicePort>], carries_http: bool) {
        if carries_http {
            let shared = self.shared.entry(PORT).or_default();
            shared.catch_all = Some(CatchAll::Http);
            for service_port in all.iter().filter(|one| one.carries_http()) {
                shared.is_for(service_port);
            }
            shared.grpc_web = all.iter().any(|one| one.protocol == Protocol::GrpcWeb);
        }
    }

    /// `beside`: requests go by their hosts, and what declares HTTP has no other connections.
    fn connections_to_oldest(&mut self, all: &[&Arc<ServicePort>], beside: bool) {
        let is_http = |one: &&&Arc<ServicePort>| one.protocol.is_http();
        let (http, mut candidates): (Vec<_>, Vec<_>) = all.iter().partition(is_http);
        if candidates.is_empty() && !beside {
            candidates = http;
        }
        let Some((&oldest, others)) = candidates.split_first() else {
            return;
        };
        let oldest = Arc::clone(oldest);
        if !others.is_empty() {
            let name = self.name(PORT);
            let message = format!(
                "{name} routes connections to {} only: it cannot distinguish those to {} more service ports",
                oldest.authority(),
                others.len()
            );
            let conflict = Conflict::new(TCP_OVER_TCP, name, message);
            self.report_at_sidecar(conflict);
        }
        let shared = self.shared.entry(PORT).or_default();
        shared.is_for(&oldest);
        shared.catch_all = Some(match beside {
            true => CatchAll::Auto(oldest),
            false => CatchAll::Tcp(oldest),
        });
    }

    /// Tells of a listener of a Sidecar that no service is behind.
    pub(super) fn is_for_nothing(&mut self) {
        let Some(sidecar) = self.sidecar else {
            return;
        };
        let (at, why) = match (&self.socket, self.port) {
            (Some(socket), _) => (
                format!("unix://{}", socket.path),
                "speaks what the listener does",
            ),
            (None, Some(port)) => (port.to_string(), "has that port"),
            (None, None) => return,
        };
        let message = format!(
            "the egress listener on {at} of {sidecar} is left out: no service that it imports {why}"
        );
        let key = self.name(self.port.unwrap_or(PORT));
        self.report_at_sidecar(Conflict::new(REJECTED_CONFIG, key, message));
    }

    /// Tells a conflict at the Sidecar that says where the services of this group are, if one does.
    pub(super) fn report_at_sidecar(&mut self, conflict: Conflict) {
        self.lost.add(
            0,
            match self.sidecar {
                Some(sidecar) => conflict.because_of(sidecar),
                None => conflict,
            },
        );
    }
}
