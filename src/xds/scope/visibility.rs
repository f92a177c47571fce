//! Services and rules by what they are for, as one class of namespaces sees them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use api::config::discovery_notes::MAX_EGRESS_LISTENERS;
use api::istio::networking::v1alpha3::load_balancer_settings::LbPolicy;
use api::istio::networking::v1alpha3::load_balancer_settings::consistent_hash_lb::HashKey;
use api::istio::networking::v1alpha3::{
    ConnectionPoolSettings, LoadBalancerSettings, TrafficPolicy,
};
use api::model::{Labels, Service};
use api::names::full_host;
use api::networking::{DestinationRule, Sidecar, VirtualService};

use super::destination_rule_limit::HostLimit;
use super::exported::{Exported, ExportedObjects};
use super::gateways::{BoundRules, bind};
use super::hosts::{BelowWildcards, RulesByHost, most_specific};
use super::sidecar::{EgressListener, Imports, egress_proxy, unknown_traffic};
use super::virtual_service_hosts::{ListenerOfHosts, destinations, ports, unserved};
use super::virtual_service_limits::{HostNames, RouteEstimate, RulesWithoutRoom};
use super::{OutboundTrafficPolicy, Rule, is_of_mesh, labels};
use crate::common::conflict::{Conflicts, DUPLICATE_DOMAIN, TOO_LARGE};
use crate::common::conflict_pool::SharedConflicts;
use crate::common::service_ports::ServicePorts;

/// Rules of one namespace by their host, each list in order.
type ByHost = BTreeMap<String, Vec<Arc<Rule<DestinationRule>>>>;

/// The services and VirtualServices of one listener, or of all together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visibility {
    /// Ports of services.
    pub(crate) service_ports: ServicePorts,
    /// For sidecars, by host; of two with one host the older.
    pub(super) virtual_services: RulesByHost,
    /// Those of them whose hosts lie below wildcards of its services.
    pub(super) below_wildcards: BelowWildcards,
    /// VirtualServices with routes for connections (`tcp`, `tls`), by host.
    pub(super) connections: RulesByHost,
    /// Those of them with routes for TLS whose hosts lie below wildcards of its services: connections of TLS alone say a host.
    pub(super) tls_below_wildcards: BelowWildcards,
}

/// The services and rules that one class of namespaces sees, through the Sidecar that holds there.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    /// Ports of services that have clusters.
    pub(crate) service_ports: ServicePorts,
    /// The services and VirtualServices of all their listeners.
    pub(super) whole: Arc<Visibility>,
    /// Their listeners for services, each with the services and VirtualServices that it is for.
    pub(super) listeners: Vec<(EgressListener, Arc<Visibility>)>,
    /// True if their listeners differ from those of most proxies.
    pub(super) has_own_listeners: bool,
    /// The Sidecar's target of requests and connections to no known service; `None`: the mesh's holds.
    pub(super) unknown: Option<OutboundTrafficPolicy>,
    /// The DestinationRules by their own namespace.
    pub(super) destination_rules: Arc<HashMap<Arc<str>, ByHost>>,
    /// Those of the root namespace that no other namespace sees.
    pub(super) of_root_alone: Arc<ByHost>,
    /// The VirtualServices by the Gateways that they name.
    pub(super) bound: BoundRules,
    /// Labels that rules ask proxies for, sorted.
    pub(super) selectors: Vec<Labels>,
    /// Places of those that DestinationRules ask for: clusters depend on no others.
    pub(super) of_clusters: BTreeSet<usize>,
    /// Places of those that rules for connections ask for: listeners depend on no others.
    pub(super) of_listeners: BTreeSet<usize>,
    /// Places of those that only rules at Gateways ask for.
    pub(super) of_routers: BTreeSet<usize>,
    /// The conflicts of services and rules.
    pub(super) conflicts: SharedConflicts,
    /// The number of namespaces whose VirtualServices it sees.
    pub(super) namespaces: usize,
    /// VirtualServices for which there is no room; found once routes are made.
    without_room: OnceLock<Arc<RulesWithoutRoom>>,
}

impl Visible {
    /// `common`: what others see.
    pub(super) fn new(
        rules: &ExportedObjects,
        namespace: Option<&Arc<str>>,
        common: Option<&Self>,
    ) -> Self {
        let mut conflicts = Conflicts::default();
        let sees = |service: &Service| rules.is_visible(service, namespace);
        let service_ports = rules.services.visible_to(sees, &mut conflicts);
        let mut visible = Self {
            service_ports,
            ..Self::default()
        };
        let exported = rules.virtual_services.iter();
        let exported = exported.filter(|one| one.to.has(namespace));
        let namespaces: BTreeSet<_> = exported.map(|one| one.rule.namespace()).collect();
        visible.namespaces = namespaces.len();
        let (mut selectors, mut of_listeners) = (BTreeSet::new(), BTreeSet::new());
        let keeps = |spec: &VirtualService| {
            let matches = spec.http.iter().flat_map(|http| &http.r#match);
            selectors.extend(matches.map(|one| labels(&one.source_labels)));
            has_requests(spec)
        };
        let sees = |_: &_, _: &str| true;
        let lost =
            |host: &str, rule: &_, older: &_| is_older(&mut conflicts, "http", host, rule, older);
        let virtual_services = by_host(rules, namespace, keeps, sees, lost);
        let keeps = |spec: &VirtualService| {
            of_listeners.extend(sources(spec).map(|(source, _)| labels(source)));
            has_connections(spec)
        };
        let lost = |host: &str, rule: &_, older: &_| {
            is_older(&mut conflicts, "tls or tcp", host, rule, older);
        };
        let connections = by_host(rules, namespace, keeps, sees, lost);
        let service_ports = visible.service_ports.clone();
        let whole = Visibility::new(service_ports, virtual_services, connections);
        visible.whole = Arc::new(whole);
        visible.listeners = vec![(EgressListener::default(), visible.whole.clone())];
        let of_clusters = visible.add_destination_rules(rules, namespace, &mut conflicts);
        let conflicts = conflicts.finish();
        visible.conflicts = match namespace {
            Some(_) => rules.conflict_pool.share(conflicts),
            None => rules.conflict_pool.share_all(conflicts),
        };
        visible.has_own_listeners = visible.differs(common, namespace);
        // A DestinationRule changes listeners then, so the labels that choose it count for them.
        if visible.rules_carry() {
            of_listeners.extend(of_clusters.iter().cloned());
        }
        selectors.extend(of_clusters.iter().chain(&of_listeners).cloned());
        // Before rules at Gateways add theirs: these must not divide the scopes of sidecars.
        let of_sidecars = selectors.clone();
        selectors.extend(visible.bind(rules, namespace));
        visible.set_selectors(selectors);
        visible.of_routers = visible.places(|selector| !of_sidecars.contains(selector));
        visible.of_clusters = visible.places(|selector| of_clusters.contains(selector));
        visible.of_listeners = visible.places(|selector| of_listeners.contains(selector));
        visible
    }

    fn set_selectors(&mut self, selectors: BTreeSet<Labels>) {
        let selectors = selectors.into_iter();
        // Everybody meets the empty selector, so it tells nobody from others.
        self.selectors = selectors.filter(|selector| !selector.is_empty()).collect();
    }

    /// The places of the selectors of which this is true.
    fn places(&self, counts: impl Fn(&Labels) -> bool) -> BTreeSet<usize> {
        let all = self.selectors.iter().enumerate();
        let counted = all.filter(|(_, selector)| counts(selector));
        counted.map(|(at, _)| at).collect()
    }

    /// Restricts it to the imports of a Sidecar. `common`: the view of most namespaces through that Sidecar.
    pub(super) fn through(
        &self,
        rules: &ExportedObjects,
        sidecar: &Rule<Sidecar>,
        namespace: Option<&Arc<str>>,
        common: Option<&Self>,
    ) -> Self {
        let spec = sidecar.spec();
        let written = spec.egress.iter().take(MAX_EGRESS_LISTENERS);
        let mut routes = BTreeSet::new();
        let imported = written.filter_map(|written| {
            let listener = EgressListener::new(written, &mut routes)?;
            let imports = Imports::new(&written.hosts, namespace, sidecar, &rules.domain);
            Some((listener, imports))
        });
        let imported: Vec<_> = imported.collect();
        // A Sidecar without egress imports everything: it says only where unknown requests go.
        let whole = if spec.egress.is_empty() {
            (*self.whole).clone()
        } else {
            imported_by_any(rules, namespace, &imported)
        };
        let listeners = imported.iter().map(|(listener, imports)| {
            let visibility = whole.through(rules, namespace, imports, listener);
            (listener.clone(), Arc::new(visibility))
        });
        let mut listeners: Vec<_> = listeners.collect();
        let reached = reached(&whole, sidecar, &rules.domain);
        let whole = Arc::new(whole);
        if spec.egress.is_empty() {
            listeners = vec![(EgressListener::default(), whole.clone())];
        }
        name_routes(&mut listeners);
        // Of two services with one name the one that is imported counts.
        let service_ports = whole.service_ports.with(
            &self
                .service_ports
                .filtered(|service| reached.contains(&service.key.hostname.to_ascii_lowercase())),
        );
        let of_hosts = listeners_of_hosts(&listeners);
        let lost = unserved(&of_hosts, &service_ports, &rules.domain, &sidecar.from);
        let mut visible = Self {
            service_ports,
            whole,
            listeners,
            unknown: unknown_traffic(sidecar, &rules.domain),
            has_own_listeners: false,
            destination_rules: self.destination_rules.clone(),
            of_root_alone: self.of_root_alone.clone(),
            selectors: self.selectors.clone(),
            of_clusters: self.of_clusters.clone(),
            of_listeners: self.of_listeners.clone(),
            of_routers: self.of_routers.clone(),
            // No router has a Sidecar.
            bound: BoundRules::default(),
            conflicts: rules.conflict_pool.share(lost),
            namespaces: self.namespaces,
            without_room: OnceLock::new(),
        };
        visible.has_own_listeners = visible.differs(common, namespace);
        visible
    }

    /// Returns the VirtualServices for which there is no room.
    pub(super) fn without_room(&self, domain: &str) -> Arc<RulesWithoutRoom> {
        let find = || Arc::new(self.route_estimate(domain).without_room());
        self.without_room.get_or_init(find).clone()
    }

    fn route_estimate(&self, domain: &str) -> RouteEstimate<'_> {
        let mut estimate = RouteEstimate::at_sidecar();
        let mut ports_alone: HashMap<*const Rule<VirtualService>, usize> = HashMap::new();
        for (listener, visibility) in &self.listeners {
            let rules = &visibility.virtual_services;
            if rules.is_empty() {
                continue;
            }
            let number = listener.port.filter(|_| !listener.is_proxy);
            let all = visibility.service_ports.all();
            let served = all.filter(|one| number.is_none_or(|number| one.port.number == number));
            for service_port in served.filter(|one| one.carries_http()) {
                let rule = most_specific(rules, service_port.host());
                if let Some(rule) = rule {
                    let host = service_port.host();
                    estimate.add(rule, host, HostNames::at_ports(host, 1));
                }
            }
            let alone = rules.iter();
            let alone = alone.filter(|(host, _)| !self.service_ports.has_host(host));
            for (host, rule) in alone {
                let known = || ports(rule, &self.service_ports, domain).len();
                let own = match listener.is_of_all_ports() {
                    true => *ports_alone.entry(Arc::as_ptr(rule)).or_insert_with(known),
                    false => 1,
                };
                let ports = own + visibility.ports_below_wildcards(host);
                estimate.add_alone(rule, host, HostNames::at_ports(host, ports));
            }
        }
        estimate
    }

    /// Returns the view of the port's listener, or else of the one whose services have their own ports.
    pub(super) fn of_port(&self, port: u16) -> Option<&Arc<Visibility>> {
        let mut all = self.listeners.iter();
        let of_port = all.find(|(listener, _)| listener.port == Some(port) && !listener.is_proxy);
        let of_others = || {
            let mut all = self.listeners.iter();
            all.find(|(listener, _)| listener.is_of_all_ports())
        };
        of_port.or_else(of_others).map(|(_, visibility)| visibility)
    }

    /// Returns true if its listeners may differ from those of `common`, the view of most namespaces.
    fn differs(&self, common: Option<&Self>, namespace: Option<&Arc<str>>) -> bool {
        let (Some(common), Some(namespace)) = (common, namespace) else {
            return false;
        };
        // Each namespace may have rules of its own for the same host.
        if self.rules_carry() || common.rules_carry() {
            return true;
        }
        let rules = self.whole.connections.values();
        let mut sources = rules.flat_map(|rule| sources(rule.spec()));
        if sources.any(|(_, source)| *source == **namespace) {
            return true;
        }
        let own = self.listeners.iter().map(|(_, visibility)| visibility);
        let others = common.listeners.iter().map(|(_, visibility)| visibility);
        // Both views have the listeners of one Sidecar, in one order.
        let mut both = own.zip(others);
        !both.all(|(one, other)| {
            let by_name = |visibility: &Visibility| -> Vec<_> {
                let all = visibility.connections.iter();
                all.map(|(host, rule)| (host.clone(), rule.from.clone()))
                    .collect()
            };
            one.service_ports.is_same(&other.service_ports) && by_name(one) == by_name(other)
        })
    }

    /// Returns true if a DestinationRule says something of connections where they come in.
    fn rules_carry(&self) -> bool {
        let of_namespaces = self.destination_rules.values();
        let mut all = of_namespaces.flat_map(ByHost::values).flatten();
        all.any(|rule| policies(rule.spec()).any(carries))
    }

    /// Finds the rules of each Gateway. Returns the labels that they ask for.
    fn bind(&mut self, rules: &ExportedObjects, namespace: Option<&Arc<str>>) -> BTreeSet<Labels> {
        let mut selectors = BTreeSet::new();
        let exported = rules.virtual_services.iter();
        for Exported { rule, .. } in exported.filter(|one| one.to.has(namespace)) {
            let spec = rule.spec();
            // It names `mesh` alone, or nothing: no Gateway.
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
        rules: &ExportedObjects,
        namespace: Option<&Arc<str>>,
        lost: &mut Conflicts,
    ) -> BTreeSet<Labels> {
        let mut selectors = BTreeSet::new();
        let mut all: HashMap<Arc<str>, ByHost> = HashMap::new();
        let mut of_root_alone = ByHost::new();
        let mut limit = HostLimit::default();
        let exported = rules.destination_rules.iter();
        for Exported { rule, to } in exported.filter(|one| one.to.has(namespace)) {
            // One for some workloads is for those of its own namespace alone.
            let is_for_others =
                rule.spec().workload_selector.is_some() && namespace != Some(rule.namespace());
            if is_for_others {
                continue;
            }
            if let Some(max) = limit.exceeded_by(rule) {
                lost.push(TOO_LARGE, Some(&rule.from), || {
                    let host = rule.hosts.first().map_or("", String::as_str);
                    let message = format!(
                        "it has no effect: proxies that see it see {max} older rules of its namespace for {host}"
                    );
                    (rule.from.to_string(), message)
                });
                continue;
            }
            add_rule(all.entry(rule.namespace().clone()).or_default(), rule);
            let selector = rule.spec().workload_selector.as_ref();
            let is_private = selector.is_some() || to.is_only(rule.namespace());
            if *rule.namespace() == rules.root && is_private {
                add_rule(&mut of_root_alone, rule);
            }
            selectors.extend(selector.map(|one| labels(&one.match_labels)));
        }
        self.destination_rules = Arc::new(all);
        self.of_root_alone = Arc::new(of_root_alone);
        selectors
    }
}

fn add_rule(of: &mut ByHost, rule: &Arc<Rule<DestinationRule>>) {
    for host in &rule.hosts {
        of.entry(host.clone()).or_default().push(rule.clone());
    }
}

/// By host those rules of sidecars that are kept, as far as their hosts are seen; of two with one host the older, and `lost` is
/// asked about the other.
fn by_host(
    rules: &ExportedObjects,
    namespace: Option<&Arc<str>>,
    mut keeps: impl FnMut(&VirtualService) -> bool,
    is_visible: impl Fn(&Rule<VirtualService>, &str) -> bool,
    mut lost: impl FnMut(&str, &Rule<VirtualService>, &Rule<VirtualService>),
) -> RulesByHost {
    let mut all = RulesByHost::new();
    let exported = rules.virtual_services.iter();
    for Exported { rule, .. } in exported.filter(|one| one.to.has(namespace)) {
        let spec = rule.spec();
        if !is_of_mesh(&spec.gateways) || !keeps(spec) {
            continue;
        }
        for host in rule.hosts.iter().filter(|host| is_visible(rule, host)) {
            match all.get(host) {
                // Some write a host twice, in full and in short.
                Some(older) if older.from == rule.from => {}
                Some(older) => lost(host, rule, older),
                None => drop(all.insert(host.clone(), rule.clone())),
            }
        }
    }
    all
}

/// Tells that an older rule has the host. `part`: of the younger one, for the rest of it may count.
fn is_older(
    conflicts: &mut Conflicts,
    part: &str,
    host: &str,
    rule: &Rule<VirtualService>,
    older: &Rule<VirtualService>,
) {
    conflicts.push(DUPLICATE_DOMAIN, Some(&rule.from), || {
        // Routers merge them, and a Sidecar may import the younger one alone.
        let message = format!(
            "{part} of {} is left out at sidecars that see {}, too, which is older",
            rule.from, older.from
        );
        (host.to_owned(), message)
    });
}

fn has_requests(spec: &VirtualService) -> bool {
    !spec.http.is_empty()
}

fn has_connections(spec: &VirtualService) -> bool {
    !spec.tcp.is_empty() || !spec.tls.is_empty()
}

/// Hosts that the Sidecar and the rules that it imports lead to: a proxy needs their clusters though nobody imports them by name.
fn reached(imported: &Visibility, sidecar: &Rule<Sidecar>, domain: &str) -> BTreeSet<String> {
    let proxy = egress_proxy(sidecar);
    let proxy = proxy.map(|proxy| full_host(&proxy.host, sidecar.namespace(), domain));
    let rules = imported.virtual_services.values();
    let of_rules = rules.chain(imported.connections.values()).flat_map(|rule| {
        let to = destinations(rule.spec());
        to.map(|to| full_host(&to.host, rule.namespace(), domain))
    });
    proxy.into_iter().chain(of_rules).collect()
}

/// All that the listeners of a Sidecar import. A rule that it does not import hides none that it does, however old it is: so all
/// that is exported is looked through.
fn imported_by_any(
    rules: &ExportedObjects,
    namespace: Option<&Arc<str>>,
    imported: &[(EgressListener, Imports)],
) -> Visibility {
    let sees = |service: &Service| {
        let mut all = imported.iter();
        all.any(|(listener, imports)| imports_service(listener, imports, service))
            && rules.is_visible(service, namespace)
    };
    // Two that are imported are in conflict for those without a Sidecar, too.
    let service_ports = rules.services.visible_to(sees, &mut Conflicts::default());
    let through = |keeps: fn(&VirtualService) -> bool| {
        let sees = |rule: &Rule<VirtualService>, host: &str| {
            let mut all = imported.iter();
            all.any(|(_, imports)| imports.have(rule.namespace(), host))
        };
        by_host(rules, namespace, keeps, sees, |_, _, _| {})
    };
    Visibility::new(
        service_ports,
        through(has_requests),
        through(has_connections),
    )
}

/// Names the routes of ports that applications use as a proxy: a service that another listener imports may have requests at a
/// port of that number, and the routes of that port are then its own.
fn name_routes(listeners: &mut [(EgressListener, Arc<Visibility>)]) {
    let mut taken: BTreeSet<Arc<str>> = BTreeSet::new();
    for (listener, visibility) in listeners.iter().filter(|(listener, _)| !listener.is_proxy) {
        taken.extend(listener.socket.as_ref().map(|socket| socket.routes.clone()));
        let all = visibility.service_ports.all();
        let with_routes = all.filter(|one| {
            let is_behind = listener.port.is_none_or(|port| port == one.port.number);
            is_behind && one.carries_http()
        });
        let ports: BTreeSet<u16> = with_routes.map(|one| one.port.number).collect();
        taken.extend(ports.iter().map(|port| Arc::from(port.to_string())));
    }
    for (listener, _) in listeners {
        listener.name_routes(|name| taken.contains(name));
    }
}

/// Listeners with the ports of their routes: of two that have a port, or all ports, the first counts.
fn listeners_of_hosts(listeners: &[(EgressListener, Arc<Visibility>)]) -> Vec<ListenerOfHosts<'_>> {
    let mut by_port: HashMap<u16, usize> = HashMap::new();
    for (at, (listener, _)) in listeners.iter().enumerate() {
        let port = listener.port.filter(|_| !listener.is_proxy);
        if let Some(port) = port {
            by_port.entry(port).or_insert(at);
        }
    }
    let mut all = listeners.iter();
    let of_others = all.position(|(listener, _)| listener.is_of_all_ports());
    let all = listeners
        .iter()
        .enumerate()
        .map(|(at, (listener, visibility))| {
            let routed = visibility
                .service_ports
                .all()
                .filter(|one| one.shares_routes());
            let routed: HashSet<u16> = routed.map(|one| one.port.number).collect();
            let own = |port: &u16| by_port.get(port).copied().or(of_others) == Some(at);
            ListenerOfHosts {
                rules: &visibility.virtual_services,
                below_wildcards: &visibility.below_wildcards,
                service_ports: &visibility.service_ports,
                has_all: listener.is_proxy || listener.socket.is_some(),
                routed: routed.into_iter().filter(own).collect(),
            }
        });
    all.collect()
}

fn imports_service(listener: &EgressListener, imports: &Imports, service: &Service) -> bool {
    let number = listener.port.filter(|_| !listener.is_proxy);
    let key = &service.key;
    let has_port = number.is_none_or(|number| service.port(number).is_some());
    has_port && imports.have(&key.namespace, &key.hostname.to_ascii_lowercase())
}

impl Visibility {
    fn new(
        service_ports: ServicePorts,
        virtual_services: RulesByHost,
        connections: RulesByHost,
    ) -> Self {
        let has_tls = |rule: &Rule<VirtualService>| !rule.spec().tls.is_empty();
        Self {
            below_wildcards: BelowWildcards::new(&virtual_services, &service_ports, |_| true),
            tls_below_wildcards: BelowWildcards::new(&connections, &service_ports, has_tls),
            service_ports,
            virtual_services,
            connections,
        }
    }

    /// Returns the number of ports of the wildcards of services that mean a host of a rule.
    pub(super) fn ports_below_wildcards(&self, host: &str) -> usize {
        let wildcards = self.below_wildcards.wildcards(host).iter();
        let ports = wildcards.map(|one| self.service_ports.count_at_wildcard(one));
        ports.sum()
    }

    /// Restricts it to the imports of one listener.
    fn through(
        &self,
        rules: &ExportedObjects,
        namespace: Option<&Arc<str>>,
        imports: &Imports,
        listener: &EgressListener,
    ) -> Self {
        let through = |keeps: fn(&VirtualService) -> bool| {
            let sees =
                |rule: &Rule<VirtualService>, host: &str| imports.have(rule.namespace(), host);
            by_host(rules, namespace, keeps, sees, |_, _, _| {})
        };
        let service_ports = self
            .service_ports
            .filtered(|service| imports_service(listener, imports, service));
        Self::new(
            service_ports,
            through(has_requests),
            through(has_connections),
        )
    }
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

/// Returns all traffic policies of a rule.
fn policies(rule: &DestinationRule) -> impl Iterator<Item = &TrafficPolicy> {
    let subsets = rule.subsets.iter().map(|subset| &subset.traffic_policy);
    subsets.chain([&rule.traffic_policy]).flatten()
}

/// Returns true if listeners depend on a policy.
fn carries(policy: &TrafficPolicy) -> bool {
    let limits = |pool: &Option<ConnectionPoolSettings>| {
        let tcp = pool.as_ref().and_then(|pool| pool.tcp.as_ref());
        tcp.is_some_and(|tcp| tcp.idle_timeout.is_some() || tcp.max_connection_duration.is_some())
    };
    let hashes = |balancer: &Option<LoadBalancerSettings>| {
        let balancer = balancer.as_ref().and_then(|one| one.lb_policy.as_ref());
        matches!(balancer, Some(LbPolicy::ConsistentHash(hash))
            if matches!(hash.hash_key, Some(HashKey::UseSourceIp(true))))
    };
    let mut ports = policy.port_level_settings.iter();
    policy.tunnel.is_some()
        || limits(&policy.connection_pool)
        || hashes(&policy.load_balancer)
        || ports.any(|port| limits(&port.connection_pool) || hashes(&port.load_balancer))
}
