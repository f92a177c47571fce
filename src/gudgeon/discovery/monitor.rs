//! The plain listeners: readiness, metrics, and pages for those who look in.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde_json::json;
use sources::memory::Memory;
use tokio::time::timeout;

use super::debug::Document;
use super::hub::Hub;
use super::sources::Sources;
use super::{debug, gauges, readiness};
use crate::cli::{REVISION, VERSION};
use crate::exposition::ExpositionFormat;
use crate::serve::{
    Answer, AnswerPriority, Answering, Connection, ConnectionAborted, Query, Service, WantedAnswer,
    as_json, full, guard, not_allowed, text, to_page,
};
use crate::shared::Inspect;

const METRICS: &str = "/metrics";
/// The timeout of a request's body.
const BODY: Duration = Duration::from_secs(10);

/// One of the plain listeners.
#[derive(Debug)]
pub(crate) struct DiscoveryMonitor {
    pub(crate) hub: Arc<Hub>,
    pub(crate) sources: Sources,
    /// Anybody may read /debug.
    pub(crate) open: bool,
}

/// A request's head: what decides about its answer.
#[derive(Debug)]
struct AdminRequest {
    method: Method,
    path: String,
    /// `None`: another answer than a document, or none.
    document: Option<Document>,
    query: String,
    /// The format of metrics that the client accepts.
    format: ExpositionFormat,
}

impl DiscoveryMonitor {
    async fn respond(self: Arc<Self>, head: AdminRequest, guarded: Result<(), Answer>) -> Answer {
        let path = &*head.path;
        let debug = path == "/debug" || path.starts_with("/debug/");
        let document = head.document;
        let known = matches!(path, "/" | METRICS | "/ready" | "/version") || document.is_some();
        if !known && !debug {
            return text(StatusCode::NOT_FOUND, "not found");
        }
        if (debug || document.is_some())
            && let Err(refused) = guarded
        {
            return refused;
        }
        // The guard comes first, so a client that it refuses learns nothing about the pages.
        if !known {
            return text(StatusCode::NOT_FOUND, "not found");
        }
        let pushes =
            document.is_some_and(Document::is_pushed) && Query::new(&head.query).is_set("push");
        match head.method {
            Method::GET | Method::HEAD if !pushes => {}
            Method::GET | Method::HEAD => return method_not_allowed(),
            Method::POST if pushes => {
                let message = format!("Pushed to {} servers", self.hub.push_all());
                return text(StatusCode::OK, &message);
            }
            _ if document == Some(Document::Memory) => return not_allowed("GET, HEAD, PUT"),
            _ => return not_allowed("GET, HEAD"),
        }
        match path {
            // Health is made where it is asked for, whatever else waits.
            "/" => return to_page(),
            "/ready" => return self.ready(),
            "/version" => return as_json(&json!({"version": VERSION, "revision": REVISION})),
            _ => {}
        }
        let is_of_snapshot = document.is_some_and(Document::is_of_snapshot);
        let (key, priority) = match document {
            Some(document) => (document.key(&head.query), AnswerPriority::People),
            None => (head.format.key().to_owned(), AnswerPriority::Monitoring),
        };
        let wanted = WantedAnswer {
            key,
            state: is_of_snapshot.then(|| self.hub.current.number()),
            priority,
        };
        let shared = Arc::clone(&self.hub.answers);
        let this = Arc::clone(&self);
        let answer = shared.respond(wanted, move || this.document(&head));
        answer.await
    }

    /// Makes a document, or the metrics: both take a while.
    fn document(&self, head: &AdminRequest) -> Answer {
        match head.document {
            Some(document) => document.answer(&self.hub, &self.sources, &head.query),
            None => {
                let body = self.text(head.format);
                full(StatusCode::OK, head.format.content_type(), body.into())
            }
        }
    }

    fn text(&self, format: ExpositionFormat) -> String {
        let mut gauges = gauges::read(&self.hub);
        if let Some(mcp_sources) = self.sources.mcp_sources() {
            gauges.refused.extend(mcp_sources.refused());
        }
        self.hub.metrics.text(&gauges, format)
    }

    /// `PUT` to memory.
    async fn remember(self: Arc<Self>, body: Incoming) -> Result<Answer, ConnectionAborted> {
        let Some(put) = self.sources.put(&self.hub) else {
            return Ok(text(StatusCode::NOT_FOUND, debug::NO_MEMORY));
        };
        let read = Limited::new(body, Memory::MAX_BYTES).collect();
        let Ok(read) = timeout(BODY, read).await else {
            return Err(ConnectionAborted("the body arrived too slowly"));
        };
        let body = match read {
            Ok(body) => body.to_bytes(),
            Err(cause) if cause.is::<LengthLimitError>() => {
                return Ok(text(StatusCode::PAYLOAD_TOO_LARGE, "more than 4 MiB"));
            }
            Err(_) => return Err(ConnectionAborted("the client is gone")),
        };
        Ok(match put.take(&body) {
            Ok(objects) => as_json(&json!({"objects": objects})),
            Err(wrong) => text(StatusCode::BAD_REQUEST, &wrong.join("\n")),
        })
    }

    fn ready(&self) -> Answer {
        match readiness::readiness(&self.hub) {
            Ok(lines) => text(StatusCode::OK, &lines),
            Err(lines) => text(StatusCode::SERVICE_UNAVAILABLE, &lines),
        }
    }
}

/// GET changes nothing: a browser sends it wherever a page elsewhere leads it.
fn method_not_allowed() -> Answer {
    let usage = "?push=1 triggers a push: use POST, as in gudgeon request POST /debug/adsz?push=1";
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, usage);
    let headers = answer.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static("POST"));
    answer
}

impl Inspect for DiscoveryMonitor {
    fn name(&self) -> &'static str {
        "discovery"
    }

    fn readiness(&self) -> Result<String, String> {
        readiness::readiness(&self.hub)
    }

    fn metrics(&self, format: ExpositionFormat) -> String {
        self.text(format)
    }

    fn sections(&self, page: &mut String) {
        debug::sections(page, &self.hub, &self.sources);
    }
}

impl Service for DiscoveryMonitor {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Answering {
        let guarded = guard(&request, connection.peer.ip(), self.open);
        let uri = request.uri();
        let head = AdminRequest {
            method: request.method().clone(),
            path: uri.path().to_owned(),
            document: Document::at(uri.path()),
            query: uri.query().unwrap_or_default().to_owned(),
            format: ExpositionFormat::negotiate(request.headers()),
        };
        // The body is read behind the guard alone.
        let is_memory = head.document == Some(Document::Memory);
        if head.method == Method::PUT && is_memory && guarded.is_ok() {
            return Box::pin(self.remember(request.into_body()));
        }
        Box::pin(async move { Ok(self.respond(head, guarded).await) })
    }
}
