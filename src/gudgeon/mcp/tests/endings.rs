//! The status of a stream that the peer has ended: the peer's own, whichever direction was closed first.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::mcp::source::{Dialer, Source};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame};

use super::super::peers::Direction;
use super::super::sink_stream::SinkStream;
use super::super::source_stream::{SourceContext, SourceStream};
use super::super::wire::ResponsePieces;
use super::*;
use crate::grpc::{Address, Bounds, Inbound, Messages, Peer, ResponseSender, framed};

/// An answer that was not read before the request was reset.
#[derive(Clone)]
enum Ending {
    Status(Code),
    Silent,
    Endless,
    /// Messages, and then the peer's status.
    After(VecDeque<Vec<u8>>, Code),
}

impl Body for Ending {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match &mut *self {
            Self::After(messages, code) => Poll::Ready(Some(match messages.pop_front() {
                Some(message) => Ok(Frame::data(message.into())),
                None => Err(Status::new(*code, "")),
            })),
            Self::Status(code) => Poll::Ready(Some(Err(Status::new(*code, "")))),
            Self::Silent => Poll::Pending,
            Self::Endless => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 1024]))))),
        }
    }
}

fn inbound(ending: Ending) -> Inbound<Ending> {
    let bounds = Bounds {
        bytes: 1 << 20,
        beyond: Code::ResourceExhausted,
        values: 1000,
    };
    Inbound::new(ending, bounds)
}

/// A sender without a receiver, as after a reset.
fn reset() -> Arc<ResponseSender> {
    let sender = Arc::new(ResponseSender::default());
    drop(Messages::of_request(&sender));
    sender
}

/// A sender whose messages are written.
fn open() -> Arc<ResponseSender> {
    let sender = Arc::new(ResponseSender::default());
    let mut messages = Messages::of_request(&sender);
    tokio::spawn(async move { while messages.frame().await.is_some() {} });
    sender
}

async fn source_end(ending: Ending, sender: Arc<ResponseSender>) -> (Code, bool) {
    source_end_of(&Peers::new("galley"), ending, sender).await
}

/// The end of a source's stream, among those of these peers.
async fn source_end_of(
    peers: &Arc<Peers>,
    ending: Ending,
    sender: Arc<ResponseSender>,
) -> (Code, bool) {
    let (_published, snapshots) = watch::channel(Snapshots::default());
    let (_stage, shutdown) = Shutdown::channel();
    let peer = Arc::new(Peer::new(Address::Dialled("a:1".to_owned()), None));
    let source = Source::new(Arc::new(Collections::all()), Dialer::Source);
    let joined = peers.join(&peer, Direction::Dialled, source, 1).unwrap();
    let stream = SourceStream {
        common: Arc::new(SourceContext {
            peers: Arc::clone(peers),
            pieces: ResponsePieces::default(),
            snapshots,
            shutdown,
        }),
        joined,
        peer,
        inbound: inbound(ending),
        sender,
        access: None,
    };
    let (status, is_good) = stream.run().await;
    (status.code(), is_good)
}

async fn sink_end(ending: Ending, sender: Arc<ResponseSender>) -> (Code, bool) {
    let stream = SinkStream {
        objects: SourceObjects::new("a", &[GATEWAYS.to_owned()], Arc::new(|_| {})),
        peers: Peers::new("galley"),
        inbound: inbound(ending),
        sender,
        peer: Arc::new(Peer::new(Address::Dialled("a:1".to_owned()), None)),
        access: None,
        shutdown: None,
        _slot: None,
    };
    let (status, is_good) = stream.run().await;
    (status.code(), is_good)
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_reset_stream_is_quoted() {
    let refusal = Ending::Status(Code::Unauthenticated);
    let ended = (Code::Unauthenticated, false);
    assert_eq!(source_end(refusal.clone(), reset()).await, ended);
    assert_eq!(sink_end(refusal, reset()).await, ended);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_leaves_without_a_status_is_not_awaited() {
    for ending in [Ending::Silent, Ending::Endless] {
        let end = source_end(ending.clone(), reset()).await;
        assert_eq!(end, (Code::Cancelled, false));
        assert_eq!(sink_end(ending, reset()).await, (Code::Unavailable, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_written_is_counted() {
    let failures = |peers: &Peers| {
        let labels = "{component=\"galley\"}";
        ["send", "recv"]
            .map(|what| metric(peers, &format!("istio_mcp_{what}_failures_total{labels}")))
    };
    let peers = Peers::new("galley");
    // A sender that nobody reads keeps the trigger.
    let unread = Arc::new(ResponseSender::default());
    let messages = Messages::of_request(&unread);
    for count in [1.0, 2.0] {
        let refusal = Ending::Status(Code::Unavailable);
        let (code, _) = source_end_of(&peers, refusal, Arc::clone(&unread)).await;
        assert_eq!(code, Code::Unavailable);
        assert_eq!(failures(&peers), [count, count]);
    }
    drop(messages);
}

/// The bytes of a message that announces itself to be longer than is taken.
fn too_long() -> Vec<u8> {
    vec![0, 0xff, 0, 0, 0]
}

/// A lasting refusal of ours is not tried five times a second for ever: the backoff begins anew only where the peer ended it.
#[tokio::test(start_paused = true)]
async fn a_stream_counts_as_good_unless_this_side_ended_it() {
    let response = || {
        framed(&Resources {
            collection: GATEWAYS.to_owned(),
            nonce: "1".to_owned(),
            ..Resources::default()
        })
    };
    let request = || {
        framed(&RequestResources {
            collection: GATEWAYS.to_owned(),
            ..RequestResources::default()
        })
    };
    let no_nonce = framed(&Resources {
        collection: GATEWAYS.to_owned(),
        ..Resources::default()
    });
    let unknown = framed(&RequestResources {
        collection: "none".to_owned(),
        ..RequestResources::default()
    });
    let unread = vec![0, 0, 0, 0, 1, 0xff];
    for (second, code, is_good) in [
        (None, Code::Unavailable, true),
        (Some(too_long()), Code::ResourceExhausted, false),
        (Some(unread.clone()), Code::InvalidArgument, false),
        (Some(no_nonce), Code::InvalidArgument, false),
    ] {
        let messages = std::iter::once(response()).chain(second).collect();
        let ending = Ending::After(messages, Code::Unavailable);
        assert_eq!(sink_end(ending, open()).await, (code, is_good));
    }
    for (second, code, is_good) in [
        (None, Code::Unavailable, true),
        (Some(too_long()), Code::ResourceExhausted, false),
        (Some(unread), Code::InvalidArgument, false),
        (Some(unknown), Code::InvalidArgument, false),
    ] {
        let messages = std::iter::once(request()).chain(second).collect();
        let ending = Ending::After(messages, Code::Unavailable);
        assert_eq!(source_end(ending, open()).await, (code, is_good));
    }
}
