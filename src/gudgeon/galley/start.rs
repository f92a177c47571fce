//! Starts galley from its flags, and ends it at TERM.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::admin_state::AdminState;
use super::engine::{self, GalleyEngine};
use super::metrics::GalleyMetrics;
use super::monitor::{GalleyMonitor, Side};
use super::options::{From, GalleyOptions};
use super::probes::Probes;
use super::processing::usable;
use super::readiness::Readiness;
use super::sources::{ClusterSource, FileSource};
use super::streams::BoundStreams;
use super::webhook::ValidationWebhook;
use super::{mesh, probes};
use crate::cli::{DebugAccess, GalleyFlags, REVISION, VERSION};
use crate::exit::Failure;
use crate::file_states::FileStates;
use crate::mcp::Peers;
use crate::process;
use crate::serve::{self, Listener, Shutdown, bind};
use crate::shared::{AdminListener, AdminPort, Inspect, Role, RuleChannel, Shared, until};

/// The prepared role: whatever may fail has been done.
pub(crate) struct Galley {
    flags: GalleyFlags,
    streams: Option<(BoundStreams, Arc<GalleyEngine>)>,
    admin: Arc<AdminState>,
    listeners: Vec<(AdminPort, Side)>,
    validation: Option<Listener>,
    probes: oneshot::Sender<Probes>,
    /// Loops without which the role serves what grows old: a panic of one ends the role.
    loops: JoinSet<()>,
}

impl Galley {
    /// Returns the role's page, metrics and readiness.
    pub(crate) fn monitor(&self) -> Arc<dyn Inspect> {
        Arc::new(GalleyMonitor {
            admin: Arc::clone(&self.admin),
            side: Side::Page,
        })
    }

    /// Answers reviews, where the webhook has no listener of its own.
    pub(crate) fn reviews(&self) -> Option<Arc<dyn serve::Service>> {
        let webhook = self.admin.webhook.as_ref()?;
        let reviews: Arc<dyn serve::Service> = webhook.reviews.clone();
        self.validation.is_none().then_some(reviews)
    }
}

impl Role for Galley {
    type Flags = GalleyFlags;

    const SERVED: &'static str = "streams are closed";

    fn drain_duration(flags: &GalleyFlags) -> Duration {
        flags.drain_duration
    }

    async fn prepare(shared: &Shared, flags: &GalleyFlags) -> Result<Self, Failure> {
        // SIGUSR1 ends a process that does not handle it, so this comes first.
        let mut loops = JoinSet::new();
        on_demand(&mut loops)?;
        let options = GalleyOptions::new(flags, shared)?;
        let readiness = Arc::new(Readiness::new());
        let mut registry = Registry::default();
        let metrics = Arc::new(GalleyMetrics::new(&mut registry));
        let files = Arc::<FileStates>::default();
        let peers = Peers::new("galley");
        peers.register(&mut registry);
        let has_streams = options.server && !matches!(options.from, From::Nowhere);
        let streams = match has_streams {
            true => {
                let self_signed = flags.webhook.self_signed;
                Some(BoundStreams::new(&flags.mcp, self_signed, &files)?)
            }
            false => None,
        };
        let webhook = match options.validation {
            true => {
                let files = metrics.files.clone();
                let prepared = ValidationWebhook::prepare(
                    shared,
                    flags,
                    &readiness,
                    &mut registry,
                    files,
                    &mut loops,
                );
                Some(prepared.await?)
            }
            false => None,
        };
        let listeners = listeners(flags).await?;
        let engine = sources(
            shared, flags, &options, &readiness, &metrics, &files, &mut loops,
        )
        .await?;
        // A cluster that the source cannot use has ended the role by now; the reconciler would log the same and try again.
        let webhook = webhook.map(|prepared| prepared.reconcile(&mut loops));
        let (webhook, validation) = webhook.unzip();
        let validation = validation.flatten();
        let probes = stop_probes_at_end(shared);
        info!("gudgeon {VERSION} ({REVISION}) galley");
        Ok(Self {
            flags: flags.clone(),
            streams: streams.zip(engine.clone()),
            admin: Arc::new(AdminState {
                engine,
                peers,
                readiness,
                files,
                registry,
                metrics,
                webhook,
                base: match shared.rules() {
                    None => "/debug",
                    Some(_) => "/debug/galley",
                },
            }),
            listeners,
            validation,
            probes,
            loops,
        })
    }

    async fn serve(self, mut shutdown: Shutdown) -> Result<(), Failure> {
        let Self {
            flags,
            streams,
            admin,
            listeners,
            validation,
            probes,
            mut loops,
        } = self;
        let mut serving = JoinSet::new();
        if let Some((streams, engine)) = streams {
            streams.start(
                &engine,
                &admin.peers,
                &admin.readiness,
                &shutdown,
                &mut serving,
            );
        }
        for (port, side) in listeners {
            let admin = Arc::clone(&admin);
            let monitor = Arc::new(GalleyMonitor { admin, side });
            AdminListener::serve(&monitor, [port], &shutdown, &mut serving);
        }
        if let (Some(webhook), Some(bound)) = (&admin.webhook, validation) {
            let reviews = Arc::clone(&webhook.reviews);
            serving.spawn(serve::run(bound, reviews, shutdown.clone()));
        }
        // The process may be at its end, so the result is ignored.
        let _started = probes.send(probes::start(&flags, &admin.readiness.changes()));
        let end = async {
            shutdown.draining().await;
            admin.readiness.drains();
            shutdown.closing().await;
        };
        until(end, &mut loops, &mut serving).await?;
        while serving.join_next().await.is_some() {}
        Ok(())
    }
}

/// Stops the probes at the end of the process, once they have been sent.
fn stop_probes_at_end(shared: &Shared) -> oneshot::Sender<Probes> {
    let (probes, started) = oneshot::channel::<Probes>();
    shared.at_end(async move {
        if let Ok(probes) = started.await {
            probes.stop().await;
        }
    });
    probes
}

/// SIGUSR1 requests to read everything again, too, as in Galley.
fn on_demand(loops: &mut JoinSet<()>) -> Result<(), Failure> {
    let mut asked = signal(SignalKind::user_defined1())
        .map_err(|cause| Failure::system(format!("cannot handle signals: {cause}")))?;
    loops.spawn(async move {
        while asked.recv().await.is_some() {
            info!("received SIGUSR1: reading all files again");
            process::request_reload();
        }
    });
    Ok(())
}

/// Starts the source; `None` if no configuration is served.
async fn sources(
    shared: &Shared,
    flags: &GalleyFlags,
    options: &GalleyOptions,
    readiness: &Arc<Readiness>,
    metrics: &Arc<GalleyMetrics>,
    files: &Arc<FileStates>,
    loops: &mut JoinSet<()>,
) -> Result<Option<Arc<GalleyEngine>>, Failure> {
    let source = match &options.from {
        From::Nowhere => return Ok(None),
        From::Files(_) => "files",
        From::Cluster(_) => "cluster",
    };
    let (file, mesh) = mesh::MeshFile::open(flags).await?;
    let settings = engine::EngineSettings {
        source,
        domain: flags.domain.clone(),
        discovers: flags.enable_service_discovery,
        turn: engine::TURN,
    };
    let engine = GalleyEngine::new(settings, Arc::clone(readiness), Arc::clone(metrics));
    engine.mesh(mesh).await;
    match &options.from {
        From::Files(path) => {
            let rules = shared.rules().map(RuleChannel::sender);
            let files = FileSource::new(path, Arc::clone(&engine), rules).await?;
            loops.spawn(files.follow(flags.watch_config_files));
        }
        From::Cluster(access) => {
            let settings = sources::kubernetes::config::WatchSettings {
                analysis: flags.enable_analysis,
                ..sources::kubernetes::config::WatchSettings::new(
                    usable,
                    flags.enable_service_discovery,
                )
            };
            let server = ClusterSource::new(shared, access, settings, Arc::clone(&engine)).await?;
            loops.spawn(server.follow());
        }
        From::Nowhere => {}
    }
    if flags.enable_analysis && !matches!(options.from, From::Cluster(_)) {
        warn!("ignoring --enableAnalysis: files have no status");
    }
    let again = process::reload_requests();
    loops.spawn(file.follow(Arc::clone(&engine), again, Arc::clone(files)));
    loops.spawn(Arc::clone(&engine).run());
    Ok(Some(engine))
}

/// The plain listeners, bound.
async fn listeners(flags: &GalleyFlags) -> Result<Vec<(AdminPort, Side)>, Failure> {
    let mut listeners = Vec::new();
    if flags.monitoring_port != 0 {
        // It shows no rules, so any client may read all that it has.
        let access = DebugAccess::Open;
        let port = AdminPort::everywhere("monitoringPort", flags.monitoring_port, access).await?;
        info!("monitoring on http://{}", port.address());
        listeners.push((port, Side::Monitoring));
    }
    if flags.ctrlz_port != 0 {
        let address = match flags.ctrlz_address.as_str() {
            "*" | "" => format!(":{}", flags.ctrlz_port),
            host if host.contains(':') && !host.starts_with('[') => {
                format!("[{host}]:{}", flags.ctrlz_port)
            }
            host => format!("{host}:{}", flags.ctrlz_port),
        };
        let listener = bind("ctrlz_address", &address).await?;
        // A name may resolve to any address, so the bound one decides.
        let bound = listener.local_addr();
        let access = match bound.is_ok_and(|bound| !bound.ip().is_loopback()) {
            true => DebugAccess::Open,
            false => DebugAccess::Local,
        };
        let port = AdminPort::new(listener, access);
        info!("the page is at http://{}/debug", port.address());
        if access == DebugAccess::Open {
            warn!("any client that reaches it may read it: see --ctrlz_address");
        }
        listeners.push((port, Side::Page));
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use tokio::time::timeout;

    use super::*;
    use crate::cli::{Action, parse};
    use crate::exit::Exit;

    fn flags(path: &std::path::Path) -> GalleyFlags {
        let line = "gudgeon galley --enable-server --insecure --server-address tcp://127.0.0.1:0 \
                    --enable-validation=false --monitoringPort 0 --ctrlz_port 0";
        let mut arguments: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        arguments.extend(["--configPath".into(), path.into()]);
        arguments.extend(["--livenessProbePath=", "--readinessProbePath="].map(OsString::from));
        let Action::Galley(flags) = parse(&arguments).unwrap().action else {
            panic!("{arguments:?}")
        };
        *flags
    }

    async fn prepared(path: &std::path::Path) -> Galley {
        Galley::prepare(&Shared::new(), &flags(path)).await.unwrap()
    }

    /// Galley called itself ready, and read no object again.
    #[tokio::test]
    async fn a_panic_of_a_loop_ends_the_role() {
        let root = tempfile::tempdir().unwrap();
        let mut galley = prepared(root.path()).await;
        // The signal, the directory, the mesh configuration and the publisher.
        assert_eq!(galley.loops.len(), 4);
        galley
            .loops
            .spawn(async { panic!("as a source that panics") });
        let (_stage, shutdown) = Shutdown::channel();
        let ended = timeout(Duration::from_secs(20), galley.serve(shutdown)).await;
        let failure = ended.expect("it serves on").unwrap_err();
        assert_eq!(failure.exit, Exit::System);
    }

    #[tokio::test]
    async fn the_role_serves_until_the_ports_close() {
        use crate::serve::ShutdownStage;
        let root = tempfile::tempdir().unwrap();
        let galley = prepared(root.path()).await;
        let (stage, shutdown) = Shutdown::channel();
        let serving = tokio::spawn(galley.serve(shutdown));
        stage.send_replace(ShutdownStage::Draining);
        stage.send_replace(ShutdownStage::Closing);
        let ended = timeout(Duration::from_secs(20), serving).await;
        assert_eq!(ended.expect("it serves on").unwrap(), Ok(()));
    }
}
