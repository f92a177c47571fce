//! Mutual TLS between sidecars, and certificates that rotate: pintle restarts Envoy hot for each.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

use crate::backend::{self, Backend, Load};
use crate::place::{Place, documents, until};
use crate::proxy::{Address, Setup, in_sync, in_sync_with, rows};

/// The CA of the mesh's certificates.
pub struct Root {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Root {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "root");
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Signs a certificate with this identity; returns it with its key.
    pub fn leaf(&self, identity: &str) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(identity).unwrap())];
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        (leaf.der().to_vec(), key.serialize_der())
    }

    /// A new certificate into a volume.
    pub fn certify(&self, volume: &Path, account: &str) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let id = format!("spiffe://cluster.local/ns/demo/sa/{account}");
        params.distinguished_name.push(DnType::CommonName, account);
        params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(id).unwrap())];
        let leaf = params.signed_by(&key, &self.issuer).unwrap().pem();
        let files = [
            ("cert-chain.pem", &*leaf),
            ("key.pem", &*key.serialize_pem()),
            ("root-cert.pem", &*self.pem),
        ];
        put_in_volume(volume, &files);
    }
}

/// Exchanges all files of a volume in one step, as kubelet does it.
pub fn put_in_volume(volume: &Path, files: &[(&str, &str)]) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let turn = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = volume.join(format!("..2026_{turn}"));
    fs::create_dir_all(&folder).unwrap();
    let old = fs::read_link(volume.join("..data")).ok();
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
    let new = volume.join("..data_tmp");
    std::os::unix::fs::symlink(folder.file_name().unwrap(), &new).unwrap();
    fs::rename(&new, volume.join("..data")).unwrap();
    match old {
        Some(old) => fs::remove_dir_all(volume.join(old)).unwrap(),
        None => {
            for (name, _) in files {
                let to = Path::new("..data").join(name);
                std::os::unix::fs::symlink(to, volume.join(name)).unwrap();
            }
        }
    }
}

impl Setup {
    /// With certificates from that volume.
    pub fn secured(mut self, volume: &Path) -> Self {
        for side in ["SERVER", "CLIENT"] {
            for (what, file) in [
                ("CERT_CHAIN", "cert-chain"),
                ("KEY", "key"),
                ("ROOT_CERT", "root-cert"),
            ] {
                let path = volume.join(format!("{file}.pem"));
                let name = format!("ISTIO_META_TLS_{side}_{what}");
                self = self.env(&name, path.to_str().unwrap());
            }
        }
        self.label("security.istio.io/tlsMode", "istio")
    }
}

/// A service of one endpoint with an account, whose workload takes TLS or not.
pub fn service(
    name: &str,
    port: u16,
    protocol: &str,
    at: &str,
    account: &str,
    tls: bool,
) -> String {
    let labels = if tls {
        "{security.istio.io/tlsMode: istio}"
    } else {
        "{}"
    };
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  \
         hosts: [{name}.demo.svc.cluster.local]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  ports: [{{number: {port}, \
         name: main, protocol: {protocol}}}]\n  endpoints:\n  - {{address: {}, ports: {{main: {}}}, serviceAccount: {account}, \
         labels: {labels}}}\n",
        at.split_once(':').unwrap().0,
        at.split_once(':').unwrap().1,
    )
}

/// A Sidecar of `web` with two ports, both of which lead there.
pub fn sidecar(to: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: web, namespace: demo}}\nspec:\n  \
         workloadSelector: {{labels: {{app: web}}}}\n  ingress:\n  - {{port: {{number: 9080, name: http, protocol: \
         HTTP}}, defaultEndpoint: '{to}'}}\n  - {{port: {{number: 9081, name: tcp, protocol: TCP}}, \
         defaultEndpoint: '{to}'}}\n"
    )
}

/// Cases 11, 25 and 26.
#[test]
fn mutual_tls_by_endpoint_and_certificates_that_rotate_under_load() {
    let (web, ip) = (Address::new(), Address::new());
    let application = Backend::new(ip.ip, "web");
    let plain = Backend::new(ip.ip, "plain");
    let root = Root::new();
    let place = Place::new();
    let volumes = ["web", "client-1"].map(|name| place.path("certs").join(name));
    for (volume, account) in volumes.iter().zip(["web", "client"]) {
        root.certify(volume, account);
    }
    let (http, tcp) = (format!("{}:9080", web.ip), format!("{}:9081", web.ip));
    let unlabelled = format!("{}:{}", ip.ip, plain.port);
    let to = format!("{}:{}", ip.ip, application.port);
    let all = |accounts: [&str; 2]| {
        documents(&[
            service("web", 18080, "HTTP", &http, accounts[0], true),
            service("line", 18081, "TCP", &tcp, "web", true),
            service("plain", 18080, "HTTP", &unlabelled, "plain", false),
            service("wrong", 18080, "HTTP", &http, accounts[1], true),
            sidecar(&to),
        ])
    };
    let mesh = "enableTracing: false\nenableAutoMtls: true\naccessLogFile: /dev/stdout\n\
        accessLogFormat: \"%REQ(:AUTHORITY)% by <%DOWNSTREAM_PEER_URI_SAN%>\\n\"\n";
    let discovery = place
        .with("mesh", mesh)
        .with("config/all.yaml", &all(["web", "other"]))
        .start();
    let mut web = Setup::at("web", web, discovery.grpc)
        .label("app", "web")
        .secured(&volumes[0])
        .begin();
    let mut client = Setup::new("client-1", discovery.grpc)
        .secured(&volumes[1])
        .begin();
    web.until_ready();
    client.until_ready();
    let ok = |body: &str| Some((200, body.to_owned()));
    assert_eq!(client.get("web", 18080), ok("web"));
    assert_eq!(client.get("plain", 18080), ok("plain"));
    // The server has another identity than expected.
    assert_eq!(
        client.get("wrong", 18080).map(|(status, _)| status),
        Some(503)
    );
    let line = || backend::say(client.connect(client.ip, 18081).unwrap(), "hello");
    assert_eq!(line().as_deref(), Some("web hello"));
    // Automatic: a client without a sidecar is answered, too.
    assert_eq!(web.get("stranger", 9080), ok("web"));
    for text in [
        "web by <spiffe://cluster.local/ns/demo/sa/client>",
        "stranger by <->",
    ] {
        until(text, || web.log().contains(text).then_some(()));
    }
    // Accounts are a full push: the other way round.
    discovery
        .place
        .write("config/all.yaml", &all(["other", "web"]));
    until("the other account", || {
        let answers = ["web", "wrong"].map(|name| client.get(name, 18080));
        (answers[0].as_ref()?.0 == 503 && answers[1] == ok("web")).then_some(())
    });
    discovery
        .place
        .write("config/all.yaml", &all(["web", "other"]));
    until("the account", || {
        (client.get("web", 18080) == ok("web")).then_some(())
    });

    // Both rotate at once, while requests go on.
    let names = ["web", "client-1"];
    let before = names.map(|name| in_sync(&discovery, name));
    let load = Load::new(client.ip, "web", 18080);
    for (volume, account) in volumes.iter().zip(["web", "client"]) {
        root.certify(volume, account);
    }
    let mut twice = [false; 2];
    until("two streams of one node, each", || {
        for (name, twice) in names.iter().zip(&mut twice) {
            *twice |= rows(&discovery, name).len() == 2;
        }
        (twice == [true; 2]).then_some(())
    });
    until("the end of the older ones", || {
        let left = names.map(|name| rows(&discovery, name).len());
        (left == [1; 2]).then_some(())
    });
    for (proxy, before) in [&web, &client].into_iter().zip(before) {
        let after = in_sync(&discovery, &proxy.name);
        assert_ne!(before["connection"], after["connection"]);
        // The resources do not change by it.
        for kind in ["cluster", "endpoint", "listener", "route"] {
            let acked = format!("{kind}_acked");
            assert_eq!(before[&acked], after[&acked], "{} {kind}", proxy.name);
        }
        assert_eq!(proxy.stat("server.hot_restart_epoch"), 1);
    }
    // The one that is left gets what comes.
    let moved = format!("{}:{}", ip.ip, Backend::new(ip.ip, "moved").port);
    let file = fs::read_to_string(discovery.place.path("config/all.yaml")).unwrap();
    let (address, port) = unlabelled.split_once(':').unwrap();
    let old = format!("{{address: {address}, ports: {{main: {port}}}");
    let new = format!(
        "{{address: {address}, ports: {{main: {}}}",
        moved.split_once(':').unwrap().1
    );
    assert!(file.contains(&old), "{file}");
    discovery
        .place
        .write("config/all.yaml", &file.replace(&old, &new));
    until("the next change", || {
        (client.get("plain", 18080) == ok("moved")).then_some(())
    });
    load.end_after(20);

    // Strict: plain text is refused.
    let strict = mesh.replace("enableAutoMtls: true", "authPolicy: MUTUAL_TLS");
    discovery.place.write("mesh", &strict);
    until("strictness", || {
        web.get("stranger", 9080).is_none().then_some(())
    });
    in_sync_with(&discovery, "client-1", |row| {
        row["errors"] == serde_json::json!({})
    });
    assert_eq!(client.get("web", 18080), ok("web"));
    assert_eq!(line().as_deref(), Some("web hello"));
    // Endpoints without a TLS label are called in plain text.
    assert_eq!(client.get("plain", 18080), ok("moved"));
    // Another listener than the one that was strict.
    until("strictness of the other port", || {
        let answer = backend::say(web.connect(web.ip, 9081).ok()?, "hello");
        answer.is_none().then_some(())
    });
}
