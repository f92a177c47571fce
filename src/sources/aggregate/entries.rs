//! The effective ServiceEntries, with the services made of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::{Configured, EndpointShards, Labels, Service, ServiceKey, selects};
use api::networking::ServiceEntry;
use api::size;

use super::differ::differ_all;
use super::precedence::first;
use super::report::Report;
use super::selection::WorkloadSelection;
use super::selection_budget::{
    ALL_PLACES, ALL_PORTS, Demand, NAMESPACE_PLACES, NAMESPACE_PORTS, SelectionBudget,
    SelectionLimit,
};
use super::service_entry::{self, Backend};
use super::{ObjectKey, Settings, Sources};
use crate::contribution::{Contribution, SourceId};

/// An effective ServiceEntry.
#[derive(Debug)]
pub(super) struct UsedEntry {
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

#[derive(Debug)]
pub(super) struct Entries {
    pub(super) used: BTreeMap<ObjectKey, UsedEntry>,
    by_service: BTreeMap<ServiceKey, BTreeSet<ObjectKey>>,
    /// Entries with a workload selector, by namespace.
    selecting: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    places: SelectionBudget,
    ports: SelectionBudget,
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            used: BTreeMap::new(),
            by_service: BTreeMap::new(),
            selecting: BTreeMap::new(),
            places: SelectionBudget::of_places(),
            ports: SelectionBudget::of_ports(),
        }
    }
}

/// The most places and ports of one entry.
#[derive(Clone, Copy)]
struct EntryLimits {
    places: SelectionLimit,
    ports: SelectionLimit,
}

impl Entries {
    /// Iterates over the entries that declare a service.
    pub(super) fn of(&self, key: &ServiceKey) -> impl Iterator<Item = &UsedEntry> {
        let keys = self.by_service.get(key).into_iter().flatten();
        keys.filter_map(|key| self.used.get(key))
    }

    /// Replaces an entry. Adds the services of the old and of the new one.
    fn set(
        &mut self,
        key: &ObjectKey,
        used: Option<UsedEntry>,
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

    /// Converts these entries anew, and others whose share changes with them. Returns true if the notes of one differ from those
    /// before.
    pub(super) fn remake(
        &mut self,
        selection: &mut WorkloadSelection<'_>,
        trust_domain: &str,
        keys: &BTreeSet<ObjectKey>,
        touched: &mut BTreeSet<ServiceKey>,
    ) -> bool {
        for key in keys {
            self.places.set(key, place_demand(selection, key));
            self.ports.set(key, port_demand(selection, key));
        }
        let mut shared_anew = self.places.redistribute();
        shared_anew.append(&mut self.ports.redistribute());
        let notes =
            |used: Option<&UsedEntry>| used.map_or_else(Vec::new, |used| used.notes.clone());
        let mut differs = false;
        for key in keys.union(&shared_anew) {
            let limits = EntryLimits {
                places: self.places.limit(key),
                ports: self.ports.limit(key),
            };
            let used = used(selection, trust_domain, limits, key);
            differs |= notes(self.used.get(key)) != notes(used.as_ref());
            self.set(key, used, touched);
        }
        differs
    }

    /// Returns the entries that select a workload which this source has changed.
    pub(super) fn selecting(
        &self,
        sources: &Sources,
        old: &Contribution,
        new: &Contribution,
    ) -> BTreeSet<ObjectKey> {
        let mut keys = BTreeSet::new();
        if self.selecting.is_empty() {
            return keys;
        }
        // A workload that this source hides, or no longer hides, may have other labels.
        let all = || {
            let others = sources.values().map(|source| &source.contribution);
            others.chain([old, new])
        };
        for key in differ_all(&old.workloads, &new.workloads) {
            for pod in all().filter_map(|one| one.workloads.get(&key)) {
                self.select(&key.namespace, &pod.labels, &mut keys);
            }
        }
        let was = &old.configuration.workload_entries;
        let is = &new.configuration.workload_entries;
        for key in differ_all(was, is) {
            for place in all().filter_map(|one| one.configuration.workload_entries.get(&key)) {
                let labels = service_entry::labels(&place.spec.labels);
                self.select(&key.0, &labels, &mut keys);
            }
        }
        keys
    }

    fn select(&self, namespace: &str, labels: &Labels, keys: &mut BTreeSet<ObjectKey>) {
        for key in self.selecting.get(namespace).into_iter().flatten() {
            let wanted = self.used.get(key).and_then(|used| used.selector.as_ref());
            if wanted.is_some_and(|wanted| selects(wanted, labels)) {
                keys.insert(key.clone());
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

/// Returns the places for the workloads that an entry selects, up to the limit of one entry.
fn place_demand(selection: &mut WorkloadSelection<'_>, key: &ObjectKey) -> Demand {
    let Some((_, entry)) = of_key(selection, key) else {
        return Demand::default();
    };
    let Some(selector) = service_entry::selector(&entry.spec) else {
        return Demand::default();
    };
    let backends = selection.backends(&key.0, &selector);
    let places = backends.iter().map(Backend::places);
    let ports = service_ports(&entry.spec);
    let at_ports = |places: usize| places.saturating_mul(ports).min(size::SERVICE_PLACES);
    Demand {
        sum: at_ports(places.fold(0, usize::saturating_add)),
        unit: at_ports(backends.first().map_or(0, Backend::places)),
    }
}

/// Returns the ports of the services that an entry makes.
fn port_demand(selection: &WorkloadSelection<'_>, key: &ObjectKey) -> Demand {
    of_key(selection, key).map_or_else(Demand::default, |(_, entry)| Demand {
        sum: service_ports(&entry.spec),
        unit: entry.spec.ports.len(),
    })
}

/// The number of ports of all services of an entry.
const fn service_ports(entry: &ServiceEntry) -> usize {
    entry.hosts.len().saturating_mul(entry.ports.len())
}

/// Returns the version of an entry that counts.
fn of_key<'a>(
    selection: &WorkloadSelection<'a>,
    key: &ObjectKey,
) -> Option<(&'a SourceId, &'a Arc<Configured<ServiceEntry>>)> {
    let WorkloadSelection {
        settings, sources, ..
    } = selection;
    first(settings, sources, |contribution| {
        contribution.configuration.service_entries.get(key)
    })
}

/// Converts an entry; `None` if no source has it.
fn used(
    selection: &mut WorkloadSelection<'_>,
    trust_domain: &str,
    limits: EntryLimits,
    key: &ObjectKey,
) -> Option<UsedEntry> {
    let (source, entry) = of_key(selection, key)?;
    let selector = service_entry::selector(&entry.spec);
    let backends = selector
        .as_ref()
        .map(|selector| selection.backends(&key.0, selector));
    let backends = backends.as_deref().unwrap_or_default();
    let mut room = limits.places.of_entry / service_ports(&entry.spec).max(1);
    let fits = |backend: &&Backend<'_>| {
        let left = room.checked_sub(backend.places());
        room = left.unwrap_or_default();
        left.is_some()
    };
    let fitting = backends.iter().take_while(fits).count();
    let all = backends.len();
    let backends = backends.get(..fitting).unwrap_or_default();
    let mut notes = notes(selection.settings, source, entry, backends);
    let note = |message, whole| Report {
        source: source.clone(),
        kind: service_entry::KIND,
        namespace: entry.namespace.clone(),
        name: entry.name.clone(),
        message,
        whole,
    };
    if all > fitting {
        let why = too_many_places(limits.places);
        let message = format!("selects {all} workloads, and the first {fitting} are used: {why}");
        notes.push(note(message, false));
    }
    let backends = backends.iter().copied();
    let shards = service_entry::shards(entry, &source.cluster, trust_domain, backends);
    let mut services = service_entry::services(entry, &source.cluster);
    let max = limits.ports.of_entry / entry.spec.ports.len().max(1);
    if services.len() > max {
        let why = too_many_ports(limits.ports);
        let hosts = services.len();
        let message = match max {
            0 => format!("is not used: {why}"),
            _ => format!("has {hosts} hosts, and the first {max} by name are served: {why}"),
        };
        notes.push(note(message, max == 0));
        services.truncate(max);
    }
    Some(UsedEntry {
        key: key.clone(),
        source: source.clone(),
        entry: entry.clone(),
        services: services.into_iter().map(Arc::new).collect(),
        shards: Arc::new(shards),
        notes,
        selector,
    })
}

fn too_many_places(limit: SelectionLimit) -> String {
    match limit.of_namespace {
        Some(places) if limit.of_entry < size::SERVICE_PLACES => {
            let owner = budget_owner(places, NAMESPACE_PLACES, ALL_PLACES);
            format!(
                "more than {places} places with the other ServiceEntries {owner}: select fewer workloads"
            )
        }
        Some(_) | None => format!(
            "more than {} places with its hosts and ports: split the entry",
            size::SERVICE_PLACES
        ),
    }
}

/// Explains a limit on ports: an entry with too many hosts and ports of its own is refused, so the cause is other entries.
fn too_many_ports(limit: SelectionLimit) -> String {
    let ports = limit.of_namespace.unwrap_or(NAMESPACE_PORTS);
    let owner = budget_owner(ports, NAMESPACE_PORTS, ALL_PORTS);
    format!("the ports of all hosts are more than {ports} with the other ServiceEntries {owner}")
}

/// Names the owner of the room, and the cause of a smaller one: the demand of other namespaces.
fn budget_owner(room: usize, of_namespace: usize, of_all: usize) -> String {
    match room < of_namespace {
        true => format!("of the namespace, its part of the {of_all} of the mesh"),
        false => "of the namespace".to_owned(),
    }
}

/// Reports the parts of an entry, or of the workloads of it that are used, that are not used as written.
fn notes(
    settings: &Settings,
    source: &SourceId,
    entry: &Configured<ServiceEntry>,
    backends: &[Backend<'_>],
) -> Vec<Report> {
    let places = backends.iter().filter_map(|backend| match backend {
        Backend::Entry(source, place) => Some((*source, *place)),
        Backend::Pod(_) => None,
    });
    let unresolved = places.filter_map(|(source, place)| {
        let name = service_entry::unresolved(entry, &place.spec)?;
        Some(Report {
            source: source.clone(),
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
        kind: service_entry::KIND,
        namespace: entry.namespace.clone(),
        name: entry.name.clone(),
        message,
        whole: false,
    });
    unresolved.chain(left_to_tls).collect()
}
