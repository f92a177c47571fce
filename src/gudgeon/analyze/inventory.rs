//! All objects that were read, and what can be looked up among them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::mesh::MeshConfig;
use api::model::{Labels, Protocol};
use api::names::{self, export_to};
use serde_json::Value as Json;

use super::running_proxy;
use super::workload_index::{RunningProxy, Runs, WorkloadIndex, WorkloadSet};

/// An object of a file.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) number: usize,
    /// Empty: Kubernetes' own objects without a group.
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The spec in one spelling for an object of Istio's kinds, the whole object for others.
    pub(super) body: Json,
    pub(super) annotations: Json,
}

/// A host that clients can call.
#[derive(Clone, Debug)]
pub(super) struct ServiceHost {
    pub(super) namespace: String,
    /// The numbers of the ports.
    pub(super) ports: Vec<u64>,
    /// The ports that clients call, with their protocols.
    pub(super) protocols: Vec<(u64, Protocol)>,
    /// Selects workloads of its namespace.
    pub(super) selector: Labels,
    /// Namespaces that see it; empty: all.
    pub(super) exported_to: Vec<String>,
    /// Its endpoints are known by their labels alone.
    pub(super) is_selecting: bool,
    /// Labels of endpoints that it names itself.
    pub(super) endpoints: Vec<Labels>,
}

/// The workloads that a Gateway's selector finds.
#[derive(Debug)]
struct GatewayWorkloads {
    set: WorkloadSet,
    namespaces: BTreeSet<String>,
}

/// All objects of an analysis, with their indexes.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// `None`: it is not known.
    pub(super) mesh: Option<MeshConfig>,
    items: Vec<Item>,
    by_kind: HashMap<String, Vec<usize>>,
    /// By kind, namespace and name.
    by_name: HashMap<(String, String, String), usize>,
    /// DestinationRules by their whole hosts.
    rules: BTreeMap<String, Vec<usize>>,
    pub(super) hosts: BTreeMap<String, Vec<ServiceHost>>,
    pub(super) workloads: WorkloadIndex,
    /// Workloads by the selectors of Gateways, which are few and have many Gateways each.
    by_gateway: BTreeMap<Labels, GatewayWorkloads>,
    pub(super) secrets: BTreeSet<(String, String)>,
    /// Namespaces that are among the objects, that have an object, or that every cluster has.
    pub(super) namespaces: BTreeSet<String>,
    /// Any is among the objects.
    pub(super) has_namespaces: bool,
    /// Services that have endpoints by name: namespace and name.
    pub(super) with_endpoints: BTreeSet<(String, String)>,
    pub(super) root: String,
    pub(super) domain: String,
}

/// Namespaces that every cluster has, Kubernetes' own and Istio's.
const EVERYWHERE: [&str; 5] = [
    "default",
    "istio-system",
    "kube-node-lease",
    "kube-public",
    "kube-system",
];

/// Kinds with a template of pods, and where it is.
const TEMPLATES: [(&str, &str); 7] = [
    ("CronJob", "/spec/jobTemplate/spec/template/metadata/labels"),
    ("DaemonSet", "/spec/template/metadata/labels"),
    ("Deployment", "/spec/template/metadata/labels"),
    ("Job", "/spec/template/metadata/labels"),
    ("ReplicaSet", "/spec/template/metadata/labels"),
    ("StatefulSet", "/spec/template/metadata/labels"),
    ("Pod", "/metadata/labels"),
];

/// Labels of an object of texts.
pub(super) fn labels(value: Option<&Json>) -> Labels {
    let fields = value.and_then(Json::as_object).into_iter().flatten();
    fields
        .filter_map(|(name, value)| Some((Arc::from(name.as_str()), Arc::from(value.as_str()?))))
        .collect()
}

/// `a=b,c=d`.
pub(super) fn printable(labels: &Labels) -> String {
    let pairs = labels.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// The items of a list, with their places.
pub(super) fn list<'a>(
    value: &'a Json,
    pointer: &str,
) -> impl Iterator<Item = (usize, &'a Json)> + use<'a> {
    let items = value.pointer(pointer).and_then(Json::as_array);
    items.into_iter().flatten().enumerate()
}

pub(super) fn text<'a>(value: &'a Json, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Json::as_str)
        .unwrap_or_default()
}

pub(super) fn texts(value: &Json, pointer: &str) -> Vec<String> {
    list(value, pointer)
        .filter_map(|(_, one)| one.as_str().map(str::to_owned))
        .collect()
}

/// Returns true if a pattern, `*` or `*.x`, means a host.
pub(super) fn is_meant(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some("") => true,
        Some(end) => host.ends_with(end) && host.len() > end.len(),
        None => pattern == host,
    }
}

/// Returns true if two patterns mean a host in common.
pub(super) fn overlap(one: &str, other: &str) -> bool {
    match (one.strip_prefix('*'), other.strip_prefix('*')) {
        (Some(one), Some(other)) => one.ends_with(other) || other.ends_with(one),
        (Some(_), None) => is_meant(one, other),
        (None, _) => is_meant(other, one),
    }
}

impl Inventory {
    pub(super) fn new(items: Vec<Item>, root: &str, domain: &str) -> Self {
        let mut all = Self {
            root: root.to_owned(),
            domain: domain.to_owned(),
            namespaces: EVERYWHERE
                .into_iter()
                .chain([root])
                .map(str::to_owned)
                .collect(),
            ..Self::default()
        };
        let mut running = Vec::new();
        for (at, item) in items.iter().enumerate() {
            all.add(item, &mut running);
            all.by_kind.entry(item.kind.clone()).or_default().push(at);
            let name = (item.kind.clone(), item.namespace.clone(), item.name.clone());
            all.by_name.entry(name).or_insert(at);
            if item.kind == "DestinationRule" {
                let host = all.full_host(text(&item.body, "/host"), &item.namespace);
                all.rules.entry(host).or_default().push(at);
            }
        }
        all.items = items;
        all.workloads = WorkloadIndex::new(running);
        let selectors = all
            .of("Gateway")
            .map(|item| labels(item.body.get("selector")));
        let selectors: BTreeSet<Labels> = selectors.collect();
        let sets = selectors.into_iter().map(|selector| {
            let workloads = GatewayWorkloads {
                set: all.workloads.set(&selector, None),
                namespaces: all.workloads.namespaces(&selector),
            };
            (selector, workloads)
        });
        all.by_gateway = sets.collect();
        all
    }

    fn add(&mut self, item: &Item, running: &mut Vec<Runs>) {
        let body = &item.body;
        if !item.namespace.is_empty() && !self.namespaces.contains(&item.namespace) {
            self.namespaces.insert(item.namespace.clone());
        }
        let runs = |labels: Labels, proxy: RunningProxy| Runs {
            namespace: item.namespace.clone(),
            name: item.name.clone(),
            labels,
            proxy,
        };
        let here = (item.namespace.clone(), item.name.clone());
        match item.kind.as_str() {
            "Service" => {
                let host = format!("{}.{}.svc.{}", item.name, item.namespace, self.domain);
                self.hosts.entry(host).or_default().push(of_service(item));
            }
            "ServiceEntry" => {
                for host in texts(body, "/hosts") {
                    let known = of_entry(item);
                    self.hosts
                        .entry(names::canonical_host(&host))
                        .or_default()
                        .push(known);
                }
            }
            "WorkloadEntry" => {
                running.push(runs(labels(body.get("labels")), RunningProxy::Other));
            }
            "Secret" => drop(self.secrets.insert(here)),
            "Namespace" => {
                self.has_namespaces = true;
                self.namespaces.insert(item.name.clone());
            }
            "Endpoints" if list(body, "/subsets").next().is_some() => {
                self.with_endpoints.insert(here);
            }
            "EndpointSlice" if list(body, "/endpoints").next().is_some() => {
                // `~1` stands for the slash in a JSON pointer.
                let service = text(body, "/metadata/labels/kubernetes.io~1service-name");
                self.with_endpoints
                    .insert((item.namespace.clone(), service.to_owned()));
            }
            kind => {
                let template = TEMPLATES.iter().find(|(known, _)| *known == kind);
                if let Some((_, pointer)) = template {
                    let proxy =
                        running_proxy::of(body, pointer.trim_end_matches("/metadata/labels"));
                    running.push(runs(labels(body.pointer(pointer)), proxy));
                }
            }
        }
    }

    pub(super) fn of(&self, kind: &str) -> impl Iterator<Item = &Item> {
        let all = self.by_kind.get(kind).into_iter().flatten();
        all.filter_map(|at| self.items.get(*at))
    }

    pub(super) fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&Item> {
        let name = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        self.by_name.get(&name).and_then(|at| self.items.get(*at))
    }

    /// DestinationRules that mean a host, by it or by a wildcard.
    pub(super) fn rules_of(&self, host: &str) -> impl Iterator<Item = &Item> {
        // `*` sorts before all that a host may begin with, so the wildcards come first.
        let wild = self
            .rules
            .iter()
            .take_while(|(pattern, _)| pattern.starts_with('*'));
        let wild = wild.filter(move |(pattern, _)| *pattern != host && is_meant(pattern, host));
        let all = wild
            .map(|(_, all)| all)
            .chain(self.rules.get(host))
            .flatten();
        all.filter_map(|at| self.items.get(*at))
    }

    /// The whole name of a host that an object of a namespace writes.
    pub(super) fn full_host(&self, host: &str, namespace: &str) -> String {
        names::full_host(host, namespace, &self.domain)
    }

    /// The services that a whole name means, as far as a namespace sees them.
    pub(super) fn hosts_of(&self, host: &str, namespace: &str) -> Vec<&ServiceHost> {
        let sees = |service: &&ServiceHost| {
            service.exported_to.is_empty()
                || service.exported_to.iter().any(|to| match to.as_str() {
                    "*" => true,
                    "." => service.namespace == namespace,
                    to => to == namespace,
                })
        };
        // A host that is written out comes before every wildcard.
        if let Some(services) = self.hosts.get(host) {
            return services.iter().filter(sees).collect();
        }
        let wildcards = self.hosts.iter().filter(|(pattern, _)| {
            pattern.starts_with('*') && is_meant(pattern, host)
                || host.starts_with('*') && is_meant(host, pattern)
        });
        wildcards
            .flat_map(|(_, services)| services)
            .filter(sees)
            .collect()
    }

    /// Returns true if a selector finds a workload: in one namespace, or in any where it is the root's.
    pub(super) fn selects_any(&self, selector: &Labels, namespace: &str) -> bool {
        let namespace = Some(namespace).filter(|namespace| *namespace != self.root);
        self.workloads
            .selected(selector, namespace)
            .next()
            .is_some()
    }

    /// Returns true if a selector finds routers alone: in one namespace, or in any where it is the root's.
    pub(super) fn selects_routers_alone(&self, selector: &Labels, namespace: &str) -> bool {
        let namespace = Some(namespace).filter(|namespace| *namespace != self.root);
        self.workloads.selects_routers_alone(selector, namespace)
    }

    /// The selector of a Gateway, with its workloads in all namespaces.
    pub(super) fn gateway_selector(&self, selector: &Labels) -> Option<(&Labels, &WorkloadSet)> {
        let (selector, workloads) = self.by_gateway.get_key_value(selector)?;
        Some((selector, &workloads.set))
    }

    /// The namespaces that they run in; none of a selector that is empty.
    pub(super) fn namespaces_of_gateway(&self, selector: &Labels) -> BTreeSet<&str> {
        let workloads = self
            .by_gateway
            .get(selector)
            .filter(|_| !selector.is_empty());
        let namespaces = workloads
            .into_iter()
            .flat_map(|workloads| &workloads.namespaces);
        namespaces.map(String::as_str).collect()
    }

    /// The selectors of Gateways, each with its workloads.
    pub(super) fn gateway_selectors(&self) -> impl Iterator<Item = (&Labels, &WorkloadSet)> {
        let all = self.by_gateway.iter();
        all.map(|(selector, workloads)| (selector, &workloads.set))
    }
}

fn of_service(item: &Item) -> ServiceHost {
    let ports = list(&item.body, "/spec/ports").filter_map(|(_, port)| port.get("port")?.as_u64());
    let annotation = text(&item.annotations, "/networking.istio.io~1exportTo");
    let (exported_to, _unknown) = export_to(annotation);
    let selector = labels(item.body.pointer("/spec/selector"));
    let protocols = list(&item.body, "/spec/ports").filter_map(|(_, port)| {
        let number = port.get("port")?.as_u64()?;
        let (app, name) = (
            port.get("appProtocol").and_then(Json::as_str),
            text(port, "/name"),
        );
        let transport = text(port, "/protocol");
        let protocol = Protocol::of_kubernetes(transport, app, name, u16::try_from(number).ok()?);
        Some((number, protocol?))
    });
    ServiceHost {
        namespace: item.namespace.clone(),
        protocols: protocols.collect(),
        ports: ports.collect(),
        is_selecting: !selector.is_empty(),
        selector,
        exported_to: exported_to.into_iter().map(str::to_owned).collect(),
        endpoints: Vec::new(),
    }
}

fn of_entry(item: &Item) -> ServiceHost {
    let body = &item.body;
    let ports = list(body, "/ports").filter_map(|(_, port)| port.get("number")?.as_u64());
    let selector = labels(body.pointer("/workloadSelector/labels"));
    let protocols = list(body, "/ports").filter_map(|(_, port)| {
        let number = port.get("number")?.as_u64()?;
        let protocol = Protocol::of_service_entry(text(port, "/protocol"))?;
        Some((number, protocol))
    });
    ServiceHost {
        namespace: item.namespace.clone(),
        protocols: protocols.collect(),
        ports: ports.collect(),
        is_selecting: !selector.is_empty(),
        selector,
        exported_to: texts(body, "/exportTo"),
        endpoints: list(body, "/endpoints")
            .map(|(_, one)| labels(one.get("labels")))
            .collect(),
    }
}
