//! The requests of a stream, in either protocol, read while they come.

use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use hyper::body::Bytes;
use tonic::Status;
use xds::resource_names::RequestReader;
use xds::stream::Protocol;

use super::session::Session;
use super::wire::{ClientRequest, StateRequest, WithoutNames};
use crate::grpc::{MessageReader, read};

/// The reader of one stream.
pub(super) struct StreamReader {
    protocol: Protocol,
    reader: RequestReader,
    /// The stream whose names are compared; `None`: it has none.
    session: Option<Arc<Session>>,
}

impl StreamReader {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            reader: RequestReader::default(),
            session: None,
        }
    }

    /// Compares the names of later requests with those of this stream, whose first request has arrived.
    pub(super) fn join(&mut self, session: &Arc<Session>) {
        self.session = Some(Arc::clone(session));
    }
}

impl MessageReader for StreamReader {
    /// Boxed: a stream waits in its task with one.
    type Message = Box<ClientRequest>;

    fn take(&mut self, come: &[u8]) -> usize {
        match (&self.session, self.protocol) {
            (Some(session), Protocol::StateOfTheWorld) => self.reader.take(come, |name| {
                session.with_stream(|stream| stream.list_with(name))
            }),
            (None, _) | (_, Protocol::Delta) => 0,
        }
    }

    fn retained(&self) -> usize {
        self.reader.retained()
    }

    fn finish(&mut self, bytes: Bytes, values: usize) -> Result<Box<ClientRequest>, Status> {
        let request = match (self.protocol, &self.session) {
            (Protocol::Delta, _) => {
                read::<DeltaDiscoveryRequest>(bytes, values).map(ClientRequest::from)
            }
            (Protocol::StateOfTheWorld, None) => {
                read::<StateRequest>(bytes, values).map(ClientRequest::from)
            }
            (Protocol::StateOfTheWorld, Some(_)) => match self.reader.finish(bytes) {
                (message, None) => read::<StateRequest>(message, values).map(ClientRequest::from),
                (rest, Some(names)) => read::<WithoutNames>(rest, values)
                    .map(|request| StateRequest::new(request, names).into()),
            },
        };
        request.map(Box::new)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use envoy_types::pb::envoy::config::core::v3 as core;
    use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
    use prost::Message as _;
    use xds::node::Node;
    use xds::stream::{Lists, Request};
    use xds::view::{Resource, Set, Type, View};

    use super::*;
    use crate::grpc::Address;

    const VALUES: usize = 1000;

    #[derive(Debug)]
    struct Nothing;

    impl View for Nothing {
        fn all(&self, _: Type) -> Arc<Set> {
            Arc::default()
        }

        fn get(&self, _: Type, _: &str) -> Option<Arc<Resource>> {
            None
        }
    }

    fn names(count: usize) -> Vec<String> {
        (0..count)
            .map(|at| format!("outbound|80||svc-{at:05}.demo"))
            .collect()
    }

    /// A stream that has requested so many assignments.
    fn session(count: usize) -> Arc<Session> {
        let node = core::Node {
            id: "sidecar~10.0.0.1~a.demo~demo.svc.cluster.local".to_owned(),
            ..core::Node::default()
        };
        let node = Arc::new(Node::read(Some(&node)).unwrap());
        let peer = Address::Ip((Ipv4Addr::LOCALHOST, 1).into());
        let (protocol, lists) = (Protocol::StateOfTheWorld, Arc::new(Lists::default()));
        let view = Arc::new(Nothing);
        let session = Session::new(1, &node, peer, Duration::ZERO, protocol, view, &lists);
        let first = Request {
            names: names(count).into(),
            ..Request::of(Type::Endpoint)
        };
        session.receive(Duration::ZERO, &first).unwrap();
        session
    }

    /// Read in pieces; and the most that was retained of it before its end.
    fn read_in_pieces(reader: &mut StreamReader, request: &DiscoveryRequest) -> (Request, usize) {
        let (mut come, mut max) = (Vec::new(), 0);
        for piece in request.encode_to_vec().chunks(1000) {
            max = max.max(come.len() + reader.retained());
            come.extend_from_slice(piece);
            let taken = reader.take(&come);
            come.drain(..taken);
        }
        let received = reader.finish(come.into(), VALUES).unwrap();
        (received.request.unwrap(), max)
    }

    #[test]
    fn an_acknowledgement_takes_no_memory_while_it_comes() {
        let session = session(500);
        let mut reader = StreamReader::new(Protocol::StateOfTheWorld);
        let request = DiscoveryRequest {
            version_info: "1".to_owned(),
            response_nonce: "7".to_owned(),
            resource_names: names(500),
            type_url: Type::Endpoint.url().to_owned(),
            ..DiscoveryRequest::default()
        };
        let (alone, max) = read_in_pieces(&mut reader, &request);
        assert!(max > 10_000, "{max}");
        reader.join(&session);
        // Envoy's order is none that we know: a bit for each name.
        let reversed = names(500).into_iter().rev().collect();
        for resource_names in [names(500), reversed] {
            let request = DiscoveryRequest {
                resource_names,
                ..request.clone()
            };
            let (joined, max) = read_in_pieces(&mut reader, &request);
            assert!(max < 200, "{max}");
            assert_eq!((&*joined.version, &*joined.nonce), ("1", "7"));
            assert!(joined == alone && session.with_stream(|stream| stream.repeats(&joined)));
        }
        let more = DiscoveryRequest {
            resource_names: names(501),
            ..request
        };
        let (more, _) = read_in_pieces(&mut reader, &more);
        assert_eq!(more.names, names(501).into());
        assert!(!session.with_stream(|stream| stream.repeats(&more)));
    }

    #[test]
    fn names_that_are_too_many_are_refused_in_either_protocol() {
        let session = session(500);
        for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
            let mut reader = StreamReader::new(protocol);
            reader.join(&session);
            let request = DiscoveryRequest {
                resource_names: names(VALUES + 1),
                ..DiscoveryRequest::default()
            };
            let message = request.encode_to_vec();
            let taken = reader.take(&message);
            let left = message.get(taken..).unwrap().to_vec().into();
            let status = reader.finish(left, VALUES).unwrap_err();
            assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        }
    }
}
