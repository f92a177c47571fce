//! Addresses that services share which have none of their own: all, the loopback, or what a Sidecar binds.

use std::net::IpAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::TrafficDirection;

use super::{Builder, CatchAll, Outbound, OutboundParameters, SharedPort};
use crate::common::conflict::{Conflict, INVALID_LISTENER, TCP_OVER_TCP};
use crate::resources::filters::Extras;
use crate::resources::listeners::chain::{self, Match};
use crate::resources::listeners::ranges;
use crate::resources::listeners::{
    Frame, Inspect, ListenAddress, is_envoys, is_own, name, virtual_listeners,
};
use crate::scope::EgressListener;

/// The address that services of one group share which have none of their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wildcard {
    pub(super) address: IpAddr,
    pub(super) more: Option<IpAddr>,
    pub(super) bound: bool,
    /// True if services with an address of their own are there, too.
    pub(super) for_all: bool,
}

impl Wildcard {
    /// `None`: proxies of these families have no such address.
    pub(super) fn new(listener: &EgressListener, parameters: &OutboundParameters) -> Option<Self> {
        let bound = listener.bound || listener.socket.is_some() || parameters.loopback.is_some();
        let bind = listener.bind.filter(|bind| !bind.is_unspecified());
        if bind.is_some_and(|bind| !parameters.families.has(bind)) {
            return None;
        }
        let all = listener.bind.is_some_and(|bind| bind.is_unspecified());
        let loopback = || {
            parameters
                .loopback
                .unwrap_or_else(|| parameters.families.loopback())
        };
        let (address, more) = match bind {
            Some(bind) => (bind, None),
            None if bound && !all => (loopback(), None),
            None => parameters.families.wildcards(),
        };
        Some(Self {
            address,
            more,
            bound,
            // Applications or the Sidecar name the address: services have no listener at their own.
            for_all: bound || listener.bind.is_some(),
        })
    }
}

impl Builder<'_> {
    pub(super) fn finish(mut self) -> Outbound {
        for (port, shared) in std::mem::take(&mut self.shared) {
            self.port(port, shared);
        }
        self.out
    }

    /// The listener that services without an address of their own share.
    fn port(&mut self, port: u16, mut shared: SharedPort) {
        let bound = self.wildcard.bound;
        let name = self.name(port);
        if self.out.listeners.contains_key(&name) {
            let message = format!("{name} is left out: an earlier listener has its address");
            let mut conflict = Conflict::new(TCP_OVER_TCP, name, message);
            conflict.services = shared.services;
            self.report_at_sidecar(conflict);
            return;
        }
        let mut chains = shared.chains;
        let mut from = shared.from;
        let mut inspect = shared.inspect;
        let mut routes: Vec<Arc<str>> = Vec::new();
        let mut default = None;
        let extras = Extras {
            grpc_web: shared.grpc_web,
            ..Extras::default()
        };
        let of_port = self.routes(port);
        if shared.routed || matches!(shared.catch_all, Some(CatchAll::Http | CatchAll::Auto(_))) {
            routes.push(of_port.as_str().into());
        }
        let matched = &mut shared.matched;
        match shared.catch_all {
            Some(CatchAll::Http) => {
                let http = self.http(&name, of_port, extras);
                chains.push(Match::any().chain(http).into());
            }
            Some(CatchAll::Tcp(service_port)) => {
                let make = |matching: Match, tcp| vec![matching.chain(tcp)];
                chains.extend(self.chains_of_one(&service_port, matched, &mut from, make));
            }
            Some(CatchAll::Auto(service_port)) => {
                let http = self.http(&name, of_port, extras);
                let make =
                    |matching: Match, tcp| chain::sniffed(&matching, http.clone(), vec![tcp]);
                chains.extend(self.chains_of_one(&service_port, matched, &mut from, make));
                inspect = Inspect {
                    tls: true,
                    http: true,
                };
            }
            None if chains.is_empty() => return,
            None => {
                // Chains here match names and ranges: all else goes where `virtualOutbound` would send it.
                default = Some(Match::any().chain(virtual_listeners::unknown(
                    self.mesh,
                    &self.parameters.unknown,
                    !bound,
                )));
            }
        }
        let completed = ranges::complete(chains, self.room);
        self.lost.extend(completed.conflicts(&name));
        let frame = Frame {
            name,
            address: self.address(port),
            direction: TrafficDirection::Outbound,
            bound,
            inspect,
            chains: completed.chains,
            default,
        };
        let services = shared.services;
        self.insert(frame, routes, self.only_address(), false, from, &services);
    }

    /// Returns the address that the listener is for, where it is a certain one and not the proxy's own place.
    fn only_address(&self) -> Option<IpAddr> {
        let Wildcard { address, bound, .. } = self.wildcard;
        (!bound && !address.is_unspecified()).then_some(address)
    }

    /// The port of a Sidecar that applications use as a proxy.
    pub(super) fn proxy(&mut self, listener: &EgressListener) {
        let (Some(port), Some(routes)) = (self.port, &listener.proxy_routes) else {
            return;
        };
        let Wildcard {
            address,
            more,
            bound,
            ..
        } = self.wildcard;
        let name = name(address, port);
        let is_taken = match bound {
            true => is_own(port, self.mesh) || port == self.mesh.http_port,
            false => is_envoys(port, self.mesh),
        };
        if is_taken || self.out.listeners.contains_key(&name) {
            let message = format!("{name} is left out: the proxy listens there");
            self.report_at_sidecar(Conflict::new(INVALID_LISTENER, name, message));
            return;
        }
        let http = self.http(&name, routes.to_string(), Extras::default());
        let frame = Frame {
            name,
            address: ListenAddress::Port(address, more, port),
            direction: TrafficDirection::Outbound,
            bound,
            inspect: Inspect::default(),
            chains: vec![Match::any().chain(http)],
            default: None,
        };
        let routes = vec![routes.clone()];
        self.insert(frame, routes, self.only_address(), false, Vec::new(), &[]);
    }
}
