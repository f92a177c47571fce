//! Which localities a client prefers.

use std::collections::BTreeSet;

use api::istio::networking::v1alpha3::LocalityLoadBalancerSetting;
use api::istio::networking::v1alpha3::locality_load_balancer_setting::{Distribute, Failover};
use api::model::{Locality, Service};

use crate::common::wire::{self, Group};

/// How the groups of an assignment stand to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Preference<'a> {
    /// All alike.
    None,
    /// The near ones first.
    Near(&'a Locality, &'a [Failover]),
    /// By shares that the mesh names.
    Shares(&'a Distribute),
}

/// Whether the mesh's setting counts where no rule takes its place: shares that are written do unless it says otherwise, and
/// nearness where it says so.
pub(crate) fn is_on(of_mesh: &LocalityLoadBalancerSetting) -> bool {
    let enabled = of_mesh.enabled.as_ref();
    enabled.map_or(!of_mesh.distribute.is_empty(), |on| on.value)
}

/// What the mesh says of a service and a client, or a rule of the service in its place: one that is written is on unless it says
/// otherwise.
pub(crate) fn preference<'a>(
    of_mesh: Option<&'a LocalityLoadBalancerSetting>,
    of_rule: Option<&'a LocalityLoadBalancerSetting>,
    service: &Service,
    client: &'a Locality,
) -> Preference<'a> {
    let enabled =
        |setting: &LocalityLoadBalancerSetting| setting.enabled.as_ref().map(|on| on.value);
    let setting = match of_rule {
        Some(setting) if enabled(setting) == Some(false) => return Preference::None,
        Some(setting) => Some(setting),
        None => of_mesh.filter(|setting| is_on(setting)),
    };
    if client.is_unknown() || setting.is_none() && !service.prefers_close {
        return Preference::None;
    }
    let Some(setting) = setting else {
        return Preference::Near(client, &[]);
    };
    let shares = setting
        .distribute
        .iter()
        .find(|distribute| matches(&distribute.from, client));
    // Of the mesh's setting nearness is asked for by `enabled`.
    let prefers_near = of_rule.is_some() || enabled(setting) == Some(true);
    match shares {
        Some(shares) => Preference::Shares(shares),
        None if prefers_near => Preference::Near(client, &setting.failover),
        None if service.prefers_close => Preference::Near(client, &[]),
        None => Preference::None,
    }
}

/// `region/zone/*`, `*`, or a locality with all that is in it.
fn matches(pattern: &str, locality: &Locality) -> bool {
    let parts = [locality.region(), locality.zone(), locality.sub_zone()];
    pattern
        .splitn(3, '/')
        .zip(parts)
        .all(|(pattern, part)| pattern == "*" || pattern == part)
}

impl Preference<'_> {
    pub(crate) const fn is_weighted(&self) -> bool {
        matches!(self, Self::Shares(_))
    }

    pub(crate) fn apply(&self, groups: Vec<(&Locality, Group)>) -> Vec<Group> {
        match self {
            Self::None => groups.into_iter().map(|(_, group)| group).collect(),
            Self::Near(client, failover) => near(client, failover, groups),
            Self::Shares(shares) => share(shares, groups),
        }
    }
}

/// How far an endpoint is: 0 is the same place.
fn distance(client: &Locality, failover: &[Failover], other: &Locality) -> u32 {
    if client.region() != other.region() {
        let mut rules = failover
            .iter()
            .filter(|failover| failover.from == client.region())
            .peekable();
        if rules.peek().is_none() {
            return 3;
        }
        return if rules.any(|failover| failover.to == other.region()) {
            3
        } else {
            4
        };
    }
    if client.zone() != other.zone() {
        return 2;
    }
    u32::from(client.sub_zone() != other.sub_zone())
}

/// Levels without a gap: Envoy wants them so.
fn near(client: &Locality, failover: &[Failover], groups: Vec<(&Locality, Group)>) -> Vec<Group> {
    let far = |locality: &Locality| distance(client, failover, locality);
    let levels: BTreeSet<u32> = groups.iter().map(|(locality, _)| far(locality)).collect();
    groups
        .into_iter()
        .map(|(locality, group)| {
            let below = levels.range(..far(locality)).count();
            Group {
                priority: u32::try_from(below).unwrap_or(0),
                ..group
            }
        })
        .collect()
}

/// Parts of one percent that are told apart.
const FINE: u128 = 1_000_000;

/// The share of a pattern goes to the groups that it names, by their own weights. A group counts for the first that names it,
/// the longest first.
fn share(shares: &Distribute, groups: Vec<(&Locality, Group)>) -> Vec<Group> {
    let mut patterns: Vec<_> = shares.to.iter().collect();
    patterns.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
    let named = |locality: &Locality| {
        patterns
            .iter()
            .position(|(pattern, _)| matches(pattern, locality))
    };
    let own = |group: &Group| {
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
            let at = named(locality)?;
            let (_, percent) = patterns.get(at)?;
            let sum = sums.get(at).copied().unwrap_or(0).max(1);
            let weight = u128::from(**percent) * scale * own(&group) / sum;
            Some(Group {
                load_balancing_weight: wire::number(u32::try_from(weight.max(1)).unwrap_or(1)),
                ..group
            })
        })
        .collect()
}
