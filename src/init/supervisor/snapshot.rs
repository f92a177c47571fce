//! The agent's state, as data: for readiness, `/status` and the metrics.

#![forbid(unsafe_code)]

use std::time::Instant;

use super::action::Reason;
use super::companions::Companion;
use super::epoch::{Process, State};
use super::event::Fingerprint;
use super::timers::Timer;
use super::{Next, Phase, Supervisor};

/// The agent as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// Nothing has been LIVE yet.
    Starting,
    /// An epoch serves, and no other is wanted.
    Live,
    /// The next epoch starts, or waits for its turn.
    Restarting,
    /// No proxy runs, and none is wanted until a change or SIGHUP (`--on-clean-exit=idle`).
    Idle,
    /// Asked to drain, or to stop and draining.
    Draining,
    /// The processes have been asked to end.
    Stopping,
}

impl AgentState {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Live => "live",
            Self::Restarting => "restarting",
            Self::Idle => "idle",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
        }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    pub state: AgentState,
    /// MUTUAL_TLS: the first epoch waits for its certificates.
    pub waits_for_certificates: bool,
    pub newest: Option<&'a Process>,
    /// The parent of `newest`, or what is left of it.
    pub older: Option<&'a Process>,
    /// The configuration that should run.
    pub desired: Fingerprint,
    /// Crash restarts that are left, and how many there are in all.
    pub retry_budget: (u32, u32),
    /// Why the next epoch is wanted, now or at `next_try`.
    pub next: Option<Reason>,
    /// The desired configuration was given up, and has one try now and then; another one serves.
    pub given_up: bool,
    /// The time of the next try after a failure.
    pub next_try: Option<Instant>,
    /// In the order of their flags.
    pub companions: &'a [Companion],
}

impl Supervisor {
    /// Returns the state of the agent.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<'_> {
        let next = match self.next {
            Next::Nothing => self.given_up,
            Next::Wanted { reason, .. }
            | Next::Validating { reason, .. }
            | Next::Backoff(reason) => Some(reason),
        };
        Snapshot {
            state: self.state(),
            waits_for_certificates: self.phase == Phase::Waiting,
            newest: self.newest.as_ref(),
            older: self.older.as_ref(),
            desired: self.desired,
            retry_budget: (self.budget, self.policy.retry_budget),
            next,
            given_up: self.given_up.is_some(),
            next_try: self.timers.deadline(Timer::Retry),
            companions: &self.companions,
        }
    }

    fn state(&self) -> AgentState {
        match self.phase {
            Phase::Waiting => AgentState::Starting,
            Phase::Stopping if !self.stop.is_past_drain() => AgentState::Draining,
            Phase::Stopping | Phase::Done => AgentState::Stopping,
            Phase::Running if self.drained => AgentState::Draining,
            Phase::Running if self.next == Next::Nothing && self.processes().next().is_none() => {
                AgentState::Idle
            }
            Phase::Running if !self.ever_live => AgentState::Starting,
            Phase::Running => {
                let newest_lives = self
                    .newest
                    .as_ref()
                    .is_some_and(|newest| newest.state == State::Live);
                if newest_lives && self.next == Next::Nothing {
                    AgentState::Live
                } else {
                    AgentState::Restarting
                }
            }
        }
    }
}
