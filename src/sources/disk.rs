//! The file system, called on a thread of its own, so that no caller waits for longer than a deadline: a mount whose server
//! is gone answers no call, not even `stat`.
//!
//! A thread that hangs cannot be ended. It is left behind with the path that it hangs at, that path is an error until the
//! call returns or the path leads elsewhere, and another thread goes on with all the others. Any path through the hanging
//! name is an error as well, without a thread: one dead mount costs one thread, however many links lead there.

mod job;
mod path_trace;
mod timeout;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use job::open_regular;
pub use path_trace::each_lookup;
use path_trace::{Trace, TraceStep};
use timeout::DiskTimeout;

/// The deadline of one system call: a disk that spins up, or a network's retry, takes less. An update has 2 s in all.
const CALL: Duration = Duration::from_secs(1);
/// Checks of a pending call within `CALL`: a path hangs if so many in a row see no progress.
const PARTS: u32 = 4;
/// The deadline of one file, 16 MiB from a card of 2 MB a second; or of one directory.
const FILE: Duration = Duration::from_secs(10);
/// Paths that may hang, with two threads each that hold some kilobytes.
const MAX_HANGING: usize = 16;
/// The first delay before a path that leads to the same hanging name is tried again, doubled each time: the mount may have
/// been removed, or was exchanged in the moment in which it began to hang.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(2);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(600);
/// Abandoned threads: at this number no path is retried before one of them returns.
const MAX_ABANDONED: usize = 32;
/// The first pause of a path that was too slow, longer each time; shorter than that of a hanging one, because no check tells
/// whether it leads to another file by now.
const SLOW: Duration = Duration::from_secs(60);
/// Paths that are known to be slow.
const MAX_SLOW: usize = 256;
/// The time for which a slow path is remembered that is read no more. Longer than from one look at files to the next.
const UNREAD: Duration = Duration::from_secs(120);
/// The bytes that one call reads.
const CHUNK: usize = 64 << 10;
/// Stack bytes of a thread, for a path and its buffers.
const STACK: usize = 128 << 10;

/// A name in a directory.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) name: OsString,
    pub(crate) is: FileKind,
}

/// The kind of a name, links followed.
#[derive(Debug)]
pub(crate) enum FileKind {
    /// The metadata; for a link, also the directory of its target.
    Known(Metadata, Option<PathBuf>),
    /// A dangling link.
    Dangling,
    /// The kind cannot be found out now, for this reason.
    Unknown(String),
}

/// A call of the file system.
#[derive(Clone, Debug)]
enum Call {
    Stat,
    /// Lists a directory, at most so many names.
    List(usize),
    /// Reads a file, at most so many bytes.
    Read(usize),
    /// Compares these names with their earlier state.
    Same(Vec<TraceStep>),
}

#[derive(Debug)]
enum Reply {
    Stat(Metadata),
    List(Vec<Name>),
    /// The content and the metadata at the time of opening. A file beyond the limit yields one byte more than the limit.
    Read(Vec<u8>, Metadata),
    Same(bool),
}

#[derive(Debug)]
struct Job {
    path: PathBuf,
    call: Call,
    /// Names that hang already, and are not touched.
    hanging: BTreeSet<PathBuf>,
    /// The deadline of the whole job.
    within: Duration,
}

/// The progress of a thread.
#[derive(Debug, Default)]
struct Progress {
    calls: AtomicU64,
    at: Mutex<PathBuf>,
    has_ended: AtomicBool,
}

impl Progress {
    /// The next call of the kernel is for this path.
    fn at(&self, path: &Path) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        if *at != path {
            path.clone_into(&mut at);
        }
        drop(at);
        self.goes_on();
    }

    fn goes_on(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn path(&self) -> PathBuf {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.clone()
    }
}

#[derive(Debug)]
struct Worker {
    jobs: SyncSender<Job>,
    answers: Receiver<io::Result<Reply>>,
    progress: Arc<Progress>,
}

/// The file system.
#[derive(Debug)]
pub struct Disk {
    worker: Option<Worker>,
    hanging: BTreeMap<PathBuf, HungPath>,
    /// The threads that were left behind.
    left: Vec<Arc<Progress>>,
    /// Paths that were tried again, with their next delay.
    tried: BTreeMap<PathBuf, Duration>,
    /// Paths that were too slow: the end of their pause, and its length.
    slow: BTreeMap<PathBuf, (Instant, Duration)>,
    within: Duration,
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

/// A path that did not answer.
#[derive(Debug)]
struct HungPath {
    progress: Arc<Progress>,
    trace: Arc<Trace>,
    since: Instant,
    /// The delay before the next try.
    again: Duration,
}

impl Disk {
    /// A file system without known hanging paths.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            worker: None,
            hanging: BTreeMap::new(),
            left: Vec::new(),
            tried: BTreeMap::new(),
            slow: BTreeMap::new(),
            within: FILE,
        }
    }

    /// Returns true if a path hangs or is slow at present: the caller should retry soon.
    pub(crate) fn hangs(&self) -> bool {
        !self.hanging.is_empty() || !self.slow.is_empty()
    }

    /// The metadata of a path, links followed.
    ///
    /// # Errors
    /// The path does not exist, or does not answer.
    pub fn stat(&mut self, path: &Path) -> io::Result<Metadata> {
        match self.submit(path, &Call::Stat)? {
            Reply::Stat(data) => Ok(data),
            Reply::List(_) | Reply::Read(..) | Reply::Same(_) => Err(io::ErrorKind::Other.into()),
        }
    }

    /// The names in a directory that are not hidden, sorted.
    pub(crate) fn list(&mut self, folder: &Path, max: usize) -> io::Result<Vec<Name>> {
        match self.submit(folder, &Call::List(max))? {
            Reply::List(names) => Ok(names),
            Reply::Stat(_) | Reply::Read(..) | Reply::Same(_) => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Reads a regular file, up to one byte more than the limit.
    ///
    /// # Errors
    /// The file is not regular, cannot be read, or does not answer.
    pub fn read(&mut self, path: &Path, max: usize) -> io::Result<(Vec<u8>, Metadata)> {
        match self.submit(path, &Call::Read(max))? {
            Reply::Read(bytes, data) => Ok((bytes, data)),
            Reply::Stat(_) | Reply::List(_) | Reply::Same(_) => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Ends the idle thread until the next call.
    pub fn rest(&mut self) {
        self.worker = None;
        self.tried.clear();
    }

    /// Forgets slow paths that were not read for a while: a file that is gone is slow no more.
    fn forget_unread(&mut self, now: Instant) {
        self.slow
            .retain(|_, (until, wait)| now < *until + wait.saturating_add(UNREAD));
    }

    /// Retries hanging paths that lead elsewhere by now.
    pub fn begin(&mut self) {
        self.forget_unread(Instant::now());
        let traces = self.hanging.iter();
        let mut changed = Vec::new();
        let retries: Vec<_> = traces
            .map(|(path, hanging)| {
                let is_due = hanging.since.elapsed() > hanging.again;
                (path.clone(), hanging.trace.steps(), is_due, hanging.again)
            })
            .collect();
        for (path, steps, is_due, again) in retries {
            // Without a trace, or if the look itself fails, nothing shows that the path leads elsewhere.
            let is_same = steps.is_empty()
                || !matches!(
                    self.submit(&path, &Call::Same(steps)),
                    Ok(Reply::Same(false))
                );
            if !is_same {
                changed.push(path);
            } else if is_due && self.left.len() < MAX_ABANDONED {
                let next = again.saturating_mul(2).min(MAX_RETRY_DELAY);
                self.tried.insert(path.clone(), next);
                changed.push(path);
            }
        }
        if !changed.is_empty() {
            self.hanging.retain(|path, _| !changed.contains(path));
        }
    }

    fn submit(&mut self, path: &Path, call: &Call) -> io::Result<Reply> {
        loop {
            self.forget_ended();
            // `Same` asks about a path that hangs, by names that answered before.
            if !matches!(call, Call::Same(_)) {
                if self.hanging.contains_key(path) {
                    return Err(DiskTimeout::Hangs.into());
                }
                if self.is_slow(path) {
                    return Err(DiskTimeout::Slow(self.within).into());
                }
            }
            if let Some(answer) = self.once(path, call)? {
                self.remember(path, call, &answer);
                return answer;
            }
            // A name in a directory hangs: the directory is read again without it.
        }
    }

    /// Returns true if a recent read of the path took too long.
    fn is_slow(&self, path: &Path) -> bool {
        let slow = self.slow.get(path);
        slow.is_some_and(|(until, _)| Instant::now() < *until)
    }

    /// Remembers a path whose call took too long, and forgets a path that was read to its end.
    fn remember(&mut self, path: &Path, call: &Call, answer: &io::Result<Reply>) {
        match answer {
            // Through a name that hangs, which is known elsewhere.
            Err(error) if DiskTimeout::of(error) == Some(DiskTimeout::Hangs) => {}
            // The system's own timeout as well: that of a network's mount.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let before = self.slow.get(path).map(|(_, wait)| *wait);
                let wait = before.map_or(MIN_RETRY_DELAY, |wait| wait.saturating_mul(2).min(SLOW));
                if self.slow.len() >= MAX_SLOW && before.is_none() {
                    self.slow.pop_first();
                }
                let until = Instant::now() + wait;
                self.slow.insert(path.to_path_buf(), (until, wait));
            }
            // Its kind alone is known fast.
            Ok(_) if matches!(call, Call::Stat | Call::Same(_)) => {}
            Ok(_) | Err(_) => {
                self.slow.remove(path);
            }
        }
    }

    /// The paths that hang, and the names that they hang at.
    fn skipped(&self) -> BTreeSet<PathBuf> {
        let paths = self.hanging.keys().cloned();
        let stuck = self.hanging.values();
        paths
            .chain(stuck.filter_map(|hanging| hanging.trace.stuck()))
            .collect()
    }

    /// Makes one attempt; `None` if another path hangs.
    fn once(&mut self, path: &Path, call: &Call) -> io::Result<Option<io::Result<Reply>>> {
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None if self.hanging.len() < MAX_HANGING => Worker::start()?,
            None => return Err(DiskTimeout::TooManyHang.into()),
        };
        let job = Job {
            path: path.to_path_buf(),
            call: call.clone(),
            hanging: self.skipped(),
            within: self.within,
        };
        if worker.jobs.send(job).is_err() {
            return Err(io::Error::other("the thread that reads has ended"));
        }
        let mut calls = worker.progress.calls.load(Ordering::Relaxed);
        let mut still = 0;
        loop {
            match worker.answers.recv_timeout(CALL / PARTS) {
                Ok(answer) => {
                    self.worker = Some(worker);
                    return Ok(Some(answer));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the thread that reads has ended"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = worker.progress.calls.load(Ordering::Relaxed);
            // A thread that still makes calls is slow and not stuck: the job's own deadline ends it.
            still = if now == calls { still + 1 } else { 0 };
            calls = now;
            if still < PARTS {
                continue;
            }
            let at = worker.progress.path();
            let is_it = at == path;
            let hanging = HungPath {
                progress: Arc::clone(&worker.progress),
                trace: Trace::start(&at),
                since: Instant::now(),
                again: self.tried.remove(&at).unwrap_or(MIN_RETRY_DELAY),
            };
            // The worker is dropped with its channels, so that its thread ends as soon as the call returns.
            self.left.push(Arc::clone(&worker.progress));
            // The next job skips the stuck name, which must be known by then.
            hanging.trace.wait(CALL / PARTS);
            self.hanging.insert(at, hanging);
            return match is_it {
                true => Err(DiskTimeout::Hangs.into()),
                false => Ok(None),
            };
        }
    }

    fn forget_ended(&mut self) {
        self.left
            .retain(|progress| !progress.has_ended.load(Ordering::Acquire));
        self.hanging
            .retain(|_, hanging| !hanging.progress.has_ended.load(Ordering::Acquire));
    }
}

impl Worker {
    fn start() -> io::Result<Self> {
        let (jobs, asked) = sync_channel::<Job>(1);
        let (answer, answers) = sync_channel(1);
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        let work = move || {
            let ends = EndedOnDrop(shared);
            let mut buffer = vec![0; CHUNK];
            while let Ok(job) = asked.recv() {
                let done = job.work(&ends.0, &mut buffer);
                if answer.send(done).is_err() {
                    return;
                }
            }
        };
        let builder = thread::Builder::new().name("disk".to_owned());
        builder.stack_size(STACK).spawn(work)?;
        Ok(Self {
            jobs,
            answers,
            progress,
        })
    }
}

/// Marks the thread as ended when dropped, after a panic as well.
struct EndedOnDrop(Arc<Progress>);

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
