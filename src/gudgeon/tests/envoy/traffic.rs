//! DestinationRules beyond requests: connections in tunnels and for a time, and endpoints by what they have in common with a client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::bare::{host, resolved};
use crate::place::{Address, Discovery, Place, SOON, documents, entry, until};
use crate::proxy::{Proxy, Setup, in_sync};
use crate::rules::rule;

/// Starts a proxy of connections that answers each CONNECT and POST, and then says its name and what it hears. Its heads come out
/// at the other end.
fn tunnel(ip: Ipv4Addr) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heads, seen) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let heads = heads.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if !matches!(reader.read_line(&mut head), Ok(1..)) {
                        return;
                    }
                }
                heads.send(head).unwrap();
                let _sent = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                let mut line = String::new();
                if matches!(reader.read_line(&mut line), Ok(1..)) {
                    let _sent = stream.write_all(format!("tunnel {line}").as_bytes());
                }
            });
        }
    });
    (port, seen)
}

/// A line by a connection, and the line that comes back.
fn said(mut stream: &TcpStream, line: &str) -> Option<String> {
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(format!("{line}\n").as_bytes()).ok()?;
    let mut back = String::new();
    BufReader::new(stream).read_line(&mut back).ok()?;
    (!back.is_empty()).then_some(back)
}

fn is_accepted(discovery: &Discovery) {
    let row = in_sync(discovery, "client-1");
    assert_eq!(row["errors"], serde_json::json!({}));
}

#[test]
fn connections_are_led_through_tunnels_and_end_when_nothing_is_said() {
    let ip = Address::new();
    let at = ip.ip.to_string();
    let (proxied, heads) = tunnel(ip.ip);
    let (idle, plain) = (Backend::new(ip.ip, "idle"), Backend::new(ip.ip, "plain"));
    let of = |name: &str, port, backend: u16| entry(&host(name), port, "TCP", &[(&at, backend)]);
    let all = [
        of("tunnel", 18130, proxied),
        of("idle", 18131, idle.port),
        of("plain", 18132, plain.port),
    ];
    let policy = |name: &str, policy: &str| {
        let host = host(name);
        rule(
            "DestinationRule",
            name,
            &format!("host: {host}\ntrafficPolicy: {{{policy}}}"),
        )
    };
    let rules = [
        policy(
            "tunnel",
            "tunnel: {protocol: CONNECT, targetHost: far.example, targetPort: 443}",
        ),
        policy(
            "idle",
            "connectionPool: {tcp: {idleTimeout: 1s}}, loadBalancer: {consistentHash: {useSourceIp: true}}",
        ),
        policy(
            "plain",
            "connectionPool: {tcp: {maxConnectionDuration: 1s}}",
        ),
    ];
    let discovery = Place::new()
        .with("config/all.yaml", &documents(&all))
        .with("config/rules.yaml", &documents(&rules))
        .start();
    let proxy = Proxy::start(discovery.grpc);
    let back = until("the tunnel", || {
        said(&proxy.connect(proxy.ip, 18130).ok()?, "hello")
    });
    assert_eq!(back, "tunnel hello\n");
    let head = heads.recv_timeout(SOON).unwrap();
    assert!(
        head.starts_with("CONNECT far.example:443 HTTP/1.1\r\n"),
        "{head}"
    );

    for (port, name) in [(18131, "idle"), (18132, "plain")] {
        let mut stream = proxy.connect(proxy.ip, port).unwrap();
        assert_eq!(said(&stream, "hello"), Some(format!("{name} hello\n")));
        let begun = Instant::now();
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "{name}");
        let took = begun.elapsed();
        assert!(
            took > Duration::from_millis(300) && took < SOON,
            "{name}: {took:?}"
        );
    }
    is_accepted(&discovery);

    let post = policy(
        "tunnel",
        "tunnel: {protocol: POST, targetHost: far.example, targetPort: 443}",
    );
    discovery.place.write("config/rules.yaml", &post);
    until("the other tunnel", || {
        said(&proxy.connect(proxy.ip, 18130).ok()?, "hello")?;
        let head = heads.recv_timeout(SOON).ok()?;
        head.starts_with("POST ").then_some(())
    });
    is_accepted(&discovery);
}

/// An application that answers with this status.
fn answering(ip: Ipv4Addr, status: &'static str) -> u16 {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let _head = stream.read(&mut [0; 4096]);
                let _sent = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                );
            });
        }
    });
    port
}

#[test]
fn endpoints_are_preferred_by_labels_and_left_out_by_statuses() {
    let ip = Address::new();
    let at = ip.ip;
    let (own, other) = (Backend::new(at, "own"), Backend::new(at, "other"));
    let busy = answering(at, "429 Too Many Requests");
    let of = |name: &str, endpoints: &[(u16, &str, &str)]| {
        let endpoints = endpoints.iter().map(|(port, tier, locality)| {
            format!("{{address: {at}, ports: {{main: {port}}}, labels: {{tier: {tier}}}, locality: {locality}}}")
        });
        let endpoints: Vec<_> = endpoints.collect();
        resolved(
            name,
            18140,
            "HTTP",
            "STATIC",
            &format!("[{}]", endpoints.join(", ")),
        )
    };
    let pair = [(own.port, "gold", "r2/z2"), (other.port, "tin", "r1/z1")];
    let all = [
        of("labels", &pair),
        of("zones", &pair),
        of("codes", &[(own.port, "a", "r1/z1"), (busy, "a", "r1/z1")]),
    ];
    let policy = |name: &str, policy: &str| {
        let host = host(name);
        rule(
            "DestinationRule",
            name,
            &format!("host: {host}\ntrafficPolicy: {{{policy}}}"),
        )
    };
    let detects = "outlierDetection: {consecutive5xxErrors: 1, interval: 100ms, baseEjectionTime: 60s, maxEjectionPercent: 100";
    let rules = [
        policy(
            "labels",
            "loadBalancer: {localityLbSetting: {failoverPriority: [tier]}}",
        ),
        policy(
            "zones",
            "loadBalancer: {zoneAwareLbSetting: {minClusterSize: 1}}",
        ),
        policy(
            "codes",
            &format!("{detects}, outlierDetectionHttpErrorCodes: [418, 429]}}"),
        ),
    ];
    let discovery = Place::new()
        .with("config/all.yaml", &documents(&all))
        .with("config/rules.yaml", &documents(&rules))
        .start();
    let proxy = Setup::new("client-1", discovery.grpc)
        .label("istio-locality", "r1.z1")
        .label("tier", "gold")
        .start();
    is_accepted(&discovery);
    let get = |name: &str| proxy.get(&host(name), 18140).unwrap();
    for _ in 0..8 {
        assert_eq!(get("labels").1, "own", "though it is far");
        assert_eq!(get("zones").1, "other", "the own region");
    }
    until("the busy one is out", || {
        let all = (0..6).all(|_| get("codes").0 == 200);
        all.then_some(())
    });
}
