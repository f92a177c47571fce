//! Exponential backoff: the delay before a retry doubles up to a bound, with jitter, so that replicas do not retry at the
//! same time.

use std::time::Duration;

/// The first wait, and the longest, both before jitter, which adds or takes up to a fifth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub first: Duration,
    pub max: Duration,
}

impl Bounds {
    /// Returns the wait after so many earlier tries, without jitter.
    #[must_use]
    pub fn step(&self, tries: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(tries);
        self.first.saturating_mul(doubled).min(self.max)
    }
}

/// The state of a backoff: its bounds, and the number of tries since the last reset.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    bounds: Bounds,
    tries: u32,
}

impl Backoff {
    /// Creates a backoff that has not waited yet.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, tries: 0 }
    }

    /// Returns the next wait. `random` is in `0.0..1.0`: the wait is a fifth shorter to a fifth longer than its step.
    pub fn next(&mut self, random: f64) -> Duration {
        let step = self.bounds.step(self.tries);
        self.tries = self.tries.saturating_add(1);
        let random = if random.is_nan() { 0.5 } else { random };
        step.mul_f64(0.8 + 0.4 * random.clamp(0.0, 1.0))
    }

    /// Returns true if a retry has been delayed since the last reset.
    #[must_use]
    pub const fn waited(&self) -> bool {
        self.tries > 0
    }

    /// Returns to the first wait, after a success.
    pub const fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        first: Duration::from_millis(100),
        max: Duration::from_secs(60),
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
            assert!(backoff.next(0.999) <= BOUNDS.max.mul_f64(1.2));
        }
        assert!(backoff.waited());
        backoff.reset();
        assert!(!backoff.waited());
        assert_eq!(backoff.next(0.5).as_millis(), 100);
        assert_eq!(BOUNDS.step(u32::MAX), BOUNDS.max);
    }

    #[test]
    fn jitter_is_a_fifth_whatever_the_random_number() {
        for (random, milliseconds) in [
            (0.0, 80),
            (1.0, 120),
            (-5.0, 80),
            (7.0, 120),
            (f64::NAN, 100),
        ] {
            let wait = Backoff::new(BOUNDS).next(random);
            assert_eq!(wait.as_millis(), milliseconds, "{random}");
        }
    }
}
