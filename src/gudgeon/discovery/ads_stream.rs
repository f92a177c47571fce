//! One stream's task: it is woken by a request, a push, a deadline, or when its writer is free, and each time moves the
//! stream on by one step.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use bytes::Bytes;
use hyper::body::Body;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tonic::Status;
use tracing::{error, info, warn};
use xds::node::{BadNode, Node, clipped};
use xds::resource_names::ResourceNames;
use xds::snapshot::Snapshot;
use xds::stream::{Fault, Protocol, RequestOutcome, Stall, Stream};
use xds::view::{Type, View};

use super::hub::{Hub, LARGE, StreamRegistration};
use super::identity;
use super::refused_streams::RefusalReason;
use super::request_reader::StreamReader;
use super::session::{PendingPush, PushOutcome};
use super::wire::{self, ClientRequest};
use crate::grpc::{AddressPermit, BodyError, Inbound, Peer, ResponseSender};

/// Time for which an unread response holds a push permit. Chosen: a client that reads needs milliseconds.
const HOLD: Duration = Duration::from_secs(1);
/// Time for which the reason is offered to a client that was closed because it does not read. Chosen: one round trip to any site.
const PARTING: Duration = Duration::from_secs(1);
/// The number of log lines that a stream's unknown types get.
const UNKNOWN: u64 = 1;

/// One ADS stream: its client, its permit and its protocol.
pub(super) struct AdsStream<B> {
    pub(super) hub: Arc<Hub>,
    pub(super) sender: Arc<ResponseSender>,
    pub(super) inbound: Inbound<B>,
    pub(super) peer: Arc<Peer>,
    /// Among the streams of its address.
    pub(super) _permit: AddressPermit,
    pub(super) protocol: Protocol,
    pub(super) reader: StreamReader,
}

/// Ends the stream with INTERNAL if the task panics.
struct PanicGuard {
    sender: Arc<ResponseSender>,
    hub: Arc<Hub>,
    peer: Arc<Peer>,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        self.peer.closes();
        if std::thread::panicking() {
            self.hub.metrics.panicked();
            self.sender.end(Status::internal(
                "internal error; the stream ended, see the log",
            ));
        }
    }
}

impl<B> AdsStream<B>
where
    B: Body<Data = Bytes, Error: BodyError> + Send + Unpin + 'static,
{
    /// Runs the stream to its end.
    pub(super) async fn run(mut self) {
        self.peer.opens();
        let _guard = PanicGuard {
            sender: Arc::clone(&self.sender),
            hub: Arc::clone(&self.hub),
            peer: Arc::clone(&self.peer),
        };
        let status = self.serve().await;
        let unread = status.code() == tonic::Code::DeadlineExceeded;
        self.sender.end(status);
        if unread && !self.is_left().await {
            self.peer.cut_if_alone();
        }
    }

    /// Returns true if the client goes by itself within [`PARTING`].
    async fn is_left(&self) -> bool {
        let left = async {
            while !self.sender.is_gone() {
                self.sender.moved().await;
            }
        };
        timeout(PARTING, left).await.is_ok()
    }

    async fn serve(&mut self) -> Status {
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
        let _kind = match kinds.enter(&self.peer.address, &node) {
            Ok(kind) => kind,
            Err(cause) => {
                self.hub
                    .refuse(&self.peer.address, RefusalReason::Kinds, &cause);
                return Status::resource_exhausted(cause);
            }
        };
        for warning in &node.warnings {
            if let Some(more) = self.hub.log_rate_limiters.nodes.suffix_if_allowed() {
                warn!("{}: {warning}{more}", clipped(&node.id));
            }
        }
        let Some(snapshot) = self.wait(&node).await else {
            return Status::unavailable("server shutting down");
        };
        let view = snapshot.view(&node);
        drop(snapshot);
        let joined = self
            .hub
            .join(&node, &self.peer.address, self.protocol, view);
        JoinedStream::new(self, joined).run(first).await
    }

    /// Waits for the first snapshot. Returns `None` if the client leaves or the server stops.
    async fn wait(&self, node: &Node) -> Option<Arc<Snapshot>> {
        let gone = async {
            while !self.sender.is_gone() {
                self.sender.moved().await;
            }
        };
        tokio::select! {
            snapshot = self.hub.snapshot_for(node) => Some(snapshot),
            () = gone => None,
            () = self.hub.lifecycle.streams_end() => None,
        }
    }
}

/// A stream whose node is known.
struct JoinedStream<'a, B> {
    hub: &'a Arc<Hub>,
    sender: &'a ResponseSender,
    inbound: &'a mut Inbound<B>,
    reader: &'a mut StreamReader,
    joined: StreamRegistration,
    /// A response that is not written yet.
    writing: Option<Type>,
    push: Option<(PendingPush, PushPermit)>,
    /// When the first change came up of the pushes that the client does not have as a whole yet.
    converging: Option<Duration>,
    unknown: u64,
}

/// The right to begin with a push.
struct PushPermit {
    permit: Option<OwnedSemaphorePermit>,
    until: Duration,
}

enum Event {
    Asked(Box<ClientRequest>),
    End(Status),
    PushPermit(Option<OwnedSemaphorePermit>),
    Look,
}

impl<'a, B> JoinedStream<'a, B>
where
    B: Body<Data = Bytes, Error: BodyError> + Send + Unpin + 'static,
{
    fn new(ads_stream: &'a mut AdsStream<B>, joined: StreamRegistration) -> Self {
        ads_stream.reader.join(&joined.session);
        Self {
            hub: &ads_stream.hub,
            sender: &ads_stream.sender,
            inbound: &mut ads_stream.inbound,
            reader: &mut ads_stream.reader,
            joined,
            writing: None,
            push: None,
            converging: None,
            unknown: 0,
        }
    }

    async fn run(mut self, first: ClientRequest) -> Status {
        let mut event = Event::Asked(Box::new(first));
        loop {
            let done = match event {
                Event::Asked(asked) => {
                    self.make_ahead(&asked).await;
                    self.receive(&asked)
                }
                Event::End(status) => Err(status),
                Event::PushPermit(permit) => {
                    self.open(permit);
                    self.make_pushed().await;
                    Ok(())
                }
                Event::Look => Ok(()),
            };
            if let Err(status) = done.and_then(|()| self.step()) {
                // A response that went out whole is no error, though `step` has not noticed yet.
                if let Some(kind) = self.writing
                    && !self.sender.is_free()
                {
                    self.hub.metrics.unsent(kind);
                }
                return status;
            }
            event = self.event().await;
        }
    }

    /// Has made beside the loop what the answer will have, where that is much.
    async fn make_ahead(&self, asked: &ClientRequest) {
        let Some(request) = &asked.request else {
            return;
        };
        let news = |stream: &Stream| (!stream.repeats(request)).then(|| Arc::clone(stream.view()));
        let Some(view) = self.joined.session.with_stream(news) else {
            return;
        };
        if view.unmade(request.kind, &request.names) < LARGE {
            return;
        }
        self.make_beside(view, vec![(request.kind, request.names.clone())])
            .await;
    }

    /// Builds the pushed resources off the loop, unless the snapshot already built them for this kind of proxy.
    async fn make_pushed(&self) {
        let session = &self.joined.session;
        let Some((pending, _)) = &self.push else {
            return;
        };
        if pending.snapshot.is_ahead(&session.node) {
            return;
        }
        let (view, asked) = session.with_stream(|stream| {
            let concerned = stream.concerned(&pending.scope);
            (Arc::clone(stream.view()), concerned)
        });
        self.make_beside(view, asked).await;
    }

    async fn make_beside(&self, view: Arc<dyn View>, asked: Vec<(Type, ResourceNames)>) {
        let unmade = asked.iter().map(|(kind, names)| view.unmade(*kind, names));
        let size = unmade.fold(0, usize::saturating_add);
        if size < LARGE {
            return;
        }
        let make = move || {
            asked
                .iter()
                .for_each(|(kind, names)| view.make_ahead(*kind, names));
        };
        // What cannot be made is found again, and counted, by the stream.
        let make = move || catch_unwind(AssertUnwindSafe(make)).is_ok();
        let _made = self.hub.blocking.run(size, make).await;
    }

    fn receive(&mut self, asked: &ClientRequest) -> Result<(), Status> {
        let session = &self.joined.session;
        let id = clipped(&session.node.id);
        let Some(request) = &asked.request else {
            self.unknown += 1;
            self.hub.metrics.unknown_type();
            if self.unknown == UNKNOWN
                && let Some(more) = self.hub.log_rate_limiters.unknown.suffix_if_allowed()
            {
                let url = clipped(&asked.url);
                info!("{id} requests {url:?}, which is not served{more}");
            }
            return Ok(());
        };
        let outcome = match session.receive(self.hub.clock.now(), request) {
            Ok(outcome) => outcome,
            Err(fault) => return Err(self.end_stream(fault)),
        };
        match outcome {
            RequestOutcome::Nacked(times) => {
                self.hub.metrics.nacked(request.kind);
                if should_log_repeat(times)
                    && let Some(more) = self.hub.log_rate_limiters.nacks.suffix_if_allowed()
                {
                    let message = request.error.as_deref().unwrap_or_default();
                    let made = match session
                        .with_stream(|stream| stream.nacked_rules_text(request.kind, 5))
                    {
                        made if made.is_empty() => made,
                        made => format!(" ({made})"),
                    };
                    warn!(
                        "{id} refuses {}: {}{made}{repeated}{more}",
                        request.kind.as_str(),
                        one_line(message),
                        repeated = api::times(times)
                    );
                }
            }
            RequestOutcome::Expired => self.hub.metrics.expired(request.kind),
            RequestOutcome::Subscribed | RequestOutcome::Acked | RequestOutcome::Asked => {}
        }
        Ok(())
    }

    /// Ends a stream that names what it may not. Responses that can be made are on their way before.
    fn end_stream(&mut self, fault: Fault) -> Status {
        let cause = fault.to_string();
        let session = &self.joined.session;
        self.hub.refuse(&session.peer, RefusalReason::Names, &cause);
        if let Err(status) = self.step() {
            return status;
        }
        match fault {
            Fault::TooManyNames(_) => Status::resource_exhausted(cause),
            Fault::UnknownNames | Fault::LongName(_) => Status::invalid_argument(cause),
        }
    }

    /// Does all that can be done now.
    fn step(&mut self) -> Result<(), Status> {
        if self.sender.is_gone() {
            return Err(Status::cancelled("the client is gone"));
        }
        let session = &self.joined.session;
        let now = self.hub.clock.now();
        match session.stall(now) {
            Some(Stall::Slow) => {
                self.hub.metrics.write_timed_out();
                if let Some(more) = self.hub.log_rate_limiters.slow.suffix_if_allowed() {
                    let id = clipped(&session.node.id);
                    warn!("{id} does not read its responses{more}");
                }
            }
            Some(Stall::Closed) => {
                return Err(Status::deadline_exceeded(
                    "a response was not read for 60 s",
                ));
            }
            None => {}
        }
        if !self.sender.is_free() {
            if let Some((_, turn)) = &mut self.push
                && turn.until <= now
            {
                turn.permit = None;
            }
            return Ok(());
        }
        if self.writing.take().is_some() {
            session.written();
        }
        let response = session.next(now);
        self.unmade(&self.joined.session.take_unmade());
        if let Some(response) = response {
            self.writing = Some(response.kind);
            let message = wire::encode(session.protocol, &response, &self.hub.pieces);
            self.sender.put(message);
            let took = self.hub.clock.now().saturating_sub(now);
            self.hub.sent(response.kind, took);
        } else if let Some((pending, _)) = self.push.take() {
            // Its permit goes to another stream: what this one still owes follows the client's answers.
            let since = self.converging.unwrap_or(pending.since);
            self.converging = Some(since.min(pending.since));
        }
        let session = &self.joined.session;
        if self.push.is_none() && !session.with_stream(Stream::is_pending) {
            let since = self.converging.take();
            let took = since.map(|since| now.saturating_sub(since));
            took.inspect(|took| self.hub.metrics.converged(*took));
        }
        Ok(())
    }

    /// Logs kinds that failed to build by a panic. The panic costs one proxy one push.
    fn unmade(&self, kinds: &BTreeSet<Type>) {
        for kind in kinds {
            self.hub.metrics.unmade(*kind);
            let (id, type_name) = (clipped(&self.joined.session.node.id), kind.as_str());
            error!("cannot build {type_name} for {id}: internal error; its last version stays");
        }
    }

    /// Its turn has come: it looks at what was posted.
    fn open(&mut self, permit: Option<OwnedSemaphorePermit>) {
        let now = self.hub.clock.now();
        let Some((pending, made)) = self.joined.session.take_pending() else {
            return;
        };
        if made == PushOutcome::Nothing {
            return self.unmade(&self.joined.session.subscribed_types());
        }
        if pending.is_nothing() {
            return;
        }
        self.hub.metrics.queued(now.saturating_sub(pending.put));
        let until = now + HOLD;
        self.push = Some((pending, PushPermit { permit, until }));
    }

    async fn event(&mut self) -> Event {
        let session = &self.joined.session;
        let free = self.sender.is_free();
        let wants_turn = free && session.has_pending() && self.push.is_none();
        let mut deadline = session.deadline();
        if let Some((_, turn)) = &self.push
            && turn.permit.is_some()
        {
            deadline = Some(deadline.map_or(turn.until, |at| at.min(turn.until)));
        }
        let due = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(self.hub.clock.instant(at)).await,
                None => std::future::pending().await,
            }
        };
        let turn = Arc::clone(&self.hub.throttle).acquire_owned();
        // What can be written is written before more is heard of.
        if free && self.writing.is_some() {
            return Event::Look;
        }
        tokio::select! {
            asked = self.inbound.next_by(self.reader) => match asked {
                Ok(Some(asked)) => Event::Asked(Box::new(asked)),
                Ok(None) => Event::End(Status::ok("")),
                Err(status) => Event::End(status),
            },
            permit = turn, if wants_turn => Event::PushPermit(permit.ok()),
            () = self.sender.moved() => Event::Look,
            () = session.woken.notified() => Event::Look,
            () = due => Event::Look,
            () = self.hub.lifecycle.streams_end() => Event::End(Status::unavailable("server shutting down")),
        }
    }
}

/// As much of a client's words as a log line has room for, in one line.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    clipped(&line).to_owned()
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
    use xds::view::{Resource, Set};

    use super::*;
    use crate::discovery::grpc::BOUNDS;
    use crate::discovery::metrics::Gauges;
    use crate::discovery::session::{MAX_DEFERRED, nothing};
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
        says: Option<Bytes>,
    ) -> (AdsStream<FirstMessageBody>, Messages, Arc<Peer>) {
        let sender = Arc::new(ResponseSender::default());
        let outcome = Messages::new(&sender);
        let address = Address::Ip((Ipv4Addr::LOCALHOST, 1).into());
        let peer = Arc::new(Peer::new(address, None));
        let ads_stream = AdsStream {
            hub: Arc::clone(hub),
            sender,
            inbound: Inbound::new(FirstMessageBody(says), BOUNDS),
            _permit: AddressLimit::new("stream", 1).enter(&peer.address).unwrap(),
            peer: Arc::clone(&peer),
            protocol: Protocol::StateOfTheWorld,
            reader: StreamReader::new(Protocol::StateOfTheWorld),
        };
        (ads_stream, outcome, peer)
    }

    async fn status(mut response: Messages) -> (tonic::Code, String) {
        loop {
            let frame = response.frame().await.unwrap().unwrap();
            if let Ok(trailers) = frame.into_trailers() {
                let status = Status::from_header_map(&trailers).unwrap();
                return (status.code(), status.message().to_owned());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_closed_after_a_minute() {
        let hub = hub();
        let (ads_stream, response, peer) = stream(&hub, Some(clusters()));
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
            status(response).await,
            (
                tonic::Code::DeadlineExceeded,
                "a response was not read for 60 s".to_owned()
            )
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_closed_after_ten_seconds() {
        let hub = hub();
        let (ads_stream, response, _) = stream(&hub, None);
        let begun = Instant::now();
        let _task = tokio::spawn(ads_stream.run());
        let ended = status(response).await;
        assert_eq!(ended.0, tonic::Code::DeadlineExceeded);
        assert_eq!(begun.elapsed().as_secs(), 10);
        assert!(hub.sessions.all().is_empty());
    }

    /// Envoy says each resource that it refuses on a line of its own.
    #[test]
    fn a_refusal_is_one_line_of_the_log() {
        let message = "Error adding/updating listener(s) a: no file\nb: no port\r\n";
        let line = "Error adding/updating listener(s) a: no file b: no port";
        assert_eq!(
            (one_line(message).as_str(), one_line("")),
            (line, String::new())
        );
        assert!((200..=256).contains(&one_line(&"é\n".repeat(2000)).len()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_response_is_counted_and_the_stream_goes_on() {
        let hub = hub();
        let (mut ads_stream, mut response, peer) = stream(&hub, Some(clusters()));
        let first = request(Type::Listener).encode_to_vec();
        let first = ClientRequest::from(StateRequest::from_message(first.into()).unwrap());
        let node = Arc::new(Node::read(first.node.as_ref()).unwrap());
        let protocol = Protocol::StateOfTheWorld;
        let joined = hub.join(&node, &peer.address, protocol, Arc::new(FailingView));
        let _task = tokio::spawn(async move {
            let joined_stream = JoinedStream::new(&mut ads_stream, joined);
            joined_stream.run(first).await
        });
        assert!(response.frame().await.unwrap().unwrap().is_data());
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
            session.enqueue_without_wake(put(nothing()));
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
            let (ads_stream, mut response, _) = stream(&hub, Some(clusters()));
            let task = tokio::spawn(ads_stream.run());
            if reads {
                // It goes before anybody has looked at what it took.
                assert!(response.frame().await.unwrap().unwrap().is_data());
                assert_counted(&hub, &[sent]);
            } else {
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_counted(&hub, &["pilot_xds_pushes{type=\"cds\"} 2"]);
                let text = hub.metrics.text(&Gauges::default(), ExpositionFormat::Text);
                assert!(!text.contains("_senderr"), "{text}");
            }
            drop(response);
            task.await.unwrap();
        }
        assert_counted(&hub, &["pilot_xds_pushes{type=\"cds_senderr\"} 1"]);
    }
}
