//! Services and rules that one proxy sees: [`Rules`] holds all of a world, [`ProxyRules`] those of a proxy, and [`Scope`] is what
//! proxies that see the same have in common: the key of what is made for them.
//!
//! A namespace is told from others only where something tells it from them: where it owns services or rules that others do not
//! see, where one is exported to it by name, where its own rules for a host of elsewhere come before that host's, where a Sidecar
//! of its own says what it imports. All other namespaces have one scope, and share all bytes. So there are as many scopes as the mesh has need of, whatever clients say.

mod destination_rule_idle_policies;
mod destination_rule_limit;
pub(crate) mod envoy_filters;
mod export_to;
mod exported;
pub(crate) mod gateways;
mod hosts;
mod mesh_rules;
pub(crate) mod policies;
pub(crate) mod selecting;
mod shadowed;
mod sidecar;
mod virtual_service_delegates;
mod virtual_service_hosts;
mod virtual_service_idle_routes;
pub(crate) mod virtual_service_limits;
mod visibility;
mod world_ports;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::istio::mesh::v1alpha1::mesh_config::outbound_traffic_policy::Mode;
use api::mesh::MeshConfig;
use api::model::{Configured, Labels, ObjectRef, Service};
use api::names::full_host;
use api::networking::envoy_filter::{ApplyTo, PatchContext};
use api::networking::{DestinationRule, DiscoveryKind, Gateway, Sidecar, VirtualService};

use self::envoy_filters::{Patch, PatchKey, Patches};
use self::hosts::most_specific;
pub(crate) use self::hosts::patterns;
pub(crate) use self::mesh_rules::Rules;
pub(crate) use self::sidecar::{EgressListener, Socket, is_sidecar};
pub(crate) use self::virtual_service_hosts::{USUAL_PORT, destination_port, is_name};
use self::virtual_service_limits::RulesWithoutRoom;
use self::visibility::{Visibility, Visible};
use crate::common::service_ports::ServicePorts;

/// The gateway that stands for all sidecars.
const MESH: &str = "mesh";

/// The cache key of resources that proxies with the same rules share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// The proxy's namespace, if rules tell it from others.
    namespace: Option<Arc<str>>,
    /// The Sidecar that says which services the proxies call.
    sidecar: Option<ObjectRef>,
    /// Indices in [`Visible::selectors`] of the selectors that the proxy's labels meet.
    selected: Arc<[usize]>,
    /// Patches that hold for it.
    pub(crate) patches: PatchKey,
    /// The Gateways that a router listens for.
    gateways: Arc<[ObjectRef]>,
}

/// An object, and how it is named.
#[derive(Debug)]
pub(crate) struct Rule<T> {
    pub(crate) object: Arc<Configured<T>>,
    pub(crate) from: ObjectRef,
    /// Objects that parts of it are from.
    pub(crate) with: Vec<ObjectRef>,
    /// The rule's hosts, in full and in lower case.
    hosts: Vec<String>,
}

impl<T: DiscoveryKind> Rule<T> {
    fn new(object: &Arc<Configured<T>>, hosts: Vec<String>) -> Self {
        Self {
            object: object.clone(),
            from: reference(object),
            with: Vec::new(),
            hosts,
        }
    }
}

/// The object by its kind, namespace and name.
pub(crate) fn reference<T: DiscoveryKind>(object: &Configured<T>) -> ObjectRef {
    ObjectRef {
        kind: T::NAME,
        namespace: object.namespace.clone(),
        name: object.name.clone(),
    }
}

/// The target of requests and connections to no known service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OutboundTrafficPolicy {
    /// Their original destination.
    Anywhere,
    Nowhere,
    /// This cluster.
    To(Arc<str>),
}

impl OutboundTrafficPolicy {
    fn of_mesh(mesh: &MeshConfig) -> Self {
        let policy = mesh.outbound_traffic_policy.as_ref();
        if policy.is_none_or(|policy| policy.mode() != Mode::RegistryOnly) {
            Self::Anywhere
        } else {
            Self::Nowhere
        }
    }
}

impl<T> Rule<T> {
    pub(crate) fn spec(&self) -> &T {
        &self.object.spec
    }

    /// Returns the rule's hosts, in full and in lower case.
    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    pub(crate) fn namespace(&self) -> &Arc<str> {
        &self.object.namespace
    }

    /// The older one comes first, then by name and by namespace.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let (one, other) = (&self.object, &other.object);
        let by_age = one.created.cmp(&other.created);
        let by_name = by_age.then_with(|| one.name.cmp(&other.name));
        by_name.then_with(|| one.namespace.cmp(&other.namespace))
    }
}

/// The services that one proxy sees, and the rules that hold for it.
#[derive(Clone, Debug)]
pub(crate) struct ProxyRules {
    pub(crate) scope: Scope,
    /// The scope reduced to the parts that clusters depend on.
    pub(crate) clusters: Scope,
    /// The scope reduced to the parts that listeners depend on.
    pub(crate) listeners: Scope,
    /// The Sidecar that holds for the proxy, whether or not it restricts anything.
    pub(crate) sidecar: Option<Arc<Configured<Sidecar>>>,
    pub(crate) unknown: OutboundTrafficPolicy,
    pub(crate) patches: Arc<Patches>,
    /// The Gateways that the proxy listens for, in order.
    pub(crate) gateways: Arc<[Arc<Rule<Gateway>>]>,
    visible: Arc<Visible>,
    /// The services and VirtualServices that routes are made for.
    visibility: Arc<Visibility>,
    domain: Arc<str>,
    root: Arc<str>,
}

impl ProxyRules {
    /// Ports of the services that it has clusters of.
    pub(crate) fn service_ports(&self) -> &ServicePorts {
        &self.visible.service_ports
    }

    /// The number of namespaces whose VirtualServices it sees.
    pub(crate) fn namespaces(&self) -> usize {
        self.visible.namespaces
    }

    /// Returns the VirtualServices for which there is no room at its listeners.
    pub(crate) fn without_room(&self) -> Arc<RulesWithoutRoom> {
        self.visible.without_room(&self.domain)
    }

    /// Returns the number of namespaces whose DestinationRules it sees.
    pub(crate) fn namespaces_of_destination_rules(&self) -> usize {
        self.visible.destination_rules.len()
    }

    /// Returns the Sidecar that restricts what the proxy imports.
    pub(crate) const fn imported_by(&self) -> Option<&ObjectRef> {
        self.listeners.sidecar.as_ref()
    }

    /// Ports of the services that have routes.
    pub(crate) fn routed(&self) -> &ServicePorts {
        &self.visibility.service_ports
    }

    /// Its listeners for services, each with the rules of that listener alone.
    pub(crate) fn listeners_of(&self) -> Vec<(&EgressListener, Self)> {
        let all = self.visible.listeners.iter();
        all.map(|(listener, visibility)| {
            let own = Self {
                visibility: visibility.clone(),
                ..self.clone()
            };
            (listener, own)
        })
        .collect()
    }

    /// The rule for connections with the most specific host that means this one.
    pub(crate) fn connection_rule(&self, host: &str) -> Option<&Arc<Rule<VirtualService>>> {
        most_specific(&self.visibility.connections, host)
    }

    /// Returns these rules for the routes of requests that come in at a socket; `None`: no socket of a Sidecar has routes of
    /// this name.
    pub(crate) fn at_socket(&self, routes: &str) -> Option<Self> {
        self.with_routes(routes, |listener| Some(&listener.socket.as_ref()?.routes))
    }

    /// Returns these rules for the routes of a Sidecar's port that applications use as a proxy; `None`: no such port has routes
    /// of this name.
    pub(crate) fn at_proxy(&self, routes: &str) -> Option<Self> {
        self.with_routes(routes, |listener| listener.proxy_routes.as_ref())
    }

    fn with_routes(
        &self,
        routes: &str,
        of: impl Fn(&EgressListener) -> Option<&Arc<str>>,
    ) -> Option<Self> {
        let mut all = self.visible.listeners.iter();
        let (_, visibility) =
            all.find(|(listener, _)| of(listener).is_some_and(|own| **own == *routes))?;
        Some(Self {
            visibility: visibility.clone(),
            ..self.clone()
        })
    }

    /// Returns these rules for the routes of one listener for services: the listener of the port, or the one whose services
    /// have their own ports. `None`: the mesh's port that applications use as a proxy, which serves all that the workload sees.
    pub(crate) fn within(&self, port: Option<u16>) -> Self {
        let visibility = match port {
            Some(port) => self.visible.of_port(port).cloned().unwrap_or_default(),
            None => self.visible.whole.clone(),
        };
        Self {
            visibility,
            ..self.clone()
        }
    }

    /// Returns these rules for a proxy that these patches hold for.
    pub(crate) fn patched(mut self, patches: Patches) -> Self {
        if patches.is_empty() {
            return self;
        }
        // A key has the patches of its own type alone: proxies that differ in others share these resources.
        self.clusters.patches = patches.key(|patch| patch.apply_to == ApplyTo::Cluster);
        // Inbound listeners are each proxy's own: the key of shared ones has none of their patches.
        let is_inbound = |patch: &Patch| patch.context == PatchContext::SidecarInbound;
        self.listeners.patches = patches.key(|patch| patch.is_of_listeners() && !is_inbound(patch));
        self.scope.patches = patches.key(|_| true);
        self.patches = Arc::new(patches);
        self
    }

    /// Ids of its patches of clusters, equal for proxies that share patched clusters.
    pub(crate) const fn patches_of_clusters(&self) -> &PatchKey {
        &self.clusters.patches
    }

    /// VirtualServices that are bound to a Gateway, in order.
    pub(crate) fn bound(&self, gateway: &ObjectRef) -> Vec<&Arc<Rule<VirtualService>>> {
        gateways::bound(&self.visible.bound, gateway)
    }

    /// Returns true if a rule contributes to the resources of a proxy of this namespace.
    pub(crate) fn has_part_of(&self, rule: &ObjectRef, namespace: &str) -> bool {
        if self.patches.are_of(rule) {
            return true;
        }
        let is_bound = |gateway: &Arc<Rule<Gateway>>| {
            let mut bound = self.bound(&gateway.from).into_iter();
            gateway.from == *rule || bound.any(|one| one.from == *rule || one.with.contains(rule))
        };
        if self.gateways.iter().any(is_bound) {
            return true;
        }
        let whole = &self.visible.whole;
        let requests = whole.virtual_services.values();
        let mut virtual_services = requests.chain(whole.connections.values());
        if virtual_services.any(|one| one.from == *rule || one.with.contains(rule)) {
            return true;
        }
        let of = self.visible.destination_rules.get(&rule.namespace);
        let mut of = of.into_iter().flatten();
        of.any(|(host, rules)| {
            rules.iter().any(|one| one.from == *rule)
                && self.service_ports().are_meant(host, namespace)
        })
    }

    /// The rule with the most specific host that means this one.
    pub(crate) fn virtual_service(&self, host: &str) -> Option<&Arc<Rule<VirtualService>>> {
        most_specific(&self.visibility.virtual_services, host)
    }

    /// Hosts of rules for requests, sorted, with their rules.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&str, &Arc<Rule<VirtualService>>)> {
        let all = self.visibility.virtual_services.iter();
        all.map(|(host, rule)| (host.as_str(), rule))
    }

    /// Returns the hosts with their rules that a wildcard of a service means, which is in lower case.
    pub(crate) fn hosts_below(
        &self,
        wildcard: &str,
    ) -> impl Iterator<Item = (&str, &Arc<Rule<VirtualService>>)> {
        self.visibility.below_wildcards.rules(wildcard)
    }

    /// Returns the rules for TLS with hosts that a wildcard of a service means, which is in lower case: each once, in order.
    pub(crate) fn tls_below_wildcard(&self, wildcard: &str) -> Vec<&Arc<Rule<VirtualService>>> {
        let below = self.visibility.tls_below_wildcards.rules(wildcard);
        let mut rules: Vec<_> = below.map(|(_, rule)| rule).collect();
        rules.sort_by(|one, other| one.order(other));
        rules.dedup_by(|one, other| one.from == other.from);
        rules
    }

    /// The ports on which a host of a rule is served that no service has.
    pub(crate) fn ports_alone(&self, rule: &Rule<VirtualService>) -> BTreeSet<u16> {
        virtual_service_hosts::ports(rule, self.service_ports(), &self.domain)
    }

    /// Returns true if one of these ports has routes of what is seen here.
    pub(crate) fn have_routes(&self, ports: &BTreeSet<u16>) -> bool {
        let has_routes = |port: u16| {
            let visibility = self.visible.of_port(port);
            visibility.is_some_and(|visibility| Arc::ptr_eq(visibility, &self.visibility))
                && self.routed().of_port(port).any(|one| one.shares_routes())
        };
        ports.iter().any(|port| has_routes(*port))
    }

    /// Wildcards of services that mean a host of a rule, which is in lower case and none of them itself; the longest first.
    pub(crate) fn wildcards_above(&self, host: &str) -> &[Arc<str>] {
        self.visibility.below_wildcards.wildcards(host)
    }

    /// Rules for connections to a service, in order: those of the proxy's namespace, else of the service's, else of the root
    /// namespace. For a proxy of the root namespace a rule that others see, too, is one for the mesh, and comes last. As in Istio,
    /// rules for the proxy's workload leave none to those for all of the namespace.
    pub(crate) fn destination_rules(&self, service: &Service) -> Vec<Arc<Rule<DestinationRule>>> {
        self.destination_rules_of(service, |rules| {
            rules.retain(|rule| self.is_selected(rule));
            let selector = rules.iter().find_map(|rule| selector_of(rule)).cloned();
            rules.retain(|rule| selector_of(rule) == selector.as_ref());
        })
    }

    /// Rules for connections that come in at a service, in the order of [`Self::destination_rules`]. As in Istio, one for some
    /// workloads is for connections of theirs alone.
    pub(crate) fn rules_of_server(&self, service: &Service) -> Vec<Arc<Rule<DestinationRule>>> {
        self.destination_rules_of(service, |rules| {
            rules.retain(|rule| selector_of(rule).is_none());
        })
    }

    /// `choose` leaves those that count of rules of one namespace for one host.
    fn destination_rules_of(
        &self,
        service: &Service,
        choose: impl Fn(&mut Vec<Arc<Rule<DestinationRule>>>),
    ) -> Vec<Arc<Rule<DestinationRule>>> {
        let all = &*self.visible.destination_rules;
        if all.is_empty() {
            return Vec::new();
        }
        // All streams come here, for each of their services.
        let written = &*service.key.hostname;
        let is_lower = !written.bytes().any(|byte| byte.is_ascii_uppercase());
        let host = match is_lower {
            true => Cow::Borrowed(written),
            false => Cow::Owned(written.to_ascii_lowercase()),
        };
        let own = match self.scope.namespace.as_ref() {
            Some(own) if *own == self.root => Some(&*self.visible.of_root_alone),
            own => own.and_then(|own| all.get(own)),
        };
        let levels = [own, all.get(&service.key.namespace), all.get(&self.root)];
        let rules = levels.into_iter().flatten().find_map(|of| {
            let of_host = |host: &str| {
                let mut rules = of.get(host)?.clone();
                choose(&mut rules);
                (!rules.is_empty()).then_some(rules)
            };
            // Wildcards come before names.
            let has_wildcards = of.keys().next().is_some_and(|first| first.starts_with('*'));
            let by_wildcard = || {
                let mut hosts = patterns(&host).into_iter().skip(1);
                hosts.find_map(|pattern| of_host(&pattern))
            };
            of_host(&host).or_else(|| has_wildcards.then(by_wildcard)?)
        });
        rules.unwrap_or_default()
    }

    /// A rule may be for some workloads of its own namespace alone.
    fn is_selected(&self, rule: &Rule<DestinationRule>) -> bool {
        selector_of(rule).is_none_or(|labels| {
            // The namespace of each such rule is told from others, so the scope has it.
            Some(rule.namespace()) == self.scope.namespace.as_ref() && self.meets(labels)
        })
    }

    /// Returns true if the proxy's workload has these labels.
    pub(crate) fn meets(&self, wanted: &BTreeMap<String, String>) -> bool {
        let wanted = labels(wanted);
        let at = self.visible.selectors.binary_search(&wanted);
        wanted.is_empty() || at.is_ok_and(|at| self.scope.selected.binary_search(&at).is_ok())
    }

    /// Returns true if the proxy is in this namespace; the empty name means any.
    pub(crate) fn is_in(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.scope.namespace.as_deref() == Some(namespace)
    }

    /// The full name of a host that a rule of a namespace writes.
    pub(crate) fn full_host(&self, host: &str, namespace: &str) -> String {
        full_host(host, namespace, &self.domain)
    }
}

/// Returns true if a rule, or one of its matches, holds for sidecars: it names `mesh`, or no gateway.
pub(crate) fn is_of_mesh(gateways: &[String]) -> bool {
    gateways.is_empty() || gateways.iter().any(|one| one == MESH)
}

/// The labels of workloads that a rule is for; `None`: it is for all of them.
fn selector_of(rule: &Rule<DestinationRule>) -> Option<&BTreeMap<String, String>> {
    let selector = rule.spec().workload_selector.as_ref();
    selector.map(|selector| &selector.match_labels)
}

fn labels(labels: &BTreeMap<String, String>) -> Labels {
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
        .collect()
}
