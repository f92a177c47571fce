//! From flags to a program that serves, and from TERM to its end.

use std::net::SocketAddr;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::engine::{self, Engine};
use super::metrics::Metrics;
use super::monitor::{Looks, Monitor, Side};
use super::options::{From, Options};
use super::processing::usable;
use super::readiness::Readiness;
use super::sources::{Files, Server};
use super::streams::Streams;
use super::webhook::Webhook;
use super::{mesh, probes};
use crate::cli::{GalleyFlags, REVISION, VERSION};
use crate::exit::{Exit, Failure};
use crate::mcp::Peers;
use crate::process::{self, Ends, rest_after_start, tell_of_panics};
use crate::serve::{self, Listener, Stage, bind, everywhere};

/// Connections of each plain listener at a time.
const PLACES: usize = 64;

/// Serves until TERM.
///
/// # Errors
/// Why it cannot start.
pub(crate) fn run(flags: &GalleyFlags) -> Result<Exit, Failure> {
    tell_of_panics();
    let runtime = runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|cause| Failure::system(format!("cannot start the runtime: {cause}")))?;
    let result = runtime.block_on(serve(flags));
    // A name that is being resolved must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn serve(flags: &GalleyFlags) -> Result<Exit, Failure> {
    // First of all, so that a TERM while it starts is not lost.
    let mut ends = Ends::new()?;
    let again = on_demand()?;
    let options = Options::new(flags)?;
    let readiness = Arc::new(Readiness::new());
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::new(&mut registry));
    let peers = Peers::new("galley");
    peers.register(&mut registry);
    let streams = match options.from {
        From::Nowhere => None,
        From::Files(_) | From::Cluster(_) => {
            Some(Streams::new(&flags.mcp, flags.webhook.self_signed)?)
        }
    };
    let starts = async {
        let webhook = match options.validation {
            true => Some(Webhook::start(flags, &readiness, &mut registry, &metrics).await?),
            false => None,
        };
        let doors = doors(flags).await?;
        let engine = sources(flags, &options, &readiness, &metrics, &again).await?;
        Ok::<_, Failure>((webhook.unzip(), doors, engine))
    };
    let ((webhook, asked), doors, engine) = tokio::select! {
        started = starts => started?,
        () = ends.next() => return Ok(Exit::Done),
    };
    info!("gudgeon {VERSION} ({REVISION}) galley");

    let (stage, watched) = watch::channel(Stage::Serving);
    let mut serving = JoinSet::new();
    if let (Some(engine), Some(streams)) = (&engine, streams) {
        streams.start(engine, &peers, &readiness, &watched, &mut serving);
    }
    let looks = Arc::new(Looks {
        engine,
        peers,
        readiness: Arc::clone(&readiness),
        registry,
        metrics,
        webhook,
        answers: Arc::default(),
    });
    for (door, side) in doors {
        let looks = Arc::clone(&looks);
        let monitor = Arc::new(Monitor { looks, side });
        serving.spawn(serve::run(door, monitor, watched.clone()));
    }
    if let (Some(webhook), Some(door)) = (&looks.webhook, asked) {
        let reviews = Arc::clone(&webhook.reviews);
        serving.spawn(serve::run(door, reviews, watched.clone()));
    }
    let probes = probes::start(flags, &readiness.changes());
    tokio::spawn(rest_after_start());

    ends.next().await;
    readiness.drains();
    let leave = || {
        stage.send_replace(Stage::Leaving);
    };
    let all = "streams are closed";
    process::drain(&mut ends, flags.drain_duration, serving, leave, all).await;
    probes.stop().await;
    Ok(Exit::Done)
}

/// SIGUSR1 asks for everything to be read again, too, as it does of Galley.
fn on_demand() -> Result<watch::Receiver<u64>, Failure> {
    let mut asked = signal(SignalKind::user_defined1())
        .map_err(|cause| Failure::system(format!("cannot handle signals: {cause}")))?;
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            info!("asked by USR1 to read all files again");
            process::read_again();
        }
    });
    Ok(process::again())
}

/// Starts what is served; `None`: nothing is.
async fn sources(
    flags: &GalleyFlags,
    options: &Options,
    readiness: &Arc<Readiness>,
    metrics: &Arc<Metrics>,
    again: &watch::Receiver<u64>,
) -> Result<Option<Arc<Engine>>, Failure> {
    let source = match &options.from {
        From::Nowhere => return Ok(None),
        From::Files(_) => "files",
        From::Cluster(_) => "cluster",
    };
    let (file, mesh) = mesh::File::open(flags).await?;
    let settings = engine::Settings {
        source,
        domain: flags.domain.clone(),
        discovers: flags.enable_service_discovery,
    };
    let engine = Engine::new(settings, Arc::clone(readiness), Arc::clone(metrics));
    engine.mesh(mesh);
    match &options.from {
        From::Files(path) => {
            let files = Files::new(path, Arc::clone(&engine)).await?;
            tokio::spawn(files.follow(flags.watch_config_files, again.clone()));
        }
        From::Cluster(access) => {
            let settings = cluster::config::Settings {
                analysis: flags.enable_analysis,
                ..cluster::config::Settings::new(usable, flags.enable_service_discovery)
            };
            let server = Server::new(access, settings, Arc::clone(&engine)).await?;
            tokio::spawn(server.follow());
        }
        From::Nowhere => {}
    }
    if flags.enable_analysis && !matches!(options.from, From::Cluster(_)) {
        warn!("ignoring --enableAnalysis: files have no status");
    }
    tokio::spawn(file.follow(Arc::clone(&engine), again.clone()));
    tokio::spawn(Arc::clone(&engine).run());
    Ok(Some(engine))
}

/// The plain listeners, bound.
async fn doors(flags: &GalleyFlags) -> Result<Vec<(Listener, Side)>, Failure> {
    let mut doors = Vec::new();
    let at = |listener: &TcpListener| {
        let address = listener.local_addr();
        address.map_or_else(
            |_| "?".to_owned(),
            |address: SocketAddr| address.to_string(),
        )
    };
    if flags.monitoring_port != 0 {
        let door = everywhere("monitoringPort", flags.monitoring_port, PLACES).await?;
        info!("monitoring on http://{}", at(&door.listener));
        doors.push((door, Side::Monitoring));
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
        info!("the page is at http://{}/debug", at(&listener));
        let bound = listener.local_addr();
        let open = bound.is_ok_and(|bound| !bound.ip().is_loopback());
        if open {
            warn!("anybody who reaches it may read it: see --ctrlz_address");
        }
        let door = Listener {
            listener,
            tls: None,
            places: PLACES,
        };
        doors.push((door, Side::Page { open }));
    }
    Ok(doors)
}
