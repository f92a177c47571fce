//! A role's interface for administration: its endpoints, and the parts of pages that several roles put together.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request};

use crate::exposition::ExpositionFormat;
use crate::serve::{Answer, Answering};

/// The parts of a role that its plain listener shows, and one listener of several roles puts together.
pub(crate) trait Inspect: Send + Sync + 'static {
    /// Returns the role's name on the command line.
    fn name(&self) -> &'static str;

    /// Returns the readiness: `ok`, or lines about the role's parts.
    ///
    /// # Errors
    /// The reasons why the role is not ready.
    fn readiness(&self) -> Result<String, String>;

    /// Renders all metrics, which takes a while; it sets gauges, so one caller at a time may.
    fn metrics(&self, format: ExpositionFormat) -> String;

    /// The sections of the page, from its heading on. They take a while.
    fn sections(&self, page: &mut String);

    /// Style beyond what all pages have.
    fn style(&self) -> &'static str {
        ""
    }

    /// Returns the endpoint of a request; `None`: there is none at this path.
    fn endpoint(self: Arc<Self>, request: &AdminRequest) -> Option<Endpoint>;
}

/// The head of a request: an endpoint depends on nothing else.
#[derive(Clone, Debug)]
pub(crate) struct AdminRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl AdminRequest {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        Self {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
        }
    }

    /// Returns true if the method changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD)
    }

    pub(super) fn is_below_debug(&self) -> bool {
        self.path == "/debug" || self.path.starts_with("/debug/")
    }
}

/// Changes the role's state, and may read the request's body to do so.
type Command = Box<dyn FnOnce(Incoming) -> Answering + Send>;

/// The endpoint of a request.
pub(crate) enum Endpoint {
    /// For GET and HEAD, which change nothing.
    Resource(AdminResource),
    /// For the method that the role has found. Only clients that may read `/debug` may send it.
    Command(Command),
    /// An answer that takes no time, for clients that may read `/debug`: a refusal of the method, say.
    Guarded(Answer),
}

/// A resource that GET reads.
pub(crate) enum AdminResource {
    Readiness,
    /// An answer proves that the event loop runs.
    Liveness,
    Version,
    Metrics,
    /// An answer that takes no time.
    Fixed(Answer),
    Document(RenderedDocument),
}

/// A document that takes a while to render. Only clients that may read `/debug` get it, whatever its path.
pub(crate) struct RenderedDocument {
    /// Documents of one key are the same, if they are rendered at the same time.
    pub(crate) key: String,
    /// The number of the state on which the document depends alone.
    pub(crate) state: Option<u64>,
    pub(crate) render: Box<dyn FnOnce() -> Answer + Send>,
}

impl Endpoint {
    /// Creates the endpoint of a document that depends on more than a numbered state.
    pub(crate) fn document(
        key: impl Into<String>,
        render: impl FnOnce() -> Answer + Send + 'static,
    ) -> Self {
        Self::Resource(AdminResource::Document(RenderedDocument {
            key: key.into(),
            state: None,
            render: Box::new(render),
        }))
    }

    /// Returns true if only clients that may read `/debug` get to it.
    pub(super) const fn is_guarded(&self) -> bool {
        matches!(
            self,
            Self::Command(_) | Self::Guarded(_) | Self::Resource(AdminResource::Document(_))
        )
    }
}
