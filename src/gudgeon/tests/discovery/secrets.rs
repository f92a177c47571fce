//! Secrets of routers: over which streams they go, and over which they do not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use prost::Message as _;
use serde_json::json;
use tokio::time::timeout;

use crate::apiserver::ApiServer;
use crate::authority::Authority;
use crate::client::*;
use crate::place::{Discovery, Place, SOON, documents, until};
use crate::tls::{certify, channel, secure_port, trusting};

const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const NAME: &str = "kubernetes://a";

fn secret(namespace: &str) -> String {
    let (chain, key) =
        Authority::new().client(&format!("spiffe://cluster.local/ns/{namespace}/sa/a"));
    let indented =
        |text: &str| -> String { text.lines().map(|line| format!("    {line}\n")).collect() };
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: a, namespace: {namespace}}}\nstringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        indented(&chain),
        indented(&key)
    )
}

fn place() -> Place {
    place_of(Place::new()).arg("--secureGrpcAddr=127.0.0.1:0")
}

/// Names the Secret `a`.
const GATEWAY: &str = "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: demo}\n\
                       spec: {selector: {istio: edge}, servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: ['*'], \
                       tls: {mode: SIMPLE, credentialName: a}}]}\n";

fn place_of(place: Place) -> Place {
    let config = documents(&[GATEWAY.to_owned(), secret("demo"), secret("other")]);
    place.with("config/edge.yaml", &config)
}

fn node(id: &str, generator: &str) -> Node {
    let text = |text: &str| Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    let fields = [("istio", "edge"), ("GENERATOR", generator)];
    let fields = fields.map(|(name, value)| (name.to_owned(), text(value)));
    Node {
        metadata: Some(Struct {
            fields: fields.into(),
        }),
        ..node_of(id)
    }
}

const ROUTER: &str = "router~127.0.0.1~edge-1.demo~demo.svc.cluster.local";

/// Reports whether a stream is given the secret that it asks for; the number of its listeners.
async fn given(mut stream: Sotw, node: Node) -> (bool, usize) {
    stream.ask_as(node, LDS, &[]);
    let listeners = stream.next(QUIET).await.map(Result::unwrap);
    let mut count = listeners.as_ref().map_or(0, |all| all.resources.len());
    stream.say(request(SDS, &[NAME]));
    let secrets = loop {
        let Some(next) = stream.next(QUIET).await.map(Result::unwrap) else {
            return (false, count);
        };
        if next.type_url != LDS {
            break next;
        }
        // The files have changed meanwhile.
        count = next.resources.len();
    };
    assert_eq!(secrets.type_url, SDS);
    assert_eq!(secrets.resources.len(), 1);
    let secret = Secret::decode(&*secrets.resources[0].value).unwrap();
    assert_eq!(secret.name, NAME);
    (true, count)
}

/// Galley reads the files there, and shows nothing of Secrets.
#[tokio::test]
async fn all_roles_in_one_process_give_the_same_and_show_no_more() {
    let all = place_of(Place::together()).start();
    let of = async || given(Sotw::open(all.grpc).await, node(ROUTER, "")).await;
    assert_eq!(of().await, (true, 1));
    let config = std::fs::read_to_string(all.place.path("config/edge.yaml")).unwrap();
    let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
    let keys: Vec<&str> = config.split(begin).skip(1).collect();
    let key = keys[0].split(end).next().unwrap().trim();
    let line = key.lines().next().unwrap().trim();
    assert!(line.len() > 40, "{line}");
    for path in ["/debug", "/debug/configz", "/debug/sinkz", "/metrics"] {
        let (_, text) = all.get(path);
        assert!(
            !text.contains(line) && !text.contains("PRIVATE KEY"),
            "{path}"
        );
    }
    // One that is no good keeps the last one; one that goes takes its listener along.
    all.place
        .write("config/edge.yaml", &config.replace(line, "AAAA"));
    until("it is refused", || {
        (all.logged("Secret demo/a: stale: proxies do not accept the key") > 0).then_some(())
    });
    assert_eq!(of().await, (true, 1));
    let (gateway, _) = config.split_once("---").unwrap();
    all.place.write("config/edge.yaml", gateway);
    let (_, listeners) = loop {
        let found = of().await;
        if !found.0 {
            break found;
        }
    };
    assert_eq!(listeners, 0);
}

/// A key that does not match used to be one line of the log, while the certificate that is served draws near its end.
#[tokio::test]
async fn a_gateway_says_that_the_last_good_certificate_of_its_broken_secret_is_served() {
    let server = ApiServer::new();
    server.put(
        "pods",
        json!({
            "metadata": {"name": "edge-1", "namespace": "demo", "labels": {"istio": "edge"}},
            "spec": {"serviceAccountName": "edge"}, "status": {"podIP": "10.1.0.9", "phase": "Running"},
        }),
    );
    let pair = || Authority::new().client("spiffe://cluster.local/ns/demo/sa/a");
    let ((chain, key), (_, other_key)) = (pair(), pair());
    let put = |key: &str| {
        let data = json!({"tls.crt": STANDARD.encode(&chain), "tls.key": STANDARD.encode(key)});
        let metadata = json!({"name": "a", "namespace": "demo"});
        server.put("secrets", json!({"metadata": metadata, "data": data}));
    };
    put(&key);
    let start = || server.place().with("config/edge.yaml", GATEWAY).start();
    let messages = |discovery: &Discovery| {
        let rows = discovery.json("/debug/configz?kind=Gateway");
        rows[0]["status"]["messages"].to_string()
    };
    let discovery = start();
    let of = async || given(Sotw::open(discovery.grpc).await, node(ROUTER, "")).await;
    // The first stream may come before the Secret.
    let is_served = async { while of().await != (true, 1) {} };
    timeout(SOON, is_served).await.expect("a certificate");
    let cause = "cannot use Secret demo/a: ";
    assert!(!messages(&discovery).contains(cause));
    put(&other_key);
    until("the cause", || {
        let messages = messages(&discovery);
        let is_told = messages.contains(cause);
        is_told.then(|| {
            assert!(
                messages.contains("its last good certificate is served"),
                "{messages}"
            );
        })
    });
    assert_eq!(of().await, (true, 1));
    // Another replica has never seen a good one.
    let late = start();
    until("the cause, of another replica", || {
        messages(&late)
            .contains("no certificate of it is served")
            .then_some(())
    });
    put(&key);
    until("its end", || {
        (!messages(&discovery).contains(cause)).then_some(())
    });
    until("its end, of the other", || {
        (!messages(&late).contains(cause)).then_some(())
    });
}

/// A Secret of a file tells its Gateway, too, at which its owner looks, and not into the log.
#[tokio::test]
async fn a_broken_secret_of_a_file_is_told_at_the_gateway() {
    let discovery = place().start();
    let messages = || {
        let rows = discovery.json("/debug/configz?kind=Gateway");
        rows[0]["status"]["messages"].to_string()
    };
    let cause = "cannot use Secret demo/a: ";
    assert!(!messages().contains(cause));
    let write = |secret: String| {
        let config = documents(&[GATEWAY.to_owned(), secret]);
        discovery.place.write("config/edge.yaml", &config);
    };
    let good = secret("demo");
    let (_, other_key) = Authority::new().client("spiffe://cluster.local/ns/demo/sa/a");
    let (certificate, _) = good.split_once("  tls.key").unwrap();
    let key: String = other_key
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    let mismatched = format!("{certificate}  tls.key: |\n{key}");
    let head = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: demo}\n";
    let without_certificate = format!("{head}data: {{tls.crt: eA==, tls.key: eA==}}\n");
    let malformed = format!("{head}data: {{tls.crt: '!!', tls.key: '!!'}}\n");
    for broken in [mismatched, without_certificate, malformed] {
        write(broken);
        until("the cause", || {
            let messages = messages();
            messages.contains(cause).then(|| {
                let served = "its last good certificate is served";
                assert!(messages.contains(served), "{messages}");
            })
        });
        write(good.clone());
        until("its end", || (!messages().contains(cause)).then_some(()));
    }
}

#[tokio::test]
async fn local_routers_alone_receive_the_secrets_of_their_namespace() {
    let discovery = place().start();
    let of = async |id: &str, generator: &str| {
        given(Sotw::open(discovery.grpc).await, node(id, generator)).await
    };
    assert_eq!(of(ROUTER, "").await, (true, 1));
    assert_eq!(
        of(&ROUTER.replace("router~", "ingress~"), "").await,
        (true, 1)
    );
    // There is no secret of that name, and so no listener.
    assert_eq!(
        of(&ROUTER.replace(".demo~", ".third~"), "").await,
        (false, 0)
    );
    let (has, _) = of(&ROUTER.replace("router~", "sidecar~"), "").await;
    assert!(!has, "a sidecar");
    let (has, _) = of(ROUTER, "grpc").await;
    assert!(!has, "a program with gRPC in it");
}

/// With the check of identities off, too, which lets anybody speak for anybody.
#[tokio::test]
async fn a_certificate_is_to_be_for_the_namespace() {
    for check in ["true", "false"] {
        let root = Authority::new();
        let place = place().env("PILOT_ENABLE_XDS_IDENTITY_CHECK", check);
        certify(&root, &place);
        let mut discovery: Discovery = place.start();
        let port = secure_port(&mut discovery).await;
        let over = async |namespace: &str| {
            let client = root.client(&format!("spiffe://cluster.local/ns/{namespace}/sa/edge"));
            let channel = channel(port, trusting(&root, Some(&client))).await.unwrap();
            Sotw::over(channel).await
        };
        assert_eq!(given(over("demo").await, node(ROUTER, "")).await, (true, 1));
        let mut stranger = over("other").await;
        if check == "false" {
            assert_eq!(given(stranger, node(ROUTER, "")).await, (false, 0));
            continue;
        }
        stranger.ask_as(node(ROUTER, ""), SDS, &[NAME]);
        assert_eq!(stranger.end().await.code(), tonic::Code::PermissionDenied);
    }
}
