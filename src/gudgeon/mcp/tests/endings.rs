//! The status of a stream that the peer has ended: the peer's own, whichever direction was closed first.

use std::pin::Pin;
use std::task::{Context, Poll};

use ::mcp::source::{Dialer, Source};
use bytes::Bytes;
use hyper::body::{Body, Frame};

use super::super::peers::Direction;
use super::super::sink_stream::{SinkStream, SourceObjects};
use super::super::source_stream::{SourceContext, SourceStream};
use super::super::wire::ResponsePieces;
use super::*;
use crate::grpc::{Address, Bounds, Inbound, Messages, Peer, ResponseSender};

/// An answer that was not read before the request was reset.
#[derive(Clone)]
enum Ending {
    Said(Code),
    Silent,
    Endless,
}

impl Body for Ending {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match *self {
            Self::Said(code) => Poll::Ready(Some(Err(Status::new(code, "")))),
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

async fn given(ending: Ending) -> Code {
    let peers = Peers::new("galley");
    let (_published, snapshots) = watch::channel(Snapshots::default());
    let (_stage, stage) = watch::channel(ShutdownStage::Serving);
    let peer = Arc::new(Peer::new(Address::Dialled("a:1".to_owned()), None));
    let source = Source::new(Arc::new(Collections::all()), Dialer::Source);
    let joined = peers.join(&peer, Direction::Callout, source, 1).unwrap();
    let giving = SourceStream {
        common: Arc::new(SourceContext {
            peers: Arc::clone(&peers),
            pieces: ResponsePieces::default(),
            snapshots,
            stage,
        }),
        joined,
        peer,
        inbound: inbound(ending),
        sender: reset(),
        access: None,
    };
    giving.run().await.0.code()
}

async fn taken(ending: Ending) -> Code {
    let taking = SinkStream {
        held: &SourceObjects::new("a", &[GATEWAYS.to_owned()], Arc::new(|_| {})),
        peers: &Peers::new("galley"),
        inbound: inbound(ending),
        sender: reset(),
        name: "a:1",
    };
    taking.run().await.0.code()
}

#[tokio::test(start_paused = true)]
async fn who_refuses_a_stream_and_resets_it_is_quoted() {
    let refusal = Ending::Said(Code::Unauthenticated);
    assert_eq!(given(refusal.clone()).await, Code::Unauthenticated);
    assert_eq!(taken(refusal).await, Code::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn who_goes_without_a_word_is_not_waited_for() {
    for ending in [Ending::Silent, Ending::Endless] {
        assert_eq!(given(ending.clone()).await, Code::Cancelled);
        assert_eq!(taken(ending).await, Code::Unavailable);
    }
}
