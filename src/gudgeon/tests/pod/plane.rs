//! A control plane: a door for the application's port, its resources by `xds`, over the stream that Envoy opens.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use api::mesh;
use api::model::{Configured, World};
use api::networking::Sidecar;
use envoy_types::pb::envoy::service::discovery::v3 as wire;
use envoy_types::pb::google::protobuf::Any;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};
use wire::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use xds::node::Node;
use xds::settings::Settings;
use xds::snapshot::Snapshot;
use xds::stream::{self, Client, Stream};
use xds::view::Type;

use crate::host::{Cable, NODE, Served};

pub(crate) const PORT: u16 = 15010;

const DOOR: &str = "workloadSelector: {labels: {app: shop}}
ingress:
- {port: {number: 8080, protocol: HTTP, name: http}, defaultEndpoint: '127.0.0.1:8080'}
";

/// Serves on the node until it is dropped.
pub(crate) struct Plane {
    _served: Served,
}

impl Plane {
    pub(crate) fn start(cable: &Cable) -> Self {
        let served = Served::start(&cable.node, || {
            let address = SocketAddr::new(NODE.parse().unwrap(), PORT);
            let incoming = TcpIncoming::bind(address).unwrap();
            let snapshot = Snapshot::new(world(), Arc::new(Settings::default()));
            let service = AggregatedDiscoveryServiceServer::new(Discovery(snapshot));
            async move {
                let server = Server::builder().add_service(service);
                server.serve_with_incoming(incoming).await.unwrap();
            }
        });
        Self { _served: served }
    }
}

fn world() -> World {
    let limits = api::yaml::Limits {
        bytes: 10_000,
        depth: 20,
        nodes: 1_000,
    };
    let node = api::yaml::read(DOOR, limits).unwrap().unwrap();
    let checked = api::networking::check::<Sidecar>(&serde_json::json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Sidecar",
        "metadata": {"name": "shop", "namespace": "demo"},
        "spec": node.to_json(),
    }));
    let sidecar = Configured {
        name: "shop".into(),
        namespace: "demo".into(),
        created: None,
        prefers_close: false,
        dry_run: false,
        spec: checked.spec.unwrap(),
    };
    let mut world = World::new(Arc::new(mesh::discovery_defaults()));
    Arc::make_mut(&mut world.sidecars).insert(("demo".into(), "shop".into()), Arc::new(sidecar));
    world
}

struct Discovery(Arc<Snapshot>);

#[tonic::async_trait]
impl AggregatedDiscoveryService for Discovery {
    type StreamAggregatedResourcesStream = ReceiverStream<Result<wire::DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream =
        ReceiverStream<Result<wire::DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<wire::DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (answers, taken) = mpsc::channel(1);
        tokio::spawn(serve(Arc::clone(&self.0), request.into_inner(), answers));
        Ok(Response::new(ReceiverStream::new(taken)))
    }

    async fn delta_aggregated_resources(
        &self,
        _request: Request<Streaming<wire::DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented(
            "state of the world is what the bootstrap asks for",
        ))
    }
}

/// One stream, until its client goes.
async fn serve(
    snapshot: Arc<Snapshot>,
    mut requests: Streaming<wire::DiscoveryRequest>,
    answers: mpsc::Sender<Result<wire::DiscoveryResponse, Status>>,
) {
    let started = Instant::now();
    let mut owed: Option<Stream> = None;
    while let Ok(Some(request)) = requests.message().await {
        let stream = owed.get_or_insert_with(|| {
            let node = Arc::new(Node::read(request.node.as_ref()).unwrap());
            let view = snapshot.view(&node);
            Stream::new(stream::Protocol::StateOfTheWorld, Client::Envoy, view)
        });
        // Types that are not served (secrets, for example) wait for ever, as with a server that does not know them.
        let Some(kind) = Type::from_url(&request.type_url) else {
            continue;
        };
        let read = stream::Request {
            version: request.version_info,
            nonce: request.response_nonce,
            names: request.resource_names.into(),
            error: request.error_detail.map(|status| status.message),
            ..stream::Request::of(kind)
        };
        assert_eq!(read.error, None, "Envoy refuses {kind:?}");
        stream.request(started.elapsed(), &read).unwrap();
        while let Some(response) = stream.next(started.elapsed()) {
            let any = |body: &[u8]| Any {
                type_url: response.kind.url().to_owned(),
                value: body.to_vec(),
            };
            let written = wire::DiscoveryResponse {
                version_info: response.version.to_string(),
                resources: response
                    .resources
                    .iter()
                    .map(|resource| any(&resource.body))
                    .collect(),
                type_url: response.kind.url().to_owned(),
                nonce: response.nonce.to_string(),
                ..wire::DiscoveryResponse::default()
            };
            if answers.send(Ok(written)).await.is_err() {
                return;
            }
            stream.written();
        }
    }
}
