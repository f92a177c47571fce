//! The task of one connection, from the handshake to the shutdown.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;

use super::connection::{Connection, HEAD, LAST_HEAD, WireProtocol};
use super::frames::Frames;
use super::http2::{MAX_HEAD_BYTES, http2_builder};
use super::io::Io;
use super::{Answer, ConnectionAborted, Service, Shutdown};

/// The buffer of HTTP/1.1: more than a head, and little enough for each of the connections.
const BUFFER_BYTES: usize = 24 << 10;
/// The initial flow-control window of a connection, in bytes. Chosen: two streams fill it.
const CONNECTION_WINDOW: u32 = 128 << 10;
/// Requests of one HTTP/2 connection at a time: the least that RFC 9113, section 6.5.2, recommends; clients assume so many before they
/// receive the settings.
const MAX_STREAMS: u32 = 100;

/// A request in work; over when dropped, be it answered or given up.
#[derive(Debug)]
struct Work {
    connection: Arc<Connection>,
    /// An answer to the request establishes its client.
    establishes: bool,
}

impl Work {
    fn new(connection: &Arc<Connection>, establishes: bool) -> Self {
        connection.begin();
        Self {
            connection: Arc::clone(connection),
            establishes,
        }
    }

    fn over(self, answer: &Result<Answer, ConnectionAborted>) {
        let succeeds = |answer: &Answer| answer.status().is_success();
        if self.establishes && answer.as_ref().is_ok_and(succeeds) {
            self.connection.establish();
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.connection.end();
    }
}

/// Serves one connection until either side has enough of it.
pub(super) async fn run<S: Service>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    connection: Arc<Connection>,
    service: Arc<S>,
    shutdown: Shutdown,
) {
    tokio::select! {
        () = connection.left() => {}
        () = serve(stream, tls, &connection, service, shutdown) => {}
    }
}

async fn serve<S: Service>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    connection: &Arc<Connection>,
    service: Arc<S>,
    shutdown: Shutdown,
) {
    let Some(tls) = tls else {
        return http1(stream, connection, service, shutdown).await;
    };
    let mut end = shutdown.clone();
    // A handshake under way at shutdown has a second left: its client may have a request to send.
    let last = async {
        end.closing().await;
        tokio::time::sleep(LAST_HEAD).await;
    };
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(HEAD, tls.accept(stream)) => accepted,
        () = last => return,
    };
    let Ok(Ok(stream)) = accepted else {
        return;
    };
    connection.secured();
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2(stream, connection, service, shutdown).await;
    } else {
        http1(stream, connection, service, shutdown).await;
    }
}

async fn http1<S: Service, I: AsyncRead + AsyncWrite + Unpin>(
    stream: I,
    connection: &Arc<Connection>,
    service: Arc<S>,
    shutdown: Shutdown,
) {
    connection.speaks(WireProtocol::Http1);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // Its own clock runs while a connection is idle, too.
        .header_read_timeout(None)
        .max_header_size(MAX_HEAD_BYTES as usize)
        .max_buf_size(BUFFER_BYTES);
    let owner = Arc::clone(connection);
    let io = Io::new(stream, connection);
    let mut end = shutdown.clone();
    let http_connection = builder.serve_connection(
        io,
        service_fn(move |request| {
            let answer = answer(&service, &owner, request);
            let shutdown = shutdown.clone();
            async move {
                let mut answer = answer.await?;
                // A connection that closes under a request loses it: an API server repeats no POST. So kept ones are
                // closed by an answer, before listeners close.
                if shutdown.is_draining() {
                    let close = HeaderValue::from_static("close");
                    answer.headers_mut().insert(CONNECTION, close);
                }
                Ok::<_, ConnectionAborted>(answer)
            }
        }),
    );
    drive_until_end(
        http_connection,
        connection,
        end.closing(),
        http1::Connection::graceful_shutdown,
    )
    .await;
}

fn answer<S: Service>(
    service: &Arc<S>,
    owner: &Arc<Connection>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Answer, ConnectionAborted>> + use<S> {
    // The head is complete, so its deadline must end before the future is polled first.
    let work = Work::new(owner, service.establishes(&request));
    let (service, connection) = (Arc::clone(service), Arc::clone(owner));
    async move {
        // Each request takes a turn of the event loop, so that many in one packet do not block others.
        tokio::task::yield_now().await;
        let answer = service.answer(request, &connection).await;
        work.over(&answer);
        answer
    }
}

async fn http2<S: Service, I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: I,
    connection: &Arc<Connection>,
    service: Arc<S>,
    shutdown: Shutdown,
) {
    connection.speaks(WireProtocol::Http2(Frames::default()));
    let builder = http2_builder(CONNECTION_WINDOW, MAX_STREAMS);
    let owner = Arc::clone(connection);
    let io = Io::new(stream, connection);
    let http_connection = builder.serve_connection(
        io,
        service_fn(move |request| answer(&service, &owner, request)),
    );
    drive_until_end(
        http_connection,
        connection,
        http2_end(connection, shutdown),
        http2::Connection::graceful_shutdown,
    )
    .await;
}

/// Waits until an HTTP/2 client is told to go: once the process drains, so that its next request is another replica's. A client that has
/// come since has a request answered first: told to go before, it would come again.
async fn http2_end(connection: &Connection, mut shutdown: Shutdown) {
    let mut closing = shutdown.clone();
    let drained = async {
        shutdown.draining().await;
        // No waker is registered: a request begins only while the connection is polled, and this is polled after it.
        poll_fn(|_| match connection.has_begun() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    };
    tokio::select! {
        () = drained => {}
        () = closing.closing() => {}
    }
}

/// Polls a connection to its end, or to the deadline of a head; closes it gracefully when `end` is there: HTTP/2 sends GOAWAY, HTTP/1
/// ends with the request in work.
async fn drive_until_end<C, E>(
    http_connection: C,
    connection: &Arc<Connection>,
    end: impl Future<Output = ()>,
    shut_down: fn(Pin<&mut C>),
) where
    C: Future<Output = Result<(), E>>,
{
    let mut end = pin!(end);
    let mut http_connection = pin!(http_connection);
    let mut head_timeout = pin!(HeadTimeout::new(connection));
    let mut is_shutting_down = false;
    loop {
        tokio::select! {
            // The connection comes before its timeout: its bytes move the phase that the timeout reads.
            biased;
            // The result is the client's concern.
            _ended = http_connection.as_mut() => return,
            () = head_timeout.as_mut() => return,
            () = connection.finished(), if !is_shutting_down => {}
            () = end.as_mut(), if !is_shutting_down => {}
        }
        is_shutting_down = true;
        connection.hurry();
        shut_down(http_connection.as_mut());
    }
}

/// Ready when a head is late. The phase moves while the connection is polled, so it is asked each time.
struct HeadTimeout {
    connection: Arc<Connection>,
    sleep: Pin<Box<Sleep>>,
}

impl HeadTimeout {
    fn new(connection: &Arc<Connection>) -> Self {
        Self {
            connection: Arc::clone(connection),
            sleep: Box::pin(tokio::time::sleep(HEAD)),
        }
    }
}

impl Future for HeadTimeout {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.connection.deadline() else {
            // No waker is registered: the phase moves only while the connection is polled, and this is polled
            // after it.
            return Poll::Pending;
        };
        if self.sleep.deadline() != deadline {
            self.sleep.as_mut().reset(deadline);
        }
        self.sleep.as_mut().poll(cx)
    }
}
