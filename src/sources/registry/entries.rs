//! The effective ServiceEntries, with the services made of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::{
    Configured, EndpointShards, Labels, Service, ServiceKey, Workload, WorkloadKey, World, selects,
};
use api::networking::{ServiceEntry, WorkloadEntry};
use api::size;

use super::differ::differ_all;
use super::precedence::first;
use super::report::Report;
use super::service_entry::{self, Backend};
use super::{ObjectKey, Settings, Sources};
use crate::contribution::{Contribution, SourceId};

/// An effective ServiceEntry.
#[derive(Debug)]
pub(super) struct Used {
    pub(super) key: ObjectKey,
    pub(super) source: SourceId,
    pub(super) entry: Arc<Configured<ServiceEntry>>,
    pub(super) services: Vec<Arc<Service>>,
    /// The endpoints, which all its services share.
    pub(super) shards: Arc<EndpointShards>,
    /// Reports about parts of the entry, or of the workloads it selects, that are not used as written.
    pub(super) notes: Vec<Report>,
    selector: Option<Labels>,
}

#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) used: BTreeMap<ObjectKey, Used>,
    by_service: BTreeMap<ServiceKey, BTreeSet<ObjectKey>>,
    /// Entries with a workload selector, by namespace.
    selecting: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl Entries {
    /// Iterates over the entries that declare a service.
    pub(super) fn of(&self, key: &ServiceKey) -> impl Iterator<Item = &Used> {
        let keys = self.by_service.get(key).into_iter().flatten();
        keys.filter_map(|key| self.used.get(key))
    }

    /// Replaces an entry. Adds the services of the old and of the new one.
    pub(super) fn set(
        &mut self,
        key: &ObjectKey,
        used: Option<Used>,
        touched: &mut BTreeSet<ServiceKey>,
    ) {
        if let Some(old) = self.used.remove(key) {
            for service in old.services {
                remove_from_index(&mut self.by_service, &service.key, key);
                touched.insert(service.key.clone());
            }
            remove_from_index(&mut self.selecting, &key.0, key);
        }
        let Some(used) = used else {
            return;
        };
        for service in &used.services {
            let of = self.by_service.entry(service.key.clone()).or_default();
            of.insert(key.clone());
            touched.insert(service.key.clone());
        }
        if used.selector.is_some() {
            let near = self.selecting.entry(key.0.clone()).or_default();
            near.insert(key.clone());
        }
        self.used.insert(key.clone(), used);
    }

    /// Returns the entries that select a workload which this source has changed.
    pub(super) fn selecting(
        &self,
        sources: &Sources,
        old: &Contribution,
        new: &Contribution,
    ) -> BTreeSet<ObjectKey> {
        let mut found = BTreeSet::new();
        if self.selecting.is_empty() {
            return found;
        }
        // A workload that this source hides, or no longer hides, may have other labels.
        let all = || {
            let others = sources.values().map(|source| &source.contribution);
            others.chain([old, new])
        };
        for key in differ_all(&old.workloads, &new.workloads) {
            for pod in all().filter_map(|one| one.workloads.get(&key)) {
                self.select(&key.namespace, &pod.labels, &mut found);
            }
        }
        let was = &old.configuration.workload_entries;
        let is = &new.configuration.workload_entries;
        for key in differ_all(was, is) {
            for place in all().filter_map(|one| one.configuration.workload_entries.get(&key)) {
                let labels = service_entry::labels(&place.spec.labels);
                self.select(&key.0, &labels, &mut found);
            }
        }
        found
    }

    fn select(&self, namespace: &str, labels: &Labels, found: &mut BTreeSet<ObjectKey>) {
        for key in self.selecting.get(namespace).into_iter().flatten() {
            let wanted = self.used.get(key).and_then(|used| used.selector.as_ref());
            if wanted.is_some_and(|wanted| selects(wanted, labels)) {
                found.insert(key.clone());
            }
        }
    }
}

/// Removes a key, and the set if it becomes empty.
fn remove_from_index<K: Ord>(map: &mut BTreeMap<K, BTreeSet<ObjectKey>>, of: &K, key: &ObjectKey) {
    let is_empty = map.get_mut(of).is_some_and(|keys| {
        keys.remove(key);
        keys.is_empty()
    });
    if is_empty {
        map.remove(of);
    }
}

/// Converts an entry; `None` if no source has it.
pub(super) fn used(
    settings: &Settings,
    sources: &Sources,
    world: &World,
    trust_domain: &str,
    key: &ObjectKey,
) -> Option<Used> {
    let (source, entry) = first(settings, sources, |contribution| {
        contribution.configuration.service_entries.get(key)
    })?;
    let selector = service_entry::selector(&entry.spec);
    let (namespace, _) = key;
    let selected = match &selector {
        Some(selector) => {
            let mut places = places(settings, sources, namespace);
            places
                .retain(|(_, place)| selects(selector, &service_entry::labels(&place.spec.labels)));
            places
        }
        None => Vec::new(),
    };
    let mut notes = notes(settings, source, entry, &selected);
    let backends = selector.iter().flat_map(|selector| {
        let places = selected.iter();
        let places = places.map(|(source, place)| Backend::Entry(&source.cluster, place));
        let pods = pods(sources, world, namespace)
            .filter(|pod| selects(selector, &pod.labels))
            .map(Backend::Pod);
        places.chain(pods)
    });
    let mut backends: Vec<_> = backends.collect();
    let mut room = size::places(entry.spec.hosts.len(), entry.spec.ports.len());
    let fits = |backend: &&Backend<'_>| {
        let left = room.checked_sub(backend.places());
        room = left.unwrap_or_default();
        left.is_some()
    };
    let most = backends.iter().take_while(fits).count();
    if backends.len() > most {
        notes.push(Report {
            source: source.clone(),
            kind: "ServiceEntry",
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            message: format!(
                "selects {} workloads, and the first {most} are used: more than {} places with its hosts and ports: split the entry",
                backends.len(),
                size::SERVICE_PLACES
            ),
            whole: false,
        });
        backends.truncate(most);
    }
    let backends = backends.into_iter();
    let shards = service_entry::shards(entry, &source.cluster, trust_domain, backends);
    let services = service_entry::services(entry, &source.cluster);
    Some(Used {
        key: key.clone(),
        source: source.clone(),
        entry: entry.clone(),
        services: services.into_iter().map(Arc::new).collect(),
        shards: Arc::new(shards),
        notes,
        selector,
    })
}

/// Reports the parts of an entry, or of the workloads it selects, that are not used as written.
fn notes(
    settings: &Settings,
    source: &SourceId,
    entry: &Configured<ServiceEntry>,
    selected: &[(&SourceId, &Configured<WorkloadEntry>)],
) -> Vec<Report> {
    let unresolved = selected.iter().filter_map(|(source, place)| {
        let name = service_entry::unresolved(entry, &place.spec)?;
        Some(Report {
            source: (*source).clone(),
            kind: "WorkloadEntry",
            namespace: place.namespace.clone(),
            name: place.name.clone(),
            message: format!(
                "not used by ServiceEntry {}/{}, whose resolution is STATIC: {name} is a name",
                entry.namespace, entry.name
            ),
            whole: false,
        })
    });
    let left_to_tls = service_entry::left_to_tls(entry).filter(|_| settings.block_http_on_443);
    let left_to_tls = left_to_tls.map(|message| Report {
        source: source.clone(),
        kind: "ServiceEntry",
        namespace: entry.namespace.clone(),
        name: entry.name.clone(),
        message,
        whole: false,
    });
    unresolved.chain(left_to_tls).collect()
}

/// The WorkloadEntries of a namespace.
fn places<'a>(
    settings: &Settings,
    sources: &'a Sources,
    namespace: &Arc<str>,
) -> Vec<(&'a SourceId, &'a Configured<WorkloadEntry>)> {
    let start: ObjectKey = (namespace.clone(), "".into());
    let mut keys = BTreeSet::new();
    for source in sources.values() {
        let near = source
            .contribution
            .configuration
            .workload_entries
            .range(start.clone()..);
        let near = near.map(|(key, _)| key);
        keys.extend(near.take_while(|(of, _)| of == namespace));
    }
    keys.into_iter()
        .filter_map(|key| {
            first(settings, sources, |contribution| {
                contribution.configuration.workload_entries.get(key)
            })
        })
        .map(|(source, place)| (source, &**place))
        .collect()
}

/// The pods of a namespace, of all clusters.
fn pods<'a>(
    sources: &'a Sources,
    world: &'a World,
    namespace: &'a Arc<str>,
) -> impl Iterator<Item = &'a Workload> {
    let clusters: BTreeSet<_> = sources
        .values()
        .flat_map(|source| source.contribution.workloads.first_key_value())
        .map(|(key, _)| &key.cluster)
        .chain(sources.keys().map(|id| &id.cluster))
        .collect();
    clusters.into_iter().flat_map(move |cluster| {
        let start = WorkloadKey {
            cluster: cluster.clone(),
            namespace: namespace.clone(),
            name: "".into(),
        };
        world
            .workloads
            .range(start..)
            .take_while(move |(key, _)| key.cluster == *cluster && key.namespace == *namespace)
            .map(|(_, pod)| &**pod)
    })
}
