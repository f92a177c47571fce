//! One request at a desk: what is waited for, and for how long nobody takes it amiss.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection::Line;

/// Time at a desk in which nothing moves that nobody takes amiss; less when more connections wait than there are desks, or many
/// large bodies for room, so that the last of them has its turn soon, too.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// Time in which a body has to come that does move; less like the other.
pub(super) const MOST: Duration = Duration::from_secs(5);
/// Less of a body is no move: who sends a byte now and then would sit for as long as who sends what he has.
pub(super) const STEP: usize = 4 << 10;

/// How often what is taken has to be free again before the last one who waits has his turn; at least once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    pub(super) desks: u32,
    /// All who have room together.
    pub(super) room: u32,
    /// One of them after the other: those with whom nothing moves.
    pub(super) room_alone: u32,
}

#[derive(Debug)]
pub(super) struct Sitting {
    stage: AtDesk,
    /// Of the stage.
    since: Instant,
    /// A part of the body that is worth something came.
    pub(super) moved: Instant,
    /// Of the body, since then.
    bytes: usize,
    /// It was told to go, and has not yet.
    pub(super) away: bool,
    goes: Arc<Notify>,
    pub(super) room: usize,
    line: Arc<Line>,
}

/// What is done at a desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtDesk {
    /// The body comes.
    Reads,
    /// The rest of the body is not asked for before there is room for it.
    Waits,
    /// The body is there: what takes time now is this program.
    Decides,
    /// The answer is to be taken.
    Answers,
}

impl Sitting {
    pub(super) fn new(line: &Arc<Line>, goes: &Arc<Notify>) -> Self {
        let now = Instant::now();
        Self {
            stage: AtDesk::Reads,
            since: now,
            moved: now,
            bytes: 0,
            away: false,
            goes: Arc::clone(goes),
            room: 0,
            line: Arc::clone(line),
        }
    }

    pub(super) fn begin(&mut self, stage: AtDesk) {
        self.stage = stage;
        self.since = Instant::now();
        // Who was told to go when all of it was there has not heard of it.
        self.away = false;
        self.moves();
    }

    /// So much of the body came.
    pub(super) fn came(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= STEP {
            self.moves();
        }
    }

    fn moves(&mut self) {
        (self.bytes, self.moved) = (0, Instant::now());
    }

    /// There is room for its body. Until now it was not the client who was waited for.
    pub(super) fn takes_room(&mut self, bytes: usize) {
        self.room += bytes;
        self.begin(AtDesk::Reads);
    }

    /// When it will have sat for too long; `None`: it is not its client who is waited for.
    pub(super) fn due(&self, rounds: Rounds) -> Option<Instant> {
        let Rounds {
            desks,
            room,
            room_alone,
        } = rounds;
        let (idle, all) = match self.room {
            0 => (desks, desks),
            _ => (desks.max(room_alone), desks.max(room)),
        };
        match self.stage {
            AtDesk::Waits | AtDesk::Decides => None,
            AtDesk::Reads | AtDesk::Answers => {
                Some((self.moved + GRACE / idle.max(1)).min(self.since + MOST / all.max(1)))
            }
        }
    }

    /// Tells it; or the line that is to be cut, where nobody would hear.
    pub(super) fn send_away(&mut self) -> Option<Arc<Line>> {
        self.away = true;
        if self.stage == AtDesk::Answers {
            return Some(Arc::clone(&self.line));
        }
        self.goes.notify_one();
        None
    }
}
