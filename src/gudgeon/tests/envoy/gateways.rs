//! Gateways, by requests and connections that come in at a router.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::backend::{Backend, Load, say};
use crate::place::{Address, Discovery, Place, SOON, documents, entry, exchange, until};
use crate::proxy::{Proxy, Setup, in_sync};
use crate::support::program::{free, settled};

pub fn object(kind: &str, name: &str, spec: &str) -> String {
    let (namespace, name) = name.split_once('/').unwrap_or(("demo", name));
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n{spec}"
    )
}

/// A Gateway for routers with the label `istio: edge`.
pub fn gateway(name: &str, servers: &[String]) -> String {
    let servers = servers.join(", ");
    object(
        "Gateway",
        name,
        &format!("selector: {{istio: edge}}\nservers: [{servers}]"),
    )
}

pub fn rule(name: &str, spec: &str) -> String {
    object("VirtualService", name, spec)
}

/// A server on an address that no other test has.
pub fn server(ip: Ipv4Addr, port: u16, protocol: &str, hosts: &str, tls: &str) -> String {
    let tls = if tls.is_empty() {
        String::new()
    } else {
        format!(", tls: {tls}")
    };
    let name = format!("{}-{port}", protocol.to_ascii_lowercase());
    format!(
        "{{port: {{number: {port}, name: {name}, protocol: {protocol}}}, bind: {ip}, hosts: {hosts}{tls}}}"
    )
}

pub fn router(name: &str, discovery: &Discovery) -> Setup {
    Setup::new(name, discovery.grpc)
        .role("router")
        .label("istio", "edge")
}

/// A certificate for this name that signs itself, and its key, as PEM.
pub fn own_certificate(name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// A client of TLS that believes these certificates alone. `own`: what it presents.
pub fn client(roots: &[&str], own: Option<(&str, &str)>, protocols: &[&str]) -> Arc<ClientConfig> {
    let mut store = RootCertStore::empty();
    for pem in roots {
        store
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
    }
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(store);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some((chain, key)) => config
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    Arc::new(config)
}

pub fn secured(
    config: &Arc<ClientConfig>,
    at: (impl Into<IpAddr>, u16),
    name: &str,
) -> StreamOwned<ClientConnection, TcpStream> {
    let at = (at.0.into(), at.1);
    let stream = until("a listener", || TcpStream::connect(at).ok());
    over(config, stream, name)
}

/// TLS of a client over a connection that is there.
fn over(
    config: &Arc<ClientConfig>,
    stream: TcpStream,
    name: &str,
) -> StreamOwned<ClientConnection, TcpStream> {
    stream.set_read_timeout(Some(SOON)).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    StreamOwned::new(
        ClientConnection::new(Arc::clone(config), name).unwrap(),
        stream,
    )
}

/// The status and the body of an answer by TLS; none: the connection was refused.
pub fn get(
    config: &Arc<ClientConfig>,
    at: (impl Into<IpAddr>, u16),
    name: &str,
) -> Option<(u16, String)> {
    answered(secured(config, at, name), name).ok()
}

/// The status and the body of an answer.
fn answered(
    mut stream: StreamOwned<ClientConnection, TcpStream>,
    name: &str,
) -> Result<(u16, String), String> {
    let text = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    let sent = stream.write_all(text.as_bytes());
    sent.map_err(|error| format!("send: {error}"))?;
    let mut answer = Vec::new();
    // Some end without a farewell.
    let ended = stream.read_to_end(&mut answer);
    let read = || {
        let answer = String::from_utf8(answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    };
    read().ok_or_else(|| format!("no answer: {ended:?}"))
}

/// The head of an answer in plain text.
fn head(ip: IpAddr, port: u16, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect((ip, port)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.to_ascii_lowercase()
}

/// The status and the body of an answer to a request for a host.
fn ask(proxy: &Proxy, port: u16, host: &str, path: &str) -> (u16, String) {
    let mut stream = until("a listener", || proxy.connect(proxy.ip, port).ok());
    stream.set_read_timeout(Some(SOON)).unwrap();
    exchange(&mut stream, "GET", path, host).unwrap()
}

fn to(host: &str) -> String {
    format!("route: [{{destination: {{host: {host}, port: {{number: 80}}}}}}]")
}

#[test]
fn requests_go_by_the_host_that_they_ask_for() {
    let (edge, ip) = (Address::new(), Address::new());
    let (a, b) = (Backend::new(ip.ip, "a"), Backend::new(ip.ip, "b"));
    let at = ip.ip.to_string();
    let services = [
        entry("a.demo.svc.cluster.local", 80, "HTTP", &[(&at, a.port)]),
        entry("b.demo.svc.cluster.local", 80, "HTTP", &[(&at, b.port)]),
    ];
    // One on all addresses.
    let free = free();
    let everywhere =
        format!("{{port: {{number: {free}, name: all, protocol: HTTP}}, hosts: ['*']}}");
    let plain = |port, hosts: &str, tls: &str| server(edge.ip, port, "HTTP", hosts, tls);
    let config = [
        gateway(
            "one",
            &[
                plain(18180, "['*.example']", ""),
                plain(18181, "[secure.example]", "{httpsRedirect: true}"),
                everywhere,
            ],
        ),
        gateway(
            "two",
            &[plain(18180, "[other.test]", ""), plain(18182, "['*']", "")],
        ),
        // Of a port that others have for requests.
        gateway(
            "zulu",
            &[format!(
                "{{port: {{number: 18180, name: tcp, protocol: TCP}}, bind: {}, hosts: ['*']}}",
                edge.ip
            )],
        ),
        rule(
            "first",
            &format!(
                "hosts: [a.example]\ngateways: [one]\nhttp: [{{match: [{{uri: {{prefix: /b}}}}], {}}}, {{{}}}]",
                to("b"),
                to("a")
            ),
        ),
        rule(
            "second",
            &format!(
                "hosts: [a.example]\ngateways: [demo/one]\nhttp: [{{match: [{{uri: {{exact: /second}}}}], {}}}]",
                to("b")
            ),
        ),
        rule(
            "wild",
            &format!(
                "hosts: ['*.example']\ngateways: [one]\nhttp: [{{match: [{{port: {free}}}, {{port: 18180}}], {}}}]",
                to("b")
            ),
        ),
        rule(
            "other",
            &format!(
                "hosts: [other.test]\ngateways: [two, one]\nhttp: [{{{}}}]",
                to("b")
            ),
        ),
        rule(
            "sidecars",
            &format!("hosts: [c.example]\nhttp: [{{{}}}]", to("a")),
        ),
    ];
    let discovery = Place::new()
        .with("config/services.yaml", &documents(&services))
        .with("config/edge.yaml", &documents(&config))
        .start();
    let proxy = Setup::at("edge-1", edge, discovery.grpc)
        .role("router")
        .label("istio", "edge")
        .start();
    until("routes", || {
        (ask(&proxy, 18180, "a.example", "/").0 == 200).then_some(())
    });
    for (port, host, path, status, body) in [
        (18180, "a.example", "/", 200, "a"),
        (18180, "A.Example:18180", "/", 200, "a"),
        (18180, "a.example:443", "/x", 200, "a"),
        (18180, "a.example", "/b", 200, "b"),
        (18180, "a.example", "/second", 200, "b"),
        (18180, "x.example", "/", 200, "b"),
        (18180, "c.example", "/", 200, "b"),
        (18180, "other.test", "/", 200, "b"),
        (18180, "nobody.test", "/", 404, ""),
        (18181, "secure.example", "/", 301, ""),
        (18181, "x.example", "/", 404, ""),
        (18182, "a.example", "/", 404, ""),
        (18182, "other.test", "/", 200, "b"),
        (free, "x.example", "/", 200, "b"),
        (free, "a.example", "/", 200, "a"),
    ] {
        assert_eq!(
            ask(&proxy, port, host, path),
            (status, body.to_owned()),
            "{port} {host} {path}"
        );
    }
    let moved = head(proxy.ip, 18181, "secure.example", "/x");
    assert!(
        moved.contains("location: https://secure.example/x"),
        "{moved}"
    );
    // The client's address is told (of this machine Envoy tells the machine's own), and what it says of itself is not believed.
    let mut stream = proxy.connect(proxy.ip, 18180).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-Client-Cert: By=me\r\n\r\n")
        .unwrap();
    let _answer = stream.read(&mut [0; 1000]).unwrap();
    let (_, seen) = a.seen.last();
    let seen = seen.to_ascii_lowercase();
    assert!(
        seen.contains("x-forwarded-for: ") && !seen.contains("by=me"),
        "{seen}"
    );
    in_sync(&discovery, "edge-1");

    // The one that lost is named everywhere.
    assert_eq!(
        discovery.metric("pilot_total_rejected_configs{type=\"Gateway\",name=\"demo/zulu\"}"),
        1.0
    );
    let status = discovery.json("/debug/configz?kind=Gateway");
    let late = status
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["metadata"]["name"] == "zulu")
        .unwrap();
    let messages = late["status"]["messages"].to_string();
    assert!(
        messages.contains(
            "spec.servers[0] of Gateway demo/zulu is left out: Gateway demo/one has port 18180"
        ),
        "{late}"
    );
    assert_eq!(late["status"]["effect"], "enforced in part");

    // A port comes and another goes, while the others stay.
    let config: Vec<_> = config
        .iter()
        .map(|one| one.replace("18182", "18183"))
        .collect();
    discovery
        .place
        .write("config/edge.yaml", &documents(&config));
    until("another port", || proxy.connect(proxy.ip, 18183).ok());
    assert_eq!(ask(&proxy, 18183, "other.test", "/").0, 200);
    until("the port is gone", || {
        proxy.connect(proxy.ip, 18182).is_err().then_some(())
    });

    // Policies that select the router hold at its ports.
    let secured = |kind: &str, spec: &str| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: {kind}\nmetadata: {{name: edge, namespace: demo}}\n\
             spec: {{selector: {{matchLabels: {{istio: edge}}}}, {spec}}}\n"
        )
    };
    // The public key is the example of RFC 7517, appendix A.1.
    let keys = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;
    let policies = [
        secured(
            "AuthorizationPolicy",
            "action: DENY, rules: [{to: [{operation: {paths: [/shut]}}]}]",
        ),
        secured(
            "RequestAuthentication",
            &format!("jwtRules: [{{issuer: a, jwks: '{keys}', fromParams: [token]}}]"),
        ),
    ];
    discovery
        .place
        .write("config/policies.yaml", &documents(&policies));
    settled(|| {
        [("/shut", 403), ("/?token=a.b.c", 401), ("/", 200)]
            .into_iter()
            .find_map(|(path, expected)| {
                let (answer, _) = ask(&proxy, 18183, "other.test", path);
                (answer != expected).then(|| format!("{answer} and not {expected} for {path}"))
            })
    });
}

/// TLS of a server that answers a line, behind nothing but itself.
fn files(place: &Path, name: &str, (chain, key): &(String, String)) -> String {
    let at = |what: &str| place.join(format!("{name}.{what}"));
    fs::write(at("crt"), chain).unwrap();
    fs::write(at("key"), key).unwrap();
    format!(
        "serverCertificate: {}, privateKey: {}",
        at("crt").display(),
        at("key").display()
    )
}

#[test]
fn tls_ends_at_a_router_or_goes_on_by_its_name() {
    let (edge, ip) = (Address::new(), Address::new());
    let (web, line) = (Backend::new(ip.ip, "web"), Backend::new(ip.ip, "line"));
    let at = ip.ip.to_string();
    let services = [
        entry("web.demo.svc.cluster.local", 80, "HTTP", &[(&at, web.port)]),
        entry(
            "line.demo.svc.cluster.local",
            80,
            "TCP",
            &[(&at, line.port)],
        ),
    ];
    let place = Place::new();
    let root = place.path("certs");
    let [a, b, user] = ["a.example", "b.example", "user.example"].map(own_certificate);
    let (of_a, of_b) = (files(&root, "a", &a), files(&root, "b", &b));
    let of_user = root.join("user.crt");
    fs::write(&of_user, &user.0).unwrap();
    let mutual = format!(
        "{{mode: MUTUAL, {of_b}, caCertificates: {}, subjectAltNames: [user.example]}}",
        of_user.display()
    );
    let simple = format!("{{mode: SIMPLE, {of_a}}}");
    let tls = |protocol: &str, port, hosts: &str, mode: &str| {
        server(edge.ip, port, protocol, hosts, mode)
    };
    let config = [
        gateway(
            "edge",
            &[
                tls("HTTPS", 18190, "[a.example]", &simple),
                tls("TLS", 18191, "['*']", "{mode: PASSTHROUGH}"),
                tls("TLS", 18192, "['*.local']", "{mode: AUTO_PASSTHROUGH}"),
                tls("TLS", 18193, "[a.example]", &simple),
                tls("MYSQL", 18194, "['*']", ""),
                tls("TLS", 18196, "['*']", "{mode: AUTO_PASSTHROUGH}"),
                tls("HTTPS", 18197, "['*.example']", &simple),
            ],
        ),
        gateway(
            "more",
            &[
                tls("HTTPS", 18190, "[b.example]", &mutual),
                tls("HTTPS", 18197, "[b.example]", &mutual),
            ],
        ),
        // Routers take Gateways of their own namespace alone.
        gateway("other/elsewhere", &[tls("MYSQL", 18195, "['*']", "")]),
        rule(
            "web",
            &format!(
                "hosts: [a.example, b.example]\ngateways: [edge, more]\nhttp: [{{{}}}]",
                to("web")
            ),
        ),
        rule(
            "through",
            &format!(
                "hosts: [x.example]\ngateways: [edge]\ntls: [{{match: [{{sniHosts: [x.example]}}], {}}}]",
                to("line")
            ),
        ),
        rule(
            "lines",
            &format!(
                "hosts: ['*']\ngateways: [edge, other/elsewhere]\ntcp: [{{match: [{{port: 18193}}, {{port: 18194}}, {{port: 18195}}], {}}}]",
                to("line")
            ),
        ),
    ];
    let discovery = place
        .env("PILOT_SCOPE_GATEWAY_TO_NAMESPACE", "true")
        .with("config/services.yaml", &documents(&services))
        .with("config/edge.yaml", &documents(&config))
        .start();
    let proxy = Setup::at("edge-1", edge, discovery.grpc)
        .role("router")
        .label("istio", "edge")
        .start();
    let anybody = client(&[&a.0, &b.0], None, &[]);
    let answer = Some((200, "web".to_owned()));
    until("routes", || {
        (get(&anybody, (proxy.ip, 18190), "a.example") == answer).then_some(())
    });
    in_sync(&discovery, "edge-1");
    // The server of a name in TLS does not answer for the host of one that requires certificates.
    let misdirected = || {
        let stream = secured(&anybody, (proxy.ip, 18197), "a.example");
        answered(stream, "b.example").ok()
    };
    assert_eq!(get(&anybody, (proxy.ip, 18197), "a.example"), answer);
    assert_eq!(misdirected(), Some((421, String::new())));
    // Each name has its own certificate; one that nobody has is no name.
    assert_eq!(get(&anybody, (proxy.ip, 18190), "c.example"), None);
    assert_eq!(
        get(&anybody, (proxy.ip, 18190), "b.example"),
        None,
        "without a certificate"
    );
    let known = client(&[&a.0, &b.0], Some((&user.0, &user.1)), &["http/1.1"]);
    assert_eq!(get(&known, (proxy.ip, 18190), "b.example"), answer);
    let (_, seen) = web.seen.last();
    assert!(
        seen.to_ascii_lowercase()
            .contains("x-forwarded-client-cert: ")
            && seen.contains("DNS=user.example"),
        "{seen}"
    );
    let stranger = own_certificate("user.example");
    let stranger = client(&[&a.0, &b.0], Some((&stranger.0, &stranger.1)), &[]);
    assert_eq!(get(&stranger, (proxy.ip, 18190), "b.example"), None);
    let both = client(&[&a.0], None, &["h2", "http/1.1"]);
    let mut stream = secured(&both, (proxy.ip, 18190), "a.example");
    stream.flush().unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    // What goes on as it is comes out as it was.
    let hello = |config: &Arc<ClientConfig>, port, name: &str| {
        // The library takes no such character: it is put into the bytes.
        let spelled = name.replace('|', "-");
        let mut stream = secured(config, (proxy.ip, port), &spelled);
        let mut bytes = Vec::new();
        stream.conn.write_tls(&mut bytes).unwrap();
        let mut places = bytes.windows(name.len());
        let at = places.position(|place| place == spelled.as_bytes());
        let at = at.unwrap();
        bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        stream.sock.write_all(&bytes).unwrap();
        let mut text = String::new();
        let _ended = stream.sock.take(5).read_to_string(&mut text);
        text
    };
    assert_eq!(hello(&anybody, 18191, "x.example"), "line\n");
    assert_eq!(hello(&anybody, 18191, "y.example"), "");
    let line = "outbound_.80_._.line.demo.svc.cluster.local";
    let of_mesh = client(&[], None, &["istio-peer-exchange", "istio"]);
    let called = || {
        let clusters = proxy.ask("/clusters");
        let of_line = clusters
            .lines()
            .filter(|line| line.starts_with("outbound|80||line."));
        let mut totals = of_line.filter_map(|line| line.rsplit_once("::cx_total::"));
        totals.next().map_or(0, |(_, total)| total.parse().unwrap())
    };
    assert_eq!(called(), 1, "through the server that has rules");
    for (config, port, name, expected) in [
        (&of_mesh, 18192, line, "line\n"),
        (&of_mesh, 18196, line, "line\n"),
        (&anybody, 18192, line, "line\n"),
        (
            &of_mesh,
            18192,
            "outbound_.81_._.line.demo.svc.cluster.local",
            "",
        ),
        // The router would have spoken to these as itself.
        (
            &of_mesh,
            18192,
            "outbound|80||line.demo.svc.cluster.local",
            "",
        ),
        (&of_mesh, 18196, "prometheus_stats", ""),
        (&of_mesh, 18196, "xds-grpc", ""),
    ] {
        assert_eq!(hello(config, port, name), expected, "{port} {name}");
    }
    assert_eq!(
        called(),
        1,
        "a server was called before the name was looked at"
    );
    // Lines, behind TLS and in plain text.
    let mut stream = secured(&anybody, (proxy.ip, 18193), "a.example");
    stream.write_all(b"one\n").unwrap();
    let mut text = [0; 9];
    stream.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"line one\n");
    let plain = proxy.connect(proxy.ip, 18194).unwrap();
    assert_eq!(say(plain, "two").as_deref(), Some("line two"));
    assert!(proxy.connect(proxy.ip, 18195).is_err());
}

/// A Secret of the namespace `demo`.
pub fn secret(name: &str, data: &[(&str, &str)]) -> String {
    let data: String = data
        .iter()
        .map(|(name, text)| {
            let text: String = text.lines().map(|line| format!("    {line}\n")).collect();
            format!("  {name}: |\n{text}")
        })
        .collect();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: demo}}\nstringData:\n{data}"
    )
}

pub fn of_tls(name: &str, (chain, key): &(String, String)) -> String {
    secret(name, &[("tls.crt", chain), ("tls.key", key)])
}

/// A client that asks without end, each time over a connection of its own, which must be taken at once.
pub fn secured_load(config: Arc<ClientConfig>, at: (IpAddr, u16), name: &'static str) -> Load {
    let ask = move || {
        let stream = TcpStream::connect_timeout(&at.into(), SOON);
        let stream = stream.map_err(|error| format!("connect: {error}"))?;
        answered(over(&config, stream, name), name)
    };
    Load::of(move || match ask() {
        Ok((200, body)) if !body.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    })
}

/// The certificate that a server presents.
pub fn presented(config: &Arc<ClientConfig>, at: (IpAddr, u16), name: &str) -> Option<Vec<u8>> {
    let mut stream = secured(config, at, name);
    stream.flush().ok()?;
    Some(stream.conn.peer_certificates()?.first()?.to_vec())
}

#[test]
fn certificates_come_by_name_and_rotate_without_a_lost_request() {
    let (edge, ip) = (Address::new(), Address::new());
    let web = Backend::new(ip.ip, "web");
    let services = [entry(
        "web.demo.svc.cluster.local",
        80,
        "HTTP",
        &[(&ip.ip.to_string(), web.port)],
    )];
    let tls = |hosts: &str, mode: &str| server(edge.ip, 18200, "HTTPS", hosts, mode);
    let first = tls("[a.example]", "{mode: SIMPLE, credentialName: a}");
    let second =
        tls("[b.example]", "{mode: MUTUAL, credentialName: b}").replace("https-18200", "second");
    let config = [
        gateway("edge", &[first, second]),
        rule(
            "web",
            &format!("hosts: ['*']\ngateways: [edge]\nhttp: [{{{}}}]", to("web")),
        ),
    ];
    let [b, user] = ["b.example", "user.example"].map(own_certificate);
    let all_a: Vec<_> = (0..6).map(|_| own_certificate("a.example")).collect();
    let mut roots: Vec<&str> = all_a.iter().map(|(chain, _)| &**chain).collect();
    roots.push(&b.0);
    let discovery = Place::new()
        .with("config/services.yaml", &documents(&services))
        .with("config/edge.yaml", &documents(&config))
        .with("config/a.yaml", &of_tls("a", &all_a[0]))
        .start();
    let proxy = Setup::at("edge-1", edge, discovery.grpc)
        .role("router")
        .label("istio", "edge")
        .start();
    let at = (proxy.ip, 18200);
    let anybody = client(&roots, None, &[]);
    let answer = Some((200, "web".to_owned()));
    until("the first", || {
        (get(&anybody, at, "a.example") == answer).then_some(())
    });
    // What is missing holds back its own chain, and says so.
    assert_eq!(get(&anybody, at, "b.example"), None);
    let missing = "spec.servers[1] of Gateway demo/edge is left out: there is no certificate in secret demo/b";
    let is_reported = || {
        discovery
            .json("/debug/configz?kind=Gateway")
            .to_string()
            .contains(missing)
    };
    assert!(is_reported());
    // One whose key is another's is as good as none.
    let wrong = (b.0.clone(), user.1.clone());
    discovery.place.write("config/b.yaml", &of_tls("b", &wrong));
    until("it is refused", || {
        (discovery.logged("the key does not match the certificate") > 0).then_some(())
    });
    assert!(is_reported() && get(&anybody, at, "a.example") == answer);
    let of_b = [of_tls("b", &b), secret("b-cacert", &[("cacert", &user.0)])];
    discovery.place.write("config/b.yaml", &documents(&of_b));
    let known = client(&roots, Some((&user.0, &user.1)), &[]);
    until("the second", || {
        (get(&known, at, "b.example") == answer).then_some(())
    });
    assert_eq!(
        get(&anybody, at, "b.example"),
        None,
        "without a certificate"
    );
    assert!(!is_reported());
    let before = in_sync(&discovery, "edge-1");
    let taken = proxy.stat("listener_manager.lds.update_success");

    // Each rotation is one push of secrets, and nothing else.
    let load: Vec<_> = (0..2)
        .map(|_| secured_load(Arc::clone(&anybody), at, "a.example"))
        .collect();
    let mut last = before["secret_sent"].clone();
    for one in &all_a[1..] {
        discovery.place.write("config/a.yaml", &of_tls("a", one));
        let der = CertificateDer::from_pem_slice(one.0.as_bytes())
            .unwrap()
            .to_vec();
        until("the next", || {
            (presented(&anybody, at, "a.example")? == der).then_some(())
        });
        let row = in_sync(&discovery, "edge-1");
        assert_ne!(row["secret_sent"], last);
        last = row["secret_sent"].clone();
        let adsz = discovery.json("/debug/adsz");
        assert_eq!(
            adsz[0]["last_push"]["types"],
            serde_json::json!(["SDS"]),
            "{adsz}"
        );
    }
    for load in load {
        load.end_after(1);
    }
    let row = in_sync(&discovery, "edge-1");
    for kind in [
        "cluster_sent",
        "listener_sent",
        "route_sent",
        "endpoint_sent",
    ] {
        assert_eq!(row[kind], before[kind], "{kind}");
    }
    assert_eq!(proxy.stat("listener_manager.lds.update_success"), taken);

    // Nobody sees a key, wherever he looks.
    for path in [
        "/debug/configz",
        "/debug/adsz",
        "/debug/syncz",
        "/debug",
        "/metrics",
        "/debug/config_dump?proxyID=edge-1.demo",
        "/debug/push_status",
    ] {
        let (_, text) = discovery.get(path);
        for (_, key) in &all_a {
            let line = key.lines().nth(1).unwrap();
            assert!(
                !text.contains(line) && !text.contains("PRIVATE KEY"),
                "{path}"
            );
        }
    }
    assert_eq!(discovery.logged("PRIVATE KEY"), 0);

    // One that goes takes its own chain along.
    fs::remove_file(discovery.place.path("config/b.yaml")).unwrap();
    until("it is gone", || {
        get(&known, at, "b.example").is_none().then_some(())
    });
    assert_eq!(get(&anybody, at, "a.example"), answer);
}

const INGRESS: &str = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: front, namespace: demo, annotations: {kubernetes.io/ingress.class: istio}}\n\
spec:\n  rules:\n  - host: a.example\n    http:\n      paths:\n\
\x20     - {path: /exact, pathType: Exact, backend: {service: {name: b, port: {number: 80}}}}\n\
\x20     - {path: /part, pathType: Prefix, backend: {service: {name: b, port: {name: main}}}}\n\
\x20     - {path: /any.*, pathType: ImplementationSpecific, backend: {service: {name: b, port: {number: 80}}}}\n\
\x20     - {path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}\n";

/// Routers have the certificate of Ingresses in files, or not: then that server alone is closed, and the Gateway beside it is not.
#[test]
fn a_certificate_that_a_router_does_not_have_holds_back_its_own_server() {
    let (edge, ip) = (Address::new(), Address::new());
    let web = Backend::new(ip.ip, "web");
    let free = free();
    let at = edge.ip.to_string();
    let services = [
        entry(
            "web.demo.svc.cluster.local",
            80,
            "HTTP",
            &[(&ip.ip.to_string(), web.port)],
        ),
        entry("ingress.demo.svc.cluster.local", 443, "TCP", &[(&at, free)]),
    ];
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: front, namespace: demo, annotations: \
                   {kubernetes.io/ingress.class: istio}}\nspec:\n  defaultBackend: {service: {name: web, port: {number: 80}}}\n  tls: [{hosts: [closed.example], secretName: none}]\n  rules: []\n";
    let a = own_certificate("a.example");
    let server = "{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {mode: SIMPLE, credentialName: a}}";
    let gateway = object(
        "Gateway",
        "beside",
        &format!("selector: {{istio: ingress}}\nservers: [{server}]"),
    );
    let routes = rule(
        "web",
        &format!(
            "hosts: ['*']\ngateways: [beside]\nhttp: [{{{}}}]",
            to("web")
        ),
    );
    let discovery = Place::new()
        .with("config/services.yaml", &documents(&services))
        .with(
            "config/edge.yaml",
            &documents(&[gateway, routes, of_tls("a", &a)]),
        )
        .with("config/ingress.yaml", ingress)
        .start();
    let proxy = Setup::at("edge-1", edge, discovery.grpc)
        .role("ingress")
        .label("istio", "ingress")
        .start();
    let anybody = client(&[&a.0], None, &[]);
    let at = (proxy.ip, free);
    until("the Gateway", || {
        (get(&anybody, at, "a.example") == Some((200, "web".to_owned()))).then_some(())
    });
    assert_eq!(get(&anybody, at, "closed.example"), None);
    let row = until("the refusal", || {
        let row = crate::proxy::rows(&discovery, "edge-1").pop()?;
        row["errors"]["secret"].is_object().then_some(row)
    });
    let message = row["errors"]["secret"].to_string();
    assert!(message.contains("/etc/istio/ingress-certs/"), "{row}");
    assert!(
        message.contains("front-istio-autogenerated-k8s-ingress"),
        "{row}"
    );
    let noted = discovery.json("/debug/configz?kind=Ingress");
    let messages = &noted[0]["status"]["messages"];
    assert_eq!(
        messages[0], "warning: spec.defaultBackend: a default backend is not served",
        "{noted}"
    );
    // It is so beside the Gateways, too.
    assert!(row["errors"]["listener"].is_null(), "{row}");
}

/// The port 80 of an Ingress is where the router's own service leads.
#[test]
fn ingresses_are_served_by_the_role_of_that_name() {
    let (edge, ip) = (Address::new(), Address::new());
    let (a, b) = (Backend::new(ip.ip, "a"), Backend::new(ip.ip, "b"));
    let at = ip.ip.to_string();
    let free = free();
    let services = [
        entry("a.demo.svc.cluster.local", 80, "HTTP", &[(&at, a.port)]),
        entry("b.demo.svc.cluster.local", 80, "HTTP", &[(&at, b.port)]),
        entry(
            "ingress.demo.svc.cluster.local",
            80,
            "HTTP",
            &[(&edge.ip.to_string(), free)],
        ),
    ];
    let discovery = Place::new()
        .with("config/services.yaml", &documents(&services))
        .with("config/ingress.yaml", INGRESS)
        .start();
    let proxy = Setup::at("edge-1", edge, discovery.grpc)
        .role("ingress")
        .start();
    until("routes", || {
        let mut stream = proxy.connect(proxy.ip, free).ok()?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        (exchange(&mut stream, "GET", "/", "a.example")?.0 == 200).then_some(())
    });
    for (host, path, status, body) in [
        ("a.example", "/", 200, "a"),
        ("a.example", "/exact", 200, "b"),
        ("a.example", "/exact/x", 200, "a"),
        ("a.example", "/part", 200, "b"),
        ("a.example", "/part/x", 200, "b"),
        ("a.example", "/parts", 200, "a"),
        ("a.example", "/anything", 200, "b"),
        ("b.example", "/", 404, ""),
    ] {
        assert_eq!(
            ask(&proxy, free, host, path),
            (status, body.to_owned()),
            "{host} {path}"
        );
    }
    in_sync(&discovery, "edge-1");
    // Another host, and none where the mesh wants none.
    discovery.place.write(
        "config/ingress.yaml",
        &INGRESS.replace("a.example", "b.example"),
    );
    until("another host", || {
        (ask(&proxy, free, "b.example", "/").0 == 200).then_some(())
    });
    discovery
        .place
        .write("mesh", "ingressControllerMode: OFF\n");
    until("the listener is gone", || {
        proxy.connect(proxy.ip, free).is_err().then_some(())
    });
}
