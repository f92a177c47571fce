//! The two plain listeners: the monitoring port for machines, and the address of the page for people.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::json;

use super::admin_state::AdminState;
use super::webhook::ValidationWebhook;
use super::{configz, page};
use crate::cli::{REVISION, VERSION};
use crate::exposition::ExpositionFormat;
use crate::log;
use crate::serve::{
    Answer, AnswerPriority, Answering, Connection, Query, Service, WantedAnswer, as_json, full,
    guard, not_allowed, ready, text, to_page,
};
use crate::shared::Inspect;

/// The body at the monitoring port: the page is on another listener, so that only this host sees rules.
const ELSEWHERE: &str = "the page is at --ctrlz_address and --ctrlz_port: http://127.0.0.1:9876/debug, unless they say otherwise";

/// The purpose of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Monitoring,
    /// `open`: the address is not local, so any client may read the page.
    Page {
        open: bool,
    },
}

#[derive(Debug)]
pub(super) struct GalleyMonitor {
    pub(super) admin: Arc<AdminState>,
    pub(super) side: Side,
}

impl GalleyMonitor {
    fn respond(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        format: ExpositionFormat,
    ) -> Answering {
        let is_there = match path {
            "/ready" | "/healthz" | "/metrics" | "/version" => self.side == Side::Monitoring,
            "/" => true,
            "/debug" | "/debug/" | "/debug/configz" | "/configz" => self.side != Side::Monitoring,
            _ => false,
        };
        if !is_there {
            return ready(text(StatusCode::NOT_FOUND, "not found"));
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return ready(not_allowed("GET, HEAD"));
        }
        ready(match path {
            "/ready" => match self.readiness() {
                Ok(lines) => text(StatusCode::OK, &lines),
                Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, &why),
            },
            // An answer proves that the event loop runs.
            "/healthz" => text(StatusCode::OK, "ok"),
            "/metrics" => {
                return self.apart(
                    format.key().to_owned(),
                    AnswerPriority::Monitoring,
                    move |admin| {
                        let body = admin.text(format);
                        full(StatusCode::OK, format.content_type(), body.into())
                    },
                );
            }
            "/version" => as_json(&json!({"version": VERSION, "revision": REVISION})),
            "/debug" | "/debug/" => {
                return self.apart("/debug".to_owned(), AnswerPriority::People, |admin| {
                    let page = page::draw(admin);
                    full(StatusCode::OK, "text/html; charset=utf-8", page.into())
                });
            }
            "/debug/configz" => {
                let collection = Query::new(query).get("collection");
                let key = format!("{path}?{}", collection.as_deref().unwrap_or_default());
                return self.apart(key, AnswerPriority::People, move |admin| match collection {
                    Some(name) => collection_of(admin, &name),
                    None => as_json(&configz::document(admin)),
                });
            }
            "/" if self.side == Side::Monitoring => text(StatusCode::OK, ELSEWHERE),
            _ => to_page(),
        })
    }

    /// Renders slow pages on another thread, one at a time, while the event loop goes on.
    fn apart(
        &self,
        key: String,
        audience: AnswerPriority,
        draw: impl FnOnce(&AdminState) -> Answer + Send + 'static,
    ) -> Answering {
        let admin = Arc::clone(&self.admin);
        let shared = Arc::clone(&self.admin.answers);
        Box::pin(async move {
            let wanted = WantedAnswer {
                key,
                state: None,
                priority: audience,
            };
            Ok(shared.respond(wanted, move || draw(&admin)).await)
        })
    }
}

/// Renders the readiness. Served objects stay valid while a source is away, so an outage is reported and readiness stays.
fn readiness_text(admin: &AdminState) -> String {
    let stale = admin.engine.as_deref().and_then(|engine| {
        let since = log::stamp(engine.clock.wall(engine.stale_since()?));
        Some(format!("stale: {} since {since}", engine.settings.source))
    });
    let overdue = admin
        .webhook
        .as_deref()
        .and_then(ValidationWebhook::overdue);
    let lines = stale.into_iter().chain(overdue);
    let lines: Vec<_> = lines.chain(admin.readiness.optional_messages()).collect();
    match lines.is_empty() {
        true => "ok".to_owned(),
        false => lines.join("\n"),
    }
}

fn collection_of(admin: &AdminState, name: &str) -> Answer {
    let engine = admin.engine.as_deref();
    match engine.and_then(|engine| configz::resources(engine, name)) {
        Some(text) => full(StatusCode::OK, "application/json", text.into()),
        None => text(StatusCode::NOT_FOUND, "no such collection"),
    }
}

impl Inspect for GalleyMonitor {
    fn name(&self) -> &'static str {
        "galley"
    }

    fn readiness(&self) -> Result<String, String> {
        match self.admin.readiness.why_not_ready() {
            None => Ok(readiness_text(&self.admin)),
            Some(why) => Err(why),
        }
    }

    fn metrics(&self, format: ExpositionFormat) -> String {
        self.admin.text(format)
    }

    fn sections(&self, page: &mut String) {
        page::sections(page, &self.admin);
    }
}

impl Service for GalleyMonitor {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Answering {
        // The monitoring port shows no rules, so it needs no guard.
        if let Side::Page { open } = self.side
            && let Err(refused) = guard(&request, connection.peer.ip(), open)
        {
            return ready(refused);
        }
        let uri = request.uri();
        self.respond(
            request.method(),
            uri.path(),
            uri.query().unwrap_or_default(),
            ExpositionFormat::negotiate(request.headers()),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use api::config::Finding;
    use api::config::ServedInstead;
    use http_body_util::BodyExt as _;
    use prometheus_client::registry::Registry;
    use sources::Revision;
    use sources::catalogue::{ConfigReport, EntryId, Refused};

    use super::*;
    use crate::galley::engine::{GalleyEngine, SourceEvent};
    use crate::galley::metrics::GalleyMetrics;
    use crate::galley::readiness::Readiness;
    use crate::mcp::Peers;

    fn admin(engine: Arc<GalleyEngine>, base: &'static str) -> AdminState {
        AdminState {
            engine: Some(engine),
            peers: Peers::new("galley"),
            readiness: Arc::new(Readiness::new()),
            registry: Registry::default(),
            metrics: Arc::new(GalleyMetrics::new(&mut Registry::default())),
            webhook: None,
            base,
            answers: Arc::default(),
        }
    }

    fn monitor(engine: Arc<GalleyEngine>, side: Side) -> GalleyMonitor {
        GalleyMonitor {
            admin: Arc::new(admin(engine, "/debug")),
            side,
        }
    }

    /// In `all` `/debug/configz` is discovery's.
    #[tokio::test(start_paused = true)]
    async fn links_lead_to_the_pages_of_the_role() {
        let engine = GalleyEngine::at_rest();
        tokio::spawn(Arc::clone(&engine).run());
        engine.mesh(Arc::default());
        engine.emit(SourceEvent {
            whole: true,
            complete: true,
            ..SourceEvent::default()
        });
        let mut snapshots = engine.snapshots();
        let published = snapshots.wait_for(|snapshots| snapshots.default.is_some());
        drop(published.await.unwrap());
        for base in ["/debug", "/debug/galley"] {
            let page = page::draw(&admin(Arc::clone(&engine), base));
            let links: Vec<_> = page.split("href=\"").skip(1).collect();
            let own = format!("{base}/configz");
            let is_own = |link: &&str| link.starts_with(&own);
            assert_eq!(
                links.iter().filter(|link| is_own(link)).count(),
                links.len()
            );
            assert!(
                page.contains(&format!("href=\"{own}?collection=")),
                "{page}"
            );
        }
    }

    async fn body_of(answer: Answer) -> String {
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    fn refused(count: usize) -> ConfigReport {
        let errors: Arc<[_]> = vec![Finding::error("spec.hosts", "required"); 10].into();
        let one = |at: usize| Refused {
            id: EntryId {
                collection: "istio/networking/v1alpha3/gateways",
                name: format!("shop/{at}").into(),
            },
            origin: sources::catalogue::Origin::file(format!("{at}.yaml")).at(1),
            serving: ServedInstead::Nothing,
            findings: Arc::clone(&errors),
            written: None,
            revision: Revision::default(),
        };
        ConfigReport {
            refused: (0..count).map(one).collect(),
            ..ConfigReport::default()
        }
    }

    #[tokio::test]
    async fn a_source_that_is_away_is_ready_and_told_of() {
        let engine = GalleyEngine::at_rest();
        let monitor = monitor(Arc::clone(&engine), Side::Monitoring);
        let ready = async || {
            let answer = monitor
                .respond(&Method::GET, "/ready", "", ExpositionFormat::Text)
                .await
                .unwrap();
            (answer.status(), body_of(answer).await)
        };
        assert_eq!(ready().await, (StatusCode::OK, "ok\n".to_owned()));
        engine.set_stale(Some("a secret of the server's".to_owned()));
        let document = configz::document(&monitor.admin);
        let since = document["source"]["stale_since"].as_str().unwrap();
        let expected = format!("stale: files since {since}\n");
        assert_eq!(ready().await, (StatusCode::OK, expected));
        monitor.admin.readiness.lacks("mcp", "mcp is closed");
        let closed = (
            StatusCode::SERVICE_UNAVAILABLE,
            "mcp is closed\n".to_owned(),
        );
        assert_eq!(ready().await, closed);
        monitor.admin.readiness.has("mcp");
        engine.set_stale(None);
        assert_eq!(ready().await, (StatusCode::OK, "ok\n".to_owned()));
    }

    #[test]
    fn a_large_page_holds_up_no_request() {
        // The one blocking thread is taken, so no rendering can finish before the test sees that it runs there.
        tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap()
            .block_on(looked_at());
    }

    async fn looked_at() {
        let engine = GalleyEngine::at_rest();
        let emit = |count| {
            engine.emit(SourceEvent {
                report: Some(Arc::new(refused(count))),
                ..SourceEvent::default()
            });
        };
        emit(10_000);
        let page = Side::Page { open: false };
        for (side, path, text) in [
            (page, "/debug/configz", "\"rejected_count\": 10000"),
            (page, "/debug", "Not served as it is written: 10000"),
            (Side::Monitoring, "/metrics", ""),
        ] {
            let monitor = monitor(Arc::clone(&engine), side);
            let (free, taken) = std::sync::mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || taken.recv());
            let mut drawn = monitor.respond(&Method::GET, path, "", ExpositionFormat::Text);
            // The page is rendered on another thread.
            let mut nobody = Context::from_waker(Waker::noop());
            assert!(drawn.as_mut().poll(&mut nobody).is_pending(), "{path}");
            emit(10_000);
            drop(free);
            let answer = drawn.await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            assert!(body_of(answer).await.contains(text), "{path}");
        }
    }
}
