//! Filter chains, and what they match.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use api::model::{Network, ObjectRef};
use envoy_types::pb::envoy::config::core::v3::TransportSocket;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};

use crate::common::conflict::{Conflict, REJECTED_CONFIG};
use crate::common::families::Families;
use crate::common::tls;
use crate::common::wire;
use crate::rules::virtual_service::connections::ConnectionMatch;

/// The application protocols by which the inspector marks HTTP.
const HTTP: [&str; 3] = ["http/1.0", "http/1.1", "h2c"];
const TLS: &str = "tls";

/// A match, made step by step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Match(FilterChainMatch);

impl Match {
    pub(crate) fn any() -> Self {
        Self::default()
    }

    pub(crate) fn port(mut self, port: Option<u16>) -> Self {
        self.0.destination_port = port.and_then(|port| wire::number(port.into()));
        self
    }

    pub(crate) fn ranges(mut self, ranges: &[Network]) -> Self {
        let ranges = ranges.iter();
        self.0.prefix_ranges = ranges
            .map(|range| wire::range(range.first(), range.prefix()))
            .collect();
        self
    }

    pub(crate) fn addresses(mut self, addresses: &[IpAddr]) -> Self {
        let addresses = addresses.iter();
        self.0.prefix_ranges = addresses
            .map(|address| wire::range(*address, wire::all_bits(*address)))
            .collect();
        self
    }

    pub(crate) fn server_name(mut self, name: &str) -> Self {
        self.0.server_names = vec![name.to_owned()];
        self
    }

    pub(crate) fn server_names(mut self, names: &[String]) -> Self {
        self.0.server_names = names.to_vec();
        self
    }

    pub(crate) fn source(mut self, range: Option<Network>) -> Self {
        let range = range.map(|range| wire::range(range.first(), range.prefix()));
        self.0.source_prefix_ranges = range.into_iter().collect();
        self
    }

    /// Matches all TLS.
    pub(crate) fn tls(mut self) -> Self {
        self.0.transport_protocol = TLS.to_owned();
        self
    }

    /// The mesh's own.
    pub(crate) fn mesh_tls(self) -> Self {
        let mut tls = self.tls();
        tls.0.application_protocols = vec![tls::ALPN.to_owned()];
        tls
    }

    pub(crate) fn http(mut self) -> Self {
        self.0.application_protocols = HTTP.map(str::to_owned).into();
        self
    }

    pub(crate) fn chain(self, filter: Filter) -> FilterChain {
        self.chain_of(vec![filter])
    }

    pub(crate) fn chain_of(self, filters: Vec<Filter>) -> FilterChain {
        let all = self.0 == FilterChainMatch::default();
        FilterChain {
            filter_chain_match: (!all).then_some(self.0),
            filters,
            ..FilterChain::default()
        }
    }
}

/// The filter chain with a TLS transport socket.
pub(crate) fn secured(chain: FilterChain, socket: TransportSocket) -> FilterChain {
    FilterChain {
        transport_socket: Some(socket),
        ..chain
    }
}

/// Chains of a port that is not declared: requests by their first bytes, and the rest as it is. TLS is a part of the rest, even
/// if it says that there is HTTP in it.
pub(crate) fn sniffed(matching: &Match, http: Filter, tcp: Vec<Filter>) -> Vec<FilterChain> {
    vec![
        matching.clone().http().chain(http),
        // Envoy narrows by transport protocol first: else ALPN `http/1.1` in TLS would mean requests.
        matching.clone().tls().chain_of(tcp.clone()),
        matching.clone().chain_of(tcp),
    ]
}

/// Conditions of the chains of a listener, of which Envoy takes no two with the same, by the rules that have them.
#[derive(Debug, Default)]
pub(crate) struct ChainConditions {
    /// `None`: a service, or a server itself.
    owners: BTreeMap<String, Option<ObjectRef>>,
}

impl ChainConditions {
    /// Reserves the conditions for the rule. Returns true if no other rule had them.
    pub(crate) fn reserve(&mut self, key: String, rule: Option<&ObjectRef>) -> bool {
        match self.owners.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(rule.cloned());
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// The other rule that has the conditions.
    fn rival(&self, key: &str, rule: &ObjectRef) -> Option<&ObjectRef> {
        let owner = self.owners.get(key)?.as_ref();
        owner.filter(|owner| *owner != rule)
    }

    pub(crate) fn contain(&self, key: &str) -> bool {
        self.owners.contains_key(key)
    }

    pub(crate) fn release(&mut self, key: &str) {
        self.owners.remove(key);
    }
}

/// The conditions of a listener while one rule takes its part of them.
pub(crate) struct Reservation<'a> {
    conditions: &'a mut ChainConditions,
    rule: &'a ObjectRef,
    taken: Vec<String>,
    /// The first of the rules that have some of them already.
    winner: Option<ObjectRef>,
}

impl<'a> Reservation<'a> {
    pub(crate) const fn new(conditions: &'a mut ChainConditions, rule: &'a ObjectRef) -> Self {
        Self {
            conditions,
            rule,
            taken: Vec::new(),
            winner: None,
        }
    }

    fn reserve(&mut self, key: String) -> bool {
        if self.conditions.reserve(key.clone(), Some(self.rule)) {
            self.taken.push(key);
            return true;
        }
        if self.winner.is_none() {
            self.winner = self.conditions.rival(&key, self.rule).cloned();
        }
        false
    }

    /// Leaves all of them to others.
    pub(crate) fn release(self) {
        for key in &self.taken {
            self.conditions.release(key);
        }
    }

    /// The conflict of a rule some of whose connections are another one's. `place`: where they are, in words.
    pub(crate) fn conflict(&self, place: &str) -> Option<Conflict> {
        let (rule, winner) = (self.rule, self.winner.as_ref()?);
        let message = format!(
            "some of the connections that {rule} matches at {place} go where {winner} says: it matches the same, and comes first"
        );
        let key = format!("{rule} {place}");
        Some(Conflict::new(REJECTED_CONFIG, key, message).because_of(rule))
    }
}

/// Conditions as a text: Envoy takes no two chains with the same.
pub(crate) fn key(range: Option<&Network>, name: &str, source: Option<&Network>) -> String {
    let text = |range: Option<&Network>| range.map_or_else(String::new, ToString::to_string);
    format!("{} {} {name}", text(range), text(source))
}

/// Matches for the connections of a rule's target, without those that a chain before has.
pub(crate) fn of_target(
    target: &ConnectionMatch,
    families: Families,
    reservation: &mut Reservation<'_>,
) -> Vec<Match> {
    let mut ranges: Vec<Option<Network>> = target.ranges.iter().copied().map(Some).collect();
    ranges.retain(|range| range.is_none_or(|range| families.has(range.first())));
    // A target whose ranges are all of the other family matches nothing, and not everything.
    if target.ranges.is_empty() {
        ranges.push(None);
    }
    // Of each range the names that no chain before has.
    let mut groups: BTreeMap<Vec<String>, Vec<Network>> = BTreeMap::new();
    for range in ranges {
        let names = target.names.iter().map(String::as_str);
        let any = target.names.is_empty().then_some("");
        let new = names
            .chain(any)
            .filter(|name| reservation.reserve(key(range.as_ref(), name, target.source.as_ref())));
        let new: Vec<String> = new.map(str::to_owned).collect();
        if !new.is_empty() {
            groups.entry(new).or_default().extend(range);
        }
    }
    let groups = groups.into_iter();
    groups
        .map(|(mut names, ranges)| {
            names.retain(|name| !name.is_empty());
            Match::any()
                .server_names(&names)
                .ranges(&ranges)
                .source(target.source)
        })
        .collect()
}
