//! The client of Envoy's admin port: a few calls at a time, non-blocking, each with one deadline.

#![forbid(unsafe_code)]

mod call;

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::http::Response;
use crate::supervisor::{Call, Epoch, Event, Reply};
pub(crate) use call::Knowledge;
use call::{Request, Step};

/// Calls under way at once: one of each kind, for two epochs.
pub(crate) const SLOTS: usize = 6;
/// An admin port that is silent for so long is as good as gone (the contract's 1 s).
const TIMEOUT: Duration = Duration::from_secs(1);
/// What is read at once; an answer to `Live` is 350 bytes in all.
const READ_BYTES: usize = 4096;

/// A call under way.
#[derive(Debug)]
struct Exchange {
    epoch: Epoch,
    call: Call,
    request: Request,
    stream: TcpStream,
    /// Not sent yet.
    unsent: Vec<u8>,
    response: Response,
    deadline: Instant,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct AdminClient {
    address: SocketAddr,
    knowledge: Knowledge,
    /// The token of the first slot; the others follow.
    first_token: usize,
    slots: [Option<Exchange>; SLOTS],
}

impl AdminClient {
    #[must_use]
    pub(crate) fn new(address: SocketAddr, knowledge: Knowledge, first_token: usize) -> Self {
        Self {
            address,
            knowledge,
            first_token,
            slots: Default::default(),
        }
    }

    /// Begins a call. The same call that is still under way answers for this one, too; a failure to begin is a reply.
    pub(crate) fn ask(
        &mut self,
        registry: &Registry,
        now: Instant,
        epoch: Epoch,
        call: Call,
    ) -> Option<Event> {
        let same = |slot: &Exchange| slot.epoch == epoch && slot.call == call;
        if self.slots.iter().flatten().any(same) {
            return None;
        }
        let request = Request::first(call, &self.knowledge);
        let free = self.slots.iter().position(Option::is_none);
        let begun = free.is_some_and(|slot| {
            self.begin(registry, slot, (epoch, call, request), deadline(now))
                .is_ok()
        });
        (!begun).then(|| replied(epoch, call, Reply::Failed))
    }

    /// A slot's socket is ready. Returns the reply once there is one.
    pub(crate) fn ready(&mut self, registry: &Registry, slot: usize) -> Option<Event> {
        let exchange = self.slots.get_mut(slot)?.as_mut()?;
        let finished = match exchange.advance() {
            Ok(false) => return None,
            Ok(true) => true,
            Err(_) => false,
        };
        let mut exchange = self.slots.get_mut(slot)?.take()?;
        // A socket that is closed leaves epoll by itself; the result has nothing to say.
        drop(registry.deregister(&mut exchange.stream));
        let (epoch, call) = (exchange.epoch, exchange.call);
        if !finished {
            return Some(replied(epoch, call, Reply::Failed));
        }
        match exchange
            .request
            .judge(epoch, &exchange.response, &self.knowledge)
        {
            Step::Reply(reply) => Some(replied(epoch, call, reply)),
            Step::Ask(request) => {
                let next = (epoch, call, request);
                let begun = self.begin(registry, slot, next, exchange.deadline);
                begun.err().map(|_| replied(epoch, call, Reply::Failed))
            }
        }
    }

    /// When the first call runs out of time.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.slots
            .iter()
            .flatten()
            .map(|exchange| exchange.deadline)
            .min()
    }

    /// A call that ran out of time.
    pub(crate) fn expire(&mut self, registry: &Registry, now: Instant) -> Option<Event> {
        let late = |slot: &Option<Exchange>| slot.as_ref().is_some_and(|e| e.deadline <= now);
        let slot = self.slots.iter().position(late)?;
        let mut exchange = self.slots.get_mut(slot)?.take()?;
        drop(registry.deregister(&mut exchange.stream));
        Some(replied(exchange.epoch, exchange.call, Reply::Failed))
    }

    fn begin(
        &mut self,
        registry: &Registry,
        slot: usize,
        (epoch, call, request): (Epoch, Call, Request),
        deadline: Instant,
    ) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.address)?;
        let token = Token(self.first_token.saturating_add(slot));
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let unsent = request.bytes(&self.knowledge);
        let response = Response::new(request.limit());
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(Exchange {
                epoch,
                call,
                request,
                stream,
                unsent,
                response,
                deadline,
            });
        }
        Ok(())
    }
}

impl Exchange {
    /// Sends and receives until the socket would block. `true`: the response is there.
    fn advance(&mut self) -> io::Result<bool> {
        if !self.unsent.is_empty() && !self.send()? {
            return Ok(false);
        }
        let mut buffer = [0; READ_BYTES];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) if self.response.close() => return Ok(true),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    let bytes = buffer.get(..read).unwrap_or_default();
                    if self.response.feed(bytes).is_err() {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    if self.response.is_done() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return quiet(error).map(|()| false),
            }
        }
    }

    /// Whether the whole request is out.
    fn send(&mut self) -> io::Result<bool> {
        loop {
            match self.stream.write(&self.unsent) {
                Ok(written) => {
                    self.unsent.drain(..written.min(self.unsent.len()));
                    if self.unsent.is_empty() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The connection is not there yet: the next readiness says.
                Err(error) => return quiet(error).map(|()| false),
            }
        }
    }
}

/// Errors that only mean "later".
fn quiet(error: io::Error) -> io::Result<()> {
    let later = [io::ErrorKind::WouldBlock, io::ErrorKind::NotConnected];
    if later.contains(&error.kind()) {
        Ok(())
    } else {
        Err(error)
    }
}

fn deadline(now: Instant) -> Instant {
    now.checked_add(TIMEOUT).unwrap_or(now)
}

const fn replied(epoch: Epoch, call: Call, reply: Reply) -> Event {
    Event::AdminReplied { epoch, call, reply }
}
