//! Policies at a router: tokens that admit, and services that are asked about requests and connections before they come in.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;

use crate::backend::{Backend, say};
use crate::custom::{Asked, FRIEND, asked_by_http};
use crate::gateways::{gateway, rule, server};
use crate::place::{Address, Place, documents, entry, until};
use crate::policies::{connect, policy};
use crate::proxy::Setup;
use crate::signer::{Signer, now, set};
use crate::support::program::settled;

const HTTP: u16 = 18186;
const TCP: u16 = 18187;

/// Status and head of an answer; `None`: there is none.
fn get(to: SocketAddr, path: &str, headers: &str) -> Option<(u16, String)> {
    let mut stream = connect(Ipv4Addr::LOCALHOST, to);
    let text =
        format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.to_ascii_lowercase()))
}

#[test]
fn tokens_admit_and_askers_decide_at_a_router() {
    let by_http = asked_by_http("");
    let by_grpc = Asked::default();
    let grpc = by_grpc.serve();
    let (edge, ip) = (Address::new(), Address::new());
    let backend = Backend::new(ip.ip, "a");
    let local = |name: &str, protocol: &str, to: SocketAddr| {
        let (host, address) = (
            format!("{name}.demo.svc.cluster.local"),
            to.ip().to_string(),
        );
        entry(&host, 7000, protocol, &[(&address, to.port())])
    };
    let own = SocketAddr::from((ip.ip, backend.port));
    let route = "route: [{destination: {host: a, port: {number: 7000}}}]";
    let at = edge.ip;
    let base = [
        local("a", "HTTP", own),
        local("line", "TCP", own),
        local("http", "HTTP", by_http.address),
        local("grpc", "GRPC", grpc),
        gateway(
            "g",
            &[
                server(at, HTTP, "HTTP", "['*']", ""),
                server(at, TCP, "TCP", "['*']", ""),
            ],
        ),
        rule(
            "v",
            &format!(
                "hosts: ['*']\ngateways: [g]\nhttp: [{{{route}}}]\n\
                 tcp: [{{match: [{{port: {TCP}}}], route: [{{destination: {{host: line, port: {{number: 7000}}}}}}]}}]"
            ),
        ),
    ];
    let selector = "selector: {matchLabels: {istio: edge}}";
    let config = |policies: &[(&str, String)]| {
        let policies = policies.iter().enumerate();
        let policies = policies.map(|(at, (kind, spec))| {
            policy(
                kind,
                "demo",
                &format!("p{at}"),
                &format!("{{{selector}, {spec}}}"),
            )
        });
        documents(&base.iter().cloned().chain(policies).collect::<Vec<_>>())
    };
    let mesh = "enableTracing: false\nextensionProviders:\n\
        - {name: http, envoyExtAuthzHttp: {service: http.demo.svc.cluster.local, port: 7000, pathPrefix: /check, \
        headersToUpstreamOnAllow: [x-user], headersToDownstreamOnDeny: [x-reason]}}\n\
        - {name: grpc, envoyExtAuthzGrpc: {service: grpc.demo.svc.cluster.local, port: 7000}}\n";
    let discovery = Place::new()
        .with("mesh", mesh)
        .with("config/all.yaml", &config(&[]))
        .start();
    let proxy = Setup::at("edge-1", edge, discovery.grpc)
        .role("router")
        .label("istio", "edge")
        .start();
    let (to, tcp) = (
        SocketAddr::from((proxy.ip, HTTP)),
        SocketAddr::from((proxy.ip, TCP)),
    );
    let status = |path: &str, headers: &str| get(to, path, headers).map(|(status, _)| status);
    let line = |from: Ipv4Addr| say(connect(from, tcp), "hello");
    until("the routes", || (status("/", "")? == 200).then_some(()));
    until("the line", || line(Ipv4Addr::LOCALHOST));

    // Whose token is good comes in, and nobody else.
    let (signer, stranger) = (Signer::curve("one"), Signer::curve("one"));
    let token = |signer: &Signer, subject: &str| {
        let claims = json!({"iss": "i", "sub": subject, "exp": now() + 1000});
        format!("Authorization: Bearer {}\r\n", signer.token(&claims))
    };
    let keys = set(&[&signer]);
    let all = [
        ("RequestAuthentication", format!("jwtRules: [{{issuer: i, jwks: '{keys}'}}]")),
        (
            "AuthorizationPolicy",
            "action: ALLOW, rules: [{from: [{source: {requestPrincipals: [i/alice]}}], to: [{operation: {ports: ['18186']}}]}]".to_owned(),
        ),
    ];
    discovery.place.write("config/all.yaml", &config(&all));
    let answers = |rows: &[(&str, String, u16)]| {
        settled(|| {
            rows.iter().find_map(|(path, headers, expected)| {
                let answer = status(path, headers);
                let differs = answer != Some(*expected);
                differs.then(|| format!("{answer:?} and not {expected} for {path} {headers}"))
            })
        });
    };
    answers(&[
        ("/", token(&signer, "alice"), 200),
        ("/", token(&signer, "bob"), 403),
        ("/", token(&stranger, "alice"), 401),
        ("/", "Authorization: Bearer a.b.c\r\n".to_owned(), 401),
        ("/", String::new(), 403),
    ]);
    let (_, answer) = get(to, "/", &token(&signer, "alice")).unwrap();
    assert!(answer.ends_with("\r\n\r\na"), "{answer}");

    // By requests: what is allowed is told to the application, what is not to the client.
    let custom = |provider: &str, rules: &str| {
        let spec = format!("action: CUSTOM, provider: {{name: {provider}}}, rules: [{rules}]");
        ("AuthorizationPolicy", spec)
    };
    let paths = "{to: [{operation: {paths: ['/asked*']}}]}";
    let write =
        |policies: &[(&str, String)]| discovery.place.write("config/all.yaml", &config(policies));
    write(&[custom("http", paths)]);
    answers(&[
        ("/asked-closed", String::new(), 401),
        ("/other", String::new(), 200),
    ]);
    let (_, answer) = get(to, "/asked-closed", "").unwrap();
    assert!(answer.contains("x-reason: why"), "{answer}");
    assert_eq!(status("/asked-open", "x-user: mallory\r\n"), Some(200));
    let head = backend.seen.last().1.to_ascii_lowercase();
    assert!(
        head.contains("x-user: alice") && !head.contains("mallory"),
        "{head}"
    );

    // By gRPC, connections, too.
    write(&[custom(
        "grpc",
        "{to: [{operation: {ports: ['18186', '18187']}}]}",
    )]);
    answers(&[
        ("/asked-open", String::new(), 403),
        ("/", "x-ok: 1\r\n".to_owned(), 200),
    ]);
    until("connections", || {
        line(Ipv4Addr::LOCALHOST).is_none().then_some(())
    });
    assert_eq!(line(FRIEND).as_deref(), Some("a hello"));
    assert!(by_grpc.count() >= 4, "{}", by_grpc.count());

    // Behind a good token somebody is asked still; without one nobody is.
    let mut all = all.to_vec();
    all.push(custom("http", paths));
    write(&all);
    answers(&[
        ("/asked-closed", token(&signer, "alice"), 401),
        ("/asked-open", token(&signer, "alice"), 200),
        ("/asked-open", token(&signer, "bob"), 403),
        ("/asked-open", token(&stranger, "alice"), 401),
        ("/other", token(&signer, "alice"), 200),
    ]);
}

/// Claims are looked for in what the filter of tokens left: a header of the name is a header.
#[test]
fn routes_of_a_router_go_by_claims_of_tokens() {
    let edge = Address::new();
    let names = ["admin", "deep", "listed", "nobody", "rest"];
    let backends = names.map(|name| {
        let address = Address::new();
        (name, Backend::new(address.ip, name), address)
    });
    let entries = backends.iter().map(|(name, backend, address)| {
        let host = format!("{name}.demo.svc.cluster.local");
        let ip = address.ip.to_string();
        entry(&host, 7000, "HTTP", &[(&ip, backend.port)])
    });
    let http = |matching: &str, to: &str| {
        format!(
            "- {{{matching}route: [{{destination: {{host: {to}, port: {{number: 7000}}}}}}]}}\n"
        )
    };
    let all = [
        http(
            "match: [{headers: {'@request.auth.claims.groups': {exact: admin}}}], ",
            "admin",
        ),
        http(
            "match: [{headers: {'@request.auth.claims[a.b][c]': {prefix: de}}}], ",
            "deep",
        ),
        http(
            "match: [{headers: {'@request.auth.claims.roles': {}}}], ",
            "listed",
        ),
        http(
            "match: [{withoutHeaders: {'@request.auth.claims.sub': {}}}], ",
            "nobody",
        ),
        http("", "rest"),
    ];
    let signer = Signer::curve("one");
    let keys = set(&[&signer]);
    let mut config: Vec<_> = entries.collect();
    config.push(gateway("g", &[server(edge.ip, HTTP, "HTTP", "['*']", "")]));
    let spec = format!("hosts: ['*']\ngateways: [g]\nhttp:\n{}", all.concat());
    config.push(rule("v", &spec));
    let spec = format!(
        "{{selector: {{matchLabels: {{istio: edge}}}}, jwtRules: [{{issuer: i, jwks: '{keys}'}}]}}"
    );
    config.push(policy("RequestAuthentication", "demo", "p", &spec));
    let discovery = Place::new()
        .with("mesh", "enableTracing: false\n")
        .with("config/all.yaml", &documents(&config))
        .start();
    let proxy = Setup::at("edge-1", edge, discovery.grpc)
        .role("router")
        .label("istio", "edge")
        .start();
    let to = SocketAddr::from((proxy.ip, HTTP));
    let token = |more: serde_json::Value| {
        let mut claims = json!({"iss": "i", "exp": now() + 1000});
        let more = more.as_object().unwrap().clone();
        claims.as_object_mut().unwrap().extend(more);
        format!("Authorization: Bearer {}\r\n", signer.token(&claims))
    };
    until("the routes", || (get(to, "/", "")?.0 == 200).then_some(()));
    for (headers, status, who) in [
        (String::new(), 200, "nobody"),
        ("@request.auth.claims.groups: admin\r\n".to_owned(), 400, ""),
        (token(json!({"sub": "s", "groups": "admin"})), 200, "admin"),
        (
            token(json!({"sub": "s", "groups": ["x", "admin"]})),
            200,
            "admin",
        ),
        (token(json!({"sub": "s", "groups": "admins"})), 200, "rest"),
        (
            token(json!({"sub": "s", "a.b": {"c": "deep"}})),
            200,
            "deep",
        ),
        (
            token(json!({"sub": "s", "a": {"b": {"c": "deep"}}})),
            200,
            "rest",
        ),
        (token(json!({"sub": "s", "roles": 3})), 200, "listed"),
        (token(json!({"groups": "none"})), 200, "nobody"),
        (token(json!({"sub": "s"})), 200, "rest"),
        ("Authorization: Bearer a.b.c\r\n".to_owned(), 401, ""),
    ] {
        let (found, answer) = get(to, "/", &headers).unwrap();
        assert_eq!(found, status, "{headers}: {answer}");
        if status == 200 {
            assert!(
                answer.ends_with(&format!("\r\n\r\n{who}")),
                "{headers}: {answer}"
            );
        }
    }
}
