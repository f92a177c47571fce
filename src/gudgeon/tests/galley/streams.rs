//! The streams of a sink, against the program.

use mcp::message::{RequestResources, Resources};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::client::*;
use crate::place::{Galley, GalleyPlace, SERVICES, service, until};
use crate::support::h2;

pub async fn channel(galley: &Galley) -> Channel {
    let port = port(galley);
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    endpoint.connect().await.unwrap()
}

pub fn port(galley: &Galley) -> u16 {
    until("the port", || {
        let log = galley.log();
        let (_, address) = log
            .iter()
            .find_map(|line| line.split_once("listening on mcp://"))?;
        address.rsplit(':').next()?.parse().ok()
    })
}

fn incremental(collection: &str, has: &Resources) -> RequestResources {
    let versions = has.resources.iter().map(|one| {
        let metadata = one.metadata.clone().unwrap();
        (metadata.name, metadata.version)
    });
    RequestResources {
        collection: collection.to_owned(),
        incremental: true,
        initial_resource_versions: versions.collect(),
        ..RequestResources::default()
    }
}

#[tokio::test]
async fn files_reach_a_sink_and_only_good_ones_do() {
    let galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .start();
    let channel = channel(&galley).await;
    let mut client = Client::open(&channel).await.unwrap();
    assert!(client.version.is_some());
    client.ask(SERVICES);
    let first = client.next().await;
    assert_eq!(
        (names(&first), &*first.nonce),
        (vec!["shop/a".to_owned()], "1")
    );
    client.ask("istio/networking/v1alpha3/gateways");
    assert_eq!(client.next().await.resources.len(), 0);
    client.answer(&first, None);
    assert!(client.is_quiet().await);
    // Invalid: shown, and not sent.
    galley.place.write("config/a.yaml", &service("a", [75, 20]));
    until("the fault", || {
        let rejected = galley.configz()["rejected"].as_array().unwrap().len();
        (rejected == 1).then_some(())
    });
    assert!(client.is_quiet().await);
    galley.place.write("config/a.yaml", &service("a", [50, 50]));
    let second = client.next().await;
    assert_eq!(
        (names(&second), &*second.nonce),
        (vec!["shop/a".to_owned()], "3")
    );
    client.answer(&second, Some(3));
    let is_listed = || {
        let peers = galley.configz()["peers"].clone();
        let one = &peers[0]["collections"][SERVICES];
        one["nacks"] == 1 && one["last_nack"]["code"] == 3
    };
    // The request must leave this thread first.
    let end = std::time::Instant::now() + SOON;
    while !is_listed() {
        assert!(std::time::Instant::now() < end, "the refusal is not shown");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let peer = galley.configz()["peers"][0].clone();
    assert_eq!(
        (&peer["direction"], &peer["identity"]),
        (&"server".into(), &serde_json::json!([]))
    );
    assert_eq!(
        peer["collections"][SERVICES]["acked"],
        first.system_version_info.as_str()
    );
    let (_, page) = galley.look("/debug");
    assert!(page.contains("Sinks: 1 stream<") && page.contains("(code 3)"));
    let labels = format!("component=\"galley\",collection=\"{SERVICES}\"");
    let acks = format!("istio_mcp_request_acks_total{{{labels}}}");
    assert_eq!(galley.metric(&acks), Some(1.0));
    let nacks = format!("istio_mcp_request_nacks_total{{{labels},code=\"3\"}}");
    assert_eq!(galley.metric(&nacks), Some(1.0));
    assert_eq!(
        galley.metric("istio_mcp_clients_total{component=\"galley\"}"),
        Some(1.0)
    );
}

#[tokio::test]
async fn differences_are_just_that_also_for_one_that_comes_back() {
    let mut galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .with("config/b.yaml", &service("b", [75, 25]))
        .start();
    let old = channel(&galley).await;
    let mut client = Client::open(&old).await.unwrap();
    client.say(incremental(SERVICES, &Resources::default()));
    let all = client.next().await;
    assert_eq!(names(&all), ["shop/a", "shop/b"]);
    client.answer(&all, None);
    galley.place.write("config/a.yaml", &service("a", [50, 50]));
    let changed = client.next().await;
    assert_eq!(
        (names(&changed), changed.removed_resources.len()),
        (vec!["shop/a".to_owned()], 0)
    );
    client.answer(&changed, None);
    galley.place.remove("config/a.yaml");
    let gone = client.next().await;
    assert_eq!(
        (gone.resources.len(), &gone.removed_resources[..]),
        (0, &["shop/a".to_owned()][..])
    );
    client.answer(&gone, None);
    // Another process: its versions are the same.
    galley.signal("TERM");
    assert_eq!(client.code().await, Code::Unavailable);
    assert!(galley.wait().success());
    let place = std::mem::replace(&mut galley.place, GalleyPlace::new());
    let galley = place.with("config/c.yaml", &service("c", [10, 90])).start();
    let channel = channel(&galley).await;
    let mut client = Client::open(&channel).await.unwrap();
    client.say(incremental(SERVICES, &all));
    let difference = client.next().await;
    assert_eq!(names(&difference), ["shop/c"]);
    assert_eq!(difference.removed_resources, ["shop/a"]);
    let mut whole = Client::open(&channel).await.unwrap();
    whole.ask(SERVICES);
    assert_eq!(names(&whole.next().await), ["shop/b", "shop/c"]);
}

#[test]
fn a_list_or_flag_that_cannot_be_used_is_said() {
    let place = GalleyPlace::new().with("list", "allowed: {");
    let list = place.path("list").to_str().unwrap().to_owned();
    let config = place.path("config").to_str().unwrap().to_owned();
    for (arguments, message) in [
        (
            vec!["--accessListFile", &list],
            "cannot use --accessListFile",
        ),
        (
            vec!["--insecure", "--sinkAddress=a:1", "--sinkMeta=a"],
            "cannot use --sinkMeta \"a\"",
        ),
        (
            vec!["--insecure", "--sinkAddress=a:1", "--sinkAuthMode=TLS"],
            "cannot use --sinkAuthMode \"TLS\"",
        ),
        // Checked whether a sink is dialled or not.
        (
            vec!["--insecure", "--sinkMeta=a"],
            "cannot use --sinkMeta \"a\"",
        ),
        (
            vec!["--insecure", "--server-maxReceivedMessageSize=0"],
            "cannot use --server-maxReceivedMessageSize 0: want a number above 0",
        ),
        (
            vec!["--insecure", "--server-maxConcurrentStreams=0"],
            "cannot use --server-maxConcurrentStreams 0: want a number above 0",
        ),
        (
            vec!["--insecure", "--sinkAuthMode=FOO"],
            "cannot use --sinkAuthMode \"FOO\"",
        ),
        (
            vec!["--insecure", "--sinkAddress=a"],
            "cannot use --sinkAddress \"a\"",
        ),
    ] {
        let common = [
            "galley",
            "--configPath",
            &config,
            "--server-address=127.0.0.1:0",
            "--monitoringPort=0",
            "--ctrlz_port=0",
        ];
        let all: Vec<&str> = common.into_iter().chain(arguments).collect();
        let ended = crate::place::run(&all);
        let stdout = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!(ended.status.code(), Some(78), "{stdout}");
        assert!(stdout.contains(message), "{stdout}");
    }
}

/// Frames as they came, until the other side closes.
fn frames(mut stream: std::net::TcpStream) -> Vec<(u8, u8)> {
    use std::io::Read as _;
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(cause) if cause.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(cause) => panic!("it is still there: {cause}"),
    }
    let mut all = Vec::new();
    let mut rest = &*bytes;
    while let [a, b, c, kind, flags, ..] = rest {
        all.push((*kind, *flags));
        let length = u32::from_be_bytes([0, *a, *b, *c]);
        rest = rest.get(9 + length as usize..).unwrap_or_default();
    }
    all
}

/// Case 42, what streams see of it.
#[tokio::test]
async fn at_a_term_it_is_not_ready_at_once_and_streams_are_told_within_the_drain() {
    use std::io::Write as _;
    const HEADERS: u8 = 1;
    const GOAWAY: u8 = 7;
    const END_STREAM: u8 = 1;
    let mut galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .arg("--drainDuration=5s")
        .start();
    let mut client = Client::open(&channel(&galley).await).await.unwrap();
    client.ask(SERVICES);
    let first = client.next().await;
    client.answer(&first, None);
    // With raw frames, to see the order of the shutdown.
    let mut raw = std::net::TcpStream::connect(("127.0.0.1", port(&galley))).unwrap();
    let mut bytes = h2::hello(1 << 20);
    let path = "/istio.mcp.v1alpha1.ResourceSource/EstablishResourceStream";
    bytes.extend(h2::frame(1, 4, 1, &h2::head(path, "application/grpc")));
    raw.write_all(&bytes).unwrap();
    until("two streams", || {
        (galley.configz()["peers"].as_array().unwrap().len() == 2).then_some(())
    });
    let reader = std::thread::spawn(move || frames(raw));
    let begun = std::time::Instant::now();
    galley.signal("TERM");
    until("not ready", || {
        (galley.get("/ready") == (503, "draining\n".to_owned())).then_some(())
    });
    // Until then it is served as before.
    client.ask("istio/networking/v1alpha3/gateways");
    assert_eq!(client.next().await.resources.len(), 0);
    assert_eq!(client.code().await, Code::Unavailable);
    assert!(begun.elapsed() >= std::time::Duration::from_secs(5));
    let frames = reader.join().unwrap();
    let goes = frames.iter().position(|(kind, _)| *kind == GOAWAY);
    let ends = |(kind, flags): &(u8, u8)| *kind == HEADERS && flags & END_STREAM != 0;
    let ends = frames.iter().position(ends);
    assert!(goes.is_some() && goes < ends, "{frames:?}");
    assert_eq!(galley.wait().code(), Some(0));
    let [live, ready] = ["live", "ready"].map(|name| galley.place.path(name).exists());
    assert!(!live && !ready);
}
