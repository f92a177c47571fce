//! The localities that a client prefers.

use std::collections::BTreeSet;

use api::config::discovery_notes::MAX_FAILOVER_LABELS;
use api::istio::networking::v1alpha3::locality_load_balancer_setting::Distribute;
use api::istio::networking::v1alpha3::{LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting};
use api::model::{ClusterId, Endpoint, Labels, Locality, Service};
use api::well_known::NETWORK;

use crate::common::wire::{self, LocalityLbEndpoints};

/// Labels that derive from a workload's locality.
const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";
const SUB_ZONE: &str = "topology.istio.io/subzone";
const CLUSTER: &str = "topology.istio.io/cluster";

pub(crate) const TOPOLOGY_LABELS: [&str; 5] = [REGION, ZONE, SUB_ZONE, CLUSTER, NETWORK];

/// The preference of a client among the groups of an assignment.
#[derive(Clone, Debug)]
pub(crate) enum Preference<'a> {
    /// All alike.
    None,
    /// Endpoints with some labels before others, and of those the near ones.
    Levels(Levels<'a>),
    /// By shares that the mesh names.
    Shares(&'a Distribute),
}

/// The order in which endpoints are preferred.
#[derive(Clone, Debug)]
pub(crate) struct Levels<'a> {
    labels: Option<Ranking<'a>>,
    near: Option<Nearness<'a>>,
}

/// By the labels that an endpoint has in common with a client: the more of the first ones the better.
#[derive(Clone, Copy, Debug)]
struct Ranking<'a> {
    /// `NAME`, or `NAME=VALUE` in place of the client's own value.
    written: &'a [String],
    client: &'a Labels,
}

/// By places.
#[derive(Clone, Debug)]
struct Nearness<'a> {
    client: &'a Locality,
    /// Regions, and which others take over from them.
    failover: Vec<(&'a str, &'a str)>,
    /// Envoy balances zones itself, so that regions alone are told apart.
    regions: bool,
}

/// A client, as far as it matters which endpoints are near to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientLocality<'a> {
    pub(crate) locality: &'a Locality,
    /// The client's labels that settings name.
    pub(crate) labels: &'a Labels,
}

/// Settings of rules for a service, in place of the mesh's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LocalityOverride<'a> {
    pub(crate) locality: Option<&'a LocalityLoadBalancerSetting>,
    /// In place of that.
    pub(crate) zones: Option<&'a ZoneAwareLoadBalancerSetting>,
}

/// Returns true if the mesh's setting counts where no rule takes its place: shares that are written do unless it says otherwise,
/// and nearness where it says so.
pub(crate) fn is_on(of_mesh: &LocalityLoadBalancerSetting) -> bool {
    let enabled = of_mesh.enabled.as_ref();
    enabled.map_or(!of_mesh.distribute.is_empty(), |on| on.value)
}

/// The preference of a client, by the mesh's setting or by a rule of the service in its place: a rule's setting is on unless it
/// says otherwise.
pub(crate) fn preference<'a>(
    of_mesh: Option<&'a LocalityLoadBalancerSetting>,
    of_rule: LocalityOverride<'a>,
    service: &Service,
    client: ClientLocality<'a>,
) -> Preference<'a> {
    if let Some(zones) = of_rule.zones {
        return of_zones(zones, client);
    }
    let enabled =
        |setting: &LocalityLoadBalancerSetting| setting.enabled.as_ref().map(|on| on.value);
    let setting = match of_rule.locality {
        Some(setting) if enabled(setting) == Some(false) => return Preference::None,
        Some(setting) => Some(setting),
        None => of_mesh.filter(|setting| is_on(setting)),
    };
    if setting.is_none() && !service.prefers_close {
        return Preference::None;
    }
    let is_known = !client.locality.is_unknown();
    let mut distribute = setting.map(|setting| setting.distribute.iter());
    let shares = distribute.as_mut().filter(|_| is_known);
    let shares = shares.and_then(|all| all.find(|one| matches(&one.from, client.locality)));
    if let Some(shares) = shares {
        return Preference::Shares(shares);
    }
    // Of the mesh's setting nearness is asked for by `enabled`.
    let is_near = |setting: &&LocalityLoadBalancerSetting| {
        of_rule.locality.is_some() || enabled(setting) == Some(true)
    };
    let setting = setting.filter(is_near);
    if setting.is_none() && !service.prefers_close {
        return Preference::None;
    }
    let labels = setting.map_or(&[][..], |setting| &setting.failover_priority);
    let failover = setting.map_or(&[][..], |setting| &setting.failover);
    let failover = failover.iter();
    let failover = failover.map(|one| (one.from.as_str(), one.to.as_str()));
    levels(client, labels, failover.collect(), false)
}

fn of_zones<'a>(
    zones: &'a ZoneAwareLoadBalancerSetting,
    client: ClientLocality<'a>,
) -> Preference<'a> {
    if zones.enabled.as_ref().is_some_and(|on| !on.value) {
        return Preference::None;
    }
    let failover = zones.failover.iter();
    let failover = failover.map(|one| (one.from.as_str(), one.to.as_str()));
    levels(client, &zones.failover_priority, failover.collect(), true)
}

/// Labels alone where nothing says more: then places count as far as they are labels.
fn levels<'a>(
    client: ClientLocality<'a>,
    written: &'a [String],
    failover: Vec<(&'a str, &'a str)>,
    regions: bool,
) -> Preference<'a> {
    let labels = (!written.is_empty()).then_some(Ranking {
        written,
        client: client.labels,
    });
    let by_place = labels.is_none() || regions || !failover.is_empty();
    let near = (by_place && !client.locality.is_unknown()).then_some(Nearness {
        client: client.locality,
        failover,
        regions,
    });
    match (&labels, &near) {
        (None, None) => Preference::None,
        _ => Preference::Levels(Levels { labels, near }),
    }
}

/// The name of a label that a setting lists; `None`: it says itself which value counts.
pub(crate) fn named_label(written: &str) -> Option<&str> {
    (!written.contains('=')).then_some(written)
}

/// Place of an endpoint, or of a gateway that stands for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndpointTopology<'a> {
    pub(crate) cluster: Option<&'a ClusterId>,
    pub(crate) network: &'a str,
    pub(crate) locality: &'a Locality,
    pub(crate) labels: Option<&'a Labels>,
}

impl<'a> EndpointTopology<'a> {
    pub(crate) fn of(cluster: &'a ClusterId, network: &'a str, endpoint: &'a Endpoint) -> Self {
        Self {
            cluster: Some(cluster),
            network,
            locality: &endpoint.locality,
            labels: Some(&endpoint.labels),
        }
    }

    /// Empty: it has no such label.
    pub(crate) fn label(&self, name: &str) -> &'a str {
        let value = match name {
            REGION => self.locality.region(),
            ZONE => self.locality.zone(),
            SUB_ZONE => self.locality.sub_zone(),
            CLUSTER => self.cluster.map_or("", |cluster| cluster.as_str()),
            NETWORK => self.network,
            _ => "",
        };
        if !value.is_empty() {
            return value;
        }
        let own = self.labels.and_then(|labels| labels.get(name));
        own.map_or("", |value| value)
    }
}

impl Ranking<'_> {
    /// 0: it has all labels in common with the client.
    fn rank(&self, topology: &EndpointTopology<'_>) -> u32 {
        let written = self.written.iter().take(MAX_FAILOVER_LABELS);
        let count = u32::try_from(written.len()).unwrap_or(u32::MAX);
        // Another network is further than anything in the own one, and has an order of its own.
        let mut behind = 0;
        for (label, left) in written.zip((1..=count).rev()) {
            let (name, wanted) = match label.split_once('=') {
                Some((name, value)) => (name, value),
                None => (&**label, self.client.get(&**label).map_or("", |own| own)),
            };
            if topology.label(name) == wanted {
                continue;
            }
            if name == NETWORK && left == count {
                behind = count;
                continue;
            }
            return behind + left;
        }
        behind
    }
}

impl Nearness<'_> {
    /// The distance of an endpoint: 0 is the same place.
    fn distance(&self, other: &Locality) -> u32 {
        if self.client.region() != other.region() {
            let mut rules = self.failover.iter();
            let mut rules = rules
                .by_ref()
                .filter(|(from, _)| *from == self.client.region())
                .peekable();
            if rules.peek().is_none() {
                return FAR;
            }
            return match rules.any(|(_, to)| *to == other.region()) {
                true => FAR,
                false => FAR + 1,
            };
        }
        if self.regions {
            return 0;
        }
        if self.client.zone() != other.zone() {
            return 2;
        }
        u32::from(self.client.sub_zone() != other.sub_zone())
    }
}

/// Another region.
const FAR: u32 = 3;
/// Distances that there are.
const DISTANCES: u32 = FAR + 2;
/// Envoy takes no further level (endpoint_components.proto).
const LAST_LEVEL: usize = 128;

/// `region/zone/*`, `*`, or a locality with all that is in it.
fn matches(pattern: &str, locality: &Locality) -> bool {
    let parts = [locality.region(), locality.zone(), locality.sub_zone()];
    pattern
        .splitn(3, '/')
        .zip(parts)
        .all(|(pattern, part)| pattern == "*" || pattern == part)
}

impl<'a> Preference<'a> {
    pub(crate) const fn is_weighted(&self) -> bool {
        matches!(self, Self::Shares(_))
    }

    /// Returns true if labels of the client count.
    pub(crate) const fn is_by_labels(&self) -> bool {
        matches!(
            self,
            Self::Levels(Levels {
                labels: Some(_),
                ..
            })
        )
    }

    /// The rank of an endpoint by the labels that it has in common with the client: 0 comes first.
    pub(crate) fn rank(&self, topology: &EndpointTopology<'_>) -> u32 {
        match self {
            Self::Levels(levels) => levels.labels.map_or(0, |labels| labels.rank(topology)),
            Self::None | Self::Shares(_) => 0,
        }
    }

    /// Groups with their localities and ranks.
    pub(crate) fn apply(
        &self,
        groups: Vec<((&'a Locality, u32), LocalityLbEndpoints)>,
    ) -> Vec<LocalityLbEndpoints> {
        match self {
            Self::None => groups.into_iter().map(|(_, group)| group).collect(),
            Self::Levels(levels) => levels.apply(groups),
            Self::Shares(shares) => {
                let groups = groups.into_iter();
                let groups = groups.map(|((locality, _), group)| (locality, group));
                share(shares, groups.collect())
            }
        }
    }
}

impl Levels<'_> {
    /// Levels without a gap: Envoy wants them so.
    fn apply(
        &self,
        groups: Vec<((&Locality, u32), LocalityLbEndpoints)>,
    ) -> Vec<LocalityLbEndpoints> {
        let far = |(locality, rank): (&Locality, u32)| {
            let near = self.near.as_ref();
            // A rank outweighs all distances: `DISTANCES` is more than the largest.
            rank * DISTANCES + near.map_or(0, |near| near.distance(locality))
        };
        let levels: BTreeSet<u32> = groups.iter().map(|(place, _)| far(*place)).collect();
        groups
            .into_iter()
            .map(|(place, group)| {
                let below = levels.range(..far(place)).count().min(LAST_LEVEL);
                LocalityLbEndpoints {
                    priority: u32::try_from(below).unwrap_or(0),
                    ..group
                }
            })
            .collect()
    }
}

/// Parts of one percent that are told apart.
const FINE: u128 = 1_000_000;

/// The share of a pattern goes to the groups that it names, by their own weights. A group counts for the first that names it,
/// the longest first.
fn share(
    shares: &Distribute,
    groups: Vec<(&Locality, LocalityLbEndpoints)>,
) -> Vec<LocalityLbEndpoints> {
    let mut patterns: Vec<_> = shares.to.iter().collect();
    patterns.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
    let named = |locality: &Locality| {
        patterns
            .iter()
            .position(|(pattern, _)| matches(pattern, locality))
    };
    let own = |group: &LocalityLbEndpoints| {
        let weight = group.load_balancing_weight.as_ref();
        weight.map_or(0, |weight| u128::from(weight.value))
    };
    let mut sums = vec![0u128; patterns.len()];
    for (locality, group) in &groups {
        if let Some(sum) = named(locality).and_then(|at| sums.get_mut(at)) {
            *sum += own(group);
        }
    }
    // Percentages as they are, where that comes out even.
    let even = groups.iter().all(|(locality, group)| {
        let share = named(locality).and_then(|at| Some((patterns.get(at)?, sums.get(at)?)));
        share.is_none_or(|((_, percent), sum)| {
            u128::from(**percent) * own(group) % (*sum).max(1) == 0
        })
    });
    let scale: u128 = if even { 1 } else { FINE };
    groups
        .into_iter()
        .filter_map(|(locality, group)| {
            // A group that no pattern names is left out (discovery.md §10.2).
            let at = named(locality)?;
            let (_, percent) = patterns.get(at)?;
            let sum = sums.get(at).copied().unwrap_or(0).max(1);
            let weight = u128::from(**percent) * scale * own(&group) / sum;
            Some(LocalityLbEndpoints {
                // Envoy refuses a weight of 0.
                load_balancing_weight: wire::number(u32::try_from(weight.max(1)).unwrap_or(1)),
                ..group
            })
        })
        .collect()
}
