//! Its own certificates, as it ships them: two replicas by the shipped role, bundles replaced by hand, an outage.

use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::server::{
    Hook, TEMPLATE, apply, bundle, create, kube, kubectl, names, namespace, of_run, place, pod,
    try_kubectl, until,
};
use crate::shipped::shipped;
use crate::support::Injector;

/// The configuration that ships, and the only one that the shipped role may touch.
const NAME: &str = "istio-sidecar-injector";

/// Stands in for the Service: each connection goes to the next replica. Kept ones can be cut.
struct Balancer {
    port: u16,
    replicas: Arc<Mutex<Vec<u16>>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Balancer {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let this = Self {
            port: listener.local_addr().unwrap().port(),
            replicas: Arc::default(),
            open: Arc::default(),
        };
        let (replicas, open) = (Arc::clone(&this.replicas), Arc::clone(&this.open));
        std::thread::spawn(move || {
            for (turn, client) in listener.incoming().map_while(Result::ok).enumerate() {
                let port = {
                    let replicas = replicas.lock().unwrap();
                    replicas.get(turn % replicas.len().max(1)).copied()
                };
                let Some(replica) =
                    port.and_then(|port| TcpStream::connect(("127.0.0.1", port)).ok())
                else {
                    continue;
                };
                open.lock()
                    .unwrap()
                    .extend([client.try_clone().unwrap(), replica.try_clone().unwrap()]);
                for (mut from, mut to) in [
                    (client.try_clone().unwrap(), replica.try_clone().unwrap()),
                    (replica, client),
                ] {
                    std::thread::spawn(move || {
                        let _cut = copy(&mut from, &mut to);
                        let _closed = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        this
    }

    fn to(&self, replicas: &[u16]) {
        *self.replicas.lock().unwrap() = replicas.to_vec();
        self.cut();
    }

    fn cut(&self) {
        for connection in self.open.lock().unwrap().drain(..) {
            let _closed = connection.shutdown(Shutdown::Both);
        }
    }
}

/// The four shipped entries, with the balancer in place of the Service: a cluster's addresses are not routed here.
fn shipped_entries(port: u16) -> Hook {
    let arguments = ["get", "mutatingwebhookconfiguration", NAME, "-o", "json"];
    let mut object = kubectl(&arguments, "").objects()[0].clone();
    for entry in object["webhooks"].as_array_mut().unwrap() {
        entry["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}/inject")});
    }
    object["metadata"] = json!({"name": NAME});
    // The object applied before has a `service`, which excludes `url`.
    try_kubectl(&["delete", "mutatingwebhookconfiguration", NAME], "");
    kubectl(&["create", "-f", "-"], &object.to_string());
    Hook::existing(NAME)
}

fn replica(kubeconfig: &str) -> Injector {
    let place = place(TEMPLATE);
    let config = place.path("config").to_str().unwrap().to_owned();
    place.start_with(&[
        "injector".to_owned(),
        "--selfSigned".to_owned(),
        format!("--injectConfig={config}"),
        format!("--kubeconfig={kubeconfig}"),
        "--port=0".to_owned(),
        "--monitoringPort=0".to_owned(),
        "--drainDuration=1s".to_owned(),
    ])
}

fn is_held(replica: &Injector) -> bool {
    let page = replica.get("/debug/config").json();
    page["caBundle"][0]["state"] == "held"
}

fn enabled(name: &str) {
    apply(&json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"istio-injection": "enabled"}}}));
}

/// A pod goes through, injected.
fn injects(namespace: &str) -> bool {
    let answer = create(&pod(namespace, "web"), &["--dry-run=server"]);
    answer.done && names(&answer.objects()[0], "containers") == ["web", "istio-proxy"]
}

fn requests(replica: &Injector) -> f64 {
    replica.metric("sidecar_injection_requests_total").unwrap()
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn two_replicas_with_certificates_of_their_own() {
    let kubeconfig = shipped("injector", NAME);
    let balancer = Balancer::new();
    let _hook = shipped_entries(balancer.port);
    enabled("replicas");
    let (first, second) = (replica(&kubeconfig), replica(&kubeconfig));
    until("both have written their CA", || {
        is_held(&first) && is_held(&second)
    });
    assert_eq!(bundle(NAME, 0).matches("BEGIN CERTIFICATE").count(), 2);
    balancer.to(&[first.port, second.port]);
    until("the server knows", || injects("replicas"));
    // Whichever it is: each new connection is to the other, and each is trusted.
    let before = (requests(&first), requests(&second));
    for _ in 0..6 {
        balancer.cut();
        // A connection that was cut under a request is not the webhook's failure.
        until("a pod is injected", || injects("replicas"));
    }
    let after = (requests(&first), requests(&second));
    assert!(
        after.0 > before.0 && after.1 > before.1,
        "{before:?} {after:?}"
    );
    // A rollout: a new replica, then the oldest goes, as with the Service.
    let third = replica(&kubeconfig);
    until("the third has written its CA", || is_held(&third));
    balancer.to(&[second.port, third.port]);
    let mut first = first;
    first.signal("TERM");
    for _ in 0..4 {
        until("a pod is injected", || injects("replicas"));
        balancer.cut();
    }
    assert_eq!(first.wait().code(), Some(0));
    for replica in [&second, &third] {
        assert!(is_held(replica));
        for reason in [
            "load_ca_bundle_failure",
            "webhook_config_not_found",
            "webhook_entry_not_found",
            "webhook_update_failure",
        ] {
            let metric =
                format!("webhook_patch_failures_total{{name=\"{NAME}\",reason=\"{reason}\"}}");
            assert_eq!(replica.metric(&metric), Some(0.0), "{metric}");
        }
    }
    // A pod without the label is not injected.
    namespace("unlabelled", "none");
    let answer = create(&pod("unlabelled", "web"), &["--dry-run=server"]);
    assert_eq!(names(&answer.objects()[0], "containers"), ["web"]);
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn a_bundle_replaced_by_hand_is_mended() {
    let kubeconfig = shipped("injector", NAME);
    let balancer = Balancer::new();
    let _hook = shipped_entries(balancer.port);
    enabled("mended");
    let only = replica(&kubeconfig);
    balancer.to(&[only.port]);
    until("it is held", || is_held(&only));
    until("a pod is injected", || injects("mended"));
    let ours = bundle(NAME, 0);
    let foreign = crate::server::base64(&of_run("ca.crt"));
    for wrong in ["", &foreign] {
        let patch: Vec<Value> = (0..4)
            .map(|at| json!({"op": "add", "path": format!("/webhooks/{at}/clientConfig/caBundle"), "value": wrong}))
            .collect();
        let patch = json!(patch).to_string();
        kubectl(
            &[
                "patch",
                "mutatingwebhookconfiguration",
                NAME,
                "--type=json",
                "-p",
                &patch,
            ],
            "",
        );
        // A stranger's certificate stays beside ours.
        until("ours is in it again", || {
            (0..4).all(|at| bundle(NAME, at).contains(ours.trim()))
        });
        balancer.cut();
        until("a pod is injected again", || injects("mended"));
    }
    assert!(bundle(NAME, 0).contains(of_run("ca.crt").trim()));
    let attempts = only.metric(&format!("webhook_patch_attempts_total{{name=\"{NAME}\"}}"));
    assert_eq!(attempts, Some(3.0), "at the start, and once for each time");
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn a_server_that_stops_and_starts() {
    let kubeconfig = shipped("injector", NAME);
    let balancer = Balancer::new();
    let _hook = shipped_entries(balancer.port);
    enabled("outage");
    let only = replica(&kubeconfig);
    balancer.to(&[only.port]);
    until("a pod is injected", || injects("outage"));
    kube("stop");
    until("it is noticed", || {
        !only.get("/debug/config").json()["caBundle"][0]["error"].is_null()
    });
    assert_eq!(only.get("/ready").status, 200, "it serves on");
    // One that starts meanwhile serves too.
    let late = replica(&kubeconfig);
    assert_eq!(late.get("/ready").status, 200);
    kube("start");
    until("a pod is injected again", || injects("outage"));
    until("the late one is there", || is_held(&late) && is_held(&only));
    assert!(bundle(NAME, 0).matches("BEGIN CERTIFICATE").count() >= 2);
    balancer.to(&[late.port]);
    until("by the late one", || {
        injects("outage") && requests(&late) > 0.0
    });
    // An old API server has no native sidecars.
    let native = place(TEMPLATE).start(&[
        "--nativeSidecars=auto",
        "--reconcileWebhookConfig=false",
        "--kubeconfig",
        &kubeconfig,
    ]);
    until("it knows the server", || {
        native.logged("using the API server") == 1
    });
    assert_eq!(native.client().image(), "proxy:1");
    assert_eq!(native.get("/debug/inject").json()[0]["native"], false);
}
