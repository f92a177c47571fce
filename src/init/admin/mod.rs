//! The client of Envoy's admin port: a few calls at a time, non-blocking, each with one deadline.

#![forbid(unsafe_code)]

mod call;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod ready;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Registry, Token};

use crate::http::{Decoder, Exchange, Response};
use crate::readiness::Heard;
use crate::supervisor::{Call, Event, ProcessId, Reply};
pub(crate) use call::Knowledge;
use call::{Endpoint, Step};
pub(crate) use ready::Ports;
use ready::{Gathered, ListenerScan};

/// Calls under way at once: one of each kind, for two epochs.
pub(crate) const SLOTS: usize = 8;
/// An admin port that is silent for so long is as good as gone. Kubernetes' default `timeoutSeconds` of a probe.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// The core has asked.
    Core(Event),
    /// The status port has asked about this process.
    Ready(ProcessId, Heard),
}

impl Answer {
    /// The admin port did not do what it is for.
    #[must_use]
    pub(crate) const fn is_failure(&self) -> bool {
        match self {
            Self::Core(event) => matches!(
                event,
                Event::AdminReplied {
                    reply: Reply::Failed | Reply::Silent,
                    ..
                }
            ),
            Self::Ready(_, heard) => !matches!(heard, Heard::Facts(_)),
        }
    }
}

/// The origin of a call, and its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Core(Call),
    Ready,
}

/// A call under way.
#[derive(Debug)]
struct Pending {
    process: ProcessId,
    purpose: Purpose,
    endpoint: Endpoint,
    exchange: Exchange,
    body: Body,
    /// Facts gathered about readiness.
    gathered: Gathered,
    deadline: Instant,
}

#[derive(Debug)]
enum Body {
    Kept(Response),
    /// However long it is.
    Scanned(Decoder, ListenerScan),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct AdminClient {
    address: SocketAddr,
    knowledge: Knowledge,
    ports: Ports,
    /// The process, and after how many updates its listeners had all the ports.
    listening: Option<(ProcessId, u64)>,
    /// The token of the first slot; the others follow.
    first_token: usize,
    slots: [Option<Box<Pending>>; SLOTS],
}

impl AdminClient {
    #[must_use]
    pub(crate) fn new(
        address: SocketAddr,
        knowledge: Knowledge,
        ports: Ports,
        first_token: usize,
    ) -> Self {
        Self {
            address,
            knowledge,
            ports,
            listening: None,
            first_token,
            slots: Default::default(),
        }
    }

    /// Begins a call. The same call that is still under way answers for this one, too; a failure to begin is a reply.
    pub(crate) fn ask(
        &mut self,
        registry: &Registry,
        now: Instant,
        process: ProcessId,
        call: Call,
    ) -> Option<Answer> {
        let endpoint = Endpoint::first(call, &self.knowledge);
        self.open(registry, now, (process, Purpose::Core(call)), endpoint)
    }

    /// Asks about readiness; as for `ask`.
    pub(crate) fn ask_ready(
        &mut self,
        registry: &Registry,
        now: Instant,
        process: ProcessId,
    ) -> Option<Answer> {
        self.open(
            registry,
            now,
            (process, Purpose::Ready),
            Endpoint::ReadyStats,
        )
    }

    fn open(
        &mut self,
        registry: &Registry,
        now: Instant,
        (process, purpose): (ProcessId, Purpose),
        endpoint: Endpoint,
    ) -> Option<Answer> {
        let same = |slot: &Pending| slot.process == process && slot.purpose == purpose;
        if self.slots.iter().flatten().any(|slot| same(slot)) {
            return None;
        }
        let Some(slot) = self.slots.iter().position(Option::is_none) else {
            // Nobody was asked.
            return Some(failed(process, purpose, Heard::Unclear));
        };
        let exchange = match self.connect(registry, slot, endpoint) {
            Ok(exchange) => exchange,
            Err(error) => return Some(failed(process, purpose, heard(&error))),
        };
        let body = self.body(endpoint);
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(Box::new(Pending {
                process,
                purpose,
                endpoint,
                exchange,
                body,
                gathered: Gathered::default(),
                deadline: now.checked_add(TIMEOUT).unwrap_or(now),
            }));
        }
        None
    }

    fn connect(
        &self,
        registry: &Registry,
        slot: usize,
        endpoint: Endpoint,
    ) -> io::Result<Exchange> {
        let bytes = endpoint.bytes(&self.knowledge);
        Exchange::connect(registry, self.token(slot), self.address, bytes)
    }

    const fn token(&self, slot: usize) -> Token {
        Token(self.first_token.saturating_add(slot))
    }

    fn body(&self, endpoint: Endpoint) -> Body {
        if endpoint == Endpoint::Listeners {
            Body::Scanned(Decoder::new(), ListenerScan::new(&self.ports))
        } else {
            Body::Kept(Response::new(endpoint.limit()))
        }
    }

    /// A slot's socket is ready. Returns the answer once there is one.
    pub(crate) fn ready(&mut self, registry: &Registry, slot: usize) -> Option<Answer> {
        let token = self.token(slot);
        let pending = self.slots.get_mut(slot)?.as_mut()?;
        let Pending { exchange, body, .. } = &mut **pending;
        let received = exchange.receive(registry, token, &mut |bytes| match body {
            Body::Kept(response) => response.take(bytes),
            Body::Scanned(decoder, scan) => {
                let done = decoder.take(bytes, &mut |piece| scan.feed(piece))?;
                scan.check().map(|()| done)
            }
        });
        let heard = match received {
            Ok(false) => return None,
            Ok(true) => None,
            Err(error) => Some(heard(&error)),
        };
        // Dropped at the end: a socket that is closed leaves epoll by itself.
        let pending = self.slots.get_mut(slot)?.take()?;
        if let Some(heard) = heard {
            return Some(failed(pending.process, pending.purpose, heard));
        }
        match pending.purpose {
            Purpose::Core(call) => self.judge(registry, slot, call, pending),
            Purpose::Ready => self.judge_ready(registry, slot, pending),
        }
    }

    fn judge(
        &mut self,
        registry: &Registry,
        slot: usize,
        call: Call,
        pending: Box<Pending>,
    ) -> Option<Answer> {
        let process = pending.process;
        let Body::Kept(response) = &pending.body else {
            return Some(failed(process, pending.purpose, Heard::Unclear));
        };
        match pending
            .endpoint
            .judge(process.epoch, response, &self.knowledge)
        {
            Step::Reply(reply) => Some(replied(process, call, reply)),
            Step::Ask(endpoint) => self.go_on(registry, slot, pending, endpoint),
        }
    }

    fn judge_ready(
        &mut self,
        registry: &Registry,
        slot: usize,
        mut pending: Box<Pending>,
    ) -> Option<Answer> {
        let (process, purpose, endpoint) = (pending.process, pending.purpose, pending.endpoint);
        let next = match pending.body {
            Body::Kept(ref response) => ready::take(
                &mut pending.gathered,
                endpoint,
                process.epoch,
                response,
                &self.knowledge,
            ),
            Body::Scanned(_, scan) => {
                let missing = scan.missing();
                pending.gathered.facts.missing_port = missing;
                if missing.is_none() {
                    self.listening = pending.gathered.updates.map(|updates| (process, updates));
                }
                return Some(Answer::Ready(process, Heard::Facts(pending.gathered.facts)));
            }
        };
        match next {
            Ok(Some(endpoint)) => self.go_on(registry, slot, pending, endpoint),
            Ok(None) if self.needs_listeners(&pending) => {
                self.go_on(registry, slot, pending, Endpoint::Listeners)
            }
            Ok(None) => Some(Answer::Ready(process, Heard::Facts(pending.gathered.facts))),
            Err(ready::Unclear) => Some(failed(process, purpose, Heard::Unclear)),
        }
    }

    /// Listeners come and go with an update of theirs; until the next they need not be asked for again.
    fn needs_listeners(&self, pending: &Pending) -> bool {
        let now = pending
            .gathered
            .updates
            .map(|updates| (pending.process, updates));
        !self.ports.wanted.is_empty()
            && pending.gathered.facts.workers
            && (now.is_none() || now != self.listening)
    }

    /// The next request of a call, within its time.
    fn go_on(
        &mut self,
        registry: &Registry,
        slot: usize,
        mut pending: Box<Pending>,
        endpoint: Endpoint,
    ) -> Option<Answer> {
        let exchange = match self.connect(registry, slot, endpoint) {
            Ok(exchange) => exchange,
            Err(error) => return Some(failed(pending.process, pending.purpose, heard(&error))),
        };
        pending.endpoint = endpoint;
        pending.exchange = exchange;
        pending.body = self.body(endpoint);
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(pending);
        }
        None
    }

    /// Returns the time at which the first call runs out of time.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.slots
            .iter()
            .flatten()
            .map(|pending| pending.deadline)
            .min()
    }

    /// A call that ran out of time.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Answer> {
        let late = |slot: &&mut Option<Box<Pending>>| {
            slot.as_ref().is_some_and(|pending| pending.deadline <= now)
        };
        let pending = self.slots.iter_mut().find(late)?.take()?;
        Some(failed(pending.process, pending.purpose, Heard::Silent))
    }
}

/// Returns the state of the other side that a broken call shows.
fn heard(error: &io::Error) -> Heard {
    if error.kind() == io::ErrorKind::InvalidData {
        Heard::Unclear
    } else {
        Heard::Refused
    }
}

fn failed(process: ProcessId, purpose: Purpose, heard: Heard) -> Answer {
    match purpose {
        Purpose::Core(Call::Live) if heard == Heard::Silent => {
            replied(process, Call::Live, Reply::Silent)
        }
        Purpose::Core(call) => replied(process, call, Reply::Failed),
        Purpose::Ready => Answer::Ready(process, heard),
    }
}

fn replied(process: ProcessId, call: Call, reply: Reply) -> Answer {
    Answer::Core(Event::AdminReplied {
        process,
        call,
        reply,
    })
}
