//! The proxies that a change concerns: those whose scope holds something of it (discovery.md §17).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use api::model::{
    ChangedKind, ChangedName, Changes, ClusterId, ObjectRef, Objects, ServiceKey, World,
};
use api::networking::DiscoveryKind;
use api::security::{JwksSource, JwtRule};

use super::{Snapshot, SnapshotBase};
use crate::node::{self, Node};
use crate::scope::{ProxyRules, Scope};

/// The difference between two snapshots. Objects of sources are those that [`Changes`] names: each is compared, no others are. Of
/// the rest, which belongs to no source, all is compared: keys of issuers, earlier policies, and what the rules together ask for.
#[derive(Debug)]
pub(super) struct AffectedProxies {
    before: (World, Arc<SnapshotBase>),
    after: (World, Arc<SnapshotBase>),
    /// True if something changed that all proxies depend on.
    everybody: bool,
    services: BTreeSet<ServiceKey>,
    rules: BTreeSet<ObjectRef>,
    /// Namespaces whose Sidecars changed.
    with_sidecars: BTreeSet<Arc<str>>,
    /// Namespaces whose workloads let others in.
    guarded: BTreeSet<Arc<str>>,
    /// Namespaces with secrets that came, changed or went.
    secrets: BTreeSet<Arc<str>>,
    /// The answers by class: a change concerns all proxies of a class, or none.
    by_class: Mutex<HashMap<ProxyClass, bool>>,
    /// The answers by node: what makes resources ahead asks for all proxies, and later the event loop does, which must not stop.
    by_node: Mutex<HashMap<NodeOfStream, bool>>,
}

/// The node of one stream, which is another than an equal one of another stream.
#[derive(Clone, Debug)]
struct NodeOfStream(Arc<Node>);

impl PartialEq for NodeOfStream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for NodeOfStream {}

impl Hash for NodeOfStream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// The scopes of a proxy before and after, and its namespace.
type ProxyClass = (Scope, Scope, Arc<str>);

impl AffectedProxies {
    /// `changes`: between the two; `None`: unknown.
    pub(super) fn new(before: &Snapshot, after: &Snapshot, changes: Option<&Changes>) -> Self {
        let (older, newer) = (&before.world, &after.world);
        // A new field does not compile before somebody has said here whom a change of it concerns.
        let World {
            // Their clients, by `hosts` and `Endpoints`.
            services: _,
            endpoints: _,
            workloads: _,
            // Compared as a whole, below.
            mesh: _,
            networks: _,
            earlier_peer_authentications: _,
            key_sets: _,
            plaintext: _,
            // By object, below.
            sidecars: _,
            gateways: _,
            credentials: _,
            virtual_services: _,
            destination_rules: _,
            envoy_filters: _,
            authorization_policies: _,
            peer_authentications: _,
            request_authentications: _,
        } = newer;
        let difference = WorldDifference {
            older,
            newer,
            changes,
        };
        let mut rules = BTreeSet::new();
        rules.extend(difference.rules(|world| &world.virtual_services));
        rules.extend(difference.rules(|world| &world.destination_rules));
        rules.extend(difference.rules(|world| &world.gateways));
        let sidecars = difference.rules(|world| &world.sidecars);
        let with_sidecars = sidecars.iter().map(|one| one.namespace.clone()).collect();
        rules.extend(sidecars);
        rules.extend(difference.rules(|world| &world.envoy_filters));
        let authorization = difference.rules(|world| &world.authorization_policies);
        let authentication = difference.rules(|world| &world.request_authentications);
        let policies = authorization.into_iter().chain(authentication);
        let mut guarded: BTreeSet<_> = policies.map(|one| one.namespace).collect();
        guarded.extend(with_other_keys(older, newer));
        let secrets = difference.objects(ChangedKind::Credential, |world| &world.credentials);
        let secrets = secrets.into_iter().map(|(namespace, _)| namespace);
        let peers = difference.rules(|world| &world.peer_authentications);
        let (base, later) = (&before.base, &after.base);
        let is_same = is_same(&older.mesh, &newer.mesh)
            && !guarded.contains(newer.mesh.root_namespace.as_str())
            // Clients everywhere are to know who takes mutual TLS.
            && peers.is_empty()
            && older.earlier_peer_authentications == newer.earlier_peer_authentications
            && is_same(&older.networks, &newer.networks)
            && older.plaintext == newer.plaintext
            && base.near_by_rules == later.near_by_rules
            && base.checks_by_rules == later.checks_by_rules
            && base.resolved_near == later.resolved_near
            && base.client_credentials == later.client_credentials
            && base.beside == later.beside
            && base.endpoint_sockets == later.endpoint_sockets
            // They may be addresses of services.
            && !base.networks.has_gateways()
            && !later.networks.has_gateways();
        Self {
            before: (older.clone(), base.clone()),
            after: (newer.clone(), later.clone()),
            everybody: !is_same,
            services: difference.services(),
            rules,
            with_sidecars,
            guarded,
            secrets: secrets.collect(),
            by_class: Mutex::default(),
            by_node: Mutex::default(),
        }
    }

    /// Returns true if this proxy has to look at all its resources.
    pub(super) fn has(&self, node: &Arc<Node>, local: &ClusterId) -> bool {
        if self.everybody {
            return true;
        }
        let lock = || self.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        let node = NodeOfStream(Arc::clone(node));
        let cached = lock().get(&node).copied();
        cached.unwrap_or_else(|| {
            let is_concerned = self.concerns(&node.0, local);
            lock().insert(node, is_concerned);
            is_concerned
        })
    }

    fn concerns(&self, node: &Node, local: &ClusterId) -> bool {
        let mut both = [&self.before, &self.after].into_iter();
        let may_have = node.kind == node::Kind::Router
            || both.any(|(_, base)| {
                base.client_credentials
                    .of_sidecars
                    .contains(&node.namespace)
            });
        let has_secrets = may_have && self.secrets.contains(&node.namespace);
        // A router takes nothing of a Sidecar, but the router's look says so at the Sidecar.
        let may_be_selected =
            node.kind == node::Kind::Router && self.with_sidecars.contains(&node.namespace);
        if has_secrets || may_be_selected {
            return true;
        }
        let key = node.workload_key(local);
        let workloads = [&self.before, &self.after].map(|(world, _)| world.workloads.get(&key));
        // The labels of its pod choose its rules and its own services.
        if workloads[0] != workloads[1] {
            return true;
        }
        let labels = node.labels_of(workloads[1]);
        let of = |base: &SnapshotBase| base.rules_of(node, labels);
        let (older, newer) = (of(&self.before.1), of(&self.after.1));
        let sidecars = [&older, &newer].map(|rules| rules.sidecar.as_ref().map(Arc::as_ptr));
        // A Sidecar that narrows nothing is in no scope, and its ingress is the proxy's own.
        if sidecars[0] != sidecars[1] && older.sidecar != newer.sidecar {
            return true;
        }
        let class: ProxyClass = (
            older.scope.clone(),
            newer.scope.clone(),
            node.namespace.clone(),
        );
        let lock = || self.by_class.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = lock().get(&class).copied();
        cached.unwrap_or_else(|| {
            let mut both = [&older, &newer].into_iter();
            let is_concerned = both.any(|rules| self.affects(rules, &node.namespace));
            lock().insert(class, is_concerned);
            is_concerned
        })
    }

    /// Returns true if a part of the change affects these rules. Services of the proxy's namespace count even unseen: one may be its
    /// own application.
    fn affects(&self, rules: &ProxyRules, namespace: &Arc<str>) -> bool {
        let mut services = self.services.iter();
        let mut changed = self.rules.iter();
        self.guarded.contains(namespace)
            || services.any(|key| key.namespace == *namespace || rules.service_ports().has(key))
            || changed.any(|rule| rules.has_part_of(rule, namespace))
    }
}

/// Two worlds, and the objects of sources that changed between them.
struct WorldDifference<'a> {
    older: &'a World,
    newer: &'a World,
    /// `None`: unknown.
    changes: Option<&'a Changes>,
}

impl<'a> WorldDifference<'a> {
    /// Returns the keys of values that differ.
    fn keys<K: Ord + Clone, V: PartialEq>(
        &self,
        kind: ChangedKind,
        key: impl Fn(&ChangedName) -> K,
        of: impl Fn(&World) -> &Arc<BTreeMap<K, Arc<V>>>,
    ) -> BTreeSet<K> {
        let (older, newer) = (of(self.older), of(self.newer));
        let is_other = |key: &K| match (older.get(key), newer.get(key)) {
            (Some(before), Some(after)) => !is_same(before, after),
            (before, after) => before.is_some() != after.is_some(),
        };
        match self.changes.and_then(|changes| changes.names(kind)) {
            Some(names) => names.iter().map(key).filter(is_other).collect(),
            None if Arc::ptr_eq(older, newer) => BTreeSet::new(),
            None => {
                let all = older.keys().chain(newer.keys());
                all.filter(|key| is_other(key)).cloned().collect()
            }
        }
    }

    fn services(&self) -> BTreeSet<ServiceKey> {
        let mut all = BTreeSet::new();
        for kind in [ChangedKind::Service, ChangedKind::Endpoints] {
            all.extend(self.keys(kind, ChangedName::service, |world| &world.services));
            all.extend(self.keys(kind, ChangedName::service, |world| &world.endpoints));
        }
        all
    }

    /// Returns the objects that differ, by namespace and name.
    fn objects<V: PartialEq>(
        &self,
        kind: ChangedKind,
        of: impl Fn(&World) -> &Arc<BTreeMap<(Arc<str>, Arc<str>), Arc<V>>>,
    ) -> BTreeSet<(Arc<str>, Arc<str>)> {
        self.keys(kind, ChangedName::object, of)
    }

    fn rules<T: DiscoveryKind + PartialEq>(
        &self,
        of: impl Fn(&World) -> &Arc<Objects<T>>,
    ) -> Vec<ObjectRef> {
        let names = self.objects(ChangedKind::Configuration(T::NAME), of);
        let rule = |(namespace, name)| ObjectRef {
            kind: T::NAME,
            namespace,
            name,
        };
        names.into_iter().map(rule).collect()
    }
}

/// Equal pointers are equal values.
fn is_same<T: PartialEq>(one: &Arc<T>, other: &Arc<T>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// Namespaces of policies whose keys were fetched anew.
fn with_other_keys(older: &World, newer: &World) -> BTreeSet<Arc<str>> {
    let (before, after) = (&older.key_sets, &newer.key_sets);
    if Arc::ptr_eq(before, after) {
        return BTreeSet::new();
    }
    let is_other = |rule: &JwtRule| {
        let source = JwksSource::of(rule);
        source.is_some_and(|source| before.get(&source) != after.get(&source))
    };
    let policies = newer.request_authentications.values();
    policies
        .filter(|policy| policy.spec.jwt_rules.iter().any(is_other))
        .map(|policy| policy.namespace.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CLIENT, node, world};
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_stream_is_looked_at_once() {
        let settings = Arc::new(Settings::default());
        let before = Snapshot::new(world(""), settings.clone());
        let after = Snapshot::new(world(""), settings.clone());
        let concerned = AffectedProxies::new(&before, &after, None);
        let [known, equal] = [(); 2].map(|()| node(CLIENT, "REDIRECT"));
        assert!(!concerned.has(&known, &settings.cluster));
        // An answer that no look would give shows where the next one comes from.
        let mut answers = concerned.by_node.lock().unwrap();
        *answers.get_mut(&NodeOfStream(known.clone())).unwrap() = true;
        drop(answers);
        assert!(concerned.has(&known, &settings.cluster));
        assert!(!concerned.has(&equal, &settings.cluster));
    }
}
