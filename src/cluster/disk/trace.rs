//! What a path goes through, as far as it answers: when one of its names is something else, it leads elsewhere.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::STACK;

/// Links that the kernel follows at most (`path_resolution(7)`).
const MOST_LINKS: usize = 40;

/// What a name was, links not followed: device, inode, and when it was changed. Of a directory the time says nothing.
type Mark = (u64, u64, Option<(i64, i64)>);

/// A name, and what it was.
#[derive(Clone, Debug)]
pub(super) struct Step(PathBuf, Option<Mark>);

impl Step {
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
pub(super) struct Trace(Mutex<Vec<Step>>);

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

    pub(super) fn steps(&self) -> Vec<Step> {
        let steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        steps.clone()
    }

    fn follow(&self, path: &Path) {
        let Ok(path) = std::path::absolute(path) else {
            return;
        };
        let mut folder = PathBuf::from("/");
        let mut rest = names(&path);
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                folder.pop();
                continue;
            }
            let next = folder.join(&name);
            let step = Step(next.clone(), mark(&next));
            let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            steps.push(step);
            drop(steps);
            let Ok(target) = fs::read_link(&next) else {
                folder = next;
                continue;
            };
            links += 1;
            if links > MOST_LINKS {
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
}

fn names(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}
