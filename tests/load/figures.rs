//! The measured figures.

use std::time::Duration;

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
    /// Sums the schedstat of all threads of a process, which the kernel counts in nanoseconds.
    pub(crate) fn of(pid: u32) -> Result<Self, Failure> {
        let mut share = Self::default();
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            let mut nanos = text.split(' ').map(str::parse);
            if let (Some(ran), Some(waited)) = (nanos.next(), nanos.next()) {
                share.ran += Duration::from_nanos(ran?);
                share.waited += Duration::from_nanos(waited?);
            }
        }
        Ok(share)
    }
}
