//! Discovery as started in a cluster, and with Consul: the sources' objects reach its pages.

use serde_json::{Value, json};

use crate::place::{Discovery, Place, until};
use crate::server::{apply, kubectl, of_run, run};

/// `ADDRESS:PORT` of all endpoints of a service's port.
fn served(discovery: &Discovery, key: &str) -> Vec<String> {
    let (_, text) = discovery.get("/debug/endpointz?brief=1");
    let of_key = text.lines().filter_map(|line| line.strip_prefix(key));
    let address = |rest: &str| rest.split_whitespace().next().unwrap_or("").to_owned();
    of_key.map(address).collect()
}

fn until_served(discovery: &Discovery, key: &str, addresses: &[&str]) {
    until(&format!("{key}: {addresses:?}"), || {
        (served(discovery, key) == addresses).then_some(())
    });
}

/// Returns the document of the first source of this registry.
fn source(discovery: &Discovery, provider: &str) -> Value {
    let all = discovery.json("/debug/clusterz");
    let mut all = all.as_array().unwrap().iter();
    let found = all.find(|source| source["provider"] == provider);
    found.cloned().unwrap_or_default()
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn an_api_servers_services_are_served() {
    let namespace = "discovery-b";
    apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "b", "namespace": namespace},
        "spec": {"ports": [{"name": "http", "port": 8080, "targetPort": 9090}]},
    }));
    let endpoints = |addresses: &[&str]| {
        let addresses: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        apply(&json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "b", "namespace": namespace},
            "subsets": [{"addresses": addresses, "ports": [{"name": "http", "port": 9090}]}],
        }));
    };
    endpoints(&["10.9.0.1"]);
    let kubeconfig = run().join("kubeconfig");
    let discovery = Place::new()
        .arg("--registries=Kubernetes")
        .arg("--clusterID=east")
        .arg(&format!("--kubeconfig={}", kubeconfig.display()))
        .start();
    let key = format!("b.{namespace}.svc.cluster.local:http ");
    assert_eq!(served(&discovery, &key), ["10.9.0.1:9090"]);
    let kubernetes = source(&discovery, "Kubernetes");
    assert_eq!(
        (&kubernetes["id"], &kubernetes["state"]),
        (&json!("east"), &json!("synced"))
    );
    for kind in ["Service", "Namespace"] {
        assert!(
            kubernetes["objects"][kind].as_u64() >= Some(1),
            "{kubernetes}"
        );
    }
    let events = |event: &str| {
        let metric = format!("pilot_k8s_reg_events{{type=\"Services\",event=\"{event}\"}}");
        discovery.metric(&metric)
    };
    assert!(events("add") >= 1.0);

    endpoints(&["10.9.0.1", "10.9.0.2"]);
    until_served(&discovery, &key, &["10.9.0.1:9090", "10.9.0.2:9090"]);
    kubectl(&["delete", "service", "b", "-n", namespace], "");
    until_served(&discovery, &key, &[]);
    assert!(events("delete") >= 1.0);
}

#[test]
#[ignore = "takes Consul: build/kube-test"]
fn consuls_services_are_served() {
    let url = of_run("consul.url");
    let url = url.trim();
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let register = |id: &str, address: &str| {
        let body = json!({
            "Name": "discovery-c", "ID": id, "Address": address, "Port": 80, "Meta": {"protocol": "http"},
        });
        let status = put(port, "/v1/agent/service/register", &body.to_string());
        assert_eq!(status, 200);
    };
    register("c-1", "10.8.0.1");
    let discovery = Place::new()
        .arg("--registries=Consul")
        .arg(&format!("--consulserverURL={url}"))
        .start();
    let key = "discovery-c.service.consul:http ";
    // The agent may update its catalog a moment later.
    until_served(&discovery, key, &["10.8.0.1:80"]);
    assert_eq!(source(&discovery, "Consul")["state"], "synced");
    register("c-2", "10.8.0.2");
    until_served(&discovery, key, &["10.8.0.1:80", "10.8.0.2:80"]);
    for id in ["c-1", "c-2"] {
        put(port, &format!("/v1/agent/service/deregister/{id}"), "");
    }
    until_served(&discovery, key, &[]);
}

/// The status of the answer to a PUT. The agent closes connections without a word while it has too many.
fn put(port: u16, path: &str, body: &str) -> u16 {
    use std::io::{Read as _, Write as _};
    let length = body.len();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: consul\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    until(path, || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    })
}

/// Galley reads the rules there, so it is galley that says so.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn all_roles_together_tell_of_a_cluster_without_kinds_once() {
    let definitions = kubectl(&["get", "customresourcedefinitions", "-o", "name"], "");
    for name in definitions.out.lines() {
        kubectl(&["delete", name], "");
    }
    let kubeconfig = run().join("kubeconfig");
    let mut all = Place::together_of_a_cluster(kubeconfig.to_str().unwrap())
        .arg("--reconcileWebhookConfig=false")
        .arg("--enable-reconcileWebhookConfiguration=false")
        .start();
    let message = "no Istio kinds are installed in this cluster";
    until("the warning", || (all.logged(message) > 0).then_some(()));
    // Whoever is to be ready has looked for kinds by now, and all that was logged is there at the end.
    all.signal("TERM");
    let log = all.whole_log();
    let lines = log.iter().filter(|line| line.contains(message));
    assert_eq!(lines.count(), 1, "{log:#?}");
}
