//! Filter chains, and what they match.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::model::Network;
use envoy_types::pb::envoy::config::core::v3::{CidrRange, TransportSocket};
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};
use prost::Message as _;

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
        matching.clone().tls().chain_of(tcp.clone()),
        matching.clone().chain_of(tcp),
    ]
}

/// Conditions as a text: Envoy takes no two chains with the same.
pub(crate) fn key(range: Option<&Network>, name: &str, source: Option<&Network>) -> String {
    let text = |range: Option<&Network>| range.map_or_else(String::new, ToString::to_string);
    format!("{} {} {name}", text(range), text(source))
}

/// Matches for the connections of a rule's target, without those that a chain before has. `matched`: the conditions of those.
pub(crate) fn of_target(
    target: &ConnectionMatch,
    families: Families,
    matched: &mut BTreeSet<String>,
) -> Vec<Match> {
    let mut ranges: Vec<Option<Network>> = target.ranges.iter().copied().map(Some).collect();
    ranges.retain(|range| range.is_none_or(|range| families.has(range.first())));
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
            .filter(|name| matched.insert(key(range.as_ref(), name, target.source.as_ref())));
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

/// Chains that copies for ranges may come to. Chosen: as many as listeners of large meshes have, and no hostile square.
const MOST_COPIES: usize = 4096;

/// Envoy looks for the narrowest range that has a connection's destination, and for its other conditions only there: what is in
/// a range of one chain with further conditions, and does not meet these, has no chain. Such a range gets copies of all chains
/// that would have had the rest. Where they come to too many, the last chains with such ranges are left out; returns their
/// number, too.
pub(crate) fn complete_ranges(mut chains: Vec<FilterChain>) -> (Vec<FilterChain>, usize) {
    let has_ranges = |chain: &FilterChain| {
        let matching = chain.filter_chain_match.as_ref();
        matching.is_some_and(|matching| !matching.prefix_ranges.is_empty())
    };
    if !chains.iter().any(has_ranges) {
        return (chains, 0);
    }
    let mut whole = BTreeSet::new();
    let mut known = BTreeSet::new();
    let mut partial: Vec<(RangeKey, CidrRange)> = Vec::new();
    for (ranges, rest) in chains.iter().map(parts) {
        for range in ranges {
            if rest == FilterChainMatch::default() {
                whole.insert(key_of(&range));
            } else if known.insert(key_of(&range)) {
                partial.push((key_of(&range), range));
            }
        }
    }
    partial.retain(|(key, _)| !whole.contains(key));
    // The first ranges stay: they are of the older services.
    let most = MOST_COPIES / chains.len().max(1);
    let beyond = partial.split_off(most.min(partial.len()));
    let beyond: BTreeSet<_> = beyond.into_iter().map(|(key, _)| key).collect();
    let before = chains.len();
    chains.retain(|chain| {
        let (ranges, _) = parts(chain);
        !ranges.iter().any(|range| beyond.contains(&key_of(range)))
    });
    let lost = before.saturating_sub(chains.len());
    let mut taken = BTreeSet::new();
    let mut left = BTreeSet::new();
    for (ranges, rest) in chains.iter().map(parts) {
        let rest = rest.encode_to_vec();
        left.extend(ranges.iter().map(key_of));
        taken.extend(ranges.iter().map(|range| (key_of(range), rest.clone())));
    }
    partial.retain(|(key, _)| left.contains(key));
    let mut copies = Vec::new();
    for (own, range) in &partial {
        let Some(inner) = network(range) else {
            continue;
        };
        for (rest, chain) in around(&chains, own, &inner) {
            if !taken.insert((own.clone(), rest.encode_to_vec())) {
                continue;
            }
            copies.push(FilterChain {
                filter_chain_match: Some(FilterChainMatch {
                    prefix_ranges: vec![range.clone()],
                    ..rest
                }),
                ..chain.clone()
            });
        }
    }
    chains.extend(copies);
    (chains, lost)
}

type RangeKey = (String, u32);

fn key_of(range: &CidrRange) -> RangeKey {
    let bits = range.prefix_len.map_or(0, |bits| bits.value);
    (range.address_prefix.clone(), bits)
}

/// The ranges of a chain, and its other conditions.
fn parts(chain: &FilterChain) -> (Vec<CidrRange>, FilterChainMatch) {
    let mut rest = chain.filter_chain_match.clone().unwrap_or_default();
    let ranges = std::mem::take(&mut rest.prefix_ranges);
    (ranges, rest)
}

/// The chains around a range, with their other conditions: those of the narrowest range around it first, as it would be
/// without this one.
fn around<'a>(
    chains: &'a [FilterChain],
    own: &RangeKey,
    inner: &Network,
) -> Vec<(FilterChainMatch, &'a FilterChain)> {
    let with_width = chains.iter().filter_map(|chain| {
        let (ranges, rest) = parts(chain);
        let others = ranges.iter().filter(|one| key_of(one) != *own);
        let outer = others
            .filter_map(network)
            .filter(|outer| outer.prefix() < inner.prefix() && outer.contains(inner.first()));
        let nearest = outer.map(|outer| usize::from(outer.prefix()) + 1).max();
        let width = if ranges.is_empty() { Some(0) } else { nearest };
        Some((width?, rest, chain))
    });
    let mut all: Vec<_> = with_width.collect();
    all.sort_by_key(|(width, ..)| std::cmp::Reverse(*width));
    all.into_iter()
        .map(|(_, rest, chain)| (rest, chain))
        .collect()
}

fn network(range: &CidrRange) -> Option<Network> {
    let bits = range.prefix_len.map_or(0, |bits| bits.value);
    Network::new(range.address_prefix.parse().ok()?, u8::try_from(bits).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain in words: names, ranges, and its filter.
    fn words(chain: &FilterChain) -> String {
        let matching = chain.filter_chain_match.clone().unwrap_or_default();
        let ranges = matching.prefix_ranges.iter();
        let ranges: Vec<_> = ranges
            .map(|one| format!("{}/{}", one.address_prefix, one.prefix_len.unwrap().value))
            .collect();
        let names = matching.server_names.join(" ");
        format!("{names} {} -> {}", ranges.join(" "), chain.filters[0].name)
            .trim()
            .to_owned()
    }

    fn chain(name: &str, ranges: &[&str], to: &str) -> FilterChain {
        let ranges: Vec<Network> = ranges.iter().map(|one| one.parse().unwrap()).collect();
        let mut matching = Match::any().ranges(&ranges);
        if !name.is_empty() {
            matching = matching.server_name(name);
        }
        matching.chain(Filter {
            name: to.to_owned(),
            ..Filter::default()
        })
    }

    #[test]
    fn a_range_of_one_keeps_nothing_from_others() {
        let of = |chains: Vec<FilterChain>| {
            let (chains, lost) = complete_ranges(chains);
            assert_eq!(lost, 0);
            chains.iter().map(words).collect::<Vec<_>>()
        };
        assert_eq!(
            of(vec![
                chain("a", &["0.0.0.0/1", "10.0.0.0/8"], "x"),
                chain("b", &[], "y"),
                chain("", &[], "z"),
            ]),
            [
                "a 0.0.0.0/1 10.0.0.0/8 -> x",
                "b  -> y",
                "-> z",
                "b 0.0.0.0/1 -> y",
                "0.0.0.0/1 -> z",
                "b 10.0.0.0/8 -> y",
                "10.0.0.0/8 -> z",
            ]
        );
        // What has no other condition is complete, and the narrowest range around another counts.
        assert_eq!(
            of(vec![
                chain("", &["10.0.0.0/8"], "w"),
                chain("a", &["10.1.0.0/16"], "x"),
                chain("", &[], "z"),
            ]),
            [
                "10.0.0.0/8 -> w",
                "a 10.1.0.0/16 -> x",
                "-> z",
                "10.1.0.0/16 -> w"
            ]
        );
        assert_eq!(of(vec![chain("a", &[], "x")]), ["a  -> x"]);
    }

    #[test]
    fn ranges_that_come_to_too_many_chains_are_left_out() {
        let ranges: Vec<_> = (0..100).map(|at| format!("10.{at}.0.0/16")).collect();
        let ranges: Vec<_> = ranges.iter().map(String::as_str).collect();
        let mut chains = vec![chain("a", &ranges, "x")];
        chains.extend((0..100).map(|at| chain(&format!("n{at}"), &[], "y")));
        let (chains, lost) = complete_ranges(chains);
        assert_eq!((chains.len(), lost), (100, 1));
    }
}
