//! A client that floods its stream is read more slowly, and other clients do not notice.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::grpc::{Bounds, Inbound, framed};

/// Requests that are sent at once, one stream after the other: the first thousand of each are processed. As much as fits is
/// buffered: the rest of the first stream's waits for its window. Buffering the others' would exceed the connection's.
const REQUESTS: [usize; 6] = [5_000, 2_000, 2_000, 2_000, 2_000, 2_000];

/// Each message is a frame of its own: tonic's client would make large ones of many.
struct Said(UnboundedReceiver<RequestResources>);

impl Body for Said {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|message| {
            let message = message?;
            Some(Ok(Frame::data(framed(&message).into())))
        })
    }
}

struct Talk {
    requests: UnboundedSender<RequestResources>,
    responses: Inbound<hyper::body::Incoming>,
}

impl Talk {
    async fn open(connection: &mut SendRequest<Said>) -> Self {
        let (requests, to) = unbounded_channel();
        let request = Request::post(
            "http://localhost/istio.mcp.v1alpha1.ResourceSource/EstablishResourceStream",
        )
        .header("content-type", "application/grpc")
        .header("te", "trailers");
        let answer = connection.send_request(request.body(Said(to)).unwrap());
        let answer: Response<_> = tokio::time::timeout(SOON, answer).await.unwrap().unwrap();
        let bounds = Bounds {
            bytes: 4 << 20,
            beyond: Code::OutOfRange,
            values: 1000,
        };
        Self {
            requests,
            responses: Inbound::new(answer.into_body(), bounds),
        }
    }

    fn ask(&self, collection: &str, nonce: &str) {
        let request = RequestResources {
            collection: collection.to_owned(),
            response_nonce: nonce.to_owned(),
            ..RequestResources::default()
        };
        self.requests.send(request).unwrap();
    }

    async fn next(&mut self) -> Resources {
        let received = tokio::time::timeout(SOON, self.responses.next()).await;
        received.expect("waited in vain").unwrap().unwrap()
    }
}

#[tokio::test]
async fn five_thousand_requests_at_once_are_read_at_the_pace_and_end_no_stream() {
    let mut server = Running::start(settings());
    server.publish();
    server.open.wait_for(|open| *open).await.unwrap();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", server.port)).await;
    let stream = TokioIo::new(stream.unwrap());
    let (mut connection, driver) = http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    tokio::spawn(driver);
    let mut neighbour = Talk::open(&mut connection).await;
    let begun = std::time::Instant::now();
    let mut hasty = Vec::new();
    for count in REQUESTS {
        let mut stream = Talk::open(&mut connection).await;
        stream.ask(GATEWAYS, "");
        stream.next().await;
        for _ in 0..count {
            stream.ask(GATEWAYS, "of no response");
        }
        stream.ask(ENTRIES, "");
        hasty.push(stream);
        neighbour.ask(ENTRIES, "");
        assert_eq!(neighbour.next().await.collection, ENTRIES);
    }
    let (mut first, others) = (hasty.remove(0), hasty);
    for mut stream in others {
        assert_eq!(stream.next().await.collection, ENTRIES);
    }
    assert_eq!(first.next().await.collection, ENTRIES);
    // The second in which they began may have been over in a moment.
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(3), "{took:?}");
    neighbour.ask(GATEWAYS, "");
    assert_eq!(neighbour.next().await.collection, GATEWAYS);
}
