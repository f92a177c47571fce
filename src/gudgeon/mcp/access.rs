//! The list of who may connect: a file that need not be there, watched for as long as somebody asks.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mcp::access::AccessList;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::exit::Failure;
use crate::file;
use crate::watch::Watcher;

/// From the first event to the look: who writes a file often writes another.
const SETTLE: Duration = Duration::from_millis(100);
/// A look in any case, and where the kernel does not tell of changes.
const SELDOM: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_secs(2);

/// Reads it, and follows it from then on.
///
/// # Errors
/// It is there and cannot be used.
pub(super) fn follow(path: &Path) -> Result<watch::Receiver<Arc<AccessList>>, Failure> {
    // Before the first look: what changes behind it is seen.
    let watcher = Watcher::new(vec![path.to_owned()]);
    let list = read(path).map_err(|cause| {
        Failure::config(format!(
            "cannot use --accessListFile {}: {cause}",
            path.display()
        ))
    })?;
    if list.is_none() {
        let path = path.display();
        warn!("no access list at {path}: everyone with a verified certificate may connect");
    }
    let list = list.unwrap_or_else(AccessList::everyone);
    let (current, watched) = watch::channel(Arc::new(list));
    tokio::spawn(keep(path.to_owned(), watcher, current));
    Ok(watched)
}

async fn keep(path: PathBuf, mut watcher: Watcher, current: watch::Sender<Arc<AccessList>>) {
    let mut complained = None;
    loop {
        let pause = watcher.degraded().map_or(SELDOM, |_| OFTEN);
        tokio::select! {
            () = watcher.changed() => tokio::time::sleep(SETTLE).await,
            () = tokio::time::sleep(pause) => watcher.follow(),
            () = current.closed() => return,
        }
        match read(&path) {
            Ok(list) => {
                complained = None;
                let is_there = list.is_some();
                let list = list.unwrap_or_else(AccessList::everyone);
                let changed = current.send_if_modified(|known| {
                    let other = **known != list;
                    if other {
                        *known = Arc::new(list);
                    }
                    other
                });
                if changed {
                    let what = if is_there { "has changed" } else { "is gone" };
                    info!("access list {} {what}", path.display());
                }
            }
            Err(cause) if complained.as_ref() == Some(&cause) => {}
            Err(cause) => {
                let path = path.display();
                error!("cannot use access list {path}: {cause}: the list before stays");
                complained = Some(cause);
            }
        }
    }
}

/// `None`: there is none.
fn read(path: &Path) -> Result<Option<AccessList>, String> {
    let bytes = match file::read(path) {
        Ok(bytes) => bytes,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause.to_string()),
    };
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    AccessList::parse(&text).map(Some)
}
