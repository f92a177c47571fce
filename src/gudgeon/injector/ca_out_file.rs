//! The file of `--caOut`: the CA certificates in use, for clients that trust them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use tokio::sync::watch;
use tracing::error;

use crate::file;
use crate::file_writer::FileWriter;

/// The delay between two tries to write the file.
const AGAIN: Duration = Duration::from_secs(10);

/// Writes them once.
///
/// # Errors
/// Why the file cannot be written.
pub(super) async fn write(to: &mut FileWriter, ca: Option<Arc<str>>) -> Result<(), String> {
    let Some(ca) = ca else { return Ok(()) };
    let result = to.replace(ca.as_bytes().to_vec(), file::replace).await;
    result.map_err(|cause| format!("cannot write --caOut {}: {cause}", to.path().display()))
}

/// Writes the CA whenever it changes; one that cannot be written is tried again.
pub(super) async fn run_write_loop(path: PathBuf, mut ca: watch::Receiver<Option<Arc<str>>>) {
    let mut failed: u64 = 0;
    let mut file = FileWriter::new(path);
    while ca.changed().await.is_ok() {
        loop {
            let bundle = ca.borrow_and_update().clone();
            let Err(cause) = write(&mut file, bundle).await else {
                failed = 0;
                break;
            };
            failed += 1;
            if should_log_repeat(failed) {
                error!("{cause}{repeated}", repeated = api::times(failed));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}
