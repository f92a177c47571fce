//! Services and rules that one proxy sees: [`Rules`] holds all of a world, [`ProxyRules`] those of a proxy, and [`Scope`] is what
//! proxies that see the same have in common: the key of what is made for them.
//!
//! A namespace is told from others only where something tells it from them: where it owns services or rules that others do not
//! see, where one is exported to it by name, where its own rules for a host of elsewhere come before that host's. All other
//! namespaces have one scope, and share all bytes. So there are as many scopes as the mesh has need of, whatever clients say.

mod all;
mod audience;
mod hosts;
pub(crate) mod policies;
mod visible;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::{Configured, Labels, ObjectRef, Service};
use api::networking::{DestinationRule, VirtualService};

pub(crate) use self::all::Rules;
use self::hosts::{full_host, most_specific, patterns};
use self::visible::Visible;
use crate::common::outlets::Outlets;

/// The gateway that stands for all sidecars.
const MESH: &str = "mesh";

/// What proxies with the same rules have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// Where rules tell the proxy's namespace from others.
    namespace: Option<Arc<str>>,
    /// Those of [`Visible::selectors`] that the proxy's labels meet, by their places.
    selected: Arc<[usize]>,
}

/// An object, and how it is named.
#[derive(Debug)]
pub(crate) struct Rule<T> {
    pub(crate) object: Arc<Configured<T>>,
    pub(crate) from: ObjectRef,
    /// In full and in lower case.
    hosts: Vec<String>,
}

impl<T> Rule<T> {
    pub(crate) fn spec(&self) -> &T {
        &self.object.spec
    }

    pub(crate) fn namespace(&self) -> &Arc<str> {
        &self.object.namespace
    }

    /// The older one comes first, then by name and by namespace.
    fn order(&self, other: &Self) -> Ordering {
        let key = |rule: &Self| {
            let object = &rule.object;
            (
                object.created,
                object.name.clone(),
                object.namespace.clone(),
            )
        };
        key(self).cmp(&key(other))
    }
}

/// What one proxy sees, and the rules that hold for it.
#[derive(Clone, Debug)]
pub(crate) struct ProxyRules {
    pub(crate) scope: Scope,
    /// The same without what makes no difference to clusters.
    pub(crate) clusters: Scope,
    /// And to listeners.
    pub(crate) listeners: Scope,
    visible: Arc<Visible>,
    domain: Arc<str>,
    root: Arc<str>,
}

impl ProxyRules {
    /// Ports of the services that it sees.
    pub(crate) fn outlets(&self) -> &Outlets {
        &self.visible.outlets
    }

    /// The rule with the most specific host that means this one.
    pub(crate) fn virtual_service(&self, host: &str) -> Option<&Arc<Rule<VirtualService>>> {
        most_specific(&self.visible.virtual_services, host)
    }

    /// Hosts that no service has, sorted, with their rules.
    pub(crate) fn hosts_alone(&self) -> impl Iterator<Item = (&str, &Arc<Rule<VirtualService>>)> {
        let all = self.visible.virtual_services.iter();
        all.filter(|(host, _)| !self.outlets().has_host(host))
            .map(|(host, rule)| (host.as_str(), rule))
    }

    /// Rules for connections to a service, in order: those of the proxy's namespace, else of the service's, else of the root
    /// namespace.
    pub(crate) fn destination_rules(&self, service: &Service) -> Vec<Arc<Rule<DestinationRule>>> {
        let all = &self.visible.destination_rules;
        if all.is_empty() {
            return Vec::new();
        }
        let host = service.key.hostname.to_ascii_lowercase();
        let own = self.scope.namespace.as_ref();
        let levels = [own, Some(&service.key.namespace), Some(&self.root)];
        let rules = levels.into_iter().flatten().find_map(|namespace| {
            let mut hosts = patterns(&host).into_iter();
            let of = all.get(namespace)?;
            hosts.find_map(|pattern| {
                let mut rules = of.get(pattern.as_str())?.clone();
                rules.retain(|rule| self.is_selected(rule, namespace));
                (!rules.is_empty()).then_some(rules)
            })
        });
        rules.unwrap_or_default()
    }

    /// A rule may be for some workloads of its own namespace alone.
    fn is_selected(&self, rule: &Rule<DestinationRule>, namespace: &Arc<str>) -> bool {
        match &rule.spec().workload_selector {
            None => true,
            Some(selector) => {
                Some(namespace) == self.scope.namespace.as_ref()
                    && self.meets(&selector.match_labels)
            }
        }
    }

    /// Whether the proxy has these labels.
    pub(crate) fn meets(&self, wanted: &BTreeMap<String, String>) -> bool {
        let wanted = labels(wanted);
        let at = self.visible.selectors.binary_search(&wanted);
        wanted.is_empty() || at.is_ok_and(|at| self.scope.selected.binary_search(&at).is_ok())
    }

    /// Whether the proxy is in this namespace.
    pub(crate) fn is_in(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.scope.namespace.as_deref() == Some(namespace)
    }

    /// The full name of a host that a rule of a namespace writes.
    pub(crate) fn full_host(&self, host: &str, namespace: &str) -> String {
        full_host(host, namespace, &self.domain)
    }
}

/// Whether a rule, or one of its matches, holds for sidecars.
pub(crate) fn is_of_mesh(gateways: &[String]) -> bool {
    gateways.is_empty() || gateways.iter().any(|one| one == MESH)
}

fn labels(written: &BTreeMap<String, String>) -> Labels {
    let pairs = written.iter();
    pairs
        .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
        .collect()
}
