//! Webhook configurations that are kept: the way to the cluster, and what the keeper is told.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Access, Bundle, Cluster, ReconcilerHandle};
use tokio::sync::watch;
use tracing::{error, info};

use crate::log;

/// After a failure.
pub(crate) const AGAIN: Duration = Duration::from_secs(30);

/// Connects, however long it takes: what is missing may come.
pub(crate) async fn connected(access: &Access) -> Cluster {
    let mut failed: u64 = 0;
    loop {
        match Cluster::open(access).await {
            Ok(cluster) => {
                info!("using the API server {}", cluster.address());
                return cluster;
            }
            Err(cause) => {
                failed += 1;
                if log::worth_a_line(failed) {
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

/// Tells the keeper each CA bundle as it comes. `own`: others have theirs beside it.
pub(crate) async fn tell(
    handle: ReconcilerHandle,
    own: bool,
    mut ca: watch::Receiver<Option<Arc<str>>>,
    mut unreadable: watch::Receiver<u64>,
) {
    loop {
        if let Some(pem) = ca.borrow_and_update().clone() {
            let pem = pem.as_bytes().to_vec();
            handle.keep(if own {
                Bundle::Own(pem)
            } else {
                Bundle::File(pem)
            });
        }
        tokio::select! {
            changed = ca.changed() => if changed.is_err() { return },
            Ok(()) = unreadable.changed() => handle.cannot_load(),
        }
    }
}
