//! Conflicts that a snapshot has found, with the proxies that they were found for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::{Arc, MutexGuard, PoisonError};

use api::model::ServiceKey;

use super::grpc_services::GrpcServices;
use super::selected_routers::SelectedProxies;
use super::{Conflict, Snapshot, SnapshotCaches, hash};
use crate::common::conflict_pool::{MAX_PER_NAMESPACE, SharedConflicts, more_of_namespace};
use crate::resources::listeners::virtual_listeners;
use crate::resources::networks::Networks;
use crate::resources::proxy::Proxy;
use crate::rules::authorization_policy;
use crate::scope::selecting::SelectingRule;

/// Proxies that are remembered of each: the first ones by their ids, for those that look earlier are others at each time.
const MAX_PROXIES: usize = 100;

/// Conflicts beyond [`MAX_PER_NAMESPACE`] that are counted for the proxies of one namespace and metric. Chosen: half a megabyte.
const MAX_COUNTED: usize = 10_000;

/// The ids of proxies.
type Proxies = BTreeSet<Arc<str>>;

/// Conflicts with the proxies that found them.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundConflicts {
    /// Those of proxies by themselves, by namespace and metric.
    own: BTreeMap<(Arc<str>, &'static str), ConflictsOfNamespace>,
    /// Those of parts that proxies share, by the place of the list.
    shared: HashMap<usize, (SharedConflicts, Proxies)>,
    selected: SelectedProxies,
    pub(super) grpc_services: GrpcServices,
}

/// Conflicts of a part that proxies share, and the proxy that it was made for.
#[derive(Clone, Debug, Default)]
pub(super) struct ConflictsOfPart {
    pub(super) proxy: Arc<str>,
    pub(super) all: SharedConflicts,
}

/// Conflicts of shared parts by their places, each with the first of the proxies that it was found for: a thousand parts may have
/// the same.
#[derive(Debug, Default)]
struct ConflictsOfParts(HashMap<usize, (Arc<Conflict>, Arc<str>)>);

/// Conflicts of one metric at the objects and services of one namespace: the first ones, so that they do not depend on the order
/// in which proxies come.
#[derive(Clone, Debug, Default)]
struct ConflictsOfNamespace {
    /// Each conflict, for no proxy, with those that found it. Who finds the same at other objects finds another one, which goes
    /// with them: an object that was mended is not blamed for as long as others are not.
    listed: BTreeMap<Conflict, Proxies>,
    unlisted: Unlisted,
}

/// Conflicts beyond the limit.
#[derive(Clone, Debug, Default)]
struct Unlisted {
    finders: Proxies,
    /// The number that each stands for, by the proxy that found it, and its hash.
    occurrences: BTreeMap<(Arc<str>, u64), usize>,
}

impl FoundConflicts {
    fn add(&mut self, conflict: Conflict, proxies: Proxies) {
        let cause = (conflict.namespace(), conflict.metric);
        self.own.entry(cause).or_default().add(conflict, proxies);
    }

    fn add_shared(&mut self, conflicts: SharedConflicts, proxies: Proxies) {
        if proxies.is_empty() || conflicts.is_empty() {
            return;
        }
        // The list is kept, so its place is no other's.
        let place = conflicts.as_ptr().addr();
        let entry = self.shared.entry(place);
        let (_, known_proxies) = entry.or_insert_with(|| (conflicts, Proxies::new()));
        unite(known_proxies, proxies);
    }

    /// Adds the conflicts of an earlier snapshot that the proxies have of which `is_unaffected` is true.
    fn take_over(&mut self, earlier: Self, is_unaffected: impl Fn(&str) -> bool) {
        let unaffected = |mut proxies: Proxies| {
            proxies.retain(|proxy| is_unaffected(proxy));
            proxies
        };
        for (cause, of_namespace) in earlier.own {
            let all = self.own.entry(cause).or_default();
            for (conflict, proxies) in of_namespace.listed {
                all.add(conflict, unaffected(proxies));
            }
            all.unlisted
                .take_over(of_namespace.unlisted, &is_unaffected);
        }
        self.own
            .retain(|_, all| !all.listed.is_empty() || !all.unlisted.finders.is_empty());
        for (conflicts, proxies) in earlier.shared.into_values() {
            self.add_shared(conflicts, unaffected(proxies));
        }
        self.selected.take_over(earlier.selected, &is_unaffected);
        self.grpc_services
            .take_over(earlier.grpc_services, &is_unaffected);
    }

    /// Returns those of proxies by themselves.
    fn own(&self) -> impl Iterator<Item = Conflict> {
        let own = self.own.iter();
        own.flat_map(|((namespace, metric), all)| all.conflicts(namespace, metric))
    }

    fn add_parts(&self, to: &mut ConflictsOfParts) {
        for (conflicts, proxies) in self.shared.values() {
            if let Some(first) = proxies.first() {
                to.add(conflicts, first);
            }
        }
    }
}

impl ConflictsOfParts {
    fn add(&mut self, conflicts: &SharedConflicts, proxy: &Arc<str>) {
        for conflict in conflicts.iter() {
            let known = self.0.entry(Arc::as_ptr(conflict).addr());
            let (_, first) = known.or_insert_with(|| (conflict.clone(), proxy.clone()));
            if proxy < first {
                first.clone_from(proxy);
            }
        }
    }

    fn into_conflicts(self) -> impl Iterator<Item = Conflict> {
        let all = self.0.into_values();
        all.map(|(conflict, proxy)| (*conflict).clone().of(&proxy))
    }
}

impl ConflictsOfNamespace {
    fn add(&mut self, conflict: Conflict, proxies: Proxies) {
        if proxies.is_empty() {
            return;
        }
        unite(self.listed.entry(conflict).or_default(), proxies);
        while self.listed.len() > MAX_PER_NAMESPACE {
            if let Some((conflict, proxies)) = self.listed.pop_last() {
                self.unlisted.add(&conflict, proxies);
            }
        }
    }

    fn conflicts(&self, namespace: &str, metric: &'static str) -> impl Iterator<Item = Conflict> {
        let all = self.listed.iter();
        let all = all.filter_map(|(conflict, proxies)| Some((conflict.clone(), proxies.first()?)));
        let more = self.unlisted.finders.first().and_then(|proxy| {
            let count = self.unlisted.count(&self.listed)?;
            let more = more_of_namespace(metric, namespace);
            Some((more.standing_for(count.get()), proxy))
        });
        all.chain(more).map(|(conflict, proxy)| conflict.of(proxy))
    }
}

impl Unlisted {
    fn add(&mut self, conflict: &Conflict, proxies: Proxies) {
        let hash = hash(conflict);
        let counted = proxies.iter();
        let counted = counted.map(|proxy| ((proxy.clone(), hash), conflict.occurrences));
        self.occurrences.extend(counted);
        unite(&mut self.finders, proxies);
        self.cut();
    }

    /// Adds those of an earlier snapshot that proxies have of which `is_unaffected` is true.
    fn take_over(&mut self, earlier: Self, is_unaffected: impl Fn(&str) -> bool) {
        let finders = earlier.finders.into_iter();
        let finders = finders.filter(|proxy| is_unaffected(proxy)).collect();
        let occurrences = earlier.occurrences.into_iter();
        let occurrences = occurrences.filter(|((proxy, _), _)| is_unaffected(proxy));
        self.occurrences.extend(occurrences);
        unite(&mut self.finders, finders);
        self.cut();
    }

    /// Keeps the first ones by their proxies.
    fn cut(&mut self) {
        while self.occurrences.len() > MAX_COUNTED {
            self.occurrences.pop_last();
        }
    }

    /// The number of conflicts, each once for all proxies that found it, as far as they are counted; `None`: all of them are
    /// listed.
    fn count(&self, listed: &BTreeMap<Conflict, Proxies>) -> Option<NonZeroUsize> {
        if self.occurrences.is_empty() {
            // Those of its finders were cut.
            return Some(NonZeroUsize::MIN);
        }
        let all = self.occurrences.iter();
        let mut distinct: HashMap<u64, usize> =
            all.map(|((_, hash), count)| (*hash, *count)).collect();
        // A snapshot lists what an earlier one had no room for, once a proxy finds it again.
        for conflict in listed.keys() {
            distinct.remove(&hash(conflict));
        }
        NonZeroUsize::new(distinct.into_values().sum())
    }
}

fn unite(known: &mut Proxies, proxies: Proxies) {
    known.extend(proxies);
    while known.len() > MAX_PROXIES {
        known.pop_last();
    }
}

impl Snapshot {
    /// The conflicts found so far, each once, sorted.
    #[must_use]
    pub fn conflicts(&self) -> Vec<Conflict> {
        let mut all = self.all_conflicts_of_world();
        all.extend(self.caches.found().own());
        // Streams do not wait while pods are looked at.
        let selected = self.caches.found().selected.clone();
        all.extend(selected.conflicts(&self.world));
        let grpc_services = self.caches.found().grpc_services.clone();
        all.extend(grpc_services.conflicts(self));
        all.extend(self.conflicts_of_parts().into_conflicts());
        all.extend(self.caches.unmatched_patches());
        united(all)
    }

    fn conflicts_of_parts(&self) -> ConflictsOfParts {
        let mut all = ConflictsOfParts::default();
        for conflicts in self.base.rules.conflicts() {
            all.add(&conflicts, &Arc::default());
        }
        self.caches.found().add_parts(&mut all);
        let listeners = self.caches.listeners.all_in_use();
        for part in listeners.iter().flat_map(|place| place.conflicts.values()) {
            all.add(&part.all, &part.proxy);
        }
        let routes = self.caches.routes.all_in_use();
        for made in routes.iter().flat_map(|memo| memo.values()) {
            all.add(&made.conflicts.all, &made.conflicts.proxy);
        }
        all
    }

    /// The conflicts that do not depend on which proxies are connected: every replica finds the same.
    #[must_use]
    pub fn conflicts_of_world(&self) -> Vec<Conflict> {
        united(self.all_conflicts_of_world())
    }

    fn all_conflicts_of_world(&self) -> BTreeSet<Conflict> {
        let mut all: BTreeSet<Conflict> = self.base.rules.common_conflicts().into_iter().collect();
        all.extend(self.base.envoy_filters.conflicts().cloned());
        all.extend(self.base.policies.conflicts().cloned());
        all.extend(authorization_policy::without_provider(
            &self.world.mesh,
            &self.base.policies,
        ));
        all.extend(virtual_listeners::no_http_proxy(&self.base.mesh));
        all.extend(self.base.networks.conflicts.iter().cloned());
        all.extend(self.mtls_conflicts().iter().cloned());
        all.extend(self.base.refused_endpoints.conflicts());
        all
    }

    /// Takes over the conflicts that were found for proxies that still look at `earlier`, because nothing differs for them.
    /// `is_unaffected` returns true for the ids of these proxies.
    pub fn take_over_conflicts(&self, earlier: &Self, is_unaffected: impl Fn(&str) -> bool) {
        // A snapshot of endpoints alone shares the caches of the one before.
        if Arc::ptr_eq(&self.caches, &earlier.caches) {
            return;
        }
        let earlier = earlier.caches.found().clone();
        self.caches.found().take_over(earlier, is_unaffected);
    }

    /// Sets of clusters and listeners, and route configurations, that were made for proxies that see the same.
    #[must_use]
    pub fn built_parts(&self) -> usize {
        let clusters = self.caches.clusters.all();
        let clusters = clusters.iter().map(|one| one.all.len());
        let listeners = self.caches.listeners.all();
        let listeners = listeners.iter().map(|one| one.all.len());
        let routes = self.caches.routes.all();
        let routes = routes.iter().map(|one| one.len());
        clusters.chain(listeners).chain(routes).sum()
    }
}

impl SnapshotCaches {
    pub(super) fn report(&self, lost: impl IntoIterator<Item = Conflict>, proxy: &Arc<str>) {
        for conflict in lost {
            let conflict = conflict.of(&Arc::default());
            self.found().add(conflict, [proxy.clone()].into());
        }
    }

    /// Says that a proxy has a part with these conflicts, which others share.
    pub(super) fn report_shared(&self, conflicts: SharedConflicts, proxy: &Arc<str>) {
        self.found().add_shared(conflicts, [proxy.clone()].into());
    }

    pub(super) fn add_selecting_rules(&self, rules: Vec<SelectingRule>, proxy: &Proxy) {
        self.found().selected.add(rules, proxy);
    }

    pub(super) fn add_grpc_service(
        &self,
        service: &ServiceKey,
        proxy: &Proxy,
        networks: &Networks,
    ) {
        self.found().grpc_services.add(service, proxy, networks);
    }

    fn found(&self) -> MutexGuard<'_, FoundConflicts> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Joins those that proxies of several kinds have found. `all` is in order of metric, key and message, so repeats stand together.
fn united(all: BTreeSet<Conflict>) -> Vec<Conflict> {
    let mut conflicts: Vec<Conflict> = Vec::new();
    for one in all {
        match conflicts.last_mut() {
            Some(last) if last.is_repeat_of(&one) => last.add(one),
            _ => conflicts.push(one),
        }
    }
    conflicts
}

#[cfg(test)]
mod tests {
    use api::model::{ObjectRef, Resolution, World};

    use super::super::tests::{add, endpoint, node, service, world};
    use super::*;
    use crate::common::conflict::INVALID_LISTENER;
    use crate::settings::Settings;
    use crate::view::Type;

    fn snapshot() -> Arc<Snapshot> {
        Snapshot::new(world(""), Arc::new(Settings::default()))
    }

    fn lost(namespace: &str, message: &str) -> Conflict {
        let sidecar = ObjectRef {
            kind: "Sidecar",
            namespace: namespace.into(),
            name: "s".into(),
        };
        let conflict = Conflict::new(INVALID_LISTENER, "127.0.0.1_8080", message.to_owned());
        let service = ServiceKey::new(&format!("a.{namespace}"), namespace);
        conflict.because_of(&sidecar).of_service(&service)
    }

    fn report(snapshot: &Snapshot, namespace: &str, proxy: &str) {
        let conflict = lost(namespace, "is left out");
        snapshot.caches.report([conflict], &proxy.into());
    }

    fn report_shared(snapshot: &Snapshot, namespace: &str, proxy: &str) {
        let conflict = lost(namespace, "is left out");
        let shared = snapshot.base.conflict_pool.share([conflict]);
        snapshot.caches.report_shared(shared, &proxy.into());
    }

    fn namespaces(conflict: &Conflict) -> Vec<&str> {
        let objects = conflict.objects.iter();
        objects.map(|object| &*object.namespace).collect()
    }

    #[test]
    fn conflicts_do_not_depend_on_the_order_of_proxies() {
        let conflicts_of = |order: [&str; 3]| {
            let snapshot = snapshot();
            for namespace in order {
                report(&snapshot, namespace, &format!("proxy.{namespace}"));
            }
            let other = lost("z", "has no place");
            snapshot.caches.report([other], &"proxy.z".into());
            snapshot.conflicts()
        };
        let all = conflicts_of(["a", "b", "c"]);
        let [other, conflict] = &*all else {
            panic!("not two: {all:?}");
        };
        assert_eq!(namespaces(other), ["z"]);
        assert_eq!(namespaces(conflict), ["a", "b", "c"]);
        assert_eq!(conflict.services.len(), 3);
        assert_eq!(&*conflict.proxy, "proxy.a");
        for order in [["b", "a", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
            assert_eq!(conflicts_of(order), all, "{order:?}");
        }
    }

    /// Statuses have what all replicas find: two would write in turn what the proxies of one show, and that all is well.
    #[test]
    fn conflicts_of_proxies_are_none_of_the_world() {
        let entry = |snapshot: &Snapshot| {
            let all = snapshot.conflicts_of_world();
            (snapshot.conflicts().len(), all.len())
        };
        let world = world("proxyHttpPort: 15001");
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        assert_eq!(entry(&snapshot), (1, 1), "it follows from the mesh");
        report(&snapshot, "a", "a1");
        report_shared(&snapshot, "b", "b1");
        assert_eq!(entry(&snapshot), (2, 1));
    }

    #[test]
    fn a_conflict_lasts_as_long_as_a_proxy_has_it() {
        let earlier = snapshot();
        for (namespace, proxies) in [("a", &["a1", "a2"][..]), ("b", &["b1"])] {
            proxies
                .iter()
                .for_each(|id| report(&earlier, namespace, id));
        }
        for (there, expected) in [("a1", &["a"][..]), ("a2", &["a"]), ("b1", &["b"])] {
            let next = snapshot();
            next.take_over_conflicts(&earlier, |proxy| proxy == there);
            // What the other namespace has mended is not told there any more.
            let all = next.conflicts();
            assert!(all.len() == 1 && namespaces(&all[0]) == expected, "{all:?}");
            assert_eq!(&*all[0].proxy, there);
            let last = snapshot();
            last.take_over_conflicts(&next, |proxy| proxy != there);
            assert_eq!(last.conflicts(), [], "{there} is gone");
        }
        // What was found in the meantime stays beside it.
        let next = snapshot();
        report(&next, "c", "c1");
        report(&next, "a", "a3");
        next.take_over_conflicts(&earlier, |proxy| proxy != "a1");
        let conflicts = next.conflicts();
        assert_eq!(namespaces(&conflicts[0]), ["a", "b", "c"]);
        assert_eq!(&*conflicts[0].proxy, "a2");
    }

    #[test]
    fn the_same_proxies_are_remembered_in_any_order() {
        let many: Vec<_> = (0..2 * MAX_PROXIES).map(|at| format!("{at:04}")).collect();
        let known = |all: &mut dyn Iterator<Item = &String>| {
            let snapshot = snapshot();
            all.for_each(|name| report(&snapshot, "a", name));
            let found = snapshot.caches.found();
            let all = found.own.values().flat_map(|all| all.listed.values());
            let known: Vec<_> = all.cloned().collect();
            known
        };
        let first = known(&mut many.iter());
        assert!(first.len() == 1 && first[0].len() == MAX_PROXIES);
        assert_eq!(known(&mut many.iter().rev()), first);
    }

    /// A thousand conflicts of one tenant hid those of all others.
    #[test]
    fn conflicts_of_one_namespace_hide_none_of_others() {
        let reported = |order: &mut dyn Iterator<Item = usize>| {
            let snapshot = snapshot();
            for at in order {
                let conflict = lost("mallory", &format!("is left out: {at:05}"));
                snapshot.caches.report([conflict], &"p1".into());
            }
            report(&snapshot, "a", "p2");
            let other = Conflict::new("other", "key", "of another metric".to_owned());
            let service = ServiceKey::new("m.example", "mallory");
            snapshot
                .caches
                .report([other.of_service(&service)], &"p2".into());
            snapshot
        };
        let snapshot = reported(&mut (0..5000));
        let all = snapshot.conflicts();
        assert!(all.iter().any(|one| namespaces(one) == ["a"]));
        assert!(all.iter().any(|one| one.metric == "other"));
        let (of_mallory, more): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|one| one.metric == INVALID_LISTENER && namespaces(one) != ["a"])
            .partition(|one| !one.objects.is_empty());
        assert_eq!(of_mallory.len(), MAX_PER_NAMESPACE);
        let [more] = &*more else {
            panic!("not one: {more:?}");
        };
        assert_eq!(
            more.message,
            "more conflicts of namespace \"mallory\" than these 500 are not listed"
        );
        assert_eq!(more.occurrences, 5000 - MAX_PER_NAMESPACE);
        assert_eq!(reported(&mut (0..5000).rev()).conflicts(), all);
        // The summary lasts as long as the proxy that has more.
        let next = self::snapshot();
        next.take_over_conflicts(&snapshot, |proxy| proxy == "p1");
        let lasting = next.conflicts();
        assert_eq!(lasting.len(), MAX_PER_NAMESPACE + 1);
        let occurrences: usize = lasting.iter().map(|one| one.occurrences).sum();
        assert_eq!(occurrences, 5000);
        let last = self::snapshot();
        last.take_over_conflicts(&next, |_| false);
        assert_eq!(last.conflicts(), []);
    }

    /// The list has room again when the proxies that filled it are gone, while others still have what it had no room for.
    #[test]
    fn an_unlisted_conflict_that_is_listed_later_counts_once() {
        const UNLISTED: usize = 5;
        let message = |at: usize| format!("is left out: {at:05}");
        let earlier = snapshot();
        for at in 0..MAX_PER_NAMESPACE + UNLISTED {
            let conflict = lost("mallory", &message(at));
            let proxy = if at < MAX_PER_NAMESPACE { "p1" } else { "p2" };
            earlier.caches.report([conflict], &proxy.into());
        }
        let next = snapshot();
        next.take_over_conflicts(&earlier, |proxy| proxy == "p2");
        let occurrences = || -> usize {
            let all = next.conflicts();
            all.iter().map(|one| one.occurrences).sum()
        };
        assert_eq!((next.conflicts().len(), occurrences()), (1, UNLISTED));
        for at in 0..UNLISTED {
            let conflict = lost("mallory", &message(MAX_PER_NAMESPACE + at));
            next.caches.report([conflict], &"p3".into());
            assert_eq!(occurrences(), UNLISTED, "{at} of them are listed, too");
        }
        assert_eq!(next.conflicts().len(), UNLISTED, "no more than are listed");
    }

    /// Adds a service of a namespace with one port.
    fn add_service(world: &mut World, name: &str, namespace: &str, port: (u16, &str)) {
        let mut one = service(name, &[port], Resolution::Static);
        one.key = ServiceKey::new(name, namespace);
        one.exported_to = match namespace {
            "mallory" => Vec::new(),
            _ => vec![".".into()],
        };
        // For others it is beside the proxy, and left out.
        let place = endpoint("127.0.0.1", 8080, &format!("p{}", port.0));
        add(world, one, vec![place]);
    }

    /// Each scope had the texts of one hostile entry for itself: 36 MB with 200 of them, and more with listeners.
    #[test]
    fn scopes_share_the_texts_of_conflicts() {
        const SCOPES: usize = 40;
        let mut world = world("");
        for host in 0..300 {
            add_service(
                &mut world,
                &format!("{host:03}.x"),
                "mallory",
                (9000, "TCP"),
            );
        }
        let namespaces: Vec<_> = (0..SCOPES).map(|at| format!("tenant{at:02}")).collect();
        for namespace in &namespaces {
            let name = format!("own.{namespace}");
            add_service(&mut world, &name, namespace, (9001, "TCP"));
        }
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let views: Vec<_> = namespaces
            .iter()
            .map(|namespace| {
                let id = format!("sidecar~10.0.0.1~a.{namespace}~{namespace}.svc.cluster.local");
                let view = snapshot.view(&node(&id, "REDIRECT"));
                drop([Type::Cluster, Type::Listener].map(|kind| view.all(kind)));
                view
            })
            .collect();
        assert!(
            snapshot.built_parts() >= 2 * SCOPES,
            "{}",
            snapshot.built_parts()
        );
        let texts = snapshot.conflicts_of_parts().0.len();
        assert!(
            (500..700).contains(&texts),
            "{texts} for {} proxies",
            views.len()
        );
        // All of them are counted, and those of another tenant are told.
        report(&snapshot, "alice", "a1");
        let all = snapshot.conflicts();
        assert!(all.iter().any(|one| self::namespaces(one) == ["alice"]));
        let of_metric = all.iter().filter(|one| one.metric != INVALID_LISTENER);
        let occurrences: usize = of_metric.map(|one| one.occurrences).sum();
        assert_eq!(occurrences, 299, "one of 300 has the port");
    }

    #[test]
    fn a_conflict_of_a_shared_part_lasts_as_long_as_a_proxy_has_the_part() {
        let earlier = snapshot();
        for proxy in ["p1", "p2"] {
            report_shared(&earlier, "a", proxy);
        }
        let all = earlier.conflicts();
        assert_eq!((all.len(), &*all[0].proxy), (1, "p1"));
        let next = snapshot();
        next.take_over_conflicts(&earlier, |proxy| proxy == "p2");
        let all = next.conflicts();
        assert_eq!((all.len(), &*all[0].proxy), (1, "p2"));
        let last = snapshot();
        last.take_over_conflicts(&next, |_| false);
        assert_eq!(last.conflicts(), []);
    }
}
