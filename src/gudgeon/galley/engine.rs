//! Turns the events of sources into published snapshots. Readers see a consistent state.
//!
//! ```text
//!  sources ──► inputs ──► session ──► processing ──► publisher ──► snapshots
//!  mesh file ───────────────┘
//! ```
//!
//! The objects of the sources are kept: a new session replays them from here, and no source reads anything twice.
//!
//! All work on the state is done beside the event loop, in turns of [`TURN`]: between two turns of a long work, such as an Ingress of
//! thousands of hosts, sources emit their events and snapshots are published.

mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::mesh::MeshConfig;
use mcp::collections::{Collections, Group};
use mcp::publish::Publisher;
use mcp::session::{Session, Step};
use sources::catalogue::{ConfigReport, EntryId};
use sources::kubernetes::WithoutRoom;
use tokio::sync::{Notify, watch};
use tracing::info;

use super::metrics::GalleyMetrics;
use super::processing::{self, GeneratedObjects, Processing, TransformInput};
use super::readiness::Readiness;
use super::state_snapshot::{Publish, SessionState, StateSnapshot};
use crate::clock::Clock;
use crate::mcp::Snapshots;
pub(super) use turns::TURN;

/// A part of readiness.
const SNAPSHOT: &str = "snapshot";
/// An optional one: room for all objects.
const ROOM: &str = "room";

/// The next step of a session.
type NextStep = Step<EntryId, TransformInput, Arc<MeshConfig>>;

/// Settings of the command line, and the length of a turn.
#[derive(Clone, Debug)]
pub(super) struct EngineSettings {
    /// `files` or `cluster`.
    pub(super) source: &'static str,
    pub(super) domain: String,
    /// Entries are generated from services.
    pub(super) discovers: bool,
    pub(super) turn: Duration,
}

/// An event of a source.
#[derive(Debug, Default)]
pub(super) struct SourceEvent {
    /// Objects to set; `None` deletes.
    pub(super) changes: Vec<(EntryId, Option<TransformInput>)>,
    /// The changes are all objects; others are deleted.
    pub(super) whole: bool,
    /// The source has sent all its objects, now or before.
    pub(super) complete: bool,
    /// The new report; `None` if it is unchanged.
    pub(super) report: Option<Arc<ConfigReport>>,
}

#[derive(Debug)]
pub(crate) struct GalleyEngine {
    pub(super) settings: EngineSettings,
    pub(super) clock: Clock,
    /// Held for the time of a turn: never locked by the event loop.
    state: Mutex<EngineState>,
    /// The turns of those who change the state, in the order in which they ask.
    turns: Arc<tokio::sync::Mutex<()>>,
    /// The time since which the source is unreachable, and the reason.
    stale: Mutex<Option<(Duration, String)>>,
    out: watch::Sender<Snapshots>,
    /// Wakes the publishing task: the next deadline may be sooner.
    wake: Notify,
    readiness: Arc<Readiness>,
    metrics: Arc<GalleyMetrics>,
}

#[derive(Debug)]
struct EngineState {
    session: Session<EntryId, TransformInput, Arc<MeshConfig>>,
    inputs: BTreeMap<EntryId, TransformInput>,
    complete: bool,
    report: Arc<ConfigReport>,
    processing: Option<Processing>,
    /// Generated objects that the last session has served.
    generated: GeneratedObjects,
    /// The session has not generated all its resources once.
    is_opening: bool,
    /// The publisher of the last processing, until the next one begins.
    publisher: Publisher,
    publishes: VecDeque<Publish>,
    counts: BTreeMap<Group, u64>,
    /// Findings about Ingresses that have been logged.
    logged: BTreeMap<String, String>,
}

impl EngineState {
    fn state_snapshot(&self, stale: Option<(Duration, String)>) -> StateSnapshot {
        let Self {
            session,
            processing,
            ..
        } = self;
        let origins = &self.report.ingresses;
        let generated = processing.as_ref().map(|processing| ConfigReport {
            refused: processing.refused(origins).collect(),
            warned: processing.warned(origins).collect(),
            ..ConfigReport::default()
        });
        StateSnapshot {
            session: SessionState {
                number: session.number(),
                state: session.state(),
                since: session.since(),
                reason: session.reason(),
                buffered: session.buffered(),
            },
            complete: self.complete,
            stale,
            report: Arc::clone(&self.report),
            generated: generated.unwrap_or_default(),
            published: self.publisher.published().cloned().collect(),
            counts: self.counts.clone(),
            publishes: self.publishes.iter().cloned().collect(),
        }
    }
}

impl GalleyEngine {
    pub(super) fn new(
        settings: EngineSettings,
        readiness: Arc<Readiness>,
        metrics: Arc<GalleyMetrics>,
    ) -> Arc<Self> {
        readiness.lacks(SNAPSHOT, "the first snapshot is not published");
        let state = EngineState {
            session: Session::new([settings.source]),
            inputs: BTreeMap::new(),
            complete: false,
            report: Arc::default(),
            processing: None,
            generated: GeneratedObjects::default(),
            is_opening: false,
            publisher: Publisher::new(Arc::new(Collections::all())),
            publishes: VecDeque::new(),
            counts: BTreeMap::new(),
            logged: BTreeMap::new(),
        };
        let this = Arc::new(Self {
            settings,
            clock: Clock::new(),
            state: Mutex::new(state),
            turns: Arc::default(),
            stale: Mutex::default(),
            out: watch::Sender::default(),
            wake: Notify::new(),
            readiness,
            metrics,
        });
        this.change(|engine, state, now| {
            let step = state.session.start(now);
            engine.act(state, now, step);
        });
        this
    }

    /// Returns a receiver of the published snapshots.
    pub(crate) fn snapshots(&self) -> watch::Receiver<Snapshots> {
        self.out.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stale(&self) -> MutexGuard<'_, Option<(Duration, String)>> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the present state, whose reports may be long: not for the event loop.
    pub(super) fn state_snapshot(&self) -> StateSnapshot {
        let stale = self.stale().clone();
        self.state().state_snapshot(stale)
    }

    /// Returns the time since which the source is unreachable; `None`: it is reachable.
    pub(super) fn stale_since(&self) -> Option<Duration> {
        self.stale().as_ref().map(|(since, _)| *since)
    }

    /// Changes the state, and does a turn of work after it.
    fn change<T>(&self, change: impl FnOnce(&Self, &mut EngineState, Duration) -> T) -> T {
        let mut state = self.state();
        let now = self.clock.now();
        let changed = change(self, &mut state, now);
        // Generated resources follow from many objects, so they are made once, after the whole event.
        self.work(&mut state, now);
        drop(state);
        self.wake.notify_one();
        changed
    }

    /// Marks the source as connected.
    pub(super) async fn connected(self: &Arc<Self>) {
        self.in_turn(|engine| {
            engine.change(|engine, state, now| {
                let number = state.session.number();
                let source = engine.settings.source;
                let step = state.session.connected(now, number, source);
                engine.act(state, now, step);
            });
        })
        .await;
    }

    /// Applies an event of the source.
    pub(super) async fn emit(self: &Arc<Self>, news: SourceEvent) {
        self.emit_made(|| news).await;
    }

    /// Applies an event of the source, which is made beside the event loop, too.
    pub(super) async fn emit_made(
        self: &Arc<Self>,
        make: impl FnOnce() -> SourceEvent + Send + 'static,
    ) {
        self.in_turn(move |engine| {
            let news = make();
            engine.metrics.processed(news.changes.len());
            engine.change(|engine, state, now| engine.apply(state, now, news));
        })
        .await;
    }

    fn apply(&self, state: &mut EngineState, now: Duration, news: SourceEvent) {
        let number = state.session.number();
        let mut changes = news.changes;
        if news.whole {
            let ids: BTreeSet<EntryId> = changes.iter().map(|(id, _)| id.clone()).collect();
            let gone = state.inputs.keys().filter(|id| !ids.contains(id));
            changes.extend(gone.map(|id| (id.clone(), None)).collect::<Vec<_>>());
        }
        for (id, thing) in changes {
            match &thing {
                Some(thing) => state.inputs.insert(id.clone(), thing.clone()),
                None => state.inputs.remove(&id),
            };
            let step = state.session.object(number, id, thing);
            self.act(state, now, step);
        }
        if let Some(report) = news.report {
            state.report = report;
        }
        if news.complete {
            state.complete = true;
            let step = state.session.complete(now, number, self.settings.source);
            self.act(state, now, step);
        }
    }

    /// Sets the reason for which the first snapshot is not ready.
    pub(super) fn waits(&self, why: String) {
        if !self.out.borrow().is_complete() {
            self.readiness.lacks(SNAPSHOT, why);
        }
    }

    /// Counts the objects of a cluster validated so far, and the invalid ones among them.
    pub(super) fn count_checked(&self, checked: u64, broken: u64) {
        self.metrics.count_checked(checked, broken);
    }

    /// Sets the reason for which the source cannot be reached; `None` if it can.
    pub(super) fn set_stale(&self, why: Option<String>) {
        let mut stale = self.stale();
        *stale = why.map(|why| {
            // The cause may change; the time of the first failure stays.
            let since = stale.as_ref().map(|(since, _)| *since);
            (since.unwrap_or_else(|| self.clock.now()), why)
        });
    }

    /// Sets what the source leaves out because there is no room. The role is ready without it.
    pub(super) fn leaves_out(&self, left_out: &WithoutRoom) {
        let source = self.settings.source;
        match left_out.is_empty() {
            true => self.readiness.has(ROOM),
            false => {
                let line = format!("no room: {source} leaves out {left_out}");
                self.readiness.does_without(ROOM, line);
            }
        }
    }

    /// The mesh configuration was read.
    pub(super) async fn mesh(self: &Arc<Self>, mesh: Arc<MeshConfig>) {
        self.in_turn(|engine| {
            engine.change(|engine, state, now| {
                let step = state.session.mesh(now, mesh);
                engine.act(state, now, step);
            });
        })
        .await;
    }

    /// Takes the session's step, and those that follow from it.
    fn act(&self, state: &mut EngineState, now: Duration, step: NextStep) {
        let mut next = step;
        loop {
            next = match next {
                Step::Nothing => return,
                Step::Replay(number) => {
                    // Nothing is published until `open`: what is served stays while the session is built.
                    state.publisher.begin();
                    self.replay(state, now, number)
                }
                Step::Begin(mesh, objects) => {
                    let (domain, discovers) = (&self.settings.domain, self.settings.discovers);
                    let mut processing = Processing::new(&mesh, domain, discovers)
                        .after(std::mem::take(&mut state.generated));
                    let resource = Arc::new(processing::mesh(&mesh));
                    let publisher = &mut state.publisher;
                    publisher.set(now, api::config::collections::MESH, resource);
                    for (id, thing) in objects {
                        processing.set(id, Some(thing));
                    }
                    info!("session {} is processing", state.session.number());
                    state.processing = Some(processing);
                    state.is_opening = true;
                    return;
                }
                Step::Apply(id, thing) => {
                    if let Some(processing) = &mut state.processing {
                        processing.set(id, thing);
                    }
                    return;
                }
                Step::End => {
                    if let Some(processing) = state.processing.take() {
                        state.generated = processing.served();
                    }
                    state.session.ended(now)
                }
            };
        }
    }

    /// Replays all objects to a new session. Returns the session's next step.
    fn replay(&self, state: &mut EngineState, now: Duration, number: u64) -> NextStep {
        let source = self.settings.source;
        if !state.complete {
            return Step::Nothing;
        }
        state.session.connected(now, number, source);
        for (id, thing) in &state.inputs {
            // The session buffers the object until all are there.
            let session = &mut state.session;
            session.object(number, id.clone(), Some(thing.clone()));
        }
        state.session.complete(now, number, source)
    }
}

#[cfg(test)]
impl GalleyEngine {
    /// An engine of files for tests, not running yet. Each change is done in one turn.
    pub(super) fn at_rest() -> Arc<Self> {
        Self::with_turns_of(Duration::MAX)
    }

    fn with_turns_of(turn: Duration) -> Arc<Self> {
        let settings = EngineSettings {
            source: "files",
            domain: "cluster.local".to_owned(),
            discovers: false,
            turn,
        };
        let mut registry = prometheus_client::registry::Registry::default();
        let metrics = Arc::new(GalleyMetrics::new(&mut registry));
        Self::new(settings, Arc::new(Readiness::new()), metrics)
    }
}

#[cfg(test)]
mod tests {
    use mcp::snapshot::{Origin, Resource};
    use serde_json::json;
    use sources::catalogue::CoreKind;

    use super::*;

    const SERVICES: &str = "istio/networking/v1alpha3/virtualservices";

    fn engine() -> Arc<GalleyEngine> {
        let engine = GalleyEngine::at_rest();
        tokio::spawn(Arc::clone(&engine).run());
        engine
    }

    fn mesh(port: i32) -> Arc<MeshConfig> {
        Arc::new(MeshConfig {
            proxy_listen_port: port,
            ..MeshConfig::default()
        })
    }

    fn change(name: usize, body: Option<u8>) -> (EntryId, Option<TransformInput>) {
        let name = format!("shop/{name}");
        let thing = body.map(|body| {
            TransformInput::Resource(Arc::new(Resource::new(Origin {
                name: name.clone(),
                body: vec![body].into(),
                ..Origin::default()
            })))
        });
        let id = EntryId {
            collection: SERVICES,
            name: name.into(),
        };
        (id, thing)
    }

    fn news(whole: bool, changes: Vec<(EntryId, Option<TransformInput>)>) -> SourceEvent {
        SourceEvent {
            changes,
            whole,
            complete: whole,
            report: None,
        }
    }

    fn count(engine: &GalleyEngine) -> Option<usize> {
        let snapshot = engine.snapshots().borrow().default.clone()?;
        Some(snapshot.get(SERVICES)?.members().len())
    }

    /// One with which each Gateway of Ingresses is too large.
    fn broken_mesh(port: i32) -> Arc<MeshConfig> {
        Arc::new(MeshConfig {
            proxy_listen_port: port,
            ingress_selector: "x".repeat(2 << 20),
            ..MeshConfig::default()
        })
    }

    /// An Ingress with a path to a service.
    fn ingress(service: &str) -> (EntryId, Option<TransformInput>) {
        ingress_of(service, &["a".to_owned()])
    }

    /// An Ingress with a path to a service for each host.
    fn ingress_of(service: &str, hosts: &[String]) -> (EntryId, Option<TransformInput>) {
        let backend = json!({"service": {"name": service, "port": {"number": 80}}});
        let rule = |host| json!({"host": host, "http": {"paths": [{"backend": backend}]}});
        let rules: Vec<_> = hosts.iter().map(rule).collect();
        let json = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"ingressClassName": "istio", "rules": rules},
        });
        let kind = CoreKind::Ingress;
        let id = EntryId {
            collection: kind.collection(),
            name: "shop/web".into(),
        };
        (
            id,
            Some(TransformInput::Core(kind, json.to_string().into())),
        )
    }

    /// Each finding is logged once, whether its object came before the session or later.
    #[tokio::test(start_paused = true)]
    async fn findings_about_generated_objects_are_logged_once() {
        let engine = engine();
        let at = |line: usize| {
            let origins = [(
                "shop/web".into(),
                sources::catalogue::Origin::file("a.yaml").at(line),
            )];
            Some(Arc::new(ConfigReport {
                ingresses: Arc::new(BTreeMap::from(origins)),
                ..ConfigReport::default()
            }))
        };
        let event = SourceEvent {
            report: at(3),
            ..news(true, vec![ingress("")])
        };
        engine.emit(event).await;
        engine.mesh(mesh(1)).await;
        let logged_lines = |engine: &GalleyEngine| -> Vec<String> {
            let logged = &engine.state().logged;
            logged.values().cloned().collect()
        };
        let line = "a.yaml:3: Ingress shop/web: warning: spec.rules[0].http.paths[0].backend: ";
        let lines = logged_lines(&engine);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with(line), "{lines:?}");
        let origin = engine.state_snapshot().generated.warned[0]
            .origin
            .to_string();
        assert_eq!(origin, "a.yaml:3");
        let event = SourceEvent {
            report: at(7),
            ..news(false, vec![ingress("web")])
        };
        engine.emit(event).await;
        engine.mesh(broken_mesh(2)).await;
        let lines = logged_lines(&engine);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("a.yaml:7: Gateway "), "{lines:?}");
        let line = ": stale: object is too large";
        assert!(lines[0].contains(line), "{lines:?}");
    }

    /// Its owner held up all others: each host is an object to be made, validated and hashed.
    #[tokio::test(start_paused = true)]
    async fn an_ingress_of_many_hosts_holds_up_no_other_object() {
        let engine = GalleyEngine::with_turns_of(Duration::ZERO);
        tokio::spawn(Arc::clone(&engine).run());
        engine.mesh(mesh(1)).await;
        engine.emit(news(true, vec![change(1, Some(1))])).await;
        later(2000).await;
        let hosts: Vec<String> = (0..200).map(|at| format!("h{at}.example")).collect();
        engine
            .emit(news(false, vec![ingress_of("web", &hosts)]))
            .await;
        engine.emit(news(false, vec![change(2, Some(1))])).await;
        let made = engine
            .state()
            .processing
            .as_ref()
            .unwrap()
            .generated_count();
        assert!(made < 10, "the event came after {made} objects");
        later(2000).await;
        assert_eq!(count(&engine), Some(202));
    }

    /// Its owner would keep a session from ever being published.
    #[tokio::test(start_paused = true)]
    async fn an_ingress_that_changes_all_the_time_keeps_no_session_closed() {
        let engine = GalleyEngine::with_turns_of(Duration::ZERO);
        let mut hosts: Vec<String> = (0..20).map(|at| format!("h{at:02}.example")).collect();
        hosts.push("a.example".to_owned());
        engine
            .emit(news(true, vec![ingress_of("web", &hosts)]))
            .await;
        for session in 1..3 {
            engine.mesh(mesh(session)).await;
            assert!(engine.state().is_opening);
            for turn in 0..25 {
                // The last rule, with the host that sorts first, comes and goes.
                let event = ingress_of("web", &hosts[..20 + turn % 2]);
                engine.emit(news(false, vec![event])).await;
            }
            assert!(!engine.state().is_opening, "session {session}");
            later(2000).await;
            engine.turn();
            assert!(count(&engine) >= Some(20), "{:?}", count(&engine));
        }
    }

    /// A removed subset may still have its routes in the other half.
    #[tokio::test(start_paused = true)]
    async fn no_half_of_an_event_is_published() {
        let engine = GalleyEngine::with_turns_of(Duration::ZERO);
        engine.mesh(mesh(1)).await;
        engine.emit(news(true, vec![change(0, Some(1))])).await;
        later(2000).await;
        engine.turn();
        assert_eq!(count(&engine), Some(1));
        let changes = (1..4).map(|at| change(at, Some(1))).collect();
        engine.emit(news(false, changes)).await;
        later(2000).await;
        // The second of three is applied.
        engine.turn();
        assert_eq!(count(&engine), Some(1));
        engine.turn();
        assert_eq!(count(&engine), Some(4));
    }

    /// As one whose loop went on without it: what is served would be of no one knows when.
    #[tokio::test]
    async fn a_panic_of_a_turn_is_one_of_its_task() {
        let engine = GalleyEngine::at_rest();
        let task = tokio::spawn({
            let engine = Arc::clone(&engine);
            async move { engine.emit_made(|| panic!("a mistake")).await }
        });
        assert!(task.await.unwrap_err().is_panic());
        // Others go on until the role ends.
        engine.mesh(mesh(1)).await;
        engine.emit(news(true, vec![])).await;
        let state = engine.state_snapshot().session.state;
        assert_eq!(state, mcp::session::State::Processing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_good_generated_object_stays_in_the_next_session() {
        let gateways = |engine: &GalleyEngine| {
            let snapshot = engine.snapshots().borrow().default.clone().unwrap();
            let gateways = snapshot.get(transform::ingress::GATEWAYS).unwrap();
            gateways.version().to_string()
        };
        let engine = engine();
        engine.mesh(mesh(1)).await;
        engine.emit(news(true, vec![ingress("web")])).await;
        later(2000).await;
        let good = gateways(&engine);
        for port in 2..4 {
            engine.mesh(broken_mesh(port)).await;
            later(2000).await;
            assert_eq!(gateways(&engine), good);
            let refused = engine.state_snapshot().generated.refused;
            assert_eq!(refused.len(), 1);
            assert_eq!(refused[0].serving, api::config::ServedInstead::Old);
        }
        assert_eq!(engine.state_snapshot().session.number, 3);
    }

    async fn later(milliseconds: u64) {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_published_before_all_is_there() {
        let engine = engine();
        engine.mesh(mesh(1)).await;
        engine.connected().await;
        engine.emit(news(false, vec![change(1, Some(1))])).await;
        later(5000).await;
        assert_eq!(count(&engine), None);
        let why = engine.readiness.why_not_ready();
        assert_eq!(why.as_deref(), Some("the first snapshot is not published"));
        // An object that the whole list lacks is deleted.
        engine
            .emit(news(true, vec![change(2, Some(1)), change(3, Some(1))]))
            .await;
        later(499).await;
        assert_eq!(count(&engine), None);
        later(2).await;
        assert_eq!(count(&engine), Some(2));
        assert_eq!(engine.readiness.why_not_ready(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_two_publishes_and_its_end_is_right() {
        let engine = engine();
        engine.mesh(mesh(1)).await;
        engine.emit(news(true, vec![change(0, Some(0))])).await;
        later(2000).await;
        let before = engine.state_snapshot().count(Group::Default);
        for at in 0..1000 {
            engine.emit(news(false, vec![change(at, Some(1))])).await;
            later(1).await;
        }
        later(2000).await;
        let after = engine.state_snapshot().count(Group::Default);
        assert!(after - before <= 2, "{before} {after}");
        assert_eq!(count(&engine), Some(1000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_session_changes_nothing_but_the_mesh() {
        let engine = engine();
        engine.mesh(mesh(1)).await;
        engine
            .emit(news(true, vec![change(1, Some(1)), change(2, Some(1))]))
            .await;
        later(1000).await;
        let mut snapshots = engine.snapshots();
        let watched = tokio::spawn(async move {
            let mut min = usize::MAX;
            while snapshots.changed().await.is_ok() {
                let now = snapshots.borrow_and_update().default.clone();
                let members = now.and_then(|now| now.get(SERVICES).map(|one| one.members().len()));
                min = min.min(members.unwrap_or_default());
                if min == 1 {
                    break;
                }
            }
            min
        });
        for port in 2..10 {
            engine.mesh(mesh(port)).await;
            later(u64::from(port.unsigned_abs()) * 100).await;
        }
        assert_eq!(count(&engine), Some(2));
        assert_eq!(engine.state_snapshot().session.number, 9);
        engine.emit(news(false, vec![change(1, None)])).await;
        later(1000).await;
        assert_eq!(watched.await.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn since_when_a_source_is_lost_is_the_first_time() {
        let engine = engine();
        later(1000).await;
        engine.set_stale(Some("a".to_owned()));
        later(1000).await;
        engine.set_stale(Some("b".to_owned()));
        let stale = engine.state_snapshot().stale.unwrap();
        assert_eq!((stale.0.as_secs(), &*stale.1), (1, "b"));
        engine.set_stale(None);
        assert_eq!(engine.state_snapshot().stale, None);
    }

    #[tokio::test]
    async fn objects_left_out_by_a_source_are_reported_without_blocking_readiness() {
        let engine = engine();
        let of = |count| [("gateways", count)].into_iter().collect();
        engine.leaves_out(&of(3));
        let line = "no room: files leaves out 3 of gateways";
        assert_eq!(engine.readiness.optional_messages(), [line]);
        engine.leaves_out(&of(0));
        assert_eq!(engine.readiness.optional_messages(), [""; 0]);
    }
}
