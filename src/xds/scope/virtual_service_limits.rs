//! A bound on the routes that rules of one namespace have in all configurations of a proxy together.
//!
//! Each configuration bounds its own. A host that no service has stands at each port of its rule's destinations, though, and
//! some kilobytes of hosts and ports in many short rules would be hundreds of megabytes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::model::ObjectRef;
use api::networking::VirtualService;
use prost::Message as _;

use super::Rule;

/// Bytes of one configuration, and of one rule in it. Chosen: the routes of a rule of the longest there may be (1 MiB) fit, also
/// for some hosts, and a wildcard that gives every service of a mesh a thousand routes does not. While a configuration is made,
/// Envoy's messages take ten times as much memory.
pub(crate) const ROOM: usize = 16 << 20;
pub(crate) const ROOM_OF_RULE: usize = 4 << 20;
/// Bytes of the routes of one namespace in all configurations of a sidecar. Chosen: 1,000 hosts at ten ports come to a fourth of it.
const ROOM_AT_SIDECAR: usize = 16 << 20;
/// The same of a router. Chosen: most hosts of a Gateway are there twice, at port 80 for the redirect and at 443, and one namespace has
/// the rules of all of them in many meshes.
const ROOM_AT_ROUTER: usize = 32 << 20;

/// Bytes of a virtual host besides its routes and names, and of a route besides what its rule says, such as the policy of
/// retries.
const HOST_BYTES: usize = 40;
const ROUTE_BYTES: usize = 220;
/// A host stands in the name, in two domains and in the operation of traces.
const NAMES: usize = 4;

/// Rules that are left out: their namespaces have more routes than there is room for.
#[derive(Debug)]
pub(crate) struct RulesWithoutRoom {
    rules: BTreeSet<ObjectRef>,
    /// Bytes that the rules of one namespace have.
    pub(crate) room: usize,
}

impl RulesWithoutRoom {
    pub(crate) fn contains(&self, rule: &ObjectRef) -> bool {
        self.rules.contains(rule)
    }
}

/// Names that stand in routes for one host of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostNames {
    count: usize,
    bytes: usize,
}

impl HostNames {
    /// The host itself, at so many ports.
    pub(super) const fn at_ports(host: &str, ports: usize) -> Self {
        Self {
            count: ports,
            bytes: host.len().saturating_mul(ports),
        }
    }

    pub(crate) fn of_lengths(lengths: impl Iterator<Item = usize>) -> Self {
        lengths.fold(Self::default(), |all, bytes| Self {
            count: all.count + 1,
            bytes: all.bytes + bytes,
        })
    }
}

/// The routes of one rule, estimated.
struct RuleRoutes<'a> {
    rule: &'a Rule<VirtualService>,
    /// Bytes of all routes for one host at one port.
    of_host: usize,
    bytes: usize,
    /// Bytes of hosts whose ports share the room of one rule.
    bytes_alone: usize,
}

/// The routes of all rules of a proxy, estimated.
pub(crate) struct RouteEstimate<'a> {
    by_rule: HashMap<*const Rule<VirtualService>, RuleRoutes<'a>>,
    /// Bytes that the rules of one namespace have.
    room: usize,
}

impl RuleRoutes<'_> {
    fn bytes_at(&self, host: &str, names: HostNames) -> usize {
        let routes = self.of_host.saturating_mul(names.count);
        let names = names.bytes.saturating_mul(NAMES);
        // A host that is nowhere takes the work of a look.
        routes.saturating_add(names).saturating_add(host.len())
    }

    fn bytes(&self) -> usize {
        self.bytes
            .saturating_add(self.bytes_alone.min(ROOM_OF_RULE))
    }
}

impl<'a> RouteEstimate<'a> {
    pub(crate) fn at_sidecar() -> Self {
        Self {
            by_rule: HashMap::new(),
            room: ROOM_AT_SIDECAR,
        }
    }

    pub(crate) fn at_router() -> Self {
        Self {
            by_rule: HashMap::new(),
            room: ROOM_AT_ROUTER,
        }
    }

    fn rule(&mut self, rule: &'a Arc<Rule<VirtualService>>) -> &mut RuleRoutes<'a> {
        let routes = self.by_rule.entry(Arc::as_ptr(rule));
        routes.or_insert_with(|| RuleRoutes {
            rule,
            of_host: bytes_of_host(rule.spec()),
            bytes: 0,
            bytes_alone: 0,
        })
    }

    /// Adds a host of a rule.
    pub(crate) fn add(
        &mut self,
        rule: &'a Arc<Rule<VirtualService>>,
        host: &str,
        names: HostNames,
    ) {
        let routes = self.rule(rule);
        routes.bytes = routes.bytes.saturating_add(routes.bytes_at(host, names));
    }

    /// Adds a host that no service has.
    pub(super) fn add_alone(
        &mut self,
        rule: &'a Arc<Rule<VirtualService>>,
        host: &str,
        names: HostNames,
    ) {
        let routes = self.rule(rule);
        let bytes = routes.bytes_at(host, names);
        routes.bytes_alone = routes.bytes_alone.saturating_add(bytes);
    }

    /// Returns true if a rule alone has more routes than its namespace may have.
    pub(crate) fn is_full(&mut self, rule: &'a Arc<Rule<VirtualService>>) -> bool {
        self.rule(rule).bytes() > self.room
    }

    /// Returns the rules that are left out. The older rules of a namespace have its room: a new one takes none of theirs away.
    pub(crate) fn without_room(self) -> RulesWithoutRoom {
        let mut all: Vec<_> = self.by_rule.into_values().collect();
        all.sort_by(|one, other| one.rule.order(other.rule));
        let mut room: HashMap<&str, usize> = HashMap::new();
        let without = all.iter().filter(|routes| {
            let namespace = room.entry(routes.rule.namespace());
            let bytes = namespace.or_insert(self.room);
            match bytes.checked_sub(routes.bytes()) {
                Some(rest) => {
                    *bytes = rest;
                    false
                }
                None => true,
            }
        });
        RulesWithoutRoom {
            rules: without.map(|routes| routes.rule.from.clone()).collect(),
            room: self.room,
        }
    }
}

fn bytes_of_host(spec: &VirtualService) -> usize {
    let routes = spec.http.iter().map(|http| {
        let matches: usize = http.r#match.iter().map(prost::Message::encoded_len).sum();
        let action = http.encoded_len().saturating_sub(matches) + ROUTE_BYTES;
        matches.saturating_add(action.saturating_mul(http.r#match.len().max(1)))
    });
    routes.fold(HOST_BYTES, usize::saturating_add)
}
