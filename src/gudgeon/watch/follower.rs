//! Waits for changes of configuration files.

use std::time::Duration;

use super::{ChangeSource as _, Watcher};
use crate::config_file::{RETRY_INTERVAL, TextFile};

/// The interval of reloads without an event.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// Waits for changes of configuration files.
#[derive(Debug)]
pub(crate) struct Follower {
    /// `None`: the files are not watched.
    watcher: Option<Watcher>,
}

impl Follower {
    /// Watches the files, if `watches`.
    pub(crate) async fn new<const N: usize>(files: [&TextFile; N], watches: bool) -> Self {
        let paths = files.map(|file| file.named().path.clone());
        let mut watcher = watches.then(|| Watcher::new(paths.to_vec()));
        if let Some(watcher) = &mut watcher {
            watcher.follow().await;
        }
        Self { watcher }
    }

    /// Waits until the files may have changed; a minute at most, a second after a read that hung. Without a watch it never ends.
    pub(crate) async fn changed<const N: usize>(&mut self, files: [&TextFile; N]) {
        let Some(watcher) = &mut self.watcher else {
            return std::future::pending().await;
        };
        let hangs = files.iter().any(|file| file.hangs());
        let pause = if hangs { RETRY_INTERVAL } else { POLL_INTERVAL };
        watcher.due(pause).await;
    }
}
