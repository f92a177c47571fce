//! The metrics after known events.

use crate::client::*;
use crate::place::{Discovery, Place, documents, entry};
use crate::streams::Deaf;
use crate::support::program::metrics_of;

fn b(addresses: &[&str]) -> String {
    service("b", addresses)
}

/// A Service of Kubernetes without pods.
const EMPTY: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: empty, namespace: demo}\nspec: {clusterIP: 10.96.0.9, ports: \
                     [{name: http, port: 80}]}\n";

async fn becomes(discovery: &Discovery, name: &str, value: f64) {
    soon(name, || discovery.figure(name) == Some(value)).await;
}

#[test]
fn metrics_are_what_accept_asks_for() {
    metrics_of(Place::new().start().http);
}

#[tokio::test]
async fn endpoints_are_counted_by_cluster_where_that_is_wanted() {
    let place = || {
        Place::new()
            .with("config/b.yaml", &b(&["10.0.0.2", "10.0.0.3"]))
            .with("config/empty.yaml", EMPTY)
    };
    let metrics = [
        "pilot_xds_eds_instances",
        "pilot_xds_eds_all_locality_endpoints",
    ];
    let unasked = place().start();
    let text = unasked.get("/metrics").1;
    for metric in metrics {
        assert!(!text.contains(&format!("{metric}{{")), "{text}");
    }
    let discovery = place().env("PILOT_ENABLE_CLUSTER_METRICS", "true").start();
    // Two endpoints of one locality.
    for (metric, expected) in metrics.into_iter().zip([1.0, 2.0]) {
        let of = |cluster: &str| format!("{metric}{{cluster=\"{cluster}\"}}");
        assert_eq!(discovery.figure(&of(B)), Some(expected), "{metric}");
        let empty = of("outbound|80||empty.demo.svc.cluster.local");
        assert_eq!(discovery.figure(&empty), Some(0.0), "{metric}");
    }
    let empty = "pilot_eds_no_instances";
    for one in [&unasked, &discovery] {
        assert_eq!(one.figure(empty), Some(1.0));
    }
    discovery.place.write("config/b.yaml", &b(&["10.0.0.2"]));
    for metric in metrics {
        becomes(&discovery, &format!("{metric}{{cluster=\"{B}\"}}"), 1.0).await;
    }
    std::fs::remove_file(discovery.place.path("config/empty.yaml")).unwrap();
    becomes(&discovery, empty, 0.0).await;
    let text = discovery.get("/metrics").1;
    assert!(!text.contains("||empty.demo"), "{text}");
}

#[tokio::test]
async fn updates_of_sources_are_counted_by_kind() {
    let discovery = Place::new()
        .with("config/b.yaml", &b(&["10.0.0.2"]))
        .start();
    let kinds = ["eds", "svc", "config"];
    let counted = || {
        kinds.map(|kind| {
            let name = format!("pilot_inbound_updates{{type=\"{kind}\"}}");
            discovery.metric(&name)
        })
    };
    let begun = counted();
    let steps = [
        ("config/b.yaml", b(&["10.0.0.3"])),
        ("config/empty.yaml", EMPTY.to_owned()),
        ("mesh", "connectTimeout: 3s\n".to_owned()),
    ];
    for (at, (file, text)) in steps.iter().enumerate() {
        discovery.place.write(file, text);
        // This kind is counted once more, and kinds of later steps not at all.
        let expected: Vec<_> = begun
            .iter()
            .enumerate()
            .map(|(kind, count)| count + f64::from(u8::from(kind <= at)))
            .collect();
        soon(kinds[at], || counted()[at] == expected[at]).await;
        assert_eq!(counted().to_vec(), expected);
    }
}

/// Each part of a change's way is counted once, or once for each stream; their sum is at most the whole.
#[tokio::test]
async fn the_times_of_a_push_add_up() {
    let discovery = Place::new()
        .with("config/b.yaml", &b(&["10.0.0.2"]))
        .env("PILOT_DEBOUNCE_AFTER", "500ms")
        .start();
    let parts = ["gudgeon_debounce_seconds", "gudgeon_snapshot_seconds"];
    let of_streams = ["pilot_proxy_queue_time", "pilot_proxy_convergence_time"];
    let of = |metric: &str, what: &str| discovery.figure(&format!("{metric}_{what}")).unwrap();
    for metric in parts.iter().chain(&of_streams) {
        assert_eq!(of(metric, "count"), 0.0, "{metric}");
    }
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.settle(&[B], &["8080"]).await;
        streams.push(stream);
    }
    discovery.place.write("config/b.yaml", &b(&["10.0.0.3"]));
    for stream in &mut streams {
        stream.hear(EDS).await;
    }
    becomes(&discovery, "pilot_proxy_convergence_time_count", 2.0).await;
    assert_eq!(of("pilot_proxy_queue_time", "count"), 2.0);
    for metric in parts {
        assert_eq!(of(metric, "count"), 1.0, "{metric}");
    }
    let [debounce, snapshot] = parts.map(|metric| of(metric, "sum"));
    let [queue, convergence] = of_streams.map(|metric| of(metric, "sum"));
    assert!(debounce >= 0.5 && snapshot > 0.0 && queue > 0.0);
    let all = 2.0 * (debounce + snapshot) + queue;
    // Sums of numbers that were rounded.
    assert!(convergence > all - 1e-6, "{convergence} {all}");
}

/// New clusters wait for the client's answer, and listeners wait for them.
#[tokio::test]
async fn a_push_converges_when_the_client_was_sent_all_of_it() {
    let discovery = Place::new()
        .with("config/b.yaml", &b(&["10.0.0.2"]))
        .start();
    let count = "pilot_proxy_convergence_time_count";
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.settle(&[B], &["8080"]).await;
    discovery
        .place
        .write("config/c.yaml", &service("c", &["10.0.0.4"]));
    let cds = stream.hear(CDS).await;
    assert_eq!(discovery.figure(count), Some(0.0));
    stream.ack(&cds, &[]);
    becomes(&discovery, count, 1.0).await;
}

#[tokio::test]
async fn shared_bytes_are_counted_once() {
    let discovery = Place::new()
        .with("config/b.yaml", &b(&["10.0.0.2"]))
        .start();
    let figures = || {
        ["gudgeon_snapshot_bytes", "gudgeon_resources_shared"]
            .map(|name| discovery.figure(name).unwrap())
    };
    assert_eq!(figures(), [0.0, 0.0]);
    let mut one = Sotw::open(discovery.grpc).await;
    let responses = one.settle(&[B], &["8080"]).await;
    let resources = responses.iter().flat_map(|response| &response.resources);
    let (mut bytes, mut count) = (0, 0);
    for resource in resources {
        bytes += resource.value.len();
        count += 1;
    }
    let bytes = f64::from(u32::try_from(bytes).unwrap());
    assert_eq!(figures(), [bytes, 0.0]);
    let mut other = Sotw::open(discovery.grpc).await;
    other.settle(&[B], &["8080"]).await;
    assert_eq!(figures(), [bytes, f64::from(count)]);
    drop(one);
    soon("one stream", || figures() == [bytes, 0.0]).await;
    drop(other);
    soon("none", || figures() == [0.0, 0.0]).await;
}

#[tokio::test]
async fn a_stream_is_pending_while_a_push_waits_for_it() {
    let discovery = Place::new()
        .with("config/b.yaml", &b(&["10.0.0.2"]))
        .start();
    let pending = "gudgeon_streams_pending";
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.settle(&[B], &["8080"]).await;
    let deaf = Deaf::open(discovery.grpc);
    soon("both streams", || discovery.streams() == 2).await;
    assert_eq!(discovery.figure(pending), Some(0.0));
    discovery.place.write("config/b.yaml", &b(&["10.0.0.3"]));
    let eds = stream.hear(EDS).await;
    stream.ack(&eds, &[B]);
    becomes(&discovery, "pilot_proxy_convergence_time_count", 1.0).await;
    assert_eq!(discovery.figure(pending), Some(1.0));
    drop(deaf);
    becomes(&discovery, pending, 0.0).await;
}

#[tokio::test]
async fn a_service_that_loses_its_port_to_an_older_one_is_counted() {
    let one =
        |host: &str, port: u16, protocol: &str| entry(host, port, protocol, &[("10.0.0.2", 80)]);
    let http = one("a.demo.svc.cluster.local", 9000, "HTTP");
    let tcp = one("z.demo.svc.cluster.local", 9000, "TCP");
    let first = one("twin.demo.svc.cluster.local", 80, "HTTP");
    let second = first.replace("namespace: demo", "namespace: other");
    let discovery = Place::new()
        .with("config/first.yaml", &documents(&[http, first]))
        .with("config/second.yaml", &documents(&[tcp, second]))
        .start();
    let mut stream = Sotw::open(discovery.grpc).await;
    let cluster = "outbound|9000||a.demo.svc.cluster.local";
    stream.settle(&[cluster], &["9000"]).await;
    let metrics = [
        (
            "pilot_conflict_outbound_listener_tcp_over_current_http",
            "127.0.0.1_9000",
        ),
        (
            "pilot_duplicate_envoy_clusters",
            "outbound|80||twin.demo.svc.cluster.local",
        ),
    ];
    let push_status = discovery.json("/debug/push_status");
    for (metric, key) in metrics {
        assert_eq!(discovery.figure(metric), Some(1.0), "{metric}");
        let message = push_status[metric][key]["message"].as_str();
        let message = message.unwrap_or_else(|| panic!("{key} of {metric}: {push_status}"));
        assert!(message.contains(" is left out"), "{message}");
    }
    std::fs::remove_file(discovery.place.path("config/second.yaml")).unwrap();
    for (metric, _) in metrics {
        becomes(&discovery, metric, 0.0).await;
    }
}
