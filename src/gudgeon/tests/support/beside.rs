//! A well-behaved client beside an attack: it asks again and again over a kept connection, and notes how long each answer took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// From one question to the next.
const PAUSE: Duration = Duration::from_millis(20);
/// A machine whose cores are busy may be late once in a while: nine of ten answers keep the bound, and none is later than
/// by this.
const SLACK: Duration = Duration::from_secs(1);

/// A client that repeats a check until the test ends it.
pub struct Beside {
    name: &'static str,
    ends: Arc<AtomicBool>,
    asks: JoinHandle<Vec<Duration>>,
}

impl Beside {
    /// `ask` panics where the answer is not the right one.
    pub fn start(name: &'static str, mut ask: impl FnMut() + Send + 'static) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let asks = std::thread::spawn(move || {
            let mut took = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let asked = Instant::now();
                ask();
                took.push(asked.elapsed());
                std::thread::sleep(PAUSE);
            }
            took
        });
        Self { name, ends, asks }
    }

    /// Ends it; each of its answers came within `bound`.
    pub fn was_answered_within(self, bound: Duration) {
        self.ends.store(true, Ordering::Relaxed);
        let mut took = self.asks.join().unwrap();
        assert!(!took.is_empty(), "{}: no answer", self.name);
        took.sort_unstable();
        let (most, worst) = (took[took.len() * 9 / 10], took[took.len() - 1]);
        let summary = format!(
            "{}: {} answers, nine of ten in {most:?}, all in {worst:?}",
            self.name,
            took.len()
        );
        assert!(most < bound && worst < bound + SLACK, "{summary}");
    }
}
