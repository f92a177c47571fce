//! Policies whose action is CUSTOM: services that are asked, by requests and by gRPC, and what comes of their answers.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use envoy_types::ext_authz::v3::pb::{
    Authorization, AuthorizationServer, CheckRequest, CheckResponse,
};
use envoy_types::pb::google::rpc;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::backend::{Backend, say};
use crate::issuer::Issuer;
use crate::place::{Place, documents, entry};
use crate::policies::{comes, connect, doors, policy, workload};
use crate::proxy::Address;
use crate::secured::Root;
use crate::support::program::free;

/// Paths that it was asked about; a request is let in where it says so itself, a connection from one address.
#[derive(Clone, Default)]
pub struct Asked(Arc<Mutex<Vec<String>>>);

pub const FRIEND: Ipv4Addr = Ipv4Addr::new(127, 0, 5, 5);

#[tonic::async_trait]
impl Authorization for Asked {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let attributes = request.into_inner().attributes.unwrap();
        let http = attributes.request.and_then(|request| request.http);
        let source = format!("{:?}", attributes.source);
        let is_let_in = match &http {
            Some(http) if !http.path.is_empty() => {
                http.headers.get("x-ok").is_some_and(|value| value == "1")
            }
            _ => source.contains(&format!("\"{FRIEND}\"")),
        };
        let path = http.map(|http| http.path).unwrap_or_default();
        self.0.lock().unwrap().push(path);
        let code = if is_let_in { 0 } else { 7 };
        Ok(Response::new(CheckResponse {
            status: Some(rpc::Status {
                code,
                ..rpc::Status::default()
            }),
            ..CheckResponse::default()
        }))
    }
}

impl Asked {
    pub fn serve(&self) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let this = self.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let server = Server::builder().add_service(AuthorizationServer::new(this));
                let _ended = server
                    .serve_with_incoming(TcpIncoming::from(listener))
                    .await;
            });
        });
        address
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Status and head of an answer.
fn get(to: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    let mut stream = connect(Ipv4Addr::LOCALHOST, to);
    let text = format!("GET {path} HTTP/1.1\r\nHost: web\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.to_ascii_lowercase())
}

/// A service that lets those in whose path says so, and answers with these headers besides.
pub fn asked_by_http(headers: &'static str) -> Issuer {
    Issuer::new(move |path, to| {
        assert!(path.starts_with("/check/"), "{path}");
        let code = if path.contains("open") {
            "200 OK"
        } else {
            "401 No"
        };
        // It closes after each answer: Envoy must not ask again on a connection that it takes for open.
        write!(
            to,
            "HTTP/1.1 {code}\r\nx-user: alice\r\nx-reason: why\r\n{headers}Connection: close\r\nContent-Length: 0\r\n\r\n"
        )
    })
}

#[test]
fn services_of_the_mesh_are_asked_about_what_a_custom_policy_matches() {
    let by_http = asked_by_http("x-other: o\r\n");
    let by_grpc = Asked::default();
    let grpc = by_grpc.serve();
    let service = |name: &str, protocol: &str, at: SocketAddr| {
        let host = format!("{name}.demo.svc.cluster.local");
        entry(&host, 7000, protocol, &[("127.0.0.1", at.port())])
    };
    let place = |name: &str| format!("service: {name}.demo.svc.cluster.local, port: 7000");
    let mesh = format!(
        "enableTracing: false\nextensionProviders:\n\
         - name: http\n  envoyExtAuthzHttp: {{{}, timeout: 5s, pathPrefix: /check, headersToUpstreamOnAllow: [x-user], \
         headersToDownstreamOnDeny: [x-reason]}}\n\
         - name: grpc\n  envoyExtAuthzGrpc: {{{}, timeout: 5s}}\n\
         - name: gone\n  envoyExtAuthzHttp: {{{}, timeout: 1s, statusOnError: '503'}}\n\
         - name: lenient\n  envoyExtAuthzGrpc: {{{}, timeout: 1s, failOpen: true}}\n",
        place("http"),
        place("grpc"),
        place("gone"),
        place("lenient"),
    );
    // Nobody is there.
    let nobody = SocketAddr::from(([127, 0, 0, 1], free()));
    let services = [
        service("http", "HTTP", by_http.address),
        service("grpc", "GRPC", grpc),
        service("gone", "HTTP", nobody),
        service("lenient", "GRPC", nobody),
    ];
    let backend = Backend::new([127, 0, 0, 1], "web");
    let application = SocketAddr::from(([127, 0, 0, 1], backend.port));
    let config = |mark: &str, policies: &[&str]| {
        let mut all = services.to_vec();
        all.push(doors(mark, application));
        for (at, spec) in policies.iter().enumerate() {
            all.push(policy(
                "AuthorizationPolicy",
                "demo",
                &format!("p{at}"),
                spec,
            ));
        }
        all
    };
    let custom = |provider: &str, rule: &str| {
        format!("{{action: CUSTOM, provider: {{name: {provider}}}, rules: [{rule}]}}")
    };
    let discovery = Place::new()
        .with("mesh", &mesh)
        .with("config/all.yaml", &documents(&config("begin", &[])))
        .start();
    let web = workload(&discovery, Address::new(), &Root::new());
    let to = SocketAddr::from((web.ip, 9080));
    let tcp = SocketAddr::from((web.ip, 9081));

    let paths = "{to: [{operation: {paths: ['/a*']}}]}";
    comes(
        &discovery,
        &web,
        "by-http",
        &config("by-http", &[&custom("http", paths)]),
    );
    // What the policy does not match, nobody is asked about.
    assert_eq!(get(to, "/other", "").0, 200);
    assert_eq!(by_http.asked(), 0);
    let (status, answer) = get(to, "/a-closed", "x-user: mallory\r\n");
    assert_eq!(status, 401, "{answer}");
    assert!(
        answer.contains("x-reason: why") && !answer.contains("x-other"),
        "{answer}"
    );
    let (status, answer) = get(to, "/a-open", "x-user: mallory\r\n");
    assert_eq!(status, 200, "{answer}");
    let head = backend.seen.last().1.to_ascii_lowercase();
    assert!(
        head.contains("x-user: alice") && !head.contains("mallory"),
        "{head}"
    );
    assert_eq!(by_http.asked(), 2);
    // Connections are not asked about, and the rule is about requests.
    assert_eq!(
        say(connect(Ipv4Addr::LOCALHOST, tcp), "hello").as_deref(),
        Some("web hello")
    );

    // Others decide behind it.
    let deny = "{action: DENY, rules: [{to: [{operation: {paths: [/a-open-not]}}]}]}";
    comes(
        &discovery,
        &web,
        "deny",
        &config("deny", &[deny, &custom("http", paths)]),
    );
    assert_eq!(get(to, "/a-open-not", "").0, 403);
    assert_eq!(get(to, "/a-open", "").0, 200);
    assert_eq!(by_http.asked(), 4);

    comes(
        &discovery,
        &web,
        "grpc",
        &config(
            "grpc",
            &[&custom(
                "grpc",
                "{to: [{operation: {ports: ['9080', '9081']}}]}",
            )],
        ),
    );
    assert_eq!(get(to, "/a", "x-ok: 1\r\n").0, 200);
    assert_eq!(get(to, "/a", "").0, 403);
    assert_eq!(by_grpc.count(), 2);
    assert_eq!(
        say(connect(FRIEND, tcp), "hello").as_deref(),
        Some("web hello")
    );
    assert_eq!(say(connect(Ipv4Addr::LOCALHOST, tcp), "hello"), None);
    assert_eq!(by_grpc.count(), 4);
    let other = custom("grpc", "{from: [{source: {ipBlocks: [127.0.9.9]}}]}");
    comes(&discovery, &web, "other", &config("other", &[&other]));
    assert_eq!(get(to, "/a", "").0, 200);
    assert_eq!(
        say(connect(Ipv4Addr::LOCALHOST, tcp), "hello").as_deref(),
        Some("web hello")
    );
    assert_eq!(by_grpc.count(), 4);

    // Two of them: each is asked about what is its own, and both must let in.
    let both = [
        custom("http", paths),
        custom("grpc", "{to: [{operation: {paths: ['*-both']}}]}"),
    ];
    let both = both.each_ref().map(String::as_str);
    comes(&discovery, &web, "both", &config("both", &both));
    let asked = (by_http.asked(), by_grpc.count());
    for (path, headers, status) in [
        ("/a-open-both", "x-ok: 1\r\n", 200),
        ("/a-open-both", "", 403),
        ("/a-both", "x-ok: 1\r\n", 401),
        ("/a-open", "", 200),
        ("/b-both", "x-ok: 1\r\n", 200),
        ("/b", "", 200),
    ] {
        assert_eq!(get(to, path, headers).0, status, "{path} {headers}");
    }
    assert!(by_http.asked() > asked.0 && by_grpc.count() > asked.1);

    // Nobody answers.
    comes(
        &discovery,
        &web,
        "gone",
        &config("gone", &[&custom("gone", paths)]),
    );
    assert_eq!((get(to, "/a", "").0, get(to, "/b", "").0), (503, 200));
    comes(
        &discovery,
        &web,
        "lenient",
        &config("lenient", &[&custom("lenient", paths)]),
    );
    assert_eq!((get(to, "/a", "").0, get(to, "/b", "").0), (200, 200));

    // One that asks by requests lets in no connection that it should be asked about; one that is not known lets nothing in.
    comes(
        &discovery,
        &web,
        "all",
        &config("all", &[&custom("http", "{}")]),
    );
    assert_eq!(get(to, "/open", "").0, 200);
    assert_eq!(say(connect(Ipv4Addr::LOCALHOST, tcp), "hello"), None);
    comes(
        &discovery,
        &web,
        "unknown",
        &config("unknown", &[&custom("nobody", paths)]),
    );
    assert_eq!((get(to, "/a-open", "").0, get(to, "/b", "").0), (403, 403));
    let rows = discovery.json("/debug/configz?kind=AuthorizationPolicy");
    let message = rows[0]["status"]["messages"][0].as_str().unwrap();
    let cause =
        "denies all requests and connections: the mesh has no extensionProviders named \"nobody\"";
    assert!(message.ends_with(cause), "{message}");
}
