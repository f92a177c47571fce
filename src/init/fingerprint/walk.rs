//! One walk over what is watched, in steps: an entry or a few kilobytes at a time, for the loop has others to serve.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::record::{Hash, Record, key, number, of, of_file, tagged};
use super::{Memory, entries};
use crate::{certificate, log, regular};

/// Levels below a watched directory on which files count. Chosen: Kubernetes' volumes have two
/// or three.
pub(crate) const MAX_DEPTH: usize = 8;
/// Files and directories that are read, in all; of more, size and time of change count. Chosen: far above a pod's volumes.
pub(crate) const MAX_FILES: usize = 10_000;
/// Entries that are looked at, in all; it also ends links that lead in circles. Chosen: six times the files.
const MAX_ENTRIES: usize = 64 * 1024;
/// Bytes of a file and in all that are read; of more, size and time of change count. Chosen: a Secret has 1 MiB at most
/// (Kubernetes' limit).
const MAX_FILE_BYTES: u64 = 16 << 20;
const MAX_BYTES: u64 = 256 << 20;
/// Bytes from which on a file with several names is read once. Chosen: smaller ones are read faster than looked up.
const LINKED_BYTES: u64 = 64 * 1024;
/// Files remembered as unreadable. Chosen: more are not reported one by one.
const MAX_UNREADABLE: usize = 64;
/// The cost of looking at an entry, in bytes that could be hashed in that time. Chosen: about one `stat`.
const ENTRY_COST: usize = 1024;
/// Names of changed files in a log line. Chosen: a certificate, its key and its root fit.
const TOLD: usize = 4;
const BUFFER_BYTES: usize = 4096;

/// The walk, as far as it has come.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) complete: bool,
    /// Nothing that was looked for is missing.
    pub(super) all_there: bool,
    pub(super) found: Vec<Record>,
    /// The hash of entries beyond the limits, which were looked at.
    rest: Option<Sha256>,
    /// Those that cannot be read.
    pub(super) unreadable: Vec<u64>,
    pub(super) exceeded: bool,
    /// The differences from the walk before: the first names, and their number.
    told: String,
    changes: usize,
    /// The certificate that ends first, of those that have ended and of the others.
    pub(super) expiry: [Option<(u64, PathBuf)>; 2],
    /// The next of the watched paths.
    next: usize,
    /// From a watched directory down to the one that is being read.
    open: Vec<Directory>,
    reading: Option<Box<Reading>>,
    /// The position in the records of the walk before.
    cursor: usize,
    /// Large files by device and inode.
    links: Vec<(u64, u64, Hash)>,
    pub(super) bytes_left: u64,
    entries_left: usize,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    inode: (u64, u64),
    names: std::vec::IntoIter<OsString>,
    /// The position of its record.
    at: usize,
}

/// A file that is being read.
#[derive(Debug)]
struct Reading {
    path: PathBuf,
    metadata: Metadata,
    file: File,
    hash: Sha256,
    total: u64,
    /// All of it, if it may be a certificate.
    pem: Option<Vec<u8>>,
}

impl Walk {
    pub(super) const fn new(complete: bool) -> Self {
        Self {
            complete,
            all_there: true,
            found: Vec::new(),
            rest: None,
            unreadable: Vec::new(),
            exceeded: false,
            told: String::new(),
            changes: 0,
            expiry: [None, None],
            next: 0,
            open: Vec::new(),
            reading: None,
            cursor: 0,
            links: Vec::new(),
            bytes_left: MAX_BYTES,
            entries_left: MAX_ENTRIES,
        }
    }

    /// A step, and what it has cost; `None`: there is none left.
    pub(super) fn step(&mut self, paths: &[PathBuf], memory: &mut Memory) -> Option<usize> {
        if let Some(reading) = self.reading.take() {
            self.read(reading, memory);
            return Some(BUFFER_BYTES);
        }
        if let Some(directory) = self.open.last_mut() {
            if let Some(name) = directory.names.next() {
                let path = directory.path.join(name);
                self.visit(path, memory, false);
            } else {
                let (at, end) = (directory.at, self.found.len());
                if let Some(record) = self.found.get_mut(at) {
                    record.below = end.saturating_sub(at + 1);
                }
                self.open.pop();
            }
        } else {
            let path = paths.get(self.next)?.clone();
            self.next += 1;
            self.visit(path, memory, true);
        }
        Some(ENTRY_COST)
    }

    pub(super) fn finish(&self) -> Hash {
        let mut hash = Sha256::new();
        for record in &self.found {
            hash.update(record.hash);
        }
        if let Some(rest) = &self.rest {
            hash.update(rest.clone().finalize());
        }
        hash.finalize().into()
    }

    /// Visits the file that `path` leads to. `watched`: it is one of the watched paths itself.
    fn visit(&mut self, path: PathBuf, memory: &mut Memory, watched: bool) {
        // Not opened to find out: opening a device can have effects.
        let found = fs::metadata(&path);
        self.all_there &= found.is_ok();
        match found {
            Ok(found) if found.is_dir() => self.directory(path, &found, memory),
            Ok(found) if found.is_file() => self.file(path, found, memory),
            Ok(_) if watched => {
                let cause = "not a regular file or directory";
                self.unreadable(&path, &cause, b's', memory);
            }
            Ok(_) => self.record(&path, of(b's', &path, &[]), memory),
            Err(error) if !is_gone(&error) => self.unreadable(&path, &error, b'u', memory),
            Err(error) => self.gone(&path, &error, memory),
        }
    }

    fn gone(&mut self, path: &Path, error: &io::Error, memory: &mut Memory) {
        let absent = of(b'a', path, &[]);
        let before = self.locate(key(path), memory);
        let before = before.and_then(|at| memory.known.get(at));
        // What runs goes on where what is watched has gone, also with all that was in it, while it was walked.
        let went = match self.open.last() {
            None => true,
            Some(directory) => fs::metadata(&directory.path).is_err(),
        };
        if went && before.is_some_and(|before| before.hash != absent) {
            self.unreadable(path, error, b'a', memory);
        } else {
            self.record(path, absent, memory);
        }
    }

    fn directory(&mut self, path: PathBuf, found: &Metadata, memory: &mut Memory) {
        let inode = (found.dev(), found.ino());
        // A link that leads back to where it lies would lead there again and again.
        let circle = self.open.iter().any(|open| open.inode == inode);
        if circle || self.open.len() > MAX_DEPTH {
            return self.record(&path, of(b'x', &path, &[]), memory);
        }
        let names = match entries(&path, &mut self.entries_left) {
            Ok(names) => names,
            Err(error) => return self.unreadable(&path, &error, b'u', memory),
        };
        Self::readable(&path, memory);
        if self.entries_left == 0 {
            self.exceed(&path, memory);
        }
        let mut hash = tagged(b'd', &path);
        for name in &names {
            number(&mut hash, name.len());
            hash.update(name.as_bytes());
        }
        let at = self.found.len();
        self.record(&path, hash.finalize().into(), memory);
        let names = names.into_iter();
        self.open.push(Directory {
            path,
            inode,
            names,
            at,
        });
    }

    fn file(&mut self, path: PathBuf, metadata: Metadata, memory: &mut Memory) {
        let length = metadata.len();
        if self.found.len() >= MAX_FILES || length > MAX_FILE_BYTES || length > self.bytes_left {
            self.exceed(&path, memory);
            let time = [metadata.mtime(), metadata.mtime_nsec()].map(i64::cast_unsigned);
            let hash = of(b'b', &path, &[length, time[0], time[1]]);
            return self.record(&path, hash, memory);
        }
        let same = |link: &&(u64, u64, Hash)| (link.0, link.1) == (metadata.dev(), metadata.ino());
        if let Some((_, _, content)) = self.links.iter().find(same) {
            let hash = of_file(&path, length, content);
            return self.record(&path, hash, memory);
        }
        match regular::open(&path) {
            Ok(file) => {
                let small = length <= certificate::MAX_PEM_BYTES;
                self.reading = Some(Box::new(Reading {
                    path,
                    metadata,
                    file,
                    hash: Sha256::new(),
                    total: 0,
                    pem: (memory.now.is_some() && small).then(Vec::new),
                }));
            }
            // Somebody's temporary file, say, since it was looked at.
            Err(error) if is_gone(&error) => {
                self.all_there = false;
                self.gone(&path, &error, memory);
            }
            Err(error) => self.unreadable(&path, &error, b'u', memory),
        }
    }

    /// The next bytes. How many they were in all counts, too: the file may have grown since its length was taken, or have
    /// none to tell, as those of the kernel's own.
    fn read(&mut self, mut reading: Box<Reading>, memory: &mut Memory) {
        let mut buffer = [0; BUFFER_BYTES];
        let read = match reading.file.read(&mut buffer) {
            Ok(read) => buffer.get(..read).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.reading = Some(reading);
                return;
            }
            Err(error) => return self.unreadable(&reading.path, &error, b'u', memory),
        };
        reading.hash.update(read);
        reading.total += read.len() as u64;
        self.bytes_left = self.bytes_left.saturating_sub(read.len() as u64);
        if let Some(pem) = &mut reading.pem {
            pem.extend_from_slice(read);
        }
        let length = reading.metadata.len();
        // What has been added behind it meanwhile is a change that is told.
        let whole = length > 0 && reading.total >= length;
        if read.is_empty() || whole || reading.total >= MAX_FILE_BYTES {
            self.finish_file(*reading, memory);
        } else {
            self.reading = Some(reading);
        }
    }

    fn finish_file(&mut self, reading: Reading, memory: &mut Memory) {
        let Reading {
            path,
            metadata,
            mut hash,
            total,
            ..
        } = reading;
        Self::readable(&path, memory);
        hash.update(total.to_le_bytes());
        let content = hash.finalize().into();
        if total >= LINKED_BYTES {
            self.links.push((metadata.dev(), metadata.ino(), content));
        }
        self.record(&path, of_file(&path, metadata.len(), &content), memory);
        if let (Some(pem), Some(now)) = (reading.pem, memory.now) {
            for (first, at) in self.expiry.iter_mut().zip(certificate::expiry(&pem, now)) {
                if let Some(at) = at
                    && first.as_ref().is_none_or(|(first, _)| at < *first)
                {
                    *first = Some((at, path.clone()));
                }
            }
        }
    }

    /// It cannot be read: what it said before is what it says. `tag`: when nobody knows.
    fn unreadable(&mut self, path: &Path, cause: &dyn Display, tag: u8, memory: &mut Memory) {
        let key = key(path);
        if self.unreadable.len() < MAX_UNREADABLE && !self.unreadable.contains(&key) {
            self.unreadable.push(key);
            if !memory.unreadable.contains(&key) {
                memory.unreadable.push(key);
                let path = path.display();
                log::warning!(
                    "cannot read {path}: {cause}; what it said before counts until it can be read again"
                );
            }
        }
        let Some(at) = self.locate(key, memory) else {
            return self.push(key, of(tag, path, &[]));
        };
        let known = memory.known.get(at..).unwrap_or_default();
        let below = known.first().map_or(0, |record| record.below);
        let same = known.get(..=below).unwrap_or_default();
        self.cursor = at + same.len();
        self.found.extend_from_slice(same);
    }

    /// It was looked at, and this is its hash.
    fn record(&mut self, path: &Path, hash: Hash, memory: &mut Memory) {
        if self.found.len() >= MAX_FILES {
            return self.rest.get_or_insert_default().update(hash);
        }
        let key = key(path);
        let before = self.locate(key, memory);
        if let Some(at) = before {
            self.cursor = at + 1;
        }
        let before = before.and_then(|at| memory.known.get(at));
        let is_first = memory.known.is_empty();
        if !is_first && before.is_none_or(|before| before.hash != hash) {
            self.tell(path);
        }
        self.push(key, hash);
    }

    fn readable(path: &Path, memory: &mut Memory) {
        let key = key(path);
        let before = memory.unreadable.iter().position(|known| *known == key);
        if let Some(at) = before {
            memory.unreadable.swap_remove(at);
            log::info!("{} can be read again", path.display());
        }
    }

    fn push(&mut self, key: u64, hash: Hash) {
        let below = 0;
        self.found.push(Record { key, hash, below });
    }

    /// The first names of what has changed.
    fn tell(&mut self, path: &Path) {
        if self.changes < TOLD {
            self.told
                .push_str(if self.changes == 0 { ": " } else { ", " });
            self.told.push_str(&path.to_string_lossy());
        }
        self.changes += 1;
    }

    /// `: FILE, FILE and 3 more`.
    pub(super) fn told(&self) -> String {
        let mut told = self.told.clone();
        if self.changes > TOLD {
            let more = (self.changes - TOLD).to_string();
            told.push_str(&[" and ", &more, " more"].concat());
        }
        told
    }

    fn exceed(&mut self, path: &Path, memory: &mut Memory) {
        if !self.exceeded && !memory.exceeded {
            let path = path.display();
            log::warning!(
                "more is watched than is read (16 MiB a file, 256 MiB and 10000 files in all): of {path} and what else is beyond, size and time count"
            );
        }
        self.exceeded = true;
    }

    /// Returns the position in the records of the walk before: the order is the same, so it is the next one, mostly.
    fn locate(&self, key: u64, memory: &Memory) -> Option<usize> {
        let (before, after) = memory.known.split_at_checked(self.cursor)?;
        let of = |record: &Record| record.key == key;
        let ahead = after.iter().position(of).map(|at| self.cursor + at);
        ahead.or_else(|| before.iter().position(of))
    }
}

fn is_gone(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log said that it could not be read.
    #[test]
    fn a_file_that_goes_before_it_is_opened_is_gone_and_no_more() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.tmp");
        fs::write(&path, "").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (mut walk, mut memory) = (Walk::new(true), Memory::default());
        walk.open.push(Directory {
            path: root.path().to_owned(),
            inode: (0, 0),
            names: Vec::new().into_iter(),
            at: 0,
        });
        walk.file(path.clone(), metadata, &mut memory);
        assert!(walk.reading.is_none() && memory.unreadable.is_empty());
        assert!(!walk.all_there);
        walk.visit(path, &mut memory, false);
        assert_eq!(walk.found.len(), 2);
        assert!(walk.found[0].hash == walk.found[1].hash);
    }
}
