//! The reconciler of webhook configurations: its connection to the cluster, and its inputs.

use std::sync::Arc;
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use sources::kubernetes::{Access, Cluster};
use sources::reconcile::{BundleReconcilers, CaBundle, ReconcilerHandle};
use tokio::sync::watch;
use tracing::error;

use crate::shared::Clusters;
use crate::tls::Publication;

/// The delay after a failure.
pub(crate) const AGAIN: Duration = Duration::from_secs(30);

/// Connects, with retries for ever: missing files may appear.
pub(crate) async fn connected(clusters: &Clusters, access: &Access) -> Cluster {
    let mut failed: u64 = 0;
    loop {
        match clusters.open(access).await {
            Ok(cluster) => return cluster,
            Err(cause) => {
                failed += 1;
                if should_log_repeat(failed) {
                    error!(
                        "{cause}{repeated}: trying again",
                        repeated = api::times(failed)
                    );
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Returns whether clients have the bundle of this replica's own CAs, by the reconcilers that write it for them.
pub(crate) fn publication(reconcilers: &BundleReconcilers, bundle: &str) -> Publication {
    match reconcilers.have_published(&CaBundle::Own(bundle.into())) {
        None => Publication::Unobserved,
        Some(true) => Publication::Complete,
        Some(false) => Publication::Pending,
    }
}

/// Passes each new CA bundle to the reconciler. `own`: other replicas have theirs beside it.
pub(crate) async fn emit_bundles(
    handle: ReconcilerHandle,
    own: bool,
    mut ca: watch::Receiver<Option<Arc<str>>>,
    mut unreadable: watch::Receiver<u64>,
) {
    loop {
        if let Some(pem) = ca.borrow_and_update().clone() {
            let pem = pem.as_bytes().to_vec();
            handle.set_bundle(if own {
                CaBundle::Own(pem)
            } else {
                CaBundle::File(pem)
            });
        }
        tokio::select! {
            changed = ca.changed() => if changed.is_err() { return },
            Ok(()) = unreadable.changed() => handle.cannot_load(),
        }
    }
}
