//! Streams and connections over time: pushes with a deadline, clients that have vanished, old connections, and turns.

use std::io::Read as _;
use std::time::{Duration, Instant};

use crate::client::*;
use crate::place::{Place, SOON, documents};
use crate::streams::Deaf;

fn b(address: &str) -> String {
    service("b", &[address])
}

fn place() -> Place {
    Place::new().with("config/b.yaml", &b("10.0.0.1"))
}

/// Case 3, the second half: changes without end. An endpoint that changes beside them waits a second at most.
#[tokio::test]
async fn changes_without_end_are_pushed_after_ten_seconds_and_endpoints_after_one() {
    // A pause of this program is not to be the quiet that ends a wait.
    let discovery = place().env("PILOT_DEBOUNCE_AFTER", "2s").start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.settle(&[B], &["8080"]).await;
    let begun = Instant::now();
    let (mut turn, mut responses) = (0, Vec::new());
    while responses.len() < 2 {
        turn += 1;
        let another = service(&format!("c{turn}"), &["10.0.0.9"]);
        discovery.place.write("config/c.yaml", &another);
        if turn == 20 {
            discovery.place.write("config/b.yaml", &b("10.0.0.2"));
        }
        if let Some(response) = stream.next(Duration::from_millis(50)).await {
            let response = response.unwrap();
            if response.type_url == EDS {
                stream.ack(&response, &[B]);
            }
            responses.push((response.type_url, begun.elapsed()));
        }
        assert!(begun.elapsed() < SOON, "{responses:?} after {turn} changes");
    }
    let [(first, endpoints), (second, services)] = &responses[..] else {
        panic!("{responses:?}")
    };
    assert_eq!((&**first, &**second), (EDS, CDS));
    // Endpoints do not wait for the ten seconds of the others.
    let (min, max) = (Duration::from_secs(1), Duration::from_secs(9));
    assert!((min..max).contains(endpoints), "{responses:?}");
    assert!(*services >= max, "{responses:?}");
}

#[tokio::test]
async fn endpoints_without_end_are_pushed_after_a_second() {
    let discovery = place().env("PILOT_DEBOUNCE_AFTER", "2s").start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.settle(&[B], &["8080"]).await;
    let begun = Instant::now();
    let mut turn = 0;
    let response = loop {
        turn += 1;
        let address = format!("10.0.{}.{}", turn / 250 + 1, turn % 250);
        discovery.place.write("config/b.yaml", &b(&address));
        if let Some(response) = stream.next(Duration::from_millis(50)).await {
            break response.unwrap();
        }
        assert!(begun.elapsed() < SOON, "nothing after {turn} changes");
    };
    assert_eq!(response.type_url, EDS);
    let took = begun.elapsed();
    let (min, max) = (Duration::from_millis(900), Duration::from_secs(9));
    assert!((min..max).contains(&took), "{took:?}");
}

/// Reads until the other side has closed; what came. A client that only reads answers no ping.
fn rest(deaf: &Deaf) -> Vec<u8> {
    let mut stream = &deaf.stream;
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("it is still there: {error}"),
    }
    all
}

/// Returns true if a frame of this kind is among them.
fn has(mut frames: &[u8], kind: u8) -> bool {
    while let [a, b, c, found, ..] = frames {
        if *found == kind {
            return true;
        }
        let length = u32::from_be_bytes([0, *a, *b, *c]);
        frames = frames.get(9 + length as usize..).unwrap_or_default();
    }
    false
}

const PING: u8 = 6;
const GOAWAY: u8 = 7;

#[tokio::test]
async fn a_client_that_answers_no_ping_is_closed() {
    let discovery = place()
        .arg("--keepaliveInterval=1s")
        .arg("--keepaliveTimeout=1s")
        .start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.settle(&[B], &["8080"]).await;
    let begun = Instant::now();
    let deaf = Deaf::open(discovery.grpc);
    let received = tokio::task::spawn_blocking(move || rest(&deaf)).await;
    let took = begun.elapsed();
    assert!(has(&received.unwrap(), PING));
    assert!(took > Duration::from_millis(1900), "{took:?}");
    soon("one stream", || discovery.streams() == 1).await;
    discovery.place.write("config/b.yaml", &b("10.0.0.2"));
    assert_eq!(endpoints(&stream.hear(EDS).await, B), ["10.0.0.2:80"]);
}

#[tokio::test]
async fn an_old_connection_is_sent_goaway_and_ends_ten_seconds_later() {
    let discovery = place().arg("--keepaliveMaxServerConnectionAge=1s").start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.settle(&[B], &["8080"]).await;
    let begun = Instant::now();
    let deaf = Deaf::open(discovery.grpc);
    let received = tokio::task::spawn_blocking(move || (rest(&deaf), begun.elapsed()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    // The connection has got a GOAWAY, and its stream goes on.
    discovery.place.write("config/b.yaml", &b("10.0.0.2"));
    assert_eq!(endpoints(&stream.hear(EDS).await, B), ["10.0.0.2:80"]);
    let (received, took) = received.await.unwrap();
    assert!(has(&received, GOAWAY));
    assert!(took > Duration::from_millis(10_500), "{took:?}");
    stream.end().await;
}

/// One turn at a time, and three clients that do not read their responses.
#[tokio::test]
async fn a_client_that_does_not_read_keeps_no_turn() {
    let many: Vec<String> = (0..300)
        .map(|number| service(&format!("s{number}"), &["10.0.0.1"]))
        .collect();
    let discovery = place()
        .with("config/many.yaml", &documents(&many))
        .env("PILOT_PUSH_THROTTLE", "1")
        .start();
    let mut readers = Vec::new();
    for _ in 0..3 {
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.settle(&[B], &["8080"]).await;
        readers.push(stream);
    }
    let deaf: Vec<_> = (0..3).map(|_| Deaf::open(discovery.grpc)).collect();
    soon("all streams", || discovery.streams() == 6).await;
    for turn in 2..5 {
        let begun = Instant::now();
        let address = format!("10.0.0.{turn}");
        discovery.place.write("config/b.yaml", &b(&address));
        for stream in &mut readers {
            let eds = stream.hear(EDS).await;
            assert_eq!(endpoints(&eds, B), [format!("{address}:80")]);
            stream.ack(&eds, &[B]);
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    drop(deaf);
}

/// The words of a NACK are untrusted: they are shown unchanged, and add no line anywhere.
#[tokio::test]
async fn a_refusals_words_forge_nothing() {
    let message = "no \"such\" \\ filter\nforged{x=\"y\"} 1\n2026-11-22T00:00:00Z\tinfo\tforged";
    let discovery = place().start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask(LDS, &[]);
    let lds = stream.hear(LDS).await;
    stream.nack(&lds, "", message);
    soon("the refusal", || discovery.logged("refuses lds") == 1).await;
    let rows = discovery.json("/debug/syncz");
    assert_eq!(rows[0]["errors"]["listener"]["message"], message);
    let one_line = "no \"such\" \\ filter forged{x=\"y\"} 1 2026-11-22T00:00:00Z";
    assert_eq!(discovery.logged(one_line), 1);
    let log = discovery.log();
    let (_, metrics) = discovery.get("/metrics");
    let forged = |line: &str| line.starts_with("forged") || line.ends_with("\tforged");
    let mut lines = log.iter().map(String::as_str).chain(metrics.lines());
    assert!(!lines.any(forged), "{log:?}\n{metrics}");
    let label = "err=\"no \\\"such\\\" \\\\ filter\\nforged{x=\\\"y\\\"} 1";
    assert!(metrics.contains(label), "{metrics}");
    let (_, page) = discovery.get("/debug");
    assert!(
        page.contains("no &quot;such&quot;") || page.contains("no &#34;such&#34;"),
        "{page}"
    );
}
