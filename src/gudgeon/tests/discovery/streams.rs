//! The messages of streams, one by one.

use std::time::{Duration, Instant};

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use tonic::Code;

use crate::client::*;
use crate::place::{Discovery, Place, documents, entry};

fn with(services: &[(&str, &[&str])]) -> Place {
    let place = Place::new();
    write(&place, services);
    place
}

fn write(place: &Place, services: &[(&str, &[&str])]) {
    let all: Vec<_> = services
        .iter()
        .map(|(name, at)| service(name, at))
        .collect();
    place.write("config/services.yaml", &documents(&all));
}

/// The default of `--keepaliveInterval`.
const KEEPALIVE: Duration = Duration::from_secs(30);

const AB: &[(&str, &[&str])] = &[("a", &["10.0.0.1"]), ("b", &["10.0.0.2"])];

fn start() -> Discovery {
    with(AB).start()
}

/// Case 1.
#[tokio::test]
async fn a_sidecar_is_given_four_types() {
    let discovery = start();
    let mut stream = Sotw::open(discovery.grpc).await;
    let [cds, eds, lds, rds] = stream.settle(&[B], &["8080"]).await;
    let names = names_of(&cds);
    for name in [A, B, "BlackHoleCluster", "PassthroughCluster"] {
        assert!(names.iter().any(|found| found == name), "{name} {names:?}");
    }
    assert_eq!(endpoints(&eds, B), ["10.0.0.2:80"]);
    assert_eq!(names_of(&lds), ["127.0.0.1_8080"]);
    assert_eq!(names_of(&rds), ["8080"]);
    for response in [&cds, &eds, &lds, &rds] {
        assert!(response.version_info.len() <= 32);
        assert!(response.control_plane.is_some());
    }
    stream.is_quiet().await;
}

/// Case 3, the first half.
#[tokio::test]
async fn many_changes_are_one_push() {
    // A pause of this program is not to be the quiet that ends a wait.
    let discovery = with(AB).env("PILOT_DEBOUNCE_AFTER", "2s").start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.settle(&[B], &["8080"]).await;
    for last in 0..20 {
        let address = format!("10.0.1.{last}");
        write(
            &discovery.place,
            &[("a", &["10.0.0.1"]), ("b", &[&address])],
        );
    }
    let eds = stream.hear(EDS).await;
    assert_eq!(endpoints(&eds, B), ["10.0.1.19:80"]);
    stream.ack(&eds, &[B]);
    stream.is_quiet().await;
}

/// Case 4.
#[tokio::test]
async fn names_come_and_go() {
    let discovery = with(&[
        ("a", &["10.0.0.1"]),
        ("b", &["10.0.0.2"]),
        ("c", &["10.0.0.3"]),
    ])
    .start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask(EDS, &[A, B]);
    let first = stream.hear(EDS).await;
    assert_eq!(names_of(&first), [A, B]);
    stream.ack(&first, &[A, B, C]);
    let second = stream.hear(EDS).await;
    assert_eq!(endpoints(&second, C), ["10.0.0.3:80"]);
    stream.ack(&second, &[A, B]);
    stream.is_quiet().await;
    stream.ack(&second, &[A, B, C]);
    let third = stream.hear(EDS).await;
    assert_eq!(endpoints(&third, C), ["10.0.0.3:80"]);
}

/// Case 5.
#[tokio::test]
async fn a_nack_is_reported_and_nothing_is_sent_again() {
    let discovery = start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask(LDS, &[]);
    let lds = stream.hear(LDS).await;
    stream.nack(&lds, "", "no such filter");
    stream.is_quiet().await;
    let row = &discovery.json("/debug/syncz")[0];
    assert_eq!(row["errors"]["listener"]["message"], "no such filter");
    assert_eq!(row["errors"]["listener"]["version"], lds.version_info);
    assert_eq!(
        (&row["listener_sent"], &row["listener_acked"]),
        (&lds.version_info.as_str().into(), &"".into())
    );
    assert!(row.get("cluster_sent").is_none());
    assert_eq!(
        discovery.metric("pilot_total_xds_rejects{type=\"lds\"}"),
        1.0
    );
    let (_, metrics) = discovery.get("/metrics");
    assert!(
        metrics.contains("pilot_xds_lds_reject{node=\"sidecar~127.0.0.1~"),
        "{metrics}"
    );
    assert_eq!(discovery.logged("refuses lds: no such filter"), 1);

    let more = entry(
        "d.demo.svc.cluster.local",
        9090,
        "HTTP",
        &[("10.0.0.4", 80)],
    );
    discovery.place.write("config/d.yaml", &more);
    let lds = stream.hear(LDS).await;
    stream.ack(&lds, &[]);
    stream.is_quiet().await;
    let row = &discovery.json("/debug/syncz")[0];
    assert_eq!(row["errors"], serde_json::json!({}));
    assert_eq!(row["listener_sent"], row["listener_acked"]);
}

/// Case 6.
#[tokio::test]
async fn an_old_nonce_changes_nothing() {
    let discovery = start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask(EDS, &[A]);
    let first = stream.hear(EDS).await;
    stream.ack(&first, &[A, B]);
    let second = stream.hear(EDS).await;
    stream.ack(&second, &[A, B]);
    stream.ack(&first, &[A]);
    stream.is_quiet().await;
    assert_eq!(
        discovery.metric("pilot_xds_expired_nonce{type=\"eds\"}"),
        1.0
    );
    write(
        &discovery.place,
        &[("a", &["10.0.0.1"]), ("b", &["10.0.0.9"])],
    );
    let eds = stream.hear(EDS).await;
    assert_eq!(endpoints(&eds, B), ["10.0.0.9:80"]);
}

/// Case 7.
#[tokio::test]
async fn a_client_that_returns_with_current_versions_is_sent_nothing() {
    let discovery = start();
    let mut stream = Sotw::open(discovery.grpc).await;
    let [cds, eds, lds, rds] = stream.settle(&[A, B], &["8080"]).await;
    drop(stream);
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask_with(CDS, &[], &cds.version_info);
    stream.ask_with(EDS, &[A, B], &eds.version_info);
    stream.ask_with(LDS, &[], &lds.version_info);
    stream.ask_with(RDS, &["8080"], &rds.version_info);
    stream.is_quiet().await;
    write(
        &discovery.place,
        &[("a", &["10.0.0.7"]), ("b", &["10.0.0.2"])],
    );
    let eds = stream.hear(EDS).await;
    assert_eq!(
        (names_of(&eds), endpoints(&eds, A)),
        (vec![A.to_owned()], vec!["10.0.0.7:80".to_owned()])
    );
}

/// Case 8.
#[tokio::test]
async fn endpoints_alone_are_answered_in_full() {
    let discovery = start();
    let mut stream = Sotw::open(discovery.grpc).await;
    let [_, eds, ..] = stream.settle(&[A, B], &["8080"]).await;
    drop(stream);
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask_with(EDS, &[A, B], &eds.version_info);
    let again = stream.hear(EDS).await;
    assert_eq!(
        (again.version_info.clone(), names_of(&again)),
        (eds.version_info, vec![A.to_owned(), B.to_owned()])
    );
}

/// Case 10.
#[tokio::test]
async fn another_replica_has_the_same_versions() {
    let one = start();
    let two = Place::new()
        .with("config/1.yaml", &service("b", &["10.0.0.2"]))
        .with("config/2.yaml", &service("a", &["10.0.0.1"]))
        .start();
    let mut versions = Vec::new();
    for discovery in [&one, &two] {
        let mut stream = Sotw::open(discovery.grpc).await;
        let all = stream.settle(&[A, B], &["8080"]).await;
        versions.push(all.map(|response| response.version_info));
    }
    assert_eq!(versions[0], versions[1]);
}

/// Case 12.
#[tokio::test]
async fn two_streams_of_one_node_are_two() {
    let discovery = start();
    let mut older = Sotw::open(discovery.grpc).await;
    older.settle(&[B], &["8080"]).await;
    let mut newer = Sotw::open(discovery.grpc).await;
    newer.settle(&[B], &["8080"]).await;
    assert_eq!(discovery.streams(), 2);
    drop(older);
    soon("one stream", || discovery.streams() == 1).await;
    write(
        &discovery.place,
        &[("a", &["10.0.0.1"]), ("b", &["10.0.0.9"])],
    );
    assert_eq!(endpoints(&newer.hear(EDS).await, B), ["10.0.0.9:80"]);
}

/// Case 13.
#[tokio::test]
async fn bad_nodes_are_refused_by_the_part() {
    let discovery = start();
    let mut good = Sotw::open(discovery.grpc).await;
    good.settle(&[B], &["8080"]).await;
    for (node, message) in [
        (Some(node_of("a~b")), "node id \"a~b\": want four parts"),
        (Some(node_of("x~10.0.0.1~p.demo~d")), "got \"x\""),
        (
            Some(node_of("sidecar~here~p.demo~d")),
            "want an IP address, got \"here\"",
        ),
        (Some(node_of("sidecar~10.0.0.1~p~d")), "no namespace"),
        (None::<Node>, "has no node"),
    ] {
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.say(DiscoveryRequest {
            node,
            ..request(CDS, &[])
        });
        let status = stream.end().await;
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(message), "{}", status.message());
    }
    write(
        &discovery.place,
        &[("a", &["10.0.0.1"]), ("b", &["10.0.0.9"])],
    );
    assert_eq!(endpoints(&good.hear(EDS).await, B), ["10.0.0.9:80"]);
}

/// Case 15.
#[tokio::test]
async fn new_resources_are_sent_before_old_ones_are_removed() {
    let discovery = start();
    let mut stream = Sotw::open(discovery.grpc).await;
    let [_, known, ..] = stream.settle(&[A, B], &["8080"]).await;
    write(
        &discovery.place,
        &[("a", &["10.0.0.1"]), ("c", &["10.0.0.3"])],
    );
    let has = |response: &_, name: &str| names_of(response).iter().any(|found| found == name);
    let cds = stream.hear(CDS).await;
    assert!(has(&cds, A) && has(&cds, B) && has(&cds, C));
    // Names of new clusters come with the nonce of the last assignments, before CDS is accepted.
    stream.ack(&known, &[A, B, C]);
    let eds = stream.hear(EDS).await;
    assert!(has(&eds, C) && !has(&eds, B));
    stream.ack(&eds, &[A, B, C]);
    stream.ack(&cds, &[]);
    let rds = stream.hear(RDS).await;
    stream.ack(&rds, &["8080"]);
    let last = stream.hear(CDS).await;
    assert!(has(&last, A) && !has(&last, B) && has(&last, C));
    stream.ack(&last, &[]);
    // The resource is still subscribed, and removed.
    let gone = stream.hear(EDS).await;
    assert_eq!(endpoints(&gone, B), [""; 0]);
    stream.ack(&gone, &[A, C]);
    stream.is_quiet().await;
}

/// Case 15 for a client that ACKs nothing.
#[tokio::test]
async fn without_acks_each_step_comes_after_two_seconds() {
    let discovery = start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.settle(&[A, B], &["8080"]).await;
    // Before the server's clock: what is heard late must not count as sent early.
    let begun = Instant::now();
    write(
        &discovery.place,
        &[("a", &["10.0.0.1"]), ("c", &["10.0.0.3"])],
    );
    stream.hear(CDS).await;
    stream.hear(RDS).await;
    let first = begun.elapsed();
    stream.hear(CDS).await;
    let second = begun.elapsed();
    assert!(first >= Duration::from_millis(1900), "{first:?}");
    assert!(second >= Duration::from_millis(3900), "{second:?}");
}

/// Case 16.
#[tokio::test]
async fn delta_sends_what_is_not_there() {
    let discovery = start();
    let mut stream = Delta::open(discovery.grpc).await;
    stream.ask(CDS, &[], &[]);
    let cds = stream.hear(CDS).await;
    stream.ack(&cds);
    let all = versions(&cds.resources);
    assert!(all.iter().any(|(name, _)| *name == B));

    let mut again = Delta::open(discovery.grpc).await;
    again.ask(CDS, &[], &all);
    again.is_quiet().await;

    let mut other = Delta::open(discovery.grpc).await;
    let mut known: Vec<_> = all.iter().filter(|(name, _)| *name != B).copied().collect();
    known.push((B, "wrong"));
    known.push(("gone", "1"));
    other.ask(CDS, &[], &known);
    let answer = other.hear(CDS).await;
    assert_eq!(names_of_delta(&answer), [B]);
    assert!(answer.removed_resources.is_empty());
    other.ack(&answer);
    // The client's routes may lead there until it has newer ones, which this one never asks for.
    let dropped = other.hear(CDS).await;
    assert!(dropped.resources.is_empty());
    assert_eq!(dropped.removed_resources, ["gone"]);

    stream.ask(EDS, &[C], &[]);
    let eds = stream.hear(EDS).await;
    assert_eq!(
        (eds.resources.len(), &*eds.removed_resources),
        (0, &[C.to_owned()][..])
    );
    stream.ack(&eds);
    write(
        &discovery.place,
        &[
            ("a", &["10.0.0.1"]),
            ("b", &["10.0.0.2"]),
            ("c", &["10.0.0.3"]),
        ],
    );
    let cds = stream.hear(CDS).await;
    assert_eq!(names_of_delta(&cds), [C]);
    let eds = stream.hear(EDS).await;
    assert_eq!(eds.resources[0].name, C);
}

/// Case 14: a client that does not read, beside others that do.
#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other() {
    let many: Vec<String> = (0..300)
        .map(|number| service(&format!("s{number}"), &["10.0.0.1"]))
        .collect();
    let discovery = with(AB).with("config/many.yaml", &documents(&many)).start();
    let mut readers = Vec::new();
    for _ in 0..50 {
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.settle(&[B], &["8080"]).await;
        readers.push(stream);
    }
    let deaf = Deaf::open(discovery.grpc);
    let before = discovery.anonymous();
    for round in 0..10 {
        let address = format!("10.0.2.{round}");
        write(
            &discovery.place,
            &[("a", &["10.0.0.1"]), ("b", &[&address])],
        );
        let mut first = None;
        for stream in &mut readers {
            let eds = stream.hear(EDS).await;
            let since = *first.get_or_insert_with(Instant::now);
            // A turn that waited for the deaf client would end with its connection.
            assert!(since.elapsed() < KEEPALIVE, "{:?}", since.elapsed());
            assert_eq!(endpoints(&eds, B), [format!("{address}:80")]);
            stream.ack(&eds, &[B]);
        }
    }
    crate::place::until("the timeout", || {
        (discovery.metric("pilot_xds_write_timeout") == 1.0).then_some(())
    });
    let grown = discovery.anonymous().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB");
    drop(deaf);
}

/// A client that subscribes to everything and reads nothing: its windows stay closed.
pub struct Deaf {
    pub stream: std::net::TcpStream,
}

impl Deaf {
    pub fn open(port: u16) -> Self {
        use prost::Message as _;
        use std::io::Write as _;

        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS: INITIAL_WINDOW_SIZE is 0.
        bytes.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
        let mut head = vec![0x83, 0x86];
        for (name, value) in [
            (
                ":path",
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
            ),
            (":authority", "x"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            head.push(0);
            for text in [name, value] {
                head.push(u8::try_from(text.len()).unwrap());
                head.extend(text.as_bytes());
            }
        }
        let frame = |kind: u8, flags: u8, body: &[u8]| {
            let length = u32::try_from(body.len()).unwrap().to_be_bytes();
            let mut frame = length[1..].to_vec();
            frame.extend([kind, flags, 0, 0, 0, 1]);
            frame.extend(body);
            frame
        };
        bytes.extend(frame(1, 4, &head));
        let asked = DiscoveryRequest {
            node: Some(node()),
            ..request(CDS, &[])
        };
        let asked = asked.encode_to_vec();
        let mut message = vec![0];
        message.extend(u32::try_from(asked.len()).unwrap().to_be_bytes());
        message.extend(asked);
        bytes.extend(frame(0, 0, &message));
        stream.write_all(&bytes).unwrap();
        Self { stream }
    }
}

#[tokio::test]
async fn too_many_names_and_too_large_messages_are_refused() {
    let discovery = start();
    for (names, code) in [
        (vec!["a"; 100_001], Code::ResourceExhausted),
        (vec!["a"; 110_000], Code::ResourceExhausted),
        (vec![&*"x".repeat(5 << 20).leak()], Code::OutOfRange),
    ] {
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.ask(EDS, &names);
        let status = stream.end().await;
        assert_eq!(status.code(), code, "{status:?}");
    }
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask("type.googleapis.com/envoy.config.Other", &[]);
    stream.is_quiet().await;
    stream.settle(&[B], &["8080"]).await;
    assert_eq!(discovery.logged("which is not served"), 1);
}
