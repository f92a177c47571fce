//! Configuration from sources that the mesh configuration names.

use serde_json::Value;

use crate::client::*;
use crate::galley::PeerGalley;
use crate::place::{Address, Discovery, OWN_PORTS, Place, documents, entry, gudgeon, put, until};
use crate::support::apart;

pub const A: &str = "outbound|80||a.demo.svc.cluster.local";

pub fn a(address: &str) -> String {
    entry("a.demo.svc.cluster.local", 80, "TCP", &[(address, 1)])
}

/// Sources as the mesh configuration has them.
pub fn mesh(sources: &[String]) -> String {
    let sources: Vec<_> = sources
        .iter()
        .map(|address| format!("{{address: '{address}'}}"))
        .collect();
    format!("configSources: [{}]\n", sources.join(", "))
}

fn place(folders: &[&str]) -> Place {
    let place = Place::new().arg("--registries=MCP");
    let mut sources = Vec::new();
    for folder in folders {
        std::fs::create_dir(place.path(folder)).unwrap();
        sources.push(format!("fs://{}", place.path(folder).display()));
    }
    place.write("mesh", &mesh(&sources));
    place
}

/// Returns the address of the one service's endpoint.
pub fn address(services: &Value) -> Option<String> {
    let text = services.to_string();
    ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
        .into_iter()
        .find(|one| text.contains(one))
        .map(ToOwned::to_owned)
}

#[tokio::test]
async fn a_directory_is_read_by_name_a_good_change_arrives_and_a_broken_one_is_reported() {
    let place = place(&["one"]).with("one/a.yaml", &a("10.0.0.1"));
    // A directory that is not named as a source is not read.
    place.write(
        "config/b.yaml",
        &entry("b.demo.svc.cluster.local", 80, "TCP", &[("10.0.0.9", 1)]),
    );
    let discovery = place.start();
    assert_eq!(discovery.logged("--configDir is not read"), 1);
    let mut client = Sotw::open(discovery.grpc).await;
    client.ask(CDS, &[]);
    let clusters = client.hear(CDS).await;
    client.ack(&clusters, &[]);
    let names = names_of(&clusters);
    assert!(names.iter().any(|name| name == A), "{names:?}");
    assert!(
        !names.iter().any(|name| name.contains("b.demo")),
        "{names:?}"
    );
    client.ask(EDS, &[A]);
    let first = client.hear(EDS).await;
    client.ack(&first, &[A]);
    assert_eq!(endpoints(&first, A), ["10.0.0.1:1"]);
    let entry = discovery.json("/debug/configz")[0].clone();
    let origin = entry["source"].as_str().unwrap();
    assert!(origin.ends_with("one/a.yaml:1"), "{origin}");
    // Invalid in its fourth line: nothing changes, and the error is shown.
    let broken = a("10.0.0.2").replace("hosts: [", "hots: [");
    discovery.place.write("one/a.yaml", &broken);
    let rejected = || discovery.json("/debug/sinkz")[0]["rejected"][0].clone();
    soon("the fault is shown", || rejected().is_object()).await;
    let object = rejected();
    assert_eq!(object["state"], "stale");
    assert!(
        object["origin"].as_str().unwrap().ends_with("one/a.yaml:5"),
        "{object}"
    );
    let errors = object["errors"].to_string();
    assert!(errors.contains("did you mean \\\"hosts\\\"?"), "{errors}");
    client.is_quiet().await;
    let page = discovery.get("/debug").1;
    for word in ["one/a.yaml:5", "demo/a", "did you mean"] {
        assert!(page.contains(word), "{word}");
    }
    let metrics = discovery.get("/metrics").1;
    let counted = r#"pilot_total_rejected_configs{type="ServiceEntry",name="demo/a"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    let entries = || {
        let source = discovery.json("/debug/sinkz")[0].clone();
        source["collections"]["istio/networking/v1alpha3/serviceentries"].clone()
    };
    let before = entries();
    assert_eq!(before["count"], 1);
    discovery.place.write("one/a.yaml", &a("10.0.0.3"));
    let second = client.hear(EDS).await;
    client.ack(&second, &[A]);
    assert_eq!(endpoints(&second, A), ["10.0.0.3:1"]);
    soon("the fault is gone", || rejected().is_null()).await;
    let after = entries();
    assert!(after["version"] != before["version"], "{after}");
    let sources = discovery.json("/debug/sinkz");
    assert_eq!(
        (&sources[0]["state"], &sources[0]["synced"]),
        (&"read".into(), &true.into())
    );
    let written = discovery.json("/debug/configz");
    assert_eq!(
        (&written[0]["kind"], written.as_array().unwrap().len()),
        (&"ServiceEntry".into(), 1)
    );
}

#[test]
fn the_earlier_source_wins_and_one_that_is_no_longer_named_goes() {
    let place = place(&["one", "two"]);
    place.write("one/a.yaml", &a("10.0.0.1"));
    place.write("two/a.yaml", &a("10.0.0.2"));
    let discovery = place.start();
    let now = || address(&discovery.json("/debug/endpointz"));
    assert_eq!(now().as_deref(), Some("10.0.0.1"));
    let is = |wanted: &str| until(wanted, || (now().as_deref() == Some(wanted)).then_some(()));
    std::fs::remove_file(discovery.place.path("one/a.yaml")).unwrap();
    is("10.0.0.2");
    discovery.place.write("one/a.yaml", &a("10.0.0.3"));
    is("10.0.0.3");
    let two = format!("fs://{}", discovery.place.path("two").display());
    discovery.place.write("mesh", &mesh(&[two]));
    is("10.0.0.2");
    assert_eq!(discovery.json("/debug/sinkz").as_array().unwrap().len(), 1);
}

/// Such a directory is read every second: what inotify would have told at once arrives all the same.
#[test]
fn a_directory_that_inotify_does_not_watch_is_polled_and_the_log_says_why() {
    // A user namespace of its own has its own limit of instances.
    let none = "echo 0 > /proc/sys/user/max_inotify_instances &&";
    let place = place(&["one"])
        .with("one/a.yaml", &a("10.0.0.1"))
        .by(move || apart("-Ur", none));
    let discovery = place.start();
    let folder = discovery.place.path("one");
    let message = format!(
        "polling {} every second: cannot start inotify: ",
        folder.display()
    );
    until("the reason", || {
        (discovery.logged(&message) == 1).then_some(())
    });
    discovery.place.write("one/a.yaml", &a("10.0.0.2"));
    until("the change", || {
        let now = address(&discovery.json("/debug/endpointz"));
        (now.as_deref() == Some("10.0.0.2")).then_some(())
    });
    assert_eq!(discovery.logged(&message), 1);
}

#[test]
fn a_source_that_does_not_answer_is_waited_for_and_then_not() {
    // A listener that never answers.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("mcp://{}", deaf.local_addr().unwrap());
    let place = place(&["one"]).with("one/a.yaml", &a("10.0.0.1"));
    let discovery = place
        .arg(&format!("--mcpServerAddrs={address}"))
        .arg("--mcpSyncTimeout=3s")
        .begin();
    until("the directory is read", || {
        (discovery.json("/debug/sinkz")[0]["synced"] == true).then_some(())
    });
    // As the flag names it.
    let (code, body) = discovery.get("/ready");
    assert_eq!(code, 503);
    assert!(
        body.contains(&format!("no full state of {address} yet")),
        "{body}"
    );
    until("readiness", || {
        (discovery.get("/ready").0 == 200).then_some(())
    });
    until("the warning", || {
        (discovery.logged(&format!("no full state of {address} yet")) == 1).then_some(())
    });
    assert_eq!(discovery.json("/debug/sinkz")[1]["synced"], false);
}

#[test]
fn an_invalid_address_is_an_error() {
    for (text, message) in [
        ("http://a:1", "want mcp://HOST:PORT"),
        ("fs://relative", "want fs:///DIRECTORY"),
    ] {
        let place = Place::new();
        place.write("mesh", &mesh(&[text.to_owned()]));
        let path = place.path("mesh");
        let ended = gudgeon()
            .arg("discovery")
            .args(OWN_PORTS)
            .args(["--registries=MCP", "--meshConfig"])
            .arg(path)
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(78), "{text}");
        let stdout = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(
            stdout.contains("cannot use configSources") && stdout.contains(message),
            "{stdout}"
        );
    }
}

/// Waits until the sources count as lost in all places, because of this one.
fn lost(discovery: &Discovery, name: &str) {
    until("readiness says that it is stale", || {
        let (code, body) = discovery.get("/ready");
        assert_eq!(code, 200);
        body.starts_with("stale: External/Kubernetes since ")
            .then_some(())
    });
    let cluster = discovery.json("/debug/clusterz")[0].clone();
    assert_eq!(cluster["state"], "stale");
    assert!(
        cluster["error"].as_str().unwrap().contains(name),
        "{cluster}"
    );
    assert!(
        discovery.metric("gudgeon_source_stale_seconds{source=\"External/Kubernetes\"}") >= 5.0
    );
}

fn found(discovery: &Discovery) {
    assert_eq!(discovery.get("/ready").1.trim(), "ok");
    let cluster = discovery.json("/debug/clusterz")[0].clone();
    assert_eq!(
        (&cluster["state"], &cluster["error"]),
        (&"synced".into(), &Value::Null)
    );
}

#[test]
fn a_directory_that_is_moved_away_is_stale_and_comes_back() {
    let place = place(&["one"]).with("one/a.yaml", &a("10.0.0.1"));
    let discovery = place.start();
    let (one, away) = (discovery.place.path("one"), discovery.place.path("away"));
    std::fs::rename(&one, &away).unwrap();
    lost(&discovery, "one: ");
    assert_eq!(
        address(&discovery.json("/debug/endpointz")).as_deref(),
        Some("10.0.0.1")
    );
    std::fs::rename(&away, &one).unwrap();
    until("it is read again", || {
        (discovery.get("/ready").1.trim() == "ok").then_some(())
    });
    found(&discovery);
}

#[tokio::test]
async fn galley_serves_its_directory_and_a_lost_galley_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let write = |text: &str| put(root.path(), "a.yaml", text);
    write(&a("10.0.0.1"));
    // An address of its own: no other process takes the port while galley is away.
    let own = Address::new();
    let at = format!("{}:9901", own.ip);
    let serve = || PeerGalley::plain(root.path(), &format!("tcp://{at}"));
    let mut galley = serve();
    assert_eq!(galley.address(), at);
    // Beside a directory that comes later in the list.
    let place = place(&["one"]).with("one/a.yaml", &a("10.0.0.3"));
    let one = format!("fs://{}", place.path("one").display());
    place.write("mesh", &mesh(&[format!("mcp://{at}"), one]));
    let discovery = place.start();
    let mut client = Sotw::open(discovery.grpc).await;
    client.ask(CDS, &[]);
    let clusters = client.hear(CDS).await;
    client.ack(&clusters, &[]);
    client.ask(EDS, &[A]);
    let first = client.hear(EDS).await;
    client.ack(&first, &[A]);
    assert_eq!(endpoints(&first, A), ["10.0.0.1:1"]);
    write(&a("10.0.0.2"));
    let second = client.hear(EDS).await;
    client.ack(&second, &[A]);
    assert_eq!(endpoints(&second, A), ["10.0.0.2:1"]);
    let source = |field: &str| discovery.json("/debug/sinkz")[0][field].clone();
    assert_eq!(
        (source("state"), source("synced")),
        ("connected".into(), true.into())
    );
    let entries = &source("collections")["istio/networking/v1alpha3/serviceentries"];
    assert_eq!(entries["count"], 1);
    assert!(entries["last_ack"].is_string() && entries["last_nack"].is_null());
    let (_, page) = discovery.get("/debug");
    assert!(page.contains("Sources of configuration: 2") && page.contains("connected"));
    // The source goes away: nothing changes. It comes back: only the difference is sent.
    let before = discovery.taken();
    drop(galley);
    soon("the loss is seen", || source("state") == "broken").await;
    lost(&discovery, &at);
    client.is_quiet().await;
    let requests = source("requests").as_array().unwrap().len();
    let _galley = serve();
    soon("it is back", || source("state") == "connected").await;
    soon("all was asked for", || {
        source("requests").as_array().unwrap().len() > requests
    })
    .await;
    client.is_quiet().await;
    found(&discovery);
    write(&a("10.0.0.1"));
    let third = client.hear(EDS).await;
    client.ack(&third, &[A]);
    assert_eq!(endpoints(&third, A), ["10.0.0.1:1"]);
    assert_eq!(discovery.taken(), before + 1);
    let labels = "component=\"pilot\",collection=\"istio/networking/v1alpha3/serviceentries\"";
    let acks = format!("istio_mcp_request_acks_total{{{labels}}}");
    assert!(discovery.metric(&acks) >= 4.0);
}

/// Writes resources with names so long that a first request has no room for all, and that no single response holds them.
fn many(folder: &std::path::Path) -> u64 {
    const FILES: u64 = 6;
    const EACH: u64 = 640;
    let (long, note) = ("-x".repeat(110), "y".repeat(800));
    for file in 0..FILES {
        let all = (0..EACH).map(|at| {
            format!(
                "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: m{file}-{at}{long}, \
                 namespace: demo, annotations: {{note: {note}}}}}\nspec: {{hosts: [h{file}-{at}.example], \
                 resolution: DNS, ports: [{{number: 80, name: http, protocol: HTTP}}]}}\n"
            )
        });
        let all: Vec<_> = all.collect();
        put(folder, &format!("m{file}.yaml"), &documents(&all));
    }
    FILES * EACH
}

#[test]
fn a_galley_that_comes_back_with_more_than_can_be_named_sends_the_difference() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "a.yaml", &a("10.0.0.1"));
    let z = entry("z.demo.svc.cluster.local", 80, "TCP", &[("10.0.0.9", 1)]);
    put(root.path(), "z.yaml", &z);
    let many = many(root.path());
    let own = Address::new();
    let at = format!("{}:9901", own.ip);
    let serve = || PeerGalley::plain(root.path(), &format!("tcp://{at}"));
    let galley = serve();
    let place = Place::new().arg("--registries=MCP");
    place.write("mesh", &mesh(&[format!("mcp://{at}")]));
    let discovery = place.start();
    let source = |field: &str| discovery.json("/debug/sinkz")[0][field].clone();
    let count =
        || source("collections")["istio/networking/v1alpha3/serviceentries"]["count"].as_u64();
    assert_eq!(count(), Some(many + 2));
    let before = discovery.taken();
    assert_eq!(before, many + 2);
    drop(galley);
    until("the loss is seen", || {
        (source("state") == "broken").then_some(())
    });
    // One that is named, and one for which there is no room.
    put(root.path(), "a.yaml", &a("10.0.0.2"));
    std::fs::remove_file(root.path().join("z.yaml")).unwrap();
    let _galley = serve();
    until("what is gone goes", || {
        let count = count().unwrap();
        assert!(count > many, "{count}");
        (count == many + 1).then_some(())
    });
    let is = |wanted: &str| {
        let now = || address(&discovery.json("/debug/endpointz"));
        until(wanted, || (now().as_deref() == Some(wanted)).then_some(()));
    };
    is("10.0.0.2");
    let again = discovery.taken() - before;
    assert!((2..many / 2).contains(&again), "{again} came again");
    assert_eq!(discovery.logged("ResourceExhausted"), 0);
    put(root.path(), "a.yaml", &a("10.0.0.3"));
    is("10.0.0.3");
    assert_eq!(discovery.taken() - before, again + 1);
}

/// The mesh configuration gains sources: rules of the directory are served until all sources are synced, and again when the
/// sources are removed.
#[tokio::test]
async fn sources_that_are_named_later_take_over_from_the_directory_and_give_back() {
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let deaf = format!("mcp://{}", deaf.local_addr().unwrap());
    let place = Place::new().arg("--registries=MCP");
    std::fs::create_dir(place.path("one")).unwrap();
    place.write("one/a.yaml", &a("10.0.0.3"));
    let one = format!("fs://{}", place.path("one").display());
    let discovery = place.with("config/a.yaml", &a("10.0.0.1")).start();
    assert_eq!(discovery.json("/debug/sinkz"), serde_json::json!([]));
    let mut client = Sotw::open(discovery.grpc).await;
    client.ask(CDS, &[]);
    let clusters = client.hear(CDS).await;
    client.ack(&clusters, &[]);
    client.ask(EDS, &[A]);
    let response = client.hear(EDS).await;
    client.ack(&response, &[A]);
    assert_eq!(endpoints(&response, A), ["10.0.0.1:1"]);
    // One of them does not answer.
    let both = mesh(&[deaf, one.clone()]);
    discovery.place.write("mesh", &both);
    soon("the directory that is one", || {
        discovery.json("/debug/sinkz")[1]["synced"] == true
    })
    .await;
    client.is_quiet().await;
    assert_eq!(discovery.get("/ready").0, 200);
    let now = || address(&discovery.json("/debug/endpointz"));
    for (name, text, wanted) in [
        ("config/a.yaml", a("10.0.0.2"), "10.0.0.2"),
        ("mesh", mesh(&[one]), "10.0.0.3"),
        // The directory is not in use meanwhile.
        ("config/a.yaml", a("10.0.0.1"), "10.0.0.3"),
        ("one/a.yaml", a("10.0.0.2"), "10.0.0.2"),
        ("mesh", mesh(&[]), "10.0.0.1"),
        ("config/a.yaml", a("10.0.0.3"), "10.0.0.3"),
    ] {
        let changes = now().as_deref() != Some(wanted);
        discovery.place.write(name, &text);
        if changes {
            let response = client.hear(EDS).await;
            client.ack(&response, &[A]);
            assert_eq!(endpoints(&response, A), [format!("{wanted}:1")], "{name}");
        } else {
            client.is_quiet().await;
        }
    }
    assert_eq!(discovery.json("/debug/sinkz"), serde_json::json!([]));
    let written = discovery.json("/debug/configz");
    assert_eq!(written.as_array().unwrap().len(), 1, "{written}");
}

/// A directory of the mesh configuration is read as `--configDir` is: services are made of its objects, too.
#[tokio::test]
async fn objects_of_kubernetes_in_a_directory_are_served() {
    let service = |address: &str| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: a, namespace: demo}}, spec: {{clusterIP: 10.96.0.1, ports: [{{name: tcp, port: 80}}]}}}}\n---\n\
             {{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: a-1, namespace: demo, labels: {{kubernetes.io/service-name: a}}}},\n\
             addressType: IPv4, endpoints: [{{addresses: [{address}]}}], ports: [{{name: tcp, port: 80}}]}}\n"
        )
    };
    let ingress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i, namespace: demo}, spec: {rules: [{host: a.example,\n\
         http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}}\n---\n";
    let others = "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: c}}\n---\n\
         {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}\n---\n\
         {apiVersion: v1, kind: Secret, metadata: {name: s}, data: {tls.crt: '?'}}\n---\n\
         {apiVersion: v1, kind: Service, metadata: {name: d, namespace: demo}, spec: {clusterIP: 10.96.0.4, ports: [{port: 99999}]}}\n";
    let place = place(&["one", "two"])
        .with("one/a.yaml", &service("10.0.0.1"))
        .with("one/b.yaml", &(ingress.to_owned() + others))
        .with("two/a.yaml", &service("10.0.0.2"));
    let discovery = place.start();
    let now = || address(&discovery.json("/debug/endpointz"));
    let is = |wanted: &str| until(wanted, || (now().as_deref() == Some(wanted)).then_some(()));
    is("10.0.0.1");
    let mut client = Sotw::open(discovery.grpc).await;
    client.ask(EDS, &[A]);
    let first = client.hear(EDS).await;
    assert_eq!(endpoints(&first, A), ["10.0.0.1:80"]);
    // What is counted is served, and what is not is told.
    let sources = discovery.json("/debug/sinkz");
    assert_eq!(
        (&sources[0]["served"], &sources[1]["served"]),
        (&4.into(), &2.into())
    );
    let rejected = &sources[0]["rejected"];
    assert_eq!(rejected.as_array().unwrap().len(), 1, "{rejected}");
    assert_eq!(rejected[0]["name"], "default/s");
    for kind in ["networking.k8s.io/v1 IngressClass", "apps/v1 Deployment"] {
        let line = format!("one/b.yaml: discovery does not serve {kind}: 1 not used");
        assert_eq!(discovery.logged(&line), 1, "{kind}");
    }
    let line = "one/b.yaml:10: Service demo/d: spec.ports.port: want a port";
    assert_eq!(discovery.logged(line), 1);
    let metric = "pilot_total_rejected_configs{type=\"Service\",name=\"demo/d\"}";
    assert_eq!(discovery.figure(metric), Some(1.0));
    let read = discovery.json("/debug/clusterz")[0]["objects"].clone();
    let counts = ["Service", "EndpointSlice", "Ingress"].map(|kind| read[kind].clone());
    assert_eq!(counts, [2, 1, 1].map(Value::from), "{read}");
    std::fs::remove_file(discovery.place.path("one/a.yaml")).unwrap();
    is("10.0.0.2");
    discovery.place.write("mesh", "configSources: []\n");
    until("nobody has it", || now().is_none().then_some(()));
}
