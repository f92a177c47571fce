//! Logs conflicts as resources are made.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, sleep_until};
use xds::snapshot::Snapshot;

use super::hub::Hub;

/// The time from the first resource that was made to the look for conflicts: other proxies ask for theirs meanwhile.
const GATHER: Duration = Duration::from_secs(1);
/// Logs conflicts as they come up, for ever.
pub(super) async fn run(hub: Arc<Hub>) {
    let mut again = None;
    loop {
        let due = async {
            match again {
                Some(at) => sleep_until(hub.clock.instant(at)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = hub.built.notified() => sleep(GATHER).await,
            () = due => {}
        }
        let Some(snapshot) = hub.snapshot() else {
            continue;
        };
        let size = Snapshot::size(snapshot.world());
        let (this, now) = (Arc::clone(&hub), hub.clock.now());
        let look = move || this.log_rate_limiters.conflicts(now, &snapshot);
        again = hub.blocking.run(size, look).await.flatten();
    }
}
