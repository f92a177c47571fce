//! The two plain listeners: the monitoring port for machines, and the address of the page for people.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, LOCATION};
use hyper::{Method, Request, StatusCode};
use prometheus_client::registry::Registry;
use serde_json::json;

use super::engine::Engine;
use super::metrics::Metrics;
use super::readiness::Readiness;
use super::webhook::Webhook;
use super::{configz, page};
use crate::classic::CONTENT_TYPE;
use crate::cli::{REVISION, VERSION};
use crate::mcp::Peers;
use crate::serve::{
    Answer, Answering, Line, Query, Service, as_json, full, not_allowed, ready, text,
};

/// All that can be looked at.
#[derive(Debug)]
pub(super) struct Looks {
    /// `None`: nothing is served.
    pub(super) engine: Option<Arc<Engine>>,
    pub(super) peers: Arc<Peers>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) registry: Registry,
    pub(super) metrics: Arc<Metrics>,
    /// `None`: nobody is asked about rules.
    pub(super) webhook: Option<Arc<Webhook>>,
}

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Monitoring,
    Page,
}

#[derive(Debug)]
pub(super) struct Monitor {
    pub(super) looks: Arc<Looks>,
    pub(super) side: Side,
}

impl Monitor {
    fn respond(&self, method: &Method, path: &str, query: &str) -> Answering {
        let of = match path {
            "/ready" | "/healthz" | "/metrics" | "/version" => Side::Monitoring,
            "/" | "/debug" | "/debug/" | "/debug/configz" | "/configz" => Side::Page,
            _ => return ready(text(StatusCode::NOT_FOUND, "not found")),
        };
        if of != self.side {
            return ready(text(StatusCode::NOT_FOUND, "not found"));
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return ready(not_allowed("GET, HEAD"));
        }
        let looks = &self.looks;
        ready(match path {
            "/ready" => match looks.readiness.why_not() {
                None => text(StatusCode::OK, "ok"),
                Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, &why),
            },
            // Whoever answers turns.
            "/healthz" => text(StatusCode::OK, "ok"),
            "/metrics" => {
                let engine = looks.engine.as_deref();
                if let Some(webhook) = &looks.webhook {
                    webhook.count();
                }
                let body = looks.metrics.text(&looks.registry, engine);
                full(StatusCode::OK, CONTENT_TYPE, body.into())
            }
            "/version" => as_json(&json!({"version": VERSION, "revision": REVISION})),
            "/debug" | "/debug/" => {
                let page = page::draw(looks);
                full(StatusCode::OK, "text/html; charset=utf-8", page.into())
            }
            "/debug/configz" => match Query::new(query).get("collection") {
                Some(name) => return self.collection(name),
                None => as_json(&configz::document(looks)),
            },
            _ => to_page(),
        })
    }

    fn collection(&self, name: String) -> Answering {
        let engine = self.looks.engine.clone();
        Box::pin(async move {
            // Thousands of bodies take a while, and others are served meanwhile.
            let read = move || configz::resources(engine.as_deref()?, &name);
            let read = tokio::task::spawn_blocking(read).await;
            Ok(match read {
                Ok(Some(text)) => full(StatusCode::OK, "application/json", text.into()),
                Ok(None) => text(StatusCode::NOT_FOUND, "no such collection"),
                Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "cannot read resources"),
            })
        })
    }
}

fn to_page() -> Answer {
    let mut answer = text(StatusCode::FOUND, "see /debug");
    answer
        .headers_mut()
        .insert(LOCATION, HeaderValue::from_static("/debug"));
    answer
}

impl Service for Monitor {
    fn answer(self: Arc<Self>, request: Request<Incoming>, _: &Arc<Line>) -> Answering {
        let uri = request.uri();
        self.respond(
            request.method(),
            uri.path(),
            uri.query().unwrap_or_default(),
        )
    }

    fn panicked(&self) {
        self.looks.metrics.panicked();
    }
}
