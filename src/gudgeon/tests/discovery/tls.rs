//! The port with client certificates: access, the node's identity, and rotation.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use hyper::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Code;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};

use crate::authority::{Authority, Signed};
use crate::client::*;
use crate::place::{Discovery, Place};

pub(crate) fn trusting(root: &Authority, client: Option<&Signed>) -> Arc<ClientConfig> {
    trusting_pem(&root.pem, client)
}

fn trusting_pem(root: &str, client: Option<&Signed>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(root.as_bytes()).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        Some((chain, key)) => {
            let chain = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![chain], key).unwrap()
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Connects with a configuration of TLS.
#[derive(Clone)]
struct Connector {
    port: u16,
    /// In the server's certificate.
    name: &'static str,
    config: Arc<ClientConfig>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { port, name, config } = self.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await?;
            let name = ServerName::try_from(name).unwrap();
            let stream = TlsConnector::from(config).connect(name, stream).await?;
            Ok(TokioIo::new(stream))
        })
    }
}

pub(crate) async fn channel(
    port: u16,
    config: Arc<ClientConfig>,
) -> Result<Channel, tonic::transport::Error> {
    channel_to("localhost", port, config).await
}

async fn channel_to(
    name: &'static str,
    port: u16,
    config: Arc<ClientConfig>,
) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_static("http://localhost");
    let connector = Connector { port, name, config };
    endpoint.connect_with_connector(connector).await
}

pub(crate) fn certify(root: &Authority, place: &Place) {
    root.write(&place.path("certs"), &root.server());
}

fn place() -> Place {
    Place::new()
        .with("config/b.yaml", &service("b", &["10.0.0.2"]))
        .arg("--secureGrpcAddr=127.0.0.1:0")
}

/// Returns the end of a stream to a server of this name by a client with this certificate; `None` if the stream goes on.
pub(crate) async fn refusal_by(
    name: &'static str,
    port: u16,
    root: &str,
    client: &Signed,
) -> Option<(Code, String)> {
    let config = trusting_pem(root, Some(client));
    end_of(channel_to(name, port, config).await.unwrap()).await
}

/// Returns the TLS port, once the certificates are read, which happens beside the start.
pub(crate) async fn secure_port(discovery: &mut Discovery) -> u16 {
    let port = discovery.port_after("listening on grpcs://");
    let is_open = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    soon("the TLS port", is_open).await;
    port
}

/// Returns the end of a stream by a client with this certificate; `None` if the stream goes on.
async fn refusal(
    discovery: &Discovery,
    port: u16,
    root: &Authority,
    id: &str,
) -> Option<(Code, String)> {
    refusal_of(discovery, port, root, &root.client(id)).await
}

async fn refusal_of(
    discovery: &Discovery,
    port: u16,
    root: &Authority,
    client: &Signed,
) -> Option<(Code, String)> {
    assert!(discovery.http > 0);
    let config = trusting(root, Some(client));
    end_of(channel(port, config).await.unwrap()).await
}

async fn end_of(channel: Channel) -> Option<(Code, String)> {
    let mut stream = Sotw::over(channel).await;
    stream.ask(CDS, &[]);
    match stream
        .next(std::time::Duration::from_secs(20))
        .await
        .unwrap()
    {
        Ok(_) => None,
        Err(status) => Some((status.code(), status.message().to_owned())),
    }
}

/// Returns true if a stream begins: a connection or its stream may be refused.
async fn is_taken(port: u16, config: Arc<ClientConfig>) -> bool {
    let Ok(channel) = channel(port, config).await else {
        return false;
    };
    let nothing = tonic::codegen::tokio_stream::iter(Vec::new());
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    client.stream_aggregated_resources(nothing).await.is_ok()
}

/// Case 42.
#[tokio::test]
async fn a_certificate_is_wanted_and_speaks_for_its_own() {
    let root = Authority::new();
    let place = place();
    certify(&root, &place);
    let mut discovery = place.start();
    let port = secure_port(&mut discovery).await;
    assert!(
        !is_taken(port, trusting(&root, None)).await,
        "no certificate"
    );
    let stranger = Authority::new();
    let client = stranger.client("spiffe://cluster.local/ns/demo/sa/b");
    assert!(
        !is_taken(port, trusting(&root, Some(&client))).await,
        "a stranger's certificate"
    );

    let own = refusal(
        &discovery,
        port,
        &root,
        "spiffe://cluster.local/ns/demo/sa/b",
    )
    .await;
    assert_eq!(own, None);
    let (code, message) = refusal(
        &discovery,
        port,
        &root,
        "spiffe://cluster.local/ns/other/sa/b",
    )
    .await
    .unwrap();
    assert_eq!(code, Code::PermissionDenied);
    assert!(
        message.contains("ns/other/sa/b") && message.contains("is ns/demo"),
        "{message}"
    );
    let (code, _) = refusal(&discovery, port, &root, "https://b.example")
        .await
        .unwrap();
    assert_eq!(code, Code::PermissionDenied);

    // A rotation, of the root too: the open stream goes on, new ones need the new certificate.
    let config = trusting(
        &root,
        Some(&root.client("spiffe://cluster.local/ns/demo/sa/b")),
    );
    let mut stream = Sotw::over(channel(port, config).await.unwrap()).await;
    stream.settle(&[B], &["8080"]).await;
    let next = Authority::new();
    certify(&next, &discovery.place);
    soon("the rotation", || discovery.logged("have changed") > 0).await;
    // The pair may be taken before the root, which is another file.
    let client = next.client("spiffe://cluster.local/ns/demo/sa/b");
    until_none("the root", async || {
        let is_taken = is_taken(port, trusting(&next, Some(&client))).await;
        (!is_taken).then(|| (Code::Unavailable, "its clients are refused".to_owned()))
    })
    .await;
    let more = service("b", &["10.0.0.3"]);
    discovery.place.write("config/b.yaml", &more);
    assert_eq!(endpoints(&stream.hear(EDS).await, B), ["10.0.0.3:80"]);
}

#[tokio::test]
async fn the_port_opens_when_certificates_come() {
    let place = place().env("PILOT_ENABLE_XDS_IDENTITY_CHECK", "false");
    let mut discovery = place.start();
    let port = discovery.port_after("listening on grpcs://");
    soon("the warning", || {
        discovery.logged("TLS ports are closed until there are certificates") == 1
    })
    .await;
    let open = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert!(!open(), "who cannot be served may go elsewhere");
    let root = Authority::new();
    certify(&root, &discovery.place);
    soon("the certificates", || discovery.logged("are there") > 0).await;
    soon("the port", open).await;
    let other = refusal(&discovery, port, &root, "https://b.example").await;
    assert_eq!(other, None, "with the check off");
    // Half of a new pair changes nothing that is served, and shows.
    let valid = "gudgeon_config_valid{file=\"certificates\"}";
    let broken = "gudgeon_config_reloads_total{file=\"certificates\",result=\"broken\"}";
    assert_eq!(
        (discovery.metric(valid), discovery.metric(broken)),
        (1.0, 0.0)
    );
    let end = discovery.metric("gudgeon_tls_not_after_seconds{file=\"certificates\"}");
    assert!(end > 1.7e9, "{end}");
    let key = Authority::new().server().1;
    discovery.place.write("certs/key.pem", &key);
    soon("the broken pair", || discovery.metric(valid) == 0.0).await;
    assert_eq!(discovery.metric(broken), 1.0);
    let page = discovery.get("/debug").1;
    assert!(
        page.contains("the last good content is in use: ") && page.contains("do not match"),
        "{page}"
    );
    certify(&root, &discovery.place);
    soon("the repair", || discovery.metric(valid) == 1.0).await;
}

/// One root may sign for several meshes, and a certificate may have several names.
#[tokio::test]
async fn only_one_name_of_this_mesh_speaks_for_a_node() {
    let root = Authority::new();
    let place = place();
    certify(&root, &place);
    let mut discovery = place.start();
    let port = secure_port(&mut discovery).await;
    let ask = async |uris: &[&str]| {
        let client = root.sign(uris.iter().map(|id| crate::authority::uri(id)).collect());
        refusal_of(&discovery, port, &root, &client).await
    };
    let (own, evil) = (
        "spiffe://cluster.local/ns/demo/sa/b",
        "spiffe://evil.example/ns/demo/sa/b",
    );
    for (uris, reason) in [
        (&[evil][..], "trust_domain"),
        (&["spiffe:///ns/demo/sa/b"], "certificate"),
        (
            &[own, "spiffe://cluster.local/ns/other/sa/b"],
            "certificate",
        ),
        (
            &["spiffe://cluster.local/ns/other/sa/b", own],
            "certificate",
        ),
        (&["spiffe://cluster.local/ns/other/sa/b"], "namespace"),
    ] {
        let metric = format!("gudgeon_streams_refused_total{{reason=\"{reason}\"}}");
        let before = discovery.metric(&metric);
        let (code, message) = ask(uris).await.unwrap();
        assert_eq!(code, Code::PermissionDenied, "{uris:?}: {message}");
        assert_eq!(discovery.metric(&metric), before + 1.0, "{uris:?}");
    }
    let (_, page) = discovery.get("/debug");
    assert!(
        page.contains("evil.example") && page.contains("trust_domain"),
        "{page}"
    );
    soon("the log", || {
        discovery.logged("refused a stream of 127.0.0.1:") == 5
    })
    .await;
    assert_eq!(ask(&[own]).await, None);

    // The mesh's trust domain changes while it runs, and the old one stays an alias for a while.
    let next = "spiffe://next.example/ns/demo/sa/b";
    let mesh = "trustDomain: next.example\ntrustDomainAliases: [cluster.local]\n";
    discovery.place.write("mesh", mesh);
    until_none("the next trust domain", async || ask(&[next]).await).await;
    assert_eq!(ask(&[own]).await, None, "an alias");
    discovery.place.write("mesh", "trustDomain: next.example\n");
    until_none("no alias", async || match ask(&[own]).await {
        None => Some((Code::Ok, "it still counts".to_owned())),
        Some((code, _)) => {
            assert_eq!(code, Code::PermissionDenied);
            None
        }
    })
    .await;
    assert_eq!(ask(&[next]).await, None);
}

async fn until_none(what: &str, ask: impl AsyncFn() -> Option<(Code, String)>) {
    let end = std::time::Instant::now() + crate::place::SOON;
    while let Some(refused) = ask().await {
        assert!(
            std::time::Instant::now() < end,
            "waited in vain: {what}: {refused:?}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
