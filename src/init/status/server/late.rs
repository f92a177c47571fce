//! Deadlines of connections and sources, and what happens after them.

#![forbid(unsafe_code)]

use std::time::Instant;

use super::connection::{ConnectionPhase, Flow};
use super::serving::finish_probe;
use super::{Effect, StatusServer};
use crate::status::response::line;
use crate::status::{Turn, count};

impl StatusServer {
    /// Returns the time at which a connection is late, or accepting begins again.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let nearest = self
            .connections()
            .map(|(_, connection)| connection.deadline)
            .min();
        nearest
            .into_iter()
            .chain(self.paused.map(|pause| pause.until))
            .min()
    }

    /// Ends what is late.
    pub(crate) fn expire(&mut self, turn: &mut Turn<'_>) {
        for place in 0..self.places.len() {
            let late = self
                .connection(place)
                .is_some_and(|connection| connection.deadline <= turn.now);
            if late {
                self.expire_one(turn, place);
            }
        }
    }

    fn expire_one(&mut self, turn: &mut Turn<'_>, place: usize) {
        let Some(mut connection) = self.take(place) else {
            return;
        };
        match &connection.phase {
            ConnectionPhase::Probing(probing) => {
                if let Some(serial) = probing.helper() {
                    self.effects.push(Effect::KillHelper(serial));
                }
                finish_probe(turn, &mut connection, 500, &line(&["no answer in time"]));
                self.flush_or_close(turn, place, connection, Flow::Later);
                self.hand_over(turn, place);
            }
            // The source is late; if it were the client, there would be something for it.
            ConnectionPhase::Merging(_) if !connection.has_unsent() => {
                let flow = self.merge(turn, place, &mut connection);
                self.flush_or_close(turn, place, connection, flow);
            }
            ConnectionPhase::Lingering { .. } => {}
            ConnectionPhase::Head
            | ConnectionPhase::Waiting(_)
            | ConnectionPhase::Merging(_)
            | ConnectionPhase::Finishing => {
                self.used_seldom |= connection.is_large();
                count(&mut turn.counters.connections_refused);
            }
        }
    }

    pub(super) fn close(&mut self, turn: &mut Turn<'_>, place: usize) {
        let Some(connection) = self.take(place) else {
            return;
        };
        self.used_seldom |= connection.is_large();
        if let ConnectionPhase::Probing(probing) = connection.phase {
            if let Some(serial) = probing.helper() {
                self.effects.push(Effect::KillHelper(serial));
            }
            count(&mut turn.counters.app_probes_failed);
            self.hand_over(turn, place);
        }
    }
}
