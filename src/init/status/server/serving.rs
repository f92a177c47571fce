//! Advances the work behind each response: application probes, readiness, merged metrics.

#![forbid(unsafe_code)]

use std::net::IpAddr;

use mio::Token;

use super::connection::{Connection, ConnectionPhase, Flow, PendingRequest};
use super::limits::{HELPERS, LEARNED_HELPERS, PAUSE, STRANGERS_HELPERS};
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
        if let ConnectionPhase::Probing(probing) = &mut connection.phase {
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
            .filter(|(_, connection)| matches!(connection.phase, ConnectionPhase::Merging(_)))
            .count()
    }

    fn request_helper(&mut self, turn: &mut Turn<'_>, place: usize, connection: &mut Connection) {
        let token = self.far_token(place);
        let ConnectionPhase::Probing(probing) = &mut connection.phase else {
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
        let from = connection.from;
        let max = if self.is_certain(from) {
            HELPERS
        } else if self.settings.node.is_none() && (connection.kept || self.helpers_of(from) == 0) {
            LEARNED_HELPERS
        } else {
            STRANGERS_HELPERS
        };
        self.helpers_alive < max
    }

    /// Helpers that work for an address.
    fn helpers_of(&self, from: IpAddr) -> usize {
        let helped = |(_, other): &(usize, &Connection)| {
            other.from == from
                && matches!(&other.phase, ConnectionPhase::Probing(probing) if probing.helper().is_some())
        };
        self.connections().filter(helped).count()
    }

    /// The node and loopback come first, then who has the fewest helpers: nobody gets ahead by asking more often.
    fn start_queued(&mut self, turn: &mut Turn<'_>) {
        let queued = |connection: &Connection| match &connection.phase {
            ConnectionPhase::Probing(probing) => probing.is_queued(),
            ConnectionPhase::Head
            | ConnectionPhase::Waiting(_)
            | ConnectionPhase::Merging(_)
            | ConnectionPhase::Finishing
            | ConnectionPhase::Lingering { .. } => false,
        };
        loop {
            let next = self
                .connections()
                .filter(|(_, connection)| queued(connection) && self.may_run_helper(connection))
                .min_by_key(|(_, connection)| {
                    let from = connection.from;
                    let uncertain = !self.is_certain(from);
                    let helpers = self.helpers_of(from);
                    (uncertain, helpers, !connection.kept, connection.opened)
                });
            let Some((place, _)) = next else {
                return;
            };
            let Some(mut connection) = self.take(place) else {
                return;
            };
            self.request_helper(turn, place, &mut connection);
            if matches!(connection.phase, ConnectionPhase::Finishing)
                && connection.flush() != Flow::Later
            {
                continue;
            }
            self.put(place, connection);
        }
    }

    /// A helper could not be started.
    pub(crate) fn helper_failed(&mut self, turn: &mut Turn<'_>, place: usize, why: &str) {
        if let Some(mut connection) = self.take(place) {
            self.finish_probes(turn, place, &mut connection, (500, &line(&[why])));
            self.flush_or_close(turn, place, connection, Flow::Later);
        }
        self.helper_ended(turn);
    }

    /// Answers all requests that wait for the proxy's readiness.
    pub(crate) fn answer(&mut self, turn: &mut Turn<'_>, stage: Stage, view: &View<'_>) {
        for place in 0..self.places.len() {
            let waits = self.connection(place).map(|connection| &connection.phase);
            if !matches!(waits, Some(ConnectionPhase::Waiting(_))) {
                continue;
            }
            let Some(mut connection) = self.take(place) else {
                continue;
            };
            let ConnectionPhase::Waiting(pending) =
                std::mem::replace(&mut connection.phase, ConnectionPhase::Finishing)
            else {
                continue;
            };
            let flow = self.answer_one(turn, place, &mut connection, (pending, stage), view);
            self.flush_or_close(turn, place, connection, flow);
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
        connection.phase = ConnectionPhase::Merging(Box::new(merge));
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
            let ConnectionPhase::Merging(merge) = &mut connection.phase else {
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
                    connection.phase = ConnectionPhase::Finishing;
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
        ConnectionPhase::Probing(probing) => probing.framing,
        ConnectionPhase::Head
        | ConnectionPhase::Waiting(_)
        | ConnectionPhase::Merging(_)
        | ConnectionPhase::Finishing
        | ConnectionPhase::Lingering { .. } => return,
    };
    count(if status < 400 {
        &mut turn.counters.app_probes_passed
    } else {
        &mut turn.counters.app_probes_failed
    });
    connection.answer(status, response::TEXT, body, framing);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mio::Poll;

    use super::*;
    use crate::counters::Counters;
    use crate::status::probes::Check;
    use crate::status::response::Framing;
    use crate::status::server::limits::LEARNED_HELPERS;
    use crate::status::server::tests::Crowd;

    const NODE: &str = "10.0.0.1";
    const LIARS: [&str; 4] = ["10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8"];

    /// Probes that need helpers, of a crowd.
    struct Probes {
        crowd: Crowd,
        poll: Poll,
    }

    impl Probes {
        /// Each of the liars has said to be kubelet and has eight probes of its own.
        fn of_liars(node: Option<&str>) -> Self {
            let mut this = Self {
                crowd: Crowd::new(),
                poll: Poll::new().unwrap(),
            };
            this.crowd.server.settings.node = node.map(|node| node.parse().unwrap());
            for liar in LIARS {
                this.crowd.learn(liar);
            }
            for number in 0..8 {
                for liar in LIARS {
                    this.asks(liar, &format!("{liar} {number}"));
                }
            }
            this
        }

        fn with_turn<T>(&mut self, act: impl FnOnce(&mut StatusServer, &mut Turn<'_>) -> T) -> T {
            let mut turn = Turn {
                registry: self.poll.registry(),
                now: self.crowd.began,
                counters: &mut Counters::default(),
            };
            act(&mut self.crowd.server, &mut turn)
        }

        /// Reports whether it gets a helper at once.
        fn asks(&mut self, from: &str, service: &str) -> bool {
            let mut connection =
                Box::new(self.crowd.connection(from, false, ConnectionPhase::Head));
            let check = Check::Grpc {
                port: 8080,
                service: service.to_owned(),
            };
            let framing = Framing {
                head_only: false,
                chunks: false,
            };
            let deadline = self.crowd.began + Duration::from_secs(10);
            let probing = Probing::new((check, true), framing, None, deadline);
            let place = self.crowd.server.places.len();
            self.with_turn(|server, turn| {
                server.places.push(None);
                server.begin_probe(turn, place, &mut connection, probing);
                server.put(place, connection);
            });
            self.started() == [place]
        }

        /// The places for which helpers were asked for since the last call.
        fn started(&mut self) -> Vec<usize> {
            let effects = self.crowd.server.effects();
            let started = effects.iter().filter_map(|effect| match effect {
                Effect::Helper(helper) => Some(helper.place),
                Effect::KillHelper(_) => None,
                Effect::Drain | Effect::Quit => panic!("{effect:?}"),
            });
            started.collect()
        }

        fn from(&self, place: usize) -> String {
            self.crowd
                .server
                .connection(place)
                .unwrap()
                .from
                .to_string()
        }

        fn running(&self) -> usize {
            self.crowd.server.helpers_alive
        }

        /// A place of that address whose probe has a helper.
        fn helped(&self, from: &str) -> usize {
            let helped = |connection: &Connection| {
                let ConnectionPhase::Probing(probing) = &connection.phase else {
                    panic!("{:?}", connection.phase)
                };
                probing.helper().is_some()
            };
            let mut all = self.crowd.server.connections();
            let found = all.find(|(place, of)| self.from(*place) == from && helped(of));
            found.unwrap().0
        }

        /// A helper of that address has answered and was reaped; who gets one for it.
        fn ends(&mut self, from: &str) -> Vec<String> {
            let place = self.helped(from);
            self.started();
            self.with_turn(|server, turn| {
                drop(server.take(place));
                server.helper_ended(turn);
            });
            let started = self.started();
            started.iter().map(|place| self.from(*place)).collect()
        }
    }

    /// Four addresses that said to be kubelet had all eight helpers, and the node's probe waited for its deadline.
    #[test]
    fn clients_that_claim_to_be_kubelet_leave_helpers_to_the_node() {
        let mut probes = Probes::of_liars(Some(NODE));
        assert_eq!(probes.running(), STRANGERS_HELPERS);
        probes.started();
        for (number, from) in [NODE, "127.0.0.1", NODE, "::1"].into_iter().enumerate() {
            assert!(probes.asks(from, &number.to_string()), "{from}");
        }
        assert_eq!(probes.running(), HELPERS);
        assert!(!probes.asks(NODE, "late"));
        assert_eq!(probes.ends(LIARS[2]), [NODE]);
        assert_eq!(probes.ends(LIARS[0]), [] as [&str; 0]);
    }

    #[test]
    fn without_a_known_node_who_has_no_helper_is_next() {
        let mut probes = Probes::of_liars(None);
        assert_eq!(probes.running(), LEARNED_HELPERS);
        probes.started();
        // One too many to be remembered.
        assert!(!probes.asks("10.0.0.9", "late"));
        // Of those that have none, who seems to be kubelet comes first.
        assert_eq!(probes.ends(LIARS[3]), [LIARS[3]]);
        assert_eq!(probes.ends(LIARS[0]), ["10.0.0.9"]);
        for _ in 0..2 {
            assert!(probes.asks("127.0.0.1", &probes.running().to_string()));
        }
    }

    /// The bytes of kubelet's probes are no secret.
    #[test]
    fn no_client_waits_in_the_queue_of_another() {
        let mut probes = Probes::of_liars(Some(NODE));
        probes.started();
        let queued = format!("{} 7", LIARS[3]);
        assert!(probes.asks(NODE, &queued));
        // What is in flight is shared.
        let in_flight = format!("{} 0", LIARS[3]);
        assert!(!probes.asks(NODE, &in_flight));
        assert_eq!(probes.running(), STRANGERS_HELPERS + 1);
    }

    /// A stranger's probe with a helper, which the node and then another stranger share: their places.
    fn shared(probes: &mut Probes) -> [usize; 3] {
        probes.started();
        let owner = probes.helped(LIARS[3]);
        let node = probes.crowd.server.places.len();
        for from in [NODE, LIARS[1]] {
            assert!(!probes.asks(from, &format!("{} 0", LIARS[3])), "{from}");
        }
        [owner, node, node + 1]
    }

    /// The stranger has more time left, and would wait behind the other strangers.
    #[test]
    fn the_node_is_heir_before_a_stranger() {
        let mut probes = Probes::of_liars(Some(NODE));
        let [owner, node, _] = shared(&mut probes);
        probes.with_turn(|server, turn| server.close(turn, owner));
        assert_eq!(probes.started(), [node]);
    }

    #[test]
    fn a_node_whose_time_is_over_ends_nobody_elses() {
        let mut probes = Probes::of_liars(Some(NODE));
        let [owner, node, stranger] = shared(&mut probes);
        probes.with_turn(|server, turn| {
            server.places[node].as_mut().unwrap().deadline = turn.now;
            server.close(turn, owner);
            let heir = server.connection(stranger).unwrap();
            assert!(matches!(&heir.phase, ConnectionPhase::Probing(heir) if heir.is_queued()));
        });
    }
}
