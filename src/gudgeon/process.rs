//! The parts of the process that every role shares: signals (TERM begins the drain, HUP reloads files), panics, resident memory.

use std::panic::PanicHookInfo;
use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::exit::Failure;
use crate::log;
use crate::tls::expiry;

/// Signals that would silently end the program, and have no meaning here; with Linux's numbers on x86_64 and on aarch64.
const OTHERS: [(i32, &str); 9] = [
    (3, "QUIT"),
    (12, "USR2"),
    (14, "ALRM"),
    (16, "STKFLT"),
    (24, "XCPU"),
    (26, "VTALRM"),
    (27, "PROF"),
    (29, "IO"),
    (30, "PWR"),
];

/// Real-time signals have no names. The first ones may be reserved by the C library.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// Counts the requests to read all files again.
static RELOAD_REQUESTS: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));

/// Counts the panics of the process in all tasks: no caller looks at the end of most tasks.
static PANICS: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Returns the counter of panics, which all roles of a process show.
pub(crate) fn panics() -> Counter {
    PANICS.clone()
}

/// Returns a receiver of requests to read all files again.
pub(crate) fn reload_requests() -> watch::Receiver<u64> {
    RELOAD_REQUESTS.subscribe()
}

/// Requests that all files are read again, even if they look unchanged.
pub(crate) fn request_reload() {
    RELOAD_REQUESTS.send_modify(|count| *count = count.wrapping_add(1));
}

/// The signals that end it.
#[derive(Debug)]
pub(crate) struct ShutdownSignals {
    term: Signal,
    int: Signal,
}

impl ShutdownSignals {
    /// Installs handlers: other signals have their effects from now on, and end nothing. Also starts the watch of expiring
    /// certificates.
    pub(crate) fn new() -> Result<Self, Failure> {
        let of = |kind| {
            signal(kind).map_err(|cause| Failure::system(format!("cannot handle signals: {cause}")))
        };
        tokio::spawn(each(of(SignalKind::hangup())?, || {
            info!("received SIGHUP: reading all files again");
            request_reload();
        }));
        tokio::spawn(reopen(of(SignalKind::user_defined1())?));
        for (number, name) in OTHERS {
            let ignore = move || info!("ignoring signal {name}");
            tokio::spawn(each(of(SignalKind::from_raw(number))?, ignore));
        }
        for number in REAL_TIME {
            let ignore = move || info!("ignoring signal {number}");
            if let Ok(signal) = signal(SignalKind::from_raw(number)) {
                tokio::spawn(each(signal, ignore));
            }
        }
        tokio::spawn(expiry::watch());
        Ok(Self {
            term: of(SignalKind::terminate())?,
            int: of(SignalKind::interrupt())?,
        })
    }

    /// The next of them.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// Opens the log again whenever it is asked for.
async fn reopen(mut signal: Signal) {
    let mut log = log::Reopening::new();
    while signal.recv().await.is_some() {
        let (opened, wrong) = log.reopen().await;
        for cause in &wrong {
            warn!("received SIGUSR1: {cause}; the log stays where it was");
        }
        match (opened, wrong.len()) {
            (0, 0) => info!("received SIGUSR1: the log goes to no file"),
            (0, _) => {}
            _ => info!("received SIGUSR1: reopened the log"),
        }
    }
}

async fn each(mut signal: Signal, act: impl Fn() + Send) {
    while signal.recv().await.is_some() {
        act();
    }
}

/// Counts panics, and logs a line for each.
pub(crate) fn watch_panics() {
    std::panic::set_hook(Box::new(note_panic));
}

/// The line has no message, which may contain a secret.
fn note_panic(panic: &PanicHookInfo<'_>) {
    PANICS.inc();
    match panic.location() {
        Some(place) => error!("panic at {}:{}", place.file(), place.line()),
        None => error!("panic"),
    }
}

/// Returns the resident memory in bytes (VmRSS), if there is a /proc.
pub(crate) fn resident() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: i64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_a_task_that_nobody_awaits_is_counted() {
        let default_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            note_panic(panic);
            // Other tests fail with their words.
            default_hook(panic);
        }));
        let before = panics().get();
        let (ends, ended) = tokio::sync::oneshot::channel::<()>();
        drop(tokio::spawn(async move {
            let _ends = ends;
            panic!("a mistake")
        }));
        assert!(ended.await.is_err());
        assert!(panics().get() > before);
    }
}
