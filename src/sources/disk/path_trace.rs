//! The names that a path goes through, as far as they answer: when one of them becomes another file, the path leads
//! elsewhere.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::STACK;

/// Links that the kernel follows at most (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// The identity of a name, links not followed: device, inode, and the time of its change. The time of a directory does not
/// matter.
type Mark = (u64, u64, Option<(i64, i64)>);

/// A name, with its identity at the time.
#[derive(Clone, Debug)]
pub(super) struct TraceStep(PathBuf, Option<Mark>);

impl TraceStep {
    pub(super) fn is_same(&self) -> bool {
        mark(&self.0) == self.1
    }
}

fn mark(path: &Path) -> Option<Mark> {
    let data = fs::symlink_metadata(path).ok()?;
    let changed = (!data.is_dir()).then(|| (data.ctime(), data.ctime_nsec()));
    Some((data.dev(), data.ino(), changed))
}

/// Filled by a thread of its own, which hangs where the path does.
#[derive(Debug, Default)]
pub(super) struct Trace {
    way: Mutex<TracedPath>,
    ends: Condvar,
}

#[derive(Debug, Default)]
struct TracedPath {
    steps: Vec<TraceStep>,
    /// The name that is looked up at this moment.
    at: Option<PathBuf>,
    has_ended: bool,
}

impl Trace {
    pub(super) fn start(path: &Path) -> Arc<Self> {
        let this = Arc::new(Self::default());
        let (shared, path) = (Arc::clone(&this), path.to_path_buf());
        let builder = thread::Builder::new().name("disk".to_owned());
        // Without it the path is tried again after a while all the same.
        let _started = builder
            .stack_size(STACK)
            .spawn(move || shared.follow(&path));
        this
    }

    fn way(&self) -> MutexGuard<'_, TracedPath> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn steps(&self) -> Vec<TraceStep> {
        self.way().steps.clone()
    }

    /// Returns the name that does not answer, by its real directory: every path through it hangs. `None` if each name
    /// answers, and only the target of the last one hangs.
    pub(super) fn stuck(&self) -> Option<PathBuf> {
        self.way().at.clone()
    }

    /// Waits until it is known which name that is, but not for longer than `max`.
    pub(super) fn wait(&self, max: Duration) {
        // Either is as good.
        let _ended_or_not = self
            .ends
            .wait_timeout_while(self.way(), max, |way| !way.has_ended);
    }

    fn follow(&self, path: &Path) {
        each_lookup(path, |name| {
            self.way().at = Some(name.to_path_buf());
            let step = TraceStep(name.to_path_buf(), mark(name));
            self.way().steps.push(step);
            true
        });
        let mut way = self.way();
        way.at = None;
        way.has_ended = true;
        self.ends.notify_all();
    }
}

/// Returns true if the path's resolution passes one of these names.
pub(super) fn passes(path: &Path, names: &BTreeSet<PathBuf>) -> bool {
    let mut is_complete = false;
    if !names.is_empty() {
        each_lookup(path, |name| {
            is_complete |= names.contains(name);
            !is_complete
        });
    }
    is_complete
}

/// Passes each name that the kernel would look up for a path to `go_on`, links followed, until it returns false. A name is
/// passed before it is looked up.
pub fn each_lookup(path: &Path, mut go_on: impl FnMut(&Path) -> bool) {
    let Ok(path) = std::path::absolute(path) else {
        return;
    };
    let mut folder = PathBuf::from("/");
    let mut rest = names(&path);
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        // Links are resolved one by one, so that `folder` is real and its parent is that of the kernel.
        if name == ".." {
            folder.pop();
            continue;
        }
        let next = folder.join(&name);
        if !go_on(&next) {
            return;
        }
        let Ok(target) = fs::read_link(&next) else {
            folder = next;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return;
        }
        if target.is_absolute() {
            folder = PathBuf::from("/");
        }
        let mut ahead = names(&target);
        ahead.append(&mut rest);
        rest = ahead;
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}
