//! EnvoyFilters: which patches hold for a proxy, in order, and what they say as Envoy's messages.
//!
//! Patches of the root namespace come first, then those of the proxy's own; within a namespace by their priority, then in the
//! order of all rules. An object is read once, however many snapshots have it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use api::config::discovery_notes::{
    MAX_PATCHES, is_applied, is_unapplied_match, lacks_name, may_complete, missing_field,
    missing_part, patched_message,
};
use api::envoy;
use api::google::protobuf::{Value, value::Kind};
use api::model::{Configured, Labels, ObjectRef, World, selects};
use api::networking::EnvoyFilter;
use api::networking::envoy_filter::envoy_config_object_match::ObjectTypes;
use api::networking::envoy_filter::patch::Operation;
use api::networking::envoy_filter::{
    ApplyTo, EnvoyConfigObjectMatch, EnvoyConfigObjectPatch, PatchContext,
};
use regex_lite::{Regex, RegexBuilder};

use super::{Rule, labels};
use crate::common::conflict::{Conflict, PATCH_NOT_APPLIED, TOO_LARGE};

/// Patches of one proxy. Chosen: a mesh with a filter for each of its teams has fewer for any one of them.
const MAX_PER_PROXY: usize = 500;
/// Bytes of the values of one proxy's patches. Chosen: as many as there is room for in one object of Kubernetes, and another.
const MAX_BYTES: usize = 3 << 20;
/// Bytes of a compiled expression for a proxy's version: some hundred steps, `^1\.5.*` has ten.
const REGEX_BYTES: usize = 32 << 10;
/// Bytes of a version that are looked at.
const VERSION_BYTES: usize = 64;

/// Sets of patches of one namespace that have the whole limits each; more of them share what those have together, for each is
/// made for proxies of its own.
const FULL_SETS: usize = 8;

/// A patch that can be applied.
#[derive(Debug)]
pub(crate) struct Patch {
    pub(crate) from: ObjectRef,
    /// Its place in its object.
    pub(crate) at: usize,
    /// A hash of the object's name and that place: the same in every snapshot.
    id: u64,
    pub(crate) apply_to: ApplyTo,
    pub(crate) operation: Operation,
    pub(crate) context: PatchContext,
    pub(crate) matching: EnvoyConfigObjectMatch,
    version: Option<Regex>,
    /// A message of Envoy.
    pub(crate) value: Vec<u8>,
}

/// The properties of a proxy's node that patches match.
pub(crate) struct ProxyFacts<'a> {
    pub(crate) version: &'a str,
    /// Returns true if a key of metadata has a value.
    pub(crate) has: &'a dyn Fn(&str, &str) -> bool,
}

/// The patches of one proxy, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patches {
    all: Vec<Arc<Patch>>,
    /// The number of sets of patches that share one limit; 0: no more than [`FULL_SETS`], or none of the patches is of the proxy's
    /// own namespace. Proxies share what patches of the root namespace make, whatever other filters their namespaces have.
    sets: usize,
    /// The conflict of the patches that a bound leaves out.
    pub(crate) lost: Option<Conflict>,
}

/// The part of a cache key that patches decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PatchKey {
    /// Hashes of the names of patches, in order.
    ids: Arc<[u64]>,
    /// As in [`Patches`]: it decides how much the patches may add.
    sets: usize,
}

impl PatchKey {
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// An object, and the workloads that it is for.
#[derive(Debug)]
struct Filter {
    object: Arc<Configured<EnvoyFilter>>,
    labels: Labels,
    patches: Arc<[Arc<Patch>]>,
}

/// The EnvoyFilters of a world.
#[derive(Debug, Default)]
pub(crate) struct EnvoyFilters {
    root: Arc<str>,
    by_namespace: HashMap<Arc<str>, Vec<Filter>>,
    /// The number of different sets of patches that each namespace's own filters make.
    sets: HashMap<Arc<str>, usize>,
    /// Each object as it was read, by namespace and name.
    read: HashMap<(Arc<str>, Arc<str>), WithObject>,
}

impl EnvoyFilters {
    /// `earlier`: of the snapshot before.
    pub(crate) fn new(world: &World, earlier: Option<&Self>) -> Self {
        let mut all = Self {
            root: world.mesh.root_namespace.as_str().into(),
            by_namespace: HashMap::new(),
            sets: HashMap::new(),
            read: HashMap::new(),
        };
        for (key, object) in &*world.envoy_filters {
            // It is for gateways of the Gateway API or for waypoints, and there are none here.
            if !object.spec.target_refs.is_empty() {
                continue;
            }
            let known = earlier.and_then(|earlier| earlier.read.get(key));
            let known = known.filter(|(known, _)| Arc::ptr_eq(known, object) || known == object);
            let read = known.map_or_else(|| read(object), |(_, read)| read.clone());
            let filter = Filter {
                object: object.clone(),
                labels: selector(&object.spec),
                patches: read.0.clone(),
            };
            let namespace = object.namespace.clone();
            all.by_namespace.entry(namespace).or_default().push(filter);
            all.read.insert(key.clone(), (object.clone(), read));
        }
        for filters in all.by_namespace.values_mut() {
            filters.sort_by_key(Filter::key);
        }
        for (namespace, filters) in &all.by_namespace {
            all.sets.insert(namespace.clone(), sets(filters, world));
        }
        all
    }

    /// The patches of a proxy in this namespace whose workload has these labels.
    pub(crate) fn of(
        &self,
        namespace: &Arc<str>,
        labels: &Labels,
        is_sidecar: bool,
        facts: &ProxyFacts<'_>,
    ) -> Patches {
        let mut patches = Patches::default();
        if self.by_namespace.is_empty() {
            return patches;
        }
        // Proxies of the root namespace have its filters once.
        let own = (*namespace != self.root).then_some(namespace);
        let namespaces = [Some(&self.root), own].into_iter().flatten();
        let filters = namespaces.filter_map(|namespace| self.by_namespace.get(namespace));
        let filters = filters
            .flatten()
            .filter(|filter| selects(&filter.labels, labels));
        let mut bytes = 0;
        for filter in filters {
            for patch in filter.patches.iter() {
                if !patch.is_for(is_sidecar) || !patch.matches_proxy(facts) {
                    continue;
                }
                bytes += patch.value.len();
                if patches.all.len() >= MAX_PER_PROXY || bytes > MAX_BYTES {
                    patches.lost = Some(patch.is_too_much());
                    return patches;
                }
                if patch.from.namespace != self.root {
                    patches.sets = self.many_sets(&patch.from.namespace);
                }
                patches.all.push(patch.clone());
            }
        }
        patches
    }

    /// The number of sets of patches that filters of a namespace make; 0: each has the whole limits.
    fn many_sets(&self, namespace: &Arc<str>) -> usize {
        let sets = self.sets.get(namespace).copied();
        sets.filter(|sets| *sets > FULL_SETS).unwrap_or_default()
    }

    /// Patches that no proxy gets, because they cannot be read.
    pub(crate) fn conflicts(&self) -> impl Iterator<Item = &Conflict> {
        let all = self.read.values();
        all.flat_map(|(_, (_, left_out))| left_out.iter())
    }
}

impl Filter {
    fn key(&self) -> impl Ord + use<> {
        let object = &self.object;
        (object.spec.priority, object.created, object.name.clone())
    }
}

impl Patch {
    fn is_for(&self, is_sidecar: bool) -> bool {
        match self.context {
            PatchContext::Any => true,
            PatchContext::SidecarInbound | PatchContext::SidecarOutbound => is_sidecar,
            PatchContext::Gateway => !is_sidecar,
            PatchContext::Waypoint => false,
        }
    }

    /// Returns true if it may change what chains of a listener match, or take one away.
    pub(crate) fn changes_chains(&self) -> bool {
        matches!(self.apply_to, ApplyTo::FilterChain | ApplyTo::Listener)
            && self.operation != Operation::Add
    }

    /// Returns a hash of its object's name and its place there, which is the same in every snapshot.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if routes, or what is in them, are changed by it.
    pub(crate) const fn is_of_routes(&self) -> bool {
        matches!(
            self.apply_to,
            ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute
        )
    }

    /// Returns true if listeners, or what is in them, are changed by it.
    pub(crate) fn is_of_listeners(&self) -> bool {
        matches!(
            self.apply_to,
            ApplyTo::Listener
                | ApplyTo::ListenerFilter
                | ApplyTo::FilterChain
                | ApplyTo::NetworkFilter
                | ApplyTo::HttpFilter
        )
    }

    fn is_too_much(&self) -> Conflict {
        let from = &self.from;
        let message = format!(
            "patches from patch {} of {from} on are not applied: a proxy has more than {MAX_PER_PROXY}, or more than {} MiB of them",
            self.at,
            MAX_BYTES >> 20
        );
        Conflict::new(
            TOO_LARGE,
            format!("{}/{}", from.namespace, from.name),
            message,
        )
        .because_of(from)
    }

    /// The version and the metadata that it requires of a proxy, besides labels.
    fn proxy_match(&self) -> Option<(&str, BTreeMap<&String, &String>)> {
        let proxy = self.matching.proxy.as_ref()?;
        Some((&proxy.proxy_version, proxy.metadata.iter().collect()))
    }

    fn matches_proxy(&self, facts: &ProxyFacts<'_>) -> bool {
        let Some(proxy) = &self.matching.proxy else {
            return true;
        };
        let version = self.version.as_ref();
        // A client chooses its version: a long one would cost time in each pattern.
        version.is_none_or(|regex| {
            facts.version.len() <= VERSION_BYTES && regex.is_match(facts.version)
        }) && proxy
            .metadata
            .iter()
            .all(|(key, value)| (facts.has)(key, value))
    }
}

impl Patches {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Patch>> {
        self.all.iter()
    }

    /// The share of a limit that one set of patches has.
    pub(crate) const fn share(&self, limit: usize) -> usize {
        match self.sets {
            0 => limit,
            sets => limit.saturating_mul(FULL_SETS) / sets,
        }
    }

    /// Returns true if an object is among those that they are from.
    pub(crate) fn are_of(&self, object: &ObjectRef) -> bool {
        self.all.iter().any(|patch| patch.from == *object)
    }

    /// Returns the ids of the patches that are wanted, and the number of sets that limits are shared by: the cache key of
    /// resources for proxies with the same ones.
    pub(super) fn key(&self, is_wanted: impl Fn(&Patch) -> bool) -> PatchKey {
        let wanted = self.all.iter().filter(|patch| is_wanted(patch));
        let ids: Arc<[u64]> = wanted.map(|patch| patch.id).collect();
        // Resources that no patch changes are the same under each limit.
        let sets = if ids.is_empty() { 0 } else { self.sets };
        PatchKey { ids, sets }
    }
}

/// The number of sets of patches that filters of one namespace make: at least one for each condition in them, and one for each
/// combination of the selected labels that its workloads have. Proxies that are no workloads of the world are not counted.
fn sets(filters: &[Filter], world: &World) -> usize {
    let patches = filters.iter().flat_map(|filter| {
        let patches = filter.patches.iter();
        patches.map(|patch| (&filter.labels, patch.proxy_match()))
    });
    let conditions: BTreeSet<_> = patches.collect();
    let Some(first) = filters.first().filter(|_| conditions.len() > 1) else {
        return conditions.len();
    };
    let keys = filters.iter().flat_map(|filter| filter.labels.keys());
    let keys: BTreeSet<_> = keys.collect();
    let workloads = world.workloads.values();
    let own = workloads.filter(|one| one.key.namespace == first.object.namespace);
    let met: HashSet<Vec<_>> = own
        .map(|one| keys.iter().map(|key| one.labels.get(*key)).collect())
        .collect();
    // More there cannot be, whatever their labels are.
    let ways = 1_usize.checked_shl(u32::try_from(conditions.len()).unwrap_or(u32::MAX));
    met.len()
        .min(ways.unwrap_or(usize::MAX))
        .max(conditions.len())
}

/// The patches of an object, and why others are not applied.
type Read = (Arc<[Arc<Patch>]>, Arc<[Conflict]>);

/// An object with the patches that were read of it.
type WithObject = (Arc<Configured<EnvoyFilter>>, Read);

/// Workloads of the object's namespace; none: all. Releases up to 1.2 had labels of their own.
fn selector(spec: &EnvoyFilter) -> Labels {
    match &spec.workload_selector {
        Some(selector) => labels(&selector.labels),
        None => labels(&spec.workload_labels),
    }
}

/// Reads the patches of an object. A patch that does not decode is a note of the object: see `api::config::discovery_notes`.
fn read(object: &Arc<Configured<EnvoyFilter>>) -> Read {
    let from = Rule::new(object, Vec::new()).from;
    let mut patches = Vec::new();
    let mut left_out = Vec::new();
    let written = object.spec.config_patches.iter().enumerate();
    for (at, one) in written.take(MAX_PATCHES) {
        let later = object
            .spec
            .config_patches
            .iter()
            .take(MAX_PATCHES)
            .skip(at + 1);
        let is_completed = later.clone().any(|later| {
            let operation = later
                .patch
                .as_ref()
                .map(|patch| patch.operation().as_str_name());
            may_complete(
                one.apply_to().as_str_name(),
                later.apply_to().as_str_name(),
                operation.unwrap_or_default(),
            )
        });
        match patch(&from, at, one, is_completed) {
            Ok(patch) => patches.extend(patch.map(Arc::new)),
            Err(why) => {
                let message = format!("patch {at} of {from} is not applied: {why}");
                let key = format!("{}/{} {at}", from.namespace, from.name);
                left_out.push(Conflict::new(PATCH_NOT_APPLIED, key, message).because_of(&from));
            }
        }
    }
    (patches.into(), left_out.into())
}

/// Returns true if a match says which one of several filters or routes it means.
fn names_one(apply_to: ApplyTo, matching: &EnvoyConfigObjectMatch) -> bool {
    match &matching.object_types {
        Some(ObjectTypes::Listener(listener)) => {
            let chain = listener.filter_chain.as_ref();
            let filter = chain.and_then(|chain| chain.filter.as_ref());
            let below = filter.and_then(|filter| filter.sub_filter.as_ref());
            let name = if apply_to == ApplyTo::HttpFilter {
                below.map(|below| &below.name)
            } else if apply_to == ApplyTo::NetworkFilter {
                filter.map(|filter| &filter.name)
            } else {
                Some(&listener.listener_filter)
            };
            name.is_some_and(|name| !name.is_empty())
        }
        Some(ObjectTypes::RouteConfiguration(routes)) => {
            let host = routes.vhost.as_ref();
            host.is_some_and(|host| host.route.is_some())
        }
        _ => false,
    }
}

fn is_written(value: &Value) -> bool {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => false,
        Some(Kind::StringValue(text)) => !text.is_empty(),
        Some(Kind::ListValue(list)) => !list.values.is_empty(),
        Some(_) => true,
    }
}

fn patch(
    from: &ObjectRef,
    at: usize,
    object_patch: &EnvoyConfigObjectPatch,
    is_completed: bool,
) -> Result<Option<Patch>, String> {
    let matching = object_patch.r#match.clone().unwrap_or_default();
    let what = object_patch.patch.clone().unwrap_or_default();
    let (apply_to, operation) = (object_patch.apply_to(), what.operation());
    let Some(message) = patched_message(apply_to.as_str_name()) else {
        return Ok(None);
    };
    let port_name = match &matching.object_types {
        Some(ObjectTypes::Listener(listener)) => listener.port_name.as_str(),
        _ => "",
    };
    let is_waypoint = matching.context() == PatchContext::Waypoint
        || matches!(matching.object_types, Some(ObjectTypes::Waypoint(_)));
    let (kind, action) = (apply_to.as_str_name(), operation.as_str_name());
    let value = what.value.unwrap_or_default();
    let has = |name: &str| value.fields.get(name).is_some_and(is_written);
    if !is_applied(kind, action)
        || is_unapplied_match(is_waypoint, port_name)
        || lacks_name(kind, action, names_one(apply_to, &matching))
        || missing_field(kind, action, has).is_some()
    {
        return Ok(None);
    }
    let proxy = matching.proxy.as_ref();
    let version = proxy.map(|proxy| proxy.proxy_version.as_str());
    let version = match version.unwrap_or_default() {
        "" => None,
        pattern => {
            let regex = RegexBuilder::new(pattern).size_limit(REGEX_BYTES).build();
            Some(regex.map_err(|error| format!("match.proxy.proxyVersion: {error}"))?)
        }
    };
    let value = if operation == Operation::Remove {
        Vec::new()
    } else {
        match envoy::encode_written(message, &value) {
            Ok(value) => value,
            // The object has a note of it already.
            Err(_) => return Ok(None),
        }
    };
    // As it has of this.
    if operation != Operation::Remove
        && !is_completed
        && missing_part(kind, action, &value).is_some()
    {
        return Ok(None);
    }
    let mut id = DefaultHasher::new();
    (&from.namespace, &from.name, at).hash(&mut id);
    Ok(Some(Patch {
        from: from.clone(),
        at,
        id: id.finish(),
        apply_to,
        operation,
        context: matching.context(),
        matching,
        version,
        value,
    }))
}
