//! Random rules, all together in one mesh: what the rules of the kinds let through, the real Envoy takes.
//!
//! `RANDOM_CASES` says how many meshes, `RANDOM_SEED` with which the first of them begins. Each is made of one number, so that
//! `RANDOM_CASES=1 RANDOM_SEED=N` is the mesh that failed; what was refused has a row of its own in `xds/tests/support` since.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::too_many_lines,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a test may panic, and starts Envoy"
)]

#[path = "../../../xds/tests/support/batch.rs"]
mod batch;
#[path = "../../../xds/tests/support/bootstrap.rs"]
mod bootstrap;
mod generate;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::config::{self, KINDS};
use api::model::Registry;
use envoy_types::pb::envoy::config::bootstrap::v3::Bootstrap;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind as Any};
use prost::Message as _;
use serde_json::{Value as Json, json};
use sources::registry::kubernetes::Names;
use sources::registry::{Memory, Registries, Settings as RegistrySettings, SourceId, SyncState};
use xds::node::Node;
use xds::settings::Settings;
use xds::snapshot::Snapshot;

use self::batch::{Envoy, certificates};
use self::generate::{Generator, Rng, is_valid};

/// Meshes in the usual run, and those that Envoy reads at once.
const CASES: u64 = 200;
const TOGETHER: usize = 40;
/// Fields that rules have in the usual run.
const LEAST_FIELDS: usize = 450;

/// Kinds that are made, each with how many of a mesh at most.
const MADE: &[(&str, usize)] = &[
    ("ServiceEntry", 2),
    ("DestinationRule", 2),
    ("Gateway", 2),
    ("VirtualService", 3),
    ("Sidecar", 1),
    ("PeerAuthentication", 2),
    ("RequestAuthentication", 1),
    ("AuthorizationPolicy", 2),
];

/// Services of each sort that rules can be about.
const SERVICES: &str = r#"
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: a, namespace: demo}, spec: {hosts: [a.demo.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC,
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}, {number: 443, name: tls, protocol: TLS}],
  endpoints: [{address: 10.0.0.1, labels: {app: a, version: v1}}, {address: 10.1.0.2, labels: {version: v2}, locality: a/b/c, serviceAccount: sa}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: b, namespace: demo}, spec: {hosts: [b.demo.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC,
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}, {number: 91, name: grpc, protocol: GRPC}, {number: 443, name: https, protocol: HTTPS}],
  endpoints: [{address: 10.1.0.1, labels: {version: v1}, locality: a/b/c}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: at, namespace: demo}, spec: {hosts: [at.demo.svc.cluster.local], addresses: [10.96.0.7, 10.97.0.0/16], resolution: NONE,
  ports: [{number: 90, name: tcp, protocol: TCP}, {number: 443, name: tls, protocol: TLS}, {number: 3306, name: sql, protocol: MYSQL}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: dns, namespace: demo}, spec: {hosts: [dns.demo.svc.cluster.local, c.example], resolution: DNS,
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}], endpoints: [{address: backend.example, labels: {version: v1}}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: wild, namespace: demo}, spec: {hosts: ['*.example', wild.example], resolution: NONE,
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}]}}
"#;

/// What users have as filters, which Envoy takes wherever they may be.
const PATCHES: &str = include_str!("../../../../tests/data/envoy-filter.yaml");

fn read(text: &str) -> Json {
    let limits = api::yaml::Limits {
        bytes: 1_000_000,
        depth: 32,
        nodes: 100_000,
    };
    api::yaml::read(text, limits).unwrap().unwrap().to_json()
}

/// One or two of them, for other proxies than they were written for.
fn envoy_filter(rng: &mut Rng) -> Json {
    let all = read(PATCHES);
    let all = all["configPatches"].as_array().unwrap();
    let first = rng.below(all.len());
    let mut patches = vec![all[first].clone()];
    let second = rng.below(all.len());
    if second != first {
        patches.push(all[second].clone());
    }
    for patch in &mut patches {
        if rng.chance(30) {
            patch["match"]["proxy"] = json!({"proxyVersion": rng.one(&["^1\\..*", ".*", "2"])});
        }
    }
    json!({"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": {"name": "f", "namespace": rng.one(&["demo", "istio-system"])},
        "spec": {"configPatches": patches, "priority": rng.below(3)}})
}

/// The rules of one mesh.
fn objects(seed: u64, certificates: &str) -> Vec<Json> {
    let rng = &mut Rng::new(seed);
    let generator = Generator { certificates };
    let mut all = Vec::new();
    for (kind, most) in MADE {
        let row = KINDS.iter().find(|row| {
            row.kind == *kind
                && row.group.ends_with(".istio.io")
                && row.group != "authentication.istio.io"
        });
        let row: &config::Kind = row.unwrap();
        for number in 0..rng.below(most + 1) {
            let name = format!("{}{number}", kind[..1].to_lowercase());
            all.extend(generator.object(rng, row, &name));
        }
    }
    if rng.chance(30) {
        let filter = envoy_filter(rng);
        assert!(is_valid(&filter), "{filter}");
        all.push(filter);
    }
    all
}

fn mesh(seed: u64) -> &'static str {
    let all = [
        "",
        "enableAutoMtls: true\n",
        "authPolicy: MUTUAL_TLS\n",
        "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\nlocalityLbSetting: {enabled: true}\n",
    ];
    all[usize::try_from(seed % 4).unwrap()]
}

fn text(text: &str) -> Value {
    Value {
        kind: Some(Any::StringValue(text.to_owned())),
    }
}

fn node(id: &str, mode: &str, certificates: &str) -> Arc<Node> {
    let labels = [
        ("app", "a"),
        ("istio", "edge"),
        ("security.istio.io/tlsMode", "istio"),
    ];
    let labels = labels.map(|(name, value)| (name.to_owned(), text(value)));
    let labels = Value {
        kind: Some(Any::StructValue(Struct {
            fields: labels.into(),
        })),
    };
    let mut fields = vec![("LABELS".to_owned(), labels)];
    if !mode.is_empty() {
        fields.push(("INTERCEPTION_MODE".to_owned(), text(mode)));
    }
    for side in ["SERVER", "CLIENT"] {
        for (what, file) in [
            ("CERT_CHAIN", "cert-chain"),
            ("KEY", "key"),
            ("ROOT_CERT", "root-cert"),
        ] {
            fields.push((
                format!("TLS_{side}_{what}"),
                text(&format!("{certificates}/{file}.pem")),
            ));
        }
    }
    let read = Node::read(Some(&core::Node {
        id: id.to_owned(),
        metadata: Some(Struct {
            fields: fields.into_iter().collect(),
        }),
        ..core::Node::default()
    }));
    Arc::new(read.unwrap())
}

/// Resources of the proxies of a mesh.
fn bootstraps(seed: u64, objects: &[Json], certificates: &str) -> Vec<Bootstrap> {
    let names = Names {
        cluster: Memory::CLUSTER.into(),
        domain: "cluster.local".into(),
        trust_domain: "cluster.local".into(),
    };
    let mut body = SERVICES.to_owned();
    for object in objects {
        body += &format!("---\n{object}\n");
    }
    let put = Memory::new(names).put(body.as_bytes());
    let put = put.unwrap_or_else(|messages| panic!("seed {seed}: {messages:?}"));
    let mesh = api::mesh::parse_over(&api::mesh::discovery_defaults(), mesh(seed)).unwrap();
    let settings = RegistrySettings {
        cluster: "Kubernetes".into(),
        trust_domain: "cluster.local".into(),
        order: vec![Registry::Memory],
        block_http_on_443: true,
    };
    let mut registries = Registries::new(settings, Arc::new(mesh.config), Arc::default());
    let id = SourceId {
        registry: Registry::Memory,
        cluster: Memory::CLUSTER.into(),
    };
    registries.put(&id, put.contribution);
    registries.set_sync_state(&id, SyncState::Synced);
    let snapshot = Snapshot::new(registries.world(), Arc::new(Settings::default()));
    let domain = "demo~demo.svc.cluster.local";
    let proxies = [
        ("sidecar", "a-1", ""),
        ("sidecar", "a-1", "NONE"),
        ("router", "edge-1", ""),
    ];
    let all = proxies.map(|(kind, name, mode)| {
        let node = node(
            &format!("{kind}~10.0.0.1~{name}.{domain}"),
            mode,
            certificates,
        );
        bootstrap::bootstrap(&*snapshot.view(&node))
    });
    // Files that a Gateway does not name are where its pod has them.
    let default = b"/etc/istio/";
    let has = |one: &Bootstrap| {
        one.encode_to_vec()
            .windows(default.len())
            .any(|at| at == default)
    };
    all.into_iter().filter(|one| !has(one)).collect()
}

/// Paths of all that is set.
fn add_fields(path: &str, value: &Json, all: &mut BTreeSet<String>) {
    match value {
        Json::Array(items) => items.iter().for_each(|item| add_fields(path, item, all)),
        Json::Object(entries) => {
            for (name, value) in entries {
                let path = format!("{path}.{name}");
                add_fields(&path, value, all);
                all.insert(path);
            }
        }
        _ => {}
    }
}

fn asked(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

#[test]
fn envoy_takes_random_rules_that_are_valid() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let path = directory.path().to_str().unwrap();
    let (first, count) = (asked("RANDOM_SEED", 1), asked("RANDOM_CASES", CASES));
    let mut envoy = Envoy::new(directory.path());
    let (mut refused, mut rules) = (Vec::new(), 0);
    let seeds: Vec<u64> = (first..first + count).collect();
    for seeds in seeds.chunks(TOGETHER) {
        let cases: Vec<_> = seeds
            .iter()
            .map(|seed| {
                let objects = objects(*seed, path);
                rules += objects.len();
                (*seed, bootstraps(*seed, &objects, path))
            })
            .collect();
        refused.extend(envoy.refused(&cases));
    }
    let mut fields = BTreeSet::new();
    for seed in &seeds {
        let all = objects(*seed, path);
        let kinds = all.iter().map(|one| one["kind"].as_str().unwrap());
        kinds
            .zip(&all)
            .for_each(|(kind, one)| add_fields(kind, &one["spec"], &mut fields));
    }
    println!("{} fields", fields.len());
    println!(
        "{count} meshes from seed {first}, {rules} rules, {} starts of Envoy",
        envoy.runs
    );
    let shown = refused.iter().map(|(seed, why)| {
        let objects: Vec<_> = objects(*seed, path).iter().map(Json::to_string).collect();
        format!("seed {seed}: {}\n  {}", why.trim(), objects.join("\n  "))
    });
    let shown: Vec<_> = shown.collect();
    assert!(
        shown.is_empty(),
        "{} refused\n{}",
        shown.len(),
        shown.join("\n")
    );
    // Most steps come to something.
    assert!(rules as u64 >= 4 * count, "{rules} rules");
    assert!(
        count < CASES || fields.len() >= LEAST_FIELDS,
        "{}",
        fields.len()
    );
}

/// One listener of one of many proxies that Envoy refuses is found, with its mesh.
#[test]
fn the_search_finds_a_refused_resource_among_many() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let path = directory.path().to_str().unwrap();
    let mut cases: Vec<_> = (1..=5)
        .map(|seed| (seed, bootstraps(seed, &objects(seed, path), path)))
        .collect();
    let mut envoy = Envoy::new(directory.path());
    assert_eq!(envoy.refused(&cases), []);
    let resources = cases[3].1[1].static_resources.as_mut().unwrap();
    resources.clusters[2].lb_policy = 77;
    let refused = envoy.refused(&cases);
    assert!(
        matches!(&*refused, [(4, why)] if why.contains("lb_policy")),
        "{refused:?}"
    );
}
