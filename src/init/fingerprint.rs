//! What the watched files say, as one hash: only a different one is a new configuration.
//!
//! The hash covers names, kinds, lengths and bytes, never times, inodes or link targets, so that touching, re-linking or
//! rewriting the same bytes changes nothing. Every record begins with a tag and every variable part with its length, so
//! two different trees cannot feed the hash the same bytes. Nothing here blocks: only regular files are opened.

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::{regular, sys};

/// How deep below a watched directory files count.
pub(crate) const MAX_DEPTH: usize = 8;
/// How many entries below one watched path count; it also ends links that lead in circles.
pub(crate) const MAX_ENTRIES: usize = 1024;
/// How many names of one directory are read at all, for they are sorted in memory.
const MAX_LISTED: usize = 16 * 1024;
/// How much of a file is read; beyond it the length still counts. Certificates and bootstraps are far smaller.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// SHA-256 over all that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    /// The first 12 hex digits: enough to tell configurations apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .take(6)
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One look at the watched paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    pub fingerprint: Fingerprint,
    /// Every `required` path is there and non-empty.
    pub complete: bool,
}

/// Hashes `paths` in the order given.
#[must_use]
pub fn scan(paths: &[PathBuf], required: &[PathBuf]) -> Scan {
    // Asked before the hash: a file that appears in between is hashed but not required yet, and its event follows.
    let complete = required.iter().all(|path| is_filled(path));
    let mut scanner = Scanner {
        hash: Sha256::new(),
        buffer: [0; BUFFER_BYTES],
        entries_left: 0,
    };
    for path in paths {
        scanner.entries_left = MAX_ENTRIES;
        scanner.name(path.as_os_str());
        scanner.path(path, Path::new(""), 0);
    }
    Scan {
        fingerprint: Fingerprint(scanner.hash.finalize().into()),
        complete,
    }
}

/// The names in a directory that count, sorted; at most `left` of them, which it lowers.
///
/// Kubelet's `..data` and `..<time>` are left out: they say how the files got there, not what they say.
pub(crate) fn entries(directory: &Path, left: &mut usize) -> io::Result<Vec<OsString>> {
    let mut names: Vec<OsString> = Vec::new();
    sys::names(directory, |name| {
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

const BUFFER_BYTES: usize = 4096;

/// A hash in the making.
struct Scanner {
    hash: Sha256,
    buffer: [u8; BUFFER_BYTES],
    entries_left: usize,
}

impl Scanner {
    /// Hashes what `path` leads to; `relative` is its name below the watched path.
    fn path(&mut self, path: &Path, relative: &Path, depth: usize) {
        // Not opened to find out: opening a device can have effects.
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => self.directory(path, relative, depth),
            Ok(found) if found.is_file() => self.file(path, found.len()),
            Ok(_) => self.tag(b's'),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.tag(b'a'),
            Err(_) => self.tag(b'u'),
        }
    }

    fn directory(&mut self, path: &Path, relative: &Path, depth: usize) {
        if depth > MAX_DEPTH {
            return self.tag(b'x');
        }
        let Ok(names) = entries(path, &mut self.entries_left) else {
            return self.tag(b'u');
        };
        self.tag(b'd');
        for name in names {
            let relative = relative.join(&name);
            self.name(relative.as_os_str());
            self.path(&path.join(&name), &relative, depth + 1);
        }
        self.tag(b'e');
    }

    /// Should it be another file by now, that is a change that is told.
    fn file(&mut self, path: &Path, length: u64) {
        let Ok(file) = regular::open(path) else {
            return self.tag(b'u');
        };
        self.tag(b'f');
        self.number(length);
        self.content(file, length);
    }

    /// The bytes, then how many they were: the file may have grown since its length was taken, or have none to tell, as
    /// those of the kernel's own.
    fn content(&mut self, file: File, length: u64) {
        let mut file = file.take(MAX_FILE_BYTES);
        let mut total = 0;
        // What has been added behind it meanwhile is a change that is told.
        while length == 0 || total < length {
            match file.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(read) => {
                    self.hash.update(self.buffer.get(..read).unwrap_or(&[]));
                    total += u64::try_from(read).unwrap_or(0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.tag(b'u');
                    break;
                }
            }
        }
        self.number(total);
    }

    fn name(&mut self, name: &OsStr) {
        self.tag(b'p');
        self.number(u64::try_from(name.len()).unwrap_or(u64::MAX));
        self.hash.update(name.as_bytes());
    }

    fn tag(&mut self, tag: u8) {
        self.hash.update([tag]);
    }

    fn number(&mut self, number: u64) {
        self.hash.update(number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn of(path: &Path) -> Fingerprint {
        scan(&[path.to_path_buf()], &[]).fingerprint
    }

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn the_same_bytes_have_the_same_fingerprint_however_they_got_there() {
        let root = directory();
        let file = root.path().join("cert.pem");
        fs::write(&file, "one").unwrap();
        let before = of(&file);
        File::open(&file)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        assert_eq!(of(&file), before, "touched");
        fs::write(&file, "one").unwrap();
        assert_eq!(of(&file), before, "written again");
        fs::rename(&file, root.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &file).unwrap();
        assert_eq!(of(&file), before, "a link instead");
        fs::write(&file, "two").unwrap();
        assert_ne!(of(&file), before);
    }

    #[test]
    fn absent_empty_unreadable_and_special_differ() {
        let root = directory();
        let path = root.path().join("x");
        let mut seen = vec![of(&path)];
        fs::write(&path, "").unwrap();
        seen.push(of(&path));
        fs::write(&path, "\0").unwrap();
        seen.push(of(&path));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        seen.push(of(&path));
        fs::remove_dir(&path).unwrap();
        symlink("x", &path).unwrap();
        seen.push(of(&path));
        fs::remove_file(&path).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(fifo.unwrap().success());
        seen.push(of(&path));
        for (index, one) in seen.iter().enumerate() {
            assert!(!seen[index + 1..].contains(one), "{index}");
        }
    }

    #[test]
    fn the_order_and_the_names_of_paths_count() {
        let root = directory();
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        fs::write(&a, "1").unwrap();
        fs::write(&b, "1").unwrap();
        let both = |one: &PathBuf, two: &PathBuf| scan(&[one.clone(), two.clone()], &[]);
        assert_ne!(both(&a, &b), both(&b, &a));
        assert_ne!(of(&a), of(&b));
    }

    #[test]
    fn a_directory_is_its_files_by_name() {
        let root = directory();
        let tree = root.path().join("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("sub/file"), "1").unwrap();
        let before = of(&tree);
        fs::write(tree.join("..data_tmp"), "kubelet's").unwrap();
        assert_eq!(of(&tree), before, "kubelet's own names do not count");
        fs::rename(tree.join("sub/file"), tree.join("sub/other")).unwrap();
        assert_ne!(of(&tree), before);
        fs::rename(tree.join("sub/other"), tree.join("sub/file")).unwrap();
        assert_eq!(of(&tree), before);
        fs::create_dir(tree.join("empty")).unwrap();
        assert_ne!(of(&tree), before);
    }

    #[test]
    fn a_tree_that_leads_in_circles_or_is_too_large_ends() {
        let root = directory();
        for name in ["a", "b", "c"] {
            symlink(".", root.path().join(name)).unwrap();
        }
        assert_eq!(of(root.path()), of(root.path()));
        for number in 0..MAX_ENTRIES + 10 {
            fs::write(root.path().join(format!("{number:06}")), "").unwrap();
        }
        let before = of(root.path());
        fs::write(root.path().join("000000"), "within the limit").unwrap();
        assert_ne!(of(root.path()), before);
    }

    #[test]
    fn of_a_huge_file_the_length_counts_to_the_last_byte() {
        let root = directory();
        let path = root.path().join("huge");
        let file = File::create(&path).unwrap();
        file.set_len(MAX_FILE_BYTES + 1).unwrap();
        let before = of(&path);
        file.set_len(MAX_FILE_BYTES + 2).unwrap();
        assert_ne!(of(&path), before);
    }

    #[test]
    fn complete_means_there_and_not_empty() {
        let root = directory();
        let path = root.path().join("key.pem");
        let complete = |path: &Path| scan(&[], &[path.to_path_buf()]).complete;
        assert!(scan(&[], &[]).complete);
        assert!(!complete(&path), "missing");
        fs::write(&path, "").unwrap();
        assert!(!complete(&path), "empty");
        fs::write(&path, "key").unwrap();
        assert!(complete(&path));
    }

    #[test]
    fn the_hash_is_sha_256_and_shown_short() {
        let scan = scan(&[], &[]);
        assert_eq!(scan.fingerprint.to_string(), "e3b0c44298fc");
    }
}
