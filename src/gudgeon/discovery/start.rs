//! From flags to a program that serves, and from TERM to its end.

use std::sync::Arc;

use cluster::registry::{self, Registries};
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use super::certificates;
use super::grpc::Services;
use super::hub::Hub;
use super::mesh::{self, Read};
use super::monitor::Monitor;
use super::options::{self, Options};
use super::ports::Ports;
use super::sources::Sources;
use crate::cli::DiscoveryFlags;
use crate::exit::{Exit, Failure};
use crate::grpc::{self, Listener, Port};
use crate::process::{self, Ends, rest_after_start, tell_of_panics};
use crate::serve::{self, Stage};

/// Sockets that are read before their tasks go on. After a push all proxies answer at once, each with all its names: read
/// together, thousands of such requests would lie in memory, and most of that would stay the process's.
const EVENTS: usize = 16;

/// Serves until TERM.
///
/// # Errors
/// Why it cannot start.
pub(crate) fn run(flags: &DiscoveryFlags) -> Result<Exit, Failure> {
    tell_of_panics();
    let runtime = runtime::Builder::new_current_thread()
        .enable_io()
        .max_io_events_per_tick(EVENTS)
        .enable_time()
        .build()
        .map_err(|cause| Failure::system(format!("cannot start the runtime: {cause}")))?;
    let result = runtime.block_on(serve(flags));
    // A name that is being resolved must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn serve(flags: &DiscoveryFlags) -> Result<Exit, Failure> {
    // First of all, so that a TERM while it starts is not lost.
    let mut ends = Ends::new()?;
    let (options, warnings) = Options::new(flags, &options::environment())?;
    for warning in warnings {
        warn!("{warning}");
    }
    let (files, Read { mesh, networks }) = tokio::select! {
        opened = mesh::Files::open(flags) => opened?,
        () = ends.next() => return Ok(Exit::Done),
    };
    let settings = registry::Settings {
        cluster: options.settings.cluster.clone(),
        trust_domain: Arc::clone(&options.trust_domain),
        order: options.registries.clone(),
        block_http_on_443: options.settings.block_http_on_443,
    };
    let hub = Hub::new(options, Registries::new(settings, mesh, networks));
    let starts = async {
        let ports = Ports::bind(flags).await?;
        let sources = Sources::start(flags, &hub).await?;
        Ok::<_, Failure>((ports, sources))
    };
    let (ports, sources) = tokio::select! {
        started = starts => started?,
        () = ends.next() => return Ok(Exit::Done),
    };
    ports.announce();
    let (stage, watched) = watch::channel(Stage::Serving);
    let serving = listen(ports, &hub, &sources, &watched);
    tokio::spawn(Arc::clone(&hub).run());
    tokio::spawn(files.follow(Arc::clone(&hub), sources.named()));
    tokio::spawn(rest_after_start());

    tokio::select! {
        () = ends.next() => {}
        why = hub.refusal() => return Err(Failure::config(why)),
    }
    hub.drain();
    let leave = || {
        stage.send_replace(Stage::Leaving);
        hub.leave();
    };
    let all = "streams are closed";
    process::drain(&mut ends, flags.drain_duration, serving, leave, all).await;
    Ok(Exit::Done)
}

fn listen(
    ports: Ports,
    hub: &Arc<Hub>,
    sources: &Sources,
    stage: &watch::Receiver<Stage>,
) -> JoinSet<()> {
    let mut serving = JoinSet::new();
    for (door, open) in ports.http {
        let monitor = Arc::new(Monitor {
            hub: Arc::clone(hub),
            sources: sources.clone(),
            open,
        });
        serving.spawn(serve::run(door, monitor, stage.clone()));
    }
    if let Some(listener) = ports.grpc {
        let port = Port {
            listener: Listener::Tcp(listener),
            tls: None,
        };
        let services = Arc::new(Services::new(Arc::clone(hub)));
        let keeping = hub.options.keeping;
        serving.spawn(grpc::run(port, keeping, services, stage.clone()));
    }
    certificates::listen(ports.secure, hub, stage, &mut serving);
    serving
}
