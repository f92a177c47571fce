//! The file system, asked on a thread of its own, so that nobody waits for longer than a deadline: a mount whose server is
//! gone answers no call, not even that for a name's kind.
//!
//! A thread that hangs cannot be ended. It is left behind with the path that it hangs at, that path is an error until the
//! call returns or the path leads elsewhere, and another thread goes on with all the others.

mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use trace::{Step, Trace};

/// One call of the kernel: a disk that spins up, or a network's retry, takes less. An update has 2 s in all.
const CALL: Duration = Duration::from_secs(1);
/// So often it is looked whether a call has returned meanwhile.
const PARTS: u32 = 4;
/// All of one file: 16 MiB from a card of 2 MB a second.
const FILE: Duration = Duration::from_secs(10);
/// Paths that may hang, with two threads each that hold some kilobytes.
const MOST_HANGING: usize = 16;
/// What leads to the same is tried once more after so long, and then after twice as long each time: a mount may have been taken
/// off it, or it was exchanged in the moment in which it began to hang.
const AGAIN: Duration = Duration::from_secs(2);
const SELDOM: Duration = Duration::from_secs(600);
/// Threads that were left behind: with so many nothing is tried once more before one comes back.
const MOST_LEFT: usize = 32;
/// What is read by one call.
const CHUNK: usize = 64 << 10;
/// For a path and its buffers.
const STACK: usize = 128 << 10;

/// The words of a path that does not answer.
const HANGS: &str = "reading it hangs";

/// A name in a directory.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) name: OsString,
    pub(crate) is: Is,
}

/// What a name stands for, links followed.
#[derive(Debug)]
pub(crate) enum Is {
    /// And for a link, the directory of what it leads to.
    Known(Metadata, Option<PathBuf>),
    /// A link that leads nowhere at this moment.
    Dangling,
    /// Nobody can say at this moment, and why.
    Unknown(String),
}

/// What is asked for.
#[derive(Clone, Debug)]
enum Call {
    Stat,
    /// So many names at most.
    List(usize),
    /// So many bytes at most.
    Read(usize),
    /// Whether these names are what they were.
    Same(Vec<Step>),
}

#[derive(Debug)]
enum Answer {
    Stat(Metadata),
    List(Vec<Name>),
    /// With what the file was when it was opened; more bytes than were asked for are one more.
    Read(Vec<u8>, Metadata),
    Same(bool),
}

#[derive(Debug)]
struct Job {
    path: PathBuf,
    call: Call,
    /// What hangs already, and is not touched.
    hanging: Arc<BTreeSet<PathBuf>>,
}

/// Where a thread is.
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
    answers: Receiver<io::Result<Answer>>,
    progress: Arc<Progress>,
}

/// The file system.
#[derive(Debug, Default)]
pub struct Disk {
    worker: Option<Worker>,
    hanging: BTreeMap<PathBuf, Hanging>,
    /// The paths of those.
    skipped: Option<Arc<BTreeSet<PathBuf>>>,
    /// All threads that were left behind.
    left: Vec<Arc<Progress>>,
    /// What is tried once more, and when it would be the next time.
    tried: BTreeMap<PathBuf, Duration>,
}

/// A path that did not answer.
#[derive(Debug)]
struct Hanging {
    progress: Arc<Progress>,
    trace: Arc<Trace>,
    since: Instant,
    /// When it is tried once more.
    again: Duration,
}

impl Disk {
    /// Nothing is known to hang.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            worker: None,
            hanging: BTreeMap::new(),
            skipped: None,
            left: Vec::new(),
            tried: BTreeMap::new(),
        }
    }

    /// Whether something does not answer at this moment: it is to be asked again soon.
    pub(crate) fn hangs(&self) -> bool {
        !self.hanging.is_empty()
    }

    /// What there is at a path, links followed.
    ///
    /// # Errors
    /// Nothing, or it does not answer.
    pub fn stat(&mut self, path: &Path) -> io::Result<Metadata> {
        match self.ask(path, &Call::Stat)? {
            Answer::Stat(data) => Ok(data),
            Answer::List(_) | Answer::Read(..) | Answer::Same(_) => {
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    /// What is in a directory and not hidden, by name.
    pub(crate) fn list(&mut self, folder: &Path, most: usize) -> io::Result<Vec<Name>> {
        match self.ask(folder, &Call::List(most))? {
            Answer::List(names) => Ok(names),
            Answer::Stat(_) | Answer::Read(..) | Answer::Same(_) => {
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    /// What a regular file holds, up to one byte more than so many.
    ///
    /// # Errors
    /// It is none, cannot be read, or does not answer.
    pub fn read(&mut self, path: &Path, most: usize) -> io::Result<(Vec<u8>, Metadata)> {
        match self.ask(path, &Call::Read(most))? {
            Answer::Read(bytes, data) => Ok((bytes, data)),
            Answer::Stat(_) | Answer::List(_) | Answer::Same(_) => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Nothing is asked for a while: no thread waits for it.
    pub fn rest(&mut self) {
        self.worker = None;
        self.tried.clear();
    }

    /// Looks once more at what has hung and leads elsewhere by now.
    pub fn begin(&mut self) {
        let traces = self.hanging.iter();
        let mut changed = Vec::new();
        let known: Vec<_> = traces
            .map(|(path, hanging)| {
                let is_due = hanging.since.elapsed() > hanging.again;
                (path.clone(), hanging.trace.steps(), is_due, hanging.again)
            })
            .collect();
        for (path, steps, is_due, again) in known {
            let is_same = steps.is_empty()
                || !matches!(self.ask(&path, &Call::Same(steps)), Ok(Answer::Same(false)));
            if !is_same {
                changed.push(path);
            } else if is_due && self.left.len() < MOST_LEFT {
                let next = again.saturating_mul(2).min(SELDOM);
                self.tried.insert(path.clone(), next);
                changed.push(path);
            }
        }
        if !changed.is_empty() {
            self.hanging.retain(|path, _| !changed.contains(path));
            self.skipped = None;
        }
    }

    fn ask(&mut self, path: &Path, call: &Call) -> io::Result<Answer> {
        loop {
            self.forget_ended();
            if !matches!(call, Call::Same(_)) && self.hanging.contains_key(path) {
                return Err(hangs());
            }
            if let Some(answer) = self.once(path, call)? {
                return answer;
            }
            // A name in a directory hangs: the directory is read again without it.
        }
    }

    /// `None`: something else than what was asked for hangs.
    fn once(&mut self, path: &Path, call: &Call) -> io::Result<Option<io::Result<Answer>>> {
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None if self.hanging.len() < MOST_HANGING => Worker::start()?,
            None => {
                let words = format!("{MOST_HANGING} files hang: no other is read");
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
        };
        let skipped = self
            .skipped
            .get_or_insert_with(|| Arc::new(self.hanging.keys().cloned().collect()));
        let job = Job {
            path: path.to_path_buf(),
            call: call.clone(),
            hanging: Arc::clone(skipped),
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
            still = if now == calls { still + 1 } else { 0 };
            calls = now;
            if still < PARTS {
                continue;
            }
            let at = worker.progress.path();
            let is_it = at == path;
            let hanging = Hanging {
                progress: Arc::clone(&worker.progress),
                trace: Trace::start(&at),
                since: Instant::now(),
                again: self.tried.remove(&at).unwrap_or(AGAIN),
            };
            self.left.push(Arc::clone(&worker.progress));
            self.hanging.insert(at, hanging);
            self.skipped = None;
            return if is_it { Err(hangs()) } else { Ok(None) };
        }
    }

    fn forget_ended(&mut self) {
        let before = self.hanging.len();
        self.left
            .retain(|progress| !progress.has_ended.load(Ordering::Acquire));
        self.hanging
            .retain(|_, hanging| !hanging.progress.has_ended.load(Ordering::Acquire));
        if self.hanging.len() != before {
            self.skipped = None;
        }
    }
}

fn hangs() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, HANGS)
}

impl Worker {
    fn start() -> io::Result<Self> {
        let (jobs, asked) = sync_channel::<Job>(1);
        let (answer, answers) = sync_channel(1);
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        let work = move || {
            let ends = Ends(shared);
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

/// Says that a thread has ended, however it did.
struct Ends(Arc<Progress>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
    }
}

impl Job {
    fn work(&self, progress: &Progress, buffer: &mut [u8]) -> io::Result<Answer> {
        progress.at(&self.path);
        match &self.call {
            Call::Stat => fs::metadata(&self.path).map(Answer::Stat),
            Call::List(most) => self.list(*most, progress).map(Answer::List),
            Call::Read(most) => self.read(*most, progress, buffer),
            Call::Same(steps) => Ok(Answer::Same(steps.iter().all(Step::is_same))),
        }
    }

    fn list(&self, most: usize, progress: &Progress) -> io::Result<Vec<Name>> {
        let mut names = Vec::new();
        let mut seen = 0_usize;
        for entry in fs::read_dir(&self.path)? {
            progress.goes_on();
            let entry = entry?;
            seen = seen.saturating_add(1);
            if seen > most {
                return Err(io::Error::other(format!("more than {most} names")));
            }
            let name = entry.file_name();
            if !name.as_encoded_bytes().starts_with(b".") {
                names.push(name);
            }
        }
        names.sort();
        let named = names.into_iter().filter_map(|name| {
            let is = self.is(&self.path.join(&name), progress)?;
            Some(Name { name, is })
        });
        Ok(named.collect())
    }

    /// `None`: it is gone meanwhile.
    fn is(&self, path: &Path, progress: &Progress) -> Option<Is> {
        if self.hanging.contains(path) {
            return Some(Is::Unknown(HANGS.to_owned()));
        }
        progress.at(path);
        let is_link = fs::symlink_metadata(path).ok()?.is_symlink();
        let Ok(data) = fs::metadata(path) else {
            return Some(Is::Dangling);
        };
        let folder = match is_link && data.is_file() {
            true => fs::canonicalize(path).ok(),
            false => None,
        };
        let folder = folder.as_deref().and_then(Path::parent);
        Some(Is::Known(data, folder.map(Path::to_path_buf)))
    }

    fn read(&self, most: usize, progress: &Progress, buffer: &mut [u8]) -> io::Result<Answer> {
        let begin = Instant::now();
        let mut file = open(&self.path)?;
        let data = file.metadata()?;
        let mut bytes = Vec::new();
        while bytes.len() <= most {
            progress.goes_on();
            let count = match file.read(buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other("it is read by waiting for it"));
                }
                Err(error) => return Err(error),
            };
            let room = most.saturating_add(1).saturating_sub(bytes.len());
            bytes.extend_from_slice(buffer.get(..count.min(room)).unwrap_or_default());
            if begin.elapsed() > FILE {
                let words = format!("reading it takes more than {} s", FILE.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
        }
        Ok(Answer::Read(bytes, data))
    }
}

/// A regular file, or an error: nobody waits for one who writes into a pipe, and no device is even opened.
fn open(path: &Path) -> io::Result<File> {
    let irregular = || io::Error::other("not a regular file");
    if !fs::metadata(path)?.is_file() {
        return Err(irregular());
    }
    let mut options = OpenOptions::new();
    #[expect(clippy::cast_possible_wrap, reason = "the flags are the kernel's int")]
    let file = options
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    // It may be another one than a moment ago.
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(irregular()),
    }
}

#[cfg(test)]
mod tests;
