//! Policies of workloads: those of the root namespace hold for all, others for workloads of their own namespace, each for
//! those that its selector finds. They say what a proxy lets in, so nothing that proxies share depends on them.

use std::collections::HashMap;
use std::sync::Arc;

use api::model::{Labels, Objects, World, selects};
use api::networking::Kind;
use api::security::{
    AuthorizationPolicy, PeerAuthentication, RequestAuthentication, WorkloadSelector,
};

use super::{Rule, labels};

/// A kind of policy.
trait Policy: Kind {
    /// Workloads of its namespace; none: all.
    fn selector(&self) -> Option<&WorkloadSelector>;

    /// Whether it is for gateways or services that it names, and for no sidecar.
    fn is_for_others(&self) -> bool;
}

impl Policy for AuthorizationPolicy {
    fn selector(&self) -> Option<&WorkloadSelector> {
        self.selector.as_ref()
    }

    fn is_for_others(&self) -> bool {
        self.target_ref.is_some() || !self.target_refs.is_empty()
    }
}

impl Policy for PeerAuthentication {
    fn selector(&self) -> Option<&WorkloadSelector> {
        self.selector.as_ref()
    }

    fn is_for_others(&self) -> bool {
        false
    }
}

impl Policy for RequestAuthentication {
    fn selector(&self) -> Option<&WorkloadSelector> {
        self.selector.as_ref()
    }

    fn is_for_others(&self) -> bool {
        self.target_ref.is_some() || !self.target_refs.is_empty()
    }
}

/// A policy, and the labels of those that it is for.
#[derive(Debug)]
struct Selecting<T> {
    rule: Arc<Rule<T>>,
    labels: Labels,
}

/// In order.
type ByNamespace<T> = HashMap<Arc<str>, Vec<Selecting<T>>>;

/// All policies of a world.
#[derive(Debug)]
pub(crate) struct Policies {
    root: Arc<str>,
    authorization: ByNamespace<AuthorizationPolicy>,
    requests: ByNamespace<RequestAuthentication>,
    peers: ByNamespace<PeerAuthentication>,
    /// As some proxies may still know them.
    earlier_peers: Vec<ByNamespace<PeerAuthentication>>,
}

/// Policies about mutual TLS.
pub(crate) type PeerPolicies = Vec<Arc<Rule<PeerAuthentication>>>;

/// Those that hold for one workload.
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
        Self {
            root: world.mesh.root_namespace.as_str().into(),
            authorization: by_namespace(&world.authorization_policies),
            requests: by_namespace(&world.request_authentications),
            peers: by_namespace(&world.peer_authentications),
            earlier_peers: (world.earlier_peer_authentications.iter())
                .map(|earlier| by_namespace(earlier))
                .collect(),
        }
    }

    /// Those of a workload in this namespace and with these labels.
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

    /// Of all workloads, as they are or were.
    pub(crate) fn all_peers(&self) -> impl Iterator<Item = &PeerAuthentication> {
        let all = self.earlier_peers.iter().chain([&self.peers]);
        let all = all.flat_map(HashMap::values).flatten();
        all.map(|one| one.rule.spec())
    }

    /// Whether any policy says something of mutual TLS, or did.
    pub(crate) fn has_peers(&self) -> bool {
        !self.peers.is_empty() || !self.earlier_peers.is_empty()
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Those of the root namespace come first.
    fn selected<T>(
        &self,
        all: &ByNamespace<T>,
        namespace: &Arc<str>,
        labels: &Labels,
    ) -> Vec<Arc<Rule<T>>> {
        let own = (*namespace != self.root).then_some(namespace);
        let namespaces = [Some(&self.root), own].into_iter().flatten();
        namespaces
            .filter_map(|namespace| all.get(namespace))
            .flatten()
            .filter(|one| selects(&one.labels, labels))
            .map(|one| one.rule.clone())
            .collect()
    }
}

fn by_namespace<T: Policy>(objects: &Objects<T>) -> ByNamespace<T> {
    let mut all = ByNamespace::<T>::new();
    for object in objects.values() {
        if object.spec.is_for_others() {
            continue;
        }
        let selector = object.spec.selector();
        let one = Selecting {
            labels: selector.map_or_else(Labels::new, |one| labels(&one.match_labels)),
            rule: Arc::new(Rule::new(object, Vec::new())),
        };
        all.entry(object.namespace.clone()).or_default().push(one);
    }
    for policies in all.values_mut() {
        policies.sort_by(|one, other| one.rule.order(&other.rule));
    }
    all
}
