//! The mesh configuration's file, followed for as long as the program runs.

use std::sync::Arc;

use api::mesh::{self, MeshConfig};
use tokio::sync::watch;
use tracing::warn;

use super::engine::GalleyEngine;
use crate::cli::GalleyFlags;
use crate::config_file::TextFile;
use crate::exit::Failure;
use crate::file_states::FileStates;
use crate::watch::Follower;

#[derive(Debug)]
pub(super) struct MeshFile {
    file: TextFile,
    watches: bool,
}

impl MeshFile {
    /// Reads it.
    ///
    /// # Errors
    /// It is not there though a flag names it, or it is not valid.
    pub(super) async fn open(flags: &GalleyFlags) -> Result<(Self, Arc<MeshConfig>), Failure> {
        let path = flags.mesh_config_file.as_deref();
        let (file, text) =
            TextFile::open(flags.mesh_config_flag, path, flags.usual_mesh_config).await?;
        let config = match text {
            Some(text) => file.first(mesh::parse_served(&text))?,
            None => {
                warn!(
                    "no mesh configuration at {}; using the defaults",
                    file.named().path.display()
                );
                mesh::galley_defaults()
            }
        };
        let watches = flags.watch_config_files;
        Ok((Self { file, watches }, Arc::new(config)))
    }

    /// Sends changes, for ever. A file that became invalid, or is gone, changes nothing.
    pub(super) async fn follow(
        mut self,
        engine: Arc<GalleyEngine>,
        mut again: watch::Receiver<u64>,
        files: Arc<FileStates>,
    ) {
        let mut follower = Follower::new([&self.file], self.watches).await;
        loop {
            if let Some(text) = self.file.changed_text().await
                && let Some(config) = self.file.later(mesh::parse_served(&text))
            {
                engine.mesh(Arc::new(config)).await;
            }
            if let Some(state) = self.file.state() {
                files.put(self.file.named().flag, state);
            }
            tokio::select! {
                () = follower.changed([&self.file]) => {}
                asked = again.changed() => if asked.is_err() { return },
            }
        }
    }
}
