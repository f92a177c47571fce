//! The plain listeners: metrics, readiness, version, and what was decided lately.

use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::engine::Engine;
use super::metrics::CONTENT_TYPE;
use super::page;
use super::status::Status;
use super::webhook::{Webhook, health};
use crate::cli::{REVISION, VERSION};
use crate::serve::{
    Answer, Answering, Line, Service, as_json, full, guard, not_allowed, ready, text, to_page,
};

/// One of the plain listeners.
#[derive(Debug)]
pub(crate) struct Monitor<E> {
    pub(crate) webhook: Arc<Webhook<E>>,
    pub(crate) status: Arc<Status>,
    /// Anybody may read /debug.
    pub(crate) open: bool,
}

impl<E: Engine> Monitor<E> {
    fn respond(&self, method: &Method, path: &str, guarded: Result<(), Answer>) -> Answer {
        let debug = path == "/debug" || path.starts_with("/debug/");
        let known = debug || matches!(path, "/" | "/metrics" | "/ready" | "/healthz" | "/version");
        if !known {
            return text(StatusCode::NOT_FOUND, "not found");
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return not_allowed("GET, HEAD");
        }
        if debug && let Err(refused) = guarded {
            return refused;
        }
        match path {
            "/" => to_page(),
            "/metrics" => full(StatusCode::OK, CONTENT_TYPE, self.metrics().into()),
            "/ready" | "/healthz" => health(&self.webhook.health, method, path == "/ready"),
            "/version" => as_json(&json!({"version": VERSION, "revision": REVISION})),
            "/debug" | "/debug/" => full(
                StatusCode::OK,
                "text/html; charset=utf-8",
                self.page().into(),
            ),
            "/debug/inject" => as_json(&self.decisions()),
            "/debug/config" => as_json(&self.config()),
            _ => text(StatusCode::NOT_FOUND, "not found"),
        }
    }

    fn metrics(&self) -> String {
        let metrics = &self.webhook.metrics;
        metrics.standings(&self.status.standings());
        metrics.text()
    }

    fn decisions(&self) -> Value {
        let decisions = self.webhook.decisions.lock();
        let decisions = decisions.unwrap_or_else(PoisonError::into_inner);
        decisions
            .newest()
            .map(super::decision::Decision::json)
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

    fn page(&self) -> String {
        let now = SystemTime::now();
        let config = self.config();
        let why_not = self.webhook.health.why_not_ready();
        let decisions = self.webhook.decisions.lock();
        let decisions = decisions.unwrap_or_else(PoisonError::into_inner);
        page::draw(&page::Shown {
            now,
            why_not,
            config: &config,
            decisions: &decisions,
        })
    }
}

impl<E: Engine> Service for Monitor<E> {
    fn answer(self: Arc<Self>, request: Request<Incoming>, line: &Arc<Line>) -> Answering {
        let guarded = guard(&request, line.peer.ip(), self.open);
        ready(self.respond(request.method(), request.uri().path(), guarded))
    }

    fn panicked(&self) {
        self.webhook.metrics.panicked();
    }
}
