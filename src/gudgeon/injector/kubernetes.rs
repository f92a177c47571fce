//! The injector's tasks at a cluster: its CA in the webhook configurations, and the version of the API server.
//!
//! All of them run after the start and may take for ever: serving does not wait for them.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use inject::NativeSidecars;
use sources::kubernetes::{
    Access, ObjectSource as _, Selection, Version, WatchTiming, Watcher, Writer,
};
use sources::reconcile::{DesiredState, ReconcilerHandle, WebhookReconciler};
use tracing::{info, warn};

use super::engine::ActiveConfiguration;
use super::namespaces::Namespace;
use super::webhook::Webhook;
use crate::cli::InjectorFlags;
use crate::shared::Clusters;
use crate::webhook_configuration::{AGAIN, connected};

/// The first version of Kubernetes whose native sidecars have been on by default for long enough.
const NATIVE_SINCE: Version = Version {
    major: 1,
    minor: 32,
};
/// An API server is replaced seldom.
const HOURLY: Duration = Duration::from_secs(3600);

/// Returns the credentials for the API server; `None` if there are none.
pub(super) fn access(flags: &InjectorFlags) -> Option<Access> {
    if !flags.kubeconfig.is_empty() {
        return Some(Access::Kubeconfig {
            file: Some(PathBuf::from(&flags.kubeconfig)),
            context: None,
        });
    }
    Access::in_cluster().then_some(Access::InCluster)
}

/// The tasks.
pub(super) struct ClusterTasks<E> {
    pub(super) clusters: Clusters,
    pub(super) reconciler: Option<WebhookReconciler>,
    /// Asks how new the API server is.
    pub(super) auto: Option<Arc<Webhook<E>>>,
    /// Hears of OpenShift's namespaces.
    pub(super) namespaces: Option<Writer<Namespace>>,
}

/// Returns the reconciler of the flags' configurations, and its handle.
pub(super) fn webhook_reconciler(flags: &InjectorFlags) -> (WebhookReconciler, ReconcilerHandle) {
    let order = DesiredState {
        configurations: flags.webhook_config_name.clone(),
        entry: flags.webhook_name.clone(),
    };
    WebhookReconciler::new(order, WatchTiming::default())
}

/// Connects, and runs the tasks, for ever.
pub(super) async fn run<E: ActiveConfiguration>(access: Access, tasks: ClusterTasks<E>) {
    let cluster = connected(&tasks.clusters, &access).await;
    let keeping = async {
        match tasks.reconciler {
            Some(reconciler) => reconciler.run(cluster.clone()).await,
            None => std::future::pending().await,
        }
    };
    let asking = async {
        match tasks.auto {
            Some(webhook) => {
                let version = || {
                    let cluster = cluster.clone();
                    async move { cluster.version().await }
                };
                poll_version(version, |version| set(&webhook, version)).await;
            }
            None => std::future::pending().await,
        }
    };
    let hearing = async {
        match tasks.namespaces {
            Some(writer) => {
                let all = Selection::default();
                let source = Watcher::new(cluster.clone(), all, WatchTiming::default());
                match source.run(writer).await {}
            }
            None => std::future::pending().await,
        }
    };
    tokio::join!(keeping, asking, hearing);
}

/// Polls the version of the API server hourly, sooner after a failure, for ever.
async fn poll_version<F: Future<Output = Result<Version, E>>, E: std::fmt::Display>(
    mut version: impl FnMut() -> F,
    mut emit: impl FnMut(Version),
) {
    let mut failed: u64 = 0;
    loop {
        match version().await {
            Ok(version) => {
                failed = 0;
                emit(version);
                tokio::time::sleep(HOURLY).await;
            }
            Err(cause) => {
                failed += 1;
                if should_log_repeat(failed) {
                    warn!(
                        "{cause}{repeated}: native sidecars stay as they are",
                        repeated = api::times(failed)
                    );
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Native sidecars as the API server has them.
fn set<E: ActiveConfiguration>(webhook: &Webhook<E>, version: Version) {
    let native = native_for(version);
    let mut now = webhook
        .native
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if *now != native {
        *now = native;
        let Version { major, minor } = version;
        info!("Kubernetes {major}.{minor}: native sidecars are now {native:?}");
    }
}

/// The meaning of `auto` for an API server.
pub(crate) fn native_for(version: Version) -> NativeSidecars {
    if version >= NATIVE_SINCE {
        NativeSidecars::On
    } else {
        NativeSidecars::Off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_since() {
        for (major, minor, native) in [
            (1, 20, NativeSidecars::Off),
            (1, 31, NativeSidecars::Off),
            (1, 32, NativeSidecars::On),
            (2, 0, NativeSidecars::On),
        ] {
            assert_eq!(native_for(Version { major, minor }), native);
        }
    }

    /// An API server that is replaced, and one that is away for a while.
    #[tokio::test(start_paused = true)]
    async fn asked_hourly_and_sooner_after_a_failure() {
        let start = tokio::time::Instant::now();
        let answers = [Ok(31), Ok(32), Err("away"), Err("away"), Ok(33)];
        let mut answers = answers.into_iter();
        let mut asked = Vec::new();
        let mut versions = Vec::new();
        let version = || {
            asked.push(start.elapsed().as_secs());
            let answer = answers.next().unwrap_or(Err("no more"));
            std::future::ready(answer.map(|minor| Version { major: 1, minor }))
        };
        let all = poll_version(version, |version| versions.push(version.minor));
        let over = tokio::time::timeout(HOURLY * 3, all).await;
        assert!(over.is_err(), "it goes on for ever");
        assert_eq!(asked, [0, 3600, 7200, 7230, 7260]);
        assert_eq!(versions, [31, 32, 33]);
    }
}
