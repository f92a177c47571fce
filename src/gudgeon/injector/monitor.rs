//! The plain listeners: metrics, readiness, version, and recent decisions.

use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::decision::{InjectionDecision, InjectionDecisions};
use super::engine::ActiveConfiguration;
use super::page;
use super::status::Status;
use super::webhook::{Webhook, health};
use crate::cli::{REVISION, VERSION};
use crate::exposition::ExpositionFormat;
use crate::serve::{
    Answer, AnswerPriority, Answering, Connection, Service, SharedAnswers, WantedAnswer, as_json,
    full, guard, not_allowed, text, to_page,
};
use crate::shared::Inspect;

const METRICS: &str = "/metrics";

/// A plain listener.
#[derive(Debug)]
pub(crate) struct InjectorMonitor<E> {
    pub(crate) webhook: Arc<Webhook<E>>,
    pub(crate) status: Arc<Status>,
    /// Any client may read /debug.
    pub(crate) open: bool,
    /// Metrics and pages, which take a while to make.
    pub(crate) answers: Arc<SharedAnswers>,
}

/// A request's head: what decides about its answer.
#[derive(Debug)]
struct InjectorRequest {
    method: Method,
    path: String,
    /// The format of metrics.
    format: ExpositionFormat,
}

impl<E: ActiveConfiguration> InjectorMonitor<E> {
    async fn respond(
        self: Arc<Self>,
        head: InjectorRequest,
        guarded: Result<(), Answer>,
    ) -> Answer {
        let path = &*head.path;
        let debug = path == "/debug" || path.starts_with("/debug/");
        let known = debug || matches!(path, "/" | METRICS | "/ready" | "/healthz" | "/version");
        if !known {
            return text(StatusCode::NOT_FOUND, "not found");
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return not_allowed("GET, HEAD");
        }
        if debug && let Err(refused) = guarded {
            return refused;
        }
        let audience = match path {
            // Health is answered directly, without queueing.
            "/ready" | "/healthz" => {
                return health(&self.webhook.readiness, &head.method, path == "/ready");
            }
            "/version" => return as_json(&json!({"version": VERSION, "revision": REVISION})),
            METRICS => AnswerPriority::Monitoring,
            _ => AnswerPriority::People,
        };
        let wanted = WantedAnswer {
            key: match path {
                METRICS => head.format.key().to_owned(),
                _ => head.path.clone(),
            },
            state: None,
            priority: audience,
        };
        let (this, shared) = (Arc::clone(&self), Arc::clone(&self.answers));
        let answer = shared.respond(wanted, move || this.document(&head));
        answer.await
    }

    /// Answers that take a while.
    fn document(&self, head: &InjectorRequest) -> Answer {
        match &*head.path {
            "/" => to_page(),
            METRICS => full(
                StatusCode::OK,
                head.format.content_type(),
                self.text(head.format).into(),
            ),
            "/debug" | "/debug/" => full(
                StatusCode::OK,
                "text/html; charset=utf-8",
                self.draw(page::draw).into(),
            ),
            "/debug/inject" => as_json(&self.decisions()),
            "/debug/config" => as_json(&self.config()),
            _ => text(StatusCode::NOT_FOUND, "not found"),
        }
    }

    fn text(&self, format: ExpositionFormat) -> String {
        let metrics = &self.webhook.metrics;
        metrics.set_reconcile_statuses(&self.status.reconcile_statuses());
        metrics.text(format)
    }

    /// A copy: reviews wait for the lock.
    fn last_decisions(&self) -> InjectionDecisions {
        let decisions = self.webhook.decisions.lock();
        decisions.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn decisions(&self) -> Value {
        self.last_decisions()
            .newest()
            .map(InjectionDecision::json)
            .collect()
    }

    fn config(&self) -> Value {
        let mut config = self.webhook.served.engine().describe();
        if let Value::Object(config) = &mut config {
            config.insert("revision".to_owned(), json!(self.status.revision));
            config.insert("files".to_owned(), self.webhook.served.report().into());
            config.insert("caBundle".to_owned(), self.status.bundles());
            config.insert("tls".to_owned(), self.status.tls());
        }
        config
    }

    fn draw<T>(&self, draw: impl FnOnce(&page::PageContent<'_>) -> T) -> T {
        let now = SystemTime::now();
        let config = self.config();
        let why_not = self.webhook.readiness.why_not_ready();
        let decisions = self.last_decisions();
        draw(&page::PageContent {
            now,
            why_not,
            config: &config,
            decisions: &decisions,
        })
    }
}

impl<E: ActiveConfiguration> Inspect for InjectorMonitor<E> {
    fn name(&self) -> &'static str {
        "injector"
    }

    fn readiness(&self) -> Result<String, String> {
        match self.webhook.readiness.why_not_ready() {
            None => Ok("ok".to_owned()),
            Some(why) => Err(why),
        }
    }

    fn metrics(&self, format: ExpositionFormat) -> String {
        self.text(format)
    }

    fn sections(&self, page: &mut String) {
        self.draw(|content| page::sections(page, content));
    }

    fn style(&self) -> &'static str {
        page::STYLE
    }
}

impl<E: ActiveConfiguration> Service for InjectorMonitor<E> {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Answering {
        let guarded = guard(&request, connection.peer.ip(), self.open);
        let head = InjectorRequest {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            format: ExpositionFormat::negotiate(request.headers()),
        };
        Box::pin(async move { Ok(self.respond(head, guarded).await) })
    }
}
