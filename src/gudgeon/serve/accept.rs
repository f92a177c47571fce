//! The loop that accepts connections of a port.

use std::io;
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use tokio::task::JoinSet;
use tracing::warn;

use super::Shutdown;
use crate::descriptors;

/// The time that connections have for their requests once they are told to close.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// The delay between two tries to accept when the process has no descriptors.
const NO_DESCRIPTORS: Duration = Duration::from_millis(50);

/// A port with its limits.
pub(crate) trait Accept {
    /// An accepted connection, with its places.
    type Accepted;

    /// Waits for a place, then for the next connection: until there is one, clients wait in the kernel's queue.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Accepted>> + Send;

    /// Starts the task of a connection, unless it is refused.
    fn spawn(&self, accepted: Self::Accepted, tasks: &mut JoinSet<()>);

    /// Closes a connection, so that its descriptor is free.
    fn evict(&self);
}

/// Serves until the process closes its listeners and all connections have left.
pub(crate) async fn accept(port: impl Accept, mut shutdown: Shutdown) {
    let mut tasks = JoinSet::new();
    let mut refused: u64 = 0;
    loop {
        let accepted = tokio::select! {
            accepted = port.accept() => accepted,
            // A panic loses that task's work only, and is counted where all are.
            Some(_ended) = tasks.join_next() => continue,
            () = shutdown.closing() => break,
        };
        match accepted {
            Ok(accepted) => {
                refused = 0;
                port.spawn(accepted, &mut tasks);
            }
            Err(cause) => {
                refused += 1;
                if should_log_repeat(refused) {
                    warn!(
                        "cannot accept a connection: {cause}{repeated}",
                        repeated = api::times(refused)
                    );
                }
                // A connection of this port gives up its descriptor; for any other cause none has to go.
                if descriptors::are_exhausted(&cause) {
                    port.evict();
                }
                tokio::time::sleep(NO_DESCRIPTORS).await;
            }
        }
    }
    // Closes the listener.
    drop(port);
    let all = async { while tasks.join_next().await.is_some() {} };
    // Connections that have not ended by then are dropped with the set.
    let _cut = tokio::time::timeout(SHUTDOWN_GRACE, all).await;
}
