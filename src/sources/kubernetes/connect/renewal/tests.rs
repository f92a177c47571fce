use std::path::Path;

use rcgen::{CertificateParams, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::kubernetes::connect::{Access, Cluster};
use crate::kubernetes::fake::{Fake, Fault};

const VERSION: &str = r#"{"major":"1","minor":"32"}"#;

async fn open(folder: &Path, server: &str, user: serde_json::Value) -> Cluster {
    let file = folder.join("kubeconfig");
    let cluster =
        json!({"server": server, "insecure-skip-tls-verify": server.starts_with("https")});
    let config = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
    });
    fs::write(&file, config.to_string()).unwrap();
    let access = Access::Kubeconfig {
        file: Some(file),
        context: None,
    };
    Cluster::open(&access).await.unwrap()
}

/// Asks until it is so.
async fn until(cluster: &Cluster, mut is_so: impl FnMut(bool) -> bool) {
    let asking = async {
        while !is_so(cluster.version().await.is_ok()) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), asking).await.unwrap();
}

#[tokio::test]
async fn a_plugin_without_an_expiration_runs_again_after_a_refusal() {
    let fake = Fake::start().await;
    let folder = tempfile::tempdir().unwrap();
    let here = |name: &str| folder.path().join(name);
    let runs = || fs::read_to_string(here("runs")).unwrap().lines().count();
    let script = r#"cd "$0"; echo x >> runs; echo "{status: {token: $(cat token)}}""#;
    let exec =
        json!({"command": "sh", "args": ["-c", script, folder.path()], "interactiveMode": "Never"});
    fs::write(here("token"), "one").unwrap();
    let address = fake.cluster().address().to_owned();
    let cluster = open(folder.path(), &address, json!({"exec": exec})).await;
    let sent = |token: &str| fake.authorizations().last() == Some(&Some(format!("Bearer {token}")));
    fs::write(here("token"), "two").unwrap();
    fake.fail("get", &[Fault::Status(404, 0), Fault::Says(VERSION)]);
    for is_known in [false, true] {
        assert_eq!(cluster.version().await.is_ok(), is_known);
        assert!(sent("one"), "only a refused token is renewed");
    }
    fake.fail("get", &[Fault::Status(401, 0)]);
    assert!(cluster.version().await.is_err());
    until(&cluster, |_| sent("two")).await;
    // A server that refuses each request runs no program for each.
    let before = runs();
    fs::write(here("token"), "three").unwrap();
    fake.fail("get", &[Fault::Status(401, 0), Fault::Status(401, 0)]);
    for _ in 0..3 {
        assert!(cluster.version().await.is_err());
        assert!(sent("two"));
    }
    assert_eq!(runs(), before);
}

/// A server that answers each request with 401 but those of one client's certificate.
async fn picky(roots: RootCertStore, wanted: CertificateDer<'static>) -> String {
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let own = own.self_signed(&key).unwrap().der().clone();
    let config = rustls::ServerConfig::builder()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![own], key.serialize_der().try_into().unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            let Ok(mut connection) = acceptor.accept(connection).await else {
                continue;
            };
            let mut head = [0; 4096];
            let _read = connection.read(&mut head).await;
            let certificates = connection.get_ref().1.peer_certificates().unwrap();
            let code = if certificates[0] == wanted { 200 } else { 401 };
            let length = VERSION.len();
            let answer = format!(
                "HTTP/1.1 {code} X\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{VERSION}"
            );
            let _written = connection.write_all(answer.as_bytes()).await;
            let _closed = connection.shutdown().await;
        }
    });
    format!("https://{address}")
}

#[tokio::test]
async fn an_exchanged_client_certificate_is_read_again_after_a_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let made = || {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        (certificate.self_signed(&key).unwrap(), key)
    };
    let [old, new] = [made(), made()];
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    let write = |(pem, pem_of_key): &(rcgen::Certificate, KeyPair)| {
        fs::write(&certificate, pem.pem()).unwrap();
        fs::write(&key, pem_of_key.serialize_pem()).unwrap();
    };
    let mut roots = RootCertStore::empty();
    for (certificate, _) in [&old, &new] {
        roots.add(certificate.der().clone()).unwrap();
    }
    let server = picky(roots, new.0.der().clone()).await;
    write(&old);
    let user = json!({"client-certificate": certificate, "client-key": key});
    let cluster = open(folder.path(), &server, user).await;
    write(&new);
    until(&cluster, |is_accepted| is_accepted).await;
}
