//! Reloads files: after an event of the file system, with a debounce; at intervals; and after a failure, with backoff.

use std::time::Duration;

use api::backoff::{Backoff, Bounds};
use sources::panics::caught;
use tokio::time::sleep;
use tracing::{error, warn};

use super::Watcher;
use crate::clock::chance;

/// The delay from the first event to the reload: a program often writes several files.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The intervals of reloads without an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReloadIntervals {
    pub(crate) poll: Duration,
    /// The interval while inotify fails.
    pub(crate) degraded: Duration,
}

impl Default for ReloadIntervals {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(300),
            degraded: Duration::from_secs(10),
        }
    }
}

/// A source of changes.
pub(crate) trait ChangeSource {
    /// Returns the reason why changes may be missed.
    fn degraded(&self) -> Option<&str>;

    async fn changed(&mut self);

    /// Finds anew where the files are.
    async fn follow(&mut self);

    /// Returns when the files are to be read again: a moment after an event, or after the pause, with their paths found anew.
    /// If it is dropped, an event may be lost: the caller reads the files.
    async fn due(&mut self, pause: Duration) {
        tokio::select! {
            () = self.changed() => sleep(DEBOUNCE).await,
            () = sleep(pause) => self.follow().await,
        }
    }
}

/// A reader of files.
pub(crate) trait ReloadFiles {
    /// Reads changed files. Returns the delay until the next read, if it cannot wait for an event.
    async fn reload(&mut self) -> Option<Duration>;

    /// Forgets which contents were read last, after a panic: the next read takes them up again, though the files are as they were.
    fn forget(&mut self);

    /// Returns the intervals of reloads without an event.
    fn intervals(&self) -> ReloadIntervals {
        ReloadIntervals::default()
    }

    /// Waits until no user of the content is left. Cancel-safe.
    async fn unused(&mut self) {
        std::future::pending::<()>().await;
    }
}

impl ChangeSource for Watcher {
    fn degraded(&self) -> Option<&str> {
        self.degraded()
    }

    async fn changed(&mut self) {
        self.changed().await;
    }

    async fn follow(&mut self) {
        self.follow().await;
    }
}

/// Reads files after events and at intervals, as long as they are used. A panic ends neither the reads nor the events: content
/// that is never read again would stay in effect for good, and nobody would know.
pub(crate) async fn run_reload_loop(mut watcher: impl ChangeSource, files: impl ReloadFiles) {
    let mut warned = false;
    let intervals = files.intervals();
    let mut reader = GuardedFiles::new(files);
    // After a panic of it the files are read all the same.
    let _logged = caught(watcher.follow()).await;
    // Picks up changes between the first scan and the watch.
    let mut again = reader.reload().await;
    loop {
        let mut pause = intervals.poll;
        if let Some(why) = watcher.degraded() {
            pause = intervals.degraded;
            if !warned {
                warn!("polling the files every {} s: {why}", pause.as_secs());
                warned = true;
            }
        }
        tokio::select! {
            due = caught(watcher.due(again.unwrap_or(pause))) => if due.is_err() {
                sleep(intervals.degraded).await;
            },
            () = reader.files.unused() => return,
        }
        again = reader.reload().await;
    }
}

/// Files, the reader of which outlives its panics.
struct GuardedFiles<F> {
    files: F,
    /// The waits after panics.
    backoff: Backoff,
}

impl<F: ReloadFiles> GuardedFiles<F> {
    fn new(files: F) -> Self {
        let ReloadIntervals { poll, degraded } = files.intervals();
        let backoff = Backoff::new(Bounds {
            first: degraded,
            max: poll,
        });
        Self { files, backoff }
    }

    /// Reads changed files. Returns the delay until the next read, if it cannot wait for an event.
    async fn reload(&mut self) -> Option<Duration> {
        if let Ok(again) = caught(self.files.reload()).await {
            self.backoff.reset();
            return again;
        }
        self.files.forget();
        let wait = self.backoff.next(chance());
        error!("a read of files panicked, see the log: reading them again in {wait:.1?}");
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use tokio::time::Instant;

    use super::*;

    /// A watcher that reports a change once, after a time, or never.
    struct Watch<'a> {
        degraded: bool,
        tells: Option<Instant>,
        followed: &'a Cell<usize>,
    }

    impl ChangeSource for Watch<'_> {
        fn degraded(&self) -> Option<&str> {
            self.degraded.then_some("none left")
        }

        async fn changed(&mut self) {
            match self.tells {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
            self.tells = None;
        }

        async fn follow(&mut self) {
            self.followed.set(self.followed.get() + 1);
        }
    }

    /// Records the times at which it is called.
    struct RecordedReloads<'a> {
        start: Instant,
        intervals: ReloadIntervals,
        /// The time from which on the files have no user.
        unused: Option<Instant>,
        seen: &'a RefCell<Vec<u128>>,
        again: &'a [Option<u64>],
        /// The first reads, which panic.
        panics: usize,
        /// The reads after which all was forgotten.
        forgotten: &'a RefCell<Vec<usize>>,
    }

    impl ReloadFiles for RecordedReloads<'_> {
        async fn reload(&mut self) -> Option<Duration> {
            let mut seen = self.seen.borrow_mut();
            seen.push(self.start.elapsed().as_millis());
            assert!(seen.len() > self.panics, "as a reader that panics");
            let again = self.again.get(seen.len() - 1).copied().flatten();
            again.map(Duration::from_millis)
        }

        fn forget(&mut self) {
            self.forgotten.borrow_mut().push(self.seen.borrow().len());
        }

        fn intervals(&self) -> ReloadIntervals {
            self.intervals
        }

        async fn unused(&mut self) {
            match self.unused {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns the milliseconds of the reads within so many seconds, and the number of them that resolved the paths again.
    /// `again`: the results of the reads.
    async fn looks(
        seconds: u64,
        degraded: bool,
        tells: Option<u64>,
        again: &[Option<u64>],
    ) -> (Vec<u128>, usize) {
        let start = Instant::now();
        let seen = RefCell::<Vec<u128>>::default();
        let followed = Cell::new(0);
        let watch = Watch {
            degraded,
            tells: tells.map(|at| start + Duration::from_millis(at)),
            followed: &followed,
        };
        let files = RecordedReloads {
            start,
            intervals: ReloadIntervals::default(),
            unused: None,
            seen: &seen,
            again,
            panics: 0,
            forgotten: &RefCell::default(),
        };
        let all = run_reload_loop(watch, files);
        let over = tokio::time::timeout(Duration::from_secs(seconds), all).await;
        assert!(over.is_err(), "it goes on for ever");
        (seen.into_inner(), followed.get())
    }

    #[tokio::test(start_paused = true)]
    async fn every_five_minutes_without_a_word() {
        let (at, followed) = looks(1000, false, None, &[]).await;
        assert_eq!(at, [0, 300_000, 600_000, 900_000]);
        assert_eq!(followed, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn every_ten_seconds_where_nobody_tells() {
        let (at, _) = looks(35, true, None, &[]).await;
        assert_eq!(at, [0, 10_000, 20_000, 30_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_after_an_event() {
        let (at, followed) = looks(400, false, Some(7_000), &[]).await;
        assert_eq!(at, [0, 7_100, 307_100]);
        assert_eq!(followed, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn sooner_where_something_was_half_way() {
        let (at, _) = looks(301, false, None, &[Some(250), Some(250)]).await;
        assert_eq!(at, [0, 250, 500, 300_500]);
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_intervals_of_its_user_until_nobody_uses_the_files() {
        for (degraded, expected) in [
            (false, &[0, 60_000, 120_000][..]),
            (true, &[0, 50_000, 100_000, 150_000]),
        ] {
            let start = Instant::now();
            let seen = RefCell::<Vec<u128>>::default();
            let watch = Watch {
                degraded,
                tells: None,
                followed: &Cell::new(0),
            };
            let files = RecordedReloads {
                start,
                intervals: ReloadIntervals {
                    poll: Duration::from_secs(60),
                    degraded: Duration::from_secs(50),
                },
                unused: Some(start + Duration::from_secs(170)),
                seen: &seen,
                again: &[],
                panics: 0,
                forgotten: &RefCell::default(),
            };
            run_reload_loop(watch, files).await;
            assert_eq!(start.elapsed().as_secs(), 170);
            assert_eq!(seen.into_inner(), expected);
        }
    }

    /// A list of clients kept a revoked one for good.
    #[tokio::test(start_paused = true)]
    async fn on_after_a_panic_with_longer_waits() {
        let start = Instant::now();
        let forgotten = RefCell::default();
        let seen = RefCell::<Vec<u128>>::default();
        let watch = Watch {
            degraded: false,
            tells: None,
            followed: &Cell::new(0),
        };
        let files = RecordedReloads {
            start,
            intervals: ReloadIntervals::default(),
            unused: Some(start + Duration::from_secs(400)),
            seen: &seen,
            again: &[],
            panics: 2,
            forgotten: &forgotten,
        };
        run_reload_loop(watch, files).await;
        assert_eq!(forgotten.into_inner(), [1, 2]);
        let seen = seen.into_inner();
        let waits: Vec<_> = seen.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let [first, second, third] = *waits else {
            panic!("{waits:?}");
        };
        assert!((8_000..=12_001).contains(&first), "{first}");
        assert!((16_000..=24_001).contains(&second), "{second}");
        assert_eq!(third, 300_000);
    }

    /// A watcher whose events panic.
    struct BrokenWatch;

    impl ChangeSource for BrokenWatch {
        fn degraded(&self) -> Option<&str> {
            None
        }

        async fn changed(&mut self) {
            panic!("as a watcher that panics");
        }

        async fn follow(&mut self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn at_short_intervals_after_a_panic_of_the_watcher() {
        let start = Instant::now();
        let seen = RefCell::<Vec<u128>>::default();
        let files = RecordedReloads {
            start,
            intervals: ReloadIntervals::default(),
            unused: None,
            seen: &seen,
            again: &[],
            panics: 0,
            forgotten: &RefCell::default(),
        };
        let all = run_reload_loop(BrokenWatch, files);
        let over = tokio::time::timeout(Duration::from_secs(35), all).await;
        assert!(over.is_err(), "it goes on for ever");
        assert_eq!(seen.into_inner(), [0, 10_000, 20_000, 30_000]);
    }
}
