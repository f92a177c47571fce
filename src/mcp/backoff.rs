//! Exponential backoff: the delay before a reconnect doubles up to a bound, with jitter, so that two peers of a lost server
//! do not reconnect at the same time.

use std::time::Duration;

/// The first wait.
pub const FIRST: Duration = Duration::from_millis(200);

/// The longest step.
pub const MOST: Duration = Duration::from_secs(10);

/// The duration of a stream that resets the backoff. One that delivers a response and ends at once does not: the dialler
/// would reconnect without pause.
pub const STEADY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The next wait. `random` is in `0.0..1.0`: the wait is a fifth shorter to a fifth longer than its step.
    pub fn next(&mut self, random: f64) -> Duration {
        let doubled = 2_u32.saturating_pow(self.tries);
        let step = FIRST.saturating_mul(doubled).min(MOST);
        self.tries = self.tries.saturating_add(1);
        let random = if random.is_nan() { 0.5 } else { random };
        step.mul_f64(0.8 + 0.4 * random.clamp(0.0, 1.0))
    }

    /// Resets the backoff after a success.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_bound() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.next(0.5).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        for _ in 0..100 {
            assert!(backoff.next(1.0) <= MOST.mul_f64(1.2));
        }
        backoff.reset();
        assert_eq!(backoff.next(0.5), FIRST);
    }

    #[test]
    fn chance_is_a_fifth_whatever_it_is() {
        for (random, milliseconds) in [
            (0.0, 160),
            (1.0, 240),
            (-5.0, 160),
            (7.0, 240),
            (f64::NAN, 200),
        ] {
            let wait = Backoff::default().next(random);
            assert_eq!(wait.as_millis(), milliseconds, "{random}");
        }
    }
}
