//! The growth of work with its input, as a ratio of two durations: a machine that is slow or busy is so for both.

use std::time::{Duration, Instant};

/// Shorter durations are too small to measure.
const SHORTEST: Duration = Duration::from_millis(2);
/// Rounds, of which the shortest counts: other tests run at the same time.
const ROUNDS: usize = 10;
/// The factor over linear work that the larger input may take: it waits for its turn on a busy machine, while the smaller one
/// is done within one slice of time.
const SLACK: u32 = 8;

/// Asserts that `large` takes no longer than linear work would, generously; its input is `factor` times that of `small`, so that
/// quadratic work takes `factor` times as long as linear work. `factor` should be several times [`SLACK`], or 1 for work that a
/// bound ends.
#[allow(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "a test looks at the clock, and may fail"
)]
pub(crate) fn assert_linear(factor: u32, mut small: impl FnMut(), mut large: impl FnMut()) {
    let (mut least, mut most) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        small();
        least = least.min(start.elapsed());
        let start = Instant::now();
        large();
        most = most.min(start.elapsed());
        if most <= least.max(SHORTEST) * factor * SLACK {
            return;
        }
    }
    panic!("{factor} times the input took {most:?} in place of {least:?}");
}
