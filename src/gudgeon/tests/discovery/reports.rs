//! Reports of objects that are unused, or not served.

use std::process::Output;

use serde_json::{Value, json};

use crate::client::*;
use crate::place::{Discovery, Place, documents, entry, request, run};

/// Objects whose text is each one line of YAML.
fn lines(all: &[&str]) -> String {
    all.join("\n---\n")
}

/// Returns the objects that are refused or have messages: kind, name, and true if accepted.
fn rejected(discovery: &Discovery) -> Vec<(String, String, bool)> {
    let all = discovery.json("/debug/configz");
    let all = all.as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.filter(|one| !one["status"]["messages"].as_array().unwrap().is_empty())
        .map(|one| {
            let accepted = one["status"]["accepted"].as_bool().unwrap();
            (text(&one["kind"]), text(&one["metadata"]["name"]), accepted)
        })
        .collect()
}

/// Returns the row of a file, in place of an object.
fn file(path: &str) -> (String, String, bool) {
    ("File".to_owned(), path.to_owned(), false)
}

#[tokio::test]
async fn an_unreadable_file_is_counted_and_reported() {
    let levels = ('b'..='h').map(|name| {
        let before = char::from(name as u8 - 1);
        format!("{name}: &{name} [{}]\n", format!("*{before},").repeat(10))
    });
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned() + &levels.collect::<String>();
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let discovery = Place::new()
        .with("config/b.yaml", &service("b", &["10.0.0.2"]))
        .start();
    let names = [
        "bomb.yaml",
        "deep.json",
        "label.yaml",
        "long.yaml",
        "unnamed.yaml",
    ];
    let place = &discovery.place;
    place.write("config/bomb.yaml", &bomb);
    place.write("config/deep.json", &deep);
    let long = format!("a: {}", "x".repeat(10_000_000));
    place.write("config/long.yaml", &long);
    place.write("config/unnamed.yaml", "{apiVersion: v1, kind: Pod}\n");
    let label = b"apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: \"\xff\"}}\n";
    std::fs::write(place.path("config/label.yaml"), label).unwrap();
    let path = |name: &str| place.path(&format!("config/{name}")).display().to_string();
    let rows: Vec<_> = names.iter().map(|name| file(&path(name))).collect();
    soon("five files", || rejected(&discovery) == rows).await;
    let row = &discovery.json("/debug/configz?kind=File")[0];
    assert_eq!(
        (&row["metadata"], &row["source"], &row["spec"]),
        (
            &json!({"name": path("bomb.yaml")}),
            &json!(format!("{}:5", path("bomb.yaml"))),
            &json!({})
        )
    );
    for name in names {
        let metric = format!(
            "pilot_total_rejected_configs{{type=\"File\",name=\"{}\"}}",
            path(name)
        );
        assert_eq!(discovery.figure(&metric), Some(1.0), "{name}");
        soon(name, || discovery.logged(&format!("config/{name}:")) == 1).await;
        std::fs::remove_file(place.path(&format!("config/{name}"))).unwrap();
    }
    soon("none", || rejected(&discovery).is_empty()).await;
    let metrics = discovery.get("/metrics").1;
    assert!(!metrics.contains("pilot_total_rejected_configs{"));
    assert!(metrics.contains("\npilot_services 1\n"));
}

#[tokio::test]
async fn an_object_that_loses_to_another_source_is_reported() {
    let service = "{apiVersion: v1, kind: Service, metadata: {name: b, namespace: demo}, \
                   spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}}\n";
    let hosts = entry("b.demo.svc.cluster.local", 80, "HTTP", &[("10.0.0.2", 80)]);
    let part = entry("part.demo", 80, "HTTP", &[("10.0.0.3", 80)]);
    let part = part.replace("[part.demo]", "[part.example, b.demo.svc.cluster.local]");
    let discovery = Place::new()
        .with("config/service.yaml", service)
        .with("config/whole.yaml", &documents(&[hosts]))
        .start();
    let lost =
        "ServiceEntry demo/b: b.demo.svc.cluster.local is not used: External/Kubernetes has it";
    soon("a line", || discovery.logged(lost) == 1).await;
    let b = ("ServiceEntry".to_owned(), "b".to_owned(), false);
    assert_eq!(rejected(&discovery), std::slice::from_ref(&b));
    let row = &discovery.json("/debug/configz?kind=ServiceEntry")[0];
    let why = "b.demo.svc.cluster.local is not used: External/Kubernetes has it";
    assert_eq!(row["status"]["messages"], json!([why]));
    // Nothing served changes, and yet it is reported.
    discovery
        .place
        .write("config/part.yaml", &part.replace("10.0.0.3", "10.0.0.4"));
    soon("another line", || {
        discovery.logged("ServiceEntry demo/part: ") == 1
    })
    .await;
    let part = ("ServiceEntry".to_owned(), "part".to_owned(), true);
    assert_eq!(rejected(&discovery), [b, part]);
    let page = discovery.get("/debug").1;
    assert_eq!(
        page.matches("<td>ServiceEntry demo/b<td>").count(),
        1,
        "{page}"
    );
    assert_eq!(discovery.logged(lost), 1);
    std::fs::remove_file(discovery.place.path("config/service.yaml")).unwrap();
    let metric = "pilot_total_rejected_configs{type=\"ServiceEntry\",name=\"demo/b\"}";
    soon("one service", || discovery.figure(metric).is_none()).await;
    // Both entries are that service now.
    assert_eq!(rejected(&discovery), []);
}

#[tokio::test]
async fn conflicts_of_one_key_are_all_on_the_page() {
    let all =
        ["one", "three", "two"].map(|name| entry(&host(name), 9000, "TCP", &[("10.0.0.2", 80)]));
    let discovery = Place::new().with("config/b.yaml", &documents(&all)).start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask(LDS, &[]);
    stream.hear(LDS).await;
    let metric = "pilot_conflict_outbound_listener_tcp_over_current_tcp";
    assert_eq!(discovery.metric(metric), 2.0);
    let page = discovery.json("/debug/push_status");
    let found = &page[metric]["127.0.0.1_9000"];
    let message = found["message"].as_str().unwrap();
    for name in ["three", "two"] {
        assert!(message.contains(&host(name)), "{page}");
    }
    assert_eq!(message.matches("left out").count(), 2, "{page}");
    assert_eq!(found["proxy"], json!(node().id));
    // At the objects that the services are made of, and in the log, once each.
    let messages_of = |name: &str| {
        let all = discovery.json("/debug/configz?kind=ServiceEntry");
        let mut all = all.as_array().unwrap().iter();
        let row = all.find(|row| row["metadata"]["name"] == name).unwrap();
        row["status"]["messages"].clone()
    };
    assert_eq!(messages_of("one"), json!([]));
    let line = |name: &str| format!("service demo/{}: 127.0.0.1_9000: ", host(name));
    for name in ["three", "two"] {
        let why = format!(
            "{}:9000 is left out: {}:9000 is older",
            host(name),
            host("one")
        );
        assert_eq!(
            messages_of(name),
            json!([format!("warning: 127.0.0.1_9000: {why}")])
        );
        soon("a line", || discovery.logged(&line(name)) == 1).await;
    }
    let last = entry(&host("zwei"), 9000, "TCP", &[("10.0.0.2", 80)]);
    discovery.place.write("config/d.yaml", &last);
    soon("a line of the new one", || {
        discovery.logged(&line("zwei")) == 1
    })
    .await;
    for name in ["three", "two"] {
        assert_eq!(discovery.logged(&line(name)), 1);
    }
}

#[tokio::test]
async fn a_nack_is_reported_at_the_objects_that_the_resource_was_made_from() {
    let filter = "{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: limit, namespace: demo}, spec: \
                  {configPatches: [{applyTo: LISTENER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: \
                  {perConnectionBufferLimitBytes: 1000}}}]}}\n";
    let b = entry(&host("b"), 9000, "TCP", &[("10.0.0.2", 80)]);
    let discovery = Place::new()
        .with("config/b.yaml", &documents(&[b, filter.to_owned()]))
        .start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask(LDS, &[]);
    let response = stream.hear(LDS).await;
    let message = "Error adding/updating listener(s) 127.0.0.1_9000: not <today>";
    stream.nack(&response, "", message);
    let messages = || {
        let row = discovery.json("/debug/configz?kind=EnvoyFilter")[0].clone();
        row["status"]["messages"].clone()
    };
    let wanted = json!([format!(
        "warning: 1 stream refused lds that it has a part in: {message}"
    )]);
    soon("the filter's message", || messages() == wanted).await;
    let row = &discovery.json("/debug/configz?kind=ServiceEntry")[0];
    assert_eq!(row["status"]["messages"], wanted);
    // As Envoy's own dump has it, and with what istioctl reads of each.
    let dumped = || {
        let dump = discovery.json("/debug/config_dump?proxyID=client-1.demo");
        dump["configs"][2]["dynamic_listeners"][0].clone()
    };
    let listener = dumped();
    let sent = &listener["active_state"]["listener"];
    assert_eq!(sent["name"], "127.0.0.1_9000");
    let error = &listener["error_state"];
    assert_eq!(error["details"], message);
    assert_eq!(error["failed_configuration"]["name"], "127.0.0.1_9000");
    assert!(error["last_update_attempt"].is_string() && error["version_info"].is_string());
    let page = discovery.get("/debug").1;
    let text = "not &lt;today&gt; (made by EnvoyFilter demo/limit)";
    assert!(page.contains(text), "{page}");
    // Another version, which is taken.
    let b = entry(&host("b"), 9000, "TCP", &[("10.0.0.2", 80)]);
    let filter = filter.replace("1000", "2000");
    discovery
        .place
        .write("config/b.yaml", &documents(&[b, filter]));
    let response = stream.hear(LDS).await;
    stream.ack(&response, &[]);
    soon("no message", || messages() == json!([])).await;
    let listener = dumped();
    assert!(listener.get("error_state").is_none(), "{listener}");
    let active = &listener["active_state"]["listener"];
    assert_eq!(active["name"], "127.0.0.1_9000");
}

/// At its filter, as long as no connected proxy has what it means.
#[tokio::test]
async fn a_patch_that_matches_nothing_is_told_at_its_filter() {
    let filter = |host: &str| {
        format!(
            "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: random, namespace: demo}}, spec: \
             {{configPatches: [{{applyTo: CLUSTER, match: {{context: SIDECAR_OUTBOUND, cluster: {{service: {host}}}}}, patch: \
             {{operation: MERGE, value: {{lbPolicy: RANDOM}}}}}}]}}}}\n"
        )
    };
    let b = entry(&host("b"), 9000, "TCP", &[("10.0.0.2", 80)]);
    let all = |named: &str| documents(&[b.clone(), filter(named)]);
    let discovery = Place::new().with("config/b.yaml", &all("b.typo")).start();
    let status = || {
        let row = discovery.json("/debug/configz?kind=EnvoyFilter")[0].clone();
        (
            row["status"]["effect"].clone(),
            row["status"]["messages"].clone(),
        )
    };
    let enforced = (json!("enforced"), json!([]));
    assert_eq!(status(), enforced, "nobody is connected");
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask(CDS, &[]);
    let response = stream.hear(CDS).await;
    stream.ack(&response, &[]);
    let message = "patch 0 of EnvoyFilter demo/random has no effect: it matches nothing of the connected proxies that it is for";
    let without = (
        json!("enforced in part"),
        json!([format!("warning: {message}")]),
    );
    soon("the message", || status() == without).await;
    soon("a line", || discovery.logged(message) == 1).await;
    let metric = "gudgeon_envoy_filter_patches_without_match";
    assert_eq!(discovery.metric(metric), 1.0);
    // A change of endpoints is none of clusters.
    let moved = entry(&host("b"), 9000, "TCP", &[("10.0.0.3", 80)]);
    let place = &discovery.place;
    place.write("config/b.yaml", &documents(&[moved, filter("b.typo")]));
    soon("the message", || status() == without).await;
    place.write("config/b.yaml", &all(&host("b")));
    let response = stream.hear(CDS).await;
    stream.ack(&response, &[]);
    soon("no message", || status() == enforced).await;
    assert_eq!(discovery.logged(message), 1);
}

/// A policy that is tried is served in shadows, and says so.
#[tokio::test]
async fn a_dry_run_policy_has_a_message() {
    let policy = "{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: trial, namespace: demo, \
                  annotations: {istio.io/dry-run: 'true'}}, spec: {action: DENY, rules: [{}]}}\n";
    let discovery = Place::new().with("config/b.yaml", policy).start();
    let row = &discovery.json("/debug/configz?kind=AuthorizationPolicy")[0];
    let messages = row["status"]["messages"].to_string();
    assert!(
        messages.contains("the policy is tried and not enforced"),
        "{row}"
    );
}

fn asked(arguments: &[&str], discovery: &Discovery) -> (Option<i32>, String) {
    let at = format!("127.0.0.1:{}", discovery.http);
    let Output {
        status,
        stdout,
        stderr,
    } = run(&[&["request", "--http-addr", &at], arguments].concat());
    let output = String::from_utf8([stdout, stderr].concat()).unwrap();
    (status.code(), output)
}

#[tokio::test]
async fn a_request_has_a_body() {
    let discovery = Place::new().arg("--registries=mock").start();
    let services = || discovery.json("/debug/registryz").as_array().unwrap().len();
    let b = service("b", &["10.0.0.2"]);
    let put = ["PUT", "/debug/memory"];
    let (code, output) = asked(&[put[0], put[1], &b], &discovery);
    assert_eq!(
        (code, output.as_str()),
        (Some(0), "{\n  \"objects\": 1\n}\n")
    );
    soon("a service", || services() == 1).await;
    // Otherwise all objects would be deleted by mistake.
    let (code, output) = asked(&put, &discovery);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("400 Bad Request: want a body"), "{output}");
    assert_eq!(discovery.get("/debug/memory"), (200, b));
    assert_eq!(services(), 1);
    // A body that begins with a dash follows `--`.
    let (code, output) = asked(&[put[0], put[1], "--", "---"], &discovery);
    assert_eq!(
        (code, output.as_str()),
        (Some(0), "{\n  \"objects\": 0\n}\n")
    );
    soon("none", || services() == 0).await;
}

#[tokio::test]
async fn only_what_gets_requests_is_registered() {
    let place = Place::new().with(
        "config/b.yaml",
        &lines(&[
            "{apiVersion: v1, kind: Service, metadata: {name: b, namespace: demo}, spec: {clusterIP: 10.96.0.1, ports: [{name: \
             http, port: 80}]}}",
            "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: b-1, namespace: demo, labels: \
             {kubernetes.io/service-name: b}}, addressType: IPv4, ports: [{name: http, port: 8080}], endpoints: [{addresses: \
             [10.0.0.2], conditions: {ready: false}}, {addresses: [10.0.0.3]}, {addresses: [10.0.0.4], conditions: {ready: \
             false, serving: true, terminating: true}}]}",
            "{apiVersion: v1, kind: Node, metadata: {name: n}}",
            "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: demo}, spec: {hosts: \
             [b], tcp: [{route: [{destination: {host: b}}]}]}}",
        ]),
    );
    let discovery = place.start();
    assert_eq!(
        discovery.json("/v1/registration"),
        json!([{
            "service-key": "b.demo.svc.cluster.local|http",
            "hosts": [{"ip_address": "10.0.0.3", "port": 8080}],
        }])
    );
    // By the names of their kinds, as they are written.
    assert_eq!(
        discovery.json("/debug/clusterz")[0]["objects"],
        json!({"EndpointSlice": 1, "Node": 1, "Service": 1, "VirtualService": 1})
    );
    for (method, path, status) in [
        ("POST", "/debug/nope", 404),
        ("PUT", "/debug/nope", 404),
        ("POST", "/debug/syncz", 405),
        ("POST", "/debug", 405),
    ] {
        assert_eq!(
            request(discovery.http, method, path).0,
            status,
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn figures_of_endpoints_are_about_clusters_that_have_them() {
    let of = |name: &str, resolution: &str| {
        entry(&host(name), 8080, "HTTP", &[]).replace("STATIC", resolution)
    };
    let all = [of("a", "STATIC"), of("b", "NONE"), of("c", "DNS")];
    let discovery = Place::new()
        .with("config/b.yaml", &documents(&all))
        .env("PILOT_ENABLE_CLUSTER_METRICS", "true")
        .start();
    assert_eq!(discovery.figure("pilot_eds_no_instances"), Some(1.0));
    let instances = |cluster: &str| {
        discovery.figure(&format!("pilot_xds_eds_instances{{cluster=\"{cluster}\"}}"))
    };
    assert_eq!([A, B, C].map(instances), [Some(0.0), None, None]);
    // Localities and endpoints are told apart, as by Istio.
    let places = "endpoints:\n  - {address: 10.0.0.1, locality: r/z}\n  - {address: 10.0.0.2, locality: r/z}\n  - {address: 10.0.0.3, locality: r/y}\n";
    let placed = of("a", "STATIC").replace("endpoints:\n", places);
    let all = [placed.clone(), of("b", "NONE"), of("c", "DNS")];
    discovery.place.write("config/b.yaml", &documents(&all));
    let endpoints = format!("pilot_xds_eds_all_locality_endpoints{{cluster=\"{A}\"}}");
    soon("the endpoints", || {
        (instances(A), discovery.figure(&endpoints)) == (Some(2.0), Some(3.0))
    })
    .await;
    // A change of endpoints counts once, however many clusters depend on them.
    let counted = || {
        ["eds", "config"]
            .map(|kind| discovery.metric(&format!("pilot_inbound_updates{{type=\"{kind}\"}}")))
    };
    let [eds, config] = counted();
    let other = of("c", "DNS").replace("endpoints:\n", "endpoints:\n  - {address: c.example}\n");
    let all = [placed, of("b", "NONE"), other];
    discovery.place.write("config/b.yaml", &documents(&all));
    soon("a change", || counted() != [eds, config]).await;
    assert_eq!(counted(), [eds + 1.0, config]);
}
