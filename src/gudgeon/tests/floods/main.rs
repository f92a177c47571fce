//! Hundreds of clients that are slow on purpose, never read, or misuse HTTP/2: memory stays bounded, and others are served.
//! A program of its own, since no other test may run beside them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "a test may panic, starts programs and reads files"
)]
#![forbid(unsafe_code)]

#[path = "../discovery/client.rs"]
mod client;
mod large;
mod large_rules;
#[path = "../discovery/place.rs"]
mod place;
mod proxies;
#[path = "../galley/place.rs"]
mod rule_place;
mod rules;
mod strangers;
#[path = "../support/mod.rs"]
mod support;

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use support::beside::Beside;
use support::h2;
use support::program::{Program, SOON, metric_in, request, within};
use support::{Client, Injector, client_config, pod, review, until};

/// The memory that the shipped manifest allows it.
const LIMIT_MIB: u64 = 64;
/// The memory that the program under test may take: it is not optimized, and took 61 to 68 MiB on busy cores in the test that takes
/// the most, where the one that ships took 55 and 56.
const MAX_RESIDENT_MIB: u64 = LIMIT_MIB + LIMIT_MIB / 8;
/// A client that is not part of it gets its answer by then; the API server waits for five seconds.
const PROMPT: Duration = Duration::from_secs(4);

/// The deadline of a review over a kept connection, under any load.
const REVIEW: Duration = Duration::from_secs(1);
/// And health.
const HEALTH: Duration = Duration::from_millis(100);

/// A client with a kept connection, and one that polls the health.
fn beside(injector: &Injector) -> [(Beside, Duration); 2] {
    let mut established = injector.client();
    assert_eq!(established.image(), "proxy:1");
    let reviews = Beside::start("review", move || assert_eq!(established.image(), "proxy:1"));
    let monitoring = injector.monitoring;
    let health = Beside::start("health", move || {
        let answer = request(monitoring, "GET", "/healthz");
        assert_eq!(answer.map(|(status, _)| status), Some(200));
    });
    [(reviews, REVIEW), (health, HEALTH)]
}

/// Waits until the memory is at most a fifth above `before`.
fn memory_is_back(injector: &Injector, before: u64) {
    until("memory is back", || injector.anonymous() <= before * 6 / 5);
}

/// Asserts that SIGTERM ends the process.
fn ends(mut injector: Injector) {
    injector.signal("TERM");
    assert_eq!(injector.wait().code(), Some(0));
}

/// One flood at a time: their clients need the cores.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most that was ever resident, in MiB, but for the pages of the program's file: those can be dropped and read again,
/// and the program under test, which is not optimised, has several times as many as the one that ships.
fn most_resident(program: &Program) -> u64 {
    let path = format!("/proc/{}/status", program.child.id());
    let status = std::fs::read_to_string(path).unwrap();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.unwrap().parse().unwrap()
    };
    (kib("VmHWM:") - kib("RssFile:")) >> 10
}

fn served_promptly(injector: &Injector, established: &mut Client) {
    let start = Instant::now();
    assert_eq!(established.image(), "proxy:1");
    let took = start.elapsed();
    assert!(took < PROMPT, "kept: {took:?}");
    let start = Instant::now();
    assert_eq!(injector.client().image(), "proxy:1");
    let took = start.elapsed();
    assert!(took < PROMPT, "new: {took:?}");
}

fn within_its_limit(injector: &Injector) {
    // Rejected requests count, too. Thousands of reviews may be under way still, on cores that are busy: counts of one
    // moment.
    within(2 * SOON, "all requests are counted as something", || {
        let page = injector.get("/metrics").text();
        let count = |name: &str| {
            let name = format!("sidecar_injection_{name}_total");
            metric_in(&page, &name).unwrap()
        };
        let open = count("requests") - count("success") - count("skip") - count("failure");
        (open.abs() < 0.5).then_some(())
    });
    let max = most_resident(injector);
    assert!(max < MAX_RESIDENT_MIB, "{max} MiB");
    assert_eq!(injector.metric("gudgeon_panics_total"), Some(0.0));
}

#[test]
fn a_thousand_connections_delay_no_other_client() {
    let _alone = alone();
    let injector = Injector::new();
    let mut established = injector.client();
    assert_eq!(established.image(), "proxy:1");
    let mut crowd = Vec::new();
    for number in 0..1000 {
        let mut stream = TcpStream::connect(injector.address()).unwrap();
        if number % 2 == 0 {
            // The beginning of a handshake.
            let _gone = stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
        }
        crowd.push(stream);
    }
    served_promptly(&injector, &mut established);
    within_its_limit(&injector);
}

/// The head of a review whose body is announced.
fn head(length: usize) -> Vec<u8> {
    format!("POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

#[test]
fn slow_bodies_hold_up_no_other_client() {
    let _alone = alone();
    let injector = Injector::new();
    let mut established = injector.client();
    assert_eq!(established.image(), "proxy:1");
    let stop = Arc::new(AtomicBool::new(false));
    let config = client_config(&injector.trust(), &[]);
    // As many as fit beside the kept one: each has begun a request, and goes on with a byte at a time.
    let mut slow: Vec<Client> = (0..500)
        .map(|_| Client::try_connect(injector.address(), config.clone()).unwrap())
        .collect();
    for (number, client) in slow.iter_mut().enumerate() {
        // Some announce much, and send a good part of it.
        let large = number % 5 == 0;
        client
            .send(&head(if large { 6 << 20 } else { 60 << 10 }))
            .unwrap();
        let _gone = client.send(&vec![b' '; if large { 100 << 10 } else { 50 << 10 }]);
    }
    let trickle = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                slow.retain_mut(|client| client.send(b" ").is_ok());
                std::thread::sleep(Duration::from_millis(50));
            }
        })
    };
    for _ in 0..3 {
        served_promptly(&injector, &mut established);
    }
    let mut large = review(&pod("web"));
    large["request"]["object"]["spec"]["containers"][0]["args"] = json!(["x".repeat(1 << 20)]);
    let start = Instant::now();
    assert_eq!(
        established.review(&large).unwrap()["response"]["allowed"],
        true
    );
    assert!(start.elapsed() < PROMPT, "large: {:?}", start.elapsed());
    stop.store(true, Ordering::Relaxed);
    trickle.join().unwrap();
    within_its_limit(&injector);
}

#[test]
fn clients_that_never_read_delay_no_other() {
    let _alone = alone();
    let injector = Injector::new();
    let mut established = injector.client();
    assert_eq!(established.image(), "proxy:1");
    // Over HTTP/1.1: requests without end, no answer is taken.
    let mut pipelines: Vec<Client> = (0..8).map(|_| injector.client()).collect();
    let body = review(&pod("web")).to_string();
    let mut request = head(body.len());
    request.extend_from_slice(body.as_bytes());
    let some = request.repeat(100);
    for client in &mut pipelines {
        let wait = Some(Duration::from_millis(300));
        client.stream.sock.set_write_timeout(wait).unwrap();
        for _ in 0..100 {
            if client.send(&some).is_err() {
                break;
            }
        }
    }
    served_promptly(&injector, &mut established);
    // Over HTTP/2: windows for one byte, so each answer stays where it is.
    let mut uid = review(&pod("web"));
    uid["request"]["uid"] = json!("u".repeat(900));
    let body = uid.to_string();
    let config = client_config(&injector.trust(), &["h2"]);
    let mut closed: Vec<Client> = Vec::new();
    for _ in 0..200 {
        let mut client = Client::try_connect(injector.address(), config.clone()).unwrap();
        let mut bytes = h2::hello(1);
        for stream in 0..64_u32 {
            bytes.extend(h2::request(2 * stream + 1, "/inject", body.as_bytes()));
        }
        // The connection may be closed already.
        let wait = Some(Duration::from_millis(100));
        client.stream.sock.set_write_timeout(wait).unwrap();
        let _sent = client.send(&bytes);
        closed.push(client);
    }
    served_promptly(&injector, &mut established);
    within_its_limit(&injector);
    drop(closed);
    drop(pipelines);
}

#[test]
fn large_reviews_of_small_values() {
    let _alone = alone();
    let injector = Injector::new();
    let mut established = injector.client();
    for (begin, item, end) in [
        ("[1", ",1", "]"),
        ("[[]", ",[]", "]"),
        ("{\"a\":1", ",\"\":1", "}"),
        ("[1", ",\n1e1", "]"),
    ] {
        let object = format!(
            "{begin}{}{end}",
            item.repeat(((6 << 20) - 1000) / item.len())
        );
        let text = format!(
            "{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{{\"uid\":\"u\",\"object\":\
             {{\"spec\":{{\"x\":{object}}}}}}}}}"
        );
        let answer = established
            .request("POST", "/inject", support::JSON, text.as_bytes())
            .unwrap()
            .json();
        assert_eq!(answer["response"]["uid"], "u");
        assert_eq!(answer["response"]["allowed"], false);
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(message.contains("more than 100000 values"), "{message}");
    }
    // A review within the limits is decoded, and answered.
    let map = format!("{{\"a\":1{}}}", ",\"\":1".repeat(10_000));
    let text = format!(
        "{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{{\"uid\":\"u\",\"object\":\
         {{\"spec\":{{\"x\":{map},\"y\":[[]{}]}}}}}}}}",
        ",[]".repeat(5_000)
    );
    let answer = established
        .request("POST", "/inject", support::JSON, text.as_bytes())
        .unwrap()
        .json();
    assert_eq!(answer["response"]["allowed"], true);
    let mut large = review(&pod("web"));
    large["request"]["object"]["spec"]["containers"][0]["args"] = json!(["\n".repeat(3_000_000)]);
    assert_eq!(
        established.review(&large).unwrap()["response"]["allowed"],
        true
    );
    served_promptly(&injector, &mut established);
    within_its_limit(&injector);
}

#[test]
fn streams_that_are_reset_at_once() {
    let _alone = alone();
    let injector = Injector::new();
    let mut established = injector.client();
    let config = client_config(&injector.trust(), &["h2"]);
    let body = review(&pod("web")).to_string();
    let mut cut = 0;
    for _ in 0..4 {
        let mut client = Client::try_connect(injector.address(), config.clone()).unwrap();
        let mut sent = client.send(&h2::hello(65_535));
        for round in 0..200_u32 {
            let mut bytes = Vec::new();
            for stream in 0..100 {
                let id = 2 * (round * 100 + stream) + 1;
                bytes.extend(h2::request(id, "/inject", body.as_bytes()));
                bytes.extend(h2::reset(id));
            }
            sent = sent.and_then(|()| client.send(&bytes));
        }
        // GOAWAY has "enhance your calm" (11), or the connection is gone already.
        cut += usize::from(sent.is_err() || h2::goaway(&mut client) == Some(11));
    }
    assert_eq!(cut, 4);
    served_promptly(&injector, &mut established);
    within_its_limit(&injector);
}

#[test]
fn a_head_without_end() {
    let _alone = alone();
    let injector = Injector::new();
    let mut established = injector.client();
    let config = client_config(&injector.trust(), &["h2"]);
    // One header after the other; and empty frames.
    for fragment in [&b"\x00\x01a\x01b"[..], b""] {
        let mut client = Client::try_connect(injector.address(), config.clone()).unwrap();
        client.send(&h2::hello(65_535)).unwrap();
        client
            .send(&h2::frame(1, 0, 1, &h2::block("/inject")))
            .unwrap();
        let payload = fragment.repeat(1000);
        let frames = h2::frame(9, 0, 1, &payload).repeat(100);
        let start = Instant::now();
        while client.send(&frames).is_ok() {
            assert!(start.elapsed() < PROMPT, "nobody stops it");
        }
    }
    // A whole head that is too long has its answer.
    let mut client = Client::try_connect(injector.address(), config).unwrap();
    let mut block = h2::block("/ready");
    for _ in 0..20 {
        block.extend(b"\x00\x01a\x7f\x81\x07");
        block.extend([b'x'; 1024]);
    }
    let mut bytes = h2::hello(65_535);
    let (first, rest) = block.split_at(16_000);
    bytes.extend(h2::frame(1, 1, 1, first));
    bytes.extend(h2::frame(9, 4, 1, rest));
    client.send(&bytes).unwrap();
    assert_eq!(h2::status(&mut client), Some(431));
    served_promptly(&injector, &mut established);
    within_its_limit(&injector);
}
