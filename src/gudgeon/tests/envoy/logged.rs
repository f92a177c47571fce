//! Access logs that go to a service: whose cluster discovery delivers, by the address that the mesh configuration has.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use envoy_types::pb::envoy::service::accesslog::v3::access_log_service_server::{
    AccessLogService, AccessLogServiceServer,
};
use envoy_types::pb::envoy::service::accesslog::v3::stream_access_logs_message::LogEntries;
use envoy_types::pb::envoy::service::accesslog::v3::{
    StreamAccessLogsMessage, StreamAccessLogsResponse,
};
use tonic::{Request, Response, Status, Streaming};

use crate::backend::{self, Backend};
use crate::bare::host;
use crate::gateways::{gateway, rule, server};
use crate::place::{Place, documents, entry, until};
use crate::proxy::{Address, Proxy, Setup, in_sync};

/// Log entries: the log's name, and the upstream cluster.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(String, String)>>>);

#[tonic::async_trait]
impl AccessLogService for Lines {
    async fn stream_access_logs(
        &self,
        request: Request<Streaming<StreamAccessLogsMessage>>,
    ) -> Result<Response<StreamAccessLogsResponse>, Status> {
        let mut messages = request.into_inner();
        let mut log = String::new();
        while let Some(message) = messages.message().await? {
            if let Some(identifier) = message.identifier {
                log = identifier.log_name;
            }
            let commons: Vec<_> = match message.log_entries {
                Some(LogEntries::HttpLogs(http)) => {
                    let entries = http.log_entry.into_iter();
                    entries.map(|entry| entry.common_properties).collect()
                }
                Some(LogEntries::TcpLogs(tcp)) => {
                    let entries = tcp.log_entry.into_iter();
                    entries.map(|entry| entry.common_properties).collect()
                }
                None => Vec::new(),
            };
            let mut lines = self.0.lock().unwrap();
            lines.extend(
                commons
                    .into_iter()
                    .flatten()
                    .map(|common| (log.clone(), common.upstream_cluster)),
            );
        }
        Ok(Response::new(StreamAccessLogsResponse {}))
    }
}

impl Lines {
    /// A service of its own; its port.
    fn serve(&self, ip: impl Into<IpAddr>) -> u16 {
        let listener = TcpListener::bind((ip.into(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let service = AccessLogServiceServer::new(self.clone());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let incoming = tonic::transport::server::TcpIncoming::from(listener);
                let server = tonic::transport::Server::builder().add_service(service);
                let _ended = server.serve_with_incoming(incoming).await;
            });
        });
        port
    }

    fn has(&self, log: &str, cluster: &str) -> bool {
        let lines = self.0.lock().unwrap();
        lines
            .iter()
            .any(|(one, other)| one == log && other == cluster)
    }
}

fn mesh(more: &str) -> String {
    format!("enableTracing: false\nenableEnvoyAccessLogService: true\n{more}")
}

#[test]
fn access_logs_reach_the_service_that_the_mesh_names() {
    let ip = Address::new();
    let [one, line] = ["one", "line"].map(|name| Backend::new(ip.ip, name));
    let at = ip.ip.to_string();
    let edge = Address::new();
    let servers = [server(edge.ip, 18180, "HTTP", "['*']", "")];
    let to_one = "route: [{destination: {host: behind, port: {number: 18081}}}]";
    let to_one = format!("hosts: [b.example]\ngateways: [g]\nhttp: [{{{to_one}}}]");
    let discovery = Place::new()
        .with("mesh", &mesh(""))
        .with(
            "config/all.yaml",
            &documents(&[
                entry(&host("b"), 18080, "HTTP", &[(&at, one.port)]),
                entry(&host("line"), 18100, "TCP", &[(&at, line.port)]),
                entry(&host("behind"), 18081, "HTTP", &[(&at, one.port)]),
                gateway("g", &servers),
                rule("v", &to_one),
            ]),
        )
        .start();
    // The service's address is unknown: this is reported, and Envoy accepts the resources.
    let message =
        "enableEnvoyAccessLogService: defaultConfig.envoyAccessLogService does not say where";
    assert_eq!(discovery.logged(message), 1);
    let proxy = Proxy::start(discovery.grpc);
    let sends = || {
        let answer = proxy.get("b", 18080);
        assert_eq!(answer, Some((200, "one".to_owned())));
        let reply = backend::say(proxy.connect(proxy.ip, 18100).unwrap(), "hello");
        assert_eq!(reply.as_deref(), Some("line hello"));
    };
    sends();

    // By an address, and by a name.
    let lines = [(); 2].map(|()| Lines::default());
    let addresses = [
        format!("'{at}:{}'", lines[0].serve(ip.ip)),
        format!("'localhost:{}'", lines[1].serve(Ipv4Addr::LOCALHOST)),
    ];
    for (lines, address) in lines.iter().zip(&addresses) {
        let given = format!("defaultConfig: {{envoyAccessLogService: {{address: {address}}}}}\n");
        discovery.place.write("mesh", &mesh(&given));
        until(address, || {
            sends();
            let http = format!("outbound|18080||{}", host("b"));
            let tcp = format!("outbound|18100||{}", host("line"));
            (lines.has("http_envoy_accesslog", &http) && lines.has("tcp_envoy_accesslog", &tcp))
                .then_some(())
        });
    }
    // A router has the loggers, and so the cluster that they send to.
    let router = Setup::at("edge-1", edge, discovery.grpc)
        .role("router")
        .label("istio", "edge")
        .start();
    until("a line of the router", || {
        let answer = router.get_at(router.ip, "b.example", 18180);
        let http = format!("outbound|18081||{}", host("behind"));
        let is_served = answer == Some((200, "one".to_owned()));
        (is_served && lines[1].has("http_envoy_accesslog", &http)).then_some(())
    });
    assert_eq!(
        in_sync(&discovery, "client-1")["errors"],
        serde_json::json!({})
    );
    assert_eq!(discovery.logged(message), 1);
}
