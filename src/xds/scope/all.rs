//! All rules of a world, and who sees which of them and of its services.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use api::model::{Labels, ObjectRef, Objects, Service, World, selects};
use api::networking::{DestinationRule, Kind, VirtualService};

use super::audience::{Audience, named};
use super::hosts::{full_host, is_of};
use super::visible::Visible;
use super::{ProxyRules, Rule, Scope};
use crate::common::conflict::Conflict;
use crate::common::outlets::Outlets;
use crate::settings::Settings;

/// All rules of a world.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(super) virtual_services: Vec<Exported<VirtualService>>,
    pub(super) destination_rules: Vec<Exported<DestinationRule>>,
    /// None of their ports is seen: they are what scopes choose from.
    pub(super) services: Outlets,
    /// Namespaces that see services which do not say so themselves.
    usual_audience: Vec<String>,
    domain: Arc<str>,
    root: Arc<str>,
    /// Namespaces that rules or services tell from others.
    special: BTreeSet<Arc<str>>,
    /// As many as there are of those, and one.
    visible: Mutex<HashMap<Option<Arc<str>>, Arc<Visible>>>,
}

/// A rule with those that see it.
#[derive(Debug)]
pub(super) struct Exported<T> {
    pub(super) rule: Arc<Rule<T>>,
    pub(super) to: Audience,
}

impl Rules {
    pub(crate) fn new(world: &World, settings: &Settings) -> Self {
        let mesh = &world.mesh;
        let mut rules = Self {
            virtual_services: exported(
                &world.virtual_services,
                &settings.domain,
                &mesh.default_virtual_service_export_to,
                |spec| (&spec.hosts, &spec.export_to),
            ),
            destination_rules: exported(
                &world.destination_rules,
                &settings.domain,
                &mesh.default_destination_rule_export_to,
                |spec| (std::slice::from_ref(&spec.host), &spec.export_to),
            ),
            services: Outlets::index(world, settings),
            usual_audience: mesh.default_service_export_to.clone(),
            domain: settings.domain.clone(),
            root: mesh.root_namespace.as_str().into(),
            special: BTreeSet::new(),
            visible: Mutex::default(),
        };
        rules.special = rules.special(world);
        rules
    }

    fn special(&self, world: &World) -> BTreeSet<Arc<str>> {
        let mut special = BTreeSet::new();
        for service in world.services.values() {
            special.extend(named(&self.audience(service)));
        }
        for Exported { rule, to } in &self.virtual_services {
            special.extend(named(to));
            let matches = rule.spec().http.iter().flat_map(|http| &http.r#match);
            let namespaces = matches.map(|one| one.source_namespace.as_str());
            special.extend(namespaces.filter(|one| !one.is_empty()).map(Arc::from));
        }
        let everything = self.services.seeing(|_| true);
        for Exported { rule, to } in &self.destination_rules {
            special.extend(named(to));
            // For its own namespace it comes before what the host's namespace says.
            if !rule
                .hosts
                .iter()
                .all(|host| is_of(host, rule.namespace(), &everything))
            {
                special.insert(rule.namespace().clone());
            }
            if rule.spec().workload_selector.is_some() {
                special.insert(rule.namespace().clone());
            }
        }
        special
    }

    fn audience(&self, service: &Service) -> Audience {
        Audience::of(
            &service.exported_to,
            &self.usual_audience,
            &service.key.namespace,
        )
    }

    /// Whether proxies of a namespace see a service.
    pub(super) fn is_seen(&self, service: &Service, namespace: Option<&Arc<str>>) -> bool {
        self.audience(service).has(namespace)
    }

    /// Those of a proxy in this namespace and with these labels.
    pub(crate) fn of(&self, namespace: &Arc<str>, labels: &Labels) -> ProxyRules {
        let namespace = self.special.get(namespace).cloned();
        let visible = self.visible(namespace.as_ref());
        let selectors = visible.selectors.iter().enumerate();
        let met = selectors.filter(|(_, selector)| selects(selector, labels));
        let selected: Arc<[usize]> = met.map(|(at, _)| at).collect();
        let of_clusters = selected
            .iter()
            .filter(|at| visible.of_clusters.contains(at));
        let listeners = Scope {
            namespace: namespace.clone().filter(|_| visible.has_own_services),
            selected: Arc::default(),
        };
        ProxyRules {
            listeners,
            clusters: Scope {
                namespace: namespace.clone(),
                selected: of_clusters.copied().collect(),
            },
            scope: Scope {
                namespace,
                selected,
            },
            visible,
            domain: self.domain.clone(),
            root: self.root.clone(),
        }
    }

    /// All of one kind, whoever sees them.
    pub(crate) fn all_destination_rules(&self) -> impl Iterator<Item = &DestinationRule> {
        self.destination_rules.iter().map(|one| one.rule.spec())
    }

    /// What proxies see that nothing tells from others.
    pub(crate) fn common(&self) -> Arc<Visible> {
        self.visible(None)
    }

    fn visible(&self, namespace: Option<&Arc<str>>) -> Arc<Visible> {
        let mut all = self.visible.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(visible) = all.get(&namespace.cloned()) {
            return visible.clone();
        }
        let common = all
            .entry(None)
            .or_insert_with(|| Arc::new(Visible::new(self, None, None)));
        let Some(namespace) = namespace else {
            return common.clone();
        };
        let visible = Arc::new(Visible::new(self, Some(namespace), Some(&**common)));
        all.insert(Some(namespace.clone()), visible.clone());
        visible
    }

    /// Services and rules that others keep from having an effect, as far as somebody has looked.
    pub(crate) fn conflicts(&self) -> Vec<Conflict> {
        drop(self.common());
        let all = self.visible.lock().unwrap_or_else(PoisonError::into_inner);
        let conflicts = all.values().flat_map(|visible| {
            let of_services = visible.outlets.conflicts.iter();
            of_services.chain(&visible.conflicts)
        });
        conflicts.cloned().collect()
    }
}

fn exported<T: Kind>(
    objects: &Objects<T>,
    domain: &str,
    usual: &[String],
    parts: impl Fn(&T) -> (&[String], &[String]),
) -> Vec<Exported<T>> {
    let all = objects.values().map(|object| {
        let (hosts, to) = parts(&object.spec);
        let hosts = hosts.iter();
        let hosts = hosts.map(|host| full_host(host, &object.namespace, domain));
        Exported {
            to: Audience::of(to, usual, &object.namespace),
            rule: Arc::new(Rule {
                object: object.clone(),
                from: ObjectRef {
                    kind: T::NAME,
                    namespace: object.namespace.clone(),
                    name: object.name.clone(),
                },
                hosts: hosts.collect(),
            }),
        }
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by(|one, other| one.rule.order(&other.rule));
    all
}
