//! When the files are looked at again.

use std::time::Duration;

use tracing::warn;

use super::engine::Engine;
use super::files::Files;
use crate::watch::Watcher;

/// From the first event to the look: who writes a file often writes another.
const SETTLE: Duration = Duration::from_millis(100);
/// A look in any case.
const SELDOM: Duration = Duration::from_secs(300);
/// The same where the kernel does not tell.
const OFTEN: Duration = Duration::from_secs(10);

/// Keeps the files up to date, for ever.
pub(super) async fn run<E: Engine>(mut files: Files<E>) {
    let mut watcher = Watcher::new(files.paths());
    let mut warned = false;
    // What changed between the first look and the watch.
    let mut again = files.look();
    loop {
        let mut pause = SELDOM;
        if let Some(why) = watcher.degraded() {
            pause = OFTEN;
            if !warned {
                warn!("looking at the files every {} s: {why}", OFTEN.as_secs());
                warned = true;
            }
        }
        tokio::select! {
            () = watcher.changed() => tokio::time::sleep(SETTLE).await,
            () = tokio::time::sleep(again.unwrap_or(pause)) => watcher.follow(),
        }
        again = files.look();
    }
}
