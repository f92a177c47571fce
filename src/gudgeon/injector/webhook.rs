//! The webhook: requests in, reviews answered, decisions noted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use inject::{Injected, NativeSidecars, Outcome, Review};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, info};

use super::decision::{Decision, Decisions, Verdict};
use super::engine::Engine;
use super::files::Served;
use super::health::Health;
use super::metrics::Metrics;
use super::pairs::pairs;
use super::secrets::Secrets;
use crate::admission::{Manner, Question, Says, Taken, answered, take};
use crate::serve::{Answer, Answering, Cut, Desks, Line, Service, not_allowed, ready, text};

/// Reviews that are read or answered at a time; the rest wait.
const REVIEWS: usize = 64;
/// The largest review: twice what the API server takes in.
const BODY_BYTES: usize = 6 << 20;
/// Of large bodies, and the answers to them, together.
const ROOM_BYTES: usize = 2 * BODY_BYTES;

/// A pod of the size that etcd takes has some thousands of values.
const MANNER: Manner = Manner {
    values: 100_000,
    strict: false,
};

/// A bad request, in the words of the metrics.
const BAD_REQUEST: &str = inject::reason::BAD_REQUEST;

/// Everything a review needs.
#[derive(Debug)]
pub(crate) struct Webhook<E> {
    pub(crate) served: Arc<Served<E>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) decisions: Mutex<Decisions>,
    pub(crate) native: Mutex<NativeSidecars>,
    desks: Arc<Desks>,
}

impl<E: Engine> Webhook<E> {
    pub(crate) fn new(
        served: Arc<Served<E>>,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        native: NativeSidecars,
    ) -> Self {
        Self {
            served,
            metrics,
            health,
            decisions: Mutex::default(),
            native: Mutex::new(native),
            desks: Desks::new(REVIEWS, ROOM_BYTES),
        }
    }

    /// A review from its first byte to its answer.
    async fn review(
        self: Arc<Self>,
        request: Request<Incoming>,
        line: Arc<Line>,
    ) -> Result<Answer, Cut> {
        self.metrics.asked();
        let mut unfinished = Unfinished(Some(Arc::clone(&self.metrics)));
        let post = match take(&self.desks, request, &line, BODY_BYTES).await? {
            Taken::Post(post) => post,
            Taken::Refused(answer) => return Ok(answer),
        };
        let start = Instant::now();
        unfinished.0 = None;
        let decide = || self.decide(&post.path, &post.body, start);
        let answer = catch_unwind(AssertUnwindSafe(decide));
        self.metrics.took(start.elapsed());
        Ok(match answer {
            Ok(answer) => answered(post, answer),
            Err(_told_by_the_hook) => {
                self.metrics.panicked();
                self.metrics.decided(Verdict::Failed, "panic");
                text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "this request was ended by a mistake of gudgeon",
                )
            }
        })
    }

    /// Decides, and notes what was decided.
    fn decide(&self, path: &str, body: &[u8], start: Instant) -> Vec<u8> {
        let (question, read) = Question::read(body, MANNER);
        let mut warnings = Vec::new();
        let (says, mut decision) = match read {
            Err(flaw) => refused(400, BAD_REQUEST, flaw.to_string()),
            Ok(()) => match question.passes_by() {
                Some(reason) => (Says::Unchanged, note(Verdict::Skipped, reason)),
                None => self.ask(path, &question, &mut warnings),
            },
        };
        let answer = question.answer(&says, &warnings);
        let metadata = question.object.get("metadata");
        let field = |name: &str| {
            let text = metadata.and_then(|metadata| metadata.get(name));
            text.and_then(Value::as_str).filter(|text| !text.is_empty())
        };
        decision.time = SystemTime::now();
        decision.namespace = field("namespace").unwrap_or(&question.namespace).to_owned();
        decision.name = match (field("name"), field("generateName")) {
            (Some(name), _) => name.to_owned(),
            (None, Some(begin)) => format!("{begin}*****"),
            (None, None) => question.name.clone(),
        };
        decision.dry_run = question.dry_run;
        if !decision.message.is_empty() || !warnings.is_empty() {
            keep_to_ourselves(&mut decision, &question, &warnings);
        }
        decision.took = start.elapsed();
        decision.uid = question.uid;
        self.metrics.decided(decision.verdict, decision.reason);
        let Decision {
            verdict,
            reason,
            namespace,
            name,
            uid,
            message,
            ..
        } = &decision;
        let micros = decision.micros();
        let verdict = verdict.word();
        if message.is_empty() {
            info!("{verdict}: {reason}, {namespace}/{name}, uid {uid}, {micros} us");
        } else {
            info!("{verdict}: {reason}, {namespace}/{name}, uid {uid}, {micros} us: {message}");
        }
        self.decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(decision);
        answer
    }

    fn ask(&self, path: &str, question: &Question, warnings: &mut Vec<String>) -> (Says, Decision) {
        let request = inject::Request {
            namespace: question.namespace.clone(),
            path: pairs(path),
            native: *self.native.lock().unwrap_or_else(PoisonError::into_inner),
            origin: inject::Origin::Webhook,
        };
        let Review { outcome, tried } = self.served.engine().review(&request, &question.object);
        let (says, mut decision) = match outcome {
            Outcome::Skipped {
                reason,
                warnings: of,
            } => {
                *warnings = of;
                (Says::Unchanged, note(Verdict::Skipped, reason))
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
                let mut decision = note(Verdict::Injected, reason);
                decision.operations = operations;
                decision.bytes = patch.len();
                (Says::Patch(patch), decision)
            }
        };
        // Of every decision: a pod that failed is looked for by its owner, and its mistake in the templates that it got.
        self.metrics.pruned(tried.pruned);
        let (kind, name) = tried.owner;
        decision.owner = format!("{kind} {name}").trim().to_owned();
        decision.templates = tried.templates;
        decision.version = tried.version;
        decision.native = tried.native;
        (says, decision)
    }
}

impl<E: Engine> Service for Webhook<E> {
    fn answer(self: Arc<Self>, request: Request<Incoming>, line: &Arc<Line>) -> Answering {
        let path = request.uri().path();
        if path == "/inject" || path.starts_with("/inject/") {
            if *request.method() == Method::POST {
                return Box::pin(self.review(request, Arc::clone(line)));
            }
            return ready(not_allowed("POST"));
        }
        if matches!(path, "/ready" | "/healthz") {
            return ready(health(&self.health, request.method(), path == "/ready"));
        }
        ready(text(StatusCode::NOT_FOUND, "not found"))
    }

    fn panicked(&self) {
        self.metrics.panicked();
    }
}

/// Counts a review that ends without a decision: an HTTP error, or a client that went.
#[derive(Debug)]
struct Unfinished(Option<Arc<Metrics>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(metrics) = &self.0 {
            metrics.decided(Verdict::Failed, BAD_REQUEST);
        }
    }
}

fn note(verdict: Verdict, reason: &'static str) -> Decision {
    Decision {
        time: SystemTime::UNIX_EPOCH,
        uid: String::new(),
        namespace: String::new(),
        name: String::new(),
        owner: String::new(),
        verdict,
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
fn keep_to_ourselves(decision: &mut Decision, question: &Question, warnings: &[String]) {
    let uid = &question.uid;
    for text in warnings.iter().chain([&decision.message]) {
        if !text.is_empty() {
            debug!("uid {uid}: {text}");
        }
    }
    let secrets = Secrets::of(&question.object);
    let template = decision.reason == inject::reason::TEMPLATE;
    decision.message = secrets.hide(&decision.message, template);
    let shown = warnings.iter().map(|text| secrets.hide(text, false));
    decision.warnings = shown.collect();
}

fn refused(code: u16, reason: &'static str, message: String) -> (Says, Decision) {
    let mut decision = note(Verdict::Failed, reason);
    decision.message.clone_from(&message);
    let says = Says::Refused {
        code,
        message,
        causes: Vec::new(),
    };
    (says, decision)
}

/// `/ready` and `/healthz`, the same on every listener.
pub(crate) fn health(health: &Health, method: &Method, ready: bool) -> Answer {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return not_allowed("GET, HEAD");
    }
    let why_not = if ready { health.why_not_ready() } else { None };
    match why_not {
        None => text(StatusCode::OK, "ok"),
        Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

#[cfg(test)]
mod tests;
