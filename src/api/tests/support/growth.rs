//! The growth of work with its input, as a ratio of two times of the CPU: a machine that is busy lengthens neither.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Shorter times are too small to measure.
const MIN_MEASURED: Duration = Duration::from_millis(2);
/// Rounds, of which the shortest counts: other tests share the caches of this core.
const ROUNDS: usize = 5;
/// The factor over linear work that the larger input may take: it fits into fewer caches than the smaller one.
const SLACK: u32 = 8;

/// Asserts that `large` takes no longer than linear work would, generously; its input is `factor` times that of `small`, so that
/// quadratic work takes `factor` times as long as linear work. `factor` should be several times [`SLACK`], or 1 for work that a
/// bound ends.
#[allow(clippy::panic, reason = "a test may fail")]
pub(crate) fn assert_linear(factor: u32, mut small: impl FnMut(), mut large: impl FnMut()) {
    let (mut min, mut max) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let start = cpu_time();
        small();
        let between = cpu_time();
        large();
        min = min.min(between.saturating_sub(start));
        max = max.min(cpu_time().saturating_sub(between));
        if max <= min.max(MIN_MEASURED) * factor * SLACK {
            return;
        }
    }
    panic!("{factor} times the input took {max:?} in place of {min:?}");
}

/// Returns the time that a CPU has spent on this thread; where the kernel does not count it, a time that only differences are
/// taken of.
#[allow(clippy::disallowed_methods, reason = "a test asks the kernel")]
pub(crate) fn cpu_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    // The kernel adds the present turn to the count when the thread gives it up.
    std::thread::yield_now();
    let counts = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = counts
        .split(' ')
        .next()
        .and_then(|count| count.parse().ok());
    nanos.map_or_else(
        || START.get_or_init(Instant::now).elapsed(),
        Duration::from_nanos,
    )
}
