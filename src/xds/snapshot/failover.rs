//! Labels by which clients prefer endpoints that have the same: as many of a client's own count as a rule or the mesh names, and
//! no others, so that proxies share what is made for them however else they are labelled.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use api::config::discovery_notes::MAX_FAILOVER_LABELS;
use api::model::{Labels, World};

use crate::resources::locality::{EndpointTopology, TOPOLOGY_LABELS, is_on, named_label};
use crate::resources::proxy::Proxy;
use crate::rules::destination_rule::failover_labels;
use crate::scope::{Rules, patterns};

/// Names of labels, as settings have them.
#[derive(Debug, Default)]
pub(super) struct FailoverLabels {
    /// A setting lists labels, be it only with values of its own.
    is_used: bool,
    names: BTreeSet<Arc<str>>,
    /// True if the labels matter to names that proxies resolve, and so to clusters.
    pub(super) are_resolved: bool,
}

impl FailoverLabels {
    pub(super) fn new(rules: &Rules, world: &World) -> Self {
        let mut labels = Self::default();
        let mut hosts: HashSet<&str> = HashSet::new();
        for (of, rule) in rules.exported.hosts_of_destination_rules() {
            // `add` tells by `is_used` whether this very rule lists labels.
            let before = labels.is_used;
            labels.is_used = false;
            labels.add(failover_labels(rule));
            if labels.is_used {
                hosts.extend(of.iter().map(String::as_str));
            }
            labels.is_used |= before;
        }
        let of_mesh = world.mesh.locality_lb_setting.as_ref();
        let of_mesh = of_mesh.map_or(&[][..], |setting| &setting.failover_priority);
        let of_mesh = of_mesh.iter().take(MAX_FAILOVER_LABELS);
        let is_of_mesh = of_mesh.len() > 0;
        labels.add(of_mesh.map(String::as_str));
        if labels.is_used {
            let mut services = world.services.values();
            labels.are_resolved = services.any(|service| {
                let is_meant = || {
                    let host = service.key.hostname.to_ascii_lowercase();
                    let mut patterns = patterns(&host).into_iter();
                    patterns.any(|pattern| hosts.contains(pattern.as_str()))
                };
                service.resolution.is_dns() && (is_of_mesh || is_meant())
            });
        }
        labels
    }

    fn add<'a>(&mut self, written: impl Iterator<Item = &'a str>) {
        for label in written {
            self.is_used = true;
            self.names.extend(named_label(label).map(Arc::from));
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        !self.is_used
    }

    /// The labels of a client that count, with those that its place gives.
    pub(super) fn labels_of(&self, proxy: &Proxy) -> Labels {
        if self.names.is_empty() {
            return Labels::new();
        }
        let topology = EndpointTopology {
            cluster: Some(&proxy.cluster),
            network: &proxy.network,
            locality: &proxy.locality,
            labels: Some(&proxy.labels),
        };
        let own = proxy.labels.keys().map(|name| &**name);
        let all = own.chain(TOPOLOGY_LABELS);
        let named = all.filter_map(|name| self.names.get(name));
        let labels = named.map(|name| (name.clone(), topology.label(name).into()));
        let labels = labels.filter(|(_, value): &(_, Arc<str>)| !value.is_empty());
        labels.collect()
    }

    /// Returns the labels that count of these, without those that a place gives.
    pub(super) fn counting(&self, labels: &Labels) -> Labels {
        let all = labels.iter().filter(|(name, _)| self.names.contains(*name));
        all.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// Returns true if names that proxies resolve have several localities, and it matters which is near.
pub(super) fn resolved_near(world: &World) -> bool {
    let setting = world.mesh.locality_lb_setting.as_ref();
    let of_mesh = setting.is_some_and(is_on);
    world.services.values().any(|service| {
        let near = service.resolution.is_dns() && (of_mesh || service.prefers_close);
        let mut endpoints = world.endpoints_of(&service.key);
        let first = endpoints.next().filter(|_| near);
        first.is_some_and(|(_, first)| endpoints.any(|(_, other)| other.locality != first.locality))
    })
}
