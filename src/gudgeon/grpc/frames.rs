//! gRPC's messages in the body of a request: a prefix of five bytes has the length of each.
//!
//! tonic has this, too, but keeps the largest message's buffer for as long as a stream lives, and streams live for days:
//! some thousand proxies that named all their clusters once would hold that much for ever.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes};
use prost::Message;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Code, Status};

use super::message_reader::{FromMessage, MessageReader, WholeMessages};
use super::partial_message_limit::{self, PartialMessage};
use super::peer::Peer;

/// Bytes of a message's prefix: the compressed flag, and the length.
const PREFIX: usize = 5;

/// Bytes of messages that are buffered before a message is wanted.
const AHEAD: usize = 256 << 10;

/// The timeout from the head of a stream to its first message.
const FIRST: Duration = Duration::from_secs(10);

/// The timeout from the first byte of a message to its last: the longest takes a second, except on a lossy network.
const MESSAGE: Duration = Duration::from_secs(20);

/// The timeout of the peer's final status: it has arrived already, or is on its way.
const FINAL_STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// The bounds of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The longest, and how a longer one is refused.
    pub(crate) bytes: usize,
    pub(crate) beyond: Code,
    /// Values of one repeated field, before they are allocated: a message with too many is refused without decoding.
    pub(crate) values: usize,
}

/// Errors of a body as gRPC statuses.
pub(crate) trait BodyError {
    fn status(self) -> Status;
}

impl BodyError for hyper::Error {
    fn status(self) -> Status {
        Status::cancelled("connection closed")
    }
}

impl BodyError for Status {
    fn status(self) -> Status {
        self
    }
}

impl BodyError for Infallible {
    fn status(self) -> Status {
        match self {}
    }
}

/// The messages of a request, one after the other.
#[derive(Debug)]
pub(crate) struct Inbound<B> {
    body: B,
    bounds: Bounds,
    /// The received bytes, independent of frames: a small frame costs its bytes and nothing else.
    buffer: BytesMut,
    /// Bytes of the message that has begun which its reader has not taken, come or not; `None`: none has begun.
    left: Option<usize>,
    /// The peer has ended its messages; the last ones are in the buffer.
    ended: bool,
    /// The deadline of a client's messages; `None` when this program dialled, and waits for its server as long as that takes.
    deadline: Option<MessageDeadline>,
}

/// A client of this program: its messages must be completed within a deadline.
#[derive(Debug)]
struct MessageDeadline {
    peer: Arc<Peer>,
    /// The next message has begun.
    since: Option<Instant>,
    part: Option<PartialMessage>,
}

impl MessageDeadline {
    /// Counts the bytes of an unfinished message; returns the deadline for its end.
    fn has(&mut self, bytes: usize, max: usize) -> Result<Instant, Status> {
        match &self.part {
            Some(part) => part.grow(bytes, max)?,
            None => self.part = PartialMessage::begin(self.peer.budget(), bytes, max)?,
        }
        // The deadline counts from the first byte, so that a byte now and then does not extend it.
        Ok(*self.since.get_or_insert_with(Instant::now) + MESSAGE)
    }

    async fn evicted(&self) {
        match &self.part {
            Some(part) => part.evicted().await,
            None => std::future::pending().await,
        }
    }
}

impl<B> Inbound<B>
where
    B: Body<Data = Bytes, Error: BodyError> + Unpin,
{
    /// Reads a stream that this program has opened. One that a peer has opened is read by [`Self::of`].
    pub(crate) fn new(body: B, bounds: Bounds) -> Self {
        Self {
            body,
            bounds,
            buffer: BytesMut::new(),
            left: None,
            ended: false,
            deadline: None,
        }
    }

    /// Reads a stream that a client has opened: each message has a deadline, and all together have a limit of bytes.
    pub(crate) fn of(peer: &Arc<Peer>, body: B, bounds: Bounds) -> Self {
        let mut this = Self::new(body, bounds);
        this.deadline = Some(MessageDeadline {
            peer: Arc::clone(peer),
            since: None,
            part: None,
        });
        this
    }

    /// The first one, which has a time of its own.
    pub(crate) async fn first<M: FromMessage>(&mut self) -> Result<Option<M>, Status> {
        self.first_by(&mut WholeMessages::default()).await
    }

    /// Returns the next message; `None` at the end. Cancel-safe.
    pub(crate) async fn next<M: FromMessage>(&mut self) -> Result<Option<M>, Status> {
        self.next_by(&mut WholeMessages::default()).await
    }

    /// The same as [`Self::first`], with this reader.
    pub(crate) async fn first_by<R: MessageReader>(
        &mut self,
        reader: &mut R,
    ) -> Result<Option<R::Message>, Status> {
        let first = timeout(FIRST, self.next_by(reader)).await;
        first.unwrap_or_else(|_late| Err(Status::deadline_exceeded("no request arrived")))
    }

    /// The same as [`Self::next`], with this reader. All that is read of one message is read with the same one.
    pub(crate) async fn next_by<R: MessageReader>(
        &mut self,
        reader: &mut R,
    ) -> Result<Option<R::Message>, Status> {
        loop {
            if let Some(bytes) = self.take(reader)? {
                if let Some(deadline) = &mut self.deadline {
                    (deadline.since, deadline.part) = (None, None);
                }
                return reader.finish(bytes, self.bounds.values).map(Some);
            }
            if !self.ended {
                self.fill_in_time(reader.retained()).await?;
            } else if self.buffer.is_empty() && self.left.is_none() {
                return Ok(None);
            } else {
                return Err(Status::invalid_argument("truncated message"));
            }
        }
    }

    /// Returns true if the peer has ended the stream; an error before that is a refusal of this program's.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Buffers incoming bytes while no message is wanted; returns when the stream breaks. Cancel-safe.
    ///
    /// The HTTP/2 library ends a connection, with all its streams, when some hundred small frames of it are not consumed; so
    /// a slowly read stream is read into a buffer. When that is full, the client waits for its window.
    pub(crate) async fn take_in(&mut self) -> Status {
        while !self.ended && self.buffer.len() < AHEAD {
            if let Err(status) = self.fill().await {
                return status;
            }
        }
        std::future::pending().await
    }

    /// Reads another frame of a message that has begun, or its first. Its reader has `buffered` bytes of it.
    async fn fill_in_time(&mut self, buffered: usize) -> Result<(), Status> {
        let max = PREFIX + self.bounds.bytes;
        let Self {
            body,
            buffer,
            left,
            ended,
            deadline,
            ..
        } = self;
        // A stream is silent for days between messages: only a message that has begun has a deadline.
        let has_begun = left.is_some() || !buffer.is_empty();
        let Some(deadline) = deadline.as_mut().filter(|_| has_begun) else {
            return fill(body, buffer, ended).await;
        };
        let due = deadline.has(buffer.len() + buffered, max)?;
        tokio::select! {
            // Bytes that have arrived count, even if the deadline passed or the eviction came meanwhile.
            biased;
            filled = fill(body, buffer, ended) => filled,
            () = deadline.evicted() => Err(partial_message_limit::evicted_status()),
            () = sleep_until(due) => Err(Status::deadline_exceeded(
                "cannot wait for the rest of a message: it arrives too slowly",
            )),
        }
    }

    /// Reads another frame.
    async fn fill(&mut self) -> Result<(), Status> {
        fill(&mut self.body, &mut self.buffer, &mut self.ended).await
    }

    /// Returns the status with which the peer has ended the stream; `None` if there is none, or not soon.
    ///
    /// A server that refuses a stream answers, and then resets it, because it wants nothing more of the request. hyper drops
    /// the request's body at the reset, maybe before the answer is read: the answer has the status, the reset has none.
    pub(crate) async fn final_status(&mut self) -> Option<Status> {
        let mut read = 0;
        let status = async {
            loop {
                match self.body.frame().await? {
                    Err(cause) => return Some(cause.status()),
                    Ok(frame) => read += frame.data_ref().map_or(0, Bytes::len),
                }
                // A server that goes on sending messages has no status to wait for.
                if read > self.bounds.bytes {
                    return None;
                }
            }
        };
        timeout(FINAL_STATUS_TIMEOUT, status).await.ok().flatten()
    }

    /// Gives what has come of a message to its reader; returns the bytes that were not taken when all have come.
    fn take<R: MessageReader>(&mut self, reader: &mut R) -> Result<Option<Bytes>, Status> {
        let Some(mut missing) = self.begin()? else {
            return Ok(None);
        };
        let come = self.buffer.len().min(missing);
        let length = reader.take(self.buffer.get(..come).unwrap_or_default());
        // A reader that claims more than it was given must not panic in `advance`.
        let length = length.min(come);
        self.buffer.advance(length);
        missing -= length;
        if self.buffer.len() < missing {
            self.left = Some(missing);
            if length > 0 {
                // The rest of it may be long in coming, and needs no more than its own bytes until then.
                self.buffer = BytesMut::from(&*self.buffer);
            }
            return Ok(None);
        }
        self.left = None;
        let message = self.buffer.split_to(missing).freeze();
        if self.buffer.is_empty() {
            // The buffer's spare capacity goes with the message.
            self.buffer = BytesMut::new();
        }
        Ok(Some(message))
    }

    /// Takes a message's prefix from the buffer, if none has begun; returns how many bytes are left of the message.
    fn begin(&mut self) -> Result<Option<usize>, Status> {
        if self.left.is_some() {
            return Ok(self.left);
        }
        let Some((&[compressed, a, b, c, d], _)) = self.buffer.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        if compressed != 0 {
            return Err(Status::unimplemented(
                "compressed messages are not supported",
            ));
        }
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let Bounds { bytes, beyond, .. } = self.bounds;
        // The announced length is refused before a byte of the message is buffered.
        if length > bytes {
            let message = format!("cannot read a message of {length} bytes: {bytes} are allowed");
            return Err(Status::new(beyond, message));
        }
        self.buffer.advance(PREFIX);
        self.left = Some(length);
        Ok(self.left)
    }
}

async fn fill<B>(body: &mut B, buffer: &mut BytesMut, ended: &mut bool) -> Result<(), Status>
where
    B: Body<Data = Bytes, Error: BodyError> + Unpin,
{
    match body.frame().await {
        Some(Ok(frame)) => {
            if let Ok(data) = frame.into_data() {
                buffer.extend_from_slice(&data);
            }
        }
        Some(Err(cause)) => {
            // A broken stream counts as ended by the peer, since this program has refused nothing.
            *ended = true;
            return Err(cause.status());
        }
        None => *ended = true,
    }
    Ok(())
}

/// Encodes a message with its prefix.
pub(crate) fn framed(message: &impl Message) -> Vec<u8> {
    begun(message, 0)
}

/// The beginning of a message, with a prefix that announces so many more bytes.
pub(crate) fn begun(message: &impl Message, more: usize) -> Vec<u8> {
    let begin = message.encoded_len();
    let mut frame = Vec::with_capacity(PREFIX + begin);
    frame.extend_from_slice(&prefix(begin.saturating_add(more)));
    message.encode_raw(&mut frame);
    frame
}

/// The prefix of a message of this length.
pub(crate) fn prefix(length: usize) -> [u8; PREFIX] {
    // No response comes near four gigabytes: memory would be gone long before.
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
    use http_body_util::Full;
    use hyper::body::Frame;

    use super::super::address::Address;
    use super::*;

    const VALUES: usize = 1000;
    const BOUNDS: Bounds = Bounds {
        bytes: 4 << 20,
        beyond: Code::OutOfRange,
        values: VALUES,
    };

    fn request(names: usize) -> DiscoveryRequest {
        DiscoveryRequest {
            resource_names: vec!["a".to_owned(); names],
            ..DiscoveryRequest::default()
        }
    }

    async fn read_all(bytes: Vec<u8>) -> Vec<Result<usize, Code>> {
        // The result is independent of the chunks' boundaries.
        let mut all = Vec::new();
        let mut inbound = Inbound::new(Full::new(Bytes::from(bytes)), BOUNDS);
        loop {
            match inbound.next::<DiscoveryRequest>().await {
                Ok(Some(request)) => all.push(Ok(request.resource_names.len())),
                Ok(None) => return all,
                Err(status) => {
                    all.push(Err(status.code()));
                    return all;
                }
            }
        }
    }

    #[tokio::test]
    async fn messages_come_one_by_one() {
        let mut bytes = framed(&request(2));
        bytes.extend(framed(&request(0)));
        bytes.extend(framed(&request(1)));
        assert_eq!(read_all(bytes.clone()).await, [Ok(2), Ok(0), Ok(1)]);
        bytes.pop();
        let cut = read_all(bytes).await;
        assert_eq!(cut, [Ok(2), Ok(0), Err(Code::InvalidArgument)]);
    }

    /// The same message in a frame of its own, without end; how often it was taken.
    struct Endless(Bytes, usize);

    impl Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.1 += 1;
            Poll::Ready(Some(Ok(Frame::data(self.0.clone()))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ahead_of_its_messages_no_more_is_taken_in_than_may_be() {
        let message = Bytes::from(framed(&request(9)));
        let mut inbound = Inbound::new(Endless(message.clone(), 0), BOUNDS);
        for round in 0..3 {
            let taken = timeout(Duration::from_secs(1), inbound.take_in());
            assert!(taken.await.is_err(), "the stream is not broken");
            let max = AHEAD.div_ceil(message.len());
            assert_eq!(inbound.body.1, max + 100 * round);
            assert!(inbound.buffer.capacity() <= 2 * AHEAD + (16 << 10));
            for _ in 0..100 {
                let next = inbound.next::<DiscoveryRequest>().await.unwrap();
                assert_eq!(next, Some(request(9)));
            }
        }
    }

    /// Sends the beginning of a message if it is 1, and nothing more; it is polled every second.
    struct Slow(usize);

    impl Body for Slow {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.0 > 0 {
                self.0 -= 1;
                let begin = prefix(9).to_vec().into();
                return Poll::Ready(Some(Ok(Frame::data(begin))));
            }
            let waker = cx.waker().clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                waker.wake();
            });
            Poll::Pending
        }
    }

    /// 100 streams of a connection, each with 4 MiB of a message without an end.
    #[tokio::test(start_paused = true)]
    async fn a_message_that_has_begun_has_a_time_to_end() {
        let peer = Arc::new(Peer::new(Address::Unix, None));
        let begun = Instant::now();
        let mut inbound = Inbound::of(&peer, Slow(0), BOUNDS);
        let nothing = inbound.first::<DiscoveryRequest>().await.unwrap_err();
        assert_eq!(nothing.code(), Code::DeadlineExceeded);
        assert_eq!(begun.elapsed().as_secs(), FIRST.as_secs());
        // A silent stream has no message that could be late.
        let waits = timeout(2 * MESSAGE, inbound.next::<DiscoveryRequest>());
        assert!(waits.await.is_err());
        inbound.body = Slow(1);
        let begun = Instant::now();
        // Asked again and again, as a stream is that has other things to do.
        let late = loop {
            let next = timeout(Duration::from_secs(3), inbound.next::<DiscoveryRequest>());
            if let Ok(next) = next.await {
                break next.unwrap_err();
            }
        };
        assert_eq!(late.code(), Code::DeadlineExceeded);
        assert_eq!(begun.elapsed().as_secs(), MESSAGE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn partial_messages_of_a_connection_are_bounded() {
        let peer = Arc::new(Peer::new(Address::Unix, None));
        let part = |bytes: usize| {
            let mut begin = prefix(4 << 20).to_vec();
            begin.resize(bytes, 0);
            Inbound::of(&peer, Endless(begin.into(), 0), BOUNDS)
        };
        let mut large = part(3 << 20);
        let waits = timeout(Duration::from_secs(1), large.fill_in_time(0));
        waits.await.unwrap().unwrap();
        let next = timeout(Duration::ZERO, large.fill_in_time(0));
        next.await.unwrap().unwrap();
        let refused = part(2 << 20).next::<DiscoveryRequest>().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        drop(large);
        // The memory is free again: the error is about the message itself.
        let read = part(2 << 20).next::<DiscoveryRequest>().await.unwrap_err();
        assert_eq!(read.code(), Code::InvalidArgument);
    }

    /// Takes all that comes but the last byte of it, and counts.
    #[derive(Default)]
    struct Counter(usize);

    impl MessageReader for Counter {
        type Message = usize;

        fn take(&mut self, come: &[u8]) -> usize {
            let taken = come.len().saturating_sub(1);
            self.0 += taken;
            taken
        }

        fn retained(&self) -> usize {
            0
        }

        fn finish(&mut self, left: Bytes, _: usize) -> Result<usize, Status> {
            Ok(std::mem::take(&mut self.0) + left.len())
        }
    }

    /// So many frames of 1000 bytes are there, and no more for now.
    struct Frames(usize);

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.0 == 0 {
                return Poll::Pending;
            }
            self.0 -= 1;
            let begin = prefix(3_000_000);
            let bytes: Vec<_> = begin.into_iter().cycle().take(1000).collect();
            Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
        }
    }

    /// Two messages of a connection, which together are longer than one may be.
    #[tokio::test(start_paused = true)]
    async fn bytes_that_a_reader_takes_are_not_kept() {
        let peer = Arc::new(Peer::new(Address::Unix, None));
        let mut halves = [(); 2].map(|()| Inbound::of(&peer, Frames(2500), BOUNDS));
        let mut readers = [(); 2].map(|()| Counter::default());
        for (inbound, reader) in halves.iter_mut().zip(&mut readers) {
            let waits = timeout(Duration::from_secs(1), inbound.next_by(reader));
            assert!(waits.await.is_err(), "its end has not come");
            assert_eq!((inbound.buffer.len(), reader.0), (1, 2_499_994));
            assert!(inbound.buffer.capacity() < 100);
        }
        for (inbound, reader) in halves.iter_mut().zip(&mut readers) {
            inbound.body = Frames(501);
            assert_eq!(inbound.next_by(reader).await.unwrap(), Some(3_000_000));
            assert_eq!(inbound.buffer.len(), 995);
        }
        // Of a reader that takes nothing both have all in memory.
        let mut whole = [(); 2].map(|()| Inbound::of(&peer, Frames(2500), BOUNDS));
        let [one, other] = &mut whole;
        let waits = timeout(Duration::from_secs(1), one.next::<DiscoveryRequest>());
        assert!(waits.await.is_err(), "its end has not come");
        let refused = other.next::<DiscoveryRequest>().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
    }

    #[tokio::test(start_paused = true)]
    async fn received_messages_are_read_to_the_end() {
        let bytes = [framed(&request(2)), framed(&request(1))].concat();
        let mut inbound = Inbound::new(Full::new(Bytes::from(bytes)), BOUNDS);
        let taken = timeout(Duration::from_secs(1), inbound.take_in());
        assert!(taken.await.is_err(), "the stream is not broken");
        for expected in [Some(request(2)), Some(request(1)), None, None] {
            assert_eq!(inbound.next().await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn messages_beyond_the_bounds_are_refused() {
        for (bytes, code) in [
            (vec![1, 0, 0, 0, 0], Code::Unimplemented),
            (vec![0, 0, 0x40, 0, 1], Code::OutOfRange),
            (framed(&request(VALUES + 1)), Code::ResourceExhausted),
            (vec![0, 0, 0, 0, 1, 0xff], Code::InvalidArgument),
        ] {
            assert_eq!(read_all(bytes).await, [Err(code)]);
        }
    }
}
