//! Sidecar: which services and routes the proxies see that it holds for, and where they listen for them (discovery.md §17).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::config::discovery_notes::{SIDECAR_OF_ROUTERS, egress_socket};
use api::istio::networking::v1alpha3::outbound_traffic_policy::Mode;
use api::model::{Labels, ObjectRef, Protocol, World, selects};
use api::names::full_host;
use api::networking::{CaptureMode, Destination, DiscoveryKind as _, IstioEgressListener, Sidecar};

use super::selecting::SelectingRule;
use super::{OutboundTrafficPolicy, Rule, labels};
use crate::common::conflict::REJECTED_CONFIG;
use crate::common::service_ports::subset_name;

/// Sidecars by their namespace, in the order in which they are asked whether they hold: those with a selector first, then the
/// older.
#[derive(Debug, Default)]
pub(super) struct Sidecars(HashMap<Arc<str>, Vec<Arc<Rule<Sidecar>>>>);

impl Sidecars {
    pub(super) fn new(world: &World) -> Self {
        let mut all: HashMap<Arc<str>, Vec<_>> = HashMap::new();
        for object in world.sidecars.values() {
            let of = all.entry(object.namespace.clone()).or_default();
            of.push(Arc::new(Rule::new(object, Vec::new())));
        }
        for of in all.values_mut() {
            of.sort_by(|one, other| {
                let has_none = |rule: &Rule<Sidecar>| wanted(rule.spec()).is_empty();
                has_none(one)
                    .cmp(&has_none(other))
                    .then_with(|| one.order(other))
            });
        }
        Self(all)
    }

    /// The one that holds for a proxy: the oldest that selects it, else the oldest of its namespace that selects nobody, else
    /// that of the root namespace. `labels`: each of these may meet a selector.
    pub(super) fn of(
        &self,
        namespace: &str,
        root: &str,
        labels: &[&Labels],
    ) -> Option<&Arc<Rule<Sidecar>>> {
        let own = self.0.get(namespace).into_iter().flatten();
        let of_root = self.0.get(root).into_iter().flatten();
        let holds = |rule: &&Arc<Rule<Sidecar>>| {
            let wanted = wanted(rule.spec());
            labels.iter().any(|labels| selects(&wanted, labels))
        };
        let for_all = |rule: &&Arc<Rule<Sidecar>>| wanted(rule.spec()).is_empty();
        // Sidecars without a selector hold for everybody; they stand last.
        let own_sidecar = own.clone().find(holds);
        own_sidecar.or_else(|| of_root.clone().find(for_all))
    }

    /// Returns the Sidecars of a namespace whose selectors find a workload.
    pub(super) fn selecting<'a>(
        &'a self,
        namespace: &str,
        of_workload: [&'a Labels; 2],
    ) -> impl Iterator<Item = SelectingRule> + use<'a> {
        let own = self.0.get(namespace).into_iter().flatten();
        own.filter_map(move |rule| {
            let selector = wanted(rule.spec());
            let holds = of_workload.iter().any(|labels| selects(&selector, labels));
            let reason = (REJECTED_CONFIG, SIDECAR_OF_ROUTERS);
            (!selector.is_empty() && holds).then(|| SelectingRule::new(rule, selector, reason))
        })
    }

    /// Namespaces whose own Sidecars tell them from others.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        let all = self.0.iter();
        let narrow = all.filter(|(_, rules)| rules.iter().any(|rule| narrows(rule.spec())));
        narrow.map(|(namespace, _)| namespace)
    }

    /// Returns true if a Sidecar for all namespaces imports `./`, each namespace's own services.
    pub(super) fn means_own(&self, root: &str) -> bool {
        let all = self.0.get(root).into_iter().flatten();
        let mut hosts = all.flat_map(|rule| &rule.spec().egress);
        hosts.any(|listener| listener.hosts.iter().any(|host| host.starts_with("./")))
    }
}

fn wanted(spec: &Sidecar) -> Labels {
    let selector = spec.workload_selector.as_ref();
    selector.map_or_else(Labels::new, |selector| labels(&selector.labels))
}

/// Returns true if it restricts outbound traffic; else it is about inbound traffic alone.
pub(super) fn narrows(spec: &Sidecar) -> bool {
    !spec.egress.is_empty() || spec.outbound_traffic_policy.is_some()
}

/// Hosts that a listener imports, by the namespace that they are of.
#[derive(Debug, Default)]
pub(super) struct Imports {
    any: Hosts,
    named: BTreeMap<Arc<str>, Hosts>,
    without: BTreeMap<Arc<str>, Hosts>,
    /// Excluded in whatever namespace they are.
    without_any: Hosts,
}

/// Hosts and wildcards.
#[derive(Debug, Default)]
struct Hosts {
    all: bool,
    exact: HashSet<String>,
    /// Wildcards without their `*.`.
    suffixes: HashSet<String>,
    /// All of them, each from its end: those that end alike stand together.
    reversed: BTreeSet<String>,
}

impl Hosts {
    fn add(&mut self, host: String) {
        self.reversed.insert(host.chars().rev().collect());
        match host.strip_prefix("*.") {
            _ if host == "*" => self.all = true,
            Some(suffix) => drop(self.suffixes.insert(suffix.to_owned())),
            None => drop(self.exact.insert(host)),
        }
    }

    fn have(&self, host: &str) -> bool {
        if self.all || self.exact.contains(host) {
            return true;
        }
        let mut rest = host;
        let wild = host.strip_prefix("*.");
        wild.is_some_and(|suffix| self.suffixes.contains(suffix))
            || std::iter::from_fn(|| {
                (_, rest) = rest.split_once('.')?;
                Some(rest)
            })
            .any(|suffix| self.suffixes.contains(suffix))
    }

    /// Returns true if a wildcard means one of them.
    fn have_below(&self, wildcard: &str) -> bool {
        let Some(suffix) = wildcard.strip_prefix('*') else {
            return false;
        };
        let end: String = suffix.chars().rev().collect();
        let mut from = self.reversed.range::<String, _>(&end..);
        from.next().is_some_and(|one| one.starts_with(&end))
    }
}

impl Imports {
    /// `own`: the proxy's namespace, where it is told from others.
    pub(super) fn new(
        hosts: &[String],
        own: Option<&Arc<str>>,
        rule: &Rule<Sidecar>,
        domain: &str,
    ) -> Self {
        let mut imports = Self::default();
        for entry in hosts {
            let Some((namespace, host)) = entry.split_once('/') else {
                continue;
            };
            let full = |namespace: &str| full_host(host, namespace, domain);
            match (namespace, namespace.strip_prefix('~')) {
                // Earlier releases write it for "nothing"; beside other hosts it takes nothing from them there either.
                ("~", _) if host == "*" => {}
                ("~", _) => imports.without_any.add(full(rule.namespace())),
                ("*", _) => imports.any.add(full(rule.namespace())),
                (".", _) => {
                    // A namespace that is not told from others owns no services (`Rules::special`).
                    if let Some(own) = own {
                        imports.named.entry(own.clone()).or_default().add(full(own));
                    }
                }
                (_, Some(namespace)) => {
                    let of = imports.without.entry(namespace.into()).or_default();
                    of.add(full(namespace));
                }
                (namespace, None) => {
                    let of = imports.named.entry(namespace.into()).or_default();
                    of.add(full(namespace));
                }
            }
        }
        imports
    }

    /// Returns true if a host of a service or of a rule of this namespace is imported, or is a wildcard that means an imported one.
    /// `host`: in full and in lower case.
    pub(super) fn have(&self, namespace: &str, host: &str) -> bool {
        let named = self.named.get(namespace);
        let mut all = [Some(&self.any), named].into_iter().flatten();
        let is_in = all.any(|hosts| hosts.have(host) || hosts.have_below(host));
        let without = self.without.get(namespace);
        let mut without = without.into_iter().chain([&self.without_any]);
        // An exclusion leaves out the hosts that it means, and no wildcard above them.
        is_in && !without.any(|out| out.have(host))
    }
}

/// A socket that has no address of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    /// The path of the socket, or `@NAME`.
    pub(crate) path: Arc<str>,
    /// The name of the routes of requests that come in there.
    pub(crate) routes: Arc<str>,
}

/// A listener for services, as a Sidecar declares it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EgressListener {
    /// `None`, and there is no socket: each service has its own port.
    pub(crate) port: Option<u16>,
    /// In place of a port.
    pub(crate) socket: Option<Socket>,
    pub(crate) bind: Option<IpAddr>,
    /// Applications call the listener itself.
    pub(crate) bound: bool,
    /// The protocol of services that declare none.
    pub(crate) protocol: Option<Protocol>,
    /// Applications use it as a proxy.
    pub(crate) is_proxy: bool,
    /// The name of the routes of such a port: its number, where no service has these at another listener.
    pub(crate) proxy_routes: Option<Arc<str>>,
}

impl EgressListener {
    /// Returns true if each service has its own port there.
    pub(crate) const fn is_of_all_ports(&self) -> bool {
        self.port.is_none() && self.socket.is_none()
    }

    /// `None`: such a listener is not served, which is a note of the Sidecar. `routes`: names that routes of sockets have already.
    pub(super) fn new(
        listener: &IstioEgressListener,
        routes: &mut BTreeSet<Arc<str>>,
    ) -> Option<Self> {
        let port = listener.port.as_ref();
        let number = port.map(|port| u16::try_from(port.number).ok().filter(|one| *one > 0));
        let number = number.flatten();
        let socket = match port.filter(|_| number.is_none()) {
            Some(port) => Some(Socket {
                path: egress_socket(&listener.bind).ok()?.into(),
                routes: routes_of_socket(&port.name, &listener.bind, routes),
            }),
            None => None,
        };
        let declared = port.map_or("", |port| &port.protocol);
        let is_proxy = declared.eq_ignore_ascii_case("HTTP_PROXY");
        let protocol = Protocol::of_service_entry(declared).filter(|one| !one.is_auto());
        Some(Self {
            port: number,
            socket,
            bind: listener.bind.parse().ok(),
            bound: listener.capture_mode() == CaptureMode::None,
            protocol: protocol.filter(|_| !is_proxy),
            is_proxy,
            proxy_routes: None,
        })
    }

    /// Names the routes of a port that applications use as a proxy. `is_taken`: others have routes by that name.
    pub(super) fn name_routes(&mut self, is_taken: impl Fn(&str) -> bool) {
        let Some(port) = self.port.filter(|_| self.is_proxy) else {
            return;
        };
        let number = port.to_string();
        let name = match is_taken(&number) {
            true => format!("{HTTP_PROXY}.{port}"),
            false => number,
        };
        self.proxy_routes = Some(name.into());
    }
}

/// The prefix of the names of routes behind ports that applications use as a proxy.
const HTTP_PROXY: &str = "http_proxy";

/// The port's name, where no other routes have it: those of a port are called by its number.
fn routes_of_socket(port: &str, bind: &str, taken: &mut BTreeSet<Arc<str>>) -> Arc<str> {
    let is_number = port.bytes().all(|letter| letter.is_ascii_digit());
    let name = Some(Arc::from(port)).filter(|_| !is_number);
    let name = name.filter(|name| !taken.contains(name));
    let name = name.unwrap_or_else(|| bind.into());
    taken.insert(name.clone());
    name
}

/// Returns true if an object is a Sidecar.
pub(crate) fn is_sidecar(object: &ObjectRef) -> bool {
    object.kind == Sidecar::NAME
}

/// The proxy of the Sidecar's `outboundTrafficPolicy`.
pub(super) fn egress_proxy(sidecar: &Rule<Sidecar>) -> Option<&Destination> {
    let policy = sidecar.spec().outbound_traffic_policy.as_ref()?;
    policy.egress_proxy.as_ref()
}

/// The target of traffic to no known service that a Sidecar sets; `None` where the mesh's holds.
pub(super) fn unknown_traffic(
    sidecar: &Rule<Sidecar>,
    domain: &str,
) -> Option<OutboundTrafficPolicy> {
    let policy = sidecar.spec().outbound_traffic_policy.as_ref()?;
    Some(match egress_proxy(sidecar) {
        Some(proxy) => {
            let host = full_host(&proxy.host, sidecar.namespace(), domain);
            let number = proxy.port.as_ref().map_or(0, |port| port.number);
            let number = u16::try_from(number).unwrap_or_default();
            OutboundTrafficPolicy::To(subset_name(number, &proxy.subset, &host))
        }
        None if policy.mode() == Mode::AllowAny => OutboundTrafficPolicy::Anywhere,
        None => OutboundTrafficPolicy::Nowhere,
    })
}
