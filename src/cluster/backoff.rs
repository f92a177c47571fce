//! Exponential backoff: the delay before a retry doubles up to a bound, with jitter, so that replicas do not retry at the
//! same time.

use std::time::Duration;

use crate::failure::Failure;

/// The first wait, and the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) first: Duration,
    pub(crate) most: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    bounds: Bounds,
    tries: u32,
}

impl Backoff {
    pub(crate) const fn new(bounds: Bounds) -> Self {
        Self { bounds, tries: 0 }
    }

    /// The next wait. `random` is in `0.0..1.0`: the wait is a fifth shorter to a fifth longer than its step.
    pub(crate) fn next(&mut self, random: f64) -> Duration {
        let step = self
            .bounds
            .first
            .saturating_mul(2_u32.saturating_pow(self.tries))
            .min(self.bounds.most);
        self.tries = self.tries.saturating_add(1);
        step.mul_f64(0.8 + 0.4 * random.clamp(0.0, 1.0))
    }

    /// The same after a failure, and not before the server wants to hear of it again.
    pub(crate) fn after(&mut self, failure: &Failure, random: f64) -> Duration {
        let wait = self.next(random);
        wait.max(failure.after().unwrap_or_default())
    }

    /// Returns true if a retry has been delayed since the last reset.
    pub(crate) const fn waited(&self) -> bool {
        self.tries > 0
    }

    pub(crate) const fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        first: Duration::from_millis(100),
        most: Duration::from_secs(60),
    };

    #[test]
    fn the_wait_doubles_up_to_its_bound() {
        let mut backoff = Backoff::new(BOUNDS);
        let waits: Vec<u128> = (0..12).map(|_| backoff.next(0.5).as_millis()).collect();
        assert_eq!(
            waits,
            [
                100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000
            ]
        );
        for _ in 0..100 {
            assert!(backoff.next(0.999) <= BOUNDS.most.mul_f64(1.2));
        }
        assert!(backoff.waited());
        backoff.reset();
        assert!(!backoff.waited());
        assert_eq!(backoff.next(0.5).as_millis(), 100);
    }

    #[test]
    fn two_replicas_differ() {
        let (mut early, mut late) = (Backoff::new(BOUNDS), Backoff::new(BOUNDS));
        assert_eq!(early.next(0.0).as_millis(), 80);
        assert_eq!(late.next(1.0).as_millis(), 120);
    }
}
