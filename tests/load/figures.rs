//! The measured figures.

use std::time::Duration;

use nix::time::ClockId;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::Failure;

/// A run that is over.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) whole: Duration,
    /// The time from each request's due time to its response.
    pub(crate) took: Vec<Duration>,
    /// From when each was due until it was sent: the client's own share.
    pub(crate) late: Vec<Duration>,
}

impl Run {
    /// With what the server had of processors meanwhile.
    pub(crate) fn figures(mut self, before: Share, after: Share) -> Value {
        self.took.sort_unstable();
        self.late.sort_unstable();
        let micros = |of: &[Duration], hundredth: usize| {
            // Nearest rank: p99 of a hundred answers is the 99th.
            let place = (of.len() * hundredth).div_ceil(100).saturating_sub(1);
            of.get(place).map(|took| took.as_secs_f64() * 1e6)
        };
        json!({
            "answers": self.took.len(),
            "seconds": self.whole.as_secs_f64(),
            "processor_seconds": after.ran.saturating_sub(before.ran).as_secs_f64(),
            "waiting_seconds": after.waited.saturating_sub(before.waited).as_secs_f64(),
            "p50": micros(&self.took, 50),
            "p99": micros(&self.took, 99),
            "max": micros(&self.took, 100),
            "late_p99": micros(&self.late, 99),
        })
    }
}

/// The CPU time of a process, and its time in the run queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    ran: Duration,
    waited: Duration,
}

impl Share {
    /// Reads the clock of a process, which counts ended threads, too, and sums the waiting of those that it has now.
    pub(crate) fn of(pid: u32) -> Result<Self, Failure> {
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.try_into()?))
            .map_err(|cause| format!("cannot find the clock of process {pid}: {cause}"))?;
        let mut share = Self {
            ran: clock.now()?.into(),
            waited: Duration::ZERO,
        };
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            // A thread of its pool that ends meanwhile waited for work, and not for a processor.
            let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else {
                continue;
            };
            if let Some(waited) = text.split(' ').nth(1) {
                share.waited += Duration::from_nanos(waited.parse()?);
            }
        }
        Ok(share)
    }
}
