//! Listeners of a router: one for each port that its Gateways have, with a chain for each server that has names of its own
//! (discovery.md §16).

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use api::model::{ObjectRef, Protocol};
use api::networking::VirtualService;
use envoy_types::pb::envoy::config::core::v3::{TrafficDirection, TransportSocket};
use envoy_types::pb::envoy::config::listener::v3::{Filter, Listener};
use prost::Message;

use super::chain::{self, ChainConditions, Match, Reservation};
use super::ranges::{self, OwnedChain};
use super::{Frame, Inspect, ListenAddress, name};
use crate::common::conflict::{Conflict, Conflicts, REJECTED_CONFIG, TOO_LARGE};
use crate::common::fair_budget::FairBudget;
use crate::finish::Draft;
use crate::resources::clusters::BLACK_HOLE;
use crate::resources::filters::{self, Extras, HttpOptions, ListenerClass, RouteSpecifier};
use crate::resources::mesh::Mesh;
use crate::resources::proxy::Proxy;
use crate::resources::routes::{ROOM, ROOM_OF_RULE};
use crate::rules::authorization_policy::Filters;
use crate::rules::gateway::hosts::HostIndex;
use crate::rules::gateway::secrets::ProxySecrets;
use crate::rules::gateway::tls::{self, RouterCertificates};
use crate::rules::gateway::{BoundPort, Merged, ServerHandling, Serving};
use crate::rules::virtual_service::connections::{self, ConnectionMatch};
use crate::scope::{ProxyRules, Rule};

/// A router with what its listeners need.
pub(crate) struct RouterParameters<'a> {
    pub(crate) proxy: &'a Proxy,
    pub(crate) mesh: &'a Mesh,
    pub(crate) rules: &'a ProxyRules,
    pub(crate) merged: &'a Merged,
    /// Filters of the policies for requests and connections that come in.
    pub(crate) filters: &'a Filters,
    pub(crate) secrets: ProxySecrets<'a>,
}

/// Comparisons of hosts of servers and rules for the sake of conflicts alone, by all rules and by one.
const COMPARISONS: usize = 1 << 20;
const COMPARISONS_OF_RULE: usize = 1 << 17;

/// One listener while its chains are made.
#[derive(Default)]
struct RouterFilterChains {
    chains: Vec<OwnedChain>,
    from: Vec<ObjectRef>,
    /// Conditions of chains: Envoy takes no two with the same.
    matched: ChainConditions,
    lost: Vec<Conflict>,
}

impl RouterParameters<'_> {
    /// Builds all listeners of a router, with a conflict for each that is left out.
    pub(crate) fn listeners(&self) -> (Vec<Draft<Listener>>, Vec<Conflict>) {
        let mut lost = Vec::new();
        let mut room = FairBudget::new(ROOM, ROOM_OF_RULE, self.rules.namespaces());
        let all = self.merged.by_port.iter();
        let all =
            all.filter_map(|(place, servers)| self.listener(*place, servers, &mut room, &mut lost));
        let all = all.collect();
        lost.extend(self.in_vain());
        (all, lost)
    }

    /// Rules that have no routes of the kind that a server of theirs serves, and that no other server of theirs serves either.
    fn in_vain(&self) -> Vec<Conflict> {
        let servers: Vec<_> = self.merged.by_port.values().flatten().collect();
        let mut indices: BTreeMap<(&ObjectRef, RouteKind), HostIndex> = BTreeMap::new();
        for (at, server) in servers.iter().enumerate() {
            if let Some(kind) = RouteKind::at(server.handling) {
                let index = indices.entry((server.from(), kind)).or_default();
                index.add(&server.hosts, at);
            }
        }
        let mut room = FairBudget::new(COMPARISONS, COMPARISONS_OF_RULE, self.rules.namespaces());
        let mut in_vain: BTreeMap<&ObjectRef, BTreeSet<usize>> = BTreeMap::new();
        for ((gateway, kind), index) in &indices {
            for rule in self.rules.bound(gateway) {
                if !kind.is_in(rule.spec()) {
                    let (found, _) = meeting(&servers, index, rule, &mut room);
                    in_vain.entry(&rule.from).or_default().extend(found);
                }
            }
        }
        in_vain.retain(|_, found| !found.is_empty());
        for ((gateway, kind), index) in &indices {
            for rule in self.rules.bound(gateway) {
                if kind.is_in(rule.spec()) && in_vain.contains_key(&rule.from) {
                    let (found, all) = meeting(&servers, index, rule, &mut room);
                    // Of what was not looked at nothing is told.
                    if !found.is_empty() || !all {
                        in_vain.remove(&rule.from);
                    }
                }
            }
        }
        let mut conflicts = Conflicts::default();
        for (rule, found) in in_vain {
            for server in found.into_iter().filter_map(|at| servers.get(at)) {
                conflicts.push(REJECTED_CONFIG, Some(rule), || {
                    let serves = server_serves(server.handling);
                    let message = format!(
                        "none of its routes applies at {}, which {serves}",
                        server.called()
                    );
                    (rule.to_string(), message)
                });
            }
        }
        conflicts.finish()
    }

    fn listener(
        &self,
        (bind, port): BoundPort,
        servers: &[Serving],
        room: &mut FairBudget,
        lost: &mut Vec<Conflict>,
    ) -> Option<Draft<Listener>> {
        let (wildcard, more) = self.proxy.families.wildcards();
        let address = bind.unwrap_or(wildcard);
        let own_name = name(address, port);
        let mut chains = RouterFilterChains::default();
        // Servers in plain text share their routes, and so a chain.
        let first = servers.first()?;
        let servers = match first.handling {
            ServerHandling::Http => {
                chains
                    .from
                    .extend(servers.iter().map(|one| one.from().clone()));
                std::slice::from_ref(first)
            }
            ServerHandling::Https
            | ServerHandling::Tls
            | ServerHandling::Passthrough
            | ServerHandling::AutoPassthrough
            | ServerHandling::Tcp => servers,
        };
        for server in servers {
            chains.from.push(server.from().clone());
            let result = self.add(server, &own_name, room, &mut chains);
            lost.extend(result.err().map(|why| {
                let what = format!("is left out: {why}");
                server.lost(&what)
            }));
            lost.append(&mut chains.lost);
        }
        // Envoy takes no listener without chains.
        (!chains.chains.is_empty()).then_some(())?;
        let completed = ranges::complete(chains.chains, room);
        lost.extend(completed.conflicts(&own_name));
        let frame = Frame {
            name: own_name,
            address: ListenAddress::Port(address, more.filter(|_| bind.is_none()), port),
            direction: TrafficDirection::Outbound,
            bound: true,
            inspect: Inspect {
                tls: first.handling.has_server_name(),
                http: false,
            },
            chains: completed.chains,
            default: None,
        };
        let mut from = chains.from;
        from.extend(self.filters.from.iter().cloned());
        from.sort();
        from.dedup();
        Some(Draft {
            from,
            ..super::draft(frame.listener(self.mesh))
        })
    }

    fn add(
        &self,
        server: &Serving,
        listener: &str,
        room: &mut FairBudget,
        chains: &mut RouterFilterChains,
    ) -> Result<(), String> {
        match server.handling {
            ServerHandling::Http => {
                let filter = self.http(server, listener);
                chains.chains.push(Match::any().chain(filter).into());
            }
            ServerHandling::Https => {
                let socket = self.socket(server)?;
                let matching = chains.by_names(server)?;
                let filters = vec![self.http(server, listener)];
                let chain = matching.chain_of(filters);
                chains.chains.push(chain::secured(chain, socket).into());
            }
            ServerHandling::Tls => {
                let socket = self.socket(server)?;
                self.by_rules(server, Some(&socket), room, chains);
            }
            ServerHandling::Tcp | ServerHandling::Passthrough => {
                self.by_rules(server, None, room, chains);
            }
            ServerHandling::AutoPassthrough => {
                let mut filters = self.filters.tcp.clone();
                filters.extend(filters::by_server_name(self.mesh));
                let chain = chains.by_names(server)?.chain_of(filters);
                chains.chains.push(chain.into());
            }
        }
        Ok(())
    }

    /// The socket that ends TLS at a server, or the reason why it cannot.
    fn socket(&self, server: &Serving) -> Result<TransportSocket, String> {
        let own = RouterCertificates {
            files: &self.proxy.node.server,
            are_missing: self.proxy.node.without_certificates,
            secrets: self.secrets,
            initial_fetch_timeout: self.mesh.initial_fetch_timeout,
        };
        let settings = server.spec().and_then(|server| server.tls.as_ref());
        let settings = settings.cloned().unwrap_or_default();
        tls::socket(&settings, server.handling, own)
    }

    /// The targets of a rule's connections to a server. `None`: there is no room for them.
    fn targets(
        &self,
        server: &Serving,
        rule: &Rule<VirtualService>,
        room: &mut usize,
    ) -> Option<Vec<ConnectionMatch>> {
        let mut targets = match server.handling {
            ServerHandling::Passthrough => {
                connections::passed_through(self.rules, rule, server, room)?
            }
            ServerHandling::Http
            | ServerHandling::Https
            | ServerHandling::Tls
            | ServerHandling::AutoPassthrough
            | ServerHandling::Tcp => connections::carried(self.rules, rule, server, room)?,
        };
        // TLS ends at the server, so a tcp route, which has no names, is matched by the server's hosts.
        if server.handling == ServerHandling::Tls {
            let names = names(server);
            for target in &mut targets {
                target.names.clone_from(&names);
            }
        }
        for target in &targets {
            *room = room.checked_sub(target.weight())?;
        }
        Some(targets)
    }

    /// Adds the chains of all rules that are bound to a server.
    fn by_rules(
        &self,
        server: &Serving,
        socket: Option<&TransportSocket>,
        room: &mut FairBudget,
        chains: &mut RouterFilterChains,
    ) {
        let kind = RouteKind::at(server.handling);
        let bound = self.rules.bound(server.from()).into_iter();
        for rule in bound.filter(|rule| kind.is_some_and(|kind| kind.is_in(rule.spec()))) {
            let Some(mut left) = room.of(&rule.from) else {
                continue;
            };
            let before = left;
            let targets = self.targets(server, rule, &mut left);
            let Some(targets) = targets.filter(|targets| {
                let chains = self.add_chains((rule, targets), (server, socket), &mut left, chains);
                chains.is_some()
            }) else {
                chains.lost.push(give_up(room, &rule.from));
                continue;
            };
            room.spend(&rule.from, before - left);
            if !targets.is_empty() {
                chains.from.push(rule.from.clone());
                chains.from.extend(rule.with.iter().cloned());
            }
        }
    }

    /// Adds the chains of a rule's targets. Each has the policies of the router and the socket of the server in it, and takes room
    /// for these; `None`: there is none, and none is added.
    fn add_chains(
        &self,
        (rule, targets): (&Rule<VirtualService>, &[ConnectionMatch]),
        (server, socket): (&Serving, Option<&TransportSocket>),
        room: &mut usize,
        made: &mut RouterFilterChains,
    ) -> Option<()> {
        let policies = self.filters.tcp.iter().map(Message::encoded_len);
        let of_socket = socket.map_or(0, Message::encoded_len);
        let bytes = policies.sum::<usize>().saturating_add(of_socket);
        let mut from = Vec::new();
        let mut reservation = Reservation::new(&mut made.matched, &rule.from);
        let mut chains: Vec<OwnedChain> = Vec::new();
        for target in targets {
            let matches = chain::of_target(target, self.proxy.families, &mut reservation);
            let stat_prefix = target.to.first().map_or(BLACK_HOLE, |(name, _)| name);
            let own = (self.mesh, self.rules);
            let carry = filters::tcp_to(own, stat_prefix, &target.to, &mut from);
            for matching in matches {
                let Some(left) = room.checked_sub(bytes) else {
                    // A rule without room leaves none of its names behind: younger rules may have them.
                    reservation.release();
                    return None;
                };
                *room = left;
                let mut filters = self.filters.tcp.clone();
                filters.push(carry.clone());
                let chain = matching.chain_of(filters);
                let chain = match socket {
                    Some(socket) => chain::secured(chain, socket.clone()),
                    None => chain,
                };
                chains.push(OwnedChain::of(&rule.from, chain));
            }
        }
        made.lost.extend(reservation.conflict(&server.called()));
        made.chains.extend(chains);
        made.from.extend(from);
        Some(())
    }

    /// Builds the connection manager of a server.
    fn http(&self, server: &Serving, listener: &str) -> Filter {
        let options = HttpOptions {
            idle_timeout: self.proxy.node.idle_timeout,
            http10: self.proxy.node.http10,
        };
        let own = self.proxy.node.router.trusted_proxies;
        filters::http(
            self.mesh,
            options,
            format!("outbound_{listener}"),
            RouteSpecifier::Named(server.routes.to_string()),
            Extras {
                first: &self.filters.http,
                grpc_web: server.protocol() == Protocol::GrpcWeb,
                grpc_stats: false,
                class: ListenerClass::Router,
                trusted_proxies: own.unwrap_or(self.mesh.trusted_proxies),
            },
        )
    }
}

/// The server names that a server's chain matches; none: any.
fn names(server: &Serving) -> Vec<String> {
    let mut names: Vec<String> = server.hosts.names().collect();
    if names.iter().any(|name| name == "*") {
        names.clear();
    }
    names
}

impl RouterFilterChains {
    /// Returns a match of the server's names that no chain before has.
    fn by_names(&mut self, server: &Serving) -> Result<Match, String> {
        let mut names = names(server);
        let is_any = names.is_empty();
        if is_any {
            names.push(String::new());
        }
        names.retain(|name| self.matched.reserve(chain::key(None, name, None), None));
        if names.is_empty() {
            return Err("an older server has all of its hosts".to_owned());
        }
        if is_any {
            names.clear();
        }
        Ok(Match::any().server_names(&names))
    }
}

/// The lists of routes of a VirtualService.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RouteKind {
    Http,
    Tls,
    Tcp,
}

impl RouteKind {
    /// Returns the kind of routes that a server serves; `None`: it asks no rule.
    const fn at(handling: ServerHandling) -> Option<Self> {
        match handling {
            ServerHandling::Http | ServerHandling::Https => Some(Self::Http),
            ServerHandling::Passthrough => Some(Self::Tls),
            ServerHandling::Tls | ServerHandling::Tcp => Some(Self::Tcp),
            ServerHandling::AutoPassthrough => None,
        }
    }

    /// Returns true if a rule has such routes.
    fn is_in(self, spec: &VirtualService) -> bool {
        match self {
            Self::Http => !spec.http.is_empty(),
            Self::Tls => !spec.tls.is_empty(),
            Self::Tcp => !spec.tcp.is_empty(),
        }
    }
}

/// Says what a server does, as the reason why other routes do not apply there.
const fn server_serves(handling: ServerHandling) -> &'static str {
    match handling {
        ServerHandling::Http | ServerHandling::Https => "serves requests; use http routes there",
        ServerHandling::Passthrough => "passes TLS through; use tls routes there",
        ServerHandling::Tls => "ends TLS and serves connections; use tcp routes there",
        ServerHandling::Tcp => "serves connections; use tcp routes there",
        ServerHandling::AutoPassthrough => "leads to the service that the server name says",
    }
}

/// The numbers of the servers that have a host in common with a rule, and whether all of them were looked at.
fn meeting(
    servers: &[&Serving],
    index: &HostIndex,
    rule: &Rule<VirtualService>,
    room: &mut FairBudget,
) -> (BTreeSet<usize>, bool) {
    let max = room.of(&rule.from).unwrap_or_default();
    let hosts = rule.hosts().iter();
    let lookups = hosts.flat_map(|host| {
        let found = index.meeting(host).map(move |at| (host, Some(at)));
        // A host costs one look even where no server comes near it.
        iter::once((host, None)).chain(found)
    });
    let mut lookups = lookups.enumerate();
    let mut found = BTreeSet::new();
    let mut looked = 0;
    for (count, (host, at)) in lookups.by_ref().take(max) {
        looked = count + 1;
        let Some(at) = at.filter(|at| !found.contains(at)) else {
            continue;
        };
        let server = servers.get(at);
        if server.is_some_and(|server| server.hosts.meet(host, rule.namespace())) {
            found.insert(at);
        }
    }
    room.spend(&rule.from, looked);
    (found, lookups.next().is_none())
}

/// Excludes the rule at further servers.
fn give_up(room: &mut FairBudget, rule: &ObjectRef) -> Conflict {
    room.give_up(rule);
    let message = format!(
        "{rule} is left out: its chains are larger than {} MiB, or those of all rules than {} MiB and those of its namespace than \
         their share",
        ROOM_OF_RULE >> 20,
        ROOM >> 20
    );
    Conflict::new(TOO_LARGE, rule.to_string(), message).because_of(rule)
}
