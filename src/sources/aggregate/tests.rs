//! Small sayings, whole worlds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::mesh;
use api::model::{
    Changes, ClusterId, Configured, Endpoint, EndpointAddress, Health, Labels, Locality, Port,
    Protocol, PushRequest, Registry, Resolution, Service, ServiceKey, Target, TriggerReason,
    Workload, WorkloadKey, World,
};
use api::networking::{
    self, DestinationRule, DiscoveryKind, ServiceEntry, Sidecar, VirtualService, WorkloadEntry,
};
use api::yaml::{self, Limits};
use serde_json::json;

use super::{Registries, Settings};
use crate::contribution::{ConfigurationKind, Contribution, SourceId, SyncState};

const LIMITS: Limits = Limits {
    bytes: 1 << 16,
    depth: 32,
    nodes: 10_000,
};

pub(super) fn settings() -> Settings {
    Settings {
        cluster: "local".into(),
        trust_domain: "cluster.local".into(),
        order: vec![Registry::Kubernetes, Registry::Consul, Registry::Memory],
        block_http_on_443: true,
    }
}

pub(super) fn registries(mesh: &str) -> Registries {
    let mesh = mesh::parse(mesh).unwrap().config;
    Registries::new(settings(), Arc::new(mesh), Arc::default())
}

pub(super) fn source(registry: Registry, cluster: &str) -> SourceId {
    SourceId {
        registry,
        cluster: cluster.into(),
    }
}

pub(super) fn configured<T: DiscoveryKind>(
    namespace: &str,
    name: &str,
    spec: &str,
) -> Configured<T> {
    let node = yaml::read(spec, LIMITS).unwrap().unwrap();
    let checked = networking::check(&json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": T::NAME,
        "metadata": {"name": name, "namespace": namespace},
        "spec": node.to_json(),
    }));
    let spec = checked
        .spec
        .unwrap_or_else(|| panic!("{:?}", checked.findings));
    Configured {
        name: name.into(),
        namespace: namespace.into(),
        created: None,
        prefers_close: false,
        dry_run: false,
        spec,
    }
}

/// Builds a contribution.
#[derive(Clone, Default)]
pub(super) struct ContributionBuilder(pub(super) Contribution);

impl ContributionBuilder {
    pub(super) fn object<T: ConfigurationKind>(mut self, name: &str, spec: &str) -> Self {
        let one = Arc::new(configured::<T>("demo", name, spec));
        self.0.configuration.set(T::any(one));
        self
    }

    pub(super) fn entry(self, name: &str, spec: &str) -> Self {
        self.object::<ServiceEntry>(name, spec)
    }

    pub(super) fn place(self, name: &str, spec: &str) -> Self {
        self.object::<WorkloadEntry>(name, spec)
    }

    pub(super) fn sidecar(self, name: &str, spec: &str) -> Self {
        self.object::<Sidecar>(name, spec)
    }

    pub(super) fn service(mut self, service: Service) -> Self {
        Arc::make_mut(&mut self.0.services).insert(service.key.clone(), Arc::new(service));
        self
    }

    pub(super) fn endpoints(mut self, host: &str, mut endpoints: Vec<Endpoint>) -> Self {
        endpoints.sort_unstable();
        endpoints.dedup();
        Arc::make_mut(&mut self.0.endpoints)
            .insert(ServiceKey::new(host, "demo"), endpoints.into());
        self
    }

    pub(super) fn pod(mut self, pod: Workload) -> Self {
        Arc::make_mut(&mut self.0.workloads).insert(pod.key.clone(), Arc::new(pod));
        self
    }
}

/// A service of Kubernetes with one HTTP port.
pub(super) fn service(host: &str, cluster: &str, address: &str) -> Service {
    Service {
        key: ServiceKey::new(host, "demo"),
        registry: Registry::Kubernetes,
        ports: vec![Port {
            name: "http".into(),
            number: 80,
            protocol: Protocol::Http,
            target: Target::Number(8080),
        }],
        addresses: BTreeMap::from([(cluster.into(), vec![address.parse().unwrap()])]),
        cluster: cluster.into(),
        resolution: Resolution::Static,
        mesh_external: false,
        selector: Labels::new(),
        created: None,
        accounts: BTreeSet::new(),
        prefers_close: false,
        exported_to: Vec::new(),
        balancers: BTreeMap::new(),
    }
}

pub(super) fn endpoint(address: &str) -> Endpoint {
    Endpoint::new(EndpointAddress::read(address), 8080, "http")
}

pub(super) fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

pub(super) fn pod(cluster: &str, name: &str, address: &str, of: &str) -> Workload {
    Workload {
        key: WorkloadKey {
            cluster: cluster.into(),
            namespace: "demo".into(),
            name: name.into(),
        },
        addresses: vec![address.parse().unwrap()],
        labels: Arc::new(labels(of)),
        locality: Locality::default(),
        network: None,
        account: Some("spiffe://cluster.local/ns/demo/sa/pod".into()),
        ports: BTreeMap::new(),
        owner: None,
        health: Health::Ready,
    }
}

fn joined<T: ToString>(parts: impl IntoIterator<Item = T>) -> String {
    let parts: Vec<_> = parts.into_iter().map(|part| part.to_string()).collect();
    parts.join(",")
}

/// A line for each service, and one for each of its endpoints.
pub(super) fn world_lines(world: &World) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, service) in world.services.iter() {
        let ports = service.ports.iter().map(|port| {
            format!(
                "{}:{}:{:?}:{:?}",
                port.name, port.number, port.protocol, port.target
            )
        });
        let addresses = service
            .addresses
            .iter()
            .map(|(cluster, addresses)| format!("{cluster}={}", joined(addresses)));
        lines.push(format!(
            "{} {} {} {}{}",
            key.hostname,
            service.resolution.as_str(),
            joined(ports),
            joined(addresses),
            if service.mesh_external {
                " external"
            } else {
                ""
            },
        ));
        for (cluster, one) in world.endpoints_of(key) {
            let account = one.account.as_deref().unwrap_or("");
            lines.push(format!(
                "  {cluster} {}:{} {} {} w{} {} {account}",
                one.address,
                one.port,
                one.port_name,
                joined(
                    one.labels
                        .iter()
                        .map(|(name, value)| format!("{name}={value}"))
                ),
                one.weight,
                one.locality,
            ));
        }
    }
    lines
}

fn put(
    registries: &mut Registries,
    source: &SourceId,
    contribution: ContributionBuilder,
) -> Changes {
    registries.put(source, contribution.0)
}

fn hosts(hosts: &[&str]) -> PushRequest {
    PushRequest::Endpoints(hosts.iter().map(|host| (*host).into()).collect())
}

fn full(reason: TriggerReason) -> Vec<PushRequest> {
    vec![PushRequest::Full(reason)]
}

const B: &str = "{hosts: [b.example], ports: [{number: 8080, name: http, protocol: HTTP}], \
                  location: MESH_INTERNAL, resolution: STATIC, addresses: [240.0.0.1], ";

#[test]
fn an_entry_is_a_service_for_each_host() {
    let files = source(Registry::External, "local");
    for (spec, want) in [
        (
            "{hosts: [b.example], addresses: [240.0.0.1/32, 10.1.2.3/16], resolution: STATIC,
              ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}, {number: 53, name: dns, protocol: UDP},
                      {number: 9000, name: x}],
              endpoints: [{address: 10.0.0.1, ports: {x: 9001}, labels: {v: '1'}, locality: eu/west/, weight: 7,
                           serviceAccount: b}, {address: '2001:db8::1', weight: 0, network: far}]}",
            &[
                "b.example STATIC http:80:Http:Number(8080),x:9000:Auto:Number(9000) local=240.0.0.1,10.1.0.0/16 external",
                "  local 10.0.0.1:8080 http v=1 w7 eu/west spiffe://cluster.local/ns/demo/sa/b",
                "  local 10.0.0.1:9001 x v=1 w7 eu/west spiffe://cluster.local/ns/demo/sa/b",
                "  local 2001:db8::1:8080 http  w0  ",
                "  local 2001:db8::1:9000 x  w0  ",
            ][..],
        ),
        (
            "{hosts: [B.example., a.example], location: MESH_INTERNAL, resolution: STATIC,
              ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 'unix:///run/b'}]}",
            &[
                "a.example STATIC http:80:Http:Number(80) ",
                "  local unix:///run/b:0 http  w1  ",
                "b.example STATIC http:80:Http:Number(80) ",
                "  local unix:///run/b:0 http  w1  ",
            ],
        ),
        (
            "{hosts: ['*.example'], resolution: NONE, ports: [{number: 443, name: tls, protocol: TLS}]}",
            &["*.example NONE tls:443:Tls:Number(443)  external"],
        ),
        (
            // Valid, but cannot be served as written.
            "{hosts: [a.example, '*.example', '*-b.example'], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}],
              endpoints: [{network: far}]}",
            &[
                "*.example STATIC http:80:Http:Number(80)  external",
                "  local :80 http  w1  ",
                "a.example STATIC http:80:Http:Number(80)  external",
                "  local :80 http  w1  ",
            ],
        ),
        (
            "{hosts: ['*.example'], resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}], endpoints: [{address: a.example}]}",
            &[
                "*.example DNS tls:443:Tls:Number(443)  external",
                "  local a.example:443 tls  w1  ",
            ],
        ),
        (
            "{hosts: ['*.example'], resolution: DYNAMIC_DNS, ports: [{number: 443, name: tls, protocol: TLS}]}",
            &["*.example NONE tls:443:Tls:Number(443)  external"],
        ),
        (
            "{hosts: [db.example], resolution: DNS, ports: [{number: 3306, name: sql, protocol: mysql}]}",
            &["db.example DNS sql:3306:MySql:Number(3306)  external"],
        ),
    ] {
        let mut registries = registries("");
        let changes = put(&mut registries, &files, ContributionBuilder::default().entry("b", spec));
        assert_eq!(changes.pushes(|_| true), full(TriggerReason::Service));
        assert_eq!(world_lines(&registries.world()), want, "{spec}");
        assert!(!registries.remove(&files).is_empty());
        assert_eq!(world_lines(&registries.world()), Vec::<String>::new());
    }
}

#[test]
fn an_entry_selects_places_and_pods_of_every_source() {
    let mut registries = registries("");
    let files = source(Registry::External, "local");
    let entry = format!("{B} workloadSelector: {{labels: {{app: b}}}}}}");
    let contribution = ContributionBuilder::default()
        .entry("b", &entry)
        .place(
            "vm",
            "{address: 10.0.1.1, labels: {app: b}, ports: {http: 81}, serviceAccount: vm}",
        )
        .place("other", "{address: 10.0.1.2, labels: {app: c}}");
    put(&mut registries, &files, contribution.clone());
    let east = source(Registry::Kubernetes, "east");
    let pods = ContributionBuilder::default()
        .pod(pod("east", "b-1", "10.0.2.1", "app=b,v=1"))
        .pod(pod("east", "c-1", "10.0.2.2", "app=c"));
    let changes = put(&mut registries, &east, pods.clone());
    assert_eq!(changes.pushes(|_| true)[0], hosts(&["b.example"]));
    assert_eq!(
        changes.to_string(),
        "Endpoints demo/b.example; Pod demo/b-1 demo/c-1"
    );
    assert_eq!(
        world_lines(&registries.world()),
        [
            "b.example STATIC http:8080:Http:Number(8080) local=240.0.0.1",
            "  east 10.0.2.1:8080 http app=b,v=1 w1  spiffe://cluster.local/ns/demo/sa/pod",
            "  local 10.0.1.1:81 http app=b w1  spiffe://cluster.local/ns/demo/sa/vm",
        ]
    );
    // A pod's labels, its readiness, a place's labels.
    let pods = pods.pod(pod("east", "c-1", "10.0.2.2", "app=b"));
    let changes = put(&mut registries, &east, pods.clone());
    assert_eq!(changes.pushes(|_| true).len(), 2);
    assert_eq!(
        registries
            .world()
            .endpoints_of(&ServiceKey::new("b.example", "demo"))
            .count(),
        3
    );
    let mut unready = pod("east", "c-1", "10.0.2.2", "app=b");
    unready.health = Health::NotReady;
    let changes = put(&mut registries, &east, pods.pod(unready));
    assert_eq!(changes.pushes(|_| true), [hosts(&["b.example"])]);
    let contribution = contribution.place("other", "{address: 10.0.1.2, labels: {app: b}}");
    put(&mut registries, &files, contribution);
    assert_eq!(
        registries
            .world()
            .endpoints_of(&ServiceKey::new("b.example", "demo"))
            .count(),
        4
    );
    registries.remove(&east);
    assert_eq!(
        registries
            .world()
            .endpoints_of(&ServiceKey::new("b.example", "demo"))
            .count(),
        2
    );
}

#[test]
fn clusters_share_their_services_and_take_their_endpoints_with_them() {
    let mut registries = registries("");
    let (local, east, central) = (
        source(Registry::Kubernetes, "local"),
        source(Registry::Kubernetes, "east"),
        source(Registry::Kubernetes, "central"),
    );
    let host = "b.demo.svc.cluster.local";
    let mut other = service(host, "east", "10.1.0.1");
    other.ports[0].number = 81;
    put(
        &mut registries,
        &east,
        ContributionBuilder::default()
            .service(other)
            .endpoints(host, vec![endpoint("10.0.2.1")]),
    );
    let one = ContributionBuilder::default()
        .service(service(host, "local", "10.2.0.1"))
        .endpoints(host, vec![endpoint("10.0.1.1"), endpoint("10.0.1.2")]);
    assert_eq!(
        put(&mut registries, &local, one.clone()).pushes(|_| true),
        full(TriggerReason::Service)
    );
    // Endpoints of a service that only others describe.
    let changes = put(
        &mut registries,
        &central,
        ContributionBuilder::default().endpoints(host, vec![endpoint("10.0.3.1")]),
    );
    assert_eq!(changes.pushes(|_| true), [hosts(&[host])]);
    assert_eq!(
        world_lines(&registries.world()),
        [
            "b.demo.svc.cluster.local STATIC http:80:Http:Number(8080) east=10.1.0.1,local=10.2.0.1",
            "  central 10.0.3.1:8080 http  w1  ",
            "  east 10.0.2.1:8080 http  w1  ",
            "  local 10.0.1.1:8080 http  w1  ",
            "  local 10.0.1.2:8080 http  w1  ",
        ]
    );
    assert_eq!(
        registries.world().services.values().next().unwrap().cluster,
        ClusterId::from("local")
    );
    assert_eq!(registries.reports(), []);
    registries.remove(&east);
    registries.remove(&central);
    assert_eq!(
        world_lines(&registries.world()),
        [
            "b.demo.svc.cluster.local STATIC http:80:Http:Number(8080) local=10.2.0.1",
            "  local 10.0.1.1:8080 http  w1  ",
            "  local 10.0.1.2:8080 http  w1  ",
        ]
    );
    // The last endpoint: the service stays.
    let none = ContributionBuilder::default().service(service(host, "local", "10.2.0.1"));
    assert_eq!(
        put(&mut registries, &local, none).pushes(|_| true),
        [hosts(&[host])]
    );
    assert_eq!(registries.world().services.len(), 1);
    assert!(registries.world().endpoints.is_empty());
}

#[test]
fn the_first_registry_with_a_name_counts() {
    let mut registries = registries("");
    let files = source(Registry::External, "local");
    let consul = source(Registry::Consul, "consul");
    let entry = format!("{B} endpoints: [{{address: 10.0.0.1}}]}}");
    let mut elsewhere = service("b.example", "consul", "10.9.0.1");
    elsewhere.registry = Registry::Consul;
    let contribution = ContributionBuilder::default()
        .entry("b", &entry)
        .entry("a", &entry);
    put(&mut registries, &files, contribution);
    put(
        &mut registries,
        &consul,
        ContributionBuilder::default()
            .service(elsewhere)
            .endpoints("b.example", vec![endpoint("10.0.9.1")]),
    );
    assert_eq!(
        world_lines(&registries.world()),
        [
            "b.example STATIC http:80:Http:Number(8080) consul=10.9.0.1",
            "  consul 10.0.9.1:8080 http  w1  ",
        ]
    );
    let report_lines = |registries: &Registries| -> Vec<_> {
        let reports = registries.reports().into_iter();
        reports
            .map(|report| {
                format!(
                    "{} {} {}: {}",
                    report.source, report.kind, report.name, report.message
                )
            })
            .collect()
    };
    assert_eq!(
        report_lines(&registries),
        [
            "External/local ServiceEntry a: b.example is not used: Consul/consul has it",
            "External/local ServiceEntry b: b.example is not used: Consul/consul has it",
        ]
    );
    registries.remove(&consul);
    assert_eq!(report_lines(&registries), [""; 0]);
    let memory = source(Registry::Memory, "v2-debug");
    put(
        &mut registries,
        &memory,
        ContributionBuilder::default().entry("a", &entry),
    );
    assert_eq!(
        report_lines(&registries),
        [
            "External/local ServiceEntry a: not used: Mock/v2-debug has one of this name",
            "Mock/v2-debug ServiceEntry a: b.example is not used: ServiceEntry demo/b has it",
        ]
    );
}

/// The lists multiply with what an entry selects, too.
#[test]
fn an_entry_selects_no_more_than_its_hosts_and_ports_leave_room_for() {
    let mut registries = registries("");
    let list = |item: &dyn Fn(usize) -> String| (1..=60).map(item).collect::<Vec<_>>().join(", ");
    let entry = format!(
        "{{hosts: [{}], ports: [{}], resolution: STATIC, workloadSelector: {{labels: {{a: b}}}}}}",
        list(&|at| format!("h{at}.example")),
        list(&|at| format!("{{number: {at}, name: p{at}, protocol: HTTP}}")),
    );
    let mut contribution = ContributionBuilder::default().entry("e", &entry);
    for at in 10..40 {
        let place = format!("{{address: 10.0.0.{at}, labels: {{a: b}}}}");
        contribution = contribution.place(&format!("w{at}"), &place);
    }
    let files = source(Registry::External, "local");
    put(&mut registries, &files, contribution);
    let world = registries.world();
    let served: usize = world
        .endpoints
        .get(&ServiceKey::new("h1.example", "demo"))
        .unwrap()
        .values()
        .map(|shard| shard.len())
        .sum();
    assert_eq!(served, 27 * 60);
    let messages: Vec<_> = registries
        .take_new_reports()
        .into_iter()
        .map(|report| report.message)
        .collect();
    let expected = "selects 30 workloads, and the first 27 are used: more than 100000 places with its hosts and ports: split the entry";
    assert_eq!(messages, [expected]);
}

/// Each entry that selects a workload makes its labels anew: objects of 400 kB came to a gigabyte.
#[test]
fn labels_of_workloads_count_among_the_places_that_are_selected() {
    let mut registries = registries("");
    let mut contribution = ContributionBuilder::default();
    for host in 0..1000 {
        let entry = format!(
            "{{hosts: [h{host}.example], ports: [{{number: 80, name: p, protocol: TCP}}], resolution: STATIC, \
             workloadSelector: {{labels: {{a: b}}}}}}"
        );
        contribution = contribution.entry(&format!("e{host:04}"), &entry);
    }
    let labels: String = (0..4_500).map(|at| format!("l{at}: v, ")).collect();
    let place = format!("{{address: 10.0.0.1, labels: {{{labels}a: b}}}}");
    let files = source(Registry::External, "local");
    put(&mut registries, &files, contribution.place("w", &place));
    let expected = "selects 1 workloads, and the first 0 are used: more than 100000 places";
    let reports = registries.take_new_reports();
    let cut = reports
        .iter()
        .filter(|one| one.message.starts_with(expected));
    // A place with its labels takes 224 of the 100,000: there is room for those of 446 entries.
    assert_eq!(cut.count(), 554);
}

/// Each entry and each workload is small, and every entry selects every workload.
#[test]
fn entries_of_a_namespace_share_the_places_of_the_workloads_that_they_select() {
    let mut registries = registries("");
    let entry = |host: usize| {
        format!(
            "{{hosts: [h{host}.example], ports: [{{number: 80, name: p, protocol: TCP}}], resolution: STATIC, \
             workloadSelector: {{labels: {{a: b}}}}}}"
        )
    };
    let mut contribution = ContributionBuilder::default();
    for at in 0..300 {
        contribution = contribution.entry(&format!("e{at:03}"), &entry(at));
    }
    for at in 0..1000 {
        let place = format!(
            "{{address: 10.0.{}.{}, labels: {{a: b}}}}",
            at / 250,
            at % 250
        );
        contribution = contribution.place(&format!("w{at:03}"), &place);
    }
    let few = entry(999).replace("a: b", "c: d");
    contribution = contribution
        .entry("few", &few)
        .place("few", "{address: 10.0.9.9, labels: {c: d}}");
    let files = source(Registry::External, "local");
    let served = |registries: &Registries, host: &str| {
        let world = registries.world();
        let shards = world.endpoints[&ServiceKey::new(host, "demo")].values();
        shards.map(|shard| shard.len()).sum::<usize>()
    };
    put(&mut registries, &files, contribution.clone());
    assert_eq!(served(&registries, "h299.example"), 320);
    assert_eq!(served(&registries, "h999.example"), 1);
    let reports = registries.take_new_reports();
    let expected = "selects 1000 workloads, and the first 320 are used: more than 100000 places with the other ServiceEntries \
                    of the namespace: select fewer workloads";
    assert_eq!(reports.len(), 300);
    assert_eq!(reports[0].message, expected);
    // Those that stay have what the others leave, in no matter which order.
    for at in 200..300 {
        let key = ("demo".into(), format!("e{at:03}").into());
        let all = &mut contribution.0.configuration.service_entries;
        Arc::make_mut(all).remove(&key);
    }
    put(&mut registries, &files, contribution);
    assert_eq!(served(&registries, "h0.example"), 480);
}

/// Each entry is within its own bound, and 400 kB of them came to a gigabyte.
#[test]
fn entries_of_a_namespace_share_the_ports_of_their_services() {
    let mut registries = registries("");
    let list = |from: usize, to: usize, item: &dyn Fn(usize) -> String| {
        (from..to).map(item).collect::<Vec<_>>().join(", ")
    };
    let ports = list(1, 17, &|at| {
        format!("{{number: {at}, name: p{at}, protocol: HTTP}}")
    });
    let mut contribution = ContributionBuilder::default();
    for at in 0..6 {
        let hosts = list(100, 356, &|host| format!("h{host}.e{at}.example"));
        let entry = format!("{{hosts: [{hosts}], ports: [{ports}], resolution: DNS}}");
        contribution = contribution.entry(&format!("e{at}"), &entry);
    }
    let few =
        "{hosts: [few.example], ports: [{number: 80, name: p, protocol: HTTP}], resolution: DNS}";
    contribution = contribution.entry("few", few);
    let files = source(Registry::External, "local");
    let served = |registries: &Registries, suffix: &str| {
        let world = registries.world();
        let hosts = world.services.keys();
        hosts.filter(|key| key.hostname.ends_with(suffix)).count()
    };
    put(&mut registries, &files, contribution.clone());
    let all = [".e0.example", ".e5.example", "few.example"];
    assert_eq!(all.map(|one| served(&registries, one)), [160, 160, 1]);
    let reports = registries.take_new_reports();
    assert_eq!(reports.len(), 6);
    assert_eq!(
        reports[0].message,
        "has 256 hosts, and the first 160 by name are served: the ports of all hosts are more than 16384 with the other ServiceEntries of \
         the namespace"
    );
    // The others have what one leaves.
    let entries = &mut contribution.0.configuration.service_entries;
    for name in ["e4", "e5"] {
        Arc::make_mut(entries).remove(&("demo".into(), name.into()));
    }
    put(&mut registries, &files, contribution);
    assert_eq!(served(&registries, ".e0.example"), 240);
}

/// One entry more than there is room for cost the namespace all of its services.
#[test]
fn an_entry_without_room_for_a_host_is_reported_as_unused() {
    let mut registries = registries("");
    let mut contribution = ContributionBuilder::default();
    for at in 0..8_193 {
        let entry = format!(
            "{{hosts: [h{at}.example], ports: [{{number: 80, name: a, protocol: TCP}}, \
             {{number: 81, name: b, protocol: TCP}}], resolution: DNS}}"
        );
        contribution = contribution.entry(&format!("e{at:04}"), &entry);
    }
    let files = source(Registry::External, "local");
    put(&mut registries, &files, contribution);
    assert_eq!(registries.world().services.len(), 8_192);
    let reports = registries.take_new_reports().into_iter();
    let reports: Vec<_> = reports
        .map(|report| (report.name.to_string(), report.message, report.whole))
        .collect();
    let message = "is not used: the ports of all hosts are more than 16384 with the other ServiceEntries of the namespace";
    assert_eq!(reports, [("e8192".to_owned(), message.to_owned(), true)]);
}

/// Each of the two objects is valid by itself.
#[test]
fn a_host_without_resolution_is_reported() {
    let mut registries = registries("");
    let files = source(Registry::External, "local");
    let entry = |resolution: &str| {
        format!(
            "{{hosts: [b.example], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: {resolution}, workloadSelector: {{labels: {{a: b}}}}}}"
        )
    };
    let place = |address: &str| format!("{{address: {address}, labels: {{a: b}}}}");
    let contribution = ContributionBuilder::default()
        .place("named", &place("db.example"))
        .place("numbered", &place("10.0.0.1"))
        .place("other", "{address: db.example, labels: {a: c}}");
    put(
        &mut registries,
        &files,
        contribution.clone().entry("e", &entry("STATIC")),
    );
    let new_reports = |registries: &mut Registries| -> Vec<_> {
        let news = registries.take_new_reports().into_iter();
        news.map(|report| format!("{} {}: {}", report.kind, report.name, report.message))
            .collect()
    };
    assert_eq!(
        new_reports(&mut registries),
        [
            "WorkloadEntry named: not used by ServiceEntry demo/e, whose resolution is STATIC: db.example is a name"
        ]
    );
    put(
        &mut registries,
        &files,
        contribution.clone().entry("e", &entry("DNS")),
    );
    assert_eq!(new_reports(&mut registries), [""; 0]);
    put(
        &mut registries,
        &files,
        contribution.clone().entry("e", &entry("STATIC")),
    );
    assert_eq!(new_reports(&mut registries).len(), 1);
    put(
        &mut registries,
        &files,
        contribution
            .entry("e", &entry("STATIC"))
            .place("named", &place("10.0.0.2")),
    );
    assert!(registries.reports().is_empty());
}

#[test]
fn proxies_without_certificates_change_endpoints_that_would_take_mutual_tls() {
    let files = source(Registry::External, "local");
    let entry = |host: &str, resolution: &str, address: &str, mode: &str| {
        format!(
            "{{hosts: [{host}], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: {resolution}, endpoints: \
             [{{address: {address}, labels: {{security.istio.io/tlsMode: {mode}}}}}]}}"
        )
    };
    let contribution = ContributionBuilder::default()
        .entry("a", &entry("a.example", "STATIC", "10.0.0.1", "istio"))
        .entry("b", &entry("b.example", "STATIC", "10.0.0.2", "disabled"))
        .entry("c", &entry("c.example", "DNS", "10.0.0.3", "istio"))
        .entry("d", &entry("d.example", "STATIC", "10.0.0.1", "istio"));
    let plain = |last: &[u8]| last.iter().map(|last| [10, 0, 0, *last].into()).collect();
    let auto = "enableAutoMtls: true\n";
    let mut registries = registries(auto);
    put(&mut registries, &files, contribution.clone());
    for (addresses, changes) in [
        (&[1][..], vec![hosts(&["a.example", "d.example"])]),
        (&[1, 2], vec![]),
        (&[1, 2], vec![]),
        (&[1, 2, 3], vec![hosts(&["c.example"])]),
        (&[2, 3], vec![hosts(&["a.example", "d.example"])]),
    ] {
        assert_eq!(
            registries.set_plaintext(plain(addresses)).pushes(|_| true),
            changes,
            "{addresses:?}"
        );
        assert_eq!(*registries.world().plaintext, plain(addresses));
    }
    // No proxy uses mutual TLS, or every proxy must.
    for mesh in ["", "enableAutoMtls: true\nauthPolicy: MUTUAL_TLS\n"] {
        let mut registries = self::registries(mesh);
        put(&mut registries, &files, contribution.clone());
        assert_eq!(registries.set_plaintext(plain(&[1])).pushes(|_| true), []);
    }
}

/// As two teams write them, each for its own backends.
#[test]
fn entries_of_one_host_and_namespace_are_one_service() {
    let mut registries = registries("");
    let files = source(Registry::External, "local");
    let entry = |more: &str, port: &str, address: &str| {
        format!(
            "{{hosts: [b.example], location: MESH_INTERNAL, {more} ports: [{port}], resolution: STATIC, endpoints: \
             [{{address: {address}}}]}}"
        )
    };
    let contribution = ContributionBuilder::default()
        .entry(
            "a",
            &entry(
                "subjectAltNames: [one], addresses: [10.9.0.1],",
                "{number: 80, name: http, protocol: HTTP}",
                "10.0.0.1",
            ),
        )
        .entry(
            "b",
            &entry(
                "subjectAltNames: [two], addresses: [10.9.0.2, 10.9.0.1],",
                "{number: 80, name: web, protocol: HTTP, targetPort: 8080}",
                "10.0.0.2",
            ),
        )
        .entry(
            "c",
            &entry("", "{number: 90, name: tcp, protocol: TCP}", "10.0.0.3"),
        );
    put(&mut registries, &files, contribution.clone());
    let world = registries.world();
    assert_eq!(
        world_lines(&world),
        [
            "b.example STATIC http:80:Http:Number(80) local=10.9.0.1,10.9.0.2",
            "  local 10.0.0.1:80 http  w1  ",
            "  local 10.0.0.2:8080 http  w1  ",
        ]
    );
    let service = world.services.values().next().unwrap();
    let accounts: Vec<_> = service.accounts.iter().map(|account| &**account).collect();
    assert_eq!(accounts, ["one", "two"]);
    let reports: Vec<_> = registries
        .take_new_reports()
        .into_iter()
        .map(|report| (report.name.to_string(), report.message, report.whole))
        .collect();
    let message = "port tcp 90 TCP of b.example is not used: ServiceEntry demo/a, which is older, has the ports of that name";
    assert_eq!(reports, [("c".to_owned(), message.to_owned(), false)]);
    // An endpoint of one of them leaves: only endpoints change.
    let less = contribution.clone().entry("b", "{hosts: [b.example], location: MESH_INTERNAL, subjectAltNames: [two], addresses: [10.9.0.2], ports: [{number: 80, name: web, protocol: HTTP, targetPort: 8080}], resolution: STATIC}");
    assert_eq!(
        put(&mut registries, &files, less).pushes(|_| true),
        [hosts(&["b.example"])]
    );
    // The oldest entry is removed: the next one defines the ports.
    let mut rest = ContributionBuilder::default();
    for (name, port, address) in [
        ("b", "{number: 80, name: web, protocol: TCP}", "10.0.0.2"),
        ("c", "{number: 90, name: tcp, protocol: TCP}", "10.0.0.3"),
    ] {
        rest = rest.entry(name, &entry("", port, address));
    }
    put(&mut registries, &files, rest);
    assert_eq!(
        world_lines(&registries.world()),
        [
            "b.example STATIC web:80:Tcp:Number(80) ",
            "  local 10.0.0.2:80 web  w1  "
        ]
    );
}

/// Envoy refuses an assignment with a name in it.
#[test]
fn names_of_a_younger_entry_are_no_endpoints_of_an_older_one_with_addresses() {
    let mut registries = registries("");
    let files = source(Registry::External, "local");
    let entry = |resolution: &str, address: &str| {
        format!(
            "{{hosts: [b.example], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: {resolution}, endpoints: \
             [{{address: {address}}}]}}"
        )
    };
    let contribution = ContributionBuilder::default()
        .entry("a", &entry("STATIC", "10.0.0.1"))
        .entry("b", &entry("DNS", "x.example"));
    put(&mut registries, &files, contribution);
    assert_eq!(
        world_lines(&registries.world()),
        [
            "b.example STATIC http:80:Http:Number(80)  external",
            "  local 10.0.0.1:80 http  w1  "
        ]
    );
    let messages: Vec<_> = registries
        .reports()
        .into_iter()
        .map(|report| report.message)
        .collect();
    assert_eq!(
        messages,
        [
            "resolution DNS of b.example is not used: ServiceEntry demo/a, which is older, says STATIC"
        ]
    );
}

/// Discovery makes no listener of such a port, and reports it at the entry.
#[test]
fn a_port_that_would_take_all_tls_is_told_at_its_entry() {
    let files = source(Registry::External, "local");
    for (protocol, more, is_reported) in [
        ("protocol: HTTP", "", true),
        ("protocol: GRPC", "", true),
        ("protocol: HTTP2", "", true),
        ("protocol: GRPC-WEB", "", true),
        ("targetPort: 8443", "", true),
        ("protocol: HTTP", "addresses: [0.0.0.0],", true),
        ("protocol: HTTP", "addresses: [10.9.0.1],", false),
        ("protocol: HTTP", "addresses: [10.9.0.0/16],", false),
        ("protocol: TLS", "", false),
        ("protocol: HTTPS", "", false),
        ("protocol: TCP", "", false),
    ] {
        let mut registries = registries("");
        let entry = format!(
            "{{hosts: [b.example], {more} ports: [{{number: 443, name: https, {protocol}}}, {{number: 80, name: web, protocol: \
             HTTP}}], resolution: NONE}}"
        );
        put(
            &mut registries,
            &files,
            ContributionBuilder::default().entry("e", &entry),
        );
        let reports = registries.take_new_reports();
        let messages: Vec<_> = reports.iter().map(|report| &*report.message).collect();
        assert_eq!(
            messages.len(),
            usize::from(is_reported),
            "{protocol} {more}: {messages:?}"
        );
        for report in reports {
            assert!(
                report
                    .message
                    .starts_with("port https makes no outbound listener: "),
                "{report:?}"
            );
            assert_eq!(
                (report.kind, &*report.name, report.whole),
                ("ServiceEntry", "e", false)
            );
        }
    }
    let settings = Settings {
        block_http_on_443: false,
        ..settings()
    };
    let mut registries = Registries::new(settings, Arc::default(), Arc::default());
    let entry = "{hosts: [b.example], ports: [{number: 443, name: https, protocol: HTTP}], resolution: DNS}";
    put(
        &mut registries,
        &files,
        ContributionBuilder::default().entry("e", entry),
    );
    assert_eq!(registries.take_new_reports(), []);
}

/// A directory is read as a whole, whichever file changed: endpoints do not wait for as long as services.
#[test]
fn endpoints_are_named_beside_a_full_change() {
    let mut registries = registries("");
    let files = source(Registry::External, "local");
    let entry = |host: &str, last: u8| {
        format!(
            "{{hosts: [{host}], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: \
             [{{address: 10.0.0.{last}}}]}}"
        )
    };
    let contribution_of = |c: &str, b: u8| {
        let contribution = ContributionBuilder::default().entry("c", &entry(c, 9));
        contribution.entry("b", &entry("b.example", b))
    };
    put(&mut registries, &files, contribution_of("c1.example", 1));
    let changes = put(&mut registries, &files, contribution_of("c2.example", 2));
    let both = [
        PushRequest::Full(TriggerReason::Service),
        hosts(&["b.example"]),
    ];
    assert_eq!(changes.pushes(|_| true), both);
    assert_eq!(
        changes.to_string(),
        "Endpoints demo/b.example; Service demo/c1.example demo/c2.example"
    );
}

#[test]
fn long_texts_of_what_is_selected_take_more_room() {
    let mut registries = registries("");
    let ports: Vec<_> = (1..=1_000)
        .map(|at| format!("{{number: {at}, name: p{at}, protocol: HTTP}}"))
        .collect();
    let entry = format!(
        "{{hosts: [h1.example], ports: [{}], resolution: STATIC, workloadSelector: {{labels: {{a: b}}}}}}",
        ports.join(", ")
    );
    let mut contribution = ContributionBuilder::default().entry("e", &entry);
    let long = "x".repeat(1024);
    for at in 10..30 {
        let place = format!(
            "{{address: 10.0.0.{at}, labels: {{a: b}}, locality: {long}, network: {long}, serviceAccount: {long}}}"
        );
        contribution = contribution.place(&format!("w{at}"), &place);
    }
    put(
        &mut registries,
        &source(Registry::External, "local"),
        contribution,
    );
    let world = registries.world();
    let key = ServiceKey::new("h1.example", "demo");
    let served: usize = world.endpoints[&key]
        .values()
        .map(|shard| shard.len())
        .sum();
    // Each is 12 places for each port.
    assert_eq!(served, 8 * 1_000);
    let messages: Vec<_> = registries
        .take_new_reports()
        .into_iter()
        .map(|report| report.message)
        .collect();
    let prefix = "selects 20 workloads, and the first 8 are used: ";
    assert!(
        messages.iter().any(|message| message.starts_with(prefix)),
        "{messages:?}"
    );
}

#[test]
fn objects_that_are_left_out_are_reported_once() {
    let mut registries = registries("");
    let files = source(Registry::External, "local");
    let cluster = source(Registry::Kubernetes, "local");
    let entry = format!("{B} endpoints: [{{address: 10.0.0.1}}]}}");
    let both = entry.replacen("b.example", "c.example, b.example", 1);
    assert_ne!(entry, both);
    let contribution = ContributionBuilder::default().entry("b", &entry);
    put(&mut registries, &files, contribution.clone());
    assert_eq!(registries.take_new_reports(), []);
    let service = ContributionBuilder::default().service(service("b.example", "local", "10.2.0.1"));
    put(&mut registries, &cluster, service.clone());
    let new_reports = |registries: &mut Registries| -> Vec<_> {
        let news = registries.take_new_reports().into_iter();
        news.map(|report| (report.name.to_string(), report.whole))
            .collect()
    };
    assert_eq!(new_reports(&mut registries), [("b".to_owned(), true)]);
    assert_eq!(new_reports(&mut registries), []);
    // Nothing served changes.
    let contribution = contribution.entry("a", &both);
    let changes = put(&mut registries, &files, contribution.clone());
    assert_eq!(changes.pushes(|_| true), full(TriggerReason::Service));
    assert_eq!(new_reports(&mut registries), [("a".to_owned(), false)]);
    let changes = put(
        &mut registries,
        &files,
        contribution.clone().entry("d", &entry),
    );
    assert!(changes.is_empty(), "{changes}");
    assert_eq!(new_reports(&mut registries), [("d".to_owned(), true)]);
    put(&mut registries, &files, contribution.clone());
    put(&mut registries, &cluster, service);
    assert_eq!(new_reports(&mut registries), []);
    // The remaining entries are one service.
    registries.remove(&cluster);
    assert_eq!(new_reports(&mut registries), []);
    let memory = source(Registry::Memory, "v2-debug");
    put(
        &mut registries,
        &memory,
        ContributionBuilder::default().sidecar("s", "{egress: [{hosts: ['*/*']}]}"),
    );
    put(
        &mut registries,
        &files,
        contribution.sidecar("s", "{egress: [{hosts: ['*/*']}]}"),
    );
    assert_eq!(new_reports(&mut registries), [("s".to_owned(), true)]);
}

/// A service by a word, its endpoints by numbers: `1` is ready at 10.0.1.1, `1!` is not, `1@9` listens elsewhere, `1=a` has
/// another account.
fn described(kind: &str, endpoints: &str) -> ContributionBuilder {
    let host = "b.demo.svc.cluster.local";
    let mut one = service(host, "local", "10.2.0.1");
    match kind {
        "static" => {}
        "dns" => one.resolution = Resolution::Dns,
        _ => {
            one.resolution = Resolution::None;
            one.addresses.clear();
            one.ports[0].protocol = kind.parse().unwrap();
        }
    }
    let endpoints = endpoints.split_whitespace().map(|text| {
        let mut one = endpoint(&format!("10.0.1.{}", &text[..1]));
        match text.get(1..2) {
            Some("!") => one.health = Health::NotReady,
            Some("@") => one.port = 9,
            Some("=") => one.account = Some("spiffe://x".into()),
            _ => {}
        }
        one
    });
    ContributionBuilder::default()
        .service(one)
        .endpoints(host, endpoints.collect())
}

fn changes_text(changes: &Changes) -> String {
    let pushes = changes.pushes(|_| true);
    let texts = pushes.iter().map(|change| match change {
        PushRequest::Endpoints(hosts) => format!("endpoints of {}", hosts.len()),
        PushRequest::Full(reason) => format!("full {}", reason.as_str()),
        PushRequest::Proxy(proxy) => format!("proxy {}", proxy.name),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[test]
fn each_difference_yields_its_change() {
    let local = source(Registry::Kubernetes, "local");
    for ([before, was], [after, is], want) in [
        (["static", "1 2"], ["static", "2 1"], ""),
        (["static", "1"], ["static", "1 2"], "endpoints of 1"),
        (["static", "1"], ["static", ""], "endpoints of 1"),
        (["static", "1"], ["static", "1!"], "endpoints of 1"),
        (["static", "1"], ["static", "1@9"], "endpoints of 1"),
        (["static", "1"], ["static", "1=a"], "endpoints of 1"),
        (["dns", "1"], ["dns", "2"], "endpoints of 1"),
        (["tcp", "1"], ["tcp", "2"], "endpoints of 1"),
        (["http", "1"], ["http", "2"], "endpoints of 1"),
        (["static", "1"], ["dns", "2"], "full service"),
    ] {
        let mut registries = registries("");
        put(&mut registries, &local, described(before, was));
        let changes = put(&mut registries, &local, described(after, is));
        assert_eq!(changes_text(&changes), want, "{before} {was} {after} {is}");
        assert!(put(&mut registries, &local, described(after, is)).is_empty());
    }
    let nobodys = ContributionBuilder::default().endpoints("a.example", vec![endpoint("10.0.1.1")]);
    assert!(put(&mut registries(""), &local, nobodys).is_empty());
}

#[test]
fn a_pod_concerns_its_proxy() {
    let local = source(Registry::Kubernetes, "local");
    let one = pod("local", "b-1", "10.0.1.1", "app=b");
    let proxy = [PushRequest::Proxy(one.key.clone())];
    let relabelled = pod("local", "b-1", "10.0.1.1", "app=c");
    let mut owned = one.clone();
    owned.owner = Some("b".into());
    let rows: [(ContributionBuilder, ContributionBuilder, &[PushRequest]); 5] = [
        (
            ContributionBuilder::default(),
            ContributionBuilder::default().pod(one.clone()),
            &proxy,
        ),
        (
            ContributionBuilder::default().pod(one.clone()),
            ContributionBuilder::default(),
            &proxy,
        ),
        (
            ContributionBuilder::default().pod(one.clone()),
            ContributionBuilder::default().pod(relabelled),
            &proxy,
        ),
        (
            ContributionBuilder::default().pod(one.clone()),
            ContributionBuilder::default().pod(owned),
            &[],
        ),
        (
            ContributionBuilder::default().pod(one.clone()),
            ContributionBuilder::default().pod(one),
            &[],
        ),
    ];
    for (before, after, changes) in rows {
        let mut registries = registries("");
        put(&mut registries, &local, before);
        let pushes = put(&mut registries, &local, after.clone()).pushes(|_| true);
        assert_eq!(pushes, changes);
        assert_eq!(registries.world().workloads, after.0.workloads);
    }
}

#[test]
fn configuration_of_the_mesh_concerns_everyone() {
    let mut registries = registries("");
    let files = source(Registry::External, "local");
    let entry = format!("{B} endpoints: [{{address: 10.0.0.1, serviceAccount: b}}]}}");
    let contribution = ContributionBuilder::default().entry("b", &entry);
    put(&mut registries, &files, contribution.clone());
    let with = contribution.sidecar(
        "s",
        "{ingress: [{port: {number: 80, name: http}, defaultEndpoint: ':80'}]}",
    );
    assert_eq!(
        put(&mut registries, &files, with.clone()).to_string(),
        "Sidecar demo/s"
    );
    assert_eq!(registries.world().sidecars, with.0.configuration.sidecars);
    let mesh = |text: &str| Arc::new(mesh::parse(text).unwrap().config);
    assert!(registries.set_mesh(mesh("")).is_empty());
    assert_eq!(
        registries
            .set_mesh(mesh("connectTimeout: 2s"))
            .pushes(|_| true),
        full(TriggerReason::Global)
    );
    registries.set_mesh(mesh("trustDomain: example"));
    let account = "  local 10.0.0.1:8080 http  w1  spiffe://example/ns/demo/sa/b";
    assert_eq!(world_lines(&registries.world())[1], account);
    let networks = Arc::new(mesh::parse_networks("networks: {a: {}}").unwrap().config);
    assert_eq!(
        registries.set_networks(networks.clone()).pushes(|_| true),
        full(TriggerReason::Global)
    );
    assert!(registries.set_networks(networks).is_empty());
}

/// The rules of each kind are in the world, of each name the one of the source that comes first.
#[test]
fn rules_of_two_sources_are_those_of_the_first() {
    let mut registries = registries("");
    let cluster = source(Registry::Kubernetes, "local");
    let files = source(Registry::External, "local");
    let of = |host: &str| {
        ContributionBuilder::default()
            .object::<VirtualService>(
                "v",
                &format!(
                    "{{hosts: [{host}], http: [{{route: [{{destination: {{host: {host}}}}}]}}]}}"
                ),
            )
            .object::<DestinationRule>("d", &format!("{{host: {host}}}"))
    };
    let hosts = |registries: &Registries| -> Vec<String> {
        let world = registries.world();
        let services = world.virtual_services.values();
        let services = services.flat_map(|one| one.spec.hosts.clone());
        let rules = world.destination_rules.values();
        services
            .chain(rules.map(|one| one.spec.host.clone()))
            .collect()
    };
    let put_files = |registries: &mut Registries| put(registries, &files, of("files.example"));
    let changes = put_files(&mut registries);
    assert_eq!(changes.pushes(|_| true), full(TriggerReason::Config));
    assert_eq!(
        changes.to_string(),
        "DestinationRule demo/d; VirtualService demo/v"
    );
    assert!(put_files(&mut registries).is_empty());
    assert_eq!(hosts(&registries), ["files.example"; 2]);
    let changes = put(&mut registries, &cluster, of("cluster.example"));
    assert_eq!(changes.pushes(|_| true), full(TriggerReason::Config));
    assert_eq!(hosts(&registries), ["cluster.example"; 2]);
    let lost: Vec<_> = registries
        .reports()
        .into_iter()
        .map(|report| (report.kind, report.message))
        .collect();
    let message = "not used: Kubernetes/local has one of this name".to_owned();
    assert_eq!(
        lost,
        [
            ("DestinationRule", message.clone()),
            ("VirtualService", message)
        ]
    );
    let counts = BTreeMap::from([("DestinationRule", 1), ("VirtualService", 1)]);
    assert_eq!(registries.sources()[0].objects, counts);
    // An object that another source has in its place changes nothing.
    let changes = put(&mut registries, &files, of("other.example"));
    assert!(changes.is_empty());
    assert_eq!(
        registries.remove(&cluster).pushes(|_| true),
        full(TriggerReason::Config)
    );
    assert_eq!(hosts(&registries), ["other.example"; 2]);
    assert_eq!(
        put(&mut registries, &files, ContributionBuilder::default()).pushes(|_| true),
        full(TriggerReason::Config)
    );
    assert_eq!(hosts(&registries), [""; 0]);
}

#[test]
fn an_annotation_of_an_entry_prefers_near_endpoints() {
    let mut registries = registries("");
    let files = source(Registry::External, "local");
    for near in [false, true, false] {
        let mut contribution =
            ContributionBuilder::default().entry("b", &format!("{B} exportTo: ['.', web]}}"));
        for one in Arc::make_mut(&mut contribution.0.configuration.service_entries).values_mut() {
            Arc::make_mut(one).prefers_close = near;
        }
        put(&mut registries, &files, contribution);
        let world = registries.world();
        let mut services = world.services.values();
        assert!(services.all(|service| service.prefers_close == near));
        let service = world.services.values().next().unwrap();
        assert_eq!(service.exported_to, [".".into(), "web".into()]);
    }
}

#[test]
fn sources_are_counted_and_waited_for() {
    let mut registries = registries("");
    let files = source(Registry::External, "local");
    let east = source(Registry::Kubernetes, "east");
    registries.set_sync_state(&files, SyncState::Syncing);
    registries.set_sync_state(&east, SyncState::Syncing);
    assert_eq!(registries.missing().collect::<Vec<_>>(), [&east, &files]);
    let contribution = ContributionBuilder::default()
        .service(service("b", "east", "10.0.0.1"))
        .endpoints("b", vec![endpoint("10.0.1.1"), endpoint("10.0.1.2")]);
    put(&mut registries, &east, contribution);
    registries.set_sync_state(&east, SyncState::Synced);
    let lost = SyncState::Stale {
        error: "refused".into(),
    };
    registries.set_sync_state(&files, lost.clone());
    assert_eq!(registries.missing().count(), 0);
    let sources = registries.sources();
    // An endpoint is no object.
    assert_eq!(sources[0].objects, BTreeMap::from([("Service", 1)]));
    assert_eq!(sources[1].sync_state, lost);
    registries.remove(&east);
    assert_eq!(registries.sources().len(), 1);
}
