//! A client of raw streams: it sends scripted requests, and returns each response as it comes.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, lb_endpoint};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use envoy_types::pb::google::rpc;
use prost::Message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use crate::place::{SOON, entry};

/// The time after which a silent stream counts as quiet.
pub const QUIET: Duration = Duration::from_millis(1200);

pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
pub const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
pub const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// Clusters of services as [`service`] writes them.
pub const A: &str = "outbound|8080||a.demo.svc.cluster.local";
pub const B: &str = "outbound|8080||b.demo.svc.cluster.local";
pub const C: &str = "outbound|8080||c.demo.svc.cluster.local";

pub fn host(name: &str) -> String {
    format!("{name}.demo.svc.cluster.local")
}

/// A service of namespace `demo` that speaks HTTP on port 8080, and its endpoints on port 80.
pub fn service(name: &str, endpoints: &[&str]) -> String {
    let endpoints: Vec<_> = endpoints.iter().map(|address| (*address, 80)).collect();
    entry(&host(name), 8080, "HTTP", &endpoints)
}

/// The client's requests, as a stream.
pub struct Said<T>(UnboundedReceiver<T>);

impl<T> Stream for Said<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

/// A node: a sidecar of namespace `demo` without interception.
pub fn node() -> Node {
    node_of("sidecar~127.0.0.1~client-1.demo~demo.svc.cluster.local")
}

pub fn node_of(id: &str) -> Node {
    let text = |text: &str| Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    Node {
        id: id.to_owned(),
        metadata: Some(Struct {
            fields: [("INTERCEPTION_MODE".to_owned(), text("NONE"))].into(),
        }),
        ..Node::default()
    }
}

/// Waits until it is so, while the client's connections go on.
pub async fn soon(what: &str, mut check: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + SOON;
    while !check() {
        assert!(std::time::Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn connect(port: u16) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    endpoint.connect().await.unwrap()
}

/// A stream of the state of the world.
pub struct Sotw {
    requests: UnboundedSender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
}

impl Sotw {
    pub async fn open(port: u16) -> Self {
        Self::over(connect(port).await).await
    }

    pub async fn over(channel: Channel) -> Self {
        let (requests, rest) = unbounded_channel();
        let mut client =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        let responses = client
            .stream_aggregated_resources(Said(rest))
            .await
            .unwrap();
        Self {
            requests,
            responses: responses.into_inner(),
        }
    }

    pub fn say(&self, request: DiscoveryRequest) {
        self.requests.send(request).unwrap();
    }

    /// The first request of a type, with the node.
    pub fn ask(&self, url: &str, names: &[&str]) {
        self.ask_as(node(), url, names);
    }

    pub fn ask_as(&self, node: Node, url: &str, names: &[&str]) {
        self.say(DiscoveryRequest {
            node: Some(node),
            ..request(url, names)
        });
    }

    pub fn ask_with(&self, url: &str, names: &[&str], version: &str) {
        self.say(DiscoveryRequest {
            node: Some(node()),
            version_info: version.to_owned(),
            ..request(url, names)
        });
    }

    /// An ACK, with the names that are wanted now.
    pub fn ack(&self, response: &DiscoveryResponse, names: &[&str]) {
        self.say(DiscoveryRequest {
            version_info: response.version_info.clone(),
            response_nonce: response.nonce.clone(),
            ..request(&response.type_url, names)
        });
    }

    pub fn nack(&self, response: &DiscoveryResponse, accepted: &str, message: &str) {
        self.say(DiscoveryRequest {
            version_info: accepted.to_owned(),
            response_nonce: response.nonce.clone(),
            error_detail: Some(rpc::Status {
                code: 13,
                message: message.to_owned(),
                details: Vec::new(),
            }),
            ..request(&response.type_url, &[])
        });
    }

    /// The next response, of this type.
    pub async fn hear(&mut self, url: &str) -> DiscoveryResponse {
        let response = self.next(SOON).await;
        let response = response
            .unwrap_or_else(|| panic!("nothing came, {url} was awaited"))
            .unwrap();
        assert_eq!(response.type_url, url, "{:?}", names_of(&response));
        response
    }

    /// Returns the next response; `None` if nothing came in time.
    pub async fn next(&mut self, time: Duration) -> Option<Result<DiscoveryResponse, Status>> {
        match tokio::time::timeout(time, self.responses.message()).await {
            Ok(Ok(Some(response))) => Some(Ok(response)),
            Ok(Ok(None)) => Some(Err(Status::ok("ended"))),
            Ok(Err(status)) => Some(Err(status)),
            Err(_) => None,
        }
    }

    pub async fn is_quiet(&mut self) {
        if let Some(received) = self.next(QUIET).await {
            panic!(
                "{:?}",
                received.map(|response| (response.type_url.clone(), names_of(&response)))
            );
        }
    }

    /// Returns the final status; skips responses before it.
    pub async fn end(&mut self) -> Status {
        loop {
            match self.next(SOON).await {
                Some(Err(status)) => return status,
                Some(Ok(_)) => {}
                None => panic!("it goes on"),
            }
        }
    }

    /// All four types of a sidecar, asked for and accepted as Envoy does it; the responses in that order.
    pub async fn settle(&mut self, clusters: &[&str], routes: &[&str]) -> [DiscoveryResponse; 4] {
        self.ask(CDS, &[]);
        let cds = self.hear(CDS).await;
        self.say(request(EDS, clusters));
        let eds = self.hear(EDS).await;
        self.ack(&eds, clusters);
        self.ack(&cds, &[]);
        self.say(request(LDS, &[]));
        let lds = self.hear(LDS).await;
        self.ack(&lds, &[]);
        self.say(request(RDS, routes));
        let rds = self.hear(RDS).await;
        self.ack(&rds, routes);
        [cds, eds, lds, rds]
    }
}

pub fn request(url: &str, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: url.to_owned(),
        resource_names: names.iter().map(|&name| name.to_owned()).collect(),
        ..DiscoveryRequest::default()
    }
}

/// The first field of a message that is a string: all four types have their name there but endpoints' is `cluster_name`,
/// in the same place.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

pub fn names_of(response: &DiscoveryResponse) -> Vec<String> {
    let name = |body: &Vec<u8>| Named::decode(&**body).unwrap().name;
    response
        .resources
        .iter()
        .map(|any| name(&any.value))
        .collect()
}

pub fn names_of_delta(response: &DeltaDiscoveryResponse) -> Vec<String> {
    let names = response.resources.iter().map(|one| one.name.clone());
    names.collect()
}

/// Returns name and version of these resources, as a client reports them.
pub fn versions(resources: &[Resource]) -> Vec<(&str, &str)> {
    let all = resources.iter();
    all.map(|one| (&*one.name, &*one.version)).collect()
}

/// The resource of a name in a response.
pub fn decoded<M: Message + Default>(response: &DiscoveryResponse, name: &str) -> M {
    let names = names_of(response);
    let at = names.iter().position(|one| one == name);
    let at = at.unwrap_or_else(|| panic!("{name} is not among {names:?}"));
    M::decode(&*response.resources[at].value).unwrap()
}

/// `ADDRESS:PORT` of an assignment in a response.
pub fn endpoints(response: &DiscoveryResponse, cluster: &str) -> Vec<String> {
    use envoy_types::pb::envoy::config::core::v3::{address, socket_address};
    let found: ClusterLoadAssignment = decoded(response, cluster);
    let all = found.endpoints.iter().flat_map(|group| &group.lb_endpoints);
    all.map(|endpoint| {
        let Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier
        else {
            panic!("{endpoint:?}")
        };
        let address = endpoint.address.as_ref().unwrap().address.as_ref().unwrap();
        let address::Address::SocketAddress(socket) = address else {
            panic!("{address:?}")
        };
        let Some(socket_address::PortSpecifier::PortValue(port)) = &socket.port_specifier else {
            panic!("{socket:?}")
        };
        format!("{}:{port}", socket.address)
    })
    .collect()
}

/// A delta stream.
pub struct Delta {
    requests: UnboundedSender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Delta {
    pub async fn open(port: u16) -> Self {
        let (requests, rest) = unbounded_channel();
        let mut client = AggregatedDiscoveryServiceClient::new(connect(port).await);
        let responses = client.delta_aggregated_resources(Said(rest)).await.unwrap();
        Self {
            requests,
            responses: responses.into_inner(),
        }
    }

    pub fn ask(&self, url: &str, names: &[&str], initial: &[(&str, &str)]) {
        self.say(DeltaDiscoveryRequest {
            node: Some(node()),
            type_url: url.to_owned(),
            resource_names_subscribe: names.iter().map(|&name| name.to_owned()).collect(),
            initial_resource_versions: initial
                .iter()
                .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()))
                .collect(),
            ..DeltaDiscoveryRequest::default()
        });
    }

    pub fn say(&self, request: DeltaDiscoveryRequest) {
        self.requests.send(request).unwrap();
    }

    pub fn ack(&self, response: &DeltaDiscoveryResponse) {
        self.say(DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        });
    }

    pub async fn hear(&mut self, url: &str) -> DeltaDiscoveryResponse {
        let received = tokio::time::timeout(SOON, self.responses.message()).await;
        let response = received.expect("nothing came").unwrap().unwrap();
        assert_eq!(response.type_url, url);
        response
    }

    pub async fn is_quiet(&mut self) {
        let received = tokio::time::timeout(QUIET, self.responses.message()).await;
        assert!(received.is_err(), "{received:?}");
    }

    /// Returns the final status; no response may precede it.
    pub async fn end(&mut self) -> Status {
        let received = tokio::time::timeout(SOON, self.responses.message()).await;
        let received = received.expect("it goes on");
        received.expect_err("an end, and nothing before it")
    }
}
