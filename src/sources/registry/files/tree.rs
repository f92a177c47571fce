//! All files of a directory at once.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::TOTAL;
use crate::tree::{FoundFile, Limits, Stamp, Visit, Walker};

const LIMITS: Limits = Limits {
    depth: 16,
    files: 10_000,
    names: 100_000,
    bytes: TOTAL,
    total: TOTAL,
};

/// The files and directories that a scan found, by path below the directory.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<PathBuf, Result<FoundFile, String>>,
    /// Directories that could not be read completely, and why. Files below them may still exist.
    pub(super) unread: BTreeMap<PathBuf, String>,
    /// The directories to watch.
    pub(super) folders: Vec<PathBuf>,
    /// A path does not answer.
    pub(super) hangs: bool,
}

struct Collect<'a> {
    known: &'a dyn Fn(&Path) -> Option<Stamp>,
    tree: Tree,
}

impl Visit for Collect<'_> {
    fn known(&self, below: &Path) -> Option<Stamp> {
        (self.known)(below)
    }

    fn file(&mut self, below: &Path, found: Result<FoundFile, String>) {
        self.tree.files.insert(below.to_path_buf(), found);
    }

    fn unread(&mut self, below: &Path, cause: String) {
        self.tree.unread.insert(below.to_path_buf(), cause);
    }
}

/// Reads all files of configuration but those whose stamp is `known`.
///
/// # Errors
///
/// The root cannot be read.
pub(super) fn read(
    walker: &mut Walker,
    known: &dyn Fn(&Path) -> Option<Stamp>,
) -> io::Result<Tree> {
    let mut collect = Collect {
        known,
        tree: Tree::default(),
    };
    let walked = walker.walk(LIMITS, &mut collect)?;
    let mut tree = collect.tree;
    tree.folders = walked.folders.into_iter().collect();
    tree.hangs = walked.hangs;
    if walked.left_out > 0 {
        let cause = format!(
            "more than {} files: {} are left out",
            LIMITS.files, walked.left_out
        );
        tree.unread.insert(PathBuf::new(), cause);
    }
    Ok(tree)
}
