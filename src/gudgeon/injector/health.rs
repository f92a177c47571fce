//! The health file, which proves that the event loop runs.

use std::path::PathBuf;
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use tracing::{error, warn};

use crate::cli::{InjectorFlags, ProbeFlags};
use crate::exit::Failure;
use crate::file_writer::FileWriter;
use crate::shared::Shared;

/// Begins the health file of the flags, as [`first_beat`].
pub(super) async fn heartbeat(
    shared: &Shared,
    flags: &InjectorFlags,
) -> Result<Option<(FileWriter, Duration)>, Failure> {
    let interval = flags.health_check_interval;
    if let Some(message) = without_effect(&flags.health_check_file, interval) {
        warn!("{message}");
    }
    first_beat(shared, &flags.health_check_file, interval).await
}

/// Tells of the one of both flags that does nothing without the other.
fn without_effect(file: &str, interval: Duration) -> Option<&'static str> {
    match (file.is_empty(), interval.is_zero()) {
        (false, true) => Some("--healthCheckFile has no effect: --healthCheckInterval is 0"),
        (true, false) => Some("--healthCheckInterval has no effect: there is no --healthCheckFile"),
        (true, true) | (false, false) => None,
    }
}

/// Writes the health file for the first time, and removes it at the end. `None`: there is none.
///
/// # Errors
/// The file cannot be written.
async fn first_beat(
    shared: &Shared,
    file: &str,
    interval: Duration,
) -> Result<Option<(FileWriter, Duration)>, Failure> {
    if file.is_empty() || interval.is_zero() {
        return Ok(None);
    }
    let path = PathBuf::from(file);
    let mut file = FileWriter::new(path.clone());
    write(&mut file).await.map_err(Failure::system)?;
    // Only a file that this process has written is its to remove. It proves that the event loop runs, which is over at the end.
    shared.at_end(async move { drop(FileWriter::new(path).remove().await) });
    Ok(Some((file, interval)))
}

/// Writes the health file at intervals, for ever.
pub(crate) async fn beat(mut file: FileWriter, interval: Duration) {
    let mut beats = tokio::time::interval(interval);
    // After a pause one beat is enough.
    beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failed: u64 = 0;
    loop {
        beats.tick().await;
        match write(&mut file).await {
            Ok(()) => failed = 0,
            Err(cause) => {
                failed += 1;
                if should_log_repeat(failed) {
                    error!("{cause}{repeated}", repeated = api::times(failed));
                }
            }
        }
    }
}

/// Writes it once.
pub(crate) async fn write(file: &mut FileWriter) -> Result<(), String> {
    let result = file.touch(b"ok").await;
    result.map_err(|cause| {
        format!(
            "cannot write health file {}: {cause}",
            file.path().display()
        )
    })
}

/// Tolerance for a modification time in the future.
const AHEAD: Duration = Duration::from_secs(1);

/// `probe`: checks that the file was modified lately.
///
/// # Errors
/// The file was not, or the flags are invalid.
pub(crate) fn probe(flags: &ProbeFlags) -> Result<(), Failure> {
    let ProbeFlags {
        probe_path,
        interval,
        ..
    } = flags;
    if probe_path.as_os_str().is_empty() {
        return Err(Failure::usage("cannot probe: --probe-path is empty"));
    }
    if interval.is_zero() {
        return Err(Failure::usage("cannot probe: --interval is 0"));
    }
    let no = |cause: String| {
        let path = probe_path.display();
        Failure::failed(format!("cannot find {path} healthy: {cause}"))
    };
    let changed = std::fs::metadata(probe_path)
        .and_then(|file| file.modified())
        .map_err(|cause| no(cause.to_string()))?;
    match changed.elapsed() {
        Ok(age) if age > *interval => Err(no(format!("changed {} s ago", age.as_secs()))),
        // Clocks of file systems are coarse; a time further in the future is no recent write.
        Err(ahead) if ahead.duration() > AHEAD => Err(no("changed in the future".to_owned())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::cli::LogFlags;
    use crate::exit::Exit;

    /// Without an interval no file is written, and one of that name used to be removed at the end.
    #[tokio::test]
    async fn a_file_that_is_not_written_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("health");
        for interval in [0, 1] {
            let shared = Shared::new();
            let every = Duration::from_secs(interval);
            std::fs::write(&path, "of another program").unwrap();
            let beats = first_beat(&shared, path.to_str().unwrap(), every)
                .await
                .unwrap();
            assert_eq!(beats.is_some(), interval > 0);
            shared.run_shutdown_hooks().await;
            assert_eq!(path.exists(), interval == 0);
        }
    }

    #[test]
    fn one_flag_without_the_other_is_told() {
        let second = Duration::from_secs(1);
        for (file, interval, expected) in [
            ("", Duration::ZERO, None),
            ("/health", second, None),
            (
                "/health",
                Duration::ZERO,
                Some("--healthCheckFile has no effect: --healthCheckInterval is 0"),
            ),
            (
                "",
                second,
                Some("--healthCheckInterval has no effect: there is no --healthCheckFile"),
            ),
        ] {
            assert_eq!(without_effect(file, interval), expected);
        }
    }

    #[tokio::test]
    async fn a_probe_asks_for_the_files_age() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("health");
        let ask = |path: &PathBuf, interval: u64| {
            let flags = ProbeFlags {
                probe_path: path.clone(),
                interval: Duration::from_secs(interval),
                log: LogFlags::default(),
            };
            probe(&flags).map_err(|failure| failure.exit)
        };
        assert_eq!(ask(&path, 5), Err(Exit::Failed));
        write(&mut FileWriter::new(path.clone())).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"ok");
        assert_eq!(ask(&path, 5), Ok(()));
        let old = SystemTime::now() - Duration::from_secs(60);
        std::fs::File::open(&path)
            .unwrap()
            .set_modified(old)
            .unwrap();
        assert_eq!(ask(&path, 5), Err(Exit::Failed));
        assert_eq!(ask(&path, 120), Ok(()));
        let new = SystemTime::now() + Duration::from_secs(60);
        std::fs::File::open(&path)
            .unwrap()
            .set_modified(new)
            .unwrap();
        assert_eq!(ask(&path, 120), Err(Exit::Failed));
        assert_eq!(ask(&path, 0), Err(Exit::Usage));
        assert_eq!(ask(&PathBuf::new(), 5), Err(Exit::Usage));
    }
}
