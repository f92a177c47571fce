//! The parts that the roles of one process share: the runtime, signals, the stages of shutdown, a client of each cluster,
//! plain listeners, and rules that one role reads and another acts on.

mod admin;
mod clusters;
mod inspect;
mod last_report;
mod rules;
mod tasks;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sources::kubernetes::{Access, CannotConnect, Cluster};
use sources::reconcile::BundleReconcilers;
use tokio::runtime;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::exit::{Exit, Failure};
use crate::process::{ShutdownSignals, watch_panics};
use crate::serve::{Shutdown, ShutdownStage};

pub(crate) use admin::{AdminListener, AdminPort};
pub(crate) use clusters::Clusters;
pub(crate) use inspect::{AdminRequest, AdminResource, Endpoint, Inspect, RenderedDocument};
pub(crate) use last_report::LastReport;
pub(crate) use rules::{RuleChannel, RuleUpdate};
pub(crate) use tasks::{LateTasks, first_panic, panicked, until};

/// Work that is due whichever way the program ends.
type ShutdownHook = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A role of the program: it prepares itself, and serves until the end.
pub(crate) trait Role: Sized {
    type Flags;

    /// Sockets that the runtime reads before their tasks go on; `None`: as many as tokio finds right.
    const EVENTS_PER_TICK: Option<usize> = None;

    /// The name of the role's service in the log line at the end.
    const SERVED: &'static str;

    /// Returns the time of the drain: listeners stay open for so long after SIGTERM.
    fn drain_duration(flags: &Self::Flags) -> Duration;

    /// Does all that may fail: reads files, binds ports. Serving begins after it returns.
    ///
    /// # Errors
    /// The reason why the role cannot start.
    fn prepare(
        shared: &Shared,
        flags: &Self::Flags,
    ) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Serves: not ready from [`ShutdownStage::Draining`] on, and until all requests have ended from [`ShutdownStage::Closing`] on.
    ///
    /// # Errors
    /// The reason why the role cannot go on.
    fn serve(
        self,
        shutdown: Shutdown,
    ) -> impl Future<Output = Result<(), Failure>> + Send + 'static;
}

/// The certificate of the listener that webhooks share.
#[derive(Clone, Debug)]
pub(crate) struct Webhooks {
    /// The bundle for webhook configurations, PEM.
    pub(crate) ca: watch::Sender<Option<Arc<str>>>,
    /// Counts how often it could not be read.
    pub(crate) ca_unreadable: watch::Sender<u64>,
    /// The CA is made in this process, and other replicas have theirs.
    pub(crate) is_own: bool,
    /// Each role adds the one of its configurations.
    pub(crate) reconcilers: BundleReconcilers,
}

/// The shared state of one process.
pub(crate) struct Shared {
    stage: watch::Sender<ShutdownStage>,
    clusters: Clusters,
    rules: Option<RuleChannel>,
    webhooks: Mutex<Option<Webhooks>>,
    shutdown_hooks: Mutex<Vec<ShutdownHook>>,
}

impl Shared {
    /// Creates the state of a process with one role.
    pub(crate) fn new() -> Self {
        Self {
            stage: watch::Sender::new(ShutdownStage::Serving),
            clusters: Clusters::default(),
            rules: None,
            webhooks: Mutex::default(),
            shutdown_hooks: Mutex::default(),
        }
    }

    /// Creates the state of a process in which one role reads rules for another.
    fn with_rules() -> Self {
        Self {
            rules: Some(RuleChannel::new()),
            ..Self::new()
        }
    }

    /// Returns a watch on the shutdown.
    pub(crate) fn shutdown(&self) -> Shutdown {
        Shutdown::watch(&self.stage)
    }

    /// Rules that one role of this process reads for another; `None`: each reads its own.
    pub(crate) const fn rules(&self) -> Option<&RuleChannel> {
        self.rules.as_ref()
    }

    /// The listener that all webhooks of the process share; `None`: each role has its own.
    pub(crate) fn webhooks(&self) -> Option<Webhooks> {
        let webhooks = self.webhooks.lock();
        let webhooks = webhooks.unwrap_or_else(PoisonError::into_inner);
        webhooks.clone()
    }

    /// Offers a listener for all webhooks of the process.
    pub(crate) fn offer_webhooks(&self, webhooks: Webhooks) {
        let mut offered = self.webhooks.lock().unwrap_or_else(PoisonError::into_inner);
        *offered = Some(webhooks);
    }

    /// The client of a cluster.
    ///
    /// # Errors
    /// No client can be built.
    pub(crate) async fn cluster(&self, access: &Access) -> Result<Cluster, CannotConnect> {
        self.clusters.open(access).await
    }

    /// The clients of all clusters, for a task that opens one while the role serves.
    pub(crate) fn clusters(&self) -> Clusters {
        self.clusters.clone()
    }

    /// Adds work for the end, also where a second signal cuts the drain short.
    pub(crate) fn at_end(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut all = self
            .shutdown_hooks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.push(Box::pin(work));
    }

    /// Runs the work for the end, each once.
    pub(crate) async fn run_shutdown_hooks(&self) {
        let all = {
            let mut all = self
                .shutdown_hooks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *all)
        };
        for work in all {
            work.await;
        }
    }
}

/// Runs one role until TERM.
///
/// # Errors
/// Why it cannot start, or go on.
pub(crate) fn run<R: Role>(flags: &R::Flags) -> Result<Exit, Failure> {
    run_with::<R>(flags, &Shared::new())
}

/// Runs a role that consists of several, one of which reads rules for another, until TERM.
///
/// # Errors
/// Why it cannot start, or go on.
pub(crate) fn run_together<R: Role>(flags: &R::Flags) -> Result<Exit, Failure> {
    run_with::<R>(flags, &Shared::with_rules())
}

fn run_with<R: Role>(flags: &R::Flags, shared: &Shared) -> Result<Exit, Failure> {
    watch_panics();
    let mut builder = runtime::Builder::new_current_thread();
    if let Some(events) = R::EVENTS_PER_TICK {
        builder.max_io_events_per_tick(events);
    }
    let runtime = builder
        .enable_io()
        .enable_time()
        .build()
        .map_err(|cause| Failure::system(format!("cannot start the runtime: {cause}")))?;
    let result = runtime.block_on(async {
        // First of all, so that a TERM while it starts is not lost.
        let mut ends = ShutdownSignals::new()?;
        serve_with_hooks::<R>(flags, shared, async || ends.next().await).await
    });
    // A name that is being resolved must not hold up the end.
    runtime.shutdown_background();
    result
}

/// Serves until a signal, and runs the hooks whichever way that ends: a role that was prepared in part may have some, too.
async fn serve_with_hooks<R: Role>(
    flags: &R::Flags,
    shared: &Shared,
    signal: impl AsyncFnMut(),
) -> Result<Exit, Failure> {
    let result = serve_until_shutdown::<R>(flags, shared, signal).await;
    shared.run_shutdown_hooks().await;
    result
}

async fn serve_until_shutdown<R: Role>(
    flags: &R::Flags,
    shared: &Shared,
    mut signal: impl AsyncFnMut(),
) -> Result<Exit, Failure> {
    let role = tokio::select! {
        role = R::prepare(shared, flags) => role?,
        () = signal() => return Ok(Exit::Done),
    };
    // In a task of its own a panic of the role becomes an error, and the hooks still run.
    let mut serving = tokio::spawn(role.serve(shared.shutdown()));
    tokio::select! {
        () = signal() => {}
        ended = &mut serving => {
            return match ended {
                Ok(result) => result.map(|()| Exit::Done),
                Err(cause) => Err(panicked(cause)),
            };
        }
    }
    let drain = R::drain_duration(flags);
    info!("draining: not ready, stopping in {} s", drain.as_secs_f32());
    shared.stage.send_replace(ShutdownStage::Draining);
    let gently = async {
        tokio::time::sleep(drain).await;
        shared.stage.send_replace(ShutdownStage::Closing);
        serving.await
    };
    tokio::select! {
        ended = gently => match ended {
            Ok(Ok(())) => info!("stopped: all {}", R::SERVED),
            Ok(Err(failure)) => warn!("stopped: {}", failure.message),
            Err(cause) => warn!("stopped: {cause}"),
        },
        () = signal() => info!("stopped without drain: second signal"),
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// The step of a role's life at which it ends.
    #[derive(Clone, Copy, Debug)]
    enum Ends {
        Preparing,
        PreparedInPart,
        Serving,
    }

    /// A role that has a hook before it is prepared.
    struct Hooked(Ends);

    static HAS_RUN: AtomicBool = AtomicBool::new(false);

    impl Role for Hooked {
        type Flags = Ends;

        const SERVED: &'static str = "nothing is served";

        fn drain_duration(_: &Ends) -> Duration {
            Duration::ZERO
        }

        async fn prepare(shared: &Shared, ends: &Ends) -> Result<Self, Failure> {
            shared.at_end(async { HAS_RUN.store(true, Ordering::Relaxed) });
            match ends {
                Ends::Preparing => Err(Failure::config("cannot prepare")),
                Ends::PreparedInPart => std::future::pending().await,
                Ends::Serving => Ok(Self(*ends)),
            }
        }

        async fn serve(self, _: Shutdown) -> Result<(), Failure> {
            Err(Failure::system(format!("cannot serve: {:?}", self.0)))
        }
    }

    /// The health file of the injector used to stay when galley could not be prepared beside it.
    #[tokio::test(start_paused = true)]
    async fn hooks_run_whichever_way_a_role_ends() {
        for (ends, message) in [
            (Ends::Preparing, Some("cannot prepare")),
            (Ends::PreparedInPart, None),
            (Ends::Serving, Some("cannot serve: Serving")),
        ] {
            HAS_RUN.store(false, Ordering::Relaxed);
            let signal = async || tokio::time::sleep(Duration::from_secs(1)).await;
            let ended = serve_with_hooks::<Hooked>(&ends, &Shared::new(), signal).await;
            let failure = ended.err().map(|failure| failure.message);
            assert_eq!(failure.as_deref(), message, "{ends:?}");
            assert!(HAS_RUN.load(Ordering::Relaxed), "{ends:?}");
        }
    }
}
