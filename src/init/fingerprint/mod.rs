//! The content of the watched files, as one hash: only a different one is a new configuration.
//!
//! The hash covers names, kinds, lengths and bytes, never times, inodes or link targets (but for what is too large to be
//! read), so that touching, re-linking or rewriting the same bytes changes nothing. Every record begins with a tag and
//! every variable part with its length, so two different trees cannot feed the hash the same bytes. Only regular files are
//! opened, and nothing is waited for.
//!
//! A path that cannot be read is no change: its last hash is remembered, and counts until the path can be read again. So does
//! the last hash of a watched path that has gone; but a file that leaves a watched directory is a change of the directory.

#![forbid(unsafe_code)]

mod record;
mod walk;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::regular;
use crate::supervisor::Fingerprint;
use record::Record;
use walk::Walk;
pub(crate) use walk::{MAX_DEPTH, MAX_FILES};

/// Names read of one directory. Chosen: they are sorted in memory.
const MAX_LISTED: usize = 16 * 1024;
/// Bytes that are hashed in one turn. Chosen: a millisecond or two, so that signals and probes do not wait.
const SLICE_BYTES: usize = 256 * 1024;

/// One look at the watched paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    pub fingerprint: Fingerprint,
    /// Every `required` path is there and non-empty.
    pub complete: bool,
}

/// The watched paths, and their content when they were read last.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    required: Vec<PathBuf>,
    memory: Memory,
    walk: Option<Box<Walk>>,
    /// The paths that the last walk found changed: `: FILE, FILE`, or nothing.
    changed: String,
    expiry: [Option<(u64, PathBuf)>; 2],
}

/// The records with which the next walk is compared.
#[derive(Debug, Default)]
struct Memory {
    known: Vec<Record>,
    /// Warnings already given: keys of paths that could not be read, and that there is too much.
    unreadable: Vec<u64>,
    exceeded: bool,
    /// Seconds since 1970, once certificates are looked into.
    now: Option<u64>,
    /// The last walk found all there.
    all_there: bool,
}

impl Files {
    /// Watches `paths`, in the order given.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>, required: Vec<PathBuf>) -> Self {
        Self {
            paths,
            required,
            memory: Memory::default(),
            walk: None,
            changed: String::new(),
            expiry: [None, None],
        }
    }

    /// Reads all at once.
    #[cfg(test)]
    pub fn scan(&mut self) -> Scan {
        loop {
            if let Some(scan) = self.advance() {
                return scan;
            }
        }
    }

    /// Reads a slice; the next one of the walk that goes on, or the first. Returns what the walk has found at its end.
    #[inline(never)]
    pub fn advance(&mut self) -> Option<Scan> {
        // Asked before the hash: a file that appears in between is hashed but not required yet, and its event follows.
        let required = &self.required;
        let begin = || Box::new(Walk::new(required.iter().all(|path| is_filled(path))));
        let mut walk = self.walk.take().unwrap_or_else(begin);
        let mut cost = 0;
        while cost < SLICE_BYTES {
            match walk.step(&self.paths, &mut self.memory) {
                Some(more) => cost += more,
                None => return Some(self.finish(*walk)),
            }
        }
        self.walk = Some(walk);
        None
    }

    /// Whether a walk goes on.
    #[must_use]
    pub const fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// From now on certificates are looked into: `now` says, in seconds since 1970, which of them have ended. Not at the start,
    /// which is in a hurry.
    pub const fn look_for_certificates(&mut self, now: u64) {
        self.memory.now = Some(now);
    }

    /// The certificate that ends first, of those that had ended, if there is one, and of the others: when, in seconds since 1970,
    /// and its file.
    pub fn expiry(&self) -> impl Iterator<Item = &(u64, PathBuf)> {
        self.expiry.iter().flatten()
    }

    /// The files that the last walk found changed, for a line of the log: `: FILE, FILE`, or nothing.
    #[must_use]
    pub fn changed(&self) -> &str {
        &self.changed
    }

    /// Whether the last walk has found `path` there; `false`: it was not looked for, or something is missing.
    #[must_use]
    pub fn saw(&self, path: &Path) -> bool {
        let mut paths = self.paths.iter();
        self.memory.all_there && paths.any(|known| known.as_os_str() == path.as_os_str())
    }

    fn finish(&mut self, walk: Walk) -> Scan {
        let fingerprint = Fingerprint(walk.finish());
        let complete = walk.complete;
        self.changed = walk.told();
        self.expiry = walk.expiry;
        self.memory.all_there = walk.all_there;
        self.memory.known = walk.found;
        self.memory.known.shrink_to_fit();
        self.memory.unreadable = walk.unreadable;
        self.memory.exceeded = walk.exceeded;
        Scan {
            fingerprint,
            complete,
        }
    }
}

/// One look at `paths`, by somebody who has not seen them before.
#[cfg(test)]
pub(crate) fn scan(paths: &[PathBuf], required: &[PathBuf]) -> Scan {
    crate::log::be_quiet();
    Files::new(paths.to_vec(), required.to_vec()).scan()
}

/// The names in a directory that count, sorted; at most `left` of them, which it lowers.
///
/// Kubelet's `..data` and `..<time>` are left out: they say how the files got there, not what they say.
pub(crate) fn entries(directory: &Path, left: &mut usize) -> io::Result<Vec<OsString>> {
    let mut names: Vec<OsString> = Vec::new();
    sys::names(directory, &mut |name| {
        if counts(name) {
            names.push(name.to_owned());
        }
        names.len() < MAX_LISTED
    })?;
    names.sort_unstable();
    names.truncate(*left);
    *left = left.saturating_sub(names.len());
    Ok(names)
}

/// Whether an entry of a watched directory counts.
pub(crate) fn counts(name: &OsStr) -> bool {
    !name.as_bytes().starts_with(b"..")
}

/// There, readable, and with something in it.
fn is_filled(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| {
        found.is_dir() || found.is_file() && found.len() > 0 && regular::open(path).is_ok()
    })
}

#[cfg(test)]
mod tests;
