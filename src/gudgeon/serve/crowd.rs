//! The connections of one listener: a fixed number of places, and who gives way.
//!
//! Strangers go first, who were never answered: the one that has not moved for the longest time, be it silent or slow. Then
//! who was answered before and has begun a request that does not come; then the longest idle. So a crowd pushes out itself,
//! not the API server's kept connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// A request in which nothing moves for so long may be cut for a newcomer: the API server does not wait longer either.
const STALLED: Duration = Duration::from_secs(5);
/// Between two looks for somebody who may be cut, when nobody has become idle.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Crowd {
    places: usize,
    members: Mutex<Members>,
    /// A place was freed, or a connection became idle.
    moved: Notify,
}

#[derive(Debug, Default)]
struct Members {
    next: u64,
    all: HashMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    /// It has asked something, and was answered.
    established: bool,
    /// Requests in work.
    busy: u32,
    /// When it came, began or ended a request, or a part of one came that is worth something.
    moved: Instant,
    leave: Arc<Notify>,
}

/// A connection's place, free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    crowd: Arc<Crowd>,
    id: u64,
    leave: Arc<Notify>,
}

impl Crowd {
    pub(super) fn new(places: usize) -> Self {
        Self {
            places,
            members: Mutex::default(),
            moved: Notify::new(),
        }
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when one more may come: somebody can be asked to leave then, if all places are taken.
    pub(super) async fn room(&self) {
        loop {
            let moved = self.moved.notified();
            {
                let members = self.members();
                let now = Instant::now();
                if members.all.len() < self.places
                    || members
                        .all
                        .values()
                        .any(|member| member.rank(now).is_some())
                {
                    return;
                }
            }
            let _late = tokio::time::timeout(LOOK, moved).await;
        }
    }

    /// Takes a place; who has to give way for it leaves at once.
    pub(super) fn enter(this: &Arc<Self>) -> Place {
        let leave = Arc::new(Notify::new());
        if this.members().all.len() >= this.places {
            this.make_room();
        }
        let mut members = this.members();
        let id = members.next;
        members.next += 1;
        members.all.insert(
            id,
            Member {
                established: false,
                busy: 0,
                moved: Instant::now(),
                leave: Arc::clone(&leave),
            },
        );
        Place {
            crowd: Arc::clone(this),
            id,
            leave,
        }
    }

    /// Asks the one to leave that deserves its place least.
    pub(super) fn make_room(&self) {
        let now = Instant::now();
        let mut members = self.members();
        let ranked = members
            .all
            .iter()
            .filter_map(|(id, member)| Some((member.rank(now)?, member.moved, *id)));
        let chosen = ranked.min().map(|(_, _, id)| id);
        if let Some(member) = chosen.and_then(|id| members.all.remove(&id)) {
            member.leave.notify_one();
        }
    }
}

/// In what order members give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Stranger,
    Stalled,
    Idle,
}

impl Member {
    /// `None`: it has its place for sure.
    fn rank(&self, now: Instant) -> Option<Rank> {
        match (self.established, self.busy) {
            (false, _) => Some(Rank::Stranger),
            (true, 0) => Some(Rank::Idle),
            (true, _) => (now.duration_since(self.moved) >= STALLED).then_some(Rank::Stalled),
        }
    }
}

impl Place {
    /// Returns when this connection has to go.
    pub(super) async fn left(&self) {
        self.leave.notified().await;
    }

    /// Makes this connection go.
    pub(super) fn leave(&self) {
        self.crowd.members().all.remove(&self.id);
        self.leave.notify_one();
        self.crowd.moved.notify_one();
    }

    fn with(&self, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.crowd.members().all.get_mut(&self.id) {
            change(member);
            member.moved = Instant::now();
        }
    }

    pub(super) fn begin(&self) {
        self.with(|member| member.busy += 1);
    }

    pub(super) fn end(&self) {
        self.with(|member| member.busy = member.busy.saturating_sub(1));
        self.crowd.moved.notify_one();
    }

    /// Something came of what is waited for.
    pub(super) fn moved(&self) {
        self.with(|_| {});
    }

    /// Whether it was answered before counts from now on, or does not any more.
    pub(super) fn establish(&self, established: bool) {
        if let Some(member) = self.crowd.members().all.get_mut(&self.id) {
            member.established = established;
        }
    }

    pub(super) fn is_established(&self) -> bool {
        let members = self.crowd.members();
        let member = members.all.get(&self.id);
        member.is_some_and(|member| member.established)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.members().all.remove(&self.id);
        self.crowd.moved.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn asked_to_leave(place: &Place) -> bool {
        !place.crowd.members().all.contains_key(&place.id)
    }

    fn answered(place: &Place) {
        place.begin();
        place.end();
        place.establish(true);
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_go_before_the_idle_and_the_busy_stay() {
        let crowd = Arc::new(Crowd::new(3));
        let busy = Crowd::enter(&crowd);
        answered(&busy);
        busy.begin();
        let known = Crowd::enter(&crowd);
        answered(&known);
        let stranger = Crowd::enter(&crowd);
        tokio::time::advance(Duration::from_secs(1)).await;
        let younger = Crowd::enter(&crowd);
        assert!(asked_to_leave(&stranger) && !asked_to_leave(&known));
        stranger.left().await;
        answered(&younger);
        younger.begin();
        let last = Crowd::enter(&crowd);
        assert!(asked_to_leave(&known), "the longest idle");
        answered(&last);
        last.begin();
        assert!(!asked_to_leave(&busy) && !asked_to_leave(&younger));
        let wait = tokio::time::timeout(Duration::from_secs(1), crowd.room());
        assert!(wait.await.is_err(), "all are busy");
        last.end();
        crowd.room().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_that_is_slow_goes_before_one_that_has_just_come() {
        let crowd = Arc::new(Crowd::new(3));
        let known = Crowd::enter(&crowd);
        answered(&known);
        let [slow, moves] = [(), ()].map(|()| Crowd::enter(&crowd));
        slow.begin();
        moves.begin();
        tokio::time::advance(Duration::from_secs(1)).await;
        moves.moved();
        crowd.room().await;
        let comes = Crowd::enter(&crowd);
        assert!(asked_to_leave(&slow) && !asked_to_leave(&moves) && !asked_to_leave(&known));
        tokio::time::advance(Duration::from_secs(1)).await;
        comes.moved();
        let last = Crowd::enter(&crowd);
        assert!(asked_to_leave(&moves) && !asked_to_leave(&comes) && !asked_to_leave(&known));
        // As soon as it is answered it is none any more; until it loses that.
        answered(&last);
        last.begin();
        last.establish(false);
        tokio::time::advance(Duration::from_secs(1)).await;
        comes.moved();
        let _next = Crowd::enter(&crowd);
        assert!(asked_to_leave(&last) && !asked_to_leave(&known));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_come_keeps_nobody_out_for_long() {
        let crowd = Arc::new(Crowd::new(2));
        let all = [(), ()].map(|()| Crowd::enter(&crowd));
        for place in &all {
            answered(place);
            place.begin();
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        let [_, moves] = &all;
        moves.moved();
        let start = Instant::now();
        crowd.room().await;
        assert!(start.elapsed() <= STALLED);
        let _comes = Crowd::enter(&crowd);
        let [stalled, moves] = &all;
        assert!(asked_to_leave(stalled) && !asked_to_leave(moves));
    }
}
