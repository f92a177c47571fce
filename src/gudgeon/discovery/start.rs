//! Starts discovery from its flags, and ends it at TERM.

use std::sync::Arc;
use std::time::Duration;

use sources::aggregate::{self, Registries};
use tokio::task::JoinSet;
use tracing::warn;

use super::certificates;
use super::conflict_log;
use super::grpc::Services;
use super::hub::Hub;
use super::jwks_loop;
use super::mesh::{self, MeshContents};
use super::monitor::DiscoveryMonitor;
use super::object_status;
use super::options::{self, DiscoveryOptions};
use super::ports::Ports;
use super::sources::Sources;
use crate::cli::DiscoveryFlags;
use crate::exit::Failure;
use crate::grpc::{self, GrpcListener, Port};
use crate::serve::Shutdown;
use crate::shared::{AdminListener, Inspect, Role, Shared, until};

/// Sockets that are read before their tasks go on. After a push all proxies answer at once, each with all its names: read
/// together, thousands of such requests would lie in memory, and most of that would stay the process's.
const EVENTS: usize = 16;

/// The prepared role: whatever may fail has been done.
pub(crate) struct Discovery {
    hub: Arc<Hub>,
    files: mesh::MeshFiles,
    ports: Ports,
    sources: Sources,
    /// Loops without which what proxies are told grows old: a panic of one ends the role.
    loops: JoinSet<()>,
}

impl Discovery {
    /// Returns the administration handlers.
    pub(crate) fn monitor(&self) -> Arc<dyn Inspect> {
        Arc::new(DiscoveryMonitor {
            hub: Arc::clone(&self.hub),
            sources: self.sources.clone(),
        })
    }
}

impl Role for Discovery {
    type Flags = DiscoveryFlags;

    const EVENTS_PER_TICK: Option<usize> = Some(EVENTS);

    const SERVED: &'static str = "streams are closed";

    fn drain_duration(flags: &DiscoveryFlags) -> Duration {
        flags.drain_duration
    }

    async fn prepare(shared: &Shared, flags: &DiscoveryFlags) -> Result<Self, Failure> {
        let environment = options::environment();
        let (options, warnings) = DiscoveryOptions::new(flags, &environment)?;
        for warning in warnings {
            warn!("{warning}");
        }
        let (files, MeshContents { mesh, networks }) = mesh::MeshFiles::open(flags).await?;
        let settings = aggregate::Settings {
            cluster: options.settings.cluster.clone(),
            trust_domain: Arc::clone(&options.trust_domain),
            order: options.registries.clone(),
            block_http_on_443: options.settings.block_http_on_443,
        };
        let hub = Hub::new(options, Registries::new(settings, mesh, networks));
        // No keys are fetched from the API server, whether or not its registry is on.
        if let Some(server) = environment.get("KUBERNETES_SERVICE_HOST") {
            hub.jwks.forbid_server(server);
        }
        let ports = Ports::bind(flags).await?;
        let mut loops = JoinSet::new();
        let sources = Sources::start(shared, flags, &hub, &mut loops).await?;
        if hub.options.writes_status {
            let cluster = sources.status_cluster(shared, flags).await;
            object_status::start(&hub, &sources, cluster, &mut loops);
        }
        ports.announce();
        Ok(Self {
            hub,
            files,
            ports,
            sources,
            loops,
        })
    }

    async fn serve(self, mut shutdown: Shutdown) -> Result<(), Failure> {
        let Self {
            hub,
            files,
            ports,
            sources,
            mut loops,
        } = self;
        let mut serving = listen(ports, &hub, &sources, &shutdown);
        loops.spawn(Arc::clone(&hub).run());
        loops.spawn(conflict_log::run(Arc::clone(&hub)));
        loops.spawn(jwks_loop::run(Arc::clone(&hub)));
        loops.spawn(files.follow(Arc::clone(&hub), sources.all_mcp_sources()));
        let end = async {
            shutdown.draining().await;
            hub.lifecycle.drain();
            shutdown.closing().await;
            hub.lifecycle.end_streams();
        };
        until(end, &mut loops, &mut serving).await?;
        while serving.join_next().await.is_some() {}
        Ok(())
    }
}

fn listen(ports: Ports, hub: &Arc<Hub>, sources: &Sources, shutdown: &Shutdown) -> JoinSet<()> {
    let mut serving = JoinSet::new();
    let monitor = Arc::new(DiscoveryMonitor {
        hub: Arc::clone(hub),
        sources: sources.clone(),
    });
    AdminListener::serve(&monitor, ports.http, shutdown, &mut serving);
    if let Some(listener) = ports.grpc {
        let port = Port {
            listener: GrpcListener::Tcp(listener),
            tls: None,
        };
        let services = Arc::new(Services::new(Arc::clone(hub)));
        let options = hub.options.connections;
        serving.spawn(grpc::run(port, options, services, shutdown.clone()));
    }
    certificates::listen(ports.secure, hub, shutdown, &mut serving);
    serving
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::discovery::testing;
    use crate::exit::Exit;

    /// Pushes used to end for ever, while discovery called itself ready.
    #[test]
    fn a_panic_of_a_loop_ends_the_role() {
        let runtime = |has_timers: bool| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            if has_timers {
                builder.enable_time();
            }
            builder.enable_io().build().unwrap()
        };
        let flags = testing::flags(&[]);
        let (files, _) = runtime(true)
            .block_on(mesh::MeshFiles::open(&flags))
            .unwrap();
        let discovery = Discovery {
            hub: testing::hub(),
            files,
            ports: Ports {
                http: Vec::new(),
                grpc: None,
                secure: Vec::new(),
            },
            sources: Sources::default(),
            loops: JoinSet::new(),
        };
        // The push loop sleeps until the push is due, and tokio panics where a runtime has no timers.
        discovery.hub.push_all();
        let (_stage, shutdown) = Shutdown::channel();
        let outer = runtime(true);
        let serving =
            outer.spawn_blocking(move || runtime(false).block_on(discovery.serve(shutdown)));
        let ended = outer.block_on(async { timeout(Duration::from_secs(20), serving).await });
        // A role that serves on must not hold up the end.
        outer.shutdown_background();
        let failure = ended.expect("it serves on").unwrap().unwrap_err();
        assert_eq!(failure.exit, Exit::System);
        let message = failure.message;
        assert!(message.starts_with("cannot go on: "), "{message}");
    }

    /// A source whose task was gone used to keep its last objects for good.
    #[tokio::test]
    async fn a_panic_of_a_source_ends_the_role() {
        let flags = testing::flags(&[]);
        let (files, _) = mesh::MeshFiles::open(&flags).await.unwrap();
        let mut loops = JoinSet::new();
        loops.spawn(async { panic!("as a source that panics") });
        let discovery = Discovery {
            hub: testing::hub(),
            files,
            ports: Ports {
                http: Vec::new(),
                grpc: None,
                secure: Vec::new(),
            },
            sources: Sources::default(),
            loops,
        };
        let (_stage, shutdown) = Shutdown::channel();
        let ended = timeout(Duration::from_secs(20), discovery.serve(shutdown)).await;
        let failure = ended.expect("it serves on").unwrap_err();
        assert_eq!(failure.exit, Exit::System);
    }
}
