//! DestinationRules beyond requests: connections in tunnels and for a time, and endpoints by what they have in common with a client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::bare::{host, resolved};
use crate::gateways::{client, gateway, get, own_certificate, secret, secured, server};
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
fn echo(mut stream: &TcpStream, line: &str) -> Option<String> {
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
fn connections_pass_through_tunnels_and_end_when_idle() {
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
        echo(&proxy.connect(proxy.ip, 18130).ok()?, "hello")
    });
    assert_eq!(back, "tunnel hello\n");
    let head = heads.recv_timeout(SOON).unwrap();
    assert!(
        head.starts_with("CONNECT far.example:443 HTTP/1.1\r\n"),
        "{head}"
    );

    for (port, name) in [(18131, "idle"), (18132, "plain")] {
        let begun = Instant::now();
        let mut stream = proxy.connect(proxy.ip, port).unwrap();
        assert_eq!(echo(&stream, "hello"), Some(format!("{name} hello\n")));
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
        echo(&proxy.connect(proxy.ip, 18130).ok()?, "hello")?;
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

/// TLS of clients from outside, limits of what goes on, and an end of what is idle.
#[test]
fn a_sidecar_ends_tls_and_limits_what_comes_in() {
    let (web, ip) = (Address::new(), Address::new());
    let (application, line) = (Backend::new(ip.ip, "web"), Backend::new(ip.ip, "line"));
    let place = Place::new();
    let pair = own_certificate("web.example");
    let user = own_certificate("user.example");
    for (name, text) in [
        ("tls.crt", &pair.0),
        ("tls.key", &pair.1),
        ("ca.crt", &user.0),
    ] {
        place.write(name, text);
    }
    let path = |name: &str| place.path(name).display().to_string();
    let files = format!(
        "serverCertificate: {}, privateKey: {}",
        path("tls.crt"),
        path("tls.key")
    );
    let item = |number: u16, protocol: &str, to: u16, more: &str| {
        let port = format!("{{number: {number}, name: p{number}, protocol: {protocol}}}");
        format!("{{port: {port}, defaultEndpoint: '{}:{to}'{more}}}", ip.ip)
    };
    let items = [
        item(
            9443,
            "HTTPS",
            application.port,
            &format!(", tls: {{mode: SIMPLE, {files}}}"),
        ),
        item(
            9444,
            "HTTPS",
            application.port,
            &format!(
                ", tls: {{mode: MUTUAL, {files}, caCertificates: {}}}",
                path("ca.crt")
            ),
        ),
        item(
            9445,
            "TLS",
            line.port,
            &format!(", tls: {{mode: SIMPLE, {files}}}"),
        ),
        item(9446, "TCP", line.port, ""),
        item(
            9447,
            "TCP",
            line.port,
            ", connectionPool: {tcp: {maxConnections: 1, idleTimeout: 60s}}",
        ),
    ];
    let sidecar = rule(
        "Sidecar",
        "web",
        &format!(
            "inboundConnectionPool: {{tcp: {{idleTimeout: 1s}}}}\ningress: [{}]",
            items.join(", ")
        ),
    );
    let discovery = place.with("config/all.yaml", &sidecar).start();
    let web = Setup::at("web", web, discovery.grpc).start();
    let row = in_sync(&discovery, "web");
    assert_eq!(row["errors"], serde_json::json!({}));
    let answer = Some((200, "web".to_owned()));
    let anybody = client(&[&pair.0], None, &[]);
    let known = client(&[&pair.0], Some((&user.0, &user.1)), &[]);
    until("TLS", || {
        (get(&anybody, (web.ip, 9443), "web.example") == answer).then_some(())
    });
    assert_eq!(get(&anybody, (web.ip, 9444), "web.example"), None);
    assert_eq!(get(&known, (web.ip, 9444), "web.example"), answer);
    assert_eq!(web.get("web.example", 9443), None, "nothing plain comes in");
    let mut stream = secured(&anybody, (web.ip, 9445), "web.example");
    stream.write_all(b"one\n").unwrap();
    let mut text = [0; 9];
    stream.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"line one\n");

    let begun = Instant::now();
    let mut idle = web.connect(web.ip, 9446).unwrap();
    assert_eq!(echo(&idle, "two").as_deref(), Some("line two\n"));
    assert!(matches!(idle.read(&mut [0]), Ok(0) | Err(_)));
    assert!(begun.elapsed() > Duration::from_millis(300));
    // One connection, and no other beside it.
    let first = web.connect(web.ip, 9447).unwrap();
    assert_eq!(echo(&first, "three").as_deref(), Some("line three\n"));
    let second = web.connect(web.ip, 9447).unwrap();
    assert_eq!(echo(&second, "four"), None);
    assert_eq!(echo(&first, "five").as_deref(), Some("line five\n"));
}

/// A router and a sidecar begin TLS to a server that wants to know them, each with what a rule names for it.
#[test]
fn clients_present_certificates_that_rules_name() {
    let (edge, ip) = (Address::new(), Address::new());
    let web = Backend::new(ip.ip, "web");
    let server_pair = own_certificate("b.example");
    let (user, stranger) = (
        own_certificate("user.example"),
        own_certificate("user.example"),
    );
    let tls = server(
        edge.ip,
        18210,
        "HTTPS",
        "[b.example]",
        "{mode: MUTUAL, credentialName: b}",
    );
    let plain = server(edge.ip, 18211, "HTTP", "['*']", "");
    let at_edge = edge.ip.to_string();
    let far = |name: &str| entry(&host(name), 18212, "HTTP", &[(&at_edge, 18210)]);
    let policy = |name: &str, more: &str| {
        let host = host(name);
        // Each request begins TLS anew.
        let once = "connectionPool: {http: {maxRequestsPerConnection: 1}}";
        let tls =
            "{mode: MUTUAL, credentialName: user, sni: b.example, subjectAltNames: [b.example]}";
        rule(
            "DestinationRule",
            name,
            &format!("host: {host}\ntrafficPolicy: {{tls: {tls}, {once}}}\n{more}"),
        )
    };
    let to = |port: u16, host: &str, to: &str| {
        let spec = format!(
            "hosts: ['{host}']\ngateways: [edge]\nhttp: [{{match: [{{port: {port}}}], rewrite: {{authority: b.example}}, route: [{{destination: {{host: {to}.demo.svc.cluster.local}}}}]}}]"
        );
        rule("VirtualService", &format!("to-{to}"), &spec)
    };
    let all = [
        entry(&host("web"), 80, "HTTP", &[(&ip.ip.to_string(), web.port)]),
        far("by-router"),
        far("by-sidecar"),
        gateway("edge", &[tls, plain]),
        to(18210, "b.example", "web"),
        to(18211, "a.example", "by-router"),
        rule(
            "VirtualService",
            "authority",
            "hosts: [by-sidecar.demo.svc.cluster.local]\nhttp: [{rewrite: {authority: b.example}, route: [{destination: {host: by-sidecar.demo.svc.cluster.local}}]}]",
        ),
        policy("by-router", ""),
        policy(
            "by-sidecar",
            "workloadSelector: {matchLabels: {app: client}}",
        ),
    ];
    // The server knows the first user alone.
    let secrets = |own: &(String, String)| {
        let (chain, key) = &server_pair;
        documents(&[
            secret(
                "b",
                &[("tls.crt", chain), ("tls.key", key), ("ca.crt", &user.0)],
            ),
            secret(
                "user",
                &[("tls.crt", &own.0), ("tls.key", &own.1), ("ca.crt", chain)],
            ),
        ])
    };
    let discovery = Place::new()
        .with("config/all.yaml", &documents(&all))
        .with("config/secrets.yaml", &secrets(&user))
        .start();
    let router = Setup::at("edge-1", edge, discovery.grpc)
        .role("router")
        .label("istio", "edge")
        .start();
    let sidecar = Setup::new("client-1", discovery.grpc)
        .label("app", "client")
        .start();
    let asked = || {
        [
            router.get_at(router.ip, "a.example", 18211),
            sidecar.get(&host("by-sidecar"), 18212),
        ]
    };
    let answer = Some((200, "web".to_owned()));
    until("both are known", || {
        (asked() == [answer.clone(), answer.clone()]).then_some(())
    });
    is_accepted(&discovery);
    let (_, head) = web.seen.last();
    assert!(head.contains("DNS=user.example"), "{head}");
    // Another certificate, by a change of the secret alone, is nobody's that the server knows; the first is known again.
    let clusters =
        || [&router, &sidecar].map(|proxy| proxy.stat("cluster_manager.cds.update_success"));
    let before = clusters();
    discovery
        .place
        .write("config/secrets.yaml", &secrets(&stranger));
    until("neither is known", || {
        let refused = |answer: &Option<(u16, String)>| {
            answer.as_ref().is_some_and(|(status, _)| *status == 503)
        };
        asked().iter().all(refused).then_some(())
    });
    discovery
        .place
        .write("config/secrets.yaml", &secrets(&user));
    until("both are known again", || {
        (asked() == [answer.clone(), answer.clone()]).then_some(())
    });
    assert_eq!(clusters(), before, "a rotation is no change of clusters");
}

/// A server whose certificate no root of the system has signed. Envoy checks nothing where it is told of `system_root_certs` alone. A
/// file that a proxy does not have closes the cluster that wants it, and no other, and keeps no proxy from its start.
#[test]
fn a_server_that_no_root_knows_is_not_called() {
    let (edge, ip) = (Address::new(), Address::new());
    let web = Backend::new(ip.ip, "web");
    let pair = own_certificate("b.example");
    let tls = server(
        edge.ip,
        18215,
        "HTTPS",
        "[b.example]",
        "{mode: SIMPLE, credentialName: b}",
    );
    let at_edge = edge.ip.to_string();
    let names = ["unsaid", "system", "mutual", "known"];
    let mut all = vec![
        entry(&host("web"), 80, "HTTP", &[(&ip.ip.to_string(), web.port)]),
        gateway("edge", &[tls]),
        rule(
            "VirtualService",
            "to-web",
            "hosts: [b.example]\ngateways: [edge]\nhttp: [{route: [{destination: {host: web.demo.svc.cluster.local}}]}]",
        ),
        secret("b", &[("tls.crt", &pair.0), ("tls.key", &pair.1)]),
    ];
    let of = |name: &str| entry(&host(name), 18216, "HTTP", &[(&at_edge, 18215)]);
    let rewrites = |name: &str| {
        let host = host(name);
        let spec = format!(
            "hosts: [{host}]\nhttp: [{{rewrite: {{authority: b.example}}, route: [{{destination: {{host: {host}}}}}]}}]"
        );
        rule("VirtualService", name, &spec)
    };
    all.extend(names.map(of));
    all.extend(names.map(rewrites));
    let place = Place::new();
    let path = |name: &str| place.path(name).display().to_string();
    for (name, text) in [("own.crt", &pair.0), ("own.key", &pair.1)] {
        place.write(name, text);
    }
    let own = format!(
        "clientCertificate: {}, privateKey: {}",
        path("own.crt"),
        path("own.key")
    );
    let known = format!("caCertificates: {}", path("own.crt"));
    let policy = |name: &str, tls: &str| {
        let spec = format!(
            "host: {}\ntrafficPolicy: {{tls: {{{tls}, sni: b.example}}}}",
            host(name)
        );
        rule("DestinationRule", name, &spec)
    };
    all.extend([
        policy("unsaid", "mode: SIMPLE"),
        policy("system", "mode: SIMPLE, caCertificates: system"),
        policy("mutual", &format!("mode: MUTUAL, {own}")),
        policy("known", &format!("mode: SIMPLE, {known}")),
    ]);
    let discovery = place.with("config/all.yaml", &documents(&all)).start();
    let router = Setup::at("edge-1", edge, discovery.grpc)
        .role("router")
        .label("istio", "edge")
        .start();
    let sidecar = Setup::new("client-1", discovery.grpc).start();
    let get = |name: &str| sidecar.get(&host(name), 18216);
    until("the one that is known", || {
        (get("known") == Some((200, "web".to_owned()))).then_some(())
    });
    for name in ["unsaid", "system", "mutual"] {
        assert_eq!(get(name).map(|(status, _)| status), Some(503), "{name}");
    }
    // A file that is not there is told at its rule.
    let missing = "mode: SIMPLE, caCertificates: /nowhere/roots.crt";
    let later = [
        of("missing"),
        rewrites("missing"),
        policy("missing", missing),
        of("beside"),
        rewrites("beside"),
        policy("beside", &format!("mode: SIMPLE, {known}")),
        of("unlisted"),
        policy(
            "unlisted",
            &format!("mode: SIMPLE, {known}, caCrl: /nowhere/crl"),
        ),
        of("unpaired"),
        policy(
            "unpaired",
            "mode: MUTUAL, clientCertificate: /nowhere/crt, privateKey: /nowhere/key",
        ),
    ];
    discovery
        .place
        .write("config/later.yaml", &documents(&later));
    let messages_of = |name: &str| -> String {
        let all = discovery.json("/debug/configz?kind=DestinationRule");
        let mut all = all.as_array().unwrap().iter();
        let one = all.find(|one| one["metadata"]["name"] == name);
        one.map_or_else(String::new, |one| one["status"]["messages"].to_string())
    };
    until("the refusal is told", || {
        messages_of("missing")
            .contains("/nowhere/roots.crt")
            .then_some(())
    });
    until("the one beside it", || {
        (get("beside") == Some((200, "web".to_owned()))).then_some(())
    });
    until("no cluster", || {
        (get("missing").map(|(status, _)| status) == Some(503)).then_some(())
    });
    assert!(
        !messages_of("unsaid").contains("/nowhere"),
        "{}",
        messages_of("unsaid")
    );
    for name in ["unlisted", "unpaired"] {
        until(name, || {
            messages_of(name).contains("/nowhere/").then_some(())
        });
        assert_eq!(get(name).map(|(status, _)| status), Some(503), "{name}");
    }
    assert_eq!(sidecar.stat("cluster_manager.cds.update_rejected"), 0);
    // What a tenant's rule names and a proxy does not have keeps no proxy from its start.
    let later = Setup::new("client-2", discovery.grpc).start();
    until("a proxy that starts later", || {
        (later.get(&host("beside"), 18216) == Some((200, "web".to_owned()))).then_some(())
    });
    assert_eq!(
        later.get(&host("missing"), 18216).map(|(status, _)| status),
        Some(503)
    );
    drop(router);
}

/// Requests that a route leads from a port of HTTP to one of TLS, as Istio's samples do it: the server chooses its certificate by
/// the name that the connection says, and has to prove that name unless the rule lists another.
#[test]
fn tls_says_the_host_of_requests_and_has_it_proved() {
    let (edge, ip) = (Address::new(), Address::new());
    let web = Backend::new(ip.ip, "web");
    let pair = own_certificate("b.example");
    let names = ["b.example", "c.example", "d.example"];
    let servers = names.map(|name| {
        let hosts = format!("[{name}]");
        let tls = "{mode: SIMPLE, credentialName: b}";
        server(edge.ip, 18215, "HTTPS", &hosts, tls).replace("https-18215", &name.replace('.', "-"))
    });
    let mut all = vec![
        entry(&host("web"), 80, "HTTP", &[(&ip.ip.to_string(), web.port)]),
        gateway("edge", &servers),
        rule(
            "VirtualService",
            "to-web",
            "hosts: [b.example, c.example, d.example]\ngateways: [edge]\nhttp: [{route: [{destination: {host: web.demo.svc.cluster.local}}]}]",
        ),
        secret("b", &[("tls.crt", &pair.0), ("tls.key", &pair.1)]),
    ];
    let place = Place::new();
    place.write("own.crt", &pair.0);
    let root = format!("caCertificates: {}", place.path("own.crt").display());
    for (name, more) in names
        .into_iter()
        .zip(["", "", ", subjectAltNames: [b.example]"])
    {
        let spec = format!(
            "hosts: [{name}]\nlocation: MESH_EXTERNAL\nresolution: STATIC\nendpoints: [{{address: {}}}]\n\
             ports: [{{number: 18218, name: http, protocol: HTTP}}, {{number: 18215, name: https, protocol: HTTPS}}]",
            edge.ip
        );
        all.push(rule("ServiceEntry", &name.replace('.', "-"), &spec));
        let spec = format!(
            "hosts: [{name}]\nhttp: [{{match: [{{port: 18218}}], route: [{{destination: {{host: {name}, port: {{number: 18215}}}}}}]}}]"
        );
        all.push(rule("VirtualService", &name.replace('.', "-"), &spec));
        let spec = format!(
            "host: {name}\ntrafficPolicy: {{portLevelSettings: [{{port: {{number: 18215}}, tls: {{mode: SIMPLE, {root}{more}}}}}]}}"
        );
        all.push(rule("DestinationRule", &name.replace('.', "-"), &spec));
    }
    let discovery = place.with("config/all.yaml", &documents(&all)).start();
    let router = Setup::at("edge-1", edge, discovery.grpc)
        .role("router")
        .label("istio", "edge")
        .start();
    let sidecar = Setup::new("client-1", discovery.grpc).start();
    let get = |name: &str| sidecar.get(name, 18218);
    let web = Some((200, "web".to_owned()));
    until("the name of the certificate", || {
        (get("b.example") == web).then_some(())
    });
    assert_eq!(get("c.example").map(|(status, _)| status), Some(503));
    until("the name that the rule lists", || {
        (get("d.example") == web).then_some(())
    });
    assert_eq!(sidecar.stat("cluster_manager.cds.update_rejected"), 0);
    drop(router);
}
