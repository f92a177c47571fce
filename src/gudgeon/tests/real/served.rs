//! Galley as it is started in a cluster: kinds that are installed late or go, objects that are broken, a server that is away.

use serde_json::{Value, json};

use crate::galley_place::{GalleyPlace, until};
use crate::server::{apply, kubectl, run, try_kubectl};

const NAMESPACE: &str = "galley-b";
const SERVICES: &str = "istio/networking/v1alpha3/virtualservices";
const SIDECARS: &str = "istio/networking/v1alpha3/sidecars";

/// A kind of the mesh, as charts install it; gone at the end.
struct Definition(String);

impl Definition {
    fn new(kind: &str, plural: &str) -> Self {
        let name = format!("{plural}.networking.istio.io");
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let versions: Vec<_> = ["v1alpha3", "v1beta1"]
            .iter()
            .map(|version| {
                json!({"name": version, "served": true, "storage": *version == "v1beta1", "schema": {"openAPIV3Schema": open}})
            })
            .collect();
        apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {
                "group": "networking.istio.io", "scope": "Namespaced", "versions": versions,
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            },
        }));
        let definition = format!("crd/{name}");
        kubectl(
            &[
                "wait",
                "--for=condition=established",
                "--timeout=60s",
                &definition,
            ],
            "",
        );
        Self(name)
    }
}

impl Drop for Definition {
    fn drop(&mut self) {
        let _gone = try_kubectl(&["delete", "crd", &self.0], "");
    }
}

fn service(name: &str, weights: [u32; 2]) -> Value {
    let route = |weight: u32| json!({"destination": {"host": name}, "weight": weight});
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"hosts": [name], "http": [{"route": weights.map(route)}]},
    })
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn kinds_that_come_late_or_go_and_objects_that_are_broken() {
    apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
    let sidecars = Definition::new("Sidecar", "sidecars");
    apply(&json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "Sidecar",
        "metadata": {"name": "s", "namespace": NAMESPACE}, "spec": {"egress": [{"hosts": ["./*"]}]},
    }));
    let kubeconfig = run().join("kubeconfig");
    let galley = GalleyPlace::of_a_cluster(kubeconfig.to_str().unwrap()).start();
    assert_eq!(galley.configz()["source"]["kind"], "cluster");
    assert_eq!(galley.names(SIDECARS), [format!("{NAMESPACE}/s")]);
    assert_eq!(galley.names(SERVICES), [""; 0]);

    let services = Definition::new("VirtualService", "virtualservices");
    apply(&service("a", [75, 25]));
    apply(&service("b", [75, 20]));
    galley.counts(SERVICES, 1);
    let rejected = until("one that is broken", || {
        galley.configz()["rejected"].get(0).cloned()
    });
    assert_eq!(
        (&rejected["name"], &rejected["state"]),
        (&json!(format!("{NAMESPACE}/b")), &json!("refused"))
    );
    assert_eq!(
        rejected["errors"],
        json!([{"path": "spec.http[0].route", "message": "weights add up to 95, not 100"}])
    );
    let before = galley.collection(SERVICES);
    apply(&service("a", [10, 10]));
    until("two that are broken", || {
        (galley.configz()["rejected_count"] == 2).then_some(())
    });
    assert_eq!(galley.collection(SERVICES), before);
    apply(&service("b", [50, 50]));
    galley.counts(SERVICES, 2);
    assert!(
        galley
            .metric("galley_source_kube_event_error_total")
            .unwrap()
            >= 2.0
    );

    // A kind that goes is empty, and no other is touched by it.
    let sidecars_before = galley.collection(SIDECARS);
    drop(services);
    galley.counts(SERVICES, 0);
    assert_eq!(galley.collection(SIDECARS), sidecars_before);
    assert_eq!(galley.get("/ready").0, 200);
    drop(sidecars);
    galley.counts(SIDECARS, 0);
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn services_and_ingresses_of_a_cluster_are_made_into_rules() {
    let namespace = "galley-c";
    apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 9090}]},
    }));
    apply(&json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", "namespace": namespace},
        "subsets": [{"addresses": [{"ip": "10.9.0.1"}], "ports": [{"name": "http", "port": 9090}]}],
    }));
    let backend = json!({"service": {"name": "web", "port": {"name": "http"}}});
    apply(&json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "door", "namespace": namespace},
        "spec": {"ingressClassName": "istio", "rules": [
            {"host": "a.example", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}},
        ]},
    }));
    let kubeconfig = run().join("kubeconfig");
    let place = GalleyPlace::of_a_cluster(kubeconfig.to_str().unwrap());
    let galley = place.arg("--enableServiceDiscovery").start();
    let of = |collection: &str, name: &str| {
        let document = galley.document(&format!("/debug/configz?collection={collection}"));
        let resources = document["resources"].as_array().unwrap().iter();
        let mut found = resources.filter(|one| one["metadata"]["name"] == name);
        found.next().cloned()
    };
    let synthetic = "istio/networking/v1alpha3/synthetic/serviceentries";
    let entry = until("an entry with its endpoint", || {
        of(synthetic, &format!("{namespace}/web"))
            .filter(|entry| entry["body"]["endpoints"][0]["address"] == "10.9.0.1")
    });
    assert_eq!(
        entry["body"]["hosts"],
        json!([format!("web.{namespace}.svc.cluster.local")])
    );
    let name = "istio-system/a-example-door-istio-autogenerated-k8s-ingress";
    let routes = until("routes", || of(SERVICES, name));
    let route = &routes["body"]["http"][0]["route"][0];
    assert_eq!(route["destination"]["port"]["number"], 80);
    kubectl(&["delete", "ingress", "door", "-n", namespace], "");
    until("no routes", || of(SERVICES, name).is_none().then_some(()));
    kubectl(&["delete", "service", "web", "-n", namespace], "");
    until("no entry", || {
        of(synthetic, &format!("{namespace}/web"))
            .is_none()
            .then_some(())
    });
}
