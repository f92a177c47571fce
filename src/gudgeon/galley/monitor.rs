//! The two plain listeners: the monitoring port for machines, and the address of the page for people.

use std::sync::Arc;

use hyper::StatusCode;

use super::admin_state::AdminState;
use super::webhook::ValidationWebhook;
use super::{configz, page};
use crate::exposition::ExpositionFormat;
use crate::log;
use crate::serve::{Answer, Query, as_json, full, not_allowed, text, to_page};
use crate::shared::{AdminRequest, AdminResource, Endpoint, Inspect};

/// The body at the monitoring port: the page is on another listener, so that only this host sees rules.
const ELSEWHERE: &str = "the page is at --ctrlz_address and --ctrlz_port: http://127.0.0.1:9876/debug, unless they say otherwise";

/// The purpose of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Monitoring,
    Page,
}

#[derive(Debug)]
pub(super) struct GalleyMonitor {
    pub(super) admin: Arc<AdminState>,
    pub(super) side: Side,
}

impl GalleyMonitor {
    fn page_endpoint(&self, request: &AdminRequest) -> Option<Endpoint> {
        let admin = Arc::clone(&self.admin);
        Some(match &*request.path {
            "/" => Endpoint::Resource(AdminResource::Fixed(to_page())),
            "/configz" if request.is_read() => Endpoint::Guarded(to_page()),
            "/configz" => Endpoint::Guarded(not_allowed("GET, HEAD")),
            "/debug" | "/debug/" => Endpoint::document("/debug", move || {
                let page = page::draw(&admin);
                full(StatusCode::OK, "text/html; charset=utf-8", page.into())
            }),
            path @ "/debug/configz" => {
                let collection = Query::new(&request.query).get("collection");
                let key = format!("{path}?{}", collection.as_deref().unwrap_or_default());
                Endpoint::document(key, move || match collection {
                    Some(name) => collection_of(&admin, &name),
                    None => as_json(&configz::document(&admin)),
                })
            }
            _ => return None,
        })
    }
}

/// Finds the endpoint of a path at the monitoring port.
fn monitoring_endpoint(path: &str) -> Option<AdminResource> {
    Some(match path {
        "/" => AdminResource::Fixed(text(StatusCode::OK, ELSEWHERE)),
        "/ready" => AdminResource::Readiness,
        "/healthz" => AdminResource::Liveness,
        "/metrics" => AdminResource::Metrics,
        "/version" => AdminResource::Version,
        _ => return None,
    })
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
    fn endpoint(self: Arc<Self>, request: &AdminRequest) -> Option<Endpoint> {
        match self.side {
            Side::Monitoring => monitoring_endpoint(&request.path).map(Endpoint::Resource),
            Side::Page => self.page_endpoint(request),
        }
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
    use sources::catalogue::{ConfigReport, EntryId, Origin, Refused, Warned};

    use super::*;
    use crate::cli::DebugAccess;
    use crate::exposition::ExpositionFormat;
    use crate::file_states::FileStates;
    use crate::galley::engine::{GalleyEngine, SourceEvent};
    use crate::galley::metrics::GalleyMetrics;
    use crate::galley::readiness::Readiness;
    use crate::mcp::Peers;
    use crate::shared::AdminListener;

    fn admin(engine: Arc<GalleyEngine>, base: &'static str) -> AdminState {
        AdminState {
            engine: Some(engine),
            peers: Peers::new("galley"),
            files: Arc::default(),
            readiness: Arc::new(Readiness::new()),
            registry: Registry::default(),
            metrics: Arc::new(GalleyMetrics::new(&mut Registry::default())),
            webhook: None,
            base,
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
        engine.mesh(Arc::default()).await;
        let event = SourceEvent {
            whole: true,
            complete: true,
            ..SourceEvent::default()
        };
        engine.emit(event).await;
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
            origin: Origin::file(format!("{at}.yaml")).at(1),
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
    async fn warnings_and_objects_of_the_cluster_are_counted() {
        let engine = GalleyEngine::at_rest();
        let mut registry = Registry::default();
        let metrics = GalleyMetrics::new(&mut registry);
        let warnings: Arc<[_]> = vec![Finding::warning("spec.hosts", "odd"); 2].into();
        let warned = |name: &str| Warned {
            id: EntryId {
                collection: "istio/networking/v1alpha3/gateways",
                name: name.into(),
            },
            origin: Origin::default(),
            warnings: Arc::clone(&warnings),
            notes: Arc::default(),
            is_accepted: true,
        };
        let report = ConfigReport {
            warned: vec![warned("shop/a"), warned("shop/b")],
            ..ConfigReport::default()
        };
        let event = SourceEvent {
            report: Some(Arc::new(report)),
            ..SourceEvent::default()
        };
        engine.emit(event).await;
        // The counts are of all objects so far, and may come late.
        for (checked, broken) in [(5, 2), (4, 1)] {
            metrics.count_checked(checked, broken);
        }
        let format = ExpositionFormat::Text;
        let text = metrics.text(&registry, Some(&engine), &FileStates::default(), format);
        for line in [
            "gudgeon_config_warnings{collection=\"istio/networking/v1alpha3/gateways\"} 4",
            "galley_source_kube_event_success_total 3",
            "galley_source_kube_event_error_total 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }

    #[tokio::test]
    async fn a_source_that_is_away_is_ready_and_told_of() {
        let engine = GalleyEngine::at_rest();
        let monitor = monitor(Arc::clone(&engine), Side::Monitoring);
        assert_eq!(monitor.readiness(), Ok("ok".to_owned()));
        engine.set_stale(Some("a secret of the server's".to_owned()));
        let document = configz::document(&monitor.admin);
        let since = document["source"]["stale_since"].as_str().unwrap();
        let expected = format!("stale: files since {since}");
        assert_eq!(monitor.readiness(), Ok(expected));
        monitor.admin.readiness.lacks("mcp", "mcp is closed");
        assert_eq!(monitor.readiness(), Err("mcp is closed".to_owned()));
        monitor.admin.readiness.has("mcp");
        engine.set_stale(None);
        assert_eq!(monitor.readiness(), Ok("ok".to_owned()));
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
        let emit = async |count| {
            let event = SourceEvent {
                report: Some(Arc::new(refused(count))),
                ..SourceEvent::default()
            };
            engine.emit(event).await;
        };
        emit(10_000).await;
        for (side, path, text) in [
            (Side::Page, "/debug/configz", "\"rejected_count\": 10000"),
            (Side::Page, "/debug", "Not served as it is written: 10000"),
            (Side::Monitoring, "/metrics", ""),
        ] {
            let monitor = Arc::new(monitor(Arc::clone(&engine), side));
            let listener = AdminListener::new(&monitor, DebugAccess::Local, &Arc::default());
            let (free, taken) = std::sync::mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || taken.recv());
            let mut drawn = listener.get(path);
            // The page is rendered on another thread.
            let mut nobody = Context::from_waker(Waker::noop());
            assert!(drawn.as_mut().poll(&mut nobody).is_pending(), "{path}");
            drop(free);
            let (answer, ()) = tokio::join!(drawn, emit(10_000));
            let answer = answer.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            assert!(body_of(answer).await.contains(text), "{path}");
        }
    }
}
