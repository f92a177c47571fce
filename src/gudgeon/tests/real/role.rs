//! Discovery as it ships: by the account and the role of `build/kubernetes/discovery.yaml`, and by no more than these.

use std::process::Command;

use serde_json::{Value, json};

use crate::place::{Discovery, Place, entry};
use crate::server::{apply, kubectl, of_run, try_kubectl, until};
use crate::shipped::{Kind, assert_rights, manifest, shipped};

const ACCOUNT: &str = "istio-pilot-service-account";
const NAMESPACE: &str = "discovery-role";

/// The applied manifest, with objects to read, which are deleted at the end.
struct Shipped {
    kubeconfig: String,
}

impl Shipped {
    fn new() -> Self {
        Self {
            kubeconfig: shipped("discovery", ACCOUNT),
        }
    }

    fn discovery(&self) -> Discovery {
        Place::of_a_cluster(&self.kubeconfig).start()
    }
}

impl Drop for Shipped {
    fn drop(&mut self) {
        // No controller runs that would delete the objects of a namespace.
        for (kind, namespace) in [
            ("services", NAMESPACE),
            ("endpoints", NAMESPACE),
            ("secrets", "istio-system"),
        ] {
            let _gone = try_kubectl(
                &["delete", kind, "-n", namespace, "-l", "role-test=yes"],
                "",
            );
        }
    }
}

fn patch(kind: &str, name: &str, how: &str, text: &str) {
    let how = format!("--type={how}");
    kubectl(
        &["patch", kind, name, "-n", NAMESPACE, &how, "-p", text],
        "",
    );
}

/// Creates an object of each kind in the role's rules, if the server knows the kind.
fn something_to_read(kubeconfig: &str) -> Kind {
    let _there_or_not = try_kubectl(&["create", "namespace", NAMESPACE], "");
    let labels = json!({"role-test": "yes"});
    apply(
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": NAMESPACE, "labels": labels},
        "spec": {"ports": [{"name": "http", "port": 80}]}}),
    );
    apply(
        &json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "a", "namespace": NAMESPACE, "labels": labels},
        "subsets": [{"addresses": [{"ip": "10.1.0.1"}], "ports": [{"name": "http", "port": 8080}]}]}),
    );
    let kind = Kind::new("ServiceEntry", "serviceentries", "serviceentry");
    let entry = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": "outer", "namespace": NAMESPACE},
        "spec": {"hosts": ["outer.example.com"], "resolution": "STATIC",
            "ports": [{"number": 443, "name": "tls", "protocol": "TLS"}], "endpoints": [{"address": "10.1.0.2"}]}});
    until("the new kind is served", || {
        try_kubectl(&["apply", "-f", "-"], &entry.to_string()).done
    });
    // Another cluster: this one, by the same account.
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let mut other: Value = serde_json::from_str(&text).unwrap();
    let cluster = other["clusters"][0]["cluster"].as_object_mut().unwrap();
    cluster.remove("certificate-authority");
    let data = crate::server::base64(&of_run("ca.crt"));
    cluster.insert("certificate-authority-data".to_owned(), json!(data));
    apply(
        &json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"east": other.to_string()},
        "metadata": {"name": "east", "namespace": "istio-system", "labels": {"istio/multiCluster": "true", "role-test": "yes"}}}),
    );
    kind
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn the_role_of_discovery_is_enough() {
    let shipped = Shipped::new();
    let _kind = something_to_read(&shipped.kubeconfig);
    let discovery = shipped.discovery();
    let endpoints = || {
        let (_, text) = discovery.get("/debug/endpointz?brief=1");
        let host = format!("a.{NAMESPACE}.svc.cluster.local:http 10.1.0.1:8080");
        text.contains(&host) && text.contains("outer.example.com:tls 10.1.0.2:443")
    };
    until("what is there", endpoints);
    let entries = || discovery.json("/debug/configz?kind=ServiceEntry");
    let listed = entries();
    let outer = &listed[0];
    assert_eq!(outer["metadata"]["name"], "outer", "{listed}");
    assert_eq!(outer["status"]["accepted"], true, "{listed}");
    assert_eq!(outer["spec"]["hosts"], json!(["outer.example.com"]));
    kubectl(&["delete", "serviceentry", "outer", "-n", NAMESPACE], "");
    until("it is listed no more", || entries() == json!([]));
    until("the other cluster", || {
        let rows = discovery.json("/debug/clusterz");
        let mut rows = rows.as_array().unwrap().iter();
        rows.any(|row| row["id"] == "east" && row["state"] == "synced")
    });
    // Later changes arrive by the watch, which the role allows.
    patch(
        "endpoints",
        "a",
        "json",
        r#"[{"op": "replace", "path": "/subsets/0/addresses/0/ip", "value": "10.1.0.9"}]"#,
    );
    until("a change", || {
        discovery
            .get("/debug/endpointz?brief=1")
            .1
            .contains("10.1.0.9:8080")
    });
    assert_eq!(discovery.logged("no right"), 0, "{:?}", discovery.log());
    for row in discovery.json("/debug/clusterz").as_array().unwrap() {
        assert_eq!(row["state"], "synced", "{row}");
        assert!(row["error"].is_null(), "{row}");
    }
}

/// One account with the rights of three roles, for what one process asks.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn the_role_of_all_is_enough() {
    let shipped = Shipped {
        kubeconfig: shipped("all", ACCOUNT),
    };
    let _kind = something_to_read(&shipped.kubeconfig);
    let mut all = Place::together_of_a_cluster(&shipped.kubeconfig)
        .arg("--namespace=istio-system")
        .start();
    let brief = || all.get("/debug/endpointz?brief=1").1;
    let host = format!("a.{NAMESPACE}.svc.cluster.local:http 10.1.0.1:8080");
    until("the service", || brief().contains(&host));
    until("the entry", || {
        brief().contains("outer.example.com:tls 10.1.0.2:443")
    });
    let outer = &all.json("/debug/configz?kind=ServiceEntry")[0];
    assert_eq!(outer["status"]["accepted"], true, "{outer}");
    // Both webhook configurations lead to the one Service, with the CA of the one certificate.
    let bundle = |kind: &str, name: &str| {
        let read = kubectl(&["get", kind, name, "-o", "json"], "");
        let hook = read.objects()[0]["webhooks"][0]["clientConfig"].clone();
        (hook["service"]["name"].clone(), hook["caBundle"].clone())
    };
    let pods = || bundle("mutatingwebhookconfiguration", "istio-sidecar-injector");
    until("the CA for pods", || pods().1.is_string());
    until("the configuration for rules", || {
        try_kubectl(
            &["get", "validatingwebhookconfiguration", "istio-galley"],
            "",
        )
        .done
    });
    assert_eq!(
        pods(),
        bundle("validatingwebhookconfiguration", "istio-galley")
    );
    assert_eq!(pods().0, "istio-sidecar-injector");
    kubectl(&["delete", "serviceentry", "outer", "-n", NAMESPACE], "");
    until("the end of the entry", || {
        !brief().contains("outer.example.com")
    });
    assert_eq!(all.logged("no right"), 0, "{:?}", all.log());
    all.signal("TERM");
    assert!(all.wait().success());
    // Other tests ship the roles one by one, and ask what their accounts may not.
    for (kind, name) in [
        ("validatingwebhookconfiguration", "istio-galley"),
        ("clusterrolebinding", "istio-galley-istio-system"),
        ("clusterrolebinding", "istio-sidecar-injector-istio-system"),
        ("rolebinding", "istio-galley"),
    ] {
        let _gone = try_kubectl(&["delete", kind, name, "-n", "istio-system"], "");
    }
}

/// As the manifest's comment promises: without permission for Secrets it logs that and serves.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn discovery_serves_without_the_right_to_secrets() {
    let shipped = Shipped::new();
    let _kind = something_to_read(&shipped.kubeconfig);
    kubectl(
        &[
            "delete",
            "rolebinding",
            "istio-pilot-clusters",
            "-n",
            "istio-system",
        ],
        "",
    );
    let discovery = shipped.discovery();
    until("it says so", || {
        discovery.logged("cannot list secrets: the account has no right to the verb \"list\"") > 0
    });
    assert_eq!(discovery.get("/ready").0, 200);
    let (_, text) = discovery.get("/debug/endpointz?brief=1");
    assert!(text.contains("10.1.0.1:8080"), "{text}");
}

/// Rules are served at all times: each side's rules stay until the other side is synced.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn rules_of_the_cluster_yield_to_sources_that_are_named_later_and_come_back() {
    let shipped = Shipped::new();
    let _kind = something_to_read(&shipped.kubeconfig);
    let discovery = shipped.discovery();
    let rules = || {
        let (_, text) = discovery.get("/debug/endpointz?brief=1");
        // Services are the cluster's, regardless of the source of rules.
        assert!(text.contains("10.1.0.1:8080"), "{text}");
        ["outer.example.com", "inner.demo.svc.cluster.local"].map(|host| text.contains(host))
    };
    until("the cluster's", || rules() == [true, false]);
    let folder = discovery.place.path("rules");
    std::fs::create_dir(&folder).unwrap();
    let inner = entry(
        "inner.demo.svc.cluster.local",
        80,
        "TCP",
        &[("10.1.0.3", 1)],
    );
    std::fs::write(folder.join("inner.yaml"), inner).unwrap();
    let named = format!(
        "configSources: [{{address: 'fs://{}'}}]\n",
        folder.display()
    );
    discovery.place.write("mesh", &named);
    until("the directory's", || {
        let now = rules();
        assert_ne!(now, [false; 2]);
        now == [false, true]
    });
    let changed = r#"{"spec": {"hosts": ["other.example.com"]}}"#;
    patch("serviceentry", "outer", "merge", changed);
    discovery.place.write("mesh", "enableTracing: false\n");
    until("the cluster's again, as they are now", || {
        let (_, text) = discovery.get("/debug/endpointz?brief=1");
        text.contains("other.example.com") && rules() == [false; 2]
    });
    let messages = [
        "configuration comes from configSources from now on",
        "configuration no longer comes from configSources",
    ];
    assert_eq!(messages.map(|message| discovery.logged(message)), [1, 1]);
}

const NETWORKING: &str = "networking.istio.io";
const SECURITY: &str = "security.istio.io";
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "patch",
    "update",
    "create",
    "delete",
    "deletecollection",
];
/// An account without these verbs has no permission at all.
const SOME: [&str; 4] = ["get", "list", "patch", "create"];

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn the_role_of_discovery_is_no_more_than_that() {
    let _shipped = Shipped::new();
    let read = [
        ("", "services", ""),
        ("", "pods", ""),
        ("", "nodes", ""),
        ("", "namespaces", ""),
        ("", "endpoints", ""),
        ("discovery.k8s.io", "endpointslices", ""),
        ("networking.k8s.io", "ingresses", ""),
        (NETWORKING, "serviceentries", ""),
        (NETWORKING, "workloadentries", ""),
        (NETWORKING, "sidecars", ""),
        (NETWORKING, "virtualservices", ""),
        (NETWORKING, "destinationrules", ""),
        (NETWORKING, "gateways", ""),
        (NETWORKING, "envoyfilters", ""),
        (NETWORKING, "proxyconfigs", ""),
        (NETWORKING, "workloadgroups", ""),
        (SECURITY, "authorizationpolicies", ""),
        (SECURITY, "peerauthentications", ""),
        (SECURITY, "requestauthentications", ""),
        // In its own namespace only.
        ("", "secrets", "istio-system"),
    ];
    let not = [
        ("", "secrets", ""),
        ("", "secrets", "default"),
        ("", "secrets", "kube-system"),
        ("", "configmaps", "istio-system"),
        ("", "events", "istio-system"),
        ("", "serviceaccounts", "istio-system"),
        ("", "serviceaccounts/token", "istio-system"),
        ("", "services/status", ""),
        ("", "pods/exec", ""),
        ("", "pods/log", ""),
        ("", "pods/proxy", ""),
        ("", "nodes/proxy", ""),
        ("apps", "deployments", "istio-system"),
        ("networking.k8s.io", "ingresses/status", ""),
        ("coordination.k8s.io", "leases", "istio-system"),
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            "",
        ),
        ("apiextensions.k8s.io", "customresourcedefinitions", ""),
        ("rbac.authorization.k8s.io", "clusterroles", ""),
        ("certificates.k8s.io", "certificatesigningrequests", ""),
        (NETWORKING, "serviceentries/status", ""),
        (NETWORKING, "*", ""),
        (SECURITY, "*", ""),
    ];
    let mut asked = Vec::new();
    for (group, resource, namespace) in read {
        for verb in VERBS {
            let wanted = matches!(verb, "list" | "watch");
            asked.push(((verb, group, resource, namespace, ""), wanted));
        }
    }
    for (group, resource, namespace) in not {
        asked.extend(SOME.map(|verb| ((verb, group, resource, namespace, ""), false)));
    }
    assert_rights(ACCOUNT, &asked);
}

/// The program's own defaults match the container's privileges, ports and files.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn every_line_of_discovery_is_understood() {
    let _shipped = Shipped::new();
    // A field that the server does not know would be refused by kubectl.
    kubectl(
        &["apply", "--validate=true", "--dry-run=server", "-f", "-"],
        &manifest("discovery"),
    );
    let arguments = [
        "get",
        "deployment",
        "istio-pilot",
        "-n",
        "istio-system",
        "-o",
        "json",
    ];
    let deployment = kubectl(&arguments, "").objects()[0].clone();
    let template = &deployment["spec"]["template"]["spec"];
    let container = &template["containers"][0];
    assert_eq!(template["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        container["securityContext"],
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    let help = Command::new(env!("CARGO_BIN_EXE_gudgeon"))
        .args(["discovery", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for port in container["ports"].as_array().unwrap() {
        let default = format!(":{}", port["containerPort"]);
        assert!(help.contains(&default), "{default}: {help}");
    }
    let service = kubectl(
        &[
            "get",
            "service",
            "istio-pilot",
            "-n",
            "istio-system",
            "-o",
            "json",
        ],
        "",
    );
    let service = service.objects()[0].clone();
    assert_eq!(
        service["spec"]["selector"],
        deployment["spec"]["selector"]["matchLabels"]
    );
    let numbers: Vec<u64> = service["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["port"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [15010, 15012, 15011, 8080, 15014]);
}
