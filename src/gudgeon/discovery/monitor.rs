//! The plain listeners: readiness, metrics, and pages for those who look in.

use std::sync::Arc;
use std::time::Duration;

use cluster::registry::Memory;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::json;
use tokio::time::timeout;

use super::hub::Hub;
use super::sources::{Put, Sources};
use super::{debug, sight};
use crate::classic::CONTENT_TYPE;
use crate::cli::{REVISION, VERSION};
use crate::serve::{
    Answer, Answering, Cut, Line, Service, as_json, full, not_allowed, ready, text,
};

/// What requests put into memory.
const MEMORY: &str = "/debug/memory";
const NO_MEMORY: &str = "not there: see --registries Mock";
/// For a body to come.
const BODY: Duration = Duration::from_secs(10);

/// One of the plain listeners.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) hub: Arc<Hub>,
    pub(crate) sources: Sources,
    /// Anybody may read /debug.
    pub(crate) open: bool,
}

impl Monitor {
    fn respond(&self, method: &Method, path: &str, query: &str, local: bool) -> Answer {
        let debug = path == "/debug" || path.starts_with("/debug/");
        let known = matches!(
            path,
            "/metrics" | "/ready" | "/version" | "/v1/registration"
        );
        if !known && !debug {
            return text(StatusCode::NOT_FOUND, "not found");
        }
        if debug && !local && !self.open {
            return text(StatusCode::FORBIDDEN, "for this host only: see --debugAddr");
        }
        if debug && !debug::is_path(path) {
            return text(StatusCode::NOT_FOUND, "not found");
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            let allow = if path == MEMORY {
                "GET, HEAD, PUT"
            } else {
                "GET, HEAD"
            };
            return not_allowed(allow);
        }
        match path {
            "/metrics" => {
                let mut seen = sight::seen(&self.hub);
                if let Some(sinks) = self.sources.sinks() {
                    seen.rejected.extend(sinks.refused());
                }
                let body = self.hub.metrics.text(&seen);
                full(StatusCode::OK, CONTENT_TYPE, body.into())
            }
            "/ready" => self.ready(),
            "/version" => as_json(&json!({"version": VERSION, "revision": REVISION})),
            "/v1/registration" => as_json(&debug::registration(&self.hub)),
            MEMORY => match self.put() {
                Some(put) => full(StatusCode::OK, "application/yaml", put.body()),
                None => text(StatusCode::NOT_FOUND, NO_MEMORY),
            },
            _ => debug::answer(&self.hub, &self.sources, path, query),
        }
    }

    /// Where there is a memory.
    fn put(&self) -> Option<Put<'_>> {
        let memory = self.sources.memory()?;
        Some(Put {
            hub: &self.hub,
            memory,
        })
    }

    /// `PUT` to it.
    async fn remember(self: Arc<Self>, body: Incoming) -> Result<Answer, Cut> {
        let Some(put) = self.put() else {
            return Ok(text(StatusCode::NOT_FOUND, NO_MEMORY));
        };
        let read = Limited::new(body, Memory::MAX_BYTES).collect();
        let Ok(read) = timeout(BODY, read).await else {
            return Err(Cut("the body is late"));
        };
        let body = match read {
            Ok(body) => body.to_bytes(),
            Err(cause) if cause.is::<LengthLimitError>() => {
                return Ok(text(StatusCode::PAYLOAD_TOO_LARGE, "more than 4 MiB"));
            }
            Err(_) => return Err(Cut("the client is gone")),
        };
        Ok(match put.take(&body) {
            Ok(objects) => as_json(&json!({"objects": objects})),
            Err(wrong) => text(StatusCode::BAD_REQUEST, &wrong.join("\n")),
        })
    }

    fn ready(&self) -> Answer {
        match sight::standing(&self.hub) {
            Ok(lines) => text(StatusCode::OK, &lines),
            Err(lines) => text(StatusCode::SERVICE_UNAVAILABLE, &lines),
        }
    }
}

impl Service for Monitor {
    fn answer(self: Arc<Self>, request: Request<Incoming>, line: &Arc<Line>) -> Answering {
        let local = line.peer.ip().to_canonical().is_loopback();
        let uri = request.uri();
        if *request.method() == Method::PUT && uri.path() == MEMORY && (local || self.open) {
            return Box::pin(self.remember(request.into_body()));
        }
        let query = uri.query().unwrap_or_default();
        ready(self.respond(request.method(), uri.path(), query, local))
    }

    fn panicked(&self) {
        self.hub.metrics.request_panicked();
    }
}
