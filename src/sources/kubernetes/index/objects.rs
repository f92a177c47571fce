//! One cluster's objects, and the contribution computed from them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::config::ServedInstead;

use super::endpoints::{Lookup, ServiceEndpoints};
use super::links::LookupTarget;
use super::names::Names;
use super::stored_kind::{Sealed, StoredKind};
use super::tables::Tables;
use super::wire::{EndpointSlice, Endpoints, Namespace, Node, Pod, Service};
use super::{endpoints, workload};
use crate::catalogue::{CoreKind, EntryId, Origin};
use crate::contribution::ConfigurationKind;
use crate::contribution::{Contribution, Refusal};
use crate::kind::Key;
use crate::kubernetes::store::{Change, Changes};

/// A part of an object that cannot be used; the rest of the object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// `Service`.
    pub kind: &'static str,
    pub object: Key,
    /// The origin of the version that is wrong, of a configuration object.
    pub origin: Option<Origin>,
    /// The version that is served in place of a refused configuration object; `None`: the object is used without the part that is wrong.
    pub serving: Option<ServedInstead>,
    pub refusal: Refusal,
    /// The object cannot be decoded: it is left out, or keeps its last version.
    pub is_unreadable: bool,
}

impl Problem {
    /// The object, as readers of files name it; without a collection, if its kind is none of Kubernetes' own.
    #[must_use]
    pub fn entry_id(&self) -> EntryId {
        let mut kinds = CoreKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.kind() == self.kind);
        EntryId {
            collection: kind.map(CoreKind::collection).unwrap_or_default(),
            name: self.object.to_string().into(),
        }
    }

    /// Returns true if the problem is one of a single object of this kind. An object that was left out has only the kind's name in
    /// paths.
    pub(super) fn is_about<T: ConfigurationKind>(&self) -> bool {
        self.kind == T::NAME
            || (self.kind == T::PLURAL && !matches!(&*self.object.name, "" | ANY_OBJECT))
    }
}

/// The name in problems of objects that are only counted.
pub(super) const ANY_OBJECT: &str = "*";

/// The line of the log.
impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(to, "{origin}: ")?;
        }
        let (kind, object, refusal) = (self.kind, &self.object, &self.refusal);
        match self.serving {
            // As the line of a file.
            Some(serving) => write!(to, "{kind} {object}: {}: {refusal}", serving.as_str()),
            None => write!(to, "cannot use all of {kind} {object}: {refusal}"),
        }
    }
}

/// An event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    Add,
    Update,
    Delete,
}

impl Event {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Entries of a map whose copy takes as long as it takes to compute one. Chosen: of 10,000 pods the copy takes a millisecond or two.
const COPIED: usize = 16;

/// One cluster: takes objects one by one, or whole lists, in any order.
#[derive(Debug)]
pub struct Objects {
    names: Names,
    tables: Tables,
    problems: BTreeMap<(&'static str, Key), Arc<str>>,
    /// Places that name a pod which is not there, by service.
    podless: BTreeMap<Key, usize>,
    /// Services with more endpoints than the limit, and the message about each.
    over_limit: BTreeMap<Key, Arc<str>>,
    ever_podless: u64,
    events: BTreeMap<(&'static str, Event), u64>,
    contribution: Contribution,
}

impl Objects {
    #[must_use]
    pub fn new(names: Names) -> Self {
        Self {
            names,
            tables: Tables::default(),
            problems: BTreeMap::new(),
            podless: BTreeMap::new(),
            over_limit: BTreeMap::new(),
            ever_podless: 0,
            events: BTreeMap::new(),
            contribution: Contribution::default(),
        }
    }

    /// The mesh's trust domain may change while it runs: all identities are other ones then.
    pub fn set_trust_domain(&mut self, trust_domain: &str) {
        if *self.names.trust_domain == *trust_domain {
            return;
        }
        self.names.trust_domain = trust_domain.into();
        self.tables.touch_all();
    }

    /// Adds or updates an object.
    pub fn set<K: StoredKind>(&mut self, object: Arc<K>) {
        let key = object.key();
        let new = Arc::clone(&object);
        let old = K::table(&mut self.tables).insert(key.clone(), object);
        if old.as_ref() == Some(&new) {
            return;
        }
        self.count::<K>(match old {
            Some(_) => Event::Update,
            None => Event::Add,
        });
        match new.problem() {
            Some(message) => self.problems.insert((K::NAME, key.clone()), message.into()),
            None => self.problems.remove(&(K::NAME, key.clone())),
        };
        K::changed(&mut self.tables, &key, old.as_deref(), Some(&new));
    }

    /// Deletes an object.
    pub fn delete<K: StoredKind>(&mut self, key: &Key) {
        if let Some(old) = K::table(&mut self.tables).remove(key) {
            self.count::<K>(Event::Delete);
            self.problems.remove(&(K::NAME, key.clone()));
            K::changed(&mut self.tables, key, Some(&old), None);
        }
    }

    /// Replaces all objects of the kind.
    pub fn replace<K: StoredKind>(&mut self, objects: impl IntoIterator<Item = Arc<K>>) {
        let mut gone: BTreeSet<Key> = K::table(&mut self.tables).keys().cloned().collect();
        for object in objects {
            gone.remove(&object.key());
            self.set(object);
        }
        for key in gone {
            self.delete::<K>(&key);
        }
    }

    /// Applies the changes of a store.
    pub fn apply<K: StoredKind>(&mut self, changes: Changes<K>) {
        if changes.whole {
            let all = changes.changes.into_iter();
            return self.replace(all.filter_map(|change| match change {
                Change::Set(_, object) => Some(object),
                Change::Gone(_) => None,
            }));
        }
        for change in changes.changes {
            match change {
                Change::Set(_, object) => self.set(object),
                Change::Gone(key) => self.delete::<K>(&key),
            }
        }
    }

    /// Returns the number of objects of each kind.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        use Sealed as _;
        let Tables {
            services,
            slices,
            endpoints,
            pods,
            nodes,
            namespaces,
            ..
        } = &self.tables;
        BTreeMap::from([
            (Service::NAME, services.len()),
            (EndpointSlice::NAME, slices.len()),
            (Endpoints::NAME, endpoints.len()),
            (Pod::NAME, pods.len()),
            (Node::NAME, nodes.len()),
            (Namespace::NAME, namespaces.len()),
        ])
    }

    /// Returns the number of events of each kind, without zeros.
    #[must_use]
    pub const fn events(&self) -> &BTreeMap<(&'static str, Event), u64> {
        &self.events
    }

    /// Returns the number of endpoints that name a missing pod, as of the last contribution.
    #[must_use]
    pub fn podless(&self) -> usize {
        self.podless.values().sum()
    }

    /// Returns the number of endpoints without a pod so far, those since resolved included.
    #[must_use]
    pub const fn ever_podless(&self) -> u64 {
        self.ever_podless
    }

    fn count<K: StoredKind>(&mut self, event: Event) {
        let count = self.events.entry((K::NAME, event)).or_default();
        *count = count.saturating_add(1);
    }

    /// Iterates over the problems as of the last contribution.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        let of_objects = self.problems.iter();
        let of_objects = of_objects.map(|((kind, object), message)| (*kind, object, message));
        let over_limit = self.over_limit.iter();
        let over_limit =
            over_limit.map(|(object, message)| (<Service as Sealed>::NAME, object, message));
        of_objects
            .chain(over_limit)
            .map(|(kind, object, message)| Problem {
                kind,
                object: object.clone(),
                origin: None,
                serving: None,
                refusal: message.to_string().into(),
                is_unreadable: false,
            })
    }

    /// Returns the contribution of all objects. Recomputes only the parts that changes since the last call affect.
    pub fn contribution(&mut self) -> Contribution {
        // Pods first: services depend on their workloads.
        for key in std::mem::take(&mut self.tables.touched_pods) {
            self.reconcile_pod(&key);
        }
        for key in std::mem::take(&mut self.tables.touched_services) {
            self.reconcile_service(&key);
        }
        self.contribution.clone()
    }

    /// The steps of work that [`Self::contribution`] has to do, about: pods, services and their places, and what it copies since
    /// earlier contributions are held.
    pub(super) fn work(&self) -> usize {
        let services = self.tables.touched_services_by_pods();
        let pods = self.tables.touched_pods.len();
        let places = services.iter().map(|key| self.tables.places_of(key));
        let contribution = &self.contribution;
        let of_pods = if pods == 0 {
            0
        } else {
            contribution.workloads.len()
        };
        let of_services = if services.is_empty() {
            0
        } else {
            contribution.endpoints.len()
        };
        let copied = (of_pods + of_services) / COPIED;
        pods + services.len() + places.sum::<usize>() + copied
    }

    fn reconcile_pod(&mut self, key: &Key) {
        let pod = self.tables.pods.get(key).filter(|pod| !pod.over);
        let (new, targets) = pod
            .map(|pod| workload::of(&self.names, &self.tables, pod))
            .unzip();
        self.tables.pod_links.set(key, targets.unwrap_or_default());
        // The key that is kept is the workload's own.
        let place = match &new {
            Some(new) => new.key.clone(),
            None => workload::key(&self.names.cluster, key),
        };
        if self.contribution.workloads.get(&place).map(Arc::as_ref) == new.as_ref() {
            return;
        }
        let workloads = Arc::make_mut(&mut self.contribution.workloads);
        let old = match new.clone() {
            Some(new) => workloads.insert(place, Arc::new(new)),
            None => workloads.remove(&place),
        };
        // Services that found the pod by an address that it no longer has are computed anew, too.
        let both = old.iter().map(Arc::as_ref).chain(&new);
        let addresses = both.flat_map(|workload| &workload.addresses);
        let lookers = addresses
            .map(|address| LookupTarget::Address(*address))
            .chain([LookupTarget::Pod(key.clone())]);
        for target in lookers {
            self.tables.touch_services(&target);
        }
    }

    fn reconcile_service(&mut self, key: &Key) {
        let lookup = Lookup {
            cluster: &self.names.cluster,
            tables: &self.tables,
            workloads: &self.contribution.workloads,
        };
        let from = self.tables.services.get(key);
        let new = from.and_then(|from| Some((from, endpoints::service(&self.names, from)?)));
        let (service, places) = match new {
            Some((from, service)) => (Some(service), endpoints::of(lookup, from)),
            None => (None, ServiceEndpoints::default()),
        };
        match places.problem() {
            Some(message) => self.over_limit.insert(key.clone(), message),
            None => self.over_limit.remove(key),
        };
        let ServiceEndpoints {
            endpoints: found,
            targets,
            podless,
            ..
        } = places;
        self.tables.service_links.set(key, targets);
        let before = match podless {
            0 => self.podless.remove(key),
            podless => self.podless.insert(key.clone(), podless),
        };
        let more = podless.saturating_sub(before.unwrap_or_default());
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        self.ever_podless = self.ever_podless.saturating_add(more);
        let place = endpoints::key(&self.names, key);
        let services = &mut self.contribution.services;
        if services.get(&place).map(Arc::as_ref) != service.as_ref() {
            match service {
                Some(service) => {
                    Arc::make_mut(services).insert(place.clone(), Arc::new(service));
                }
                None => {
                    Arc::make_mut(services).remove(&place);
                }
            }
        }
        let all = &mut self.contribution.endpoints;
        if all.get(&place).map_or(&[][..], AsRef::as_ref) != found {
            if found.is_empty() {
                Arc::make_mut(all).remove(&place);
            } else {
                Arc::make_mut(all).insert(place, found.into());
            }
        }
    }

    /// Returns true if neither objects nor indexes remain.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.counts().values().all(|count| *count == 0)
            && self.tables.has_no_indexes()
            && self.problems.is_empty()
            && self.podless.is_empty()
            && self.over_limit.is_empty()
    }
}
