//! The plain listeners of a role: the guard of its pages, health, metrics, and documents that take a while to render.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::inspect::{AdminRequest, AdminResource, Endpoint, Inspect};
use crate::cli::{AdminAddress, DebugAccess, REVISION, VERSION};
use crate::exit::Failure;
use crate::exposition::ExpositionFormat;
use crate::serve::{
    self, Answer, AnswerPriority, Answering, Connection, Listener, RequestedAnswer, Service,
    SharedAnswers, Shutdown, as_json, bind, everywhere, full, guard, not_allowed, ready, text,
};

/// Connections of each plain listener at a time.
const MAX_CONNECTIONS: usize = 64;

/// The bound address of a plain listener.
pub(crate) struct AdminPort {
    listener: Listener,
    pub(crate) access: DebugAccess,
}

impl AdminPort {
    /// Binds the address of a flag.
    ///
    /// # Errors
    /// The reason why it cannot be bound.
    pub(crate) async fn bind(at: &AdminAddress) -> Result<Self, Failure> {
        let listener = bind(at.flag, &at.address).await?;
        Ok(Self::new(listener, at.access))
    }

    /// Binds a port of all addresses.
    ///
    /// # Errors
    /// The reason why it cannot be bound.
    pub(crate) async fn everywhere(
        flag: &str,
        port: u16,
        access: DebugAccess,
    ) -> Result<Self, Failure> {
        let listener = everywhere(flag, port, MAX_CONNECTIONS).await?;
        Ok(Self { listener, access })
    }

    pub(crate) fn new(listener: TcpListener, access: DebugAccess) -> Self {
        let listener = Listener {
            listener,
            tls: None,
            max_connections: MAX_CONNECTIONS,
        };
        Self { listener, access }
    }

    /// Returns the bound address, for the log.
    pub(crate) fn address(&self) -> String {
        let address: io::Result<SocketAddr> = self.listener.listener.local_addr();
        address.map_or_else(|_| "?".to_owned(), |address| address.to_string())
    }

    /// Logs the address.
    pub(crate) fn announce(&self) {
        let address = self.address();
        match self.access {
            DebugAccess::Open => {
                warn!("/debug is open to every client: listening on http://{address}");
            }
            DebugAccess::Local => info!("listening on http://{address}"),
        }
    }
}

/// A plain listener.
pub(crate) struct AdminListener<R> {
    role: Arc<R>,
    access: DebugAccess,
    /// The same of all listeners of a role: it sets its gauges when its metrics are rendered, so there is one rendering at a
    /// time.
    answers: Arc<SharedAnswers>,
}

impl<R: Inspect> AdminListener<R> {
    /// Serves a role at its ports, until the shutdown.
    pub(crate) fn serve(
        role: &Arc<R>,
        ports: impl IntoIterator<Item = AdminPort>,
        shutdown: &Shutdown,
        tasks: &mut JoinSet<()>,
    ) {
        let ports = ports.into_iter();
        let (listeners, accesses): (Vec<_>, Vec<_>) =
            ports.map(|port| (port.listener, port.access)).unzip();
        for (listener, admin) in listeners.into_iter().zip(Self::of_ports(role, accesses)) {
            tasks.spawn(serve::run(listener, Arc::new(admin), shutdown.clone()));
        }
    }

    /// Returns the listeners of a role's ports, which share its answers.
    fn of_ports(role: &Arc<R>, accesses: impl IntoIterator<Item = DebugAccess>) -> Vec<Self> {
        let answers = Arc::default();
        let accesses = accesses.into_iter();
        accesses
            .map(|access| Self::new(role, access, &answers))
            .collect()
    }

    pub(crate) fn new(role: &Arc<R>, access: DebugAccess, answers: &Arc<SharedAnswers>) -> Self {
        Self {
            role: Arc::clone(role),
            access,
            answers: Arc::clone(answers),
        }
    }

    /// Finds the endpoint of a request. The guard comes first, so a client that it refuses learns nothing about `/debug`.
    #[expect(clippy::result_large_err, reason = "it is an answer, and sent as one")]
    fn route(
        &self,
        request: &AdminRequest,
        guarded: Result<(), Answer>,
    ) -> Result<Endpoint, Answer> {
        let endpoint = Arc::clone(&self.role).endpoint(request);
        if request.is_below_debug() || endpoint.as_ref().is_some_and(Endpoint::is_guarded) {
            guarded?;
        }
        match endpoint {
            None => Err(text(StatusCode::NOT_FOUND, "not found")),
            Some(Endpoint::Resource(_)) if !request.is_read() => Err(not_allowed("GET, HEAD")),
            Some(endpoint) => Ok(endpoint),
        }
    }

    /// Answers with a resource. Health waits for no rendering.
    fn read(&self, resource: AdminResource, format: ExpositionFormat) -> Answering {
        ready(match resource {
            AdminResource::Readiness => match self.role.readiness() {
                Ok(lines) => text(StatusCode::OK, &lines),
                Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, &why),
            },
            AdminResource::Liveness => text(StatusCode::OK, "ok"),
            AdminResource::Version => as_json(&json!({"version": VERSION, "revision": REVISION})),
            AdminResource::Fixed(answer) => answer,
            AdminResource::Metrics => return self.metrics(format),
            AdminResource::Document(document) => {
                let wanted = RequestedAnswer {
                    key: document.key,
                    state: document.state,
                    priority: AnswerPriority::People,
                };
                return self.render(wanted, document.render);
            }
        })
    }

    fn metrics(&self, format: ExpositionFormat) -> Answering {
        let wanted = RequestedAnswer {
            key: format.key().to_owned(),
            state: None,
            priority: AnswerPriority::Monitoring,
        };
        let role = Arc::clone(&self.role);
        self.render(wanted, move || {
            let body = role.metrics(format);
            full(StatusCode::OK, format.content_type(), body.into())
        })
    }

    fn render(
        &self,
        wanted: RequestedAnswer,
        make: impl FnOnce() -> Answer + Send + 'static,
    ) -> Answering {
        let answer = Arc::clone(&self.answers).respond(wanted, make);
        Box::pin(async move { Ok(answer.await) })
    }
}

impl<R: Inspect> Service for AdminListener<R> {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Answering {
        let guarded = guard(&request, connection.peer.ip(), self.access);
        match self.route(&AdminRequest::of(&request), guarded) {
            Ok(Endpoint::Resource(resource)) => {
                self.read(resource, ExpositionFormat::negotiate(request.headers()))
            }
            Ok(Endpoint::Command(command)) => command(request.into_body()),
            Ok(Endpoint::Guarded(answer)) | Err(answer) => ready(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use hyper::Method;
    use tokio::task::yield_now;

    use super::*;

    impl<R: Inspect> AdminListener<R> {
        /// Answers a GET of a client that may read all pages.
        pub(crate) fn get(&self, path: &str) -> Answering {
            match self.route(&request(Method::GET, path), Ok(())) {
                Ok(Endpoint::Resource(resource)) => self.read(resource, ExpositionFormat::Text),
                Ok(Endpoint::Command(_)) => panic!("GET changes nothing"),
                Ok(Endpoint::Guarded(answer)) | Err(answer) => ready(answer),
            }
        }
    }

    fn request(method: Method, path: &str) -> AdminRequest {
        AdminRequest {
            method,
            path: path.to_owned(),
            query: String::new(),
        }
    }

    /// A role that counts how many of its metrics are rendered at once.
    #[derive(Default)]
    struct Role {
        rendering: AtomicUsize,
        max: AtomicUsize,
    }

    impl Inspect for Role {
        fn name(&self) -> &'static str {
            "role"
        }

        fn readiness(&self) -> Result<String, String> {
            Err("starting".to_owned())
        }

        fn metrics(&self, _: ExpositionFormat) -> String {
            let now = self.rendering.fetch_add(1, Ordering::SeqCst) + 1;
            self.max.fetch_max(now, Ordering::SeqCst);
            // Time for another rendering to overlap, if it can.
            let begun = Instant::now();
            while self.rendering.load(Ordering::SeqCst) < 2
                && begun.elapsed() < Duration::from_millis(50)
            {
                std::thread::yield_now();
            }
            self.rendering.fetch_sub(1, Ordering::SeqCst);
            String::new()
        }

        fn sections(&self, _: &mut String) {}

        fn endpoint(self: Arc<Self>, request: &AdminRequest) -> Option<Endpoint> {
            Some(match &*request.path {
                "/ready" => Endpoint::Resource(AdminResource::Readiness),
                "/metrics" => Endpoint::Resource(AdminResource::Metrics),
                "/debug/page" | "/v1/page" => {
                    Endpoint::document("page", || text(StatusCode::OK, "page"))
                }
                "/debug/fails" => Endpoint::document("fails", || panic!("a mistake")),
                "/debug/memory" if request.method == Method::PUT => {
                    Endpoint::Command(Box::new(|_| ready(text(StatusCode::OK, "put"))))
                }
                "/debug/memory" => Endpoint::Guarded(not_allowed("PUT")),
                _ => return None,
            })
        }
    }

    fn listener() -> AdminListener<Role> {
        AdminListener::new(&Arc::default(), DebugAccess::Local, &Arc::default())
    }

    #[tokio::test]
    async fn the_guard_comes_before_everything_that_tells_of_pages() {
        let listener = listener();
        let forbidden = || text(StatusCode::FORBIDDEN, "for this host only");
        let (get, post, put) = (Method::GET, Method::POST, Method::PUT);
        for (method, path, of_stranger, of_local) in [
            (&get, "/ready", 200, 200),
            (&post, "/ready", 405, 405),
            (&get, "/debug/page", 403, 200),
            (&post, "/debug/page", 403, 405),
            (&get, "/v1/page", 403, 200),
            (&get, "/debug/none", 403, 404),
            (&get, "/none", 404, 404),
            (&put, "/debug/memory", 403, 200),
            (&get, "/debug/memory", 403, 405),
        ] {
            for (guarded, expected) in [(Err(forbidden()), of_stranger), (Ok(()), of_local)] {
                let status = match listener.route(&request(method.clone(), path), guarded) {
                    Ok(Endpoint::Guarded(answer)) | Err(answer) => answer.status(),
                    Ok(_) => StatusCode::OK,
                };
                assert_eq!(status, expected, "{method} {path}");
            }
        }
    }

    #[tokio::test]
    async fn readiness_and_pages_have_their_status() {
        let listener = listener();
        for (path, expected) in [
            ("/ready", StatusCode::SERVICE_UNAVAILABLE),
            ("/debug/page", StatusCode::OK),
            ("/debug/fails", StatusCode::INTERNAL_SERVER_ERROR),
        ] {
            let answer = listener.get(path).await.unwrap();
            assert_eq!(answer.status(), expected, "{path}");
        }
    }

    /// Two scrapes at a time used to count galley's gauges twice.
    #[tokio::test]
    async fn listeners_of_a_role_render_its_metrics_one_at_a_time() {
        let role = Arc::<Role>::default();
        let listeners = AdminListener::of_ports(&role, [DebugAccess::Local, DebugAccess::Open]);
        let mut all = JoinSet::new();
        for _ in 0..8 {
            listeners.iter().for_each(|listener| {
                all.spawn(listener.get("/metrics"));
            });
            yield_now().await;
        }
        for answer in all.join_all().await {
            assert_eq!(answer.unwrap().status(), StatusCode::OK);
        }
        assert_eq!(role.max.load(Ordering::SeqCst), 1);
    }
}
