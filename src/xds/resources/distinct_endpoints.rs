//! Groups of endpoints for programs with gRPC in them: they refuse an assignment that has an address twice, be it in two
//! localities, and one whose levels have a gap.

use std::collections::{BTreeSet, HashMap, HashSet};

use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::google::protobuf::UInt32Value;

use crate::common::wire::{self, LbEndpoint, LocalityLbEndpoints};

/// An address, and its port.
type AddressAndPort = (String, u32);

/// The indices of a group, and of an endpoint in it.
type Position = (usize, usize);

/// Parts of one share that endpoints are given, if there is room for so many.
const FINE: u64 = 10_000;

/// The sum of all weights where they are shares: both Envoy and gRPC add up in 32 bits, and each endpoint may be rounded up to 1.
const MAX_TOTAL_WEIGHT: u64 = 1 << 31;

/// Keeps each address once: in the first level that has it, where it has the weights of its repeats in that level.
pub(super) fn distinct(mut groups: Vec<LocalityLbEndpoints>) -> Vec<LocalityLbEndpoints> {
    groups.sort_by_key(|group| group.priority);
    if has_repeats(&groups) {
        bring_to_one_unit(&mut groups);
    }
    let mut known: HashMap<AddressAndPort, Position> = HashMap::new();
    let mut all: Vec<LocalityLbEndpoints> = Vec::new();
    for mut group in groups {
        let endpoints = std::mem::take(&mut group.lb_endpoints);
        let at = all.len();
        all.push(group);
        for endpoint in endpoints {
            let first = socket(&endpoint).and_then(|socket| match known.get(&socket) {
                Some(first) => Some(*first),
                None => {
                    let next = all.get(at).map_or(0, |group| group.lb_endpoints.len());
                    known.insert(socket, (at, next));
                    None
                }
            });
            match (first, all.get_mut(at)) {
                (None, Some(group)) => group.lb_endpoints.push(endpoint),
                (Some(first), _) => unite(&mut all, first, at, &endpoint),
                (None, None) => {}
            }
        }
    }
    all.retain(|group| !group.lb_endpoints.is_empty());
    let levels: BTreeSet<u32> = all.iter().map(|group| group.priority).collect();
    for group in &mut all {
        let below = levels.range(..group.priority).count();
        group.priority = u32::try_from(below).unwrap_or(0);
    }
    all
}

fn has_repeats(groups: &[LocalityLbEndpoints]) -> bool {
    let mut known = HashSet::new();
    let all = groups.iter().flat_map(|group| &group.lb_endpoints);
    let mut sockets = all.filter_map(socket);
    sockets.any(|socket| !known.insert(socket))
}

/// Weights of groups may be shares, and those of endpoints say how a group's share is divided: they are made parts of it, so that
/// those of two groups can be added up.
fn bring_to_one_unit(groups: &mut [LocalityLbEndpoints]) {
    let of_group = |group: &LocalityLbEndpoints| u64::from(number(group.load_balancing_weight));
    let of_endpoints = |group: &LocalityLbEndpoints| -> u64 {
        let weights = group.lb_endpoints.iter();
        weights
            .map(|one| u64::from(number(one.load_balancing_weight)))
            .sum()
    };
    if groups
        .iter()
        .all(|group| of_group(group) == of_endpoints(group))
    {
        return;
    }
    let all: u64 = groups.iter().map(of_group).sum();
    let fine = (MAX_TOTAL_WEIGHT / all.max(1)).clamp(1, FINE);
    for group in groups {
        let share = of_group(group).saturating_mul(fine);
        let sum = of_endpoints(group).max(1);
        for endpoint in &mut group.lb_endpoints {
            let part = u64::from(number(endpoint.load_balancing_weight)).saturating_mul(share);
            endpoint.load_balancing_weight = light(part / sum);
        }
        group.load_balancing_weight = light(share);
    }
}

/// Envoy refuses a weight of 0.
fn light(weight: u64) -> Option<UInt32Value> {
    wire::number(u32::try_from(weight.max(1)).unwrap_or(u32::MAX))
}

/// Adds the weight of a repeat to the first one of its address, and to the group of that. `at`: the group of the repeat.
fn unite(
    all: &mut [LocalityLbEndpoints],
    (group, endpoint): Position,
    at: usize,
    repeat: &LbEndpoint,
) {
    let level = all.get(at).map(|group| group.priority);
    let weight = number(repeat.load_balancing_weight);
    if let Some(of_repeat) = all.get_mut(at) {
        let less = number(of_repeat.load_balancing_weight).saturating_sub(weight);
        of_repeat.load_balancing_weight = wire::number(less.max(1));
    }
    // It is called for its own level alone.
    let Some(group) = all
        .get_mut(group)
        .filter(|group| Some(group.priority) == level)
    else {
        return;
    };
    let more = number(group.load_balancing_weight).saturating_add(weight);
    group.load_balancing_weight = wire::number(more);
    if let Some(first) = group.lb_endpoints.get_mut(endpoint) {
        let more = number(first.load_balancing_weight).saturating_add(weight);
        first.load_balancing_weight = wire::number(more);
    }
}

fn number(weight: Option<UInt32Value>) -> u32 {
    weight.map_or(0, |weight| weight.value)
}

fn socket(endpoint: &LbEndpoint) -> Option<AddressAndPort> {
    let address = endpoint.endpoint.as_ref()?.address.as_ref()?;
    let Address::SocketAddress(socket) = address.address.as_ref()? else {
        return None;
    };
    match socket.port_specifier.as_ref()? {
        PortSpecifier::PortValue(port) => Some((socket.address.clone(), *port)),
        PortSpecifier::NamedPort(_) => None,
    }
}
