//! A directory as the bytes of its files. Bounded in all that it reads.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::document::MAX_BYTES;

/// Directories within each other.
const MAX_DEPTH: usize = 16;
const MAX_FILES: usize = 10_000;
/// All names that are looked at, whatever they are.
const MAX_NAMES: usize = 100_000;
/// Of all files.
const MAX_TOTAL: usize = 64 << 20;

/// What was found, by path below the directory.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
    /// Directories that could not be looked into, or not to the end, and why. What is below them may still be there.
    pub(super) unread: BTreeMap<PathBuf, String>,
    /// All directories that were looked into, the first one too: what a change in one of them may mean is known by reading.
    pub(super) folders: Vec<PathBuf>,
}

struct Walk {
    tree: Tree,
    names: usize,
    bytes: usize,
    /// The directories on the way down: a link may lead back into one.
    within: Vec<(u64, u64)>,
}

/// Reads all files of configuration below `root`, links followed.
///
/// # Errors
///
/// `root` is no directory that can be looked into.
pub(super) fn read(root: &Path) -> io::Result<Tree> {
    let mut walk = Walk {
        tree: Tree::default(),
        names: 0,
        bytes: 0,
        within: Vec::new(),
    };
    walk.folder(root, Path::new(""))?;
    Ok(walk.tree)
}

impl Walk {
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
                let read = self.file(&path, data.is_file());
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

    fn file(&mut self, path: &Path, is_file: bool) -> Result<Vec<u8>, String> {
        if !is_file {
            return Err("not a regular file".to_owned());
        }
        if self.tree.files.len() >= MAX_FILES {
            return Err(format!("more than {MAX_FILES} files"));
        }
        let mut bytes = Vec::new();
        let most = u64::try_from(MAX_BYTES)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        File::open(path)
            .and_then(|file| file.take(most).read_to_end(&mut bytes))
            .map_err(|error| error.to_string())?;
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > MAX_TOTAL {
            return Err(format!("more than {MAX_TOTAL} bytes in all files"));
        }
        Ok(bytes)
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

    fn found(root: &Path) -> Vec<String> {
        let tree = read(root).unwrap();
        tree.files
            .iter()
            .map(|(path, read)| match read {
                Ok(bytes) => format!("{} {}", path.display(), String::from_utf8_lossy(bytes)),
                Err(cause) => format!("{} ! {cause}", path.display()),
            })
            .collect()
    }

    #[test]
    fn files_are_found_below_links_and_not_behind_dots() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert!(read(&root.join("none")).is_err());
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
        assert_eq!(read(root).unwrap().folders.len(), 3);
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
        let tree = read(root).unwrap();
        let bytes = tree.files[Path::new("a.yaml")].as_ref().unwrap();
        // So much that it is seen to be too much.
        assert_eq!(bytes.len(), MAX_BYTES + 1);
        fs::remove_file(root.join("a.yaml")).unwrap();
        let mut deep = root.to_path_buf();
        for _ in 0..MAX_DEPTH {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        fs::write(deep.join("a.yaml"), "1").unwrap();
        let tree = read(root).unwrap();
        assert_eq!(tree.files.len(), 0);
        assert_eq!(tree.unread.len(), 1);
        let large = File::create(root.join("b.yaml")).unwrap();
        large.set_len(MAX_BYTES as u64).unwrap();
        for number in 0..MAX_TOTAL / MAX_BYTES {
            fs::hard_link(root.join("b.yaml"), root.join(format!("c{number:02}.yaml"))).unwrap();
        }
        let tree = read(root).unwrap();
        let refused = tree.files.values().filter(|read| read.is_err());
        assert_eq!(refused.count(), 1);
    }
}
