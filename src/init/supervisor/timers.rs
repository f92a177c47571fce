//! Deadlines as state: the shell asks for the nearest one each turn, nothing is ever "started" in the kernel.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

/// Each fires at most once per arming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The debounce after a change is over; the files are hashed.
    Debounce,
    /// The files are hashed without any event.
    Rescan,
    /// The certificates did not appear in time.
    Certificates,
    /// The newest epoch is asked again whether it is LIVE.
    LivePoll,
    /// The child took too long to be LIVE.
    LiveDeadline,
    /// A change has waited long enough for the sole epoch to be LIVE.
    Gate,
    /// The LIVE epoch is asked whether it still answers.
    Hang,
    /// The backoff is over.
    Retry,
    /// The newest epoch has run long enough to give the retry budget back.
    Refill,
    /// The `--validate` run took too long.
    Validation,
    /// The pre-drain delay is over: "not ready" has had time to spread.
    PreDrain,
    /// The longest drain is over.
    Drain,
    /// The connections are counted.
    Connections,
    /// A process that was asked to end has not.
    Kill,
    /// A process that was killed is still not gone.
    Abandon,
    /// The draining parent should have ended by now.
    Parent,
    /// The draining parent is looked at again, or a dead one's child is answered again.
    Look,
    /// While the agent runs, the nearest backoff of a companion is over; while it ends, the companions had their time.
    Companions,
    /// The proxy is asked again whether it is ready for the command.
    Ready,
    /// The command had its time to end, to obey SIGTERM, or to be gone after SIGKILL.
    Command,
}

impl Timer {
    pub const ALL: [Self; 20] = [
        Self::Debounce,
        Self::Rescan,
        Self::Certificates,
        Self::LivePoll,
        Self::LiveDeadline,
        Self::Gate,
        Self::Hang,
        Self::Retry,
        Self::Refill,
        Self::Validation,
        Self::PreDrain,
        Self::Drain,
        Self::Connections,
        Self::Kill,
        Self::Abandon,
        Self::Parent,
        Self::Look,
        Self::Companions,
        Self::Ready,
        Self::Command,
    ];
}

/// One deadline or none for each timer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timers([Option<Instant>; Timer::ALL.len()]);

impl Timers {
    /// Arms, or arms anew. A delay beyond the clock's range is never.
    pub fn arm(&mut self, timer: Timer, now: Instant, delay: Duration) {
        self.set(timer, now.checked_add(delay));
    }

    /// Arms unless it is armed already.
    pub fn arm_once(&mut self, timer: Timer, now: Instant, delay: Duration) {
        if !self.is_armed(timer) {
            self.arm(timer, now, delay);
        }
    }

    /// Arms, or brings an armed one forward; never puts it off.
    pub fn arm_at_most(&mut self, timer: Timer, now: Instant, delay: Duration) {
        let due = now.checked_add(delay);
        let earlier = match (self.get(timer), due) {
            (Some(armed), Some(due)) => Some(armed.min(due)),
            (armed, due) => armed.or(due),
        };
        self.set(timer, earlier);
    }

    pub fn disarm(&mut self, timer: Timer) {
        self.set(timer, None);
    }

    pub fn disarm_all(&mut self) {
        *self = Self::default();
    }

    /// Disarms every timer but these.
    pub fn keep_only(&mut self, kept: &[Timer]) {
        for timer in Timer::ALL {
            if !kept.contains(&timer) {
                self.disarm(timer);
            }
        }
    }

    #[must_use]
    pub fn is_armed(&self, timer: Timer) -> bool {
        self.get(timer).is_some()
    }

    /// Returns the time at which it fires, if it is armed.
    #[must_use]
    pub fn deadline(&self, timer: Timer) -> Option<Instant> {
        self.get(timer)
    }

    /// The nearest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.0.iter().copied().flatten().min()
    }

    /// Disarms and returns the earliest timer that is due.
    pub fn expire(&mut self, now: Instant) -> Option<Timer> {
        let due = |timer: &Timer| self.get(*timer).is_some_and(|deadline| deadline <= now);
        let timer = Timer::ALL
            .into_iter()
            .filter(due)
            .min_by_key(|timer| self.get(*timer))?;
        self.disarm(timer);
        Some(timer)
    }

    fn get(&self, timer: Timer) -> Option<Instant> {
        self.0.get(timer as usize).copied().flatten()
    }

    fn set(&mut self, timer: Timer, deadline: Option<Instant>) {
        if let Some(slot) = self.0.get_mut(timer as usize) {
            *slot = deadline;
        }
    }
}
