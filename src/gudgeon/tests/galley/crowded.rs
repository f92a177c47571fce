//! The webhook when many ask at once: what slow ones cost others, on the same connection, too; and what rubbish costs the log.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::place::{Galley, SOON, until};
use crate::support::{Client, JSON, client_config};
use crate::webhook::{address, place, review, service, trust};

/// Reviews that may be under way at a time, and connections for them: each has a hundred at most.
const REVIEWS: usize = 320;
const CONNECTIONS: usize = 4;

/// A body in parts, as a test has them.
struct Parts(UnboundedReceiver<Bytes>);

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.0.poll_recv(cx);
        part.map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}

async fn connect(galley: &Galley) -> SendRequest<Parts> {
    let socket = tokio::net::TcpStream::connect(address(galley)).await;
    let config = client_config(&trust(galley), &["h2"]);
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, socket.unwrap());
    let stream = TokioIo::new(stream.await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

/// A review that has begun, and its answer.
fn begin(
    sender: &SendRequest<Parts>,
    part: &[u8],
) -> (UnboundedSender<Bytes>, JoinHandle<(u16, String)>) {
    let (body_sender, parts) = unbounded_channel();
    body_sender.send(Bytes::copy_from_slice(part)).unwrap();
    let request = hyper::Request::post("https://localhost/validate?timeout=10s");
    let request = request.header("content-type", "application/json");
    let request = request.body(Parts(parts)).unwrap();
    let mut sender = sender.clone();
    let answer = tokio::spawn(async move {
        sender.ready().await.unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    });
    (body_sender, answer)
}

/// Returns when the server has begun the requests of this connection.
async fn arrived(sender: &SendRequest<Parts>) {
    let mut sender = sender.clone();
    // Earlier requests are sent as soon as their tasks have run once.
    tokio::task::yield_now().await;
    sender.ready().await.unwrap();
    let request = hyper::Request::get("https://localhost/ready").body(Parts(unbounded_channel().1));
    let answer = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_review_that_does_not_come_ends_alone() {
    let galley = place().start();
    let body = review("v1", &service(25));
    let (begun, rest) = body.split_at(100);
    let mut slow = Vec::new();
    // Many on one connection, as an API server has it.
    for _ in 0..CONNECTIONS {
        let sender = connect(&galley).await;
        slow.extend((0..REVIEWS / CONNECTIONS).map(|_| begin(&sender, begun)));
        arrived(&sender).await;
    }
    // Once all permits are taken, the first stalled request is evicted.
    let end = Instant::now() + SOON;
    while !slow.iter().any(|(_, answer)| answer.is_finished()) {
        assert!(Instant::now() < end, "nobody is told");
        let (last, answer) = begin(&connect(&galley).await, &body);
        drop(last);
        let answer = tokio::time::timeout(SOON, answer).await.unwrap().unwrap();
        assert!(matches!(answer.0, 200 | 429), "{}", answer.1);
    }
    let answers = slow.into_iter().map(|(body_sender, answer)| {
        // A rejected client no longer sends its body.
        let _gone = body_sender.send(Bytes::copy_from_slice(rest));
        answer
    });
    let mut statuses = Vec::new();
    for answer in answers.collect::<Vec<_>>() {
        let answer = tokio::time::timeout(SOON, answer).await.unwrap();
        statuses.push(answer.unwrap());
    }
    statuses.sort_unstable();
    let (rejected, others) = statuses.split_last().unwrap();
    let message = "too many requests: the body arrived too slowly\n";
    assert_eq!(*rejected, (429, message.to_owned()));
    for (status, text) in others {
        assert!(
            *status == 200 && text.contains("\"allowed\":true"),
            "{text}"
        );
    }
    let counted = "galley_validation_http_error{status=\"429\"}";
    let counted = galley.metric(counted).unwrap();
    assert!(counted >= 1.0, "{counted}");
}

#[test]
fn rubbish_fills_no_log_and_each_denied_object_has_its_line() {
    let galley = place().start();
    let mut client = Client::connect(address(&galley), &trust(&galley));
    let mut post = |body: &[u8]| {
        let answer = client.request("POST", "/validate", JSON, body).unwrap();
        assert_eq!(answer.json()["response"]["allowed"], false);
    };
    let denied = review("v1", &service(20));
    // All fields of this review are readable except for its object.
    let broken = String::from_utf8(denied.clone()).unwrap();
    let broken = broken.replace("\"weight\":20", "\"weight\":20,\"weight\":20");
    for _ in 0..100 {
        post(b"rubbish");
        post(b"{\"kind\": \"AdmissionReview\", \"request\": {}}");
    }
    for _ in 0..30 {
        post(&denied);
        post(broken.as_bytes());
    }
    let objects = "denied: networking.istio.io/v1alpha3 VirtualService shop/";
    until("a line for each", || {
        (galley.logged(objects) == 60).then_some(())
    });
    let lines = galley.logged("denied: what is no review, ");
    // Ten in a minute, and the machine may be slow.
    assert!((1..=50).contains(&lines), "{lines} lines");
}
