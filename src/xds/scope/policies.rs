//! Policies of workloads: those of the root namespace hold for all, others for workloads of their own namespace, each for
//! those that its selector finds. They say what a proxy lets in, so nothing that proxies share depends on them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::config::discovery_notes::{PEERS_OF_ROUTERS, is_service};
use api::istio::r#type::v1beta1::PolicyTargetReference;
use api::model::{Configured, Labels, ObjectRef, Objects, Registry, World, selects};
use api::networking::DiscoveryKind;
use api::security::{
    AuthorizationPolicy, PeerAuthentication, RequestAuthentication, WorkloadSelector,
};

use super::selecting::SelectingRule;
use super::{Rule, labels, shadowed};
use crate::common::conflict::{Conflict, Conflicts, NOT_ENFORCED_AS_WRITTEN};

/// A kind of policy.
trait PolicyKind: DiscoveryKind {
    /// Workloads of its namespace; none: all.
    fn selector(&self) -> Option<&WorkloadSelector>;

    /// Objects that it is for, in place of a selector.
    fn targets(&self) -> Vec<&PolicyTargetReference>;

    /// Returns true if it is for workloads of its own namespace, even in the root namespace.
    fn is_local(&self) -> bool {
        !self.targets().is_empty()
    }
}

impl PolicyKind for AuthorizationPolicy {
    fn selector(&self) -> Option<&WorkloadSelector> {
        self.selector.as_ref()
    }

    fn targets(&self) -> Vec<&PolicyTargetReference> {
        self.target_ref.iter().chain(&self.target_refs).collect()
    }
}

impl PolicyKind for PeerAuthentication {
    fn selector(&self) -> Option<&WorkloadSelector> {
        self.selector.as_ref()
    }

    fn targets(&self) -> Vec<&PolicyTargetReference> {
        Vec::new()
    }

    /// A policy with a selector is for workloads, and one of the root namespace says nothing of those of others.
    fn is_local(&self) -> bool {
        let mut selectors = self.selector.iter();
        selectors.any(|selector| !selector.match_labels.is_empty())
    }
}

impl PolicyKind for RequestAuthentication {
    fn selector(&self) -> Option<&WorkloadSelector> {
        self.selector.as_ref()
    }

    fn targets(&self) -> Vec<&PolicyTargetReference> {
        self.target_ref.iter().chain(&self.target_refs).collect()
    }
}

/// A policy with its selectors: it selects a workload if any of these label sets is a subset of the workload's labels.
#[derive(Debug)]
struct PolicyWithSelectors<T> {
    rule: Arc<Rule<T>>,
    any: Vec<Labels>,
    /// True if it is for workloads of its own namespace, even in the root namespace.
    is_local: bool,
}

/// Selectors of services, by name and namespace.
type Selectors<'a> = HashMap<(&'a str, &'a str), &'a Labels>;

/// Policies of one namespace, in order.
#[derive(Debug)]
struct NamespacePolicies<T> {
    all: Vec<PolicyWithSelectors<T>>,
    /// Places of those that select everybody.
    wide: Vec<usize>,
    /// Places of the others by their rarest label: each workload would be compared with all of them.
    by_label: HashMap<Arc<str>, HashMap<Arc<str>, Vec<usize>>>,
}

impl<T> NamespacePolicies<T> {
    fn new(mut all: Vec<PolicyWithSelectors<T>>) -> Self {
        all.sort_by(|one, other| one.rule.order(&other.rule));
        let mut counts: HashMap<(&Arc<str>, &Arc<str>), usize> = HashMap::new();
        for label in all.iter().flat_map(|one| &one.any).flatten() {
            *counts.entry(label).or_default() += 1;
        }
        let (mut wide, mut by_label) = (Vec::new(), HashMap::<_, HashMap<_, Vec<_>>>::new());
        for (at, one) in all.iter().enumerate() {
            for wanted in &one.any {
                let rarest = wanted.iter().min_by_key(|label| counts.get(label));
                let places = match rarest {
                    None => &mut wide,
                    Some((name, value)) => {
                        let of_name = by_label.entry(name.clone()).or_default();
                        of_name.entry(value.clone()).or_default()
                    }
                };
                places.push(at);
            }
        }
        drop(counts);
        Self {
            all,
            wide,
            by_label,
        }
    }

    /// Returns the policies that select a workload.
    fn selecting(&self, labels: &Labels) -> impl Iterator<Item = &PolicyWithSelectors<T>> {
        let of_label = |(name, value): (&Arc<str>, &Arc<str>)| self.by_label.get(name)?.get(value);
        let of_labels = labels.iter().filter_map(of_label).flatten();
        // Several selectors of a policy may find it: it counts once, in order.
        let places: BTreeSet<usize> = self.wide.iter().chain(of_labels).copied().collect();
        let policies = places.into_iter().filter_map(|at| self.all.get(at));
        policies.filter(|one| one.any.iter().any(|wanted| selects(wanted, labels)))
    }
}

type ByNamespace<T> = HashMap<Arc<str>, NamespacePolicies<T>>;

/// All policies of a world.
#[derive(Debug)]
pub(crate) struct Policies {
    root: Arc<str>,
    authorization: ByNamespace<AuthorizationPolicy>,
    requests: ByNamespace<RequestAuthentication>,
    peers: ByNamespace<PeerAuthentication>,
    /// The policies about mutual TLS as some proxies may still know them.
    earlier_peers: Vec<ByNamespace<PeerAuthentication>>,
    /// Conflicts of policies that name a service which is not there, or selects nobody.
    conflicts: Vec<Conflict>,
}

/// Policies about mutual TLS.
pub(crate) type PeerPolicies = Vec<Arc<Rule<PeerAuthentication>>>;

/// AuthorizationPolicies and RequestAuthentications that hold for one workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkloadPolicies {
    pub(crate) authorization: Vec<Arc<Rule<AuthorizationPolicy>>>,
    pub(crate) requests: Vec<Arc<Rule<RequestAuthentication>>>,
}

impl WorkloadPolicies {
    pub(crate) fn is_empty(&self) -> bool {
        self.authorization.is_empty() && self.requests.is_empty()
    }
}

impl Policies {
    pub(crate) fn new(world: &World) -> Self {
        let services = selectors(world);
        let peers = |all| {
            let mut all: ByNamespace<PeerAuthentication> = by_namespace(all, &services);
            // The oldest of those for a whole namespace counts: others would cost each workload their number.
            all.values_mut().for_each(|one| one.wide.truncate(1));
            all
        };
        Self {
            root: world.mesh.root_namespace.as_str().into(),
            authorization: by_namespace(&world.authorization_policies, &services),
            requests: by_namespace(&world.request_authentications, &services),
            peers: peers(&world.peer_authentications),
            earlier_peers: (world.earlier_peer_authentications.iter())
                .map(|earlier| peers(earlier))
                .collect(),
            conflicts: {
                let mut conflicts = without_workloads(world, &services);
                conflicts.extend(shadowed::peer_authentications(world));
                conflicts
            },
        }
    }

    pub(crate) fn conflicts(&self) -> impl Iterator<Item = &Conflict> {
        self.conflicts.iter()
    }

    /// The policies of a workload in this namespace and with these labels.
    pub(crate) fn of(&self, namespace: &Arc<str>, labels: &Labels) -> WorkloadPolicies {
        WorkloadPolicies {
            authorization: self.selected(&self.authorization, namespace, labels),
            requests: self.selected(&self.requests, namespace, labels),
        }
    }

    /// Policies about mutual TLS of a workload, as they are and as some proxies may still know them.
    pub(crate) fn peers(
        &self,
        namespace: &Arc<str>,
        labels: &Labels,
    ) -> (PeerPolicies, Vec<PeerPolicies>) {
        let of = |all| self.selected(all, namespace, labels);
        (of(&self.peers), self.earlier_peers.iter().map(of).collect())
    }

    /// The AuthorizationPolicies that hold for workloads with some labels.
    pub(crate) fn all_authorization(&self) -> impl Iterator<Item = &Rule<AuthorizationPolicy>> {
        let all = self.authorization.values().flat_map(|one| &one.all);
        all.map(|one| &*one.rule)
    }

    /// The PeerAuthentications of all workloads.
    pub(crate) fn all_peers(&self) -> impl Iterator<Item = &Rule<PeerAuthentication>> {
        let all = self.peers.values().flat_map(|one| &one.all);
        all.map(|one| &*one.rule)
    }

    /// Returns true if there is a PeerAuthentication, or one that some proxies may still know.
    pub(crate) fn has_peers(&self) -> bool {
        !self.peers.is_empty() || !self.earlier_peers.is_empty()
    }

    /// The PeerAuthentications whose selectors find a workload. Routers end the TLS that their Gateways say.
    pub(crate) fn peers_selecting(
        &self,
        namespace: &Arc<str>,
        of_workload: &Labels,
    ) -> impl Iterator<Item = SelectingRule> + use<> {
        let selected = self.selected(&self.peers, namespace, of_workload);
        selected.into_iter().filter_map(|rule| {
            let selector = rule.spec().selector.as_ref()?;
            let reason = (NOT_ENFORCED_AS_WRITTEN, PEERS_OF_ROUTERS);
            let selector = labels(&selector.match_labels);
            (!selector.is_empty()).then(|| SelectingRule::new(&rule, selector, reason))
        })
    }

    pub(crate) const fn root(&self) -> &Arc<str> {
        &self.root
    }

    /// The policies that select a workload, those of the root namespace first.
    fn selected<T>(
        &self,
        all: &ByNamespace<T>,
        namespace: &Arc<str>,
        labels: &Labels,
    ) -> Vec<Arc<Rule<T>>> {
        // Workloads of the root namespace have its policies once.
        let own = (*namespace != self.root).then_some(namespace);
        let namespaces = [Some(&self.root), own].into_iter().flatten();
        namespaces
            .filter_map(|namespace| all.get(namespace))
            .flat_map(|policies| policies.selecting(labels))
            .filter(|one| !one.is_local || *one.rule.namespace() == *namespace)
            .map(|one| one.rule.clone())
            .collect()
    }
}

/// Selectors of Kubernetes Services; empty if no policy has a `targetRef`.
fn selectors(world: &World) -> Selectors<'_> {
    let mut authorization = world.authorization_policies.values();
    let mut requests = world.request_authentications.values();
    let is_asked = authorization.any(|one| !one.spec.targets().is_empty())
        || requests.any(|one| !one.spec.targets().is_empty());
    let services = world.services.values().filter(|_| is_asked);
    let of_cluster = services.filter(|one| one.registry == Registry::Kubernetes);
    let all = of_cluster.filter_map(|service| {
        let (name, _) = service.key.hostname.split_once('.')?;
        Some(((name, &*service.key.namespace), &service.selector))
    });
    all.collect()
}

/// Labels of the workloads that a policy of a namespace is for. A policy for gateways of the Gateway API, or for waypoints, is
/// for none here, and one for a service is for the workloads behind it.
fn wanted<T: PolicyKind>(spec: &T, namespace: &str, services: &Selectors<'_>) -> Vec<Labels> {
    let targets = spec.targets();
    if targets.is_empty() {
        let selector = spec.selector();
        return vec![selector.map_or_else(Labels::new, |one| labels(&one.match_labels))];
    }
    let of_services = targets.into_iter().filter(|target| {
        let is_own = target.namespace.is_empty() || target.namespace == namespace;
        is_own && is_service(&target.group, &target.kind)
    });
    let selectors = of_services.filter_map(|target| services.get(&(&*target.name, namespace)));
    // A Service without a selector selects nobody, and as labels of a policy it would mean everybody.
    let selectors = selectors.filter(|selector| !selector.is_empty());
    selectors.map(|selector| (*selector).clone()).collect()
}

/// Tells of services that policies name, and that are not there or select nobody: a policy that keeps out keeps nothing from them.
fn without_workloads(world: &World, services: &Selectors<'_>) -> Vec<Conflict> {
    fn add<T: PolicyKind>(policy: &Configured<T>, services: &Selectors<'_>, lost: &mut Conflicts) {
        let targets = policy.spec.targets();
        let holds =
            !targets.is_empty() && !wanted(&policy.spec, &policy.namespace, services).is_empty();
        for target in targets {
            let is_own = target.namespace.is_empty() || *target.namespace == *policy.namespace;
            if !is_own || !is_service(&target.group, &target.kind) {
                continue;
            }
            let name = target.name.as_str();
            let why = match services.get(&(name, &*policy.namespace)) {
                Some(selector) if selector.is_empty() => "selects no workloads",
                Some(_) => continue,
                None => "is not there",
            };
            let from = ObjectRef {
                kind: T::NAME,
                namespace: policy.namespace.clone(),
                name: policy.name.clone(),
            };
            lost.push(NOT_ENFORCED_AS_WRITTEN, Some(&from), || {
                let what = match holds {
                    true => "holds for its other targets alone",
                    false => "holds for no workload",
                };
                let message = format!("{what}: the Service {name} of its namespace {why}");
                (from.to_string(), message)
            });
        }
    }
    let mut lost = Conflicts::default();
    for policy in world.authorization_policies.values() {
        add(policy, services, &mut lost);
    }
    for policy in world.request_authentications.values() {
        add(policy, services, &mut lost);
    }
    lost.finish()
}

fn by_namespace<T: PolicyKind>(objects: &Objects<T>, services: &Selectors<'_>) -> ByNamespace<T> {
    let mut all: HashMap<Arc<str>, Vec<_>> = HashMap::new();
    for object in objects.values() {
        let any = wanted(&object.spec, &object.namespace, services);
        if any.is_empty() {
            continue;
        }
        let one = PolicyWithSelectors {
            any,
            is_local: object.spec.is_local(),
            rule: Arc::new(Rule::new(object, Vec::new())),
        };
        all.entry(object.namespace.clone()).or_default().push(one);
    }
    let all = all.into_iter();
    all.map(|(namespace, policies)| (namespace, NamespacePolicies::new(policies)))
        .collect()
}
