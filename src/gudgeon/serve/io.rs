//! The byte stream below a connection's HTTP: it reports incoming bytes to the connection, and lingers at the end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::ReadBufCursor;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::connection::Connection;

/// Limits for reading and dropping the rest of a request that was answered before its end, so that the response arrives:
/// time, and bytes.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 8 << 20;

/// Reports received bytes to the connection.
struct ReceivingStream<I> {
    inner: I,
    connection: Arc<Connection>,
}

impl<I: AsyncRead + Unpin> AsyncRead for ReceivingStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if matches!(read, Poll::Ready(Ok(()))) {
            self.connection
                .came(buffer.filled().get(before..).unwrap_or_default());
        }
        read
    }
}

/// Lingers at the end.
pub(super) struct Io<I> {
    inner: TokioIo<ReceivingStream<I>>,
    linger: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<I> Io<I> {
    pub(super) fn new(stream: I, connection: &Arc<Connection>) -> Self {
        Self {
            inner: TokioIo::new(ReceivingStream {
                inner: stream,
                connection: Arc::clone(connection),
            }),
            linger: None,
        }
    }

    fn stream(&mut self) -> &mut I {
        &mut self.inner.inner_mut().inner
    }
}

impl<I: AsyncRead + Unpin> hyper::rt::Read for Io<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> hyper::rt::Write for Io<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream()).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream()).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // FIN goes first, so the client sees the answer's end while its request is drained.
        if this.linger.is_none() {
            ready!(Pin::new(this.stream()).poll_shutdown(cx))?;
        }
        let (sleep, drained) = this
            .linger
            .get_or_insert_with(|| (Box::pin(tokio::time::sleep(LINGER)), 0));
        // Closing with unread bytes resets the connection, and the client may lose the answer.
        let mut room = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut room);
            // The read bypasses `ReceivingStream`: drained bytes begin no head.
            match Pin::new(&mut this.inner.inner_mut().inner).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *drained += buffer.filled().len();
                    if *drained > LINGER_BYTES {
                        return Poll::Ready(Ok(()));
                    }
                }
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return sleep.as_mut().poll(cx).map(Ok),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.inner().inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream()).poll_write_vectored(cx, slices)
    }
}
