//! Merges several sources' versions of one service: precedence, sums, and reports of the parts left out.

mod together;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::{ClusterId, Endpoint, EndpointShards, Registry, Service, ServiceKey};

use super::entries::UsedEntry;
use super::precedence::class;
use super::report::Report;
use super::service_entry::KIND;
use super::{ObjectKey, Settings, Sources};
use crate::contribution::SourceId;

/// The precedence of a candidate: the smaller comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a> {
    /// By the order of the registries.
    class: usize,
    remote: bool,
    cluster: &'a ClusterId,
    source: Registry,
    /// Creation time and name: the order of two entries of one source.
    entry: Option<(Option<i64>, &'a ObjectKey)>,
}

/// A source's version of the service.
struct ServiceCandidate<'a> {
    rank: Rank<'a>,
    service: &'a Arc<Service>,
    source: &'a SourceId,
    made: Option<&'a UsedEntry>,
}

impl ServiceCandidate<'_> {
    /// Returns true for services of Kubernetes, which all clusters share. An object in memory stands alone.
    fn is_shared(&self) -> bool {
        self.service.registry == Registry::Kubernetes && self.source.registry != Registry::Memory
    }

    /// Entries of one source with one name are one service.
    fn is_written_with(&self, other: &Self) -> bool {
        self.made.is_some() && other.made.is_some() && self.source == other.source
    }

    fn report(&self, winner: &Self) -> Report {
        let place = match winner.made {
            Some(used) => format!("{KIND} {}/{}", used.entry.namespace, used.entry.name),
            None => winner.source.to_string(),
        };
        let (kind, name) = match self.made {
            Some(used) => (KIND, used.entry.name.clone()),
            None => ("Service", self.service.key.hostname.clone()),
        };
        Report {
            source: self.source.clone(),
            kind,
            namespace: self.service.key.namespace.clone(),
            name,
            message: format!("{} is not used: {place} has it", self.service.key.hostname),
            whole: true,
        }
    }
}

/// A service as all sources together have it.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) service: Option<Arc<Service>>,
    pub(super) shards: Option<Arc<EndpointShards>>,
    pub(super) left_out: Vec<Report>,
}

pub(super) fn merge<'a>(
    settings: &'a Settings,
    sources: &'a Sources,
    entries: impl Iterator<Item = &'a UsedEntry>,
    key: &ServiceKey,
) -> Merged {
    let candidates = candidates(settings, sources, entries, key);
    let Some((winner, others)) = candidates.split_first() else {
        return Merged::default();
    };
    let shared = winner.is_shared();
    let (allies, losers): (Vec<_>, Vec<_>) = others
        .iter()
        .partition(|other| shared && other.is_shared() || winner.is_written_with(other));
    let mut left_out: Vec<_> = losers.iter().map(|loser| loser.report(winner)).collect();
    let shards = match winner.made {
        Some(used) if allies.is_empty() => used.shards.clone(),
        Some(_) => {
            left_out.extend(
                allies
                    .iter()
                    .flat_map(|ally| together::differences(winner, ally)),
            );
            Arc::new(together::shards(winner, &allies))
        }
        None if shared => Arc::new(of_all(sources, &losers, key)),
        None => Arc::new(of_one(sources, winner.source, key)),
    };
    let service = match winner.made {
        Some(_) => together::service(winner, &allies),
        None => joined(winner, &allies),
    };
    Merged {
        service: Some(service),
        shards: Some(shards).filter(|shards| !shards.is_empty()),
        left_out,
    }
}

/// Returns all versions of a service, the one that is served first.
fn candidates<'a>(
    settings: &'a Settings,
    sources: &'a Sources,
    entries: impl Iterator<Item = &'a UsedEntry>,
    key: &ServiceKey,
) -> Vec<ServiceCandidate<'a>> {
    let of_sources = sources.iter().filter_map(|(id, source)| {
        let service = source.contribution.services.get(key)?;
        // Services in memory are written as those of Kubernetes: only their source tells them apart.
        let class = match id.registry {
            Registry::Memory => class(settings, Registry::Memory),
            Registry::Kubernetes | Registry::Consul | Registry::External => {
                class(settings, service.registry)
            }
        };
        Some(candidate(settings, class, id, service, None))
    });
    let of_entries = entries.filter_map(|used| {
        let service = used.services.iter().find(|service| service.key == *key)?;
        let class = class(settings, Registry::External);
        let source = &used.source;
        Some(candidate(settings, class, source, service, Some(used)))
    });
    let mut candidates: Vec<_> = of_sources.chain(of_entries).collect();
    candidates.sort_by_key(|candidate| candidate.rank);
    candidates
}

fn candidate<'a>(
    settings: &Settings,
    class: usize,
    source: &'a SourceId,
    service: &'a Arc<Service>,
    used_entry: Option<&'a UsedEntry>,
) -> ServiceCandidate<'a> {
    ServiceCandidate {
        rank: Rank {
            class,
            remote: source.cluster != settings.cluster,
            cluster: &source.cluster,
            source: source.registry,
            entry: used_entry.map(|used| (used.entry.created, &used.key)),
        },
        service,
        source,
        made: used_entry,
    }
}

/// The first one's attributes, and all clusters' addresses.
fn joined(winner: &ServiceCandidate<'_>, allies: &[&ServiceCandidate<'_>]) -> Arc<Service> {
    let mut service = winner.service.clone();
    for ally in allies {
        for (cluster, addresses) in &ally.service.addresses {
            if !service.addresses.contains_key(cluster) {
                let one = Arc::make_mut(&mut service);
                one.addresses.insert(cluster.clone(), addresses.clone());
            }
        }
        for (cluster, balancers) in &ally.service.balancers {
            if !service.balancers.contains_key(cluster) {
                let one = Arc::make_mut(&mut service);
                one.balancers.insert(cluster.clone(), balancers.clone());
            }
        }
    }
    service
}

fn of_one(sources: &Sources, source: &SourceId, key: &ServiceKey) -> EndpointShards {
    let shard = sources
        .get(source)
        .and_then(|known| known.contribution.endpoints.get(key))
        .filter(|shard| !shard.is_empty());
    shard
        .map(|shard| (source.cluster.clone(), shard.clone()))
        .into_iter()
        .collect()
}

/// Returns the endpoints of every cluster except those in which the name stands for another service. A cluster may have
/// endpoints of a service that only another cluster describes.
fn of_all(sources: &Sources, losers: &[&ServiceCandidate<'_>], key: &ServiceKey) -> EndpointShards {
    let mut all: BTreeMap<ClusterId, Arc<[Endpoint]>> = BTreeMap::new();
    for (id, source) in sources {
        let is_cluster = matches!(id.registry, Registry::Kubernetes | Registry::External);
        let is_other = losers
            .iter()
            .any(|loser| loser.made.is_none() && loser.source == id);
        if !is_cluster || is_other {
            continue;
        }
        let Some(shard) = source.contribution.endpoints.get(key) else {
            continue;
        };
        if shard.is_empty() {
            continue;
        }
        let both = match all.get(&id.cluster) {
            None => shard.clone(),
            Some(first) => {
                let mut both: Vec<_> = first.iter().chain(shard.iter()).cloned().collect();
                both.sort_unstable();
                both.dedup();
                both.into()
            }
        };
        all.insert(id.cluster.clone(), both);
    }
    all
}
