//! Clients that send half of a request, too much, or nothing: they cost other clients nothing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::builtin::{container, own, patched};
use crate::support::{self, Client, Injector, client_config, h2, pod, review, until};

fn tcp(injector: &Injector) -> TcpStream {
    let stream = TcpStream::connect(injector.address()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// Returns the time until the peer closes the connection.
fn closes(stream: &mut TcpStream, since: Instant) -> Duration {
    let mut room = [0; 1024];
    while matches!(stream.read(&mut room), Ok(1..)) {}
    since.elapsed()
}

/// Timers may be early by a tick and late by a busy core.
fn about(seconds: u64, took: Duration) -> bool {
    let early = Duration::from_millis(seconds * 1000 - 300);
    (early..Duration::from_secs(seconds + 4)).contains(&took)
}

#[test]
fn a_connection_without_a_handshake_is_closed() {
    let injector = Injector::new();
    let start = Instant::now();
    let mut plain = tcp(&injector);
    plain
        .write_all(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut half = tcp(&injector);
    half.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3])
        .unwrap();
    let mut silent = tcp(&injector);
    // Other clients do not wait for them.
    assert_eq!(injector.client().image(), "proxy:1");
    assert!(start.elapsed() < Duration::from_secs(4));
    assert!(
        closes(&mut plain, start) < Duration::from_secs(4),
        "it is no handshake at the first byte"
    );
    assert!(about(5, closes(&mut half, start)));
    assert!(about(5, closes(&mut silent, start)));
}

#[test]
fn a_head_that_does_not_come_is_not_waited_for() {
    let injector = Injector::new();
    let start = Instant::now();
    // Nothing after the handshake; a byte a second; half a head after a whole request.
    let mut nothing = injector.client();
    let mut slow = injector.client();
    let mut second = injector.client();
    let mut idle = injector.client();
    assert_eq!(idle.image(), "proxy:1");
    assert_eq!(second.image(), "proxy:1");
    second.send(b"POST /inject HT").unwrap();
    let slowly = std::thread::spawn(move || {
        for byte in b"GET /ready HTTP/1.1\r\nHost: localhost\r\n" {
            if slow.send(&[*byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_secs(1));
            if start.elapsed() > Duration::from_secs(8) {
                break;
            }
        }
        assert!(slow.is_closed());
        start.elapsed()
    });
    assert!(nothing.is_closed());
    assert!(about(5, start.elapsed()), "{:?}", start.elapsed());
    assert!(second.is_closed());
    assert!(about(5, start.elapsed()), "{:?}", start.elapsed());
    assert!(slowly.join().unwrap() < Duration::from_secs(10));
    // A kept connection is no late head.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(idle.image(), "proxy:1");
}

/// HTTP/2, after a whole request: a part of a head, a header block without its end; and a ping, which is neither.
#[test]
fn a_head_that_does_not_come_after_others_is_not_waited_for() {
    let injector = Injector::new();
    let body = review(&pod("web")).to_string();
    let asked = |more: &[u8]| {
        let config = client_config(&injector.trust(), &["h2"]);
        let mut client = Client::try_connect(injector.address(), config).unwrap();
        client.send(&h2::hello(1 << 20)).unwrap();
        client
            .send(&h2::request(1, "/inject", body.as_bytes()))
            .unwrap();
        assert_eq!(h2::status(&mut client), Some(200));
        client.send(more).unwrap();
        client
    };
    let block = h2::block("/inject");
    let head = h2::frame(1, 4, 3, &block);
    let start = Instant::now();
    let parts = [&head[..5], &head[..20], &h2::frame(1, 0, 3, &block)];
    let late = parts.map(asked);
    let mut pinged = asked(&h2::frame(6, 0, 0, b"01234567"));
    for mut client in late {
        let mut room = [0; 1024];
        while matches!(client.stream.read(&mut room), Ok(1..)) {}
        assert!(about(5, start.elapsed()), "{:?}", start.elapsed());
    }
    std::thread::sleep(Duration::from_secs(2));
    pinged
        .send(&h2::request(3, "/inject", body.as_bytes()))
        .unwrap();
    assert_eq!(h2::status(&mut pinged), Some(200));
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    // Reviews that may be under way at a time.
    const REVIEWS: u16 = 256;
    let injector = Injector::new();
    // Each has asked before: a connection that is made here is not one whose first head is late when the last one is made.
    let late = (0..REVIEWS).map(|_| {
        let mut client = injector.client();
        let alive = client.request("GET", "/healthz", &[], b"");
        assert_eq!(alive.unwrap().status, 200);
        client
    });
    let mut late: Vec<Client> = late.collect();
    let start = Instant::now();
    for client in &mut late {
        client
            .send(b"POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
            .unwrap();
    }
    // All permits are taken: for this request the first of them is evicted, and the others keep theirs.
    until("all have begun", || {
        injector.metric("sidecar_injection_requests_total") == Some(f64::from(REVIEWS))
    });
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(injector.get("/ready").status, 200);
    let asked = Instant::now();
    assert_eq!(injector.client().image(), "proxy:1");
    // The ten seconds of the others are not over.
    assert!(asked.elapsed() < Duration::from_secs(8));
    let ends: Vec<_> = late
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || {
                let status = client.answer().map(|answer| answer.status);
                assert!(client.is_closed());
                (start.elapsed(), status)
            })
        })
        .collect();
    let mut took: Vec<_> = ends.into_iter().map(|end| end.join().unwrap()).collect();
    took.sort_unstable();
    let (first, others) = took.split_first().unwrap();
    assert!(first.0 < Duration::from_secs(8), "{took:?}");
    assert_eq!(first.1, Some(429));
    for (took, status) in others {
        assert!(about(10, *took), "{took:?}");
        assert_eq!(*status, None, "closed without an answer");
    }
    assert_eq!(
        injector.metric("sidecar_injection_requests_total"),
        Some(f64::from(REVIEWS + 1))
    );
    assert_eq!(
        injector.metric("sidecar_injection_failure_total"),
        Some(f64::from(REVIEWS))
    );
}

#[test]
fn six_hundred_connections_push_out_each_other() {
    let injector = Injector::new();
    let mut established = injector.client();
    assert_eq!(established.image(), "proxy:1");
    let mut crowd = Vec::new();
    for _ in 0..600 {
        crowd.push(tcp(&injector));
    }
    // New ones are served at once, the kept one goes on.
    let start = Instant::now();
    for _ in 0..20 {
        let mut client =
            Client::try_connect(injector.address(), client_config(&injector.trust(), &[])).unwrap();
        assert_eq!(client.image(), "proxy:1");
    }
    assert_eq!(established.image(), "proxy:1");
    // Each would have waited for the five seconds of one of the crowd.
    assert!(
        start.elapsed() < Duration::from_secs(50),
        "{:?}",
        start.elapsed()
    );
    // The first of the crowd had to go before its five seconds were over, or was closed with them.
    let mut first = crowd.swap_remove(0);
    assert_eq!(first.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn the_longest_idle_gives_way() {
    let injector = Injector::new();
    let trust = injector.trust();
    let mut idle: Vec<Client> = Vec::new();
    for _ in 0..512 {
        let mut client = Client::connect(injector.address(), &trust);
        assert_eq!(
            client.request("GET", "/healthz", &[], b"").unwrap().status,
            200
        );
        idle.push(client);
    }
    let mut young = Client::connect(injector.address(), &trust);
    assert_eq!(young.image(), "proxy:1");
    assert!(idle[0].is_closed());
    assert_eq!(idle[511].image(), "proxy:1");
    assert_eq!(idle[1].image(), "proxy:1");
}

#[test]
fn rubbish_after_the_handshake() {
    let injector = Injector::new();
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n\r\n\r\n",
    ] {
        let mut client = injector.client();
        client.send(bytes).unwrap();
        while client.answer().is_some() {}
    }
    let mut client = Client::try_connect(
        injector.address(),
        client_config(&injector.trust(), &["h2"]),
    )
    .unwrap();
    client.send(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!({
        let mut room = [0; 64];
        while matches!(client.stream.read(&mut room), Ok(1..)) {}
        true
    });
    let mut client = injector.client();
    let deep = format!(
        "{{\"request\":{{\"uid\":\"u\",\"object\":{}",
        "[".repeat(1 << 20)
    );
    let answer = client
        .request("POST", "/inject", support::JSON, deep.as_bytes())
        .unwrap()
        .json();
    assert_eq!(answer["response"]["uid"], "u");
    assert_eq!(answer["response"]["allowed"], false);
    let mut huge = review(&pod("web"));
    huge["request"]["object"]["metadata"]["annotations"] = json!({"a": "x".repeat(4 << 20)});
    let answer = client.review(&huge).unwrap();
    assert_eq!(answer["response"]["allowed"], false);
    let message = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("metadata.annotations: "), "{message}");
    assert_eq!(client.image(), "proxy:1");
    assert_eq!(injector.metric("gudgeon_panics_total"), Some(0.0));
}

/// A pod's author against the built-in template: no shell, no line, no privilege; and beside each attack a harmless value.
#[test]
fn an_author_gets_no_rights() {
    let (injector, mut client) = own(&["--coreDump"]);
    let honest = pod("web");
    let mut ask = |change: &dyn Fn(&mut Value)| {
        let mut pod = honest.clone();
        pod["metadata"]["annotations"] = json!({"sidecar.istio.io/enableCoreDump": "true"});
        change(&mut pod);
        let answer = client.review(&review(&pod)).unwrap();
        let well = client.review(&review(&honest)).unwrap();
        assert_eq!(well["response"]["allowed"], true);
        (pod, answer)
    };
    let (sent, answer) = ask(&|_| {});
    let plain = patched(&sent, &answer);
    for config in [
        "configPath: /x; id",
        "configPath: \"/x\\n- name: evil\"",
        "proxyMetadata: {\"A\\nB\": x}",
    ] {
        let (_, answer) = ask(&|pod| {
            pod["metadata"]["annotations"]["proxy.istio.io/config"] = json!(config);
        });
        assert_eq!(answer["response"]["allowed"], false, "{config}");
        assert_eq!(answer["response"]["status"]["code"], 400, "{config}");
    }
    let (sent, answer) = ask(&|pod| {
        let names = ["istio-init", "enable-core-dump"];
        pod["spec"]["initContainers"] = names
            .map(|name| json!({"name": name, "image": "evil", "command": ["sh", "-c", "id"], "env": [{"name": "BASH_ENV", "value": "$(id)"}]}))
            .into_iter()
            .collect();
    });
    let made = patched(&sent, &answer);
    for name in ["istio-init", "enable-core-dump"] {
        let wanted = container(&plain, "initContainers", name);
        assert_eq!(container(&made, "initContainers", name), wanted);
    }
    let warnings = answer["response"]["warnings"].to_string();
    assert!(warnings.contains("is not used"), "{warnings}");
    assert_eq!(injector.metric("gudgeon_panics_total"), Some(0.0));
}

/// The most that was ever resident, in kB, but for the pages of the program's file.
fn most_resident(injector: &Injector) -> u64 {
    let path = format!("/proc/{}/status", injector.child.id());
    let status = std::fs::read_to_string(path).unwrap();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.unwrap().parse().unwrap()
    };
    kib("VmHWM:") - kib("RssFile:")
}

/// One review of many small values: 0.8 MB of them ended the injector at the limit of the shipped manifest, 64 MiB.
#[test]
fn one_review_fits_the_shipped_memory() {
    let (injector, mut client) = own(&[]);
    let pod = pod("web");
    for (list, one) in [
        ("volumes", r#"{"name":"v","emptyDir":{}}"#),
        ("volumes", r#"{"name":"a"}"#),
        ("tolerations", r#"{"a":{"a":{"a":{"a":{"a":{}}}}}}"#),
        ("tolerations", r#"{"key":"a"}"#),
    ] {
        let mut large = pod.clone();
        // As many as are read of one: 100,000 values.
        let count = 90_000 / (one.matches(':').count() + 1);
        let items: Vec<Value> = (0..count)
            .map(|_| serde_json::from_str(one).unwrap())
            .collect();
        large["spec"][list] = Value::Array(items);
        let body = review(&large).to_string();
        let answer = client
            .request("POST", "/inject", support::JSON, body.as_bytes())
            .unwrap();
        // The flood may be rejected with 429; an honest review is answered.
        assert!(matches!(answer.status, 200 | 429), "{}", answer.status);
        assert!(client.review(&review(&pod)).is_some());
    }
    let max = most_resident(&injector);
    assert!(max < 64 << 10, "{max} kB");
}
