//! The files of a directory as its reader knows them between two scans: which need not be read again, and which are gone.
//!
//! Files are read one at a time and not kept, so that no sum of them has to be bounded.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tree::{FoundFile, Limits, Stamp, UnreadFile, Visit, Walker};

/// The limits of a walk through a directory of configuration whose files have so many bytes at most.
pub(crate) const fn walk_limits(bytes: usize) -> Limits {
    Limits {
        depth: 64,
        files: 100_000,
        names: 400_000,
        bytes,
    }
}

/// A reader of the files of a directory. Paths are below the directory; empty for the single file of a path.
pub(crate) trait FileReader {
    /// Returns true if a file is to be read, and its content taken, even if it has not changed.
    fn must_read(&self, below: &Path) -> bool;
    /// Takes the content of a file: it is another one than before, or `must_read`.
    fn read(&mut self, below: &Arc<Path>, bytes: &[u8]);
    /// Keeps the objects of a file that cannot be read now. Its next content is taken, even if it equals the last one.
    fn unread(&mut self, below: &Arc<Path>, cause: UnreadFile);
    /// A directory that could not be read, or not to the end. Files below it that were read stay.
    fn unread_folder(&mut self, below: &Path, cause: String);
    /// A file is gone.
    fn remove(&mut self, below: &Path);
}

/// A file as it was last seen.
#[derive(Debug, Default)]
struct KnownFile {
    /// The length and the hash of the file's bytes; `None` if any content is a change.
    content: Option<(usize, u64)>,
    /// The stamp with which the file is not read again.
    stamp: Option<Stamp>,
    /// The number of the last scan that saw the file.
    seen: u64,
}

/// A scan of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileScan {
    /// The directories to watch.
    pub(crate) folders: Vec<PathBuf>,
    /// The number of files, and of those that were read in this scan.
    pub(crate) files: usize,
    pub(crate) read: usize,
    /// A message with the number of files that are left out, if there are too many.
    pub(crate) left_out: Option<String>,
    /// A path does not answer: scan again soon.
    pub(crate) hangs: bool,
}

/// The files of a directory, or one file.
#[derive(Debug)]
pub(crate) struct KnownFiles {
    walker: Walker,
    limits: Limits,
    known: BTreeMap<Arc<Path>, KnownFile>,
    scans: u64,
}

impl KnownFiles {
    /// Reads nothing yet.
    pub(crate) fn new(root: &Path, limits: Limits) -> Self {
        Self {
            walker: Walker::new(root),
            limits,
            known: BTreeMap::new(),
            scans: 0,
        }
    }

    /// Passes on the changes since the last scan.
    ///
    /// # Errors
    ///
    /// The directory cannot be read. Nothing has been passed on.
    pub(crate) fn scan(&mut self, reader: &mut dyn FileReader) -> io::Result<FileScan> {
        self.scans = self.scans.saturating_add(1);
        let mut visit = Visitor {
            known: &mut self.known,
            reader,
            scan: self.scans,
            read: 0,
            unread: Vec::new(),
        };
        let walked = self.walker.walk(self.limits, &mut visit)?;
        // Only a walk that got through tells which files are gone.
        visit.forget();
        let (max, left_out) = (self.limits.files, walked.left_out);
        let read = visit.read;
        Ok(FileScan {
            folders: walked.folders.into_iter().collect(),
            files: self.known.len(),
            read,
            left_out: (left_out > 0)
                .then(|| format!("more than {max} files: {left_out} are left out")),
            hangs: walked.hangs,
        })
    }

    /// Makes the next scan read every file, and pass it on.
    pub(crate) fn forget_stamps(&mut self) {
        for file in self.known.values_mut() {
            file.stamp = None;
            file.content = None;
        }
    }
}

/// One scan.
struct Visitor<'a> {
    known: &'a mut BTreeMap<Arc<Path>, KnownFile>,
    reader: &'a mut dyn FileReader,
    /// Its number.
    scan: u64,
    read: usize,
    /// Directories that could not be read.
    unread: Vec<PathBuf>,
}

impl Visitor<'_> {
    /// Drops files that are gone. Files below an unreadable directory may still exist.
    fn forget(&mut self) {
        let (unread, scan) = (&self.unread, self.scan);
        let is_hidden = |path: &Path| {
            let mut unread = unread.iter();
            // A known path is a file's: where a directory has its name now, the file is gone.
            unread.any(|folder| path.starts_with(folder) && path != folder)
        };
        let is_gone =
            |path: &Arc<Path>, file: &mut KnownFile| file.seen != scan && !is_hidden(path);
        for (path, _) in self.known.extract_if(.., is_gone) {
            self.reader.remove(&path);
        }
    }
}

impl Visit for Visitor<'_> {
    fn known(&self, below: &Path) -> Option<Stamp> {
        let stamp = self.known.get(below)?.stamp?;
        (!self.reader.must_read(below)).then_some(stamp)
    }

    fn file(&mut self, below: &Path, file_result: Result<FoundFile, UnreadFile>) {
        let path: Arc<Path> = match self.known.get_key_value(below) {
            Some((path, _)) => Arc::clone(path),
            None => below.into(),
        };
        let known_file = self.known.entry(Arc::clone(&path)).or_default();
        known_file.seen = self.scan;
        match file_result {
            Ok(FoundFile::Same) => {}
            Ok(FoundFile::Read { bytes, stamp }) => {
                self.read = self.read.saturating_add(1);
                known_file.stamp = stamp;
                let content = Some((bytes.len(), hash(&bytes)));
                if known_file.content != content || self.reader.must_read(&path) {
                    known_file.content = content;
                    self.reader.read(&path, &bytes);
                }
            }
            Err(cause) => {
                known_file.stamp = None;
                known_file.content = None;
                self.reader.unread(&path, cause);
            }
        }
    }

    fn unread(&mut self, below: &Path, cause: String) {
        self.reader.unread_folder(below, cause);
        self.unread.push(below.to_path_buf());
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests;
