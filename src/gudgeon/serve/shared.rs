//! Answers that take long to render: rendered on another thread, one at a time, and shared by all clients that wait for the
//! same.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};
use tokio::sync::Mutex as Turn;
use tokio::time::{Instant, sleep};

use super::{Answer, text};

/// Requests that wait for an answer. More get 429: half of a listener's slots stay for others, because a waiting request
/// keeps its slot.
const WAITING: usize = 32;
/// The number of cached answers.
const MAX_CACHED: usize = 4;
/// The time for which answers are cached: long enough for all waiting clients, too short for a scrape each minute.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// Answers of one program.
#[derive(Debug, Default)]
pub(crate) struct SharedAnswers {
    pages: RenderQueue,
    metrics: RenderQueue,
    cached: Mutex<Vec<CachedAnswer>>,
}

/// A queue of requests for one turn.
#[derive(Debug, Default)]
struct RenderQueue {
    turn: Arc<Turn<()>>,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct CachedAnswer {
    key: String,
    state: Option<u64>,
    begun: Instant,
    ended: Instant,
    answer: Answer,
}

/// The audience of an answer. Many page views must not starve monitoring: metrics have a turn of their own, beside that of
/// all pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerPriority {
    People,
    Monitoring,
}

/// A requested answer.
#[derive(Debug)]
pub(crate) struct RequestedAnswer {
    /// Answers of one key are the same, if they are made at the same time.
    pub(crate) key: String,
    /// The number of the state on which the answer depends alone: then it is valid as long as that number is current.
    /// `None`: an answer is valid for all requests that came before its rendering began.
    pub(crate) state: Option<u64>,
    pub(crate) priority: AnswerPriority,
}

/// Counts a waiting request until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SharedAnswers {
    fn cached(&self) -> MutexGuard<'_, Vec<CachedAnswer>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, requested: &RequestedAnswer, came: Instant) -> Option<Answer> {
        let cached = self.cached();
        let answer = cached.iter().find(|one| {
            let same_state = requested.state.is_some() && one.state == requested.state;
            one.key == requested.key && (same_state || one.begun >= came)
        });
        answer.map(|one| one.answer.clone())
    }

    /// Returns the answer; 500 where making it has panicked.
    pub(crate) async fn respond(
        self: Arc<Self>,
        requested: RequestedAnswer,
        make: impl FnOnce() -> Answer + Send + 'static,
    ) -> Answer {
        let came = Instant::now();
        if let Some(answer) = self.find(&requested, came) {
            return answer;
        }
        let queue = match requested.priority {
            AnswerPriority::People => &self.pages,
            AnswerPriority::Monitoring => &self.metrics,
        };
        let before = queue.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&queue.waiting);
        // The guard counts this request down again.
        if before >= WAITING {
            return busy();
        }
        let turn = Arc::clone(&queue.turn).lock_owned().await;
        // The turn before may have cached the same answer.
        if let Some(answer) = self.find(&requested, came) {
            return answer;
        }
        let this = Arc::clone(&self);
        let rendered = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let answer = make();
            this.cache(CachedAnswer {
                key: requested.key,
                state: requested.state,
                begun,
                ended: Instant::now(),
                answer: answer.clone(),
            });
            // The client may be gone by now; the next one has waited all the same.
            drop(turn);
            answer
        });
        rendered.await.unwrap_or_else(|_| {
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error; cannot render the page, see the log",
            )
        })
    }

    fn cache(self: &Arc<Self>, new: CachedAnswer) {
        let mut cached = self.cached();
        cached.retain(|old| old.key != new.key);
        if cached.len() >= MAX_CACHED {
            cached.remove(0);
        }
        cached.push(new);
        drop(cached);
        // Weak, so that the end of the program does not wait for it.
        let this = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(CACHE_TTL).await;
            if let Some(this) = this.upgrade() {
                this.cached()
                    .retain(|cached| cached.ended.elapsed() < CACHE_TTL);
            }
        });
    }
}

fn busy() -> Answer {
    let message = "too many requests wait for an answer";
    let mut answer = text(StatusCode::TOO_MANY_REQUESTS, message);
    let headers = answer.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    fn requested(key: &str, state: Option<u64>) -> RequestedAnswer {
        RequestedAnswer {
            key: key.to_owned(),
            state,
            priority: AnswerPriority::People,
        }
    }

    fn counted(count: &Arc<AtomicUsize>) -> impl FnOnce() -> Answer + Send + 'static {
        let count = Arc::clone(count);
        move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            text(StatusCode::OK, &number.to_string())
        }
    }

    #[tokio::test]
    async fn all_who_wait_for_the_same_have_one_answer() {
        let shared = Arc::new(SharedAnswers::default());
        let count = Arc::new(AtomicUsize::new(0));
        let mut all = JoinSet::new();
        for _ in 0..WAITING {
            all.spawn(Arc::clone(&shared).respond(requested("a", None), counted(&count)));
        }
        let all = all.join_all().await;
        assert!(all.iter().all(|one| one.status() == StatusCode::OK));
        // The first had begun before the others came.
        let first = count.load(Ordering::Relaxed);
        assert!(first <= 2, "{first}");
        // Later requests get a new answer, unless it depends on a state that is current.
        for (state, more) in [(None, 1), (Some(7), 2), (Some(7), 2), (Some(8), 3)] {
            let answer = Arc::clone(&shared).respond(requested("a", state), counted(&count));
            assert_eq!(answer.await.status(), StatusCode::OK);
            assert_eq!(count.load(Ordering::Relaxed), first + more);
        }
    }

    #[tokio::test]
    async fn one_is_made_at_a_time_and_few_wait() {
        let shared = Arc::new(SharedAnswers::default());
        let at_once = Arc::new(AtomicUsize::new(0));
        let mut all = JoinSet::new();
        for number in 0..2 * WAITING {
            let at_once = Arc::clone(&at_once);
            let key = requested(&number.to_string(), None);
            all.spawn(Arc::clone(&shared).respond(key, move || {
                let before = at_once.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                at_once.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(before, 0);
                text(StatusCode::OK, "cached")
            }));
        }
        let all = all.join_all().await;
        let of = |status: StatusCode| all.iter().filter(|one| one.status() == status).count();
        assert_eq!(of(StatusCode::OK), WAITING);
        assert_eq!(of(StatusCode::TOO_MANY_REQUESTS), WAITING);
        assert_eq!(shared.pages.waiting.load(Ordering::Relaxed), 0);
        assert!(shared.cached().len() <= MAX_CACHED);
    }

    #[tokio::test]
    async fn a_client_that_leaves_keeps_its_turn_until_its_answer_is_made() {
        let shared = Arc::new(SharedAnswers::default());
        let (free, taken) = std::sync::mpsc::channel::<()>();
        let asked = Arc::clone(&shared).respond(requested("a", Some(1)), move || {
            taken.recv().unwrap();
            text(StatusCode::OK, "cached")
        });
        let asked = tokio::spawn(asked);
        while shared.pages.turn.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        assert!(
            shared.pages.turn.try_lock().is_err(),
            "it is still being rendered"
        );
        free.send(()).unwrap();
        let next = Arc::clone(&shared).respond(requested("a", Some(1)), || panic!("it is there"));
        assert_eq!(next.await.status(), StatusCode::OK);
    }

    /// 32 requests for pages used to take all slots, and Prometheus got 429.
    #[tokio::test]
    async fn metrics_do_not_wait_for_pages() {
        let shared = Arc::new(SharedAnswers::default());
        let (free, taken) = std::sync::mpsc::channel::<()>();
        let taken = Arc::new(Mutex::new(taken));
        let mut pages = JoinSet::new();
        for number in 0..2 * WAITING {
            let taken = Arc::clone(&taken);
            let key = requested(&number.to_string(), None);
            pages.spawn(Arc::clone(&shared).respond(key, move || {
                taken.lock().unwrap().recv().unwrap();
                text(StatusCode::OK, "page")
            }));
        }
        let full = Arc::clone(&shared);
        while full.pages.waiting.load(Ordering::Relaxed) < WAITING {
            tokio::task::yield_now().await;
        }
        let metrics = RequestedAnswer {
            priority: AnswerPriority::Monitoring,
            ..requested("/metrics", None)
        };
        let metrics = shared.respond(metrics, || text(StatusCode::OK, "metrics"));
        assert_eq!(metrics.await.status(), StatusCode::OK);
        (0..2 * WAITING).for_each(|_| _ = free.send(()));
        assert_eq!(pages.join_all().await.len(), 2 * WAITING);
    }

    #[tokio::test]
    async fn a_panic_is_a_500_and_the_next_request_works() {
        let shared = Arc::new(SharedAnswers::default());
        let fails = Arc::clone(&shared).respond(requested("a", Some(1)), || panic!("a mistake"));
        assert_eq!(fails.await.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let works = shared.respond(requested("a", Some(1)), || text(StatusCode::OK, "cached"));
        assert_eq!(works.await.status(), StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_long() {
        let shared = Arc::new(SharedAnswers::default());
        for key in ["a", "b"] {
            let cached =
                Arc::clone(&shared).respond(requested(key, Some(1)), || text(StatusCode::OK, "x"));
            assert_eq!(cached.await.status(), StatusCode::OK);
            sleep(CACHE_TTL / 2).await;
        }
        assert_eq!(shared.cached().len(), 2);
        sleep(2 * CACHE_TTL).await;
        assert!(shared.cached().is_empty());
    }
}
