//! The longest stretch for which an event loop works, from one rest to the next, in time of the CPU: a busy machine lengthens none.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::growth::cpu_time;

/// The stretches of a loop.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopStretches(Arc<Mutex<Stretches>>);

#[derive(Debug, Default)]
struct Stretches {
    /// The time of the CPU at which the present one began.
    begun: Duration,
    longest: Duration,
}

impl LoopStretches {
    /// Runs a future on a loop whose stretches are measured.
    pub(crate) fn block_on<T>(measured: impl AsyncFnOnce(Self) -> T) -> T {
        let this = Self::default();
        let [ends, begins] = [this.clone(), this.clone()];
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || ends.end())
            .on_thread_unpark(move || begins.begin())
            .build();
        runtime.unwrap().block_on(measured(this))
    }

    fn stretches(&self) -> std::sync::MutexGuard<'_, Stretches> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        self.stretches().begun = cpu_time();
    }

    fn end(&self) {
        let now = cpu_time();
        let mut all = self.stretches();
        all.longest = all.longest.max(now.saturating_sub(all.begun));
    }

    /// Forgets what was measured before. The present stretch begins now.
    pub(crate) fn reset(&self) {
        let begun = cpu_time();
        *self.stretches() = Stretches {
            begun,
            longest: Duration::ZERO,
        };
    }

    /// The longest stretch since the last reset, that has ended.
    pub(crate) fn longest(&self) -> Duration {
        self.stretches().longest
    }
}
