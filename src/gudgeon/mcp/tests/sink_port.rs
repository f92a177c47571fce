//! Sources that dial: their bounds, the turns of their streams, and the file of the socket.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpStream, UnixStream};
use tonic::transport::Endpoint;

use super::super::socket::Socket;
use super::*;
use crate::grpc::prefix;

/// Sends these bytes, and does not end.
struct Unfinished(Option<Bytes>);

impl Body for Unfinished {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

async fn open(connection: &mut SendRequest<Unfinished>, bytes: Vec<u8>) -> Incoming {
    let request =
        Request::post("http://localhost/istio.mcp.v1alpha1.ResourceSink/EstablishResourceStream")
            .header("content-type", "application/grpc")
            .header("te", "trailers");
    let body = Unfinished(Some(bytes.into()));
    let answer = connection.send_request(request.body(body).unwrap());
    let answer: Response<_> = tokio::time::timeout(SOON, answer).await.unwrap().unwrap();
    answer.into_body()
}

/// The code with which the stream ends.
async fn end(mut answer: Incoming) -> Code {
    loop {
        let frame = answer.frame().await.unwrap().unwrap();
        if let Ok(trailers) = frame.into_trailers() {
            return Status::from_header_map(&trailers).unwrap().code();
        }
    }
}

fn takes(settings: McpServerSettings, sources: &Arc<DialledSources>) -> (u16, Served) {
    let server = McpServer::new(settings).unwrap();
    let port = server.port().unwrap_or_default();
    let open = server.is_open();
    let (stage, watched) = Shutdown::channel();
    let serves = server.take(Arc::clone(sources), Peers::new("pilot"), watched);
    let task = tokio::spawn(serves);
    (port, Served { stage, open, task })
}

struct Served {
    stage: watch::Sender<ShutdownStage>,
    open: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

fn sources() -> Arc<DialledSources> {
    DialledSources::new("me", &[GATEWAYS.to_owned()], Arc::new(|_| {}))
}

/// Streams that sources dial used to have no bound of unfinished messages: 64 of 4 MiB each, for as long as their clients liked.
#[tokio::test]
async fn unfinished_messages_of_a_source_that_dials_are_bounded() {
    let (port, mut served) = takes(settings(), &sources());
    served.open.wait_for(|open| *open).await.unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut connection, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(driver);
    // Together they are longer than one message may be.
    let mut begin = prefix(900 << 10).to_vec();
    begin.resize(600 << 10, 0);
    let one = open(&mut connection, begin.clone()).await;
    let other = open(&mut connection, begin).await;
    let refused = async {
        tokio::select! {
            code = end(one) => code,
            code = end(other) => code,
        }
    };
    let refused = tokio::time::timeout(SOON, refused).await;
    assert_eq!(
        refused.expect("neither is refused"),
        Code::ResourceExhausted
    );
    served.task.abort();
}

/// A long response of one stream used to stop the event loop as soon as another stream of the source had anything to do.
#[tokio::test]
async fn a_stream_waits_for_its_turn_at_the_objects_and_the_loop_goes_on() {
    let sources = sources();
    let (port, mut served) = takes(settings(), &sources);
    served.open.wait_for(|open| *open).await.unwrap();
    // As a thread has them that reads a long response.
    let turn = sources.all()[0].sink().await;
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    let mut source = Source::dial(&endpoint.connect().await.unwrap())
        .await
        .unwrap();
    assert!(source.is_quiet().await);
    drop(turn);
    assert_eq!(source.next().await.collection, GATEWAYS);
    served.task.abort();
}

/// The port closes while its streams end. A server that begins meanwhile used to lose its file to the one that ends.
#[tokio::test]
async fn a_successor_keeps_its_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("sink");
    let address = format!("unix://{}", path.display());
    let settings = McpServerSettings {
        address: address.clone(),
        ..settings()
    };
    let (_, mut served) = takes(settings, &sources());
    served.open.wait_for(|open| *open).await.unwrap();
    // A client without a stream holds up the end for a second.
    let mut client = UnixStream::connect(&path).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    tokio::io::AsyncWriteExt::write_all(&mut client, preface)
        .await
        .unwrap();
    served.stage.send_replace(ShutdownStage::Closing);
    let mut successor = None;
    until("the port closes", || {
        successor = Socket::reserve("x", &address).ok();
        successor.is_some()
    })
    .await;
    let ended = tokio::time::timeout(SOON, served.task).await;
    ended.expect("it ends").unwrap();
    assert!(path.exists());
    UnixStream::connect(&path).await.unwrap();
    drop(successor);
    assert!(!path.exists());
}
