//! The source of a cluster: Endpoints, because 1.20 has no EndpointSlices of v1; kinds that are installed while it runs; and a
//! cluster that a Secret names.

use std::sync::Arc;
use std::time::Duration;

use api::model::{ClusterId, Endpoint, ServiceKey};
use serde_json::{Value, json};
use sources::contribution::SyncState;
use sources::kubernetes::{Cluster, ClusterSettings, ClusterUpdate, Names, Remotes, remotes, run};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::reconciler::kube;
use crate::support::{admin, apply, kubectl, run as folder, try_kubectl};

const NAMESPACE: &str = "registry";

fn settings() -> ClusterSettings {
    ClusterSettings {
        recheck_interval: Duration::from_secs(1),
        ..ClusterSettings::new(Names {
            cluster: "here".into(),
            domain: "cluster.local".into(),
            trust_domain: "td".into(),
        })
    }
}

/// Ended when it is dropped, with the namespace.
struct Source<T> {
    running: JoinHandle<()>,
    updates: watch::Receiver<T>,
    _trust_domain: watch::Sender<Arc<str>>,
}

impl<T> Drop for Source<T> {
    fn drop(&mut self) {
        self.running.abort();
        // No controller runs that would delete the objects of a namespace.
        for kind in ["services", "endpoints", "pods", "secrets"] {
            let _there_or_not = try_kubectl(
                &[
                    "delete",
                    kind,
                    "--all",
                    "-n",
                    NAMESPACE,
                    "--grace-period=0",
                    "--force",
                ],
                "",
            );
        }
        for node in ["node-1", "node-2"] {
            let _there_or_not = try_kubectl(&["delete", "node", node], "");
        }
    }
}

impl Source<ClusterUpdate> {
    async fn start() -> Self {
        let (trust_domain, theirs) = watch::channel("td".into());
        let (to, updates) = watch::channel(ClusterUpdate::default());
        let running = tokio::spawn(run(admin().await, settings(), theirs, to));
        Self {
            running,
            updates,
            _trust_domain: trust_domain,
        }
    }
}

impl<T: Clone + std::fmt::Debug> Source<T> {
    async fn until(&mut self, awaited: &str, what: impl FnMut(&T) -> bool) -> T {
        let mut last = self.updates.clone();
        let found = timeout(Duration::from_secs(60), self.updates.wait_for(what)).await;
        let Ok(found) = found else {
            panic!(
                "{awaited}: not within a minute: {:#?}",
                *last.borrow_and_update()
            );
        };
        found.unwrap().clone()
    }
}

fn prepare() {
    let _there_or_not = try_kubectl(&["create", "namespace", NAMESPACE], "");
    apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": NAMESPACE},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]},
    }));
}

fn node(name: &str, region: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"topology.kubernetes.io/region": region}}})
}

/// With an address that a kubelet would have written.
fn pod(name: &str, address: &str) {
    apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {"nodeName": "node-1", "hostNetwork": true, "containers": [{"name": "c", "image": "none"}]},
    }));
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/status");
    let text = kubectl(&["get", "pod", name, "-n", NAMESPACE, "-o", "json"]);
    let mut object: Value = serde_json::from_str(&text).unwrap();
    object["status"] = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
    try_kubectl(&["replace", "--raw", &path, "-f", "-"], &object.to_string()).unwrap();
}

/// Address, port and pod of each.
fn endpoints(pods: &[(&str, u16, &str)]) {
    let subset = |(address, port, pod): &(&str, u16, &str)| {
        let reference = json!({"kind": "Pod", "namespace": NAMESPACE, "name": pod});
        json!({"addresses": [{"ip": address, "nodeName": "node-1", "targetRef": reference}], "ports": [{"name": "http", "port": port}]})
    };
    let subsets: Vec<Value> = pods.iter().map(subset).collect();
    apply(&json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "a", "namespace": NAMESPACE}, "subsets": subsets,
    }));
}

fn place() -> ServiceKey {
    ServiceKey::new(&format!("a.{NAMESPACE}.svc.cluster.local"), NAMESPACE)
}

/// `ADDRESS:PORT LOCALITY POD` of each.
fn brief(update: &ClusterUpdate) -> Vec<String> {
    let all = update.contribution.endpoints.get(&place());
    let say = |one: &Endpoint| {
        let pod = one.pod.as_deref().unwrap_or("-");
        format!("{}:{} {} {pod}", one.address, one.port, one.locality)
    };
    all.iter().flat_map(|all| all.iter()).map(say).collect()
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn endpoints_pods_and_nodes_come_in_any_order() {
    prepare();
    endpoints(&[("10.0.0.1", 8080, "x"), ("10.0.0.1", 9090, "y")]);
    let mut source = Source::start().await;
    let update = source
        .until("all is read", |update| {
            update.sync_state == SyncState::Synced
        })
        .await;
    assert_eq!(brief(&update), ["10.0.0.1:8080  -", "10.0.0.1:9090  -"]);
    assert_eq!(update.contribution.services[&place()].ports.len(), 1);
    assert_eq!(update.counts.get("EndpointSlice"), None);
    assert!(update.counts["Endpoints"] >= 1 && update.error.is_none());
    // Two pods of one host.
    pod("x", "10.0.0.1");
    pod("y", "10.0.0.1");
    let both = ["10.0.0.1:8080  registry/x", "10.0.0.1:9090  registry/y"];
    let update = source.until("pods", |update| brief(update) == both).await;
    for (endpoint, name) in update.contribution.endpoints[&place()]
        .iter()
        .zip(["x", "y"])
    {
        assert_eq!(endpoint.labels.get("app").map(AsRef::as_ref), Some(name));
        assert_eq!(
            endpoint.account.as_deref(),
            Some("spiffe://td/ns/registry/sa/default")
        );
    }
    for region in ["one", "two"] {
        apply(&node("node-1", region));
        let placed = [
            format!("10.0.0.1:8080 {region} registry/x"),
            format!("10.0.0.1:9090 {region} registry/y"),
        ];
        source
            .until("the node", |update| brief(update) == placed)
            .await;
    }
    endpoints(&[]);
    source
        .until("no endpoint", |update| brief(update).is_empty())
        .await;
    assert!(
        source
            .updates
            .borrow()
            .contribution
            .services
            .contains_key(&place())
    );
    kubectl(&["delete", "service", "a", "-n", NAMESPACE]);
    source
        .until("no service", |update| {
            !update.contribution.services.contains_key(&place())
        })
        .await;
}

fn definition() -> Value {
    let version = |name: &str, stored: bool| {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": any}}});
        json!({"name": name, "served": true, "storage": stored, "schema": schema})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "serviceentries.networking.istio.io"},
        "spec": {
            "group": "networking.istio.io", "scope": "Namespaced",
            "names": {"kind": "ServiceEntry", "plural": "serviceentries", "singular": "serviceentry", "listKind": "ServiceEntryList"},
            "versions": [version("v1alpha3", true), version("v1beta1", false)],
        },
    })
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn a_kind_is_installed_and_removed_while_it_is_read() {
    prepare();
    let mut source = Source::start().await;
    let update = source
        .until("all is read", |update| {
            update.sync_state == SyncState::Synced
        })
        .await;
    assert!(update.contribution.configuration.service_entries.is_empty() && update.error.is_none());
    apply(&definition());
    kubectl(&[
        "wait",
        "--for=condition=Established",
        "crd/serviceentries.networking.istio.io",
    ]);
    // One that is written as another version than it is read.
    for (name, host) in [("good", "a.example"), ("bad", "not a host")] {
        apply(&json!({
            "apiVersion": "networking.istio.io/v1alpha3", "kind": "ServiceEntry",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"},
        }));
    }
    let hosts = |update: &ClusterUpdate| -> Vec<String> {
        let all = update.contribution.configuration.service_entries.values();
        all.flat_map(|one| one.spec.hosts.clone()).collect()
    };
    let update = source
        .until("the entry", |update| {
            hosts(update) == ["a.example"] && update.problems.len() == 1
        })
        .await;
    assert_eq!(update.problems[0].object.to_string(), "registry/bad");
    kubectl(&["delete", "crd", "serviceentries.networking.istio.io"]);
    source
        .until("no entry", |update| hosts(update).is_empty())
        .await;
    source
        .until("no fault", |update| {
            update.error.is_none() && update.sync_state == SyncState::Synced
        })
        .await;
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn an_outage_is_said_and_changes_nothing() {
    prepare();
    endpoints(&[("10.0.0.1", 8080, "x")]);
    let mut source = Source::start().await;
    let before = source
        .until("all is read", |update| {
            update.sync_state == SyncState::Synced
        })
        .await;
    kube("stop");
    let lost = source
        .until("lost", |update| update.sync_state != SyncState::Synced)
        .await;
    assert_eq!(lost.contribution, before.contribution);
    assert!(lost.error.is_some_and(|error| error.starts_with("cannot ")));
    kube("start");
    let back = source
        .until("back", |update| {
            update.sync_state == SyncState::Synced && update.error.is_none()
        })
        .await;
    assert_eq!(brief(&back), brief(&before));
    endpoints(&[("10.0.0.2", 8080, "x")]);
    source
        .until("it goes on", |update| brief(update) == ["10.0.0.2:8080  -"])
        .await;
}

/// Returns the admin's kubeconfig, with its files inlined.
fn kubeconfig() -> String {
    let file = folder().join("kubeconfig");
    let file = file.to_str().unwrap();
    kubectl(&[
        "config",
        "view",
        "--kubeconfig",
        file,
        "--raw",
        "--flatten",
        "-o",
        "json",
    ])
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn a_secret_names_a_cluster() {
    prepare();
    endpoints(&[("10.0.0.1", 8080, "x")]);
    let (trust_domain, theirs) = watch::channel("td".into());
    let (to, updates) = watch::channel(Remotes::new());
    let local: Cluster = admin().await;
    let (knows, mut known) = watch::channel(false);
    let namespace = NAMESPACE.to_owned();
    let running = tokio::spawn(remotes(local, namespace, settings(), theirs, to, knows));
    known.wait_for(|known| *known).await.unwrap();
    let mut source = Source {
        running,
        updates,
        _trust_domain: trust_domain,
    };
    apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"east": kubeconfig(), "bad": "{"},
        "metadata": {"name": "remote", "namespace": NAMESPACE, "labels": {"istio/multiCluster": "true"}},
    }));
    apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"other": kubeconfig()},
        "metadata": {"name": "not-labelled", "namespace": NAMESPACE},
    }));
    let east = |all: &Remotes| {
        all.get("east")
            .is_some_and(|update| brief(update) == ["10.0.0.1:8080  -"])
    };
    let all = source
        .until("the cluster", |all| east(all) && all["bad"].error.is_some())
        .await;
    let names: Vec<&ClusterId> = all.keys().collect();
    assert_eq!(names, [&ClusterId::from("bad"), &ClusterId::from("east")]);
    kubectl(&[
        "label",
        "secret",
        "remote",
        "-n",
        NAMESPACE,
        "istio/multiCluster-",
    ]);
    source.until("none", Remotes::is_empty).await;
}
