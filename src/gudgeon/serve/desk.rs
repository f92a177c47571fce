//! Desks: how many requests with a body are read or answered at a time, and how many bytes of large ones are in memory.
//!
//! The rest wait: each connection is served in its turn, however many requests it has. Whose body has not moved on for a while
//! when others wait is told to come again: its neighbours on the same connection are another matter. Who does not read its
//! answer cannot be told anything; its connection is cut. So a crowd of slow clients costs others a second or two, and memory
//! has a bound whatever they send.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::connection::Line;
use super::sitting::{AtDesk, Rounds, Sitting};

/// Between two looks at who sits.
const LOOK: Duration = Duration::from_millis(20);
/// Turns of the loop before somebody is sent away: it may have been this program that was late.
const TURNS: usize = 3;

#[derive(Debug)]
pub(crate) struct Desks {
    state: Mutex<State>,
    /// Requests that may wait.
    queue: usize,
}

/// Why there is no desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoDesk {
    /// As many wait as may.
    Full,
    /// The connection goes.
    Gone,
}

#[derive(Debug)]
struct State {
    next: u64,
    desks: usize,
    free: usize,
    /// Bytes of large bodies that may still be taken in.
    room: usize,
    /// In the order in which they sat down.
    sitting: BTreeMap<u64, Sitting>,
    /// Who waits for a desk, by connection.
    waiting: BTreeMap<u64, VecDeque<Waiting>>,
    /// The connection that was served last.
    turn: u64,
    /// Who waits for room, with its desk.
    wanting: VecDeque<(u64, usize, oneshot::Sender<()>)>,
    /// A task sends away who sits too long.
    watched: bool,
}

/// A connection's request, and how it is told of its desk.
type Waiting = (Arc<Line>, oneshot::Sender<Desk>);

/// A desk, free again when dropped.
#[derive(Debug)]
pub(crate) struct Desk {
    desks: Arc<Desks>,
    id: u64,
    goes: Arc<Notify>,
}

impl Desks {
    /// All who come may wait.
    pub(crate) fn new(desks: usize, room: usize) -> Arc<Self> {
        Self::with_queue(desks, room, usize::MAX)
    }

    pub(crate) fn with_queue(desks: usize, room: usize, queue: usize) -> Arc<Self> {
        Arc::new(Self {
            queue,
            state: Mutex::new(State {
                next: 0,
                desks,
                free: desks,
                room,
                sitting: BTreeMap::new(),
                waiting: BTreeMap::new(),
                turn: 0,
                wanting: VecDeque::new(),
                watched: false,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A desk for a request of this connection.
    ///
    /// # Errors
    /// There is none, and will be none.
    pub(crate) async fn sit(self: &Arc<Self>, line: &Arc<Line>) -> Result<Desk, NoDesk> {
        let wait = {
            let mut state = self.state();
            if state.free > 0 {
                return Ok(self.place(&mut state, line));
            }
            if state.waiting() >= self.queue {
                state.forget_who_went();
                if state.waiting() >= self.queue {
                    return Err(NoDesk::Full);
                }
            }
            let (sender, wait) = oneshot::channel();
            let queue = state.waiting.entry(line.id()).or_default();
            queue.push_back((Arc::clone(line), sender));
            self.watch(&mut state);
            wait
        };
        wait.await.map_err(|_| NoDesk::Gone)
    }

    fn place(self: &Arc<Self>, state: &mut State, line: &Arc<Line>) -> Desk {
        let id = state.next;
        state.next += 1;
        state.free -= 1;
        let goes = Arc::new(Notify::new());
        let sitting = Sitting::new(line, &goes);
        state.sitting.insert(id, sitting);
        Desk {
            desks: Arc::clone(self),
            id,
            goes,
        }
    }

    /// Gives what is free to who waits for it.
    fn hand_on(self: &Arc<Self>) {
        let mut served = Vec::new();
        {
            let mut state = self.state();
            while state.free > 0
                && let Some((line, sender)) = state.take_turn()
            {
                if !sender.is_closed() {
                    served.push((sender, self.place(&mut state, &line)));
                }
            }
            while let Some((id, bytes, sender)) = state.wanting.pop_front() {
                if sender.is_closed() {
                    continue;
                }
                if bytes > state.room {
                    state.wanting.push_front((id, bytes, sender));
                    break;
                }
                state.take_room(id, bytes);
                // Where nobody takes it any more, its desk gives it back.
                let _gone = sender.send(());
            }
        }
        for (sender, desk) in served {
            // One that went in between gives it back by dropping it.
            let _gone = sender.send(desk);
        }
    }

    /// Sends away who sits too long, while others wait.
    fn watch(self: &Arc<Self>, state: &mut State) {
        if state.watched {
            return;
        }
        state.watched = true;
        let desks = Arc::clone(self);
        tokio::spawn(async move {
            while let Some(due) = desks.next_look() {
                tokio::time::sleep_until(due).await;
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
                desks.send_away(Instant::now());
            }
        });
    }

    /// When somebody will have sat for too long; `None`: nobody waits any more.
    fn next_look(&self) -> Option<Instant> {
        let mut state = self.state();
        state.forget_who_went();
        if state.waiting.is_empty() && state.wanting.is_empty() {
            state.watched = false;
            return None;
        }
        let rounds = state.rounds();
        let due = state.sitting.values().filter_map(|one| one.due(rounds));
        let soon = Instant::now() + LOOK;
        Some(due.min().map_or(soon, |due| soon.max(due)))
    }

    fn send_away(&self, now: Instant) {
        let mut cut = Vec::new();
        {
            let mut state = self.state();
            state.forget_who_went();
            let waiting = state.waiting();
            let wanting = !state.wanting.is_empty();
            let rounds = state.rounds();
            let sitting = state.sitting.values_mut();
            let mut late: Vec<&mut Sitting> = sitting
                .filter(|one| one.away || one.due(rounds).is_some_and(|due| due <= now))
                .collect();
            // Those that were told are on their way; then those whose body moved last, or not at all, longest ago.
            late.sort_by_key(|one| (!one.away, one.moved));
            for (at, one) in late.into_iter().enumerate() {
                let wanted = at < waiting || (wanting && one.room > 0);
                if !wanted || one.away {
                    continue;
                }
                cut.extend(one.send_away());
            }
        }
        for line in cut {
            line.cut();
        }
    }
}

impl State {
    fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// The next in turn: one of the next connection.
    fn take_turn(&mut self) -> Option<Waiting> {
        let after = (Bound::Excluded(self.turn), Bound::Unbounded);
        let id = *self
            .waiting
            .range(after)
            .next()
            .or_else(|| self.waiting.iter().next())?
            .0;
        self.turn = id;
        let queue = self.waiting.get_mut(&id)?;
        let taken = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&id);
        }
        taken
    }

    fn rounds(&self) -> Rounds {
        let rounds = |waiting: usize, taken: usize| {
            let rounds = waiting / taken.max(1);
            u32::try_from(rounds.saturating_add(1)).unwrap_or(u32::MAX)
        };
        let wanting = self.wanting.len();
        let roomy = self.sitting.values().filter(|one| one.room > 0).count();
        Rounds {
            // A connection has one turn, however many requests of it wait.
            desks: rounds(self.waiting.len(), self.desks),
            room: rounds(wanting, roomy),
            room_alone: rounds(wanting, 1),
        }
    }

    fn take_room(&mut self, id: u64, bytes: usize) {
        if let Some(sitting) = self.sitting.get_mut(&id) {
            sitting.takes_room(bytes);
            self.room -= bytes;
        }
    }

    fn forget_who_went(&mut self) {
        self.waiting.retain(|_, queue| {
            queue.retain(|(_, sender)| !sender.is_closed());
            !queue.is_empty()
        });
        self.wanting.retain(|(_, _, sender)| !sender.is_closed());
    }
}

impl Desk {
    /// So much of the body came.
    pub(super) fn came(&self, bytes: usize) {
        if let Some(sitting) = self.desks.state().sitting.get_mut(&self.id) {
            sitting.came(bytes);
        }
    }

    /// Returns when the rest of the body is not waited for any more: others wait for the desk.
    pub(super) async fn goes(&self) {
        self.goes.notified().await;
    }

    /// The body is there.
    pub(super) fn decides(&self) {
        self.begin(AtDesk::Decides);
    }

    /// The answer is there. Whoever does not take it is not waited for for long.
    pub(crate) fn answers(&self) {
        self.begin(AtDesk::Answers);
    }

    fn begin(&self, stage: AtDesk) {
        if let Some(sitting) = self.desks.state().sitting.get_mut(&self.id) {
            sitting.begin(stage);
        }
    }

    /// Room for a large body, until the desk is free again.
    pub(crate) async fn room(&self, bytes: usize) {
        let wait = {
            let mut state = self.desks.state();
            if state.wanting.is_empty() && bytes <= state.room {
                state.take_room(self.id, bytes);
                return;
            }
            let (sender, wait) = oneshot::channel();
            state.wanting.push_back((self.id, bytes, sender));
            if let Some(sitting) = state.sitting.get_mut(&self.id) {
                sitting.begin(AtDesk::Waits);
            }
            self.desks.watch(&mut state);
            wait
        };
        // The sender is kept until there is room.
        let _given = wait.await;
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        {
            let mut state = self.desks.state();
            state.free += 1;
            if let Some(sitting) = state.sitting.remove(&self.id) {
                state.room += sitting.room;
            }
        }
        self.desks.hand_on();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::super::crowd::Crowd;
    use super::super::sitting::{GRACE, MOST, STEP};
    use super::*;

    fn lines<const COUNT: usize>() -> [Arc<Line>; COUNT] {
        let crowd = Arc::new(Crowd::new(COUNT));
        std::array::from_fn(|_| {
            let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            Line::new(peer, Crowd::enter(&crowd))
        })
    }

    async fn is_cut(line: &Line) -> bool {
        let left = line.left();
        tokio::time::timeout(Duration::ZERO, left).await.is_ok()
    }

    async fn is_told(desk: &Desk) -> bool {
        let told = tokio::time::timeout(Duration::ZERO, desk.goes());
        told.await.is_ok()
    }

    /// One more who waits.
    fn wait(desks: &Arc<Desks>, line: &Arc<Line>) -> tokio::task::JoinHandle<Result<Desk, NoDesk>> {
        let (desks, line) = (Arc::clone(desks), Arc::clone(line));
        tokio::spawn(async move { desks.sit(&line).await })
    }

    #[tokio::test(start_paused = true)]
    async fn connections_take_turns() {
        let desks = Desks::new(1, 0);
        let [first, many, one] = lines();
        let desk = desks.sit(&first).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for (name, line) in [
            ("many", &many),
            ("many", &many),
            ("many", &many),
            ("one", &one),
        ] {
            let (desks, order, line) = (Arc::clone(&desks), Arc::clone(&order), Arc::clone(line));
            tasks.spawn(async move {
                let desk = desks.sit(&line).await.unwrap();
                order.lock().unwrap().push(name);
                tokio::task::yield_now().await;
                drop(desk);
            });
            tokio::task::yield_now().await;
        }
        drop(desk);
        while tasks.join_next().await.is_some() {}
        assert_eq!(*order.lock().unwrap(), ["many", "one", "many", "many"]);
        assert_eq!(desks.state().free, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_sits_long_goes_when_others_wait() {
        let desks = Desks::new(2, 0);
        let [old, young, other] = lines();
        let desk = desks.sit(&old).await.unwrap();
        tokio::time::sleep(GRACE * 100).await;
        assert!(!is_told(&desk).await, "nobody waits");
        let second = desks.sit(&young).await.unwrap();
        let waits = wait(&desks, &other);
        tokio::time::sleep(LOOK * 2).await;
        assert!(is_told(&desk).await && !is_told(&second).await);
        // Others on its connection have done nothing.
        assert!(!is_cut(&old).await && !is_cut(&young).await);
        drop(desk);
        assert!(waits.await.unwrap().is_ok());
        drop(second);
        tokio::time::sleep(GRACE).await;
        assert!(!desks.state().watched, "nobody is left to watch");
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_take_its_answer_is_cut_and_who_is_decided_about_is_not() {
        let desks = Desks::new(1, 0);
        let [one, other] = lines();
        let desk = desks.sit(&one).await.unwrap();
        let waits = wait(&desks, &other);
        desk.decides();
        tokio::time::sleep(MOST * 2).await;
        assert!(!is_cut(&one).await && !is_told(&desk).await);
        desk.answers();
        // As many wait as there are desks: each has half of the time.
        tokio::time::sleep(GRACE / 3).await;
        assert!(!is_cut(&one).await);
        tokio::time::sleep(GRACE / 6 + LOOK * 2).await;
        assert!(is_cut(&one).await && !is_told(&desk).await);
        drop(desk);
        assert!(waits.await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn whose_body_moves_is_not_the_first_to_go_and_does_not_sit_for_ever() {
        let desks = Desks::new(3, 0);
        let [slow, drips, idle, other, another] = lines();
        let slow = desks.sit(&slow).await.unwrap();
        let begun = Instant::now();
        let drips = desks.sit(&drips).await.unwrap();
        tokio::time::sleep(LOOK).await;
        let idle = desks.sit(&idle).await.unwrap();
        let waits = [wait(&desks, &other), wait(&desks, &another)];
        while begun.elapsed() < GRACE * 2 {
            slow.came(STEP);
            drips.came(1);
            tokio::time::sleep(LOOK).await;
        }
        assert!(!is_told(&slow).await, "it moves");
        assert!(is_told(&drips).await && is_told(&idle).await);
        drop((drips, idle));
        let [first, second] = waits.map(|wait| async { wait.await.unwrap().unwrap() });
        let (first, second) = (first.await, second.await);
        let third = wait(&desks, &other);
        let told = async {
            slow.goes().await;
            begun.elapsed()
        };
        let moves = async {
            loop {
                for desk in [&slow, &first, &second] {
                    desk.came(STEP);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let told = tokio::select! {
            told = told => told,
            () = moves => unreachable!("it has no end"),
        };
        assert!((MOST..MOST + LOOK * 4).contains(&told), "{told:?}");
        drop(slow);
        assert!(third.await.unwrap().is_ok());
    }

    /// Its client may have sent all of it: nobody reads on before there is room.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_room_is_not_the_one_who_is_slow() {
        let desks = Desks::new(2, 10);
        let [one, two, other] = lines();
        let large = desks.sit(&one).await.unwrap();
        large.room(10).await;
        let next = desks.sit(&two).await.unwrap();
        let waits = wait(&desks, &other);
        let moves = async {
            let begun = Instant::now();
            while begun.elapsed() < GRACE * 2 {
                large.came(STEP);
                tokio::time::sleep(LOOK).await;
            }
            assert!(!is_told(&next).await);
        };
        tokio::select! {
            () = next.room(10) => unreachable!("there is none"),
            () = moves => {}
        }
        // Its turn to be late comes when it has what it needs.
        drop(large);
        assert!(waits.await.unwrap().is_ok());
        assert!(!is_cut(&two).await);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_wait_than_may() {
        let desks = Desks::with_queue(1, 0, 1);
        let [one, two, three] = lines();
        let desk = desks.sit(&one).await.unwrap();
        let waits = wait(&desks, &two);
        tokio::task::yield_now().await;
        assert_eq!(desks.sit(&three).await.unwrap_err(), NoDesk::Full);
        // Who went waits no more.
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        let waits = wait(&desks, &three);
        tokio::task::yield_now().await;
        drop(desk);
        assert!(waits.await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_given_back_with_the_desk() {
        let desks = Desks::new(3, 10);
        let [one, two, three] = lines();
        let large = desks.sit(&one).await.unwrap();
        large.room(8).await;
        let small = desks.sit(&two).await.unwrap();
        small.room(2).await;
        let next = desks.sit(&three).await.unwrap();
        let waits = tokio::time::timeout(LOOK, next.room(8));
        assert!(waits.await.is_err(), "there is none");
        let waits = async {
            next.room(8).await;
        };
        let frees = async {
            // Two that are asked to go; the one that does gives its room.
            tokio::time::sleep(GRACE * 2).await;
            assert!(is_told(&large).await && !is_told(&next).await);
            drop(large);
        };
        tokio::join!(waits, frees);
        assert_eq!(desks.state().room, 0);
        drop((small, next));
        assert_eq!(desks.state().room, 10);
        assert!(!is_cut(&one).await && !is_cut(&three).await);
    }
}
