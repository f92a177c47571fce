//! The probe files: their age proves that the event loop runs, and that the role is ready.

use std::path::Path;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::error;

use super::readiness::Parts;
use crate::cli::GalleyFlags;
use crate::file_writer::FileWriter;

/// Intervals of zero are as short as this.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// One of the two probe files; disabled by an empty flag.
#[derive(Debug)]
struct Probe {
    file: FileWriter,
    every: Duration,
    /// The failure to write the file has been logged.
    complained: bool,
}

impl Probe {
    fn new(path: &Path, every: Duration) -> Option<Self> {
        (!path.as_os_str().is_empty()).then(|| Self {
            file: FileWriter::new(path.to_owned()),
            every: every.max(MIN_INTERVAL),
            complained: false,
        })
    }

    async fn touch(&mut self) {
        match self.file.touch(b"ok").await {
            Ok(()) => self.complained = false,
            Err(cause) if !self.complained => {
                let path = self.file.path().display();
                error!("cannot write probe file {path}: {cause}");
                self.complained = true;
            }
            Err(_) => {}
        }
    }

    async fn remove(&mut self) {
        // If the file cannot be removed, its age tells the same later.
        let _gone = self.file.remove().await;
    }
}

/// The tasks of both files, which run until the role ends.
#[derive(Debug)]
pub(super) struct Probes {
    tasks: Vec<JoinHandle<()>>,
    stop: watch::Sender<()>,
}

impl Probes {
    /// The files go, unless they do not answer.
    pub(super) async fn stop(self) {
        drop(self.stop);
        for task in self.tasks {
            // The task may have panicked.
            let _ended = task.await;
        }
    }
}

/// Starts both.
pub(super) fn start(flags: &GalleyFlags, parts: &watch::Receiver<Parts>) -> Probes {
    let (stop, stopped) = watch::channel(());
    let mut tasks = Vec::new();
    if let Some(probe) = Probe::new(&flags.liveness_probe_path, flags.liveness_probe_interval) {
        tasks.push(tokio::spawn(live(probe, stopped.clone())));
    }
    if let Some(probe) = Probe::new(&flags.readiness_probe_path, flags.readiness_probe_interval) {
        tasks.push(tokio::spawn(ready(probe, parts.clone(), stopped)));
    }
    Probes { tasks, stop }
}

/// Writes the liveness file while the event loop runs.
async fn live(mut probe: Probe, mut stop: watch::Receiver<()>) {
    let mut beats = interval(probe.every);
    // After a pause one beat is enough.
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let beat = async {
        loop {
            beats.tick().await;
            probe.touch().await;
        }
    };
    tokio::select! {
        () = beat => {}
        // The channel carries no values: its end is the signal.
        _ = stop.changed() => {}
    }
    probe.remove().await;
}

/// Writes the file while the role is ready; a file of an earlier process is removed.
async fn ready(mut probe: Probe, parts: watch::Receiver<Parts>, mut stop: watch::Receiver<()>) {
    tokio::select! {
        () = follow(&mut probe, parts) => {}
        _ = stop.changed() => {}
    }
    probe.remove().await;
}

/// Follows the readiness until `parts` closes.
async fn follow(probe: &mut Probe, mut parts: watch::Receiver<Parts>) {
    let mut due = Instant::now();
    loop {
        let is_ready = parts.borrow_and_update().why_not_ready().is_none();
        if !is_ready {
            probe.remove().await;
            due = Instant::now();
        } else if Instant::now() >= due {
            probe.touch().await;
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
        let (_stop, stopped) = watch::channel(());
        let task = tokio::spawn(ready(probe, readiness.changes(), stopped));
        // Time goes on when no thread is at work any more.
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
        let (stop, stopped) = watch::channel(());
        let probe = Probe::new(&path, Duration::ZERO).unwrap();
        let tasks = vec![tokio::spawn(live(probe, stopped))];
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(path.exists());
        Probes { tasks, stop }.stop().await;
        assert!(!path.exists());
        assert!(Probe::new(Path::new(""), Duration::ZERO).is_none());
        // No more than a complaint.
        let mut nowhere = Probe::new(&path.join("x"), Duration::ZERO).unwrap();
        nowhere.touch().await;
        assert!(nowhere.complained);
    }
}
