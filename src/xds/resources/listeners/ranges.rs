//! Ranges of destinations. Envoy looks for the narrowest range that has a connection's destination, and for further conditions
//! only there: what is in a range of chains with further conditions, and meets none of these, has no chain. So such a range gets
//! copies of the chains that would have had the rest.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use api::model::{Network, ObjectRef};
use envoy_types::pb::envoy::config::core::v3::CidrRange;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, FilterChainMatch};
use prost::Message;

use crate::common::conflict::{Conflict, TOO_LARGE};
use crate::common::fair_budget::FairBudget;
use crate::common::steps::step;
use crate::common::wire;
use crate::resources::routes::{ROOM, ROOM_OF_RULE};

/// A chain, and the rule that it is made by; `None`: it is a service's or a server's own.
#[derive(Clone, Debug)]
pub(crate) struct OwnedChain {
    pub(crate) chain: FilterChain,
    pub(crate) rule: Option<ObjectRef>,
}

impl OwnedChain {
    pub(crate) fn of(rule: &ObjectRef, chain: FilterChain) -> Self {
        Self {
            chain,
            rule: Some(rule.clone()),
        }
    }
}

impl From<FilterChain> for OwnedChain {
    fn from(chain: FilterChain) -> Self {
        Self { chain, rule: None }
    }
}

/// All chains of a listener, and how many ranges of which rules there was no room for.
#[derive(Debug, Default)]
pub(crate) struct Completed {
    pub(crate) chains: Vec<FilterChain>,
    lost: BTreeMap<ObjectRef, usize>,
}

impl Completed {
    pub(crate) fn conflicts<'a>(&'a self, listener: &'a str) -> impl Iterator<Item = Conflict> {
        self.lost.iter().map(move |(rule, count)| {
            let message = format!(
                "{count} destinationSubnets of {rule} are left out at {listener}: copied into them, the chains for other connections \
                 are larger than what {rule} leaves of {} MiB, or those of all rules than {} MiB and those of its namespace than \
                 their share",
                ROOM_OF_RULE >> 20,
                ROOM >> 20
            );
            Conflict::new(TOO_LARGE, listener, message).because_of(rule)
        })
    }
}

/// Bytes of one range in a chain.
const RANGE: usize = 48;

/// A chain's conditions.
struct Conditions {
    ranges: Vec<Network>,
    /// Server names; the empty one is any.
    names: Vec<String>,
    /// The number of the others: equal ones have one number.
    others: usize,
    /// Bytes of a copy for one range.
    bytes: usize,
}

/// The chains of a listener by their ranges.
struct Ranges<'a> {
    chains: &'a [OwnedChain],
    all: Vec<Conditions>,
    /// Chains of each range, in order.
    by_range: HashMap<Network, Vec<usize>>,
    /// Ranges in the order in which they come.
    order: Vec<Network>,
    /// Ranges that one chain has all connections to.
    whole: HashSet<Network>,
    /// Chains of no range.
    anywhere: Vec<usize>,
    /// Lengths of prefixes that there are, of IPv4 and of IPv6.
    lengths: [BTreeSet<u8>; 2],
}

/// Copies for one range: chains, each with the server names that it is copied for.
type Copies<'a> = Vec<(usize, Vec<&'a str>)>;

fn family(address: IpAddr) -> usize {
    usize::from(address.is_ipv6())
}

impl<'a> Ranges<'a> {
    fn new(chains: &'a [OwnedChain]) -> Self {
        let mut all = Self {
            chains,
            all: Vec::new(),
            by_range: HashMap::new(),
            order: Vec::new(),
            whole: HashSet::new(),
            anywhere: Vec::new(),
            lengths: [BTreeSet::new(), BTreeSet::new()],
        };
        // No other conditions have the number 0.
        let mut numbers = HashMap::from([(Vec::new(), 0)]);
        for (at, owned) in chains.iter().enumerate() {
            let mut others = owned.chain.filter_chain_match.clone().unwrap_or_default();
            let ranges = std::mem::take(&mut others.prefix_ranges);
            let of_ranges: usize = ranges.iter().map(|range| range.encoded_len() + 2).sum();
            let mut names = std::mem::take(&mut others.server_names);
            if names.is_empty() {
                names.push(String::new());
            }
            let number = numbers.len();
            let number = *numbers.entry(others.encode_to_vec()).or_insert(number);
            let is_whole = number == 0 && names.iter().all(String::is_empty);
            let ranges: Vec<_> = ranges.iter().filter_map(network).collect();
            for range in &ranges {
                all.add(at, *range, is_whole);
            }
            if ranges.is_empty() {
                all.anywhere.push(at);
            }
            // A copy has one range in place of all of the chain's.
            let bytes = owned.chain.encoded_len().saturating_sub(of_ranges);
            all.all.push(Conditions {
                ranges,
                names,
                others: number,
                bytes: bytes.saturating_add(RANGE),
            });
        }
        all
    }

    fn add(&mut self, at: usize, range: Network, is_whole: bool) {
        if is_whole {
            self.whole.insert(range);
        }
        let (order, lengths) = (&mut self.order, &mut self.lengths);
        let of_range = self.by_range.entry(range).or_insert_with(|| {
            order.push(range);
            if let Some(lengths) = lengths.get_mut(family(range.first())) {
                lengths.insert(range.prefix());
            }
            Vec::new()
        });
        of_range.push(at);
    }

    fn of_range(&self, range: &Network) -> &[usize] {
        self.by_range.get(range).map_or(&[], Vec::as_slice)
    }

    /// Rules whose chains a range is of, in order.
    fn rules(&self, range: &Network) -> Vec<&'a ObjectRef> {
        let mut known = HashSet::new();
        let of_range = self.of_range(range).iter();
        let rules = of_range.filter_map(|at| self.chains.get(*at)?.rule.as_ref());
        rules.filter(|rule| known.insert(*rule)).collect()
    }

    /// The ranges around one, the narrowest first.
    fn around(&self, inner: &Network) -> impl Iterator<Item = Network> {
        let lengths = self.lengths.get(family(inner.first()));
        let wider = lengths
            .into_iter()
            .flat_map(|lengths| lengths.range(..inner.prefix()).rev());
        let all = wider.filter_map(|length| Network::new(inner.first(), *length));
        all.filter(|outer| step(|| self.by_range.contains_key(outer)))
    }

    /// The copies that a range needs, and their bytes; `None`: these are more than `max`.
    fn copies(&self, range: &Network, max: usize) -> Option<(Copies<'_>, usize)> {
        // A name is copied only where no chain of the range has it: Envoy refuses a name twice.
        let mut taken: HashSet<(usize, &str)> = HashSet::new();
        for own in self
            .of_range(range)
            .iter()
            .filter_map(|at| self.all.get(*at))
        {
            taken.extend(own.names.iter().map(|name| (own.others, &**name)));
        }
        let (mut copies, mut bytes) = (Copies::new(), 0_usize);
        let mut copy = |places: &[usize]| {
            for at in places {
                let Some(one) = self.all.get(*at) else {
                    continue;
                };
                let names = one.names.iter().map(String::as_str);
                let names: Vec<_> = names
                    .filter(|name| step(|| taken.insert((one.others, name))))
                    .collect();
                if names.is_empty() {
                    continue;
                }
                bytes = bytes.saturating_add(one.bytes);
                if bytes > max {
                    return None;
                }
                copies.push((*at, names));
            }
            Some(())
        };
        let mut is_left = true;
        for outer in self.around(range) {
            copy(self.of_range(&outer))?;
            // Envoy looks no further than a range that has all connections.
            if self.whole.contains(&outer) {
                is_left = false;
                break;
            }
        }
        if is_left {
            copy(&self.anywhere)?;
        }
        Some((copies, bytes))
    }

    fn copied(&self, range: &Network, copies: &Copies<'_>) -> Vec<FilterChain> {
        let copied = copies.iter().filter_map(|(at, names)| {
            let chain = &self.chains.get(*at)?.chain;
            let matching = chain.filter_chain_match.as_ref();
            let names = names.iter().filter(|name| !name.is_empty());
            let others = FilterChainMatch {
                prefix_ranges: vec![wire::range(range.first(), range.prefix())],
                server_names: names.map(|name| (*name).to_owned()).collect(),
                ..matching.map_or_else(FilterChainMatch::default, without_ranges)
            };
            Some(FilterChain {
                filter_chain_match: Some(others),
                filters: chain.filters.clone(),
                transport_socket: chain.transport_socket.clone(),
                ..FilterChain::default()
            })
        });
        copied.collect()
    }
}

/// Its conditions but ranges and names, which may be many.
fn without_ranges(matching: &FilterChainMatch) -> FilterChainMatch {
    FilterChainMatch {
        destination_port: matching.destination_port,
        transport_protocol: matching.transport_protocol.clone(),
        application_protocols: matching.application_protocols.clone(),
        source_prefix_ranges: matching.source_prefix_ranges.clone(),
        ..FilterChainMatch::default()
    }
}

/// Adds the copies that ranges of chains with further conditions need. The rules that such a range is of pay for its copies, the
/// first one that has room for them; where none has, their chains are left out there. `chains`: those of older rules first.
pub(crate) fn complete(chains: Vec<OwnedChain>, room: &mut FairBudget) -> Completed {
    let has_ranges = |owned: &OwnedChain| {
        let matching = owned.chain.filter_chain_match.as_ref();
        matching.is_some_and(|matching| !matching.prefix_ranges.is_empty())
    };
    if !chains.iter().any(has_ranges) {
        let chains = chains.into_iter().map(|owned| owned.chain).collect();
        return Completed {
            chains,
            lost: BTreeMap::new(),
        };
    }
    let ranges = Ranges::new(&chains);
    let mut lost: BTreeMap<ObjectRef, usize> = BTreeMap::new();
    let mut left_out: HashSet<Network> = HashSet::new();
    let mut copies = Vec::new();
    let partial = ranges
        .order
        .iter()
        .filter(|range| !ranges.whole.contains(range));
    for range in partial {
        let rules = ranges.rules(range);
        let left = rules.iter().map(|rule| room.of(rule).unwrap_or_default());
        // What services say themselves costs nobody.
        let max = left.max().unwrap_or(usize::MAX);
        if let Some((needed, bytes)) = ranges.copies(range, max) {
            let mut able = rules.iter().filter(|rule| room.of(rule) >= Some(bytes));
            if let Some(rule) = able.next() {
                room.spend(rule, bytes);
            }
            copies.extend(ranges.copied(range, &needed));
            continue;
        }
        left_out.insert(*range);
        for rule in rules {
            // What was looked at in vain counts: it is not looked at for each further range.
            let left = room.of(rule).unwrap_or_default();
            room.spend(rule, left);
            *lost.entry(rule.clone()).or_default() += 1;
        }
    }
    let parsed: Vec<_> = ranges.all.into_iter().map(|one| one.ranges).collect();
    let mut all: Vec<_> = chains
        .into_iter()
        .zip(parsed)
        .filter_map(|(owned, ranges)| without_left_out(owned, &ranges, &left_out))
        .collect();
    all.extend(copies);
    Completed { chains: all, lost }
}

/// A chain without ranges that are left out; `None`: it has no others.
fn without_left_out(
    owned: OwnedChain,
    ranges: &[Network],
    left_out: &HashSet<Network>,
) -> Option<FilterChain> {
    let mut chain = owned.chain;
    if ranges.iter().any(|range| left_out.contains(range)) {
        let matching = chain.filter_chain_match.as_mut()?;
        let is_included =
            |range: &CidrRange| network(range).is_none_or(|one| !left_out.contains(&one));
        matching.prefix_ranges.retain(is_included);
        (!matching.prefix_ranges.is_empty()).then_some(())?;
    }
    Some(chain)
}

fn network(range: &CidrRange) -> Option<Network> {
    let bits = range.prefix_len.map_or(0, |bits| bits.value);
    Network::new(range.address_prefix.parse().ok()?, u8::try_from(bits).ok()?)
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::listener::v3::Filter;

    use super::*;
    use crate::common::steps::steps;
    use crate::resources::listeners::chain::Match;

    fn rule(name: &str) -> ObjectRef {
        let (namespace, name) = name.split_once('/').unwrap();
        ObjectRef {
            kind: "VirtualService",
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// A chain in words: names, ranges, and its filter.
    fn chain_text(chain: &FilterChain) -> String {
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

    /// `to`: the filter, or the rule and the filter.
    fn chain(names: &str, ranges: &[&str], to: &str) -> OwnedChain {
        let (of, to) = to.split_once(": ").unwrap_or(("", to));
        let ranges: Vec<Network> = ranges.iter().map(|one| one.parse().unwrap()).collect();
        let names: Vec<_> = names.split_whitespace().map(str::to_owned).collect();
        let matching = Match::any().ranges(&ranges).server_names(&names);
        let chain = matching.chain(Filter {
            name: to.to_owned(),
            ..Filter::default()
        });
        match of {
            "" => chain.into(),
            of => OwnedChain::of(&rule(of), chain),
        }
    }

    fn whole_room() -> FairBudget {
        FairBudget::new(ROOM, ROOM_OF_RULE, 1)
    }

    fn of(chains: Vec<OwnedChain>) -> Vec<String> {
        let done = complete(chains, &mut whole_room());
        assert_eq!(done.lost.len(), 0);
        done.chains.iter().map(chain_text).collect()
    }

    #[test]
    fn a_range_of_one_keeps_nothing_from_others() {
        assert_eq!(
            of(vec![
                chain("a", &["0.0.0.0/1", "10.0.0.0/8"], "d/r: x"),
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
        assert_eq!(of(vec![chain("a", &[], "x")]), ["a  -> x"]);
        assert_eq!(
            of(vec![chain("a", &["10.0.0.0/8"], "d/r: x")]),
            ["a 10.0.0.0/8 -> x"]
        );
    }

    /// Outside of 10.1.0.0/16 all of 10.0.0.0/8 goes to `w`, whatever its name; so it does in it.
    #[test]
    fn copies_come_from_no_further_than_the_first_range_that_has_all() {
        assert_eq!(
            of(vec![
                chain("", &["10.0.0.0/8"], "w"),
                chain("a", &["10.1.0.0/16"], "d/r: x"),
                chain("b", &[], "y"),
                chain("", &[], "z"),
            ]),
            [
                "10.0.0.0/8 -> w",
                "a 10.1.0.0/16 -> x",
                "b  -> y",
                "-> z",
                "10.1.0.0/16 -> w"
            ]
        );
        // One that has some leaves the rest to those around it.
        assert_eq!(
            of(vec![
                chain("a", &["10.1.0.0/16"], "d/r: x"),
                chain("b", &["10.0.0.0/8"], "d/s: y"),
                chain("b", &[], "z"),
                chain("c", &[], "z"),
            ]),
            [
                "a 10.1.0.0/16 -> x",
                "b 10.0.0.0/8 -> y",
                "b  -> z",
                "c  -> z",
                "b 10.1.0.0/16 -> y",
                "c 10.1.0.0/16 -> z",
                "c 10.0.0.0/8 -> z"
            ]
        );
    }

    /// Envoy refuses a listener that has a name twice in one range.
    #[test]
    fn a_name_is_copied_where_no_chain_has_it() {
        assert_eq!(
            of(vec![
                chain("a b", &["10.1.0.0/16"], "d/r: x"),
                chain("b c", &[], "y"),
            ]),
            ["a b 10.1.0.0/16 -> x", "b c  -> y", "c 10.1.0.0/16 -> y"]
        );
    }

    #[test]
    fn the_rule_of_a_range_alone_pays_for_its_copies() {
        let beside = |count: usize| {
            (0..count).map(|at| chain(&format!("n{at}.evil.example"), &[], "evil/r: y"))
        };
        // A younger tenant's chains take nothing from an older one.
        let mut chains = vec![chain("a", &["10.0.0.0/8"], "shop/old: x")];
        chains.extend(beside(4_097));
        assert_eq!(of(chains).len(), 2 * 4_097 + 1);
        // A tenant's own ranges cost the tenant.
        let ranges: Vec<_> = (0..200).map(|at| format!("10.{at}.0.0/16")).collect();
        let ranges: Vec<_> = ranges.iter().map(String::as_str).collect();
        let mut room = whole_room();
        let mut chains = vec![chain("a", &["11.0.0.0/8"], "shop/old: x")];
        chains.push(chain("e", &ranges, "evil/r: y"));
        chains.extend((0..1000).map(|at| chain(&format!("n{at}.example"), &[], "z")));
        chains.push(chain("b", &["12.0.0.0/8"], "shop/new: x"));
        let done = complete(chains, &mut room);
        assert_eq!(done.lost.keys().collect::<Vec<_>>(), [&rule("evil/r")]);
        let lost = done.lost[&rule("evil/r")];
        assert!((100..200).contains(&lost), "{lost}");
        let found: Vec<_> = done.chains.iter().map(chain_text).collect();
        for range in ["11.0.0.0/8", "12.0.0.0/8"] {
            let all = found.iter().filter(|text| text.contains(range));
            assert_eq!(all.count(), 1001, "{range}");
        }
        // What is left out is left out whole, and the rest of that chain stays.
        let own = done.chains[1].filter_chain_match.as_ref().unwrap();
        assert_eq!(own.prefix_ranges.len(), 200 - lost);
        let conflicts: Vec<_> = done.conflicts("0.0.0.0_443").collect();
        assert_eq!(conflicts.len(), 1);
        assert_eq!(conflicts[0].objects, [rule("evil/r")]);
        assert!(
            conflicts[0].message.starts_with(&format!(
                "{lost} destinationSubnets of VirtualService evil/r are left out at 0.0.0.0_443"
            )),
            "{}",
            conflicts[0].message
        );
    }

    /// One rule's ranges at many listeners of a proxy share its room.
    #[test]
    fn copies_of_all_listeners_of_a_proxy_are_bounded() {
        let mut room = whole_room();
        let mut bytes = 0;
        for _port in 0..60 {
            let ranges: Vec<_> = (0..63).map(|at| format!("10.{at}.0.0/16")).collect();
            let ranges: Vec<_> = ranges.iter().map(String::as_str).collect();
            let mut chains = vec![chain("e", &ranges, "evil/r: y")];
            chains.extend((0..63).map(|at| chain(&format!("n{at}.example"), &[], "z")));
            let done = complete(chains, &mut room);
            let sizes = done.chains.iter().skip(64).map(Message::encoded_len);
            bytes += sizes.sum::<usize>();
        }
        assert!((1 << 20..=ROOM_OF_RULE).contains(&bytes), "{bytes}");
    }

    #[test]
    fn ranges_cost_linear_work() {
        let comparisons = |count: usize, names: usize, nested: bool| {
            let ranges: Vec<_> = (0..count)
                .map(|at| match nested {
                    true => format!("fd00:{:x}::/{}", at / 50, 32 + at % 50),
                    false => format!("10.{}.{}.0/24", at % 256, at / 256),
                })
                .collect();
            let mut chains: Vec<_> = ranges
                .iter()
                .map(|range| chain("a", &[range], "d/r: x"))
                .collect();
            chains.extend((0..names).map(|at| chain(&format!("n{at}"), &[], "d/s: y")));
            steps(|| drop(complete(chains, &mut whole_room())))
        };
        for nested in [false, true] {
            let some = comparisons(500, 0, nested);
            let more = comparisons(1000, 0, nested);
            assert!(more <= 2 * some + 10, "{nested}: {some} {more}");
        }
        // A hostile square ends where the room does.
        let square = comparisons(4_000, 4_000, false);
        assert!(square < 200_000, "{square}");
    }
}
