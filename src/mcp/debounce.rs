//! The debounce of a group, which says when it is published. User-written objects come in bursts and wait for a quiet moment; objects
//! generated from Services go out at once and then not too often. The first snapshot waits until every source has sent its
//! full list.

use std::time::Duration;

use api::debounce::Burst;

use crate::collections::Group;

/// The delays after which changes of a group are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebounceOptions {
    /// The time without a change.
    pub quiet: Duration,
    /// The longest time since the first unpublished change.
    pub max: Duration,
    /// The least time since the last publish.
    pub apart: Duration,
}

impl DebounceOptions {
    pub const fn of(group: Group) -> Self {
        match group {
            Group::Default => Self {
                quiet: Duration::from_millis(500),
                max: Duration::from_secs(1),
                apart: Duration::ZERO,
            },
            Group::SyntheticServiceEntry => Self {
                quiet: Duration::ZERO,
                max: Duration::ZERO,
                apart: Duration::from_millis(100),
            },
        }
    }
}

/// Changes that wait.
#[derive(Clone, Copy, Debug)]
struct PendingChanges {
    burst: Burst,
    count: u64,
}

/// The changes to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueChanges {
    /// The time of the first change.
    pub since: Duration,
    /// The number of changes.
    pub count: u64,
}

/// The debounce of one group.
#[derive(Debug)]
pub struct Debounce {
    options: DebounceOptions,
    open: bool,
    waiting: Option<PendingChanges>,
    published: Option<Duration>,
}

impl Debounce {
    /// Creates a closed debounce: nothing is due before [`Self::open`].
    pub fn new(options: DebounceOptions) -> Self {
        Self {
            options,
            open: false,
            waiting: None,
            published: None,
        }
    }

    /// Marks the initial state as complete. This counts as a change: an empty state is published, too.
    pub fn open(&mut self, now: Duration) {
        if !self.open {
            self.open = true;
            self.change(now);
        }
    }

    /// Closes the debounce for a new session: until its initial state is complete, the published snapshot stays. Changes that
    /// wait are set by the new session again, and go on waiting: sessions that follow each other must not starve them.
    pub fn close(&mut self) {
        self.open = false;
    }

    pub fn change(&mut self, now: Duration) {
        let waiting = self.waiting.get_or_insert_with(|| PendingChanges {
            burst: Burst::new(now),
            count: 0,
        });
        waiting.burst.add(now);
        waiting.count = waiting.count.saturating_add(1);
    }

    /// Returns the changes if a snapshot is due now; the caller builds it.
    pub fn due(&mut self, now: Duration) -> Option<DueChanges> {
        if self.deadline()? > now {
            return None;
        }
        let waiting = self.waiting.take()?;
        self.published = Some(now);
        Some(DueChanges {
            since: waiting.burst.first,
            count: waiting.count,
        })
    }

    /// Returns the time to call [`Self::due`]; `None`: not before the next change.
    pub fn deadline(&self) -> Option<Duration> {
        // Changes before the initial state is complete are counted, and make nothing due.
        let waiting = self.waiting.filter(|_| self.open)?;
        let deadline = waiting.burst.deadline(self.options.quiet, self.options.max);
        let apart = self
            .published
            .map(|at| at.saturating_add(self.options.apart));
        Some(deadline.max(apart.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Plays changes, with `open` called at this time, and polls every millisecond. Returns the times of publishes, with
    /// their number of changes.
    fn play(group: Group, open: u64, changes: &[u64], until: u64) -> Vec<(u64, u64)> {
        let mut debounce = Debounce::new(DebounceOptions::of(group));
        let mut log = Vec::new();
        for now in 0..until {
            for _ in changes.iter().filter(|time| **time == now) {
                debounce.change(at(now));
            }
            if now == open {
                debounce.open(at(now));
            }
            let is_time = debounce.deadline().is_some_and(|time| time <= at(now));
            let due = debounce.due(at(now));
            assert_eq!(due.is_some(), is_time);
            log.extend(due.map(|due| (now, due.count)));
        }
        log
    }

    #[test]
    fn written_objects_wait_for_half_a_second_of_quiet() {
        let log = play(Group::Default, 0, &[1000, 1100, 1200, 3000], 5000);
        assert_eq!(log, [(500, 1), (1700, 3), (3500, 1)]);
    }

    #[test]
    fn debounce_is_bounded_by_one_second() {
        let changes: Vec<_> = (1000..3000).step_by(100).collect();
        let log = play(Group::Default, 0, &changes, 5000);
        assert_eq!(log, [(500, 1), (2000, 11), (3100, 9)]);
    }

    #[test]
    fn a_storm_of_a_second_is_two_publishes() {
        let changes: Vec<_> = (1000..2000).collect();
        let log = play(Group::Default, 0, &changes, 5000);
        assert!(log.len() <= 3, "{log:?}");
        assert_eq!(log.iter().map(|(_, count)| count).sum::<u64>(), 1001);
    }

    #[test]
    fn synthetic_entries_go_out_at_once_then_ten_times_a_second() {
        let group = Group::SyntheticServiceEntry;
        let log = play(group, 0, &[1000, 1001, 1050, 1099, 1150, 2000], 5000);
        assert_eq!(log, [(0, 1), (1000, 1), (1100, 3), (1200, 1), (2000, 1)]);
        let changes: Vec<_> = (1000..2000).collect();
        assert_eq!(play(group, 0, &changes, 5000).len(), 12);
    }

    #[test]
    fn nothing_goes_out_before_everything_is_there() {
        for group in Group::ALL {
            assert_eq!(play(group, 9999, &[0, 1, 2, 3000], 5000), []);
            // An empty state is published as well.
            let log = play(group, 2000, &[], 5000);
            assert_eq!(log.len(), 1, "{group:?}");
        }
        assert_eq!(play(Group::Default, 2000, &[100], 5000), [(2000, 2)]);
    }

    #[test]
    fn sessions_that_follow_each_other_do_not_delay_a_change() {
        let mut debounce = Debounce::new(DebounceOptions::of(Group::Default));
        debounce.open(at(0));
        assert!(debounce.due(at(500)).is_some());
        debounce.change(at(1000));
        let mut published = Vec::new();
        for now in (1000..4000).step_by(10) {
            if now % 350 == 0 {
                debounce.close();
            }
            if now % 350 == 20 {
                debounce.open(at(now));
            }
            published.extend(debounce.due(at(now)).map(|due| (now, due.since)));
        }
        let first = published.first();
        assert_eq!(first, Some(&(2000, at(1000))), "{published:?}");
    }

    #[test]
    fn a_new_session_waits_again() {
        let mut debounce = Debounce::new(DebounceOptions::of(Group::Default));
        debounce.open(at(0));
        debounce.open(at(100));
        assert_eq!(debounce.deadline(), Some(at(500)));
        debounce.close();
        debounce.change(at(200));
        assert_eq!((debounce.deadline(), debounce.due(at(9000))), (None, None));
        debounce.open(at(9000));
        assert_eq!(
            debounce.due(at(9000)),
            Some(DueChanges {
                since: at(0),
                count: 3
            })
        );
    }
}
