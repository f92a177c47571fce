//! The protocol of ADS on one stream: requests and pushes come in, and the stream's value in `xds` says what goes out.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tracing::{error, info, warn};
use xds::node::clipped;
use xds::resource_names::ResourceNames;
use xds::stream::{Fault, RequestOutcome, Stall, Stream};
use xds::view::{Type, View};

use super::hub::{Hub, LARGE, StreamRegistration};
use super::refused_streams::RefusalReason;
use super::request_reader::StreamReader;
use super::session::{PendingPush, PushOutcome};
use super::wire::{self, ClientRequest};
use crate::clock::Clock;
use crate::grpc::{Reads, StreamProtocol, StreamWaits};

/// Time for which an unread response holds a push permit. Chosen: a client that reads needs milliseconds.
const HOLD: Duration = Duration::from_secs(1);
/// The number of log lines that a stream's unknown types get.
const UNKNOWN: u64 = 1;

/// The protocol of a stream whose node is known.
pub(super) struct AdsProtocol<'a> {
    hub: &'a Hub,
    joined: StreamRegistration,
    /// A response that is not written yet.
    writing: Option<Type>,
    push: Option<(PendingPush, PushPermit)>,
    /// The time of the first change of the pushes that the client does not have as a whole yet.
    converging: Option<Duration>,
    unknown: u64,
    /// The error of a request that names what it may not: the stream ends once the response that is due is on its way.
    refusal: Option<Status>,
}

/// The right to begin with a push.
struct PushPermit {
    permit: Option<OwnedSemaphorePermit>,
    until: Duration,
}

/// An event of a stream besides its requests.
pub(super) enum PushEvent {
    Permit(Option<OwnedSemaphorePermit>),
    Pending,
}

impl<'a> StreamProtocol for AdsProtocol<'a> {
    type Reader = StreamReader;
    type Event = PushEvent;

    const PEER_SENDS_STATUS: bool = false;

    fn clock(&self) -> &Clock {
        &self.hub.clock
    }

    async fn receive(&mut self, request: Box<ClientRequest>) -> Result<(), Status> {
        self.take_in(request).await;
        Ok(())
    }

    async fn event(&mut self, is_free: bool) -> PushEvent {
        let session = &self.joined.session;
        // Without a free sender the stream could not write, and would only keep the permit from others.
        let wants_permit = is_free && session.has_pending() && self.push.is_none();
        let permit = Arc::clone(&self.hub.throttle).acquire_owned();
        tokio::select! {
            permit = permit, if wants_permit => PushEvent::Permit(permit.ok()),
            () = session.woken.notified() => PushEvent::Pending,
        }
    }

    async fn handle(&mut self, event: PushEvent) -> Result<(), Status> {
        // `Pending` only wakes the loop, whose next wait asks for a permit.
        if let PushEvent::Permit(permit) = event {
            self.open(permit);
            self.make_pushed().await;
        }
        Ok(())
    }

    fn check_deadlines(&mut self, now: Duration, is_free: bool) -> Result<(), Status> {
        let session = &self.joined.session;
        match session.stall(now) {
            Some(Stall::Slow) => {
                self.hub.metrics.write_timed_out();
                if let Some(more) = self.hub.log_rate_limiters.slow.suffix_if_allowed() {
                    let id = clipped(&session.node.id);
                    warn!("{id} does not read its responses{more}");
                }
            }
            Some(Stall::Closed) => {
                return Err(Status::deadline_exceeded(
                    "a response was not read for 60 s",
                ));
            }
            None => {}
        }
        if let Some((_, turn)) = &mut self.push
            && !is_free
            && turn.until <= now
        {
            turn.permit = None;
        }
        Ok(())
    }

    fn next_response(&mut self, now: Duration) -> Option<Vec<Bytes>> {
        let session = &self.joined.session;
        // The loop calls this with a free sender: the response before is written.
        if self.writing.take().is_some() {
            session.written();
        }
        let response = session.next(now);
        self.log_build_errors(&session.take_build_errors());
        let message = response.map(|response| {
            self.writing = Some(response.kind);
            let message = wire::encode(session.protocol, &response, &self.hub.pieces);
            let took = self.hub.clock.now().saturating_sub(now);
            self.hub.sent(response.kind, took);
            message
        });
        if message.is_none()
            && let Some((pending, _)) = self.push.take()
        {
            // Its permit goes to another stream: what this one still owes follows the client's answers.
            let since = self.converging.unwrap_or(pending.since);
            self.converging = Some(since.min(pending.since));
        }
        if self.push.is_none() && !session.with_stream(Stream::is_pending) {
            let since = self.converging.take();
            let took = since.map(|since| now.saturating_sub(since));
            took.inspect(|took| self.hub.metrics.converged(*took));
        }
        message
    }

    fn waits(&mut self, _now: Duration, _is_free: bool) -> Result<StreamWaits, Status> {
        if let Some(status) = self.refusal.take() {
            return Err(status);
        }
        let mut deadline = self.joined.session.deadline();
        if let Some((_, turn)) = &self.push
            && turn.permit.is_some()
        {
            deadline = Some(deadline.map_or(turn.until, |at| at.min(turn.until)));
        }
        let reads = Reads::Request;
        Ok(StreamWaits { deadline, reads })
    }

    fn shutdown(&self) -> impl Future<Output = ()> + Send + use<'a> {
        self.hub.lifecycle.streams_end()
    }

    fn disconnected(&self) -> Status {
        Status::cancelled("the client is gone")
    }

    fn response_unsent(&self) {
        if let Some(kind) = self.writing {
            self.hub.metrics.unsent(kind);
        }
    }
}

impl<'a> AdsProtocol<'a> {
    pub(super) fn new(hub: &'a Hub, joined: StreamRegistration) -> Self {
        Self {
            hub,
            joined,
            writing: None,
            push: None,
            converging: None,
            unknown: 0,
            refusal: None,
        }
    }

    /// Takes in a request.
    pub(super) async fn take_in(&mut self, request: Box<ClientRequest>) {
        self.make_ahead(&request).await;
        self.handle_request(&request);
    }

    /// Builds the resources of a large answer off the loop, before the stream takes them.
    async fn make_ahead(&self, received: &ClientRequest) {
        let Some(request) = &received.request else {
            return;
        };
        // An acknowledgement names what the stream has already, so nothing is made for it.
        let news = |stream: &Stream| (!stream.repeats(request)).then(|| Arc::clone(stream.view()));
        let Some(view) = self.joined.session.with_stream(news) else {
            return;
        };
        if view.unbuilt(request.kind, &request.names) < LARGE {
            return;
        }
        self.make_beside(view, vec![(request.kind, request.names.clone())])
            .await;
    }

    /// Builds the pushed resources off the loop, unless the snapshot already built them for this kind of proxy.
    async fn make_pushed(&self) {
        let session = &self.joined.session;
        let Some((pending, _)) = &self.push else {
            return;
        };
        if pending.snapshot.is_ahead(&session.node) {
            return;
        }
        let (view, requested) = session.with_stream(|stream| {
            let concerned = stream.concerned(&pending.scope);
            (Arc::clone(stream.view()), concerned)
        });
        self.make_beside(view, requested).await;
    }

    async fn make_beside(&self, view: Arc<dyn View>, requested: Vec<(Type, ResourceNames)>) {
        let unbuilt = requested
            .iter()
            .map(|(kind, names)| view.unbuilt(*kind, names));
        let size = unbuilt.fold(0, usize::saturating_add);
        if size < LARGE {
            return;
        }
        let make = move || {
            requested
                .iter()
                .for_each(|(kind, names)| view.make_ahead(*kind, names));
        };
        // The stream meets a panic again, and counts it.
        let make = move || catch_unwind(AssertUnwindSafe(make)).is_ok();
        let _made = self.hub.blocking.run(size, make).await;
    }

    fn handle_request(&mut self, received: &ClientRequest) {
        let session = &self.joined.session;
        let id = clipped(&session.node.id);
        let Some(request) = &received.request else {
            self.unknown += 1;
            self.hub.metrics.unknown_type();
            if self.unknown == UNKNOWN
                && let Some(more) = self.hub.log_rate_limiters.unknown.suffix_if_allowed()
            {
                let url = clipped(&received.url);
                info!("{id} requests {url:?}, which is not served{more}");
            }
            return;
        };
        let outcome = match session.receive(self.hub.clock.now(), request) {
            Ok(outcome) => outcome,
            Err(fault) => return self.refuse(fault),
        };
        match outcome {
            RequestOutcome::Nacked(times) => {
                self.hub.metrics.nacked(request.kind);
                if should_log_repeat(times)
                    && let Some(more) = self.hub.log_rate_limiters.nacks.suffix_if_allowed()
                {
                    let message = request.error.as_deref().unwrap_or_default();
                    let rules = match session
                        .with_stream(|stream| stream.nacked_rules_text(request.kind, 5))
                    {
                        rules if rules.is_empty() => rules,
                        rules => format!(" ({rules})"),
                    };
                    warn!(
                        "{id} refuses {}: {}{rules}{repeated}{more}",
                        request.kind.as_str(),
                        one_line(message),
                        repeated = api::times(times)
                    );
                }
            }
            RequestOutcome::Expired => self.hub.metrics.expired(request.kind),
            RequestOutcome::Subscribed | RequestOutcome::Acked | RequestOutcome::Asked => {}
        }
    }

    /// Refuses a request that names what it may not.
    fn refuse(&mut self, fault: Fault) {
        let cause = fault.to_string();
        let peer = &self.joined.session.peer;
        self.hub.refuse(peer, RefusalReason::Names, &cause);
        self.refusal = Some(match fault {
            Fault::TooManyNames(_) => Status::resource_exhausted(cause),
            Fault::UnknownNames | Fault::LongName(_) => Status::invalid_argument(cause),
        });
    }

    /// Logs kinds that failed to build by a panic. The panic costs one proxy one push.
    fn log_build_errors(&self, kinds: &BTreeSet<Type>) {
        for kind in kinds {
            self.hub.metrics.count_build_error(*kind);
            let (id, type_name) = (clipped(&self.joined.session.node.id), kind.as_str());
            error!("cannot build {type_name} for {id}: internal error; its last version stays");
        }
    }

    /// Takes in the pending push, now that the stream has a permit.
    fn open(&mut self, permit: Option<OwnedSemaphorePermit>) {
        let now = self.hub.clock.now();
        let Some((pending, outcome)) = self.joined.session.take_pending() else {
            return;
        };
        if outcome == PushOutcome::Nothing {
            // Without a view nothing of the subscribed types was made.
            return self.log_build_errors(&self.joined.session.subscribed_types());
        }
        if pending.is_nothing() {
            return;
        }
        self.hub.metrics.queued(now.saturating_sub(pending.put));
        let until = now + HOLD;
        self.push = Some((pending, PushPermit { permit, until }));
    }
}

/// Returns a client's message on one line, cut to the room of a log line.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    clipped(&line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Envoy names each resource that it refuses on a line of its own.
    #[test]
    fn a_refusal_is_one_line_of_the_log() {
        let message = "Error adding/updating listener(s) a: no file\nb: no port\r\n";
        let line = "Error adding/updating listener(s) a: no file b: no port";
        assert_eq!(
            (one_line(message).as_str(), one_line("")),
            (line, String::new())
        );
        assert!((200..=256).contains(&one_line(&"é\n".repeat(2000)).len()));
    }
}
