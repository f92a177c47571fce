//! Services and rules by what they are for, as one class of namespaces sees them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::config::served::MOST_EGRESS_LISTENERS;
use api::istio::networking::v1alpha3::outbound_traffic_policy::Mode;
use api::model::Labels;
use api::networking::{DestinationRule, Sidecar, VirtualService};

use super::all::{Exported, Rules};
use super::gateways::{BoundRules, bind};
use super::hosts::full_host;
use super::sidecar::{Imports, Stand, destinations};
use super::{Rule, Unknown, is_of_mesh, labels};
use crate::common::conflict::{Conflict, Conflicts, DUPLICATE_DOMAIN};
use crate::common::outlets::{Outlets, subset_name};

/// Rules of one namespace by their host, each list in order.
type ByHost = BTreeMap<String, Vec<Arc<Rule<DestinationRule>>>>;

/// What one listener is for, or all together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    /// Ports of services.
    pub(crate) outlets: Outlets,
    /// For sidecars, by host; of two with one host the older.
    pub(super) virtual_services: RulesByHost,
    /// Those that say something of connections without requests.
    pub(super) connections: RulesByHost,
}

type RulesByHost = BTreeMap<String, Arc<Rule<VirtualService>>>;

/// What one class of namespaces sees, as far as the Sidecar goes that holds there.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    /// Ports of services that have clusters.
    pub(crate) outlets: Outlets,
    /// What their listeners and routes are for.
    pub(super) whole: Arc<Sight>,
    /// Where they listen, each with what that is for.
    pub(super) listeners: Vec<(Stand, Arc<Sight>)>,
    /// They are others than most have.
    pub(super) has_own_listeners: bool,
    /// Where a Sidecar sends what is unknown; `None`: the mesh says it.
    pub(super) unknown: Option<Unknown>,
    /// By their own namespace.
    pub(super) destination_rules: Arc<HashMap<Arc<str>, ByHost>>,
    /// By the Gateways that they name.
    pub(super) bound: BoundRules,
    /// Labels that rules ask proxies for, sorted.
    pub(super) selectors: Vec<Labels>,
    /// Places of those that DestinationRules ask for: clusters depend on no others.
    pub(super) of_clusters: BTreeSet<usize>,
    /// And of those that rules for connections ask for: listeners depend on no others.
    pub(super) of_listeners: BTreeSet<usize>,
    /// And of those that only rules at Gateways ask for.
    pub(super) of_routers: BTreeSet<usize>,
    pub(super) conflicts: Vec<Conflict>,
    /// Of its VirtualServices, how many.
    pub(super) namespaces: usize,
}

impl Visible {
    /// `common`: what others see.
    pub(super) fn new(rules: &Rules, namespace: Option<&Arc<str>>, common: Option<&Self>) -> Self {
        let outlets = rules
            .services
            .seeing(|service| rules.is_seen(service, namespace));
        let mut visible = Self {
            outlets,
            ..Self::default()
        };
        let seen = rules.virtual_services.iter();
        let seen = seen.filter(|one| one.to.has(namespace));
        let namespaces: BTreeSet<_> = seen.map(|one| one.rule.namespace()).collect();
        visible.namespaces = namespaces.len();
        let mut conflicts = Conflicts::default();
        let (mut selectors, mut of_listeners) = (BTreeSet::new(), BTreeSet::new());
        let virtual_services = by_host(rules, namespace, &mut conflicts, |spec| {
            let matches = spec.http.iter().flat_map(|http| &http.r#match);
            selectors.extend(matches.map(|one| labels(&one.source_labels)));
            !spec.http.is_empty()
        });
        let connections = by_host(rules, namespace, &mut conflicts, |spec| {
            of_listeners.extend(sources(spec).map(|(source, _)| labels(source)));
            !spec.tcp.is_empty() || !spec.tls.is_empty()
        });
        visible.conflicts = conflicts.finish();
        visible.whole = Arc::new(Sight {
            outlets: visible.outlets.keeping(|_| true),
            virtual_services,
            connections,
        });
        visible.listeners = vec![(Stand::default(), visible.whole.clone())];
        visible.has_own_listeners = visible.differs(common, namespace);
        let of_clusters = visible.add_destination_rules(rules, namespace);
        selectors.extend(of_clusters.iter().chain(&of_listeners).cloned());
        let of_sidecars = selectors.clone();
        selectors.extend(visible.bind(rules, namespace));
        selectors.retain(|selector: &Labels| !selector.is_empty());
        visible.selectors = selectors.into_iter().collect();
        let all = visible.selectors.iter().enumerate();
        let of_routers = all.filter(|(_, selector)| !of_sidecars.contains(*selector));
        visible.of_routers = of_routers.map(|(at, _)| at).collect();
        let all = visible.selectors.iter().enumerate();
        let of_clusters = all.filter(|(_, selector)| of_clusters.contains(*selector));
        visible.of_clusters = of_clusters.map(|(at, _)| at).collect();
        let all = visible.selectors.iter().enumerate();
        let of_listeners = all.filter(|(_, selector)| of_listeners.contains(*selector));
        visible.of_listeners = of_listeners.map(|(at, _)| at).collect();
        visible
    }

    /// What is left of it where a Sidecar holds. `common`: what others have of that.
    pub(super) fn through(
        &self,
        sidecar: &Rule<Sidecar>,
        namespace: Option<&Arc<str>>,
        domain: &str,
        common: Option<&Self>,
    ) -> Self {
        let spec = sidecar.spec();
        let full = |host: &str, rule: &str| full_host(host, rule, domain);
        let mut whole = Sight::default();
        let mut listeners = Vec::new();
        for written in spec.egress.iter().take(MOST_EGRESS_LISTENERS) {
            let Some(stand) = Stand::new(written) else {
                continue;
            };
            let imports = Imports::new(&written.hosts, namespace, sidecar, domain);
            let sight = self.whole.through(&imports, &stand);
            whole.outlets = whole.outlets.or(&sight.outlets);
            let more = sight.virtual_services.iter();
            let more = more.map(|(host, rule)| (host.clone(), rule.clone()));
            whole.virtual_services.extend(more);
            let more = sight.connections.iter();
            let more = more.map(|(host, rule)| (host.clone(), rule.clone()));
            whole.connections.extend(more);
            listeners.push((stand, Arc::new(sight)));
        }
        if spec.egress.is_empty() {
            whole = (*self.whole).clone();
        }
        let policy = spec.outbound_traffic_policy.as_ref();
        let proxy = policy.and_then(|policy| policy.egress_proxy.as_ref());
        let unknown = policy.map(|policy| match proxy {
            Some(proxy) => {
                let host = full(&proxy.host, sidecar.namespace());
                let number = proxy.port.as_ref().map_or(0, |port| port.number);
                let number = u16::try_from(number).unwrap_or_default();
                Unknown::To(subset_name(number, &proxy.subset, &host))
            }
            None if policy.mode() == Mode::AllowAny => Unknown::Anywhere,
            None => Unknown::Nowhere,
        });
        // Routes lead to services that nobody imports by their names.
        let mut reached: BTreeSet<String> = BTreeSet::new();
        reached.extend(proxy.map(|proxy| full(&proxy.host, sidecar.namespace())));
        let all = whole.virtual_services.values();
        for rule in all.chain(whole.connections.values()) {
            let to = destinations(rule.spec());
            reached.extend(to.map(|to| full(&to.host, rule.namespace())));
        }
        let whole = Arc::new(whole);
        if spec.egress.is_empty() {
            listeners = vec![(Stand::default(), whole.clone())];
        }
        let mut visible = Self {
            outlets: self.outlets.keeping(|service| {
                let is_reached = || reached.contains(&service.key.hostname.to_ascii_lowercase());
                whole.outlets.has(&service.key) || is_reached()
            }),
            whole,
            listeners,
            unknown,
            has_own_listeners: false,
            destination_rules: self.destination_rules.clone(),
            selectors: self.selectors.clone(),
            of_clusters: self.of_clusters.clone(),
            of_listeners: self.of_listeners.clone(),
            of_routers: self.of_routers.clone(),
            // No router has a Sidecar.
            bound: BoundRules::default(),
            conflicts: Vec::new(),
            namespaces: self.namespaces,
        };
        visible.has_own_listeners = visible.differs(common, namespace);
        visible
    }

    /// Whether other listeners come of it than of what most have.
    fn differs(&self, common: Option<&Self>, namespace: Option<&Arc<str>>) -> bool {
        let (Some(common), Some(namespace)) = (common, namespace) else {
            return false;
        };
        let rules = self.whole.connections.values();
        let mut sources = rules.flat_map(|rule| sources(rule.spec()));
        if sources.any(|(_, source)| *source == **namespace) {
            return true;
        }
        let own = self.listeners.iter().map(|(_, sight)| sight);
        let others = common.listeners.iter().map(|(_, sight)| sight);
        let mut both = own.zip(others);
        !both.all(|(one, other)| {
            let by_name = |sight: &Sight| -> Vec<_> {
                let all = sight.connections.iter();
                all.map(|(host, rule)| (host.clone(), rule.from.clone()))
                    .collect()
            };
            one.outlets.is_same(&other.outlets) && by_name(one) == by_name(other)
        })
    }

    /// Finds the rules of each Gateway. Returns the labels that they ask for.
    fn bind(&mut self, rules: &Rules, namespace: Option<&Arc<str>>) -> BTreeSet<Labels> {
        let mut selectors = BTreeSet::new();
        let seen = rules.virtual_services.iter();
        for Exported { rule, .. } in seen.filter(|one| one.to.has(namespace)) {
            let spec = rule.spec();
            if is_of_mesh(&spec.gateways) && spec.gateways.len() <= 1 {
                continue;
            }
            bind(rule, &mut self.bound);
            let matches = spec.http.iter().flat_map(|http| &http.r#match);
            selectors.extend(matches.map(|one| labels(&one.source_labels)));
            selectors.extend(sources(spec).map(|(source, _)| labels(source)));
        }
        selectors
    }

    /// Returns the labels that they ask for.
    fn add_destination_rules(
        &mut self,
        rules: &Rules,
        namespace: Option<&Arc<str>>,
    ) -> BTreeSet<Labels> {
        let mut selectors = BTreeSet::new();
        let mut all: HashMap<Arc<str>, ByHost> = HashMap::new();
        let seen = rules.destination_rules.iter();
        for Exported { rule, .. } in seen.filter(|one| one.to.has(namespace)) {
            let of = all.entry(rule.namespace().clone()).or_default();
            for host in &rule.hosts {
                of.entry(host.clone()).or_default().push(rule.clone());
            }
            // For workloads of its own namespace alone.
            let selector = rule.spec().workload_selector.as_ref();
            let selector = selector.filter(|_| namespace == Some(rule.namespace()));
            selectors.extend(selector.map(|one| labels(&one.match_labels)));
        }
        self.destination_rules = Arc::new(all);
        selectors
    }
}

impl Sight {
    /// What is imported of it.
    fn through(&self, imports: &Imports, stand: &Stand) -> Self {
        let number = stand.port.filter(|_| !stand.is_proxy);
        let outlets = self.outlets.keeping(|service| {
            let key = &service.key;
            let has_port = number.is_none_or(|number| service.port(number).is_some());
            has_port && imports.have(&key.namespace, &key.hostname.to_ascii_lowercase())
        });
        let through = |all: &RulesByHost| {
            let all = all.iter();
            let seen = all.filter(|(host, rule)| imports.have_host(rule.namespace(), host));
            seen.map(|(host, rule)| (host.clone(), rule.clone()))
                .collect()
        };
        Self {
            outlets,
            virtual_services: through(&self.virtual_services),
            connections: through(&self.connections),
        }
    }
}

/// Those of sidecars that are kept, by their hosts; of two with one host the older.
fn by_host(
    rules: &Rules,
    namespace: Option<&Arc<str>>,
    conflicts: &mut Conflicts,
    mut keeps: impl FnMut(&VirtualService) -> bool,
) -> RulesByHost {
    let mut all = RulesByHost::new();
    let seen = rules.virtual_services.iter();
    for Exported { rule, .. } in seen.filter(|one| one.to.has(namespace)) {
        let spec = rule.spec();
        if !is_of_mesh(&spec.gateways) || !keeps(spec) {
            continue;
        }
        for host in &rule.hosts {
            if let Some(older) = all.get(host) {
                // Some write a host twice, in full and in short.
                if older.from == rule.from {
                    continue;
                }
                conflicts.push(DUPLICATE_DOMAIN, Some(&rule.from), || {
                    let message = format!("{} is left out: {} is older", rule.from, older.from);
                    (host.clone(), message)
                });
            } else {
                all.insert(host.clone(), rule.clone());
            }
        }
    }
    all
}

/// Labels and namespaces that a rule asks proxies for where it is about connections.
pub(super) fn sources(
    rule: &VirtualService,
) -> impl Iterator<Item = (&BTreeMap<String, String>, &String)> {
    let tcp = rule.tcp.iter().flat_map(|route| &route.r#match);
    let tls = rule.tls.iter().flat_map(|route| &route.r#match);
    let tcp = tcp.map(|one| (&one.source_labels, &one.source_namespace));
    tcp.chain(tls.map(|one| (&one.source_labels, &one.source_namespace)))
}
