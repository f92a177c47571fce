//! What was counted.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Failure;

/// A run that is over.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) whole: Duration,
    /// From when each request was due until its answer was there.
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
            // Of a hundred answers the 99th: the one that 99 do not exceed.
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

/// How long a process ran, and how long it could have but others did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    ran: Duration,
    waited: Duration,
}

impl Share {
    /// Of all threads of a process, as the kernel counts it in nanoseconds.
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
