//! Rules that one proxy sees: [`Rules`] holds all of a world, [`ProxyRules`] those that hold for a proxy, and [`Scope`] is what
//! proxies with the same rules have in common: the key of what is made by them.
//!
//! A namespace is told from others only where a rule tells it from them: where it owns rules that others do not see, where a
//! rule is exported to it by name, where its own rules for a host of elsewhere come before that host's. All other namespaces
//! have one scope, and share all bytes. So there are as many scopes as the rules have need of, whatever clients say.

mod audience;
mod hosts;
pub(crate) mod policies;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use api::model::{Configured, Labels, ObjectRef, Objects, Service, World, selects};
use api::networking::{DestinationRule, Kind, VirtualService};

use self::audience::{Audience, named};
use self::hosts::{full_host, is_of, most_specific, patterns};
use crate::common::conflict::{Conflict, DUPLICATE_DOMAIN};
use crate::common::outlets::Outlets;
use crate::settings::Settings;

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
    pub(crate) fn order(&self, other: &Self) -> Ordering {
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

/// All rules of a world.
#[derive(Debug)]
pub(crate) struct Rules {
    virtual_services: Vec<Exported<VirtualService>>,
    destination_rules: Vec<Exported<DestinationRule>>,
    domain: Arc<str>,
    root: Arc<str>,
    /// Namespaces that rules tell from others.
    special: BTreeSet<Arc<str>>,
    /// As many as there are of those, and one.
    visible: Mutex<HashMap<Option<Arc<str>>, Arc<Visible>>>,
}

/// A rule with those that see it.
#[derive(Debug)]
struct Exported<T> {
    rule: Arc<Rule<T>>,
    to: Audience,
}

/// Rules of one namespace by their host, each list in order.
type ByHost = BTreeMap<String, Vec<Arc<Rule<DestinationRule>>>>;

/// Rules by what they are for, as one class of namespaces sees them.
#[derive(Debug, Default)]
struct Visible {
    /// For sidecars, by host; of two with one host the older.
    virtual_services: BTreeMap<String, Arc<Rule<VirtualService>>>,
    /// By their own namespace.
    destination_rules: HashMap<Arc<str>, ByHost>,
    /// Labels that rules ask proxies for, sorted.
    selectors: Vec<Labels>,
    /// Places of those that DestinationRules ask for: clusters depend on no others.
    of_clusters: BTreeSet<usize>,
    conflicts: Vec<Conflict>,
}

impl Rules {
    pub(crate) fn new(world: &World, outlets: &Outlets, settings: &Settings) -> Self {
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
            domain: settings.domain.clone(),
            root: mesh.root_namespace.as_str().into(),
            special: BTreeSet::new(),
            visible: Mutex::default(),
        };
        rules.special = rules.special(outlets);
        rules
    }

    fn special(&self, outlets: &Outlets) -> BTreeSet<Arc<str>> {
        let mut special = BTreeSet::new();
        for Exported { rule, to } in &self.virtual_services {
            special.extend(named(to));
            let matches = rule.spec().http.iter().flat_map(|http| &http.r#match);
            let namespaces = matches.map(|one| one.source_namespace.as_str());
            special.extend(namespaces.filter(|one| !one.is_empty()).map(Arc::from));
        }
        for Exported { rule, to } in &self.destination_rules {
            special.extend(named(to));
            // For its own namespace it comes before what the host's namespace says.
            if !rule
                .hosts
                .iter()
                .all(|host| is_of(host, rule.namespace(), outlets))
            {
                special.insert(rule.namespace().clone());
            }
            if rule.spec().workload_selector.is_some() {
                special.insert(rule.namespace().clone());
            }
        }
        special
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
        ProxyRules {
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

    /// Those of a proxy that no rule tells from others.
    pub(crate) fn common(&self) -> ProxyRules {
        ProxyRules {
            scope: Scope::default(),
            clusters: Scope::default(),
            visible: self.visible(None),
            domain: self.domain.clone(),
            root: self.root.clone(),
        }
    }

    /// All of one kind, whoever sees them.
    pub(crate) fn all_destination_rules(&self) -> impl Iterator<Item = &DestinationRule> {
        self.destination_rules.iter().map(|one| one.rule.spec())
    }

    fn visible(&self, namespace: Option<&Arc<str>>) -> Arc<Visible> {
        let mut all = self.visible.lock().unwrap_or_else(PoisonError::into_inner);
        let visible = all
            .entry(namespace.cloned())
            .or_insert_with(|| Arc::new(self.seen_by(namespace)));
        visible.clone()
    }

    fn seen_by(&self, namespace: Option<&Arc<str>>) -> Visible {
        let mut visible = Visible::default();
        let (mut selectors, mut of_clusters) = (BTreeSet::new(), BTreeSet::new());
        let seen = self.virtual_services.iter();
        for Exported { rule, .. } in seen.filter(|one| one.to.has(namespace)) {
            let spec = rule.spec();
            if !is_of_mesh(&spec.gateways) || spec.http.is_empty() {
                continue;
            }
            for host in &rule.hosts {
                if let Some(older) = visible.virtual_services.get(host) {
                    // Some write a host twice, in full and in short.
                    if older.from == rule.from {
                        continue;
                    }
                    let message = format!("{} is left out: {} is older", rule.from, older.from);
                    let conflict = Conflict::new(DUPLICATE_DOMAIN, host, message);
                    visible.conflicts.push(conflict.because_of(&rule.from));
                } else {
                    visible.virtual_services.insert(host.clone(), rule.clone());
                }
            }
            let matches = spec.http.iter().flat_map(|http| &http.r#match);
            selectors.extend(matches.map(|one| labels(&one.source_labels)));
        }
        let seen = self.destination_rules.iter();
        for Exported { rule, .. } in seen.filter(|one| one.to.has(namespace)) {
            let of = visible.destination_rules.entry(rule.namespace().clone());
            let of = of.or_default();
            for host in &rule.hosts {
                of.entry(host.clone()).or_default().push(rule.clone());
            }
            // For workloads of its own namespace alone.
            let selector = rule.spec().workload_selector.as_ref();
            let selector = selector.filter(|_| namespace == Some(rule.namespace()));
            of_clusters.extend(selector.map(|one| labels(&one.match_labels)));
        }
        selectors.extend(of_clusters.iter().cloned());
        selectors.retain(|selector: &Labels| !selector.is_empty());
        visible.selectors = selectors.into_iter().collect();
        let all = visible.selectors.iter().enumerate();
        let of_clusters = all.filter(|(_, selector)| of_clusters.contains(*selector));
        visible.of_clusters = of_clusters.map(|(at, _)| at).collect();
        visible
    }

    /// Rules that others keep from having an effect, as far as somebody has looked.
    pub(crate) fn conflicts(&self) -> Vec<Conflict> {
        let all = self.visible.lock().unwrap_or_else(PoisonError::into_inner);
        let conflicts = all.values().flat_map(|visible| &visible.conflicts);
        conflicts.cloned().collect()
    }
}

/// Those that hold for one proxy.
#[derive(Clone, Debug)]
pub(crate) struct ProxyRules {
    pub(crate) scope: Scope,
    /// The same without what makes no difference to clusters.
    pub(crate) clusters: Scope,
    visible: Arc<Visible>,
    domain: Arc<str>,
    root: Arc<str>,
}

impl ProxyRules {
    /// The rule with the most specific host that means this one.
    pub(crate) fn virtual_service(&self, host: &str) -> Option<&Arc<Rule<VirtualService>>> {
        most_specific(&self.visible.virtual_services, host)
    }

    /// Hosts that no service has, sorted, with their rules.
    pub(crate) fn hosts_alone<'a>(
        &'a self,
        outlets: &'a Outlets,
    ) -> impl Iterator<Item = (&'a str, &'a Arc<Rule<VirtualService>>)> {
        let all = self.visible.virtual_services.iter();
        all.filter(|(host, _)| outlets.by_host(host).is_empty())
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
