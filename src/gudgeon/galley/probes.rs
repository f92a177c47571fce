//! The probe files: their age says that the loop turns, and that the role is ready.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::error;

use super::readiness::Parts;
use crate::cli::GalleyFlags;

/// Intervals of zero are as short as this.
const SHORTEST: Duration = Duration::from_millis(10);

/// One of the two; not there where its flag is empty.
#[derive(Debug)]
struct Probe {
    path: PathBuf,
    every: Duration,
    /// That it cannot be written was said.
    complained: bool,
}

impl Probe {
    fn new(path: &Path, every: Duration) -> Option<Self> {
        (!path.as_os_str().is_empty()).then(|| Self {
            path: path.to_owned(),
            every: every.max(SHORTEST),
            complained: false,
        })
    }

    fn touch(&mut self) {
        match std::fs::write(&self.path, b"ok") {
            Ok(()) => self.complained = false,
            Err(cause) if !self.complained => {
                error!("cannot write probe file {}: {cause}", self.path.display());
                self.complained = true;
            }
            Err(_) => {}
        }
    }

    fn remove(&self) {
        // It may never have been there.
        let _gone = std::fs::remove_file(&self.path);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Starts both; the files go with the tasks, which end when `parts` does.
pub(super) fn start(
    flags: &GalleyFlags,
    parts: &watch::Receiver<Parts>,
) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(probe) = Probe::new(&flags.liveness_probe_path, flags.liveness_probe_interval) {
        tasks.spawn(live(probe));
    }
    if let Some(probe) = Probe::new(&flags.readiness_probe_path, flags.readiness_probe_interval) {
        tasks.spawn(ready(probe, parts.clone()));
    }
    tasks
}

/// While the loop turns, this does.
async fn live(mut probe: Probe) {
    let mut beats = interval(probe.every);
    // After a pause one beat is enough.
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        probe.touch();
    }
}

/// While nothing is missing; what an earlier process has left says nothing of this one.
async fn ready(mut probe: Probe, mut parts: watch::Receiver<Parts>) {
    let mut due = Instant::now();
    loop {
        let is_ready = parts.borrow_and_update().why_not().is_none();
        if !is_ready {
            probe.remove();
            due = Instant::now();
        } else if Instant::now() >= due {
            probe.touch();
            due = Instant::now() + probe.every;
        }
        tokio::select! {
            changed = parts.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(due), if is_ready => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::readiness::Readiness;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_file_is_there_while_it_is_ready() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("ready");
        std::fs::write(&path, b"of another").unwrap();
        let readiness = Readiness::new();
        readiness.lacks("a", "a is late");
        let probe = Probe::new(&path, Duration::from_secs(1)).unwrap();
        let task = tokio::spawn(ready(probe, readiness.changes()));
        let turn = || tokio::time::sleep(Duration::from_millis(1));
        turn().await;
        assert!(!path.exists());
        readiness.has("a");
        turn().await;
        assert!(path.exists());
        // Written again when it is time, and not before.
        std::fs::write(&path, b"").unwrap();
        turn().await;
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(std::fs::read(&path).unwrap(), b"ok");
        readiness.drains();
        turn().await;
        assert!(!path.exists());
        readiness.lacks("b", "b");
        drop(readiness);
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_is_there_while_the_loop_turns_and_not_afterwards() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("live");
        let task = tokio::spawn(live(Probe::new(&path, Duration::ZERO).unwrap()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(path.exists());
        task.abort();
        assert!(task.await.is_err() && !path.exists());
        assert!(Probe::new(Path::new(""), Duration::ZERO).is_none());
        // No more than a complaint.
        let mut nowhere = Probe::new(&path.join("x"), Duration::ZERO).unwrap();
        nowhere.touch();
        assert!(nowhere.complained);
    }
}
