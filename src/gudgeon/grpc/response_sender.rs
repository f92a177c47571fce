//! The outgoing side of a stream: one response at a time. The next is accepted when the last byte of the present one is
//! being sent, so that a client that does not read costs one response and nothing else.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame};
use tokio::sync::Notify;
use tonic::Status;

/// The channel between a stream's task and its connection.
#[derive(Debug, Default)]
pub(crate) struct ResponseSender {
    state: Mutex<SenderState>,
    /// A response was written, or the client is gone.
    moved: Notify,
}

#[derive(Debug, Default)]
struct SenderState {
    /// The rest of a response that the connection has not taken yet.
    next: VecDeque<Bytes>,
    /// A response was put and is not written yet.
    busy: bool,
    end: Option<Status>,
    gone: bool,
    reader: Option<Waker>,
}

impl ResponseSender {
    fn state(&self) -> MutexGuard<'_, SenderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a response may be put.
    pub(crate) fn is_free(&self) -> bool {
        !self.state().busy
    }

    /// The client is not there any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.state().gone
    }

    /// A framed message in pieces, none of them empty; only where it is free.
    pub(crate) fn put(&self, pieces: impl IntoIterator<Item = Bytes>) {
        let mut state = self.state();
        state.next = pieces.into_iter().collect();
        state.busy = true;
        wake(state);
    }

    /// Ends the stream; the first end counts.
    pub(crate) fn end(&self, status: Status) {
        let mut state = self.state();
        if state.end.is_none() {
            state.end = Some(status);
        }
        wake(state);
    }

    /// Returns when it became free, or the client went, since the last call.
    pub(crate) async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Returns when the client is gone.
    pub(crate) async fn gone(&self) {
        while !self.is_gone() {
            self.moved().await;
        }
    }

    fn written(&self) {
        self.state().busy = false;
        self.moved.notify_one();
    }
}

fn wake(mut state: MutexGuard<'_, SenderState>) {
    // A waker runs code of the connection, which may take this lock.
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}

/// The body of a response: the messages put into the sender, and the status at the end.
#[derive(Debug)]
pub(crate) struct Messages {
    sender: Arc<ResponseSender>,
    /// A client sends no status.
    silent: bool,
    ended: bool,
}

impl Messages {
    pub(crate) fn new(sender: &Arc<ResponseSender>) -> Self {
        Self {
            sender: Arc::clone(sender),
            silent: false,
            ended: false,
        }
    }

    /// The messages of a request: they end without trailers.
    pub(crate) fn of_request(sender: &Arc<ResponseSender>) -> Self {
        let mut this = Self::new(sender);
        this.silent = true;
        this
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.sender.state().gone = true;
        self.sender.moved.notify_one();
    }
}

/// The last bytes of a response; dropped when the connection has written them.
struct NotifyOnWritten {
    bytes: Bytes,
    sender: Arc<ResponseSender>,
}

impl AsRef<[u8]> for NotifyOnWritten {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for NotifyOnWritten {
    fn drop(&mut self) {
        self.sender.written();
    }
}

impl Body for Messages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut state = self.sender.state();
        if let Some(mut bytes) = state.next.pop_front() {
            if state.next.is_empty() {
                // The queue's memory must not stay with a stream that is silent for days.
                state.next = VecDeque::new();
                let sender = Arc::clone(&self.sender);
                // The connection drops the bytes once they are written, which frees the sender for the next
                // response.
                bytes = Bytes::from_owner(NotifyOnWritten { bytes, sender });
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        // The end waits for the pieces that were put before it.
        if let Some(status) = state.end.take() {
            drop(state);
            self.ended = true;
            let trailers = (!self.silent).then(|| Frame::trailers(trailers(&status)));
            return Poll::Ready(trailers.map(Ok));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// Encodes the status as gRPC trailers.
pub(crate) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // A message that no header holds: the code alone.
        trailers.clear();
        let _alone = Status::new(status.code(), "").add_header(&mut trailers);
    }
    trailers
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn is_moved(sender: &ResponseSender) -> bool {
        let moved = tokio::time::timeout(std::time::Duration::ZERO, sender.moved());
        moved.await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn one_response_at_a_time_and_then_the_end() {
        let sender = Arc::new(ResponseSender::default());
        let mut body = Messages::new(&sender);
        sender.put(["one", " and", " all"].map(Bytes::from));
        sender.end(Status::unavailable("leaving"));
        sender.end(Status::ok("late"));
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.data_ref().unwrap().as_ref(), b"one");
        drop(frame);
        drop(body.frame().await);
        let last = body.frame().await.unwrap().unwrap();
        assert!(!sender.is_free() && !is_moved(&sender).await);
        assert_eq!(last.data_ref().unwrap().as_ref(), b" all");
        drop(last);
        assert!(sender.is_free() && is_moved(&sender).await);
        let end = body.frame().await.unwrap().unwrap();
        assert_eq!(end.trailers_ref().unwrap()["grpc-status"], "14");
        assert!(body.frame().await.is_none() && !sender.is_gone());
        drop(body);
        assert!(sender.is_gone() && is_moved(&sender).await);
    }
}
