//! AuthorizationPolicies, by requests and connections that come in to a workload, plain and by mutual TLS.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, DEFAULT_VERSIONS, DigitallySignedStruct, Error,
    SignatureScheme, StreamOwned,
};

use crate::backend::Backend;
use crate::place::{Discovery, Place, SOON, documents, until};
use crate::proxy::{Address, Proxy, Setup};
use crate::secured::Root;

const ROWS: &str = include_str!("../../../../tests/data/authorization.rows");
const HTTP: u16 = 9080;
const TCP: u16 = 9081;
/// A port whose response shows that a change has arrived.
const MARK: u16 = 9083;

/// Accepts any server certificate: the server's identity does not matter here.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Clients of the mesh, by their identities.
pub struct Clients {
    root: Root,
    known: BTreeMap<String, Arc<ClientConfig>>,
    /// Certificates that sign themselves, and their keys, by their names.
    own: BTreeMap<String, (String, String)>,
}

impl Clients {
    pub fn new(root: Root) -> Self {
        Self {
            root,
            known: BTreeMap::new(),
            own: BTreeMap::new(),
        }
    }

    pub fn with_certificates(mut self, own: BTreeMap<String, (String, String)>) -> Self {
        self.own = own;
        self
    }

    /// By TLS, whatever certificate the server has; `with`: the client's own, `version`: that of TLS alone.
    pub fn anybody(
        &self,
        stream: TcpStream,
        with: Option<&str>,
        server_name: &str,
        version: Option<&str>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let (old, new) = ([&TLS12], [&TLS13]);
        let versions = match version {
            Some("1.2") => &old[..],
            Some("1.3") => &new[..],
            _ => DEFAULT_VERSIONS,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody));
        let config = match with.map(|name| &self.own[name]) {
            None => config.with_no_client_auth(),
            Some((chain, key)) => config
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap(),
        };
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(client, stream)
    }

    fn config(&mut self, identity: &str) -> Arc<ClientConfig> {
        let make = || {
            let (leaf, key) = self.root.leaf(&format!("spiffe://{identity}"));
            let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody))
                .with_client_auth_cert(
                    vec![CertificateDer::from(leaf)],
                    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key)),
                )
                .unwrap();
            config.alpn_protocols = vec![b"istio".to_vec()];
            Arc::new(config)
        };
        let known = self.known.entry(identity.to_owned());
        Arc::clone(known.or_insert_with(make))
    }

    /// By mutual TLS.
    pub fn secured(
        &mut self,
        stream: TcpStream,
        identity: &str,
        server_name: &str,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        let client = ClientConnection::new(self.config(identity), name).unwrap();
        StreamOwned::new(client, stream)
    }
}

/// From an address of this machine.
pub fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddr::from((from, 0))).unwrap();
    connect(&stream, &to).unwrap();
    let stream = TcpStream::from(stream);
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// The status of a request; none: the connection ended.
fn ask(mut stream: impl Read + Write, request: &[&str]) -> Option<u16> {
    let [method, path, headers @ ..] = request else {
        panic!("{request:?}");
    };
    let mut lines = String::new();
    let mut host = "web".to_owned();
    for header in headers {
        let (name, value) = header.split_once(':').unwrap();
        match name.eq_ignore_ascii_case("host") {
            true => value.clone_into(&mut host),
            false => lines.push_str(&format!("{name}: {}\r\n", value.replace('+', " "))),
        }
    }
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n{lines}\r\n"
    );
    stream.write_all(text.as_bytes()).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    line.split(' ').nth(1)?.parse().ok()
}

/// Returns true if a line is answered.
fn is_answered(mut stream: impl Read + Write) -> bool {
    if stream.write_all(b"hello\n").is_err() {
        return false;
    }
    let mut line = String::new();
    let read = BufReader::new(stream).read_line(&mut line);
    match read {
        Ok(0) | Err(_) => false,
        Ok(_) => {
            assert_eq!(line, "web hello\n");
            true
        }
    }
}

/// Returns the outcome of a row, up to its arrow: 200, another status, or 0 without a response.
pub fn outcome(row: &str, web: IpAddr, clients: &mut Clients) -> u16 {
    let mut tokens = row.split_whitespace();
    let is_http = tokens.next().unwrap() == "http";
    let (mut identity, mut from, mut server_name) = (None, Ipv4Addr::LOCALHOST, "web");
    let mut request = Vec::new();
    for token in tokens {
        match token.split_once('=') {
            Some(("as", id)) => identity = Some(id),
            Some(("from", address)) => from = address.parse().unwrap(),
            Some(("sni", name)) => server_name = name,
            _ => request.push(token),
        }
    }
    let stream = connect(from, (web, if is_http { HTTP } else { TCP }).into());
    match (identity, is_http) {
        (Some(id), true) => ask(clients.secured(stream, id, server_name), &request),
        (Some(id), false) => is_answered(clients.secured(stream, id, server_name)).then_some(200),
        (None, true) => ask(stream, &request),
        (None, false) => is_answered(stream).then_some(200),
    }
    .unwrap_or_default()
}

/// Policies that hold together, and the rows behind them with their lines.
type Group<'a> = (Vec<(&'a str, &'a str)>, Vec<(usize, &'a str)>);

fn groups(text: &str) -> Vec<Group<'_>> {
    let mut all: Vec<Group<'_>> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.strip_prefix("policy ") {
            Some(policy) => {
                if all.last().is_none_or(|(_, rows)| !rows.is_empty()) {
                    all.push((Vec::new(), Vec::new()));
                }
                all.last_mut()
                    .unwrap()
                    .0
                    .push(policy.split_once(' ').unwrap());
            }
            None => all.last_mut().unwrap().1.push((at + 1, line)),
        }
    }
    all
}

pub fn policy(kind: &str, namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n"
    )
}

/// Ports of the workload, one of them called as the change that they came with.
pub fn doors(mark: &str, application: SocketAddr) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: web, namespace: demo}}\nspec:\n  \
         workloadSelector: {{labels: {{app: web}}}}\n  ingress:\n  \
         - {{port: {{number: {HTTP}, name: http, protocol: HTTP}}, defaultEndpoint: '{application}'}}\n  \
         - {{port: {{number: {TCP}, name: tcp, protocol: TCP}}, defaultEndpoint: '{application}'}}\n  \
         - {{port: {{number: {MARK}, name: {mark}, protocol: TCP}}, defaultEndpoint: '{application}'}}\n"
    )
}

/// Until the listeners are those of the change that is called so.
pub fn comes(discovery: &Discovery, web: &Proxy, mark: &str, config: &[String]) {
    let written = documents(config);
    discovery.place.write("config/all.yaml", &written);
    until(mark, || {
        let listeners = web.ask("/config_dump?resource=dynamic_listeners");
        let is_there = listeners.contains(&format!("|{mark}|"));
        let warms = listeners.contains("\"warming_state\"");
        (is_there && !warms && web.serves_its_listeners()).then_some(())
    });
}

/// A workload of namespace `demo` with certificates, and the CA that signs others.
pub fn workload(discovery: &Discovery, web: Address, root: &Root) -> Proxy {
    workload_by(discovery.grpc, &discovery.place, web, root)
}

/// The same, of the server at that port.
pub fn workload_by(port: u16, place: &Place, web: Address, root: &Root) -> Proxy {
    let volume = place.path("certs").join("web");
    root.certify(&volume, "web");
    Setup::at("web", web, port)
        .label("app", "web")
        .label("tier", "front")
        .secured(&volume)
        .start()
}

#[test]
fn authorization_policies_decide_which_clients_come_in() {
    let web = Address::new();
    let application = Backend::new([127, 0, 0, 1], "web");
    let application = SocketAddr::from(([127, 0, 0, 1], application.port));
    let mesh = "enableTracing: false\nenableAutoMtls: true\ntrustDomainAliases: [old.domain]\n";
    let discovery = Place::new()
        .with("mesh", mesh)
        .with("config/all.yaml", &doors("begin", application))
        .start();
    let root = Root::new();
    let web = workload(&discovery, web, &root);
    let mut clients = Clients::new(root);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (at, (policies, rows)) in groups(ROWS).into_iter().enumerate() {
        let mark = format!("group-{at}");
        let mut config = vec![doors(&mark, application)];
        for (number, (namespace, spec)) in policies.iter().enumerate() {
            let name = format!("p{number}");
            config.push(policy("AuthorizationPolicy", namespace, &name, spec));
        }
        comes(&discovery, &web, &mark, &config);
        for (line, row) in rows {
            let (incoming, expected) = row.split_once(" => ").unwrap();
            let outcome = outcome(incoming, web.ip, &mut clients);
            let refused = if incoming.starts_with("http") { 403 } else { 0 };
            let expected = if expected == "yes" { 200 } else { refused };
            if outcome != expected {
                wrong.push(format!("line {line}: {row}: {outcome}"));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 200, "{count}");
}

/// Policies that would let nothing in are tried: everything comes in, and the proxy says what it would have kept out.
#[test]
fn dry_run_policies_deny_nothing_and_are_logged() {
    let web = Address::new();
    let mesh = "enableTracing: false\nenableAutoMtls: true\naccessLogFile: /dev/stdout\naccessLogFormat: \"trial \
                %DYNAMIC_METADATA(envoy.filters.http.rbac:istio_dry_run_deny_shadow_engine_result)% \
                %DYNAMIC_METADATA(envoy.filters.http.rbac:istio_dry_run_allow_shadow_engine_result)%\\n\"\n";
    let application = Backend::new([127, 0, 0, 1], "web");
    let application = SocketAddr::from(([127, 0, 0, 1], application.port));
    let discovery = Place::new()
        .with("mesh", mesh)
        .with("config/all.yaml", &doors("begin", application))
        .start();
    let root = Root::new();
    let volume = discovery.place.path("certs").join("web");
    root.certify(&volume, "web");
    // Without it the proxy has no statistics of RBAC.
    let counted = r#"{"sidecar.istio.io/statsInclusionSuffixes": "shadow_allowed,shadow_denied"}"#;
    let web = Setup::at("web", web, discovery.grpc)
        .label("app", "web")
        .secured(&volume)
        .env("ISTIO_METAJSON_ANNOTATIONS", counted)
        .start();
    let mut clients = Clients::new(root);
    let deny = policy(
        "AuthorizationPolicy",
        "demo",
        "deny",
        "{action: DENY, rules: [{}]}",
    );
    let allow = policy("AuthorizationPolicy", "demo", "allow", "{action: ALLOW}");
    let tried = |text: &str| {
        text.replace(
            "namespace: demo}",
            "namespace: demo, annotations: {istio.io/dry-run: 'true'}}",
        )
    };
    let mut config = vec![doors("tried", application), tried(&deny), tried(&allow)];
    comes(&discovery, &web, "tried", &config);
    for row in ["http GET /", "tcp", "http as=td/ns/demo/sa/a GET /"] {
        assert_eq!(outcome(row, web.ip, &mut clients), 200, "{row}");
    }
    until("two lines of the access log", || {
        let log = web.log();
        let lines = log
            .lines()
            .filter(|line| line.contains("trial denied denied"));
        (lines.count() == 2).then_some(())
    });
    let counts = web.ask("/stats?filter=istio_dry_run");
    for (action, place) in [("deny", "http."), ("allow", "http."), ("deny", "tcp.")] {
        let end = format!("istio_dry_run_{action}_.shadow_denied: ");
        let mut lines = counts.lines();
        let is_counted = lines
            .any(|line| line.starts_with(place) && line.contains(&end) && !line.ends_with(": 0"));
        assert!(is_counted, "{place} {action}: {counts}");
    }
    // The same is enforced without the word.
    config[0] = doors("enforced", application);
    config[1] = deny;
    comes(&discovery, &web, "enforced", &config);
    assert_eq!(outcome("http GET /", web.ip, &mut clients), 403);
    assert_eq!(outcome("tcp", web.ip, &mut clients), 0);
}
