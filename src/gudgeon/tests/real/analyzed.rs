//! `gudgeon analyze` of a cluster.

use std::process::Output;

use serde_json::json;

use crate::server::{apply, kubectl, run};
use crate::shipped::Kind;
use crate::support::gudgeon;

const NAMESPACE: &str = "analyzed";

fn analyze(arguments: &[&str]) -> Output {
    let kubeconfig = run().join("kubeconfig");
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    gudgeon()
        .args(["analyze", &kubeconfig])
        .args(arguments)
        .output()
        .unwrap()
}

fn out(done: &Output) -> String {
    String::from_utf8(done.stdout.clone()).unwrap()
}

fn route(namespace: &str, host: &str) -> String {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"hosts": ["web"], "http": [{"route": [{"destination": {"host": host}}]}]},
    })
    .to_string()
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn analyze_reads_a_cluster_alone_and_with_files() {
    let _kind = Kind::new("VirtualService", "virtualservices", "virtualservice");
    for namespace in [NAMESPACE, "analyzed-too"] {
        apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
        apply(&serde_json::from_str(&route(namespace, "nobody")).unwrap());
    }
    apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"ports": [{"name": "http", "port": 80}], "selector": {"app": "web"}},
    }));
    let missing = |namespace: &str| {
        format!(
            "Error [IST0101] (VirtualService {namespace}/web) spec.http[0].route[0].destination.host: the host \"nobody\" does not exist\n"
        )
    };
    // One namespace, and all.
    let done = analyze(&["-n", NAMESPACE]);
    let stdout = out(&done);
    assert!(stdout.contains(&missing(NAMESPACE)), "{done:?}");
    assert!(!stdout.contains("analyzed-too"), "{stdout}");
    assert_eq!(done.status.code(), Some(1));
    let done = analyze(&["-A"]);
    let stdout = out(&done);
    for namespace in [NAMESPACE, "analyzed-too"] {
        assert!(stdout.contains(&missing(namespace)), "{done:?}");
    }
    // A file counts in place of the cluster's object, and knows what else is there.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.yaml");
    let file = path.to_str().unwrap();
    std::fs::write(&path, route(NAMESPACE, "web")).unwrap();
    let done = analyze(&["-n", NAMESPACE, file]);
    assert!(!out(&done).contains("IST0101"), "{done:?}");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    // The file alone knows of no service.
    let done = analyze(&["--use-kube=false", file]);
    assert!(
        out(&done).contains("the host \"web\" does not exist"),
        "{done:?}"
    );
    // A server that is not there is an error, and says what to do.
    let done = gudgeon()
        .args(["analyze", "--kubeconfig=/nowhere", file])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(78), "{done:?}");
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert!(
        stderr.contains("/nowhere") && stderr.contains("--use-kube=false"),
        "{stderr}"
    );
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn ingresses_of_a_cluster_are_looked_at() {
    let namespace = "analyzed-ingresses";
    apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"ports": [{"name": "http", "port": 80}]},
    }));
    // Those of another controller are its own.
    for (name, class) in [("ours", "istio"), ("theirs", "nginx")] {
        let rule = |service: &str| {
            let backend = json!({"service": {"name": service, "port": {"name": "none"}}});
            let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
            json!({"host": format!("{service}.example"), "http": {"paths": [path]}})
        };
        apply(&json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"ingressClassName": class, "rules": [rule("nobody"), rule("web")]},
        }));
    }
    let done = analyze(&["-n", namespace]);
    // Other tests look at all Ingresses of the cluster.
    kubectl(
        &["delete", "ingress", "ours", "theirs", "-n", namespace],
        "",
    );
    let stdout = out(&done);
    for line in [
        "Error [IST0101] (Ingress analyzed-ingresses/ours) spec.rules[0].http.paths[0].backend.service.name: the service \"nobody\" does not exist",
        "Warning [IST0133] (Ingress analyzed-ingresses/ours) spec.rules[1].http.paths[0].backend: Service analyzed-ingresses/web has no port named \"none\"",
    ] {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }
    assert!(!stdout.contains("theirs"), "{stdout}");
    assert_eq!(done.status.code(), Some(1));
}
