//! The last answer to a request, shared by all who ask at about the same time.

use std::time::Duration;

use tokio::time::Instant;

use crate::kubernetes::failure::Failure;

/// The age at which each answer is asked for anew. Chosen: a kind that is installed long after the start is found within a minute or
/// so, and a look takes up to a millisecond of processor time, since nothing of it is in a cache by then.
const SETTLED: Duration = Duration::from_secs(60);

/// The age up to which an answer is used.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MaxAge {
    /// The age of every answer.
    Fixed(Duration),
    /// The least age. An answer that has stayed the same for longer is used for as long again, up to [`SETTLED`].
    Settling(Duration),
}

/// The last answer to one request.
#[derive(Debug)]
struct LastAnswer<T> {
    at: Instant,
    /// The time of the first of the equal answers that this one ends.
    since: Instant,
    found: Result<T, Failure>,
}

impl<T: PartialEq> LastAnswer<T> {
    fn after(last: Option<Self>, result: Result<T, Failure>) -> Self {
        let at = Instant::now();
        let same = last.filter(|last| last.found == result);
        Self {
            at,
            since: same.map_or(at, |last| last.since),
            found: result,
        }
    }

    /// Returns the time for which it is still used; zero for a failure.
    fn remaining(&self, max: MaxAge) -> Duration {
        if self.found.is_err() {
            return Duration::ZERO;
        }
        let max = match max {
            MaxAge::Fixed(max) => max,
            MaxAge::Settling(min) => {
                let same_for = self.at.saturating_duration_since(self.since);
                same_for.min(SETTLED).max(min)
            }
        };
        max.saturating_sub(self.at.elapsed())
    }
}

/// The last answer, locked during the request: one answer serves all callers meanwhile.
#[derive(Debug)]
pub(super) struct AnswerCell<T>(tokio::sync::Mutex<Option<LastAnswer<T>>>);

impl<T> Default for AnswerCell<T> {
    fn default() -> Self {
        Self(tokio::sync::Mutex::default())
    }
}

impl<T: PartialEq> AnswerCell<T> {
    /// Reads an answer that is at most so old; `ask` gets another one.
    ///
    /// # Errors
    /// The request failed.
    pub(super) async fn read<R>(
        &self,
        max: MaxAge,
        ask: impl Future<Output = Result<T, Failure>>,
        read: impl FnOnce(&T) -> R,
    ) -> Result<R, Failure> {
        let asked = Instant::now();
        let mut cell = self.0.lock().await;
        let answer = match cell.take() {
            // A failure serves the callers that waited for it: each of them would wait as long for a server that is silent.
            Some(last) if last.at >= asked || !last.remaining(max).is_zero() => last,
            last => LastAnswer::after(last, ask.await),
        };
        cell.insert(answer)
            .found
            .as_ref()
            .map(read)
            .map_err(Clone::clone)
    }

    /// Returns the time for which the last answer is still used; zero without one.
    pub(super) async fn remaining(&self, max: MaxAge) -> Duration {
        let cell = self.0.lock().await;
        cell.as_ref()
            .map_or(Duration::ZERO, |last| last.remaining(max))
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    /// Reads the cell every eight seconds, and returns the seconds at which it asked. The answer changes after `change` seconds.
    async fn asked(max: MaxAge, change: u64) -> Vec<u64> {
        let cell = AnswerCell::default();
        let start = Instant::now();
        let mut asked = Vec::new();
        while start.elapsed() < Duration::from_secs(240) {
            let at = start.elapsed().as_secs();
            let mut is_asked = false;
            let ask = async {
                is_asked = true;
                ready(Ok(at >= change)).await
            };
            cell.read(max, ask, |_| ()).await.unwrap();
            if is_asked {
                asked.push(at);
            }
            tokio::time::sleep(Duration::from_secs(8)).await;
        }
        asked
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_stays_the_same_is_used_for_longer_up_to_a_minute() {
        let max = MaxAge::Settling(SECOND);
        assert_eq!(asked(max, 0).await, [0, 8, 16, 32, 64, 128, 192]);
        // All kinds of a group come within a few seconds, and each is another answer.
        let changed = [0, 8, 16, 32, 64, 72, 80, 96, 128, 192];
        assert_eq!(asked(max, 40).await, changed);
        let all: Vec<u64> = (0..240).step_by(8).collect();
        assert_eq!(asked(MaxAge::Fixed(SECOND), 0).await, all);
    }

    #[tokio::test(start_paused = true)]
    async fn it_tells_for_how_long_an_answer_is_used() {
        let max = MaxAge::Settling(SECOND);
        let cell = AnswerCell::default();
        assert_eq!(cell.remaining(max).await, Duration::ZERO);
        for used in [1, 9, 18, 36, 60, 60] {
            cell.read(max, ready(Ok(())), |()| ()).await.unwrap();
            let expected = Duration::from_secs(used);
            assert_eq!(cell.remaining(max).await, expected);
            tokio::time::advance(expected.max(Duration::from_secs(9))).await;
        }
    }
}
