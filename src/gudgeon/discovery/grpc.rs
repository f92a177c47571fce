//! The services of the gRPC ports, by path: discovery in both variants, health, reflection, and the error for other paths.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, Response};
use tonic::{Code, Status};
use xds::stream::Protocol;

use super::ads_stream::AdsStream;
use super::health;
use super::hub::Hub;
use super::reflection;
use super::refused_streams::RefusalReason;
use super::request_reader::StreamReader;
use super::wire::DISCOVERY;
use crate::grpc::{
    self, AddressLimit, AddressPermit, Bounds, Calls, Inbound, Peer, Reply, ResponseSender,
    refused, streaming,
};

/// Bounds on a request. It may name as many resources as a stream may, and then be refused for that.
pub(super) const BOUNDS: Bounds = Bounds {
    bytes: 4 << 20,
    beyond: Code::OutOfRange,
    values: xds::stream::NAMES + 1000,
};

/// Bounds on a request to health and reflection: names, and nothing else.
const SMALL_BOUNDS: Bounds = Bounds {
    bytes: 4 << 10,
    beyond: Code::OutOfRange,
    values: 16,
};

/// Streams of one address: two of each connection that it may have, so that a few connections with a hundred each leave room.
const STREAMS_OF_ONE_ADDRESS: usize = 10_000;

/// The services, of one hub.
pub(super) struct Services {
    hub: Arc<Hub>,
    streams: Arc<AddressLimit>,
}

impl Services {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self {
            hub,
            streams: AddressLimit::new("stream", STREAMS_OF_ONE_ADDRESS),
        }
    }
}

impl Calls for Services {
    fn answer(&self, peer: &Arc<Peer>, request: Request<Incoming>) -> Response<Reply> {
        let hub = &self.hub;
        let Some((service, method)) = grpc::call(&request) else {
            return grpc::no_call();
        };
        let (service, method) = (service.to_owned(), method.to_owned());
        let Some(permit) = self.streams.enter(&peer.address) else {
            let message = format!("cannot open a stream: its address has {STREAMS_OF_ONE_ADDRESS}");
            hub.refuse(&peer.address, RefusalReason::Streams, &message);
            return refused(&Status::resource_exhausted(message));
        };
        let body = request.into_body();
        let call = Call {
            hub,
            peer,
            permit,
            body,
        };
        match (&*service, &*method) {
            (DISCOVERY, "StreamAggregatedResources") => call.discovery(Protocol::StateOfTheWorld),
            (DISCOVERY, "DeltaAggregatedResources") => call.discovery(Protocol::Delta),
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
        self.hub.metrics.handshake_failed();
    }

    fn connection_refused(&self) {
        self.hub.metrics.connection_refused();
    }
}

struct Call<'a> {
    hub: &'a Arc<Hub>,
    peer: &'a Arc<Peer>,
    permit: AddressPermit,
    body: Incoming,
}

impl Call<'_> {
    fn discovery(self, protocol: Protocol) -> Response<Reply> {
        let sender = Arc::new(ResponseSender::default());
        let answer = streaming(&sender);
        let ads_stream = AdsStream {
            hub: Arc::clone(self.hub),
            sender,
            inbound: Inbound::of(self.peer, self.body, BOUNDS),
            peer: Arc::clone(self.peer),
            _permit: self.permit,
            protocol,
            reader: StreamReader::new(protocol),
        };
        tokio::spawn(ads_stream.run());
        answer
    }

    fn task<F, T>(self, work: F) -> Response<Reply>
    where
        F: FnOnce(Arc<Hub>, Inbound<Incoming>, Arc<ResponseSender>) -> T,
        T: Future<Output = ()> + Send + 'static,
    {
        let sender = Arc::new(ResponseSender::default());
        let answer = streaming(&sender);
        let inbound = Inbound::of(self.peer, self.body, SMALL_BOUNDS);
        let (work, permit) = (work(Arc::clone(self.hub), inbound, sender), self.permit);
        tokio::spawn(async move {
            work.await;
            drop(permit);
        });
        answer
    }
}
