//! A bound on the bytes of one response: hyper bounds each of its heads, and skips interim ones (1xx) without a bound of their number.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that may still be read. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct ResponseBudget(Arc<AtomicUsize>);

impl ResponseBudget {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    pub(super) fn add(&self, bytes: usize) {
        let bytes_left = self.left().saturating_add(bytes);
        self.0.store(bytes_left, Ordering::Relaxed);
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left() == 0
    }

    fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn spend(&self, bytes: usize) {
        let bytes_left = self.left().saturating_sub(bytes);
        self.0.store(bytes_left, Ordering::Relaxed);
    }
}

/// A connection that fails once its budget is spent.
#[derive(Debug)]
pub(super) struct BudgetedConnection<T> {
    pub(super) inner: T,
    pub(super) budget: ResponseBudget,
}

impl<T: AsyncRead + Unpin> AsyncRead for BudgetedConnection<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.budget.left();
        if left == 0 {
            return Poll::Ready(Err(ErrorKind::FileTooLarge.into()));
        }
        let room = into.remaining().min(left);
        let mut part = ReadBuf::new(into.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.inner).poll_read(context, &mut part))?;
        let read = part.filled().len();
        into.advance(read);
        self.budget.spend(read);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for BudgetedConnection<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
