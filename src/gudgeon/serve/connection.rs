//! One connection, from the handshake to the farewell.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::ReadBufCursor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

use super::crowd::Place;
use super::{Service, Stage};

/// For the handshake, and from the first byte of a head to its last; for the first head: since the handshake.
const HEAD: Duration = Duration::from_secs(5);
/// Longest request head.
const HEAD_BYTES: u32 = 16 << 10;
/// What HTTP/1.1 reads ahead: more than a head, and little enough for each of the connections.
const BUFFER_BYTES: usize = 32 << 10;
/// What HTTP/2 takes in before it was asked for: one stream, one connection.
const STREAM_WINDOW: u32 = (64 << 10) - 1;
const CONNECTION_WINDOW: u32 = 128 << 10;
/// Requests of one HTTP/2 connection at a time: what clients take for granted before they are told.
const STREAMS: u32 = 100;
/// After an answer to a request that was not read whole, what still comes is read and thrown away, so that the answer
/// arrives; for so long, and so many bytes.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 8 << 20;

/// What a request's answer may know of its connection, and do to it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) peer: SocketAddr,
    place: Place,
    state: Mutex<State>,
    /// `finish` was called.
    finish: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// HTTP/1.1: bytes of an idle connection begin a head.
    heads_begin: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// A head has to be there by then.
    Head(Instant),
    Idle,
    Busy(u32),
}

impl Line {
    pub(super) fn new(peer: SocketAddr, place: Place) -> Arc<Self> {
        Arc::new(Self {
            peer,
            place,
            state: Mutex::new(State {
                phase: Phase::Head(Instant::now() + HEAD),
                heads_begin: false,
            }),
            finish: Notify::new(),
        })
    }

    /// The connection ends after the answers in work.
    pub(crate) fn finish(&self) {
        self.finish.notify_one();
    }

    /// The connection ends now.
    pub(crate) fn cut(&self) {
        self.place.leave();
    }

    /// Returns when it was made to go.
    pub(super) async fn left(&self) {
        self.place.left().await;
    }

    /// Among those of its listener.
    pub(super) fn id(&self) -> u64 {
        self.place.id()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        let mut state = self.state();
        state.phase = match state.phase {
            Phase::Head(_) | Phase::Idle => Phase::Busy(1),
            Phase::Busy(count) => Phase::Busy(count + 1),
        };
        drop(state);
        self.place.begin();
    }

    fn end(&self) {
        let mut state = self.state();
        state.phase = match state.phase {
            Phase::Busy(count) if count > 1 => Phase::Busy(count - 1),
            Phase::Head(_) | Phase::Idle | Phase::Busy(_) => Phase::Idle,
        };
        drop(state);
        self.place.end();
    }

    fn bytes_came(&self) {
        let mut state = self.state();
        if state.heads_begin && matches!(state.phase, Phase::Idle) {
            state.phase = Phase::Head(Instant::now() + HEAD);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state().phase {
            Phase::Head(deadline) => Some(deadline),
            Phase::Idle | Phase::Busy(_) => None,
        }
    }
}

/// A request in work; over when dropped, be it answered or given up.
#[derive(Debug)]
struct Work(Arc<Line>);

impl Work {
    fn new(line: &Arc<Line>) -> Self {
        line.begin();
        Self(Arc::clone(line))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Serves one connection until either side has enough of it.
pub(super) async fn run<S: Service>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    line: Arc<Line>,
    service: Arc<S>,
    stage: watch::Receiver<Stage>,
) {
    tokio::select! {
        () = line.left() => {}
        () = serve(stream, tls, &line, service, stage) => {}
    }
}

async fn serve<S: Service>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    line: &Arc<Line>,
    service: Arc<S>,
    stage: watch::Receiver<Stage>,
) {
    let Some(tls) = tls else {
        return http1(stream, line, service, stage).await;
    };
    let Ok(Ok(stream)) = tokio::time::timeout(HEAD, tls.accept(stream)).await else {
        return;
    };
    line.state().phase = Phase::Head(Instant::now() + HEAD);
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2(stream, line, service, stage).await;
    } else {
        http1(stream, line, service, stage).await;
    }
}

async fn http1<S: Service, I: AsyncRead + AsyncWrite + Unpin>(
    stream: I,
    line: &Arc<Line>,
    service: Arc<S>,
    stage: watch::Receiver<Stage>,
) {
    line.state().heads_begin = true;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // Its own clock runs while a connection is idle, too.
        .header_read_timeout(None)
        .max_header_size(HEAD_BYTES as usize)
        .max_buf_size(BUFFER_BYTES);
    let owner = Arc::clone(line);
    let io = Io::new(stream, line);
    let connection = builder.serve_connection(
        io,
        service_fn(move |request| {
            let work = Work::new(&owner);
            let answering = Arc::clone(&service).answer(request, &owner);
            async move {
                let answer = answering.await;
                drop(work);
                answer
            }
        }),
    );
    drive(
        connection,
        line,
        stage,
        http1::Connection::graceful_shutdown,
    )
    .await;
}

async fn http2<S: Service, I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: I,
    line: &Arc<Line>,
    service: Arc<S>,
    stage: watch::Receiver<Stage>,
) {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS);
    let owner = Arc::clone(line);
    let io = Io::new(stream, line);
    let connection = builder.serve_connection(
        io,
        service_fn(move |request| {
            let work = Work::new(&owner);
            let answering = Arc::clone(&service).answer(request, &owner);
            async move {
                let answer = answering.await;
                drop(work);
                answer
            }
        }),
    );
    drive(
        connection,
        line,
        stage,
        http2::Connection::graceful_shutdown,
    )
    .await;
}

/// Polls a connection to its end, or to the deadline of a head that does not come; tells it to go when it is time.
async fn drive<C, E>(
    connection: C,
    line: &Arc<Line>,
    mut stage: watch::Receiver<Stage>,
    tell: fn(Pin<&mut C>),
) where
    C: Future<Output = Result<(), E>>,
{
    let mut connection = pin!(connection);
    let mut late = pin!(Late::new(line));
    let mut told = false;
    loop {
        tokio::select! {
            biased;
            // How it ended is the client's business.
            _ended = connection.as_mut() => return,
            () = late.as_mut() => return,
            () = line.finish.notified(), if !told => {}
            _ = stage.wait_for(|stage| *stage == Stage::Leaving), if !told => {}
        }
        told = true;
        tell(connection.as_mut());
    }
}

/// Ready when a head is late. The phase moves while the connection is polled, so it is asked each time.
struct Late {
    line: Arc<Line>,
    sleep: Pin<Box<Sleep>>,
}

impl Late {
    fn new(line: &Arc<Line>) -> Self {
        Self {
            line: Arc::clone(line),
            sleep: Box::pin(tokio::time::sleep(HEAD)),
        }
    }
}

impl Future for Late {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.line.deadline() else {
            return Poll::Pending;
        };
        if self.sleep.deadline() != deadline {
            self.sleep.as_mut().reset(deadline);
        }
        self.sleep.as_mut().poll(cx)
    }
}

/// Tells the line when bytes come, and lingers at the end.
struct Io<I> {
    inner: TokioIo<I>,
    line: Arc<Line>,
    linger: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<I> Io<I> {
    fn new(stream: I, line: &Arc<Line>) -> Self {
        Self {
            inner: TokioIo::new(stream),
            line: Arc::clone(line),
            linger: None,
        }
    }
}

impl<I: AsyncRead + Unpin> hyper::rt::Read for Io<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if matches!(read, Poll::Ready(Ok(()))) {
            self.line.bytes_came();
        }
        read
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> hyper::rt::Write for Io<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        }
        let (sleep, seen) = this
            .linger
            .get_or_insert_with(|| (Box::pin(tokio::time::sleep(LINGER)), 0));
        let mut room = [0; 4096];
        loop {
            let mut buffer = tokio::io::ReadBuf::new(&mut room);
            match Pin::new(this.inner.inner_mut()).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *seen += buffer.filled().len();
                    if *seen > LINGER_BYTES {
                        return Poll::Ready(Ok(()));
                    }
                }
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return sleep.as_mut().poll(cx).map(Ok),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }
}
