//! All rules of a world, and who sees which of them and of its services.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use api::model::{Labels, ObjectRef, ServiceKey, World, selects};
use api::networking::Sidecar;

use super::export_to::named;
use super::exported::{Exported, ExportedObjects};
use super::gateways::Gateways;
use super::hosts::is_of;
use super::selecting::SelectingRule;
use super::sidecar::{Sidecars, narrows};
use super::visibility::{Visible, sources};
use super::world_ports::WorldPorts;
use super::{OutboundTrafficPolicy, ProxyRules, Rule, Scope, shadowed, virtual_service_delegates};
use crate::common::conflict::{Conflict, Conflicts};
use crate::common::conflict_pool::{ConflictPool, SharedConflicts};
use crate::settings::Settings;

/// All rules of a world.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) exported: ExportedObjects,
    sidecars: Sidecars,
    gateways: Gateways,
    /// A router listens for those of its own namespace alone.
    gateways_of_own_namespace: bool,
    /// Namespaces that rules or services tell from others.
    special: BTreeSet<Arc<str>>,
    /// Parts of rules that come to nothing, whoever sees them.
    left_out: Vec<Conflict>,
    /// Services of which something is left out as long as they have no endpoints.
    idle_without_endpoints: HashSet<ServiceKey>,
    /// The mesh's target of requests and connections to no known service.
    unknown: OutboundTrafficPolicy,
    /// The views: one for each special namespace and one for all others, and one more for each Sidecar that holds there.
    visible: Mutex<HashMap<VisibilityKey, Arc<Visible>>>,
}

/// A namespace that is told from others, and the Sidecar that holds.
type VisibilityKey = (Option<Arc<str>>, Option<ObjectRef>);

impl Rules {
    /// `conflict_pool`: of all that is made of this world, and of those before.
    pub(crate) fn new(
        world: &World,
        settings: &Settings,
        conflict_pool: &Arc<ConflictPool>,
    ) -> Self {
        let mesh = &world.mesh;
        let mut rules = Self {
            exported: ExportedObjects::new(world, settings, conflict_pool.clone()),
            sidecars: Sidecars::new(world),
            gateways: Gateways::new(world),
            gateways_of_own_namespace: settings.gateways_of_own_namespace,
            unknown: OutboundTrafficPolicy::of_mesh(mesh),
            special: BTreeSet::new(),
            left_out: Vec::new(),
            idle_without_endpoints: HashSet::new(),
            visible: Mutex::default(),
        };
        // Delegates come first: `idle_routes` leaves the matches of rules that have some alone.
        rules.left_out = virtual_service_delegates::resolve(
            &mut rules.exported.virtual_services,
            &settings.domain,
        );
        let ports = WorldPorts::new(world, &rules.exported.services);
        let lost = rules.exported.idle_routes(&ports);
        rules.left_out.extend(lost);
        let idle = rules
            .exported
            .idle_policies(&ports, world, settings.headless.eds);
        rules.left_out.extend(idle.lost);
        rules.idle_without_endpoints = idle.by_endpoints;
        rules.left_out.extend(shadowed::sidecars(world));
        let destination_rules = &rules.exported.destination_rules;
        rules
            .left_out
            .extend(shadowed::destination_rules(destination_rules));
        rules.special = rules.special(world);
        rules
    }

    fn special(&self, world: &World) -> BTreeSet<Arc<str>> {
        let mut special: BTreeSet<Arc<str>> = self.sidecars.namespaces().cloned().collect();
        // `./` in a Sidecar for all is each namespace's own: one that owns something is told from others.
        if self.sidecars.means_own(&self.exported.root) {
            let services = world.services.keys().map(|key| &key.namespace);
            let rules = world
                .virtual_services
                .keys()
                .map(|(namespace, _)| namespace);
            special.extend(services.chain(rules).cloned());
        }
        for service in world.services.values() {
            special.extend(named(&self.exported.audience(service)));
        }
        for Exported { rule, to } in &self.exported.virtual_services {
            special.extend(named(to));
            let matches = rule.spec().http.iter().flat_map(|http| &http.r#match);
            let namespaces = matches.map(|one| one.source_namespace.as_str());
            let of_connections = sources(rule.spec()).map(|(_, namespace)| namespace.as_str());
            let namespaces = namespaces.chain(of_connections);
            special.extend(namespaces.filter(|one| !one.is_empty()).map(Arc::from));
        }
        let services = &self.exported.services;
        let everything = services.visible_to(|_| true, &mut Conflicts::default());
        for Exported { rule, to } in &self.exported.destination_rules {
            special.extend(named(to));
            // For its own namespace it comes before what the host's namespace says; one of the root namespace does so for none.
            let mut hosts = rule.hosts.iter();
            let is_of_others = !hosts.all(|host| is_of(host, rule.namespace(), &everything));
            let comes_first = is_of_others && *rule.namespace() != self.exported.root;
            if comes_first || rule.spec().workload_selector.is_some() {
                special.insert(rule.namespace().clone());
            }
        }
        special
    }

    /// Returns true if some of a rule does nothing as long as a service has no endpoints.
    pub(crate) fn is_idle_without_endpoints(&self, service: &ServiceKey) -> bool {
        self.idle_without_endpoints.contains(service)
    }

    /// Returns true if listeners of services without requests may take connections to this address, for any proxy.
    pub(crate) fn may_take(&self, address: IpAddr, port: u16) -> bool {
        self.exported.services.may_take(address, port)
    }

    /// The rules of a proxy in this namespace. `labels`: its workload's, and those that its node declares; Sidecars and Gateways
    /// may select by either.
    pub(crate) fn of(
        &self,
        namespace: &Arc<str>,
        labels: [&Labels; 2],
        is_sidecar: bool,
    ) -> ProxyRules {
        let sidecar = self.sidecars.of(namespace, &self.exported.root, &labels);
        let sidecar = sidecar.filter(|_| is_sidecar);
        let narrow = sidecar.filter(|sidecar| narrows(sidecar.spec()));
        let gateways = match is_sidecar {
            true => Arc::default(),
            false => {
                let own = self.gateways_of_own_namespace;
                self.gateways.of(namespace, &labels, own)
            }
        };
        let namespace = self.special.get(namespace).cloned();
        let visible = self.visible(namespace.as_ref(), narrow);
        let [of_workload, _] = labels;
        let selectors = visible.selectors.iter().enumerate();
        let met = selectors.filter(|(at, selector)| {
            let counts = !is_sidecar || !visible.of_routers.contains(at);
            counts && selects(selector, of_workload)
        });
        let selected: Arc<[usize]> = met.map(|(at, _)| at).collect();
        let of_clusters = selected
            .iter()
            .filter(|at| visible.of_clusters.contains(at));
        let from = narrow.map(|sidecar| sidecar.from.clone());
        let of_listeners = selected
            .iter()
            .filter(|at| visible.of_listeners.contains(at));
        let listeners = Scope {
            // Only where its listeners differ: all other namespaces share theirs.
            namespace: namespace.clone().filter(|_| visible.has_own_listeners),
            sidecar: from.clone(),
            selected: of_listeners.copied().collect(),
            ..Scope::default()
        };
        ProxyRules {
            listeners,
            clusters: Scope {
                namespace: namespace.clone(),
                sidecar: from.clone(),
                selected: of_clusters.copied().collect(),
                ..Scope::default()
            },
            scope: Scope {
                namespace,
                sidecar: from,
                selected,
                gateways: gateways.iter().map(|one| one.from.clone()).collect(),
                ..Scope::default()
            },
            gateways,
            sidecar: sidecar.map(|sidecar| sidecar.object.clone()),
            patches: Arc::default(),
            unknown: visible.unknown.as_ref().unwrap_or(&self.unknown).clone(),
            visibility: visible.whole.clone(),
            visible,
            domain: self.exported.domain.clone(),
            root: self.exported.root.clone(),
        }
    }

    /// The Sidecars whose selectors find a workload of a namespace. `labels`: as of [`Self::of`].
    pub(crate) fn sidecars_selecting<'a>(
        &'a self,
        namespace: &str,
        labels: [&'a Labels; 2],
    ) -> impl Iterator<Item = SelectingRule> + use<'a> {
        self.sidecars.selecting(namespace, labels)
    }

    /// The view of proxies whose namespace nothing tells from others.
    pub(crate) fn common(&self) -> Arc<Visible> {
        self.visible(None, None)
    }

    fn visible(
        &self,
        namespace: Option<&Arc<str>>,
        sidecar: Option<&Arc<Rule<Sidecar>>>,
    ) -> Arc<Visible> {
        let of = sidecar.map(|sidecar| sidecar.from.clone());
        let class: VisibilityKey = (namespace.cloned(), of);
        let lock = || self.visible.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(visible) = lock().get(&class) {
            return visible.clone();
        }
        // One for all namespaces may mean the same in several.
        let is_shared = sidecar.is_none_or(|sidecar| **sidecar.namespace() == *self.exported.root);
        let common = namespace.filter(|_| is_shared);
        let common = common.map(|_| self.visible(None, sidecar));
        // Made without the lock: this function calls itself, and the first of two threads counts.
        let visibility = match sidecar {
            None => Visible::new(&self.exported, namespace, common.as_deref()),
            Some(sidecar) => {
                let all = self.visible(namespace, None);
                let own = !is_shared;
                let mut visibility =
                    all.through(&self.exported, sidecar, namespace, common.as_deref());
                visibility.has_own_listeners |= own;
                visibility
            }
        };
        let visibility = Arc::new(visibility);
        lock().entry(class).or_insert(visibility).clone()
    }

    /// Returns the conflicts of services and rules that others keep from having an effect, as far as a proxy has asked for them.
    pub(crate) fn conflicts(&self) -> Vec<SharedConflicts> {
        let all = self.visible.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.values();
        all.map(|visible| visible.conflicts.clone()).collect()
    }

    /// Returns the conflicts that all proxies share, also before one connects.
    pub(crate) fn common_conflicts(&self) -> Vec<Conflict> {
        let common = self.common();
        let conflicts = common.conflicts.iter().map(|conflict| &**conflict);
        conflicts.chain(&self.left_out).cloned().collect()
    }
}
