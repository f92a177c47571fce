//! The webhook as a service: requests in, reviews answered, decisions noted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use tokio::time::Instant;
use tracing::{debug, info};

use super::decisions::{Decision, Decisions};
use super::judge::{Check, Scope, judge};
use super::metrics::Metrics;
use crate::admission::{Group, Manner, Question, Taken, answered, take};
use crate::galley::metrics::Metrics as All;
use crate::seldom::Seldom;
use crate::serve::{Answer, Answering, Cut, Desks, Line, Service, not_allowed, ready, text};

/// Reviews that are read or answered at a time, and those that may wait for it.
const REVIEWS: usize = 64;
const WAITING: usize = 256;
/// The largest review.
const BODY_BYTES: usize = 8 << 20;
/// Of large bodies, and the answers to them, together.
const ROOM_BYTES: usize = 2 * BODY_BYTES;
/// Lines in a minute about what is no review at all: it says nothing of who sent it, and anybody may send it.
const RUBBISH_LINES: u32 = 10;
/// Of the object alone: more than one of 1.5 MiB has that anybody would write.
const MANNER: Manner = Manner {
    values: 500_000,
    strict: true,
};

/// Everything that a review needs.
#[derive(Debug)]
pub(crate) struct Reviews {
    check: Check,
    desks: Arc<Desks>,
    pub(super) metrics: Metrics,
    all: Arc<All>,
    decisions: Mutex<Decisions>,
    rubbish: Seldom,
}

impl Reviews {
    pub(super) fn new(check: Check, metrics: Metrics, all: Arc<All>) -> Self {
        Self {
            check,
            desks: Desks::with_queue(REVIEWS, ROOM_BYTES, WAITING),
            metrics,
            all,
            decisions: Mutex::default(),
            rubbish: Seldom::new(RUBBISH_LINES),
        }
    }

    /// The last decisions, the newest first.
    pub(crate) fn decisions(&self) -> Vec<Decision> {
        let decisions = self
            .decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        decisions.newest().cloned().collect()
    }

    /// A review from its first byte to its answer.
    async fn review(
        self: Arc<Self>,
        scope: Scope,
        request: Request<Incoming>,
        line: Arc<Line>,
    ) -> Result<Answer, Cut> {
        let post = match take(&self.desks, request, &line, BODY_BYTES).await? {
            Taken::Post(post) => post,
            Taken::Refused(answer) => return Ok(self.failed(answer)),
        };
        let decide = || self.decide(scope, &post.body);
        let answer = catch_unwind(AssertUnwindSafe(decide));
        Ok(match answer {
            Ok(answer) => answered(post, answer),
            Err(_told_by_the_hook) => {
                self.all.panicked();
                self.failed(text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "this request was ended by a mistake of gudgeon",
                ))
            }
        })
    }

    fn failed(&self, answer: Answer) -> Answer {
        self.metrics.http_error(answer.status().as_u16());
        answer
    }

    /// Decides, and notes what was decided.
    fn decide(&self, scope: Scope, body: &[u8]) -> Vec<u8> {
        let start = Instant::now();
        let (mut question, read) = Question::read(body, MANNER);
        let is_rubbish = read.is_err() && says_nothing(&question);
        let verdict = judge(&mut question, read, scope, self.check);
        let answer = question.answer(&verdict.says, &verdict.warnings);
        let took = start.elapsed();
        self.metrics
            .decided(&question.resource, verdict.reason, took);
        let decision = Decision::new(&question, &verdict, took);
        let Decision {
            kind,
            namespace,
            name,
            uid,
            message,
            ..
        } = &decision;
        let micros = decision.micros();
        if decision.allowed {
            debug!("allowed: {kind} {namespace}/{name}, uid {uid}, {micros} us");
        } else if !is_rubbish {
            info!("denied: {kind} {namespace}/{name}, uid {uid}, {micros} us: {message}");
        } else if let Some(more) = self.rubbish.more() {
            info!("denied: what is no review, {micros} us: {message}{more}");
        }
        self.decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(decision);
        answer
    }
}

/// Neither whose review it is nor of what could be read.
fn says_nothing(question: &Question) -> bool {
    question.uid.is_empty() && question.object_kind == Group::default() && question.object.is_null()
}

impl Service for Reviews {
    fn answer(self: Arc<Self>, request: Request<Incoming>, line: &Arc<Line>) -> Answering {
        let path = request.uri().path();
        if let Some(scope) = Scope::of(path) {
            if *request.method() == Method::POST {
                return Box::pin(self.review(scope, request, Arc::clone(line)));
            }
            return ready(self.failed(not_allowed("POST")));
        }
        if matches!(path, "/ready" | "/httpsReady") {
            return ready(match *request.method() {
                // Who comes this far was shown a certificate.
                Method::GET => text(StatusCode::OK, "ok"),
                _ => self.failed(not_allowed("GET")),
            });
        }
        ready(text(StatusCode::NOT_FOUND, "not found"))
    }

    fn panicked(&self) {
        self.all.panicked();
    }
}

#[cfg(test)]
mod tests;
