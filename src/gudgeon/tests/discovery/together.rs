//! `gudgeon all`: three roles in one process, over one directory.

use std::time::Duration;

use serde_json::{Value, json};

use crate::apiserver::ApiServer;
use crate::client::*;
use crate::place::{Discovery, Place, documents, entry, gudgeon, until};
use crate::sinks;
use crate::support::{self, JSON};

/// Objects of a cluster, as files.
const WEB: &str = "apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80, targetPort: 8080}], selector: {app: web}}
---
apiVersion: v1
kind: Endpoints
metadata: {name: web, namespace: demo}
subsets: [{addresses: [{ip: 10.1.0.5, targetRef: {kind: Pod, name: web-1, namespace: demo}}], ports: [{name: http, port: 8080}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: demo, labels: {app: web}}
spec: {serviceAccountName: shop}
status: {podIP: 10.1.0.5, phase: Running}
";

fn rule(weights: [u32; 2]) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: web, namespace: demo}}\nspec:\n  \
         hosts: [web]\n  http:\n  - route:\n    - {{destination: {{host: web, subset: a}}, weight: {}}}\n    \
         - {{destination: {{host: web, subset: b}}, weight: {}}}\n",
        weights[0], weights[1]
    )
}

fn client(all: &mut Discovery) -> support::Client {
    let port = all.port_after("listening on https://");
    let trust = all.place.path("ca.pem");
    let trust = std::fs::read_to_string(trust).unwrap();
    support::Client::connect(([127, 0, 0, 1], port).into(), &trust)
}

/// A review of a rule.
fn of_rule(weight: u32) -> Vec<u8> {
    let route = json!([{"destination": {"host": "web"}, "weight": weight}, {"destination": {"host": "v2"}, "weight": 75}]);
    let object = json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "VirtualService",
        "metadata": {"name": "web", "namespace": "demo"},
        "spec": {"hosts": ["web"], "http": [{"route": route}]},
    });
    let kind =
        json!({"group": "networking.istio.io", "version": "v1alpha3", "kind": "VirtualService"});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-7", "operation": "CREATE", "namespace": "demo", "kind": kind, "object": object}})
    .to_string()
    .into_bytes()
}

#[tokio::test]
async fn one_process_serves_proxies_pods_and_rules() {
    let mut all = Place::together()
        .with("config/a.yaml", &service("a", &["127.0.0.2"]))
        .start();
    let mut stream = Sotw::open(all.grpc).await;
    stream.ask(CDS, &[]);
    let cds = stream.hear(CDS).await;
    stream.ack(&cds, &[]);
    assert!(
        names_of(&cds).contains(&A.to_owned()),
        "{:?}",
        names_of(&cds)
    );

    // An accepted object shows its place, and a later one when it has moved: that is no push.
    let place = |all: &Discovery| {
        let entries = all.json("/debug/configz?kind=ServiceEntry");
        entries[0]["source"].as_str().unwrap().to_owned()
    };
    let file = all.place.path("config/a.yaml");
    let at = |line: usize| format!("{}:{line}", file.display());
    assert_eq!(place(&all), at(1));
    let moved = format!("# One line.\n# Another.\n{}", service("a", &["127.0.0.2"]));
    all.place.write("config/a.yaml", &moved);
    soon("the third line", || place(&all) == at(3)).await;
    stream.is_quiet().await;

    // Both webhooks are behind one port and one certificate.
    let mut webhooks = client(&mut all);
    let image = webhooks.image();
    assert!(image.starts_with("pintle-envoy:"), "{image}");
    let ask = |client: &mut support::Client, weight| -> Value {
        let body = of_rule(weight);
        let answer = client.request("POST", "/admitpilot", JSON, &body).unwrap();
        answer.json()["response"].clone()
    };
    assert_eq!(ask(&mut webhooks, 25)["allowed"], true);
    assert_eq!(ask(&mut webhooks, 20)["status"]["code"], 422);
    let elsewhere = webhooks.request("GET", "/nowhere", &[], b"").unwrap();
    assert_eq!(elsewhere.status, 404);

    // A change in the directory is pushed, and an invalid object is shown by every role that shows rules.
    let b = documents(&[service("b", &["127.0.0.3"]), rule([25, 70])]);
    all.place.write("config/b.yaml", &b);
    let cds = stream.hear(CDS).await;
    stream.ack(&cds, &[]);
    assert!(
        names_of(&cds).contains(&B.to_owned()),
        "{:?}",
        names_of(&cds)
    );
    let refused = |all: &Discovery| {
        let rules = all.json("/debug/configz?kind=VirtualService");
        let rules = rules.as_array().unwrap().iter();
        let rules = rules.map(|rule| (rule["source"].clone(), rule["status"].clone()));
        rules.collect::<Vec<_>>()
    };
    let (source, status) = refused(&all).pop().unwrap();
    let source = source.as_str().unwrap();
    assert!(source.ends_with("config/b.yaml:20"), "{source}");
    assert_eq!(status["accepted"], false);
    let message = status["messages"][0].as_str().unwrap();
    assert!(
        message.contains("weights add up to 95, not 100"),
        "{message}"
    );
    let rejected = &all.json("/debug/galley/configz")["rejected"][0];
    assert_eq!(rejected["origin"], source);
    let rejected = "pilot_total_rejected_configs{type=\"VirtualService\",name=\"demo/web\"}";
    assert_eq!(all.metric(rejected), 1.0);
    assert_eq!(all.logged("demo/web: refused: "), 1, "{:?}", all.log());

    // One readiness, one document of metrics, one page.
    assert_eq!(all.get("/ready"), (200, "ok\n".to_owned()));
    let metrics = all.get("/metrics").1;
    for name in [
        "pilot_xds",
        "sidecar_injection_requests_total",
        "galley_validation_passed",
        "gudgeon_build_info",
    ] {
        let heads = metrics.lines().filter(|line| {
            let rest = line
                .strip_prefix("# TYPE ")
                .and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(' '))
        });
        assert_eq!(heads.count(), 1, "{name}");
    }
    support::program::metrics_of(all.http);
    let page = all.get("/debug").1;
    for role in ["discovery", "injector", "galley"] {
        assert!(page.contains(&format!("<section id=\"{role}\">")), "{role}");
        let own = all.get(&format!("/debug/{role}"));
        assert!(
            own.0 == 200 && own.1.contains(&format!("<h1>gudgeon {role}")),
            "{role}"
        );
    }
    assert_eq!(page.matches("<!doctype html>").count(), 1);
    assert_eq!(all.json("/debug/inject").as_array().unwrap().len(), 1);
    assert_eq!(all.json("/debug/config")["caBundle"], json!([]));

    all.signal("TERM");
    assert!(all.wait().success());
    assert_eq!(all.logged("stopped: all requests are answered"), 1);
}

#[tokio::test]
async fn objects_of_a_cluster_in_files_are_services() {
    let all = Place::together().with("config/web.yaml", WEB).start();
    let endpoints = || {
        let all = all.json("/debug/endpointz");
        let all = all.as_array().unwrap().iter();
        let all = all.flat_map(|service| service["ep"].as_array().unwrap().clone());
        let all = all.map(|one| (one["address"].clone(), one["service_account"].clone()));
        all.collect::<Vec<_>>()
    };
    let account = json!("spiffe://cluster.local/ns/demo/sa/shop");
    assert_eq!(endpoints(), [(json!("10.1.0.5"), account.clone())]);
    assert_eq!(all.metric("pilot_services"), 1.0);
    // The mesh's trust domain is in all accounts at once.
    all.place
        .write("mesh", "enableTracing: false\ntrustDomain: other\n");
    let other = json!("spiffe://other/ns/demo/sa/shop");
    until("the other trust domain", || {
        (endpoints()[0].1 == other).then_some(())
    });
    // An unusable object keeps its last good version.
    let broken = WEB.replace("{name: http, port: 80, targetPort: 8080}", "7");
    all.place.write("config/web.yaml", &broken);
    until("the refusal", || {
        (all.logged("Service demo/web: stale") > 0).then_some(())
    });
    assert_eq!(endpoints().len(), 1);
    let counted = "pilot_total_rejected_configs{type=\"Service\",name=\"demo/web\"}";
    assert_eq!(all.metric(counted), 1.0);
    // A file that is not YAML is reported by its name.
    all.place.write("config/bad.yaml", "a: [\n");
    let path = all.place.path("config/bad.yaml").display().to_string();
    let counted = format!("pilot_total_rejected_configs{{type=\"File\",name=\"{path}\"}}");
    until("the file", || (all.metric(&counted) > 0.0).then_some(()));
    let row = &all.json("/debug/configz?kind=File")[0];
    assert_eq!(
        (&row["metadata"]["name"], &row["status"]["accepted"]),
        (&json!(path), &json!(false))
    );
    std::fs::remove_file(all.place.path("config/web.yaml")).unwrap();
    until("the end of the service", || {
        endpoints().is_empty().then_some(())
    });
}

/// As without galley: sources that are named replace the directory, from the start or later.
#[test]
fn sources_that_are_named_replace_the_directory_of_all_roles() {
    let one = |address: &str| entry("a.demo.svc.cluster.local", 80, "TCP", &[(address, 1)]);
    let place = Place::together()
        .with("config/a.yaml", &one("10.0.0.1"))
        .with("config/b.yaml", &service("b", &["10.0.0.4"]))
        .with("config/web.yaml", WEB);
    std::fs::create_dir(place.path("one")).unwrap();
    place.write("one/a.yaml", &one("10.0.0.3"));
    let named = sinks::mesh(&[format!("fs://{}", place.path("one").display())]);
    let all = place.with("mesh", &named).start();
    let addresses = || {
        let services = all.json("/debug/endpointz");
        let services = services.as_array().unwrap().iter();
        let all = services.flat_map(|service| service["ep"].as_array().unwrap().clone());
        let mut all: Vec<_> = all
            .map(|one| one["address"].as_str().unwrap().to_owned())
            .collect();
        all.sort();
        all
    };
    let message = "rules that galley reads are not served to proxies";
    let (of_source, of_galley) = (["10.0.0.3"], ["10.0.0.1", "10.0.0.4", "10.1.0.5"]);
    assert_eq!(addresses(), of_source);
    assert_eq!(all.logged(message), 1);
    assert_eq!(all.json("/debug/sinkz").as_array().unwrap().len(), 1);
    all.place.write("mesh", &sinks::mesh(&[]));
    until("the directory", || (addresses() == of_galley).then_some(()));
    // Changes are heard while they do not count.
    all.place.write("mesh", &named);
    until("the source", || (addresses() == of_source).then_some(()));
    assert_eq!(all.logged(message), 2);
    std::fs::remove_file(all.place.path("config/b.yaml")).unwrap();
    until("galley's view", || {
        let rules = all.json("/debug/galley/configz").to_string();
        (!rules.contains("b.demo")).then_some(())
    });
    all.place.write("mesh", &sinks::mesh(&[]));
    let now = ["10.0.0.1", "10.1.0.5"];
    until("the directory again", || (addresses() == now).then_some(()));
}

/// Rules come by galley's watches, services by discovery's, and no kind is watched by both.
#[test]
fn an_api_server_is_asked_once_for_each_kind() {
    let server = ApiServer::new();
    server.define("ServiceEntry", "serviceentries");
    server.service("a", "10.96.0.1");
    server.endpoints("a", &["10.1.0.1"]);
    server.put("serviceentries", outer("10.1.0.2"));
    let place = Place::together_of_a_cluster("kubeconfig").with("kubeconfig", &server.kubeconfig());
    let all = place
        .arg("--reconcileWebhookConfig=false")
        .arg("--enable-reconcileWebhookConfiguration=false")
        .start();
    let brief = || all.get("/debug/endpointz?brief=1").1;
    let has = |address: &str| brief().contains(address).then_some(());
    until("the service", || has("10.1.0.1:8080"));
    until("the entry", || has("10.1.0.2:443"));
    server.put("serviceentries", outer("10.1.0.3"));
    until("the change", || has("10.1.0.3:443"));
    // A kind that is installed later is read, too.
    server.define("Sidecar", "sidecars");
    until("its watch", || server.watches().get("sidecars").map(|_| ()));
    let mut watches = server.watches();
    let once = [
        "customresourcedefinitions",
        "endpointslices",
        "namespaces",
        "nodes",
        "pods",
        "secrets",
        "serviceentries",
        "services",
        "sidecars",
    ];
    for kind in once {
        assert_eq!(watches.remove(kind), Some(1), "{kind}");
    }
    assert!(watches.is_empty(), "{watches:?}");
    server.delete("serviceentries", "demo", "outer");
    until("its end", || (!brief().contains("10.1.0.3")).then_some(()));
}

fn outer(address: &str) -> Value {
    let port = json!({"number": 443, "name": "tls", "protocol": "TLS"});
    json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": "outer", "namespace": "demo"},
        "spec": {"hosts": ["outer.example.com"], "resolution": "STATIC", "ports": [port], "endpoints": [{"address": address}]}})
}

#[test]
fn a_drain_is_one_for_all() {
    let mut all = Place::together().arg("--drainDuration=60s").start();
    all.signal("TERM");
    let ready = until("the end of readiness", || {
        let (status, text) = all.get("/ready");
        (status == 503).then_some(text)
    });
    let lines: Vec<_> = ready.lines().collect();
    let wanted = [
        "discovery: draining",
        "injector: draining",
        "galley: draining",
    ];
    assert_eq!(lines, wanted);
    let image = client(&mut all).image();
    assert!(!image.is_empty());
    all.signal("TERM");
    let before = std::time::Instant::now();
    assert!(all.wait().success());
    assert!(before.elapsed() < Duration::from_secs(20));
    assert_eq!(all.logged("stopped without drain: second signal"), 1);
}

#[test]
fn a_role_that_cannot_start_logs_the_cause() {
    let root = tempfile::tempdir().unwrap();
    let config = root.path().to_str().unwrap();
    let ends = |more: &[&str]| {
        let mut command = gudgeon();
        command.args([
            "all",
            "--httpAddr=127.0.0.1:0",
            "--monitoringAddr=",
            "--grpcAddr=",
            "--secureGrpcAddr=",
        ]);
        command.args(more).env_clear();
        let output = command.output().unwrap();
        let log = String::from_utf8(output.stdout).unwrap();
        (
            output.status.code(),
            log.lines().last().unwrap_or_default().to_owned(),
        )
    };
    let (code, line) = ends(&["--configDir", config]);
    assert!(
        code == Some(78) && line.contains("--selfSigned makes a certificate"),
        "{line}"
    );
    // As the flag is called here, whichever role reads it.
    let (code, line) = ends(&["--selfSigned", "--configDir", "/none"]);
    assert!(
        code == Some(78) && line.contains("cannot read --configDir /none: "),
        "{line}"
    );
    let (code, line) = ends(&["--selfSigned"]);
    assert!(
        code == Some(78) && line.contains("--configDir reads them from files"),
        "{line}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, line) = ends(&[
        "--configDir",
        config,
        "--selfSigned",
        &format!("--debugAddr=127.0.0.1:{port}"),
    ]);
    assert!(code == Some(71) && line.contains("--debugAddr"), "{line}");
}

/// Others take rules over MCP from the same process, where it is asked for.
#[test]
fn rules_are_given_over_mcp_where_it_is_asked_for() {
    let mut all = Place::together()
        .with(
            "config/a.yaml",
            &entry("a.demo", 80, "HTTP", &[("127.0.0.2", 80)]),
        )
        .arg("--server-address=tcp://127.0.0.1:0")
        .arg("--insecure")
        .start();
    let port = all.port_after("listening on mcp://");
    let mut other = Place::new()
        .arg(&format!("--mcpServerAddrs=mcp://127.0.0.1:{port}"))
        .start();
    until("the entry", || (other.taken() > 0).then_some(()));
    other.signal("TERM");
    assert!(other.wait().success());
}
