//! Runs the pods of the built-in template as they are written: the image of `Containerfile` with the pod's arguments,
//! variables, volumes and privileges, the real Envoy in it, a control plane and an application beside it.
//! `build/ci/image-test` builds the image and runs these; without it they are ignored.
//!
//! Two network namespaces, joined by a cable: the pod's and its node's. Probes come from the node, as kubelet's do. Of
//! istio-init, whose program is Istio's, the inbound half is simulated.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    reason = "a test may panic, wait and start threads"
)]
#![forbid(unsafe_code)]

mod application;
mod host;
mod kubelet;
mod plane;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use application::Application;
use host::{Cable, Connection, NODE, POD};
use kubelet::Kubelet;
use plane::Plane;
use serde_json::{Value, json};
use support::InjectorPlace;

/// A web server and a gRPC service, with every kind of probe.
const SHOP: &str = "apiVersion: v1
kind: Pod
metadata:
  name: shop-0
  namespace: demo
  labels: {app: shop, version: v7}
spec:
  serviceAccountName: shop
  terminationGracePeriodSeconds: 20
  containers:
  - name: web
    image: shop/web:7
    ports: [{name: http, containerPort: 8080}]
    startupProbe: {exec: {command: [\"true\"]}}
    readinessProbe:
      httpGet: {path: /well?deep=1, port: http, httpHeaders: [{name: X-Shop, value: open}]}
      timeoutSeconds: 2
    livenessProbe: {tcpSocket: {port: http}}
  - name: orders
    image: shop/orders:7
    ports: [{containerPort: 9000}]
    readinessProbe: {grpc: {port: 9000, service: orders}}
    livenessProbe: {grpc: {port: 9000}, timeoutSeconds: 5}
";

/// The container's name and the four probes that must have been rewritten.
const REWRITTEN: [(&str, &str, &str); 4] = [
    ("web", "readinessProbe", "/app-health/web/readyz"),
    ("web", "livenessProbe", "/app-health/web/livez"),
    ("orders", "readinessProbe", "/app-health/orders/readyz"),
    ("orders", "livenessProbe", "/app-health/orders/livez"),
];

/// A pod, injected by the built program with its built-in template.
fn injected(mesh: &str, flags: &[&str]) -> Value {
    let place = InjectorPlace::new();
    place.write("pod.yaml", SHOP);
    place.write("mesh", mesh);
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let image = format!("--proxyImage={}", host::image());
    let (pod, mesh) = (path("pod.yaml"), path("mesh"));
    let mut arguments = vec!["inject", "-f", &pod, "--meshConfigFile", &mesh, &image];
    arguments.extend(flags);
    let done = support::run(&arguments);
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{stderr}");
    serde_saphyr::from_slice(&done.stdout).unwrap()
}

/// The whole of it, until the pod is ready. `native`: as a native sidecar.
struct Running {
    _plane: Plane,
    application: Application,
    kubelet: Kubelet,
    cable: Cable,
}

/// Sends kubelet's probe, as often as the probe's settings allow.
fn until_it_succeeds(kubelet: &Kubelet, cable: &Cable, probe: &Value) {
    let number = |name: &str, default: u64| probe[name].as_u64().unwrap_or(default);
    std::thread::sleep(Duration::from_secs(number("initialDelaySeconds", 0)));
    let mut last = String::new();
    for _ in 0..number("failureThreshold", 3) {
        match cable.probe(probe) {
            Ok(()) => return,
            Err(failure) => last = failure,
        }
        std::thread::sleep(Duration::from_secs(number("periodSeconds", 10)));
    }
    panic!("never {probe}: {last}\n{}", kubelet.log());
}

fn running(pod: &Value) -> Running {
    let cable = Cable::new();
    cable.intercept(pod);
    let kubelet = Kubelet::start(pod, &cable);
    let proxy = kubelet.container();
    let ready = &proxy["readinessProbe"];
    // Without a control plane the probe names the missing part, and the pod gets no traffic.
    let missing = "503: CDS: no update yet (is the control plane there?)";
    let start = Instant::now();
    loop {
        let failure = cable
            .probe(ready)
            .expect_err("ready, and nobody has told it what to do");
        if failure.trim_end() == missing {
            break;
        }
        assert!(
            start.elapsed() < support::SOON,
            "{failure}\n{}",
            kubelet.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let hook = proxy["lifecycle"]["postStart"]["exec"]["command"].clone();
    let mut hook = hook.is_array().then(|| kubelet.begin(&hook));
    if let Some(hook) = &mut hook {
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(hook.try_wait().unwrap(), None, "it waits until it is ready");
    }
    let plane = Plane::start(&cable);
    let application = Application::start(&cable);
    for probe in ["startupProbe", "readinessProbe"] {
        if proxy[probe].is_object() {
            until_it_succeeds(&kubelet, &cable, &proxy[probe]);
        }
    }
    if let Some(mut hook) = hook {
        assert_eq!(hook.wait().unwrap().code(), Some(0), "{}", kubelet.log());
    }
    Running {
        _plane: plane,
        application,
        kubelet,
        cable,
    }
}

fn probes(pod: &Value) -> Vec<(&'static str, Value)> {
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let found = REWRITTEN.map(|(container, kind, path)| {
        let container = containers.iter().find(|item| item["name"] == container);
        let probe = container.unwrap()[kind].clone();
        assert_eq!(probe["httpGet"]["path"], path, "{probe}");
        assert_eq!(probe["httpGet"]["port"], 15020, "{probe}");
        (path, probe)
    });
    found.into()
}

impl Running {
    /// The rewritten probes, while the application is well, away, and back.
    fn ask_the_application(&mut self, pod: &Value) {
        let probes = probes(pod);
        let each = |wanted: bool, cable: &Cable, kubelet: &Kubelet| {
            for (path, probe) in &probes {
                let outcome = cable.probe(probe);
                assert_eq!(
                    outcome.is_ok(),
                    wanted,
                    "{path}: {outcome:?}\n{}",
                    kubelet.log()
                );
            }
        };
        each(true, &self.cable, &self.kubelet);
        let asked = self.application.asked();
        assert!(asked.contains("GET /well?deep=1 HTTP/1.1"), "{asked}");
        let heads = asked.to_ascii_lowercase();
        assert!(
            heads.contains("x-shop: open") && heads.contains("user-agent: kube-probe/"),
            "{asked}"
        );
        // A failing application fails its probe, while the proxy's probe passes.
        self.application.stop();
        each(false, &self.cable, &self.kubelet);
        self.cable
            .probe(&self.kubelet.container()["readinessProbe"])
            .unwrap();
        self.application = Application::start(&self.cable);
        each(true, &self.cable, &self.kubelet);
        let mut containers = pod["spec"]["containers"].as_array().unwrap().iter();
        let web = containers
            .find(|container| container["name"] == "web")
            .unwrap();
        assert_eq!(web["startupProbe"], json!({"exec": {"command": ["true"]}}));
    }

    /// A request from the node to the application's port: Envoy takes it, and passes it on.
    fn through_envoy(&self) -> Connection {
        let mut connection = self.cable.connect(8080);
        let answer = connection.get("/shop").unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "well"));
        assert!(
            answer.header("x-envoy-upstream-service-time").is_some(),
            "{answer:?}"
        );
        connection
    }
}

#[test]
#[ignore = "takes the image: build/ci/image-test"]
fn a_native_sidecar_becomes_ready_answers_for_the_application_and_drains() {
    let pod = injected(&mesh(""), &["--nativeSidecars=on"]);
    let containers = pod["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2, "the proxy is among the others");
    let mut this = running(&pod);
    let proxy = this.kubelet.container();
    assert_eq!(proxy["restartPolicy"], "Always");
    this.ask_the_application(&pod);
    let mut client = this.through_envoy();

    let hook = this
        .kubelet
        .begin(&proxy["lifecycle"]["preStop"]["exec"]["command"])
        .wait();
    assert_eq!(hook.unwrap().code(), Some(0), "{}", this.kubelet.log());
    let failure = this.cable.probe(&proxy["readinessProbe"]).unwrap_err();
    assert!(
        failure.contains("503") && failure.contains("draining"),
        "{failure}"
    );
    // Envoy serves new connections while endpoints propagate, and asks open ones to close.
    let asked_to_go = |connection: &mut Connection| {
        let answer = connection.get("/shop")?;
        assert_eq!(answer.status, 200);
        Some(answer.header("connection") == Some("close"))
    };
    support::until("a client is asked to go", || {
        if asked_to_go(&mut client) != Some(true) {
            client = this.cable.connect(8080);
            return asked_to_go(&mut client) == Some(true);
        }
        true
    });
    // Drained already: there is no second wait.
    let asked = Instant::now();
    assert_eq!(this.kubelet.stop(), 0, "{}", this.kubelet.log());
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
    this.kubelet.ended_well();
}

#[test]
#[ignore = "takes the image: build/ci/image-test"]
fn a_sidecar_that_is_held_lets_the_others_start_when_it_is_ready() {
    let pod = injected(&mesh("  holdApplicationUntilProxyStarts: true\n"), &[]);
    let names: Vec<_> = pod["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["name"])
        .collect();
    assert_eq!(names, ["istio-proxy", "web", "orders"]);
    let mut this = running(&pod);
    this.ask_the_application(&pod);
    this.through_envoy();
    let asked = Instant::now();
    assert_eq!(this.kubelet.stop(), 0, "{}", this.kubelet.log());
    // The proxy drains for its default time: 5 s.
    let took = asked.elapsed();
    assert!(
        (Duration::from_secs(5)..Duration::from_secs(15)).contains(&took),
        "{took:?}"
    );
    this.kubelet.ended_well();
}

/// The control plane is on the node: a pod has no name service here.
fn mesh(more: &str) -> String {
    format!(
        "defaultConfig:\n  discoveryAddress: {NODE}:{}\n  proxyMetadata: {{FROM_FIELDS: $(POD_NAME)@$(INSTANCE_IP), ISTIO_DELTA_XDS: \"false\"}}\n{more}",
        plane::PORT
    )
}

/// `FROM_FIELDS` is a variable that names others: kubelet's part, checked where it is played.
#[test]
#[ignore = "takes the image: build/ci/image-test"]
fn variables_are_those_that_kubelet_would_give() {
    let pod = injected(&mesh(""), &[]);
    let environment = kubelet::environment(kubelet::proxy_of(&pod), &pod);
    let value = |name: &str| {
        environment
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    for (name, wanted) in [
        ("POD_NAME", "shop-0"),
        ("POD_NAMESPACE", "demo"),
        ("INSTANCE_IP", POD),
        ("HOST_IP", NODE),
        ("SERVICE_ACCOUNT", "shop"),
        ("FROM_FIELDS", "shop-0@10.9.8.7"),
    ] {
        assert_eq!(value(name), Some(wanted), "{name}");
    }
}
