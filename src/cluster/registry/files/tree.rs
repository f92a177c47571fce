//! A directory as the bytes of its files. Bounded in all that it reads, and what has not changed is not read again.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::document::MAX_BYTES;

/// Directories within each other.
const MAX_DEPTH: usize = 16;
const MAX_FILES: usize = 10_000;
/// All names that are looked at, whatever they are.
const MAX_NAMES: usize = 100_000;
/// Of all files.
const MAX_TOTAL: usize = 64 << 20;

/// A file that was written a moment ago may be written again without another time of change: the kernel's clock for files
/// goes in steps of up to 10 ms, that of some file systems in steps of a second and more.
const UNSETTLED: Duration = Duration::from_secs(3);

/// What tells that a file is as it was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    place: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(data: &Metadata) -> Self {
        Self {
            place: (data.dev(), data.ino()),
            size: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }

    /// `None`: changed so lately that another change might look the same.
    fn settled(data: &Metadata) -> Option<Self> {
        let changed = Duration::from_secs(u64::try_from(data.ctime()).ok()?);
        let age = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH.checked_add(changed)?)
            .ok()?;
        (age > UNSETTLED).then(|| Self::of(data))
    }
}

/// A file that could be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is as it was when it had the stamp that is known.
    Same,
    Read {
        bytes: Vec<u8>,
        stamp: Option<Stamp>,
    },
}

/// What was found, by path below the directory.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<PathBuf, Result<Found, String>>,
    /// Directories that could not be looked into, or not to the end, and why. What is below them may still be there.
    pub(super) unread: BTreeMap<PathBuf, String>,
    /// All directories that were looked into, the first one too: what a change in one of them may mean is known by reading.
    pub(super) folders: Vec<PathBuf>,
}

struct Walk<'a> {
    known: &'a dyn Fn(&Path) -> Option<Stamp>,
    tree: Tree,
    names: usize,
    bytes: usize,
    /// The directories on the way down: a link may lead back into one.
    within: Vec<(u64, u64)>,
}

/// Reads all files of configuration below `root`, links followed, but those whose stamp is `known`.
///
/// # Errors
///
/// `root` is no directory that can be looked into.
pub(super) fn read(root: &Path, known: &dyn Fn(&Path) -> Option<Stamp>) -> io::Result<Tree> {
    let mut walk = Walk {
        known,
        tree: Tree::default(),
        names: 0,
        bytes: 0,
        within: Vec::new(),
    };
    walk.folder(root, Path::new(""))?;
    Ok(walk.tree)
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, below: &Path) -> io::Result<()> {
        let data = fs::metadata(folder)?;
        let place = (data.dev(), data.ino());
        if self.within.contains(&place) {
            return Ok(());
        }
        if self.within.len() >= MAX_DEPTH {
            return Err(io::Error::other(format!(
                "more than {MAX_DEPTH} directories within each other"
            )));
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            self.names = self.names.saturating_add(1);
            if self.names > MAX_NAMES {
                return Err(io::Error::other(format!("more than {MAX_NAMES} names")));
            }
            if !name.as_encoded_bytes().starts_with(b".") {
                names.push(name);
            }
        }
        names.sort();
        self.tree.folders.push(folder.to_path_buf());
        self.within.push(place);
        for name in names {
            let path = folder.join(&name);
            let below = below.join(&name);
            // What is gone meanwhile is gone.
            let Ok(data) = fs::metadata(&path) else {
                self.dangling(&path, below);
                continue;
            };
            if data.is_dir() {
                if let Err(error) = self.folder(&path, &below) {
                    self.tree.unread.insert(below, error.to_string());
                }
            } else if is_configuration(&below) {
                let read = self.file(&path, &below, &data);
                self.tree.files.insert(below, read);
            }
        }
        self.within.pop();
        Ok(())
    }

    /// A link that leads nowhere at this moment.
    fn dangling(&mut self, path: &Path, below: PathBuf) {
        if fs::symlink_metadata(path).is_err() {
            return;
        }
        let cause = "the link leads nowhere".to_owned();
        if is_configuration(&below) {
            self.tree.files.insert(below, Err(cause));
        } else {
            // It may have been one to a directory.
            self.tree.unread.insert(below, cause);
        }
    }

    fn file(&mut self, path: &Path, below: &Path, data: &Metadata) -> Result<Found, String> {
        if !data.is_file() {
            return Err("not a regular file".to_owned());
        }
        if self.tree.files.len() >= MAX_FILES {
            return Err(format!("more than {MAX_FILES} files"));
        }
        if (self.known)(below) == Some(Stamp::of(data)) {
            self.counted(usize::try_from(data.len()).unwrap_or(MAX_TOTAL))?;
            return Ok(Found::Same);
        }
        let mut bytes = Vec::new();
        let most = u64::try_from(MAX_BYTES)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        let read = |error: io::Error| error.to_string();
        let file = File::open(path).map_err(read)?;
        // What is written from now on changes it.
        let stamp = Stamp::settled(&file.metadata().map_err(read)?);
        file.take(most).read_to_end(&mut bytes).map_err(read)?;
        self.counted(bytes.len())?;
        Ok(Found::Read { bytes, stamp })
    }

    fn counted(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_TOTAL {
            return Err(format!("more than {MAX_TOTAL} bytes in all files"));
        }
        Ok(())
    }
}

fn is_configuration(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn all(root: &Path) -> io::Result<Tree> {
        read(root, &|_| None)
    }

    fn found(root: &Path) -> Vec<String> {
        let tree = all(root).unwrap();
        tree.files
            .iter()
            .map(|(path, read)| match read {
                Ok(Found::Same) => format!("{} =", path.display()),
                Ok(Found::Read { bytes, .. }) => {
                    format!("{} {}", path.display(), String::from_utf8_lossy(bytes))
                }
                Err(cause) => format!("{} ! {cause}", path.display()),
            })
            .collect()
    }

    #[test]
    fn files_are_found_below_links_and_not_behind_dots() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert!(all(&root.join("none")).is_err());
        // As kubelet has it.
        fs::create_dir(root.join("..2026")).unwrap();
        fs::write(root.join("..2026/a.yaml"), "1").unwrap();
        symlink("..2026", root.join("..data")).unwrap();
        symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
        fs::create_dir(root.join("d")).unwrap();
        for name in ["b.yml", "c.json", "d.txt", ".e.yaml", "yaml"] {
            fs::write(root.join("d").join(name), "2").unwrap();
        }
        symlink("..", root.join("d/up")).unwrap();
        symlink("nowhere", root.join("d/f.yaml")).unwrap();
        symlink("d", root.join("e")).unwrap();
        assert_eq!(
            found(root),
            [
                "a.yaml 1",
                "d/b.yml 2",
                "d/c.json 2",
                "d/f.yaml ! the link leads nowhere",
                "e/b.yml 2",
                "e/c.json 2",
                "e/f.yaml ! the link leads nowhere",
            ]
        );
        assert_eq!(all(root).unwrap().folders.len(), 3);
        fs::create_dir(root.join("..2027")).unwrap();
        fs::write(root.join("..2027/a.yaml"), "3").unwrap();
        symlink("..2027", root.join("..new")).unwrap();
        fs::rename(root.join("..new"), root.join("..data")).unwrap();
        assert_eq!(found(root)[0], "a.yaml 3");
    }

    #[test]
    fn what_is_read_has_bounds() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let file = File::create(root.join("a.yaml")).unwrap();
        file.set_len(1 << 30).unwrap();
        let tree = all(root).unwrap();
        let Ok(Found::Read { bytes, .. }) = &tree.files[Path::new("a.yaml")] else {
            panic!("{tree:?}");
        };
        // So much that it is seen to be too much.
        assert_eq!(bytes.len(), MAX_BYTES + 1);
        fs::remove_file(root.join("a.yaml")).unwrap();
        let mut deep = root.to_path_buf();
        for _ in 0..MAX_DEPTH {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        fs::write(deep.join("a.yaml"), "1").unwrap();
        let tree = all(root).unwrap();
        assert_eq!(tree.files.len(), 0);
        assert_eq!(tree.unread.len(), 1);
        let large = File::create(root.join("b.yaml")).unwrap();
        large.set_len(MAX_BYTES as u64).unwrap();
        for number in 0..MAX_TOTAL / MAX_BYTES {
            fs::hard_link(root.join("b.yaml"), root.join(format!("c{number:02}.yaml"))).unwrap();
        }
        let tree = all(root).unwrap();
        let refused = tree.files.values().filter(|read| read.is_err());
        assert_eq!(refused.count(), 1);
    }

    #[test]
    fn what_is_as_it_was_is_not_read_again() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let (old, new) = (Path::new("old.yaml"), Path::new("new.yaml"));
        fs::write(root.join(old), "1").unwrap();
        fs::write(root.join(new), "1").unwrap();
        let stamps: BTreeMap<_, _> = [old, new]
            .map(|name| (name, Stamp::of(&fs::metadata(root.join(name)).unwrap())))
            .into();
        let again = |root| read(root, &|path| stamps.get(path).copied()).unwrap();
        let tree = again(root);
        assert!(tree.files.values().all(|read| *read == Ok(Found::Same)));
        // In place, by another file, and gone.
        let changes: [&dyn Fn(); 3] = [
            &|| fs::write(root.join(new), "22").unwrap(),
            &|| {
                fs::write(root.join("next"), "3").unwrap();
                fs::rename(root.join("next"), root.join(new)).unwrap();
            },
            &|| fs::remove_file(root.join(new)).unwrap(),
        ];
        for change in changes {
            change();
            let mut tree = again(root);
            assert_eq!(tree.files.remove(old), Some(Ok(Found::Same)));
            let read = tree.files.remove(new);
            assert!(!matches!(read, Some(Ok(Found::Same))), "{read:?}");
        }
        // Just written: the next change might have the same times.
        let tree = all(root).unwrap();
        let Ok(Found::Read { stamp, .. }) = &tree.files[old] else {
            panic!("{tree:?}");
        };
        assert_eq!(*stamp, None);
    }
}
