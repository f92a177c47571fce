//! The mesh configuration's file, followed for as long as the program runs.

use std::sync::Arc;
use std::time::Duration;

use api::mesh::{self, MeshConfig};
use tokio::sync::watch;
use tracing::warn;

use super::engine::Engine;
use crate::cli::{GALLEY_MESH_CONFIG, GalleyFlags};
use crate::exit::Failure;
use crate::kept::Kept;
use crate::watch::Watcher;

/// The delay from the first event to the reload: a program often writes several files.
const SETTLE: Duration = Duration::from_millis(100);
/// The interval of reloads without an event.
const SELDOM: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct File {
    kept: Kept,
    watches: bool,
}

impl File {
    /// Reads it.
    ///
    /// # Errors
    /// It is not there though a flag names it, or it is not valid.
    pub(super) async fn open(flags: &GalleyFlags) -> Result<(Self, Arc<MeshConfig>), Failure> {
        let given = flags.mesh_config_file.as_deref();
        let (kept, text) = Kept::open("meshConfigFile", given, GALLEY_MESH_CONFIG).await?;
        let config = match text {
            Some(text) => kept.first(mesh::parse_served(&text))?,
            None => {
                warn!(
                    "no mesh configuration at {}: the defaults are used",
                    kept.path.display()
                );
                mesh::galley_defaults()
            }
        };
        let watches = flags.watch_config_files;
        Ok((Self { kept, watches }, Arc::new(config)))
    }

    /// Sends changes, for ever. A file that became invalid, or is gone, changes nothing.
    pub(super) async fn follow(mut self, engine: Arc<Engine>, mut again: watch::Receiver<u64>) {
        let path = self.kept.path.clone();
        let mut watcher = self.watches.then(|| Watcher::new(vec![path]));
        if let Some(watcher) = &mut watcher {
            watcher.follow().await;
        }
        loop {
            if let Some(text) = self.kept.changed().await
                && let Some(config) = self.kept.later(mesh::parse_served(&text))
            {
                engine.mesh(Arc::new(config));
            }
            let Some(watcher) = &mut watcher else {
                if again.changed().await.is_err() {
                    return;
                }
                continue;
            };
            tokio::select! {
                () = watcher.changed() => tokio::time::sleep(SETTLE).await,
                () = tokio::time::sleep(self.kept.pause(SELDOM)) => watcher.follow().await,
                asked = again.changed() => if asked.is_err() { return },
            }
        }
    }
}
