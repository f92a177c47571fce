//! One ADS stream: its client is identified, and from then on the loop speaks its protocol.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use tokio::time::timeout;
use tonic::Status;
use tracing::warn;
use xds::node::{BadNode, Node, clipped};
use xds::snapshot::Snapshot;
use xds::stream::Protocol;

use super::ads_protocol::AdsProtocol;
use super::hub::{Hub, StreamRegistration};
use super::identity;
use super::refused_streams::RefusalReason;
use super::request_reader::StreamReader;
use super::wire::ClientRequest;
use crate::grpc::{AddressPermit, BodyError, Inbound, Peer, ResponseSender, StreamLoop};

/// Time for which the reason is offered to a client that was too late, before its connection is cut. Chosen: one round trip to any site.
const PARTING: Duration = Duration::from_secs(1);

/// One ADS stream: its client, its permit and its protocol.
pub(super) struct AdsStream<B> {
    pub(super) hub: Arc<Hub>,
    pub(super) sender: Arc<ResponseSender>,
    pub(super) inbound: Inbound<B>,
    pub(super) peer: Arc<Peer>,
    /// The stream's place among those of its address.
    pub(super) _permit: AddressPermit,
    pub(super) protocol: Protocol,
    pub(super) reader: StreamReader,
}

impl<B> AdsStream<B>
where
    B: Body<Data = Bytes, Error: BodyError> + Send + Unpin + 'static,
{
    /// Runs the stream to its end.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn holds its arguments twice for as long as it runs"
    )]
    pub(super) fn run(mut self) -> impl Future<Output = ()> + Send {
        async move { self.serve().await }
    }

    async fn serve(&mut self) {
        let hub = Arc::clone(&self.hub);
        let panicked = move || hub.metrics.panicked();
        let stream_loop = StreamLoop::new(&self.peer, &self.sender, panicked);
        let status = self.serve_client(&stream_loop).await;
        let is_late = status.code() == tonic::Code::DeadlineExceeded;
        self.sender.end(status);
        // One that was late to read takes no status either, as a rule. One that was late to send does, and is not cut.
        if is_late && timeout(PARTING, self.sender.gone()).await.is_err() {
            self.peer.cut_if_alone();
        }
    }

    async fn serve_client(&mut self, stream_loop: &StreamLoop<impl Fn() + Sync>) -> Status {
        let first = match self.inbound.first_by(&mut self.reader).await {
            Ok(Some(first)) => first,
            Ok(None) => return Status::ok(""),
            Err(status) => return status,
        };
        let node = match Node::read(first.node.as_ref()) {
            Ok(node) => self.hub.of_peer(&self.peer, node),
            Err(bad) => {
                let reason = match &bad {
                    BadNode::Malformed(_) => RefusalReason::Node,
                    BadNode::TooLarge(_) => RefusalReason::NodeSize,
                };
                let cause = bad.to_string();
                self.hub.refuse(&self.peer.address, reason, &cause);
                return Status::invalid_argument(cause);
            }
        };
        let trusted = self.hub.trust.checked();
        if let Err((reason, cause)) = identity::speaks_for(&self.peer, &node, trusted.as_ref()) {
            self.hub.refuse(&self.peer.address, reason, &cause);
            return Status::permission_denied(cause);
        }
        let kinds = &self.hub.kinds;
        let kind = match kinds.enter(&self.peer.address, &node) {
            Ok(kind) => kind,
            Err((reason, cause)) => {
                self.hub.refuse(&self.peer.address, reason, &cause);
                return Status::resource_exhausted(cause);
            }
        };
        for warning in &node.warnings {
            if let Some(more) = self.hub.log_rate_limiters.nodes.suffix_if_allowed() {
                warn!("{}: {warning}{more}", clipped(&node.id));
            }
        }
        let Some(snapshot) = first_snapshot(&self.hub, &self.sender, &node).await else {
            return Status::unavailable("server shutting down");
        };
        let view = snapshot.view(&node);
        // Kept over the await below, the first snapshot would live as long as the stream.
        drop(snapshot);
        let joined = self
            .hub
            .join(&node, &self.peer.address, self.protocol, view);
        joined.session.share_names(kind.names());
        self.serve_joined(stream_loop, joined, first).await
    }

    /// Serves a client that is known now, from its first request on.
    async fn serve_joined(
        &mut self,
        stream_loop: &StreamLoop<impl Fn() + Sync>,
        joined: StreamRegistration,
        first: Box<ClientRequest>,
    ) -> Status {
        self.reader.join(&joined.session);
        let mut stream = AdsProtocol::new(&self.hub, joined);
        stream.take_in(first).await;
        let end = stream_loop.run(&mut self.inbound, &mut self.reader, &mut stream);
        end.await.status
    }
}

/// Waits for the first snapshot. Returns `None` if the client leaves or the server stops.
async fn first_snapshot(hub: &Hub, sender: &ResponseSender, node: &Node) -> Option<Arc<Snapshot>> {
    tokio::select! {
        snapshot = hub.snapshot_for(node) => Some(snapshot),
        () = sender.gone() => None,
        () = hub.lifecycle.streams_end() => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use envoy_types::pb::envoy::config::core::v3 as core;
    use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
    use http_body_util::BodyExt as _;
    use hyper::body::Frame;
    use prost::Message as _;
    use tokio::time::Instant;
    use xds::reason::Reasons;
    use xds::stream::PushScope;
    use xds::view::{Resource, Set, Type, View};

    use super::*;
    use crate::discovery::grpc::BOUNDS;
    use crate::discovery::metrics::Gauges;
    use crate::discovery::session::{MAX_DEFERRED, PendingPush};
    use crate::discovery::testing::hub;
    use crate::discovery::wire::StateRequest;
    use crate::exposition::ExpositionFormat;
    use crate::grpc::{Address, AddressLimit, FromMessage as _, Messages, framed};

    /// A client's first message; the stream then stays open and silent.
    struct FirstMessageBody(Option<Bytes>);

    impl Body for FirstMessageBody {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.0.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Poll::Pending,
            }
        }
    }

    fn request(kind: Type) -> DiscoveryRequest {
        let node = core::Node {
            id: "sidecar~10.0.0.1~a.demo~demo.svc.cluster.local".to_owned(),
            ..core::Node::default()
        };
        DiscoveryRequest {
            node: Some(node),
            type_url: kind.url().to_owned(),
            ..DiscoveryRequest::default()
        }
    }

    fn clusters() -> Bytes {
        framed(&request(Type::Cluster)).into()
    }

    fn assert_counted(hub: &Hub, lines: &[&str]) {
        let text = hub.metrics.text(&Gauges::default(), ExpositionFormat::Text);
        for line in lines {
            assert!(text.contains(&format!("\n{line}\n")), "{line}\n{text}");
        }
    }

    /// A view that can make nothing but clusters.
    #[derive(Debug)]
    struct FailingView;

    impl View for FailingView {
        fn all(&self, kind: Type) -> Arc<Set> {
            assert_eq!(kind, Type::Cluster, "a mistake");
            Arc::default()
        }

        fn get(&self, _: Type, _: &str) -> Option<Arc<Resource>> {
            None
        }
    }

    fn stream(
        hub: &Arc<Hub>,
        first: Option<Bytes>,
    ) -> (AdsStream<FirstMessageBody>, Messages, Arc<Peer>) {
        let sender = Arc::new(ResponseSender::default());
        let outcome = Messages::new(&sender);
        let address = Address::Ip((Ipv4Addr::LOCALHOST, 1).into());
        let peer = Arc::new(Peer::new(address, None));
        let ads_stream = AdsStream {
            hub: Arc::clone(hub),
            sender,
            inbound: Inbound::new(FirstMessageBody(first), BOUNDS),
            _permit: AddressLimit::new("stream", 1).enter(&peer.address).unwrap(),
            peer: Arc::clone(&peer),
            protocol: Protocol::StateOfTheWorld,
            reader: StreamReader::new(Protocol::StateOfTheWorld),
        };
        (ads_stream, outcome, peer)
    }

    /// Thousands of them wait at a time.
    #[test]
    fn the_task_of_a_stream_has_two_kilobytes() {
        fn size<T, F>(_: fn(T) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = size(AdsStream::<hyper::body::Incoming>::run);
        assert!(bytes <= 2048, "{bytes}");
    }

    async fn status(mut messages: Messages) -> (tonic::Code, String) {
        loop {
            let frame = messages.frame().await.unwrap().unwrap();
            if let Ok(trailers) = frame.into_trailers() {
                let status = Status::from_header_map(&trailers).unwrap();
                return (status.code(), status.message().to_owned());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_closed_after_a_minute() {
        let hub = hub();
        let (ads_stream, messages, peer) = stream(&hub, Some(clusters()));
        let (other, mut reads, _) = stream(&hub, Some(clusters()));
        let begun = Instant::now();
        let task = tokio::spawn(ads_stream.run());
        let _other = tokio::spawn(other.run());
        assert!(reads.frame().await.unwrap().unwrap().is_data());
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!((hub.sessions.all().len(), peer.streams()), (2, 1));
        task.await.unwrap();
        assert_eq!(
            begun.elapsed().as_secs(),
            61,
            "the minute, and the offer of a reason"
        );
        assert_eq!((hub.sessions.all().len(), peer.streams()), (1, 0));
        peer.is_cut().await;
        assert_eq!(
            status(messages).await,
            (
                tonic::Code::DeadlineExceeded,
                "a response was not read for 60 s".to_owned()
            )
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_closed_after_ten_seconds() {
        let hub = hub();
        let (ads_stream, messages, _) = stream(&hub, None);
        let begun = Instant::now();
        let _task = tokio::spawn(ads_stream.run());
        let ended = status(messages).await;
        assert_eq!(ended.0, tonic::Code::DeadlineExceeded);
        assert_eq!(begun.elapsed().as_secs(), 10);
        assert!(hub.sessions.all().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_response_is_counted_and_the_stream_goes_on() {
        let hub = hub();
        let (mut ads_stream, mut messages, peer) = stream(&hub, Some(clusters()));
        let first = request(Type::Listener).encode_to_vec();
        let first = ClientRequest::from(StateRequest::from_message(first.into()).unwrap());
        let node = Arc::new(Node::read(first.node.as_ref()).unwrap());
        let protocol = Protocol::StateOfTheWorld;
        let joined = hub.join(&node, &peer.address, protocol, Arc::new(FailingView));
        let _task = tokio::spawn(async move {
            let stream_loop = StreamLoop::new(&ads_stream.peer, &ads_stream.sender, || ());
            ads_stream
                .serve_joined(&stream_loop, joined, Box::new(first))
                .await
        });
        assert!(messages.frame().await.unwrap().unwrap().is_data());
        assert_counted(
            &hub,
            &[
                "pilot_xds_pushes{type=\"cds\"} 1",
                "pilot_xds_pushes{type=\"lds_builderr\"} 1",
                "pilot_total_xds_internal_errors 1",
            ],
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_without_news_for_a_stream_is_no_push() {
        let hub = hub();
        let (ads_stream, mut reads, _) = stream(&hub, Some(clusters()));
        let _task = tokio::spawn(ads_stream.run());
        assert!(reads.frame().await.unwrap().unwrap().is_data());
        let session = Arc::clone(&hub.sessions.all()[0]);
        let put = |scope: PushScope| PendingPush {
            snapshot: hub.snapshot().unwrap(),
            scope,
            reasons: Reasons::default(),
            since: Duration::ZERO,
            put: Duration::ZERO,
        };
        let taken = async || {
            while session.has_pending() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        for _ in 0..=MAX_DEFERRED {
            session.enqueue(put(PushScope::Nothing));
        }
        taken().await;
        let counts = |count: u64| {
            let names = ["pilot_proxy_queue_time", "pilot_proxy_convergence_time"];
            let lines = names.map(|name| format!("{name}_count {count}"));
            assert_counted(&hub, &lines.each_ref().map(String::as_str));
        };
        counts(0);
        session.enqueue(put(PushScope::Full));
        taken().await;
        counts(1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_before_a_response_is_counted() {
        let hub = hub();
        let sent = "pilot_xds_pushes{type=\"cds\"} 1";
        for reads in [true, false] {
            let (ads_stream, mut messages, _) = stream(&hub, Some(clusters()));
            let task = tokio::spawn(ads_stream.run());
            if reads {
                // It goes before anybody has looked at what it took.
                assert!(messages.frame().await.unwrap().unwrap().is_data());
                assert_counted(&hub, &[sent]);
            } else {
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_counted(&hub, &["pilot_xds_pushes{type=\"cds\"} 2"]);
                let text = hub.metrics.text(&Gauges::default(), ExpositionFormat::Text);
                assert!(!text.contains("_senderr"), "{text}");
            }
            drop(messages);
            task.await.unwrap();
        }
        assert_counted(&hub, &["pilot_xds_pushes{type=\"cds_senderr\"} 1"]);
    }
}
