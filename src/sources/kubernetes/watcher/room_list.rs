//! The list that is due once there is room for objects that were left out: a watch tells nothing of them until they change.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The time between two such lists at least. Chosen: a list of a full kind has more than 64 MiB, and such a kind changes often.
pub(super) const MIN_LIST_INTERVAL: Duration = Duration::from_secs(60);

/// The time of the last list, and that of the next one for the sake of room.
#[derive(Default)]
pub(super) struct RoomList {
    last: Option<Instant>,
    due: Option<Instant>,
}

impl RoomList {
    /// All was listed now.
    pub(super) fn note_list(&mut self) {
        self.last = Some(Instant::now());
        self.due = None;
    }

    /// Plans a list if there is room for objects that were left out: `between` after the last list, or at once.
    pub(super) fn plan(&mut self, has_room: bool, between: Duration) {
        let now = Instant::now();
        let earliest = self.last.map_or(now, |last| now.max(last + between));
        // Objects that came meanwhile may have taken the room.
        self.due = has_room.then(|| self.due.unwrap_or(earliest));
    }

    /// Waits for the time of the planned list; for ever where none is planned.
    pub(super) async fn wait(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lists_for_the_sake_of_room_are_a_minute_apart() {
        let begun = Instant::now();
        let mut list = RoomList::default();
        let at = |list: &RoomList| list.due.map(|due| (due - begun).as_secs());
        list.note_list();
        tokio::time::advance(Duration::from_secs(10)).await;
        list.plan(true, MIN_LIST_INTERVAL);
        assert_eq!(at(&list), Some(60));
        // More of it postpones nothing.
        tokio::time::advance(Duration::from_secs(90)).await;
        list.plan(true, MIN_LIST_INTERVAL);
        assert_eq!(at(&list), Some(60));
        // It was taken by others, and is there again.
        list.plan(false, MIN_LIST_INTERVAL);
        assert_eq!(at(&list), None);
        list.plan(true, MIN_LIST_INTERVAL);
        assert_eq!(at(&list), Some(100));
        list.note_list();
        assert_eq!(at(&list), None);
    }
}
