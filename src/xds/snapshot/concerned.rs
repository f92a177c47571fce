//! The proxies that a change concerns: those whose scope holds something of it (discovery.md §17).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use api::model::{Labels, ObjectRef, Objects, ServiceKey, WorkloadKey, World};
use api::networking::NetworkingKind;
use api::security::{JwtRule, KeysPlace};

use super::{Base, Snapshot};
use crate::node::{self, Node};
use crate::scope::{ProxyRules, Scope};

/// The difference between two snapshots. It compares their worlds, each map by its pointer first, and takes no
/// [`Changes`](api::model::Changes): rules that are made of Ingresses, keys of issuers and earlier policies are in the worlds and are
/// no objects of a source, so they would be compared all the same.
#[derive(Debug)]
pub(super) struct Concerned {
    before: (World, Arc<Base>),
    after: (World, Arc<Base>),
    /// True if something changed that all proxies depend on.
    everybody: bool,
    services: BTreeSet<ServiceKey>,
    rules: BTreeSet<ObjectRef>,
    /// Namespaces whose workloads let others in.
    guarded: BTreeSet<Arc<str>>,
    /// Namespaces with secrets that came, changed or went.
    secrets: BTreeSet<Arc<str>>,
    /// The answers by class: a change concerns all proxies of a class, or none.
    known: Mutex<HashMap<ProxyClass, bool>>,
}

/// The scopes of a proxy before and after, and its namespace.
type ProxyClass = (Scope, Scope, Arc<str>);

impl Concerned {
    pub(super) fn new(before: &Snapshot, after: &Snapshot) -> Self {
        let (older, newer) = (&before.world, &after.world);
        let mut services = BTreeSet::new();
        changed(&older.services, &newer.services, &mut services);
        changed(&older.endpoints, &newer.endpoints, &mut services);
        let mut rules = BTreeSet::new();
        objects(&older.virtual_services, &newer.virtual_services, &mut rules);
        objects(
            &older.destination_rules,
            &newer.destination_rules,
            &mut rules,
        );
        objects(&older.gateways, &newer.gateways, &mut rules);
        objects(&older.sidecars, &newer.sidecars, &mut rules);
        objects(&older.envoy_filters, &newer.envoy_filters, &mut rules);
        let mut policies = BTreeSet::new();
        objects(
            &older.authorization_policies,
            &newer.authorization_policies,
            &mut policies,
        );
        objects(
            &older.request_authentications,
            &newer.request_authentications,
            &mut policies,
        );
        let mut guarded: BTreeSet<_> = policies.into_iter().map(|one| one.namespace).collect();
        guarded.extend(with_other_keys(older, newer));
        let secrets = differing(&older.credentials, &newer.credentials);
        let secrets = secrets.map(|(namespace, _)| namespace.clone()).collect();
        let (base, later) = (&before.base, &after.base);
        let is_same = older.mesh == newer.mesh
            && !guarded.contains(newer.mesh.root_namespace.as_str())
            // Clients everywhere are to know who takes mutual TLS.
            && older.peer_authentications == newer.peer_authentications
            && older.earlier_peer_authentications == newer.earlier_peer_authentications
            && older.networks == newer.networks
            && older.plaintext == newer.plaintext
            && base.near_by_rules == later.near_by_rules
            && base.accounts_by_rules == later.accounts_by_rules
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
            services,
            rules,
            guarded,
            secrets,
            known: Mutex::default(),
        }
    }

    /// Returns true if this proxy has to look at all its resources.
    pub(super) fn has(&self, node: &Node, local: &api::model::ClusterId) -> bool {
        let mut both = [&self.before, &self.after].into_iter();
        let may_have = node.kind == node::Kind::Router
            || both.any(|(_, base)| {
                base.client_credentials
                    .of_sidecars
                    .contains(&node.namespace)
            });
        let has_secrets = may_have && self.secrets.contains(&node.namespace);
        if self.everybody || has_secrets {
            return true;
        }
        let key = WorkloadKey {
            cluster: node.cluster.as_ref().unwrap_or(local).clone(),
            namespace: node.namespace.clone(),
            name: node.name.clone(),
        };
        let workloads = [&self.before, &self.after].map(|(world, _)| world.workloads.get(&key));
        if workloads[0] != workloads[1] {
            return true;
        }
        let labels: &Labels = workloads[1].map_or(&node.labels, |workload| &workload.labels);
        let of = |base: &Base| base.rules_of(node, labels);
        let (older, newer) = (of(&self.before.1), of(&self.after.1));
        let sidecars = [&older, &newer].map(|rules| rules.sidecar.as_ref().map(Arc::as_ptr));
        if sidecars[0] != sidecars[1] && older.sidecar != newer.sidecar {
            return true;
        }
        let class: ProxyClass = (
            older.scope.clone(),
            newer.scope.clone(),
            node.namespace.clone(),
        );
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&class).copied();
        known.unwrap_or_else(|| {
            let mut both = [&older, &newer].into_iter();
            let is_concerned = both.any(|rules| self.is_seen(rules, &node.namespace));
            lock().insert(class, is_concerned);
            is_concerned
        })
    }

    /// Returns true if these rules see a part of the change. Services of the proxy's namespace count even unseen: one may be its
    /// own application.
    fn is_seen(&self, rules: &ProxyRules, namespace: &Arc<str>) -> bool {
        let mut services = self.services.iter();
        let mut changed = self.rules.iter();
        self.guarded.contains(namespace)
            || services.any(|key| key.namespace == *namespace || rules.service_ports().has(key))
            || changed.any(|rule| rules.is_made_by(rule, namespace))
    }
}

/// Keys of values that differ.
fn changed<V: PartialEq>(
    older: &Arc<BTreeMap<ServiceKey, Arc<V>>>,
    newer: &Arc<BTreeMap<ServiceKey, Arc<V>>>,
    found: &mut BTreeSet<ServiceKey>,
) {
    if !Arc::ptr_eq(older, newer) {
        found.extend(differing(older, newer).cloned());
    }
}

fn objects<T: NetworkingKind + PartialEq>(
    older: &Arc<Objects<T>>,
    newer: &Arc<Objects<T>>,
    found: &mut BTreeSet<ObjectRef>,
) {
    if Arc::ptr_eq(older, newer) {
        return;
    }
    let names = differing(older, newer);
    found.extend(names.map(|(namespace, name)| ObjectRef {
        kind: T::NAME,
        namespace: namespace.clone(),
        name: name.clone(),
    }));
}

/// Namespaces of policies whose keys were fetched anew.
fn with_other_keys(older: &World, newer: &World) -> BTreeSet<Arc<str>> {
    let (before, after) = (&older.key_sets, &newer.key_sets);
    if Arc::ptr_eq(before, after) {
        return BTreeSet::new();
    }
    let is_other = |rule: &JwtRule| {
        let place = KeysPlace::of(rule);
        place.is_some_and(|place| before.get(&place) != after.get(&place))
    };
    let policies = newer.request_authentications.values();
    policies
        .filter(|policy| policy.spec.jwt_rules.iter().any(is_other))
        .map(|policy| policy.namespace.clone())
        .collect()
}

fn differing<'a, K: Ord, V: PartialEq>(
    older: &'a BTreeMap<K, Arc<V>>,
    newer: &'a BTreeMap<K, Arc<V>>,
) -> impl Iterator<Item = &'a K> {
    let is_same = |one: &Arc<V>, other: &Arc<V>| Arc::ptr_eq(one, other) || one == other;
    let gone = older.keys().filter(|key| !newer.contains_key(*key));
    let came = newer.iter().filter(move |(key, value)| {
        let before = older.get(*key);
        !before.is_some_and(|before| is_same(before, value))
    });
    gone.chain(came.map(|(key, _)| key))
}
