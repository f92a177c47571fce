//! The webhook as a service: requests in, reviews answered, decisions noted.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use sources::reconcile::{ProbeToken, ServiceReference};
use tokio::time::Instant;
use tracing::{debug, info};

use super::check::{Check, ValidatedKinds, add_words, validate};
use super::decisions::{ValidationDecision, ValidationDecisions};
use super::metrics::WebhookMetrics;
use crate::admission::{
    AdmissionRequest, Group, ReadOptions, Received, ReviewAnswer, micros, take,
};
use crate::log_rate_limiter::LogRateLimiter;
use crate::serve::{
    Answer, Answering, Connection, ConnectionAborted, RequestLimit, Service, Worker, not_allowed,
    ready, text,
};

/// Reviews at a time: 64 that are read or answered, and 256 that wait for it, as the contract counts them.
const REVIEWS: usize = 64 + 256;
/// The largest review.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Bytes of all bodies together.
const BODIES_BYTES: usize = 2 * MAX_BODY_BYTES;
/// Log lines in a minute about bodies that are no review: any client may send them, and they do not identify their sender.
const RUBBISH_LINES: u32 = 10;
/// Memory for one object, of the 256 MiB that the shipped manifest allows: it takes about half of the estimate, since it is
/// not copied, and one object is validated at a time.
const OBJECT_BYTES: usize = 128 << 20;
/// Limits of the object alone: more values than a plausible object of 1.5 MiB has.
pub(super) const READ_OPTIONS: ReadOptions = ReadOptions {
    values: 500_000,
    memory: OBJECT_BYTES,
    strict: true,
};

/// The parts that every review needs.
#[derive(Debug)]
pub(crate) struct Reviews {
    check: Check,
    /// The Service that leads here, by which a refusal says whose it is.
    service: ServiceReference,
    request_limit: Arc<RequestLimit>,
    worker: Worker,
    pub(super) metrics: WebhookMetrics,
    decisions: Mutex<ValidationDecisions>,
    rubbish: LogRateLimiter,
}

impl Reviews {
    pub(super) fn new(check: Check, service: ServiceReference, metrics: WebhookMetrics) -> Self {
        Self {
            check,
            service,
            request_limit: RequestLimit::new(BODIES_BYTES, REVIEWS),
            worker: Worker::new(),
            metrics,
            decisions: Mutex::default(),
            rubbish: LogRateLimiter::new(RUBBISH_LINES),
        }
    }

    /// The last decisions, the newest first.
    pub(crate) fn decisions(&self) -> Vec<ValidationDecision> {
        let decisions = self
            .decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        decisions.newest().cloned().collect()
    }

    /// A review from its first byte to its answer.
    async fn review(
        self: Arc<Self>,
        scope: ValidatedKinds,
        request: Request<Incoming>,
        connection: Arc<Connection>,
    ) -> Result<Answer, ConnectionAborted> {
        let received = match take(&self.request_limit, request, &connection, MAX_BODY_BYTES).await?
        {
            Received::Body(received) => received,
            Received::Refused(answer) => return Ok(self.failed(answer)),
        };
        let this = Arc::clone(&self);
        let decided = received.decide(&self.worker, move |_, body| this.decide(scope, body));
        Ok(decided
            .await
            .unwrap_or_else(|unanswered| self.failed(unanswered.answer())))
    }

    fn failed(&self, answer: Answer) -> Answer {
        self.metrics.http_error(answer.status().as_u16());
        answer
    }

    /// Decides a review, and records the decision.
    fn decide(&self, scope: ValidatedKinds, body: Bytes) -> ReviewAnswer {
        let start = Instant::now();
        let (mut admission, read) = AdmissionRequest::read(&body, READ_OPTIONS);
        // The body is decoded; free it.
        drop(body);
        let is_review = read.is_ok();
        let is_rubbish = !is_review && is_empty_request(&admission);
        let mut outcome = validate(&mut admission, read, scope, self.check);
        // By the token the reconciler tells this refusal of its probe from another webhook's.
        if let Some(token) = ProbeToken::of(&admission.object) {
            let ServiceReference { namespace, name } = &self.service;
            add_words(&mut outcome, &token.repeated_by(namespace, name));
        }
        let answer = admission.answer(&outcome.response, &outcome.warnings);
        let took = start.elapsed();
        self.metrics
            .decided(&admission.resource, outcome.reason, took);
        let decision = ValidationDecision::new(&admission, &outcome, took);
        let ValidationDecision {
            kind,
            namespace,
            name,
            uid,
            message,
            ..
        } = &decision;
        let micros = micros(decision.took);
        if decision.allowed {
            debug!("allowed: {kind} {namespace}/{name}, uid {uid}, {micros} us");
        } else if !is_rubbish {
            info!("denied: {kind} {namespace}/{name}, uid {uid}, {micros} us: {message}");
        } else if let Some(more) = self.rubbish.suffix_if_allowed() {
            info!("denied: what is no review, {micros} us: {message}{more}");
        }
        self.decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(decision);
        ReviewAnswer { answer, is_review }
    }
}

/// Returns true if neither the sender of the review nor its object could be read.
fn is_empty_request(admission: &AdmissionRequest) -> bool {
    admission.uid.is_empty()
        && admission.object_kind == Group::default()
        && admission.object.is_null()
}

impl Service for Reviews {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Answering {
        let path = request.uri().path();
        if let Some(scope) = ValidatedKinds::of(path) {
            if *request.method() == Method::POST {
                return Box::pin(self.review(scope, request, Arc::clone(connection)));
            }
            return ready(self.failed(not_allowed("POST")));
        }
        if matches!(path, "/ready" | "/httpsReady") {
            return ready(match *request.method() {
                // A client that gets here has completed a handshake, so a certificate is there.
                Method::GET => text(StatusCode::OK, "ok"),
                _ => self.failed(not_allowed("GET")),
            });
        }
        ready(text(StatusCode::NOT_FOUND, "not found"))
    }

    /// An answered review establishes the client; a request alone does not.
    fn establishes(&self, _request: &Request<Incoming>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
