//! Listeners of one address: a service's own, or an endpoint's.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::Endpoint;
use envoy_types::pb::envoy::config::core::v3::TrafficDirection;

use super::{Builder, extras};
use crate::common::conflict::{Conflict, TCP_OVER_TCP};
use crate::common::outlets::Outlet;
use crate::resources::filters::{self, Extras};
use crate::resources::listeners::chain::{self, Match};
use crate::resources::listeners::{Frame, Inspect, name};

impl Builder<'_> {
    /// A listener of one address.
    pub(super) fn own_address(&mut self, outlet: &Arc<Outlet>, address: IpAddr, endpoint: bool) {
        let port = outlet.port.number;
        let name = name(address, port);
        if let Some(built) = self.out.listeners.get(&name) {
            // One endpoint may serve two names.
            if !built.endpoint || !endpoint {
                let message = format!(
                    "{} is left out: an older service has it",
                    outlet.authority()
                );
                let conflict = Conflict::new(TCP_OVER_TCP, name, message);
                let conflict = conflict.of_service(&outlet.service.key);
                self.out.conflicts.push(conflict);
            }
            return;
        }
        let mut routes = Vec::new();
        let sniffs = outlet.protocol.is_auto() && !endpoint;
        let rule = self.connections(outlet);
        let by_rule = rule.as_ref().filter(|_| !outlet.protocol.is_http());
        let rest = by_rule.map(|rule| rule.rest.as_ref());
        let tcp = match rest.flatten() {
            Some(to) => filters::tcp_to(self.mesh, &outlet.name, to),
            None => filters::tcp(self.mesh, &outlet.name),
        };
        // Of what a rule tells by names the rest goes nowhere.
        let is_closed = rest.is_some_and(|rest| rest.is_none());
        let sniffed = sniffs.then(|| self.http(&name, outlet.authority(), Extras::default()));
        let mut chains = by_rule.map_or_else(Vec::new, |rule| {
            self.chains(
                outlet,
                rule,
                &mut BTreeSet::new(),
                |matching, tcp| match &sniffed {
                    Some(http) => chain::sniffed(&matching, http.clone(), vec![tcp]),
                    None => vec![matching.chain(tcp)],
                },
            )
        });
        let own = if outlet.protocol.is_http() {
            let route = port.to_string();
            routes.push(route.as_str().into());
            let http = self.http(&name, route, extras(outlet));
            vec![Match::any().chain(http)]
        } else if let Some(http) = sniffed {
            routes.push(outlet.authority().as_str().into());
            chain::sniffed(&Match::any(), http, vec![tcp])
        } else if is_closed {
            Vec::new()
        } else {
            vec![Match::any().chain(tcp)]
        };
        chains.extend(own);
        let from = by_rule.map(|rule| rule.from.clone());
        let frame = Frame {
            name: name.clone(),
            address,
            more: None,
            port,
            direction: TrafficDirection::Outbound,
            bound: false,
            inspect: Inspect {
                tls: sniffs || is_closed,
                http: sniffs,
            },
            chains,
            default: None,
        };
        let from = from.into_iter().collect();
        self.insert(frame, routes, Some(address), endpoint, from);
    }

    pub(super) fn each_endpoint(&mut self, outlet: &Arc<Outlet>, endpoints: &[&Endpoint]) {
        for address in endpoints
            .iter()
            .filter_map(|endpoint| endpoint.address.ip())
        {
            if self.place.families.has(address) && !address.is_unspecified() {
                self.own_address(outlet, address, true);
            }
        }
    }
}
