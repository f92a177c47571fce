//! The connections of one listener: a fixed number of places, and who gives way.
//!
//! Those that have not asked anything yet go first, the longest waiting of them; then the longest idle. So a crowd that
//! connects and keeps silent pushes out itself, not the API server's kept connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

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
    /// It has asked something before.
    known: bool,
    /// Requests in work.
    busy: u32,
    idle_since: Instant,
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
                if members.all.len() < self.places
                    || members.all.values().any(|member| member.busy == 0)
                {
                    return;
                }
            }
            moved.await;
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
                known: false,
                busy: 0,
                idle_since: Instant::now(),
                leave: Arc::clone(&leave),
            },
        );
        Place {
            crowd: Arc::clone(this),
            id,
            leave,
        }
    }

    /// Asks one that does nothing to leave.
    pub(super) fn make_room(&self) {
        let mut members = self.members();
        let chosen = members
            .all
            .iter()
            .filter(|(_, member)| member.busy == 0)
            .min_by_key(|(id, member)| (member.known, member.idle_since, **id))
            .map(|(id, _)| *id);
        if let Some(member) = chosen.and_then(|id| members.all.remove(&id)) {
            member.leave.notify_one();
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

    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn begin(&self) {
        if let Some(member) = self.crowd.members().all.get_mut(&self.id) {
            member.known = true;
            member.busy += 1;
        }
    }

    pub(super) fn end(&self) {
        if let Some(member) = self.crowd.members().all.get_mut(&self.id) {
            member.busy = member.busy.saturating_sub(1);
            member.idle_since = Instant::now();
        }
        self.crowd.moved.notify_one();
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

    #[tokio::test(start_paused = true)]
    async fn strangers_go_before_the_idle_and_the_busy_stay() {
        let crowd = Arc::new(Crowd::new(3));
        let busy = Crowd::enter(&crowd);
        busy.begin();
        let known = Crowd::enter(&crowd);
        known.begin();
        known.end();
        tokio::time::advance(Duration::from_secs(60)).await;
        let stranger = Crowd::enter(&crowd);
        tokio::time::advance(Duration::from_secs(1)).await;
        let younger = Crowd::enter(&crowd);
        assert!(asked_to_leave(&stranger) && !asked_to_leave(&known));
        stranger.left().await;
        younger.begin();
        let last = Crowd::enter(&crowd);
        assert!(asked_to_leave(&known), "the longest idle");
        last.begin();
        assert!(!asked_to_leave(&busy) && !asked_to_leave(&younger));
        let wait = tokio::time::timeout(Duration::from_secs(1), crowd.room());
        assert!(wait.await.is_err(), "all are busy");
        last.end();
        crowd.room().await;
    }
}
