//! The plain listeners: readiness, metrics, and pages for those who look in.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, StatusCode};
use serde_json::json;
use sources::memory::Memory;
use tokio::time::timeout;

use super::debug::Document;
use super::hub::{Hub, LARGE};
use super::sources::Sources;
use super::{debug, gauges, readiness};
use crate::exposition::ExpositionFormat;
use crate::serve::{Answer, ConnectionAborted, Query, as_json, not_allowed, ready, text, to_page};
use crate::shared::{AdminRequest, AdminResource, Endpoint, Inspect, RenderedDocument};

/// The timeout of a request's body.
const BODY: Duration = Duration::from_secs(10);

/// The pages of the role.
#[derive(Debug)]
pub(crate) struct DiscoveryMonitor {
    pub(crate) hub: Arc<Hub>,
    pub(crate) sources: Sources,
}

impl DiscoveryMonitor {
    fn document(self: Arc<Self>, document: Document, request: &AdminRequest) -> Endpoint {
        let pushes = document.is_pushed() && Query::new(&request.query).is_set("push");
        match (document, &request.method) {
            // GET changes nothing: a browser sends it wherever a page elsewhere leads it.
            _ if pushes && request.is_read() => Endpoint::Guarded(push_needs_post()),
            (_, &Method::POST) if pushes => Endpoint::Command(Box::new(move |_| {
                let message = format!("Pushed to {} servers", self.hub.push_all());
                ready(text(StatusCode::OK, &message))
            })),
            (Document::Memory, &Method::PUT) => {
                Endpoint::Command(Box::new(|body| Box::pin(self.remember(body))))
            }
            (Document::Memory, _) if !request.is_read() => {
                Endpoint::Guarded(not_allowed("GET, HEAD, PUT"))
            }
            _ => self.rendered(document, request.query.clone()),
        }
    }

    fn rendered(self: Arc<Self>, document: Document, query: String) -> Endpoint {
        let state = document.is_of_snapshot().then(|| self.hub.current.number());
        Endpoint::Resource(AdminResource::Document(RenderedDocument {
            key: document.key(&query),
            state,
            render: Box::new(move || document.answer(&self.hub, &self.sources, &query)),
        }))
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
        // Four megabytes of rules take a second, in which the loop has streams to serve.
        let result = self.hub.blocking.run(LARGE, move || put.take(&body)).await;
        Ok(match result {
            Some(Ok(objects)) => as_json(&json!({"objects": objects})),
            Some(Err(wrong)) => text(StatusCode::BAD_REQUEST, &wrong.join("\n")),
            None => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error; the request failed, see the log",
            ),
        })
    }
}

fn push_needs_post() -> Answer {
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
        let mut gauges = gauges::read(&self.hub);
        if let Some(mcp_sources) = self.sources.mcp_sources() {
            gauges.refused.extend(mcp_sources.refused());
        }
        self.hub.metrics.text(&gauges, format)
    }

    fn sections(&self, page: &mut String) {
        debug::sections(page, &self.hub, &self.sources);
    }
    fn endpoint(self: Arc<Self>, request: &AdminRequest) -> Option<Endpoint> {
        if let Some(document) = Document::at(&request.path) {
            return Some(self.document(document, request));
        }
        Some(Endpoint::Resource(match &*request.path {
            "/" => AdminResource::Fixed(to_page()),
            "/ready" => AdminResource::Readiness,
            "/metrics" => AdminResource::Metrics,
            "/version" => AdminResource::Version,
            _ => return None,
        }))
    }
}
