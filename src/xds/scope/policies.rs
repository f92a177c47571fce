//! Policies of workloads: those of the root namespace hold for all, others for workloads of their own namespace, each for
//! those that its selector finds. They say what a proxy lets in, so nothing that proxies share depends on them.

use std::collections::HashMap;
use std::sync::Arc;

use api::model::{Labels, Objects, World, selects};
use api::networking::Kind;
use api::security::{AuthorizationPolicy, WorkloadSelector};

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
}

/// Those that hold for one workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkloadPolicies {
    pub(crate) authorization: Vec<Arc<Rule<AuthorizationPolicy>>>,
}

impl Policies {
    pub(crate) fn new(world: &World) -> Self {
        Self {
            root: world.mesh.root_namespace.as_str().into(),
            authorization: by_namespace(&world.authorization_policies),
        }
    }

    /// Those of a workload in this namespace and with these labels.
    pub(crate) fn of(&self, namespace: &Arc<str>, labels: &Labels) -> WorkloadPolicies {
        WorkloadPolicies {
            authorization: self.selected(&self.authorization, namespace, labels),
        }
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
