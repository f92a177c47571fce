//! Equal application probes are sent once: a client that asks while one is in flight shares its answer.

#![forbid(unsafe_code)]

use super::StatusServer;
use super::connection::{Connection, ConnectionPhase, Flow};
use super::serving::finish_probe;
use crate::status::Turn;
use crate::status::probes::Probing;
use crate::status::response::line;

impl StatusServer {
    /// Sends the probe, or shares one in flight that asks the same.
    pub(super) fn begin_probe(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        mut probing: Probing,
    ) {
        let from = connection.from;
        let asked = self.connections().find(|(_, other)| {
            // One that is queued waits for the turn of its own address.
            let same = other.from == from;
            probe_of(other).is_some_and(|other| {
                other.shares().is_none() && (same || !other.is_queued()) && other.asks(&probing)
            })
        });
        let asked = asked.map(|(asked, _)| asked);
        if let Some(asked) = asked {
            probing.share(asked);
        }
        connection.phase = ConnectionPhase::Probing(Box::new(probing));
        if asked.is_none() {
            self.probe(turn, place, connection, Probing::begin);
        }
    }

    /// Answers the client in `place` and all that share its probe.
    pub(super) fn finish_probes(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        connection: &mut Connection,
        (status, body): (u16, &[u8]),
    ) {
        finish_probe(turn, connection, status, body);
        self.finish_sharers(turn, place, status, body);
    }

    fn finish_sharers(&mut self, turn: &mut Turn<'_>, place: usize, status: u16, body: &[u8]) {
        for sharer in 0..self.places.len() {
            let shares = |other: &Connection| probe_of(other)?.shares();
            if self.connection(sharer).and_then(shares) != Some(place) {
                continue;
            }
            let Some(mut connection) = self.take(sharer) else {
                continue;
            };
            finish_probe(turn, &mut connection, status, body);
            self.flush_or_close(turn, sharer, connection, Flow::Later);
        }
    }

    /// The probe in `place` ended without an answer: it timed out or lost its place. One of those that share it sends it
    /// again for all of them: the node or loopback, which waits behind no stranger, then who has the most time left.
    pub(super) fn hand_over(&mut self, turn: &mut Turn<'_>, place: usize) {
        let heir = self.sharers(place).max_by_key(|(_, other)| {
            let deadline = other.deadline;
            (deadline > turn.now && self.is_certain(other.from), deadline)
        });
        let Some((heir, deadline)) = heir.map(|(heir, other)| (heir, other.deadline)) else {
            return;
        };
        if deadline <= turn.now {
            self.finish_sharers(turn, place, 500, &line(&["no answer in time"]));
            return;
        }
        for connection in self.places.iter_mut().flatten() {
            if let ConnectionPhase::Probing(probing) = &mut connection.phase
                && probing.shares() == Some(place)
            {
                probing.share(heir);
            }
        }
        if let Some(mut connection) = self.take(heir) {
            self.probe(turn, heir, &mut connection, Probing::begin);
            self.flush_or_close(turn, heir, connection, Flow::Later);
        }
    }

    fn sharers(&self, place: usize) -> impl Iterator<Item = (usize, &Connection)> {
        self.connections().filter(move |(_, connection)| {
            probe_of(connection).is_some_and(|probing| probing.shares() == Some(place))
        })
    }
}

fn probe_of(connection: &Connection) -> Option<&Probing> {
    match &connection.phase {
        ConnectionPhase::Probing(probing) => Some(probing),
        ConnectionPhase::Head
        | ConnectionPhase::Waiting(_)
        | ConnectionPhase::Merging(_)
        | ConnectionPhase::Finishing
        | ConnectionPhase::Lingering { .. } => None,
    }
}
