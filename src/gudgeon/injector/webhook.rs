//! The webhook: requests in, reviews answered, decisions noted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use inject::{Injected, NativeSidecars, Outcome, Review};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, info};

use super::decision::{InjectionDecision, InjectionDecisions, InjectionOutcome};
use super::engine::ActiveConfiguration;
use super::files::Served;
use super::metrics::InjectorMetrics;
use super::namespaces::Namespaces;
use super::path_pairs::pairs;
use super::readiness::InjectorReadiness;
use super::secrets::Secrets;
use crate::admission::{
    AdmissionRequest, AdmissionResponse, ReadOptions, Received, ReviewAnswer, ReviewError, micros,
    take,
};
use crate::serve::{
    Answer, Answering, Connection, ConnectionAborted, RequestLimit, Service, Worker, not_allowed,
    ready, text,
};

/// Reviews at a time: an API server has a hundred streams of a connection.
const REVIEWS: usize = 256;
/// The largest review: twice what the API server takes in.
const MAX_BODY_BYTES: usize = 6 << 20;
/// The memory of all reviews under way, by the contract: of the 64 MiB that the shipped manifest allows.
const REVIEWS_BYTES: usize = 24 << 20;
/// The share of all bodies in `REVIEWS_BYTES`; the rest is for the one review that is decided.
const BODIES_BYTES: usize = 8 << 20;

/// A pod of the size that etcd takes has some thousands of values.
const READ_OPTIONS: ReadOptions = ReadOptions {
    values: 100_000,
    memory: REVIEWS_BYTES - BODIES_BYTES,
    strict: false,
};

/// A bad request, in the words of the metrics.
const BAD_REQUEST: &str = inject::reason::BAD_REQUEST;

/// The parts that every review needs.
#[derive(Debug)]
pub(crate) struct Webhook<E> {
    pub(crate) served: Arc<Served<E>>,
    pub(crate) metrics: Arc<InjectorMetrics>,
    pub(crate) readiness: Arc<InjectorReadiness>,
    pub(crate) decisions: Mutex<InjectionDecisions>,
    pub(crate) native: Mutex<NativeSidecars>,
    pub(super) namespaces: Namespaces,
    request_limit: Arc<RequestLimit>,
    worker: Worker,
}

impl<E: ActiveConfiguration> Webhook<E> {
    pub(crate) fn new(
        served: Arc<Served<E>>,
        metrics: Arc<InjectorMetrics>,
        readiness: Arc<InjectorReadiness>,
        native: NativeSidecars,
    ) -> Self {
        Self {
            served,
            metrics,
            readiness,
            decisions: Mutex::default(),
            native: Mutex::new(native),
            namespaces: Namespaces::default(),
            request_limit: RequestLimit::new(BODIES_BYTES, REVIEWS),
            worker: Worker::new(),
        }
    }

    /// A review from its first byte to its answer.
    async fn review(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<Connection>,
    ) -> Result<Answer, ConnectionAborted> {
        self.metrics.review_received();
        // A client that goes drops this future, and with it the review is counted.
        let mut unfinished = UndecidedReview::new(&self.metrics);
        let received = match take(&self.request_limit, request, &connection, MAX_BODY_BYTES).await?
        {
            Received::Body(received) => received,
            Received::Refused(answer) => return Ok(answer),
        };
        let this = Arc::clone(&self);
        let decided = received.decide(&self.worker, move |path, body| {
            // A panic skips the line that takes this back.
            unfinished.ends_by(Undecided::Panic);
            let start = Instant::now();
            let answer = this.decide(path, body, start);
            unfinished.ends_by(Undecided::None);
            this.metrics.took(start.elapsed());
            answer
        });
        Ok(decided.await.unwrap_or_else(ReviewError::answer))
    }

    /// Decides a review, and records the decision.
    fn decide(&self, path: &str, body: Bytes, start: Instant) -> ReviewAnswer {
        let (admission, read) = AdmissionRequest::read(&body, READ_OPTIONS);
        // The body is decoded; free it.
        drop(body);
        let is_review = read.is_ok();
        let mut warnings = Vec::new();
        let (response, mut decision) = match read {
            Err(error) => refused(400, BAD_REQUEST, error.to_string()),
            Ok(()) => match admission.passes_by() {
                Some(reason) => (
                    AdmissionResponse::Unchanged,
                    note(InjectionOutcome::Skipped, reason),
                ),
                None => self.inject_pod(path, &admission, &mut warnings),
            },
        };
        let answer = admission.answer(&response, &warnings);
        let metadata = admission.object.get("metadata");
        let field = |name: &str| {
            let text = metadata.and_then(|metadata| metadata.get(name));
            text.and_then(Value::as_str).filter(|text| !text.is_empty())
        };
        decision.time = SystemTime::now();
        decision.namespace = field("namespace")
            .unwrap_or(&admission.namespace)
            .to_owned();
        decision.name = match (field("name"), field("generateName")) {
            (Some(name), _) => name.to_owned(),
            (None, Some(begin)) => format!("{begin}*****"),
            (None, None) => admission.name.clone(),
        };
        decision.dry_run = admission.dry_run;
        if !decision.message.is_empty() || !warnings.is_empty() {
            redact_decision(&mut decision, &admission, &warnings);
        }
        decision.took = start.elapsed();
        decision.uid = admission.uid;
        self.metrics.decided(decision.outcome, decision.reason);
        let InjectionDecision {
            outcome,
            reason,
            namespace,
            name,
            uid,
            message,
            ..
        } = &decision;
        let micros = micros(decision.took);
        let outcome = outcome.as_str();
        if message.is_empty() {
            info!("{outcome}: {reason}, {namespace}/{name}, uid {uid}, {micros} us");
        } else {
            info!("{outcome}: {reason}, {namespace}/{name}, uid {uid}, {micros} us: {message}");
        }
        self.decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(decision);
        ReviewAnswer { answer, is_review }
    }

    fn inject_pod(
        &self,
        path: &str,
        admission: &AdmissionRequest,
        warnings: &mut Vec<String>,
    ) -> (AdmissionResponse, InjectionDecision) {
        let own = admission.object.pointer("/metadata/namespace");
        let own = own.and_then(Value::as_str).filter(|own| !own.is_empty());
        let (ids, unknown) = self.namespaces.ids(own.unwrap_or(&admission.namespace));
        let request = inject::Request {
            namespace: admission.namespace.clone(),
            proxy_envs: pairs(path),
            native: *self.native.lock().unwrap_or_else(PoisonError::into_inner),
            origin: inject::Origin::Webhook,
            ids,
        };
        let Review { outcome, trace } = self.served.engine().review(&request, &admission.object);
        let (response, mut decision) = match outcome {
            Outcome::Skipped {
                reason,
                warnings: of,
            } => {
                *warnings = of;
                (
                    AdmissionResponse::Unchanged,
                    note(InjectionOutcome::Skipped, reason),
                )
            }
            Outcome::Refused {
                code,
                reason,
                message,
                warnings: of,
                ..
            } => {
                *warnings = of;
                refused(code, reason, message)
            }
            Outcome::Injected(injected) => {
                let Injected {
                    reason,
                    patch,
                    operations,
                    warnings: of,
                    ..
                } = *injected;
                *warnings = of;
                // Only a proxy that is injected runs as the default user. It is the first, as others may fill the response.
                warnings.splice(..0, unknown);
                warnings.truncate(inject::MAX_WARNINGS);
                let mut decision = note(InjectionOutcome::Injected, reason);
                decision.operations = operations;
                decision.bytes = patch.len();
                (AdmissionResponse::Patch(patch), decision)
            }
        };
        // All decisions have these fields: users look for a pod by its owner, and for an error by the template.
        self.metrics.pruned(trace.pruned);
        let (kind, name) = trace.owner;
        decision.owner = format!("{kind} {name}").trim().to_owned();
        decision.templates = trace.templates;
        decision.version = trace.version;
        decision.native = trace.native;
        (response, decision)
    }
}

fn is_review(path: &str) -> bool {
    path == "/inject" || path.starts_with("/inject/")
}

/// Returns true if the injector answers at this path, on a listener with other services.
pub(super) fn is_path(path: &str) -> bool {
    is_review(path) || matches!(path, "/ready" | "/healthz")
}

impl<E: ActiveConfiguration> Service for Webhook<E> {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Answering {
        let path = request.uri().path();
        if is_review(path) {
            if *request.method() == Method::POST {
                return Box::pin(self.review(request, Arc::clone(connection)));
            }
            return ready(not_allowed("POST"));
        }
        if matches!(path, "/ready" | "/healthz") {
            return ready(health(&self.readiness, request.method(), path == "/ready"));
        }
        ready(text(StatusCode::NOT_FOUND, "not found"))
    }

    /// An answered review establishes the client; a request alone does not.
    fn establishes(&self, _request: &Request<Incoming>) -> bool {
        false
    }
}

/// Counts a review that ends without a decision.
#[derive(Debug)]
struct UndecidedReview {
    metrics: Arc<InjectorMetrics>,
    cause: Undecided,
}

/// The reason for ending a review without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undecided {
    /// An HTTP error, or a client that went.
    Client,
    Panic,
    /// The review has its decision.
    None,
}

impl UndecidedReview {
    fn new(metrics: &Arc<InjectorMetrics>) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            cause: Undecided::Client,
        }
    }

    fn ends_by(&mut self, cause: Undecided) {
        self.cause = cause;
    }
}

impl Drop for UndecidedReview {
    fn drop(&mut self) {
        match self.cause {
            Undecided::Client => self.metrics.decided(InjectionOutcome::Failed, BAD_REQUEST),
            Undecided::Panic => self.metrics.decided(InjectionOutcome::Failed, "panic"),
            Undecided::None => {}
        }
    }
}

fn note(outcome: InjectionOutcome, reason: &'static str) -> InjectionDecision {
    InjectionDecision {
        time: SystemTime::UNIX_EPOCH,
        uid: String::new(),
        namespace: String::new(),
        name: String::new(),
        owner: String::new(),
        outcome,
        reason,
        templates: Vec::new(),
        version: String::new(),
        native: false,
        dry_run: false,
        operations: 0,
        bytes: 0,
        took: std::time::Duration::ZERO,
        warnings: Vec::new(),
        message: String::new(),
    }
}

/// Warnings and message as operators may read them.
fn redact_decision(
    decision: &mut InjectionDecision,
    admission: &AdmissionRequest,
    warnings: &[String],
) {
    let uid = &admission.uid;
    for text in warnings.iter().chain([&decision.message]) {
        if !text.is_empty() {
            debug!("uid {uid}: {text}");
        }
    }
    let secrets = Secrets::of(&admission.object);
    // The error of a template quotes its output, which may hold any value.
    let template = decision.reason == inject::reason::TEMPLATE;
    decision.message = secrets.redact(&decision.message, template);
    let redacted = warnings.iter().map(|text| secrets.redact(text, false));
    decision.warnings = redacted.collect();
}

fn refused(
    code: u16,
    reason: &'static str,
    message: String,
) -> (AdmissionResponse, InjectionDecision) {
    let mut decision = note(InjectionOutcome::Failed, reason);
    decision.message.clone_from(&message);
    let response = AdmissionResponse::Refused {
        code,
        message,
        causes: Vec::new(),
    };
    (response, decision)
}

/// `/ready` and `/healthz` at the port of reviews.
fn health(readiness: &InjectorReadiness, method: &Method, ready: bool) -> Answer {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return not_allowed("GET, HEAD");
    }
    let why_not = if ready {
        readiness.why_not_ready()
    } else {
        None
    };
    match why_not {
        None => text(StatusCode::OK, "ok"),
        Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

#[cfg(test)]
mod tests;
