//! Several services on one listener.

use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;

use super::{Answering, Connection, Service};

/// Returns true if a service answers at a path.
type IsPath = fn(&str) -> bool;

/// Routes each request to the first service that has its path, or to the last resort.
pub(crate) struct Routes {
    routes: Vec<(IsPath, Arc<dyn Service>)>,
    last: Arc<dyn Service>,
}

impl Routes {
    pub(crate) fn new(last: Arc<dyn Service>) -> Self {
        Self {
            routes: Vec::new(),
            last,
        }
    }

    /// Adds a service for some paths.
    pub(crate) fn to(mut self, is_path: IsPath, service: Arc<dyn Service>) -> Self {
        self.routes.push((is_path, service));
        self
    }

    fn of(&self, path: &str) -> &Arc<dyn Service> {
        let mut routes = self.routes.iter();
        let route = routes.find(|(is_path, _)| is_path(path));
        route.map_or(&self.last, |(_, service)| service)
    }
}

impl Service for Routes {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Answering {
        let service = Arc::clone(self.of(request.uri().path()));
        service.answer(request, connection)
    }

    fn establishes(&self, request: &Request<Incoming>) -> bool {
        self.of(request.uri().path()).establishes(request)
    }
}
