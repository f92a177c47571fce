//! The services of the gRPC ports, by path: discovery in both variants, health, and what is said to all else.

use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use hyper::body::Incoming;
use hyper::{Request, Response};
use prost::Message;
use tonic::{Code, Status};
use xds::stream::Protocol;

use super::conversation::Conversation;
use super::health;
use super::hub::Hub;
use super::reflection;
use super::wire::Asked;
use crate::grpc::{self, Bounds, Calls, Inbound, Outlet, Peer, Reply, refused, streaming};

/// What of a request is read. It may name as many resources as a stream may, and then be refused for that.
pub(super) const BOUNDS: Bounds = Bounds {
    bytes: 4 << 20,
    beyond: Code::OutOfRange,
    values: xds::stream::NAMES + 1000,
};

/// The service of discovery.
pub(super) const DISCOVERY: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";

/// The services, of one hub.
pub(super) struct Services(pub(super) Arc<Hub>);

impl Calls for Services {
    fn answer(&self, peer: &Arc<Peer>, request: Request<Incoming>) -> Response<Reply> {
        let hub = &self.0;
        let Some((service, method)) = grpc::call(&request) else {
            return grpc::no_call();
        };
        let (service, method) = (service.to_owned(), method.to_owned());
        let body = request.into_body();
        let call = Call { hub, peer, body };
        match (&*service, &*method) {
            (DISCOVERY, "StreamAggregatedResources") => {
                call.discovery::<DiscoveryRequest>(Protocol::StateOfTheWorld)
            }
            (DISCOVERY, "DeltaAggregatedResources") => {
                call.discovery::<DeltaDiscoveryRequest>(Protocol::Delta)
            }
            (reflection::SERVICE, "ServerReflectionInfo") => call.task(reflection::answer),
            (health::SERVICE, "Check") => call.task(health::check),
            (health::SERVICE, "Watch") => call.task(health::watch),
            _ if service.starts_with("envoy.service.discovery.v2.") => {
                refused(&Status::unimplemented(format!(
                    "{service} is gone: this server speaks v3, {DISCOVERY}"
                )))
            }
            _ => refused(&Status::unimplemented("no such service or method")),
        }
    }

    fn handshake_failed(&self) {
        self.0.metrics.handshake_failed();
    }

    fn connection_refused(&self) {
        self.0.metrics.connection_refused();
    }
}

struct Call<'a> {
    hub: &'a Arc<Hub>,
    peer: &'a Arc<Peer>,
    body: Incoming,
}

impl Call<'_> {
    fn discovery<M>(self, protocol: Protocol) -> Response<Reply>
    where
        M: Message + Default + Into<Asked> + 'static,
    {
        let outlet = Arc::new(Outlet::default());
        let answer = streaming(&outlet);
        let conversation = Conversation {
            hub: Arc::clone(self.hub),
            outlet,
            inbound: Inbound::new(self.body, BOUNDS),
            peer: Arc::clone(self.peer),
            protocol,
        };
        tokio::spawn(conversation.run::<M>());
        answer
    }

    fn task<F, T>(self, work: F) -> Response<Reply>
    where
        F: FnOnce(Arc<Hub>, Inbound<Incoming>, Arc<Outlet>) -> T,
        T: Future<Output = ()> + Send + 'static,
    {
        let outlet = Arc::new(Outlet::default());
        let answer = streaming(&outlet);
        tokio::spawn(work(
            Arc::clone(self.hub),
            Inbound::new(self.body, BOUNDS),
            outlet,
        ));
        answer
    }
}
