//! The access list: an optional file, watched as long as a port uses it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mcp::access::AccessList;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::exit::Failure;
use crate::file;
use crate::file_states::{FileState, FileStates};
use crate::grpc::Peer;
use crate::watch::{ReloadFiles, ReloadIntervals, Watcher, run_reload_loop};

/// The flag that names it.
const FLAG: &str = "accessListFile";

const INTERVALS: ReloadIntervals = ReloadIntervals {
    poll: Duration::from_secs(60),
    degraded: Duration::from_secs(2),
};

/// The clients that a port without an access list accepts, with a verified certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultAccess {
    /// Clients only read.
    Everyone,
    /// No client may connect: clients control proxies.
    Nobody,
}

impl DefaultAccess {
    fn list(self) -> AccessList {
        match self {
            Self::Everyone => AccessList::everyone(),
            Self::Nobody => AccessList::nobody(),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Everyone => "everyone with a verified certificate may connect",
            Self::Nobody => "no client may connect",
        }
    }
}

/// The list that holds at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CurrentList {
    list: AccessList,
    without: DefaultAccess,
    /// The list is from a file.
    is_written: bool,
}

impl CurrentList {
    fn new(list: Option<AccessList>, without: DefaultAccess) -> Self {
        Self {
            without,
            is_written: list.is_some(),
            list: list.unwrap_or_else(|| without.list()),
        }
    }

    /// Returns true if a certificate with these identities may connect. On a port that configures proxies it must have
    /// exactly one: with several, it is unknown for which the certificate was signed.
    pub(super) fn allows(&self, identities: &[String]) -> bool {
        let is_clear = match self.without {
            DefaultAccess::Everyone => true,
            DefaultAccess::Nobody => identities.len() == 1,
        };
        is_clear && self.list.allows(identities.iter().map(String::as_str))
    }

    /// Returns the reason why every client is refused; `None` if some are accepted.
    pub(super) fn why_nobody(&self, path: &Path) -> Option<String> {
        let path = path.display();
        self.list.is_nobody().then(|| match self.is_written {
            true => format!("no client may connect: the access list {path} allows none"),
            false => format!("no client may connect: there is no access list at {path}"),
        })
    }
}

/// The message for a client that may not connect.
pub(super) const REFUSED: &str = "the certificate's identities are not allowed";

/// Returns true if the list allows this client.
pub(super) fn is_allowed(access: Option<&watch::Receiver<Arc<CurrentList>>>, peer: &Peer) -> bool {
    let Some(list) = access else { return true };
    let uris = peer.leaf.as_ref().map_or(&[][..], |leaf| &leaf.uris);
    list.borrow().allows(uris)
}

/// Waits for another list.
pub(super) async fn list_changed(access: &mut Option<watch::Receiver<Arc<CurrentList>>>) {
    match access {
        Some(access) => changed(access).await,
        None => std::future::pending().await,
    }
}

/// Waits for ever once the sender is gone: there are no changes then.
pub(super) async fn changed<T>(watched: &mut watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Reads the list, and watches it from then on.
///
/// # Errors
/// The file exists and is invalid.
pub(super) fn follow(
    path: &Path,
    without: DefaultAccess,
    states: Option<Arc<FileStates>>,
) -> Result<watch::Receiver<Arc<CurrentList>>, Failure> {
    // Before the first read: a later change is seen.
    let watcher = Watcher::new(vec![path.to_owned()]);
    let list = list(file::read_first(path)).map_err(|cause| {
        Failure::config(format!("cannot use --{FLAG} {}: {cause}", path.display()))
    })?;
    if list.is_none() {
        let (path, access) = (path.display(), without.as_str());
        warn!("no access list at {path}: {access}");
    }
    let list = CurrentList::new(list, without);
    let state = FileState {
        path: path.to_owned(),
        good: u64::from(list.is_written),
        ..FileState::default()
    };
    let (current, watched) = watch::channel(Arc::new(list));
    let file = AccessFile {
        path: path.to_owned(),
        without,
        current,
        state,
        states,
    };
    file.report_state();
    tokio::spawn(run_reload_loop(watcher, file));
    Ok(watched)
}

/// The file, and the list that was read from it last.
struct AccessFile {
    path: PathBuf,
    without: DefaultAccess,
    current: watch::Sender<Arc<CurrentList>>,
    /// With the error that was logged last, if it is still there.
    state: FileState,
    states: Option<Arc<FileStates>>,
}

impl ReloadFiles for AccessFile {
    async fn reload(&mut self) -> Option<Duration> {
        let read = file::read(&self.path).await;
        let hangs = read.as_ref().is_err_and(file::is_hanging);
        match list(read) {
            Ok(list) => {
                self.state.error = None;
                self.state.is_gone = list.is_none();
                self.replace(CurrentList::new(list, self.without));
            }
            Err(cause) if self.state.error.as_ref() == Some(&cause) => {}
            Err(cause) => {
                let path = self.path.display();
                error!("cannot use access list {path}: {cause}: the list before stays");
                self.state.error = Some(cause);
                self.state.broken += 1;
            }
        }
        self.report_state();
        // A read that hangs is repeated soon; other errors wait for a change of the file.
        hangs.then_some(INTERVALS.degraded)
    }

    /// Each read is compared with the list in use.
    fn forget(&mut self) {}

    fn intervals(&self) -> ReloadIntervals {
        INTERVALS
    }

    async fn unused(&mut self) {
        self.current.closed().await;
    }
}

impl AccessFile {
    /// Reports the state, unless there never was such a file.
    fn report_state(&self) {
        let is_known = self.state.good + self.state.broken > 0;
        if let Some(states) = self.states.as_ref().filter(|_| is_known) {
            states.put(FLAG, self.state.clone());
        }
    }

    /// Makes this list hold from now on, if it is another one.
    fn replace(&mut self, list: CurrentList) {
        let is_written = list.is_written;
        // An equal list must not wake the streams, each of which checks its peer against a new one.
        let changed = self.current.send_if_modified(|current| {
            let other = **current != list;
            if other {
                *current = Arc::new(list);
            }
            other
        });
        self.state.good += u64::from(changed && is_written);
        let path = self.path.display();
        match (changed, is_written) {
            (true, true) => info!("access list {path} has changed"),
            (true, false) => warn!("access list {path} is gone: {}", self.without.as_str()),
            (false, _) => {}
        }
    }
}

/// Returns `None` if the file does not exist.
fn list(read: io::Result<Vec<u8>>) -> Result<Option<AccessList>, String> {
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause.to_string()),
    };
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    AccessList::parse(&text).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "spiffe://x/ns/n/sa/a";
    const B: &str = "spiffe://x/ns/n/sa/b";

    #[tokio::test]
    async fn the_state_of_the_file_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("list");
        let states = Arc::<FileStates>::default();
        let follow = || follow(&path, DefaultAccess::Nobody, Some(Arc::clone(&states)));
        // An optional file that never existed has no state.
        let _lists = follow().unwrap();
        assert!(states.get().is_empty());
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write(&format!("allowed: [\"{A}\"]"));
        let lists = follow().unwrap();
        let state = || states.get()[FLAG].clone();
        assert_eq!((state().good, state().broken, state().error), (1, 0, None));
        let mut file = AccessFile {
            path: path.clone(),
            without: DefaultAccess::Nobody,
            current: watch::Sender::new(Arc::clone(&lists.borrow())),
            state: state(),
            states: Some(Arc::clone(&states)),
        };
        write("allowed: [");
        for _ in 0..2 {
            file.reload().await;
            assert_eq!((state().good, state().broken), (1, 1));
            assert!(state().error.is_some());
        }
        write(&format!("allowed: [\"{B}\"]"));
        file.reload().await;
        assert_eq!((state().good, state().broken, state().error), (2, 1, None));
        assert!(!state().is_gone);
        std::fs::remove_file(&path).unwrap();
        file.reload().await;
        assert!(state().is_gone && state().error.is_none());
        // A broken file does not bring the list back that was removed.
        write("allowed: [");
        file.reload().await;
        assert!(state().is_gone && state().error.is_some());
        write(&format!("allowed: [\"{B}\"]"));
        file.reload().await;
        assert_eq!((state().is_gone, state().error), (false, None));
    }

    #[test]
    fn an_allowed_peer_has_one_identity_and_it_is_listed() {
        let white = format!("allowed: [\"{A}\"]");
        let black = format!("isBlackList: true\nallowed: [\"{B}\"]");
        for (identities, by_white, by_black) in [
            (&[A][..], [true, true], [true, true]),
            (&[B], [false, false], [false, false]),
            (&[A, B], [true, false], [false, false]),
            (&[B, A], [true, false], [false, false]),
            (&[A, A], [true, false], [true, false]),
            (&[], [false, false], [true, false]),
        ] {
            let named: Vec<String> = identities.iter().map(|&one| one.to_owned()).collect();
            for (text, allowed) in [(&white, by_white), (&black, by_black)] {
                let allowed_by = [DefaultAccess::Everyone, DefaultAccess::Nobody].map(|without| {
                    let list = AccessList::parse(text).unwrap();
                    CurrentList::new(Some(list), without).allows(&named)
                });
                assert_eq!(allowed_by, allowed, "{identities:?} by {text}");
            }
            let nobody = CurrentList::new(None, DefaultAccess::Nobody);
            assert!(!nobody.allows(&named), "{identities:?}");
        }
    }
}
