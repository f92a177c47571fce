//! `gudgeon analyze` of a cluster.

use std::process::Output;

use serde_json::json;

use crate::server::{apply, run};
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
fn what_a_cluster_has_is_looked_at_alone_and_with_files() {
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
            "Error [IST0101] (VirtualService {namespace}/web) spec.http[0].route[0].destination.host: the host \"nobody\" is not there\n"
        )
    };
    // One namespace, and all.
    let done = analyze(&["-n", NAMESPACE]);
    let said = out(&done);
    assert!(said.contains(&missing(NAMESPACE)), "{done:?}");
    assert!(!said.contains("analyzed-too"), "{said}");
    assert_eq!(done.status.code(), Some(1));
    let done = analyze(&["-A"]);
    let said = out(&done);
    for namespace in [NAMESPACE, "analyzed-too"] {
        assert!(said.contains(&missing(namespace)), "{done:?}");
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
        out(&done).contains("the host \"web\" is not there"),
        "{done:?}"
    );
    // A server that is not there is an error, and says what to do.
    let done = gudgeon()
        .args(["analyze", "--kubeconfig=/nowhere", file])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(78), "{done:?}");
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        said.contains("/nowhere") && said.contains("--use-kube=false"),
        "{said}"
    );
}
