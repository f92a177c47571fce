//! Advances the work behind each response: application probes, readiness, merged metrics.

#![forbid(unsafe_code)]

use mio::Token;

use super::connection::{Connection, Flow, PendingRequest, Phase};
use super::limits::{HELPERS, PAUSE, STRANGERS_HELPERS};
use super::routes::Topic;
use super::{Effect, StatusServer};
use crate::readiness::Stage;
use crate::status::metrics::merge::{Merge, Pumped};
use crate::status::metrics::usage::Usage;
use crate::status::pages::{json, page};
use crate::status::probes::{Probing, Progress};
use crate::status::response::{self, line};
use crate::status::view::View;
use crate::status::{Turn, count, metrics};

/// Reads from metrics sources in one turn of the loop, for all scrapes together. Chosen: 16 reads
/// of 8 kB, then others have their turn; each scrape has one at least.
const ROUNDS: usize = 16;

impl StatusServer {
    /// Advances an application probe: starts it, or handles its ready socket.
    pub(super) fn probe(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        step: fn(&mut Probing, &Turn<'_>, Token) -> Progress,
    ) {
        let token = self.far_token(place);
        if let Phase::Probing(probing) = &mut connection.phase {
            let progress = step(probing, turn, token);
            self.progressed(turn, place, connection, progress);
        }
    }

    fn progressed(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        progress: Progress,
    ) {
        match progress {
            Progress::Going => {}
            Progress::NeedsHelper if self.may_run_helper(connection) => {
                self.request_helper(turn, place, connection);
            }
            // Its turn comes when another ends.
            Progress::NeedsHelper => {}
            Progress::Answer(status, body) => {
                self.finish_probes(turn, place, connection, (status, &body));
            }
        }
    }

    /// Connections to which metrics are passed on.
    fn merging(&self) -> usize {
        self.connections()
            .filter(|(_, connection)| matches!(connection.phase, Phase::Merging(_)))
            .count()
    }

    fn request_helper(&mut self, turn: &mut Turn<'_>, place: usize, connection: &mut Connection) {
        let token = self.far_token(place);
        let Phase::Probing(probing) = &mut connection.phase else {
            return;
        };
        self.helpers = self.helpers.saturating_add(1);
        match probing.prepare_helper(turn, token, place, self.helpers) {
            Ok(helper) => {
                self.helpers_alive = self.helpers_alive.saturating_add(1);
                self.effects.push(Effect::Helper(helper));
            }
            Err(error) => {
                let body = line(&["cannot open a pair of sockets: ", &error.to_string()]);
                self.finish_probes(turn, place, connection, (500, &body));
            }
        }
    }

    /// A helper program was reaped. It counts until then: it may live on after its answer.
    pub(crate) fn helper_ended(&mut self, turn: &mut Turn<'_>) {
        self.helpers_alive = self.helpers_alive.saturating_sub(1);
        self.start_queued(turn);
    }

    fn may_run_helper(&self, connection: &Connection) -> bool {
        let most = if connection.kept {
            HELPERS
        } else {
            STRANGERS_HELPERS
        };
        self.helpers_alive < most
    }

    fn start_queued(&mut self, turn: &mut Turn<'_>) {
        let queued = |connection: &Connection| match &connection.phase {
            Phase::Probing(probing) => probing.is_queued(),
            Phase::Head
            | Phase::Waiting(_)
            | Phase::Merging(_)
            | Phase::Finishing
            | Phase::Lingering { .. } => false,
        };
        loop {
            let next = self
                .connections()
                .filter(|(_, connection)| queued(connection) && self.may_run_helper(connection))
                .min_by_key(|(_, connection)| (!connection.kept, connection.opened));
            let Some((place, _)) = next else {
                return;
            };
            let Some(mut connection) = self.take(place) else {
                return;
            };
            self.request_helper(turn, place, &mut connection);
            if matches!(connection.phase, Phase::Finishing) && connection.flush() != Flow::Later {
                continue;
            }
            self.put(place, connection);
        }
    }

    /// A helper could not be started.
    pub(crate) fn helper_failed(&mut self, turn: &mut Turn<'_>, place: usize, why: &str) {
        if let Some(mut connection) = self.take(place) {
            self.finish_probes(turn, place, &mut connection, (500, &line(&[why])));
            self.settle(turn, place, connection, Flow::Later);
        }
        self.helper_ended(turn);
    }

    /// Answers all requests that wait for the proxy's readiness.
    pub(crate) fn answer(&mut self, turn: &mut Turn<'_>, stage: Stage, view: &View<'_>) {
        for place in 0..self.places.len() {
            let waits = self.connection(place).map(|connection| &connection.phase);
            if !matches!(waits, Some(Phase::Waiting(_))) {
                continue;
            }
            let Some(mut connection) = self.take(place) else {
                continue;
            };
            let Phase::Waiting(pending) =
                std::mem::replace(&mut connection.phase, Phase::Finishing)
            else {
                continue;
            };
            let flow = self.answer_one(turn, place, &mut connection, (pending, stage), view);
            self.settle(turn, place, connection, flow);
        }
    }

    fn answer_one(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        (pending, stage): (PendingRequest, Stage),
        view: &View<'_>,
    ) -> Flow {
        self.used_seldom |= pending.topic != Topic::Ready;
        match pending.topic {
            Topic::Ready => {
                let (status, counter) = if stage.is_ready() {
                    (200, &mut turn.counters.ready_probes)
                } else {
                    (503, &mut turn.counters.unready_probes)
                };
                count(counter);
                let body = line(&[&stage.to_string()]);
                connection.answer(status, response::TEXT, &body, pending.framing);
            }
            Topic::Status => {
                connection.answer(200, response::JSON, &json::render(view), pending.framing);
            }
            Topic::Page => {
                connection.answer(200, response::HTML, &page::render(view), pending.framing);
            }
            Topic::Metrics => {
                count(&mut turn.counters.scrapes);
                let own = metrics::render(view, &Usage::read());
                return self.begin_merge(turn, place, connection, (pending, own));
            }
        }
        Flow::Later
    }

    /// The agent's own first: they are there whatever becomes of the others.
    fn begin_merge(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        (pending, own): (PendingRequest, Vec<u8>),
    ) -> Flow {
        let length = if pending.framing.chunks {
            response::Length::Chunked
        } else {
            response::Length::Close
        };
        let mut bytes = response::head(200, response::METRICS, length);
        if pending.framing.head_only {
            connection.put(bytes);
            return Flow::Later;
        }
        if pending.framing.chunks {
            response::chunk(&mut bytes, &own);
        } else {
            bytes.extend_from_slice(&own);
        }
        connection.put(bytes);
        let first = usize::from(self.settings.metrics.without_proxy);
        let merge = Merge::new(pending.framing, pending.query, (PAUSE, pending.end), first);
        connection.phase = Phase::Merging(Box::new(merge));
        self.merge(turn, place, connection)
    }

    /// Reads from a source only what the client has room for.
    pub(super) fn merge(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
    ) -> Flow {
        let token = self.far_token(place);
        // This one is not in its place while it is served.
        let share = ROUNDS / self.merging().saturating_add(1);
        for _ in 0..share.max(1) {
            match connection.flush() {
                Flow::Done => {}
                Flow::Later => {
                    connection.expect_reading(turn.after(PAUSE));
                    return Flow::Later;
                }
                Flow::Broken => return Flow::Broken,
            }
            let mut out = Vec::new();
            let Phase::Merging(merge) = &mut connection.phase else {
                return Flow::Later;
            };
            match merge.pump(turn, token, (&self.settings, &mut self.failing), &mut out) {
                Pumped::More => connection.put(out),
                Pumped::Waiting => {
                    connection.deadline = merge.deadline().unwrap_or(turn.now);
                    return Flow::Later;
                }
                Pumped::End => {
                    self.used_seldom = true;
                    connection.put(out);
                    connection.phase = Phase::Finishing;
                    return Flow::Later;
                }
            }
        }
        connection.deadline = turn.after(PAUSE);
        self.runnable = true;
        Flow::Later
    }
}

/// The end of a probe.
pub(super) fn finish_probe(
    turn: &mut Turn<'_>,
    connection: &mut Connection,
    status: u16,
    body: &[u8],
) {
    let framing = match &connection.phase {
        Phase::Probing(probing) => probing.framing,
        Phase::Head
        | Phase::Waiting(_)
        | Phase::Merging(_)
        | Phase::Finishing
        | Phase::Lingering { .. } => return,
    };
    count(if status < 400 {
        &mut turn.counters.app_probes_passed
    } else {
        &mut turn.counters.app_probes_failed
    });
    connection.answer(status, response::TEXT, body, framing);
}
