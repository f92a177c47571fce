//! One walk along the watched paths, as the kernel would resolve them, that puts a watch on every step.
//!
//! INVARIANT: a directory is watched before anything is looked up in it. Whatever changes after a look-up is then in the
//! queue, so a walk needs no second one to be sure: if it was overtaken, an event says so.

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use inotify::{WatchDescriptor, WatchMask, Watches};

use crate::fingerprint::{MAX_DEPTH, MAX_FILES, counts, entries};

/// As many links as the kernel follows in one path.
const MAX_LINKS: usize = 40;
/// All watches together: of each file that is read, and of the directories on the way. Linux before 5.11 gives a user 8192,
/// and says so.
const MAX_WATCHES: usize = MAX_FILES + 2048;

/// Names come and go, and permissions on the way change. Not what files in it say: those have watches of their own, so
/// that a busy neighbour wakes nobody.
const DIRECTORY: WatchMask = WatchMask::CREATE
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVE)
    .union(WatchMask::ATTRIB)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::ONLYDIR)
    .union(WatchMask::DONT_FOLLOW);
/// The inode and not only its directory: a write through another name (hard link, a file bind-mounted into the
/// container) is told to that name's directory alone.
const FILE: WatchMask = WatchMask::MODIFY
    .union(WatchMask::CLOSE_WRITE)
    .union(WatchMask::ATTRIB)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::DONT_FOLLOW);

/// A watch and the names that matter under it; one per inode, whatever the number of its roles.
#[derive(Debug)]
pub(super) struct InotifyWatch {
    pub(super) descriptor: WatchDescriptor,
    names: Vec<OsString>,
    /// Its content counts, all of it but kubelet's own names.
    whole: bool,
}

impl InotifyWatch {
    pub(super) fn id(&self) -> i32 {
        self.descriptor.get_watch_descriptor_id()
    }

    pub(super) fn matters(&self, name: &OsStr) -> bool {
        self.whole && counts(name) || self.names.iter().any(|known| known == name)
    }
}

/// A walk and the watches that it wants.
pub(super) struct Chain<'a> {
    kernel: &'a mut Watches,
    /// Sorted by id.
    wanted: Vec<InotifyWatch>,
    /// The first watch that could not be had.
    failure: Option<String>,
    entries_left: usize,
    /// From a watched directory down to the one that is looked into: a link that leads back is not followed.
    open: Vec<i32>,
}

/// The rest of a path while it is followed.
struct Rest {
    /// The part already passed, free of links.
    directory: PathBuf,
    /// The names ahead, the next one last.
    ahead: Vec<OsString>,
    links: usize,
    /// The watch of `directory` while nothing was passed yet: one system call for all names of a directory does.
    watched: Option<i32>,
}

impl<'a> Chain<'a> {
    pub(super) fn new(kernel: &'a mut Watches) -> Self {
        Self {
            kernel,
            wanted: Vec::new(),
            failure: None,
            entries_left: MAX_FILES,
            open: Vec::new(),
        }
    }

    pub(super) fn finish(self) -> (Vec<InotifyWatch>, Option<String>) {
        (self.wanted, self.failure)
    }

    /// Watches all that decides what `path` leads to.
    pub(super) fn follow(&mut self, path: &Path) {
        let mut rest = Rest::below(PathBuf::from("/"));
        rest.enter(path);
        if path.is_relative() {
            let Ok(directory) = sys::current_directory() else {
                return;
            };
            rest.enter(&directory);
        }
        self.walk(rest, 0);
    }

    fn walk(&mut self, mut rest: Rest, depth: usize) {
        while let Some(name) = rest.ahead.pop() {
            if name == ".." {
                rest.directory.pop();
                continue;
            }
            let watched = rest.watched.take();
            let known = watched.and_then(|id| self.find(id));
            let index = match known {
                Some(_) => known,
                None => match self.watch(&rest.directory, DIRECTORY) {
                    Some(index) => index,
                    None => return,
                },
            };
            self.note(index, &name);
            let path = rest.directory.join(&name);
            // Missing: its directory is watched, and so it is seen to come.
            let Ok(found) = fs::symlink_metadata(&path) else {
                return;
            };
            if found.is_symlink() {
                if !rest.take_link(&path) {
                    return;
                }
            } else if found.is_dir() {
                rest.directory = path;
            } else {
                if found.is_file() && rest.ahead.is_empty() {
                    self.watch(&path, FILE);
                }
                return;
            }
        }
        self.content(&rest.directory, depth);
    }

    /// All that counts in a watched directory, as `scan` sees it.
    fn content(&mut self, directory: &Path, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let Some(index) = self.watch(directory, DIRECTORY) else {
            return;
        };
        let mut id = -1;
        if let Some(watch) = index.and_then(|index| self.wanted.get_mut(index)) {
            watch.whole = true;
            id = watch.id();
            if self.open.contains(&id) {
                return;
            }
        }
        self.open.push(id);
        let names = entries(directory, &mut self.entries_left).unwrap_or_default();
        if self.entries_left == 0 {
            self.fail(directory, &format_args!("more than {MAX_FILES} files"));
        }
        for name in names {
            let mut rest = Rest::below(directory.to_path_buf());
            rest.ahead.push(name);
            rest.watched = Some(id);
            self.walk(rest, depth + 1);
        }
        self.open.pop();
    }

    /// Watches an inode. `None`: it is gone, go no further; `Some(None)`: it is there but cannot be watched.
    #[expect(
        clippy::option_option,
        reason = "the two are told apart by their only caller"
    )]
    fn watch(&mut self, path: &Path, mask: WatchMask) -> Option<Option<usize>> {
        if self.wanted.len() >= MAX_WATCHES {
            self.fail(path, &format_args!("more than {MAX_WATCHES} watches"));
            return Some(None);
        }
        let error = match self.kernel.add(path, mask) {
            Ok(descriptor) => return Some(Some(self.want(descriptor))),
            Err(error) => error,
        };
        let kind = error.kind();
        if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            return None;
        }
        // A file that we may not read says nothing to `scan` either; its directory tells of new permissions.
        if mask != FILE || kind != io::ErrorKind::PermissionDenied {
            self.fail(path, &error);
        }
        Some(None)
    }

    fn find(&self, id: i32) -> Option<usize> {
        self.wanted.binary_search_by_key(&id, InotifyWatch::id).ok()
    }

    fn want(&mut self, descriptor: WatchDescriptor) -> usize {
        let id = descriptor.get_watch_descriptor_id();
        self.wanted
            .binary_search_by_key(&id, InotifyWatch::id)
            .unwrap_or_else(|index| {
                let watch = InotifyWatch {
                    descriptor,
                    names: Vec::new(),
                    whole: false,
                };
                self.wanted.insert(index, watch);
                index
            })
    }

    fn note(&mut self, index: Option<usize>, name: &OsStr) {
        if let Some(watch) = index.and_then(|index| self.wanted.get_mut(index))
            && !watch.matters(name)
        {
            watch.names.push(name.to_os_string());
        }
    }

    fn fail(&mut self, path: &Path, cause: &dyn std::fmt::Display) {
        self.failure
            .get_or_insert_with(|| format!("cannot watch {}: {cause}", path.display()));
    }
}

impl Rest {
    const fn below(directory: PathBuf) -> Self {
        Self {
            directory,
            ahead: Vec::new(),
            links: 0,
            watched: None,
        }
    }

    /// Goes where the link at `path` points; false: nowhere.
    fn take_link(&mut self, path: &Path) -> bool {
        self.links += 1;
        let Ok(target) = fs::read_link(path) else {
            return false;
        };
        self.enter(&target);
        self.links <= MAX_LINKS
    }

    /// Puts the names of `path` ahead of what is left.
    fn enter(&mut self, path: &Path) {
        for part in path.components().rev() {
            match part {
                Component::RootDir => self.directory = PathBuf::from("/"),
                Component::Normal(name) => self.ahead.push(name.to_os_string()),
                Component::ParentDir => self.ahead.push("..".into()),
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }
}
