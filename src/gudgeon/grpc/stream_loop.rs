//! The loop of one stream, for any protocol: a request, a deadline, an event of the protocol, the free sender or the shutdown
//! wakes it, and each time it writes the response that is due. It queues nothing: a peer that does not read costs one response.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Bytes};
use tokio::time::sleep_until;
use tonic::Status;

use super::frames::{BodyError, Inbound};
use super::message_reader::MessageReader;
use super::peer::Peer;
use super::response_sender::ResponseSender;
use crate::clock::Clock;
use crate::serve::Shutdown;

/// A protocol of requests and responses. The loop moves its messages; the protocol decides.
///
/// After each request and each event the loop calls [`Self::check_deadlines`], then [`Self::next_response`] if the last
/// response is written, then [`Self::waits`].
pub(crate) trait StreamProtocol: Send {
    /// The reader of requests.
    type Reader: MessageReader<Message: Send> + Send;
    /// An event besides requests: a push, a permit, a change of what is served.
    type Event: Send;

    /// The peer sends a status when it refuses the stream, and resets it then: the loop reads that status.
    const PEER_SENDS_STATUS: bool;

    fn clock(&self) -> &Clock;

    /// Handles a request.
    ///
    /// # Errors
    /// The status that ends the stream at once.
    fn receive(
        &mut self,
        request: Request<Self>,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// Waits for the next event. It must be cancel-safe: the loop drops it whenever another event wakes the stream.
    fn event(&mut self, is_free: bool) -> impl Future<Output = Self::Event> + Send;

    /// Handles an event.
    ///
    /// # Errors
    /// The status that ends the stream at once.
    fn handle(&mut self, event: Self::Event) -> impl Future<Output = Result<(), Status>> + Send;

    /// Acts on deadlines that have passed. The sender is free if the last response is written.
    ///
    /// # Errors
    /// The status that ends the stream, whether its last response is written or not.
    fn check_deadlines(&mut self, _now: Duration, _is_free: bool) -> Result<(), Status> {
        Ok(())
    }

    /// Takes the next response, framed, in pieces of which none is empty.
    fn next_response(&mut self, now: Duration) -> Option<Vec<Bytes>>;

    /// Returns what the stream waits for, besides its events.
    ///
    /// # Errors
    /// The status that ends the stream now that its responses are on their way.
    fn waits(&mut self, now: Duration, is_free: bool) -> Result<StreamWaits, Status>;

    /// Returns when streams are to end.
    fn shutdown(&self) -> impl Future<Output = ()> + Send + use<Self>;

    /// Returns the status of a stream whose peer is gone and has sent none.
    fn disconnected(&self) -> Status;

    /// A request could not be read, and the stream ends.
    fn read_failed(&self) {}

    /// The stream ends, and its last response was not written completely.
    fn response_unsent(&self) {}
}

/// A request of the protocol.
type Request<P> = <<P as StreamProtocol>::Reader as MessageReader>::Message;

/// The events that a stream waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamWaits {
    /// The time of its clock at which the stream has work to do without any event.
    pub(crate) deadline: Option<Duration>,
    pub(crate) reads: Reads,
}

/// The requests that a stream reads of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The next request.
    Request,
    /// Bytes for later requests: other streams on the connection do not suffer from one that is read slowly.
    Ahead,
    Nothing,
}

/// The end of a stream.
#[derive(Debug)]
pub(crate) struct StreamEnd {
    pub(crate) status: Status,
    /// This side has ended the stream: the peer is there, and has not ended its messages.
    pub(crate) is_refused: bool,
}

/// A stream of a peer for as long as its task runs. A panic ends it with INTERNAL.
pub(crate) struct StreamLoop<F: Fn()> {
    peer: Arc<Peer>,
    sender: Arc<ResponseSender>,
    panicked: F,
}

enum LoopEvent<R, E> {
    Read(Result<Option<R>, Status>),
    Protocol(E),
    /// The sender has moved, or the deadline has passed.
    Look,
    Shutdown,
}

impl<F: Fn()> StreamLoop<F> {
    /// Counts a stream among those of its peer. A panic calls the function.
    pub(crate) fn new(peer: &Arc<Peer>, sender: &Arc<ResponseSender>, panicked: F) -> Self {
        peer.opens();
        Self {
            peer: Arc::clone(peer),
            sender: Arc::clone(sender),
            panicked,
        }
    }

    /// Runs a protocol until the stream ends.
    pub(crate) async fn run<B, P>(
        &self,
        inbound: &mut Inbound<B>,
        reader: &mut P::Reader,
        protocol: &mut P,
    ) -> StreamEnd
    where
        B: Body<Data = Bytes, Error: BodyError> + Send + Unpin,
        P: StreamProtocol,
    {
        let status = loop {
            // A request leaves its event before it is handled: a value in two places takes its memory twice.
            let request = match self.next_request(inbound, reader, protocol).await {
                Ok(request) => request,
                Err(status) => break status,
            };
            if let Err(status) = protocol.receive(request).await {
                break status;
            }
        };
        if !self.sender.is_free() {
            protocol.response_unsent();
        }
        let is_refused = !(self.sender.is_gone() || inbound.is_ended());
        self.sender.end(status.clone());
        StreamEnd { status, is_refused }
    }

    /// Writes responses and handles events until a request has come; the error ends the stream.
    async fn next_request<B, P>(
        &self,
        inbound: &mut Inbound<B>,
        reader: &mut P::Reader,
        protocol: &mut P,
    ) -> Result<Request<P>, Status>
    where
        B: Body<Data = Bytes, Error: BodyError> + Send + Unpin,
        P: StreamProtocol,
    {
        loop {
            // A peer that is gone reads nothing; the status that it may have sent says why it left.
            if self.sender.is_gone() {
                let status = match P::PEER_SENDS_STATUS {
                    true => inbound.final_status().await,
                    false => None,
                };
                return Err(status.unwrap_or_else(|| protocol.disconnected()));
            }
            let (waits, is_free) = self.write(protocol)?;
            let event = self.next_event(inbound, reader, protocol, waits, is_free);
            let event = match event.await {
                LoopEvent::Read(Ok(Some(request))) => return Ok(request),
                LoopEvent::Read(Ok(None)) => return Err(Status::ok("")),
                LoopEvent::Read(Err(status)) => {
                    protocol.read_failed();
                    return Err(status);
                }
                LoopEvent::Protocol(event) => event,
                LoopEvent::Look => continue,
                LoopEvent::Shutdown => return Err(Status::unavailable("server shutting down")),
            };
            protocol.handle(event).await?;
        }
    }

    /// Writes all that can be written before more is read. Returns what to wait for then, and whether the sender is free.
    fn write<P: StreamProtocol>(&self, protocol: &mut P) -> Result<(StreamWaits, bool), Status> {
        let now = protocol.clock().now();
        let mut is_free = self.sender.is_free();
        protocol.check_deadlines(now, is_free)?;
        while is_free && let Some(response) = protocol.next_response(now) {
            self.sender.put(response);
            is_free = self.sender.is_free();
        }
        Ok((protocol.waits(now, is_free)?, is_free))
    }

    /// Waits for one event. The others are dropped with it, and lose nothing.
    async fn next_event<B, P>(
        &self,
        inbound: &mut Inbound<B>,
        reader: &mut P::Reader,
        protocol: &mut P,
        waits: StreamWaits,
        is_free: bool,
    ) -> LoopEvent<Request<P>, P::Event>
    where
        B: Body<Data = Bytes, Error: BodyError> + Send + Unpin,
        P: StreamProtocol,
    {
        let due = waits.deadline.map(|at| protocol.clock().instant(at));
        let due = async move {
            match due {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let read = async move {
            match waits.reads {
                Reads::Request => inbound.next_by(reader).await,
                // `take_in` returns only when the stream breaks.
                Reads::Ahead => Err(inbound.take_in().await),
                Reads::Nothing => std::future::pending().await,
            }
        };
        let shutdown = protocol.shutdown();
        tokio::select! {
            read = read => LoopEvent::Read(read),
            event = protocol.event(is_free) => LoopEvent::Protocol(event),
            () = due => LoopEvent::Look,
            () = self.sender.moved() => LoopEvent::Look,
            () = shutdown => LoopEvent::Shutdown,
        }
    }
}

impl<F: Fn()> Drop for StreamLoop<F> {
    fn drop(&mut self) {
        self.peer.closes();
        // Unwinding skips all code after `run`, so the drop sends the status.
        if std::thread::panicking() {
            (self.panicked)();
            self.sender.end(internal_error());
        }
    }
}

/// Returns the status of a stream that a mistake of this program has ended.
pub(crate) fn internal_error() -> Status {
    Status::internal("internal error; the stream ended, see the log")
}

/// Returns when streams are to end, after the connection has sent GOAWAY.
pub(crate) async fn closing(mut shutdown: Shutdown) {
    shutdown.closing().await;
    // The connection's task waits for the same stage, and sends GOAWAY in this turn.
    tokio::task::yield_now().await;
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use http_body_util::BodyExt as _;
    use hyper::body::Frame;
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, timeout};
    use tonic::Code;

    use super::super::address::Address;
    use super::super::frames::{Bounds, framed};
    use super::super::message_reader::WholeMessages;
    use super::super::response_sender::Messages;
    use super::*;

    /// A request that panics.
    const PANIC: u32 = 13;
    /// A request that is refused, once the responses before it are written.
    const REFUSED: u32 = 14;

    /// The frames of a peer, and what it does then.
    struct PeerBody(VecDeque<Vec<u8>>, AfterFrames);

    #[derive(Clone, Copy)]
    enum AfterFrames {
        Silent,
        Ends,
        Fails,
    }

    impl Body for PeerBody {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match (self.0.pop_front(), self.1) {
                (Some(frame), _) => Poll::Ready(Some(Ok(Frame::data(frame.into())))),
                (None, AfterFrames::Silent) => Poll::Pending,
                (None, AfterFrames::Ends) => Poll::Ready(None),
                (None, AfterFrames::Fails) => Poll::Ready(Some(Err(Status::aborted("reset")))),
            }
        }
    }

    /// The state that the test and the protocol share.
    #[derive(Debug, Default)]
    struct Shared {
        pushed: Notify,
        shutdown: Notify,
        read_failed: AtomicUsize,
        unsent: AtomicUsize,
        panicked: AtomicUsize,
        /// The calls of the loop, in order.
        calls: Mutex<Vec<String>>,
    }

    impl Shared {
        fn call(&self, call: impl Into<String>) {
            self.calls.lock().unwrap().push(call.into());
        }

        fn take_calls(&self) -> Vec<String> {
            std::mem::take(&mut self.calls.lock().unwrap())
        }
    }

    /// Echoes each request, and sends a zero for each push.
    struct Echo {
        clock: Clock,
        shared: Arc<Shared>,
        due: VecDeque<u32>,
        reads: Reads,
        deadline: Option<Duration>,
        refusal: Option<Status>,
    }

    impl StreamProtocol for Echo {
        type Reader = WholeMessages<u32>;
        type Event = ();

        const PEER_SENDS_STATUS: bool = true;

        fn clock(&self) -> &Clock {
            &self.clock
        }

        async fn receive(&mut self, request: u32) -> Result<(), Status> {
            self.shared.call(format!("receive {request}"));
            match request {
                PANIC => panic!("a mistake"),
                REFUSED => self.refusal = Some(Status::invalid_argument("refused")),
                number => self.due.push_back(number),
            }
            Ok(())
        }

        async fn event(&mut self, _is_free: bool) {
            self.shared.pushed.notified().await;
        }

        async fn handle(&mut self, (): ()) -> Result<(), Status> {
            self.shared.call("handle");
            self.due.push_back(0);
            Ok(())
        }

        fn check_deadlines(&mut self, now: Duration, _is_free: bool) -> Result<(), Status> {
            match self.deadline {
                Some(deadline) if deadline <= now => Err(Status::deadline_exceeded("late")),
                _ => Ok(()),
            }
        }

        fn next_response(&mut self, _now: Duration) -> Option<Vec<Bytes>> {
            let number = self.due.pop_front()?;
            self.shared.call(format!("send {number}"));
            Some(vec![framed(&number).into()])
        }

        fn waits(&mut self, _now: Duration, _is_free: bool) -> Result<StreamWaits, Status> {
            let (deadline, reads) = (self.deadline, self.reads);
            let waits = StreamWaits { deadline, reads };
            self.refusal.take().map_or(Ok(waits), Err)
        }

        fn shutdown(&self) -> impl Future<Output = ()> + Send + use<> {
            let shared = Arc::clone(&self.shared);
            async move { shared.shutdown.notified().await }
        }

        fn disconnected(&self) -> Status {
            Status::cancelled("gone")
        }

        fn read_failed(&self) {
            self.shared.read_failed.fetch_add(1, Ordering::Relaxed);
        }

        fn response_unsent(&self) {
            self.shared.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A stream that runs in a task, and its peer.
    struct Running {
        shared: Arc<Shared>,
        peer: Arc<Peer>,
        messages: Messages,
        task: JoinHandle<StreamEnd>,
    }

    impl Running {
        fn start(requests: &[u32], after: AfterFrames) -> Self {
            Self::start_with(requests, after, |_| ())
        }

        fn start_with(
            requests: &[u32],
            after: AfterFrames,
            set: impl FnOnce(&mut Echo) + Send + 'static,
        ) -> Self {
            let frames = requests.iter().map(framed).collect();
            let bounds = Bounds {
                bytes: 100,
                beyond: Code::OutOfRange,
                values: 10,
            };
            let mut inbound = Inbound::new(PeerBody(frames, after), bounds);
            let shared = Arc::new(Shared::default());
            let peer = Arc::new(Peer::new(Address::Unix, None));
            let sender = Arc::new(ResponseSender::default());
            let messages = Messages::new(&sender);
            let of_task = (Arc::clone(&shared), Arc::clone(&peer));
            let task = tokio::spawn(async move {
                let (shared, peer) = of_task;
                let panics = Arc::clone(&shared);
                let stream_loop = StreamLoop::new(&peer, &sender, move || {
                    panics.panicked.fetch_add(1, Ordering::Relaxed);
                });
                let mut echo = Echo {
                    clock: Clock::new(),
                    shared,
                    due: VecDeque::new(),
                    reads: Reads::Request,
                    deadline: None,
                    refusal: None,
                };
                set(&mut echo);
                let mut reader = WholeMessages::default();
                let end = stream_loop.run(&mut inbound, &mut reader, &mut echo);
                end.await
            });
            Self {
                shared,
                peer,
                messages,
                task,
            }
        }

        /// Waits until the stream waits for others.
        async fn idle() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        /// Returns the next number, or the status at the end.
        async fn next(&mut self) -> Result<u32, Code> {
            let frame = timeout(Duration::from_secs(10), self.messages.frame());
            let frame = frame.await.unwrap().unwrap().unwrap();
            match frame.into_data() {
                Ok(data) => Ok(prost::Message::decode(&data[5..]).unwrap()),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap();
                    Err(Status::from_header_map(&trailers).unwrap().code())
                }
            }
        }

        /// Returns code, message, and whether this side has ended it.
        async fn end(self) -> (Code, String, bool) {
            let StreamEnd { status, is_refused } = self.task.await.unwrap();
            assert_eq!(self.peer.streams(), 0);
            (status.code(), status.message().to_owned(), is_refused)
        }
    }

    fn ended(code: Code, message: &str, is_refused: bool) -> (Code, String, bool) {
        (code, message.to_owned(), is_refused)
    }

    fn count(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn one_response_is_written_at_a_time() {
        let mut stream = Running::start(&[1, 2], AfterFrames::Silent);
        Running::idle().await;
        assert_eq!(stream.peer.streams(), 1);
        // Requests are read ahead of the responses, and a push does not wait for them.
        stream.shared.pushed.notify_one();
        Running::idle().await;
        let calls = stream.shared.take_calls();
        assert_eq!(calls, ["receive 1", "send 1", "receive 2", "handle"]);
        let shared = Arc::clone(&stream.shared);
        for (number, calls) in [(1, &["send 2"][..]), (2, &["send 0"]), (0, &[])] {
            assert_eq!(stream.next().await, Ok(number));
            Running::idle().await;
            assert_eq!(shared.take_calls(), calls);
        }
        drop(stream.task);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_gone_ends_its_stream() {
        let stream = Running::start(&[1], AfterFrames::Silent);
        Running::idle().await;
        let shared = Arc::clone(&stream.shared);
        drop(stream.messages);
        let StreamEnd { status, is_refused } = stream.task.await.unwrap();
        assert_eq!((status.code(), is_refused), (Code::Cancelled, false));
        assert_eq!(stream.peer.streams(), 0);
        assert_eq!((count(&shared.unsent), count(&shared.read_failed)), (1, 0));
        // The status with which the peer has reset the stream is read, even if no request was waited for.
        let nothing = |echo: &mut Echo| echo.reads = Reads::Nothing;
        let stream = Running::start_with(&[], AfterFrames::Fails, nothing);
        Running::idle().await;
        drop(stream.messages);
        let status = stream.task.await.unwrap().status;
        assert_eq!(status.code(), Code::Aborted);
        assert_eq!(count(&stream.shared.unsent), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_ends_streams_after_the_response_that_is_on_its_way() {
        let mut stream = Running::start(&[1], AfterFrames::Silent);
        Running::idle().await;
        stream.shared.shutdown.notify_one();
        Running::idle().await;
        assert_eq!(count(&stream.shared.unsent), 1);
        assert_eq!(stream.next().await, Ok(1));
        assert_eq!(stream.next().await, Err(Code::Unavailable));
        let end = ended(Code::Unavailable, "server shutting down", true);
        assert_eq!(stream.end().await, end);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_wakes_a_stream() {
        let begun = Instant::now();
        let late = |echo: &mut Echo| echo.deadline = Some(Duration::from_secs(5));
        let stream = Running::start_with(&[], AfterFrames::Silent, late);
        let end = ended(Code::DeadlineExceeded, "late", true);
        assert_eq!(stream.end().await, end);
        assert_eq!(begun.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_the_stream_with_internal() {
        let mut stream = Running::start(&[PANIC], AfterFrames::Silent);
        assert_eq!(stream.next().await, Err(Code::Internal));
        assert!(stream.task.await.unwrap_err().is_panic());
        assert_eq!(count(&stream.shared.panicked), 1);
        assert_eq!(stream.peer.streams(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_says_who_ended_the_stream() {
        for (after, end, read_failed) in [
            (AfterFrames::Ends, ended(Code::Ok, "", false), 0),
            (AfterFrames::Fails, ended(Code::Aborted, "reset", false), 1),
        ] {
            let stream = Running::start(&[], after);
            let shared = Arc::clone(&stream.shared);
            assert_eq!(stream.end().await, end);
            assert_eq!(count(&shared.read_failed), read_failed);
        }
        let mut stream = Running::start(&[1, REFUSED, 2], AfterFrames::Silent);
        assert_eq!(stream.next().await, Ok(1));
        assert_eq!(stream.next().await, Err(Code::InvalidArgument));
        let calls = stream.shared.take_calls();
        assert_eq!(calls, ["receive 1", "send 1", "receive 14"]);
        let end = ended(Code::InvalidArgument, "refused", true);
        assert_eq!(stream.end().await, end);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_reads_what_it_waits_for() {
        for (reads, calls) in [
            (Reads::Request, &["receive 1", "send 1"][..]),
            (Reads::Ahead, &[]),
            (Reads::Nothing, &[]),
        ] {
            let set = move |echo: &mut Echo| echo.reads = reads;
            let stream = Running::start_with(&[1], AfterFrames::Silent, set);
            Running::idle().await;
            assert_eq!(stream.shared.take_calls(), calls, "{reads:?}");
        }
        // Bytes that are read ahead show that a stream breaks.
        for (reads, is_ended) in [(Reads::Ahead, true), (Reads::Nothing, false)] {
            let set = move |echo: &mut Echo| echo.reads = reads;
            let stream = Running::start_with(&[1], AfterFrames::Fails, set);
            Running::idle().await;
            assert_eq!(stream.task.is_finished(), is_ended, "{reads:?}");
            assert_eq!(count(&stream.shared.read_failed), usize::from(is_ended));
        }
    }
}
