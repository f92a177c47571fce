//! A directory as the bytes of its files, each handed over as it is read. Bounded in all that it reads, and what has not
//! changed is not read again.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How much is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Directories within each other.
    pub(crate) depth: usize,
    pub(crate) files: usize,
    /// All names that are looked at, whatever they are.
    pub(crate) names: usize,
    /// Of one file.
    pub(crate) bytes: usize,
    /// Of all files.
    pub(crate) total: usize,
}

/// A file that was written a moment ago may be written again without another time of change: the kernel's clock for files
/// goes in steps of up to 10 ms, and where times are whole seconds, in those of the file system.
const UNSETTLED: Duration = Duration::from_millis(50);
const UNSETTLED_COARSE: Duration = Duration::from_secs(3);

/// What tells that a file is as it was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
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
        let nanos = u32::try_from(data.ctime_nsec()).ok()?;
        let changed = Duration::new(u64::try_from(data.ctime()).ok()?, nanos);
        let age = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH.checked_add(changed)?)
            .ok()?;
        let least = match nanos {
            0 => UNSETTLED_COARSE,
            _ => UNSETTLED,
        };
        (age > least).then(|| Self::of(data))
    }
}

/// A file that could be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is as it was when it had the stamp that is known.
    Same,
    Read {
        bytes: Vec<u8>,
        stamp: Option<Stamp>,
    },
}

/// Who is told what is found. Paths are below the directory; empty for the one file that was asked for.
pub(crate) trait Visit {
    /// Of a file that need not be read again while it has this stamp.
    fn known(&self, below: &Path) -> Option<Stamp>;
    fn file(&mut self, below: &Path, found: Result<Found, String>);
    /// A directory that could not be looked into, or not to the end. What is below it may still be there.
    fn unread(&mut self, below: &Path, cause: String);
}

/// What was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Where a change may mean something, which is known by reading: all directories that were looked into, and those of
    /// files that links lead to.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// Files that were left out, because there are too many.
    pub(crate) left_out: usize,
}

struct Walk<'a> {
    limits: Limits,
    visit: &'a mut dyn Visit,
    walked: Walked,
    files: usize,
    names: usize,
    bytes: usize,
    /// Directories that were looked into: links lead to some of them again.
    seen: BTreeSet<(u64, u64)>,
}

/// Reads all files of configuration below `root`, links followed, but those whose stamp is known; or the one that it is.
/// A directory is looked into once, whatever leads there. What is hidden is left out, and so is what is no regular file.
///
/// # Errors
///
/// `root` is nothing that can be looked into.
pub(crate) fn walk(root: &Path, limits: Limits, visit: &mut dyn Visit) -> io::Result<Walked> {
    let mut walk = Walk {
        limits,
        visit,
        walked: Walked::default(),
        files: 0,
        names: 0,
        bytes: 0,
        seen: BTreeSet::new(),
    };
    let data = fs::metadata(root)?;
    if data.is_dir() {
        walk.folder(root, Path::new(""), &data, 0)?;
    } else {
        walk.file(root, Path::new(""), &data);
    }
    Ok(walk.walked)
}

impl Walk<'_> {
    fn folder(
        &mut self,
        folder: &Path,
        below: &Path,
        data: &Metadata,
        depth: usize,
    ) -> io::Result<()> {
        if !self.seen.insert((data.dev(), data.ino())) {
            return Ok(());
        }
        if depth >= self.limits.depth {
            let most = self.limits.depth;
            return Err(io::Error::other(format!(
                "more than {most} directories within each other"
            )));
        }
        let names = self.entries(folder)?;
        self.walked.folders.insert(folder.to_path_buf());
        for (name, is_link) in names {
            let path = folder.join(&name);
            let below = below.join(&name);
            // What is gone meanwhile is gone.
            let Ok(data) = fs::metadata(&path) else {
                self.dangling(&path, &below);
                continue;
            };
            if data.is_dir() {
                if let Err(error) = self.folder(&path, &below, &data, depth.saturating_add(1)) {
                    self.visit.unread(&below, error.to_string());
                }
            } else if is_configuration(&below) {
                if is_link {
                    self.link(&path);
                }
                self.file(&path, &below, &data);
            }
        }
        Ok(())
    }

    /// What is in a directory and not hidden, by name, and whether it is a link.
    fn entries(&mut self, folder: &Path) -> io::Result<Vec<(OsString, bool)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            self.names = self.names.saturating_add(1);
            if self.names > self.limits.names {
                let most = self.limits.names;
                return Err(io::Error::other(format!("more than {most} names")));
            }
            let name = entry.file_name();
            if !name.as_encoded_bytes().starts_with(b".") {
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                names.push((name, is_link));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Where it leads something may change, too.
    fn link(&mut self, path: &Path) {
        let leads_to = fs::canonicalize(path).ok();
        if let Some(folder) = leads_to.as_deref().and_then(Path::parent)
            && !self.walked.folders.contains(folder)
        {
            self.walked.folders.insert(folder.to_path_buf());
        }
    }

    /// A link that leads nowhere at this moment.
    fn dangling(&mut self, path: &Path, below: &Path) {
        if fs::symlink_metadata(path).is_err() {
            return;
        }
        let cause = "the link leads nowhere".to_owned();
        if is_configuration(below) {
            self.visit.file(below, Err(cause));
        } else {
            // It may have been one to a directory.
            self.visit.unread(below, cause);
        }
    }

    fn file(&mut self, path: &Path, below: &Path, data: &Metadata) {
        // Whoever opened a pipe would wait for somebody to write.
        if !data.is_file() {
            return;
        }
        if self.files >= self.limits.files {
            self.walked.left_out = self.walked.left_out.saturating_add(1);
            return;
        }
        self.files = self.files.saturating_add(1);
        let found = self.found(path, below, data);
        self.visit.file(below, found);
    }

    fn found(&mut self, path: &Path, below: &Path, data: &Metadata) -> Result<Found, String> {
        if self.visit.known(below) == Some(Stamp::of(data)) {
            self.counted(usize::try_from(data.len()).unwrap_or(self.limits.total))?;
            return Ok(Found::Same);
        }
        let too_long = || format!("longer than {} bytes", self.limits.bytes);
        let most = u64::try_from(self.limits.bytes).unwrap_or(u64::MAX);
        // What is known to be too long is not read at all.
        if data.len() > most {
            return Err(too_long());
        }
        let mut bytes = Vec::new();
        let read = |error: io::Error| error.to_string();
        let file = File::open(path).map_err(read)?;
        // What is written from now on changes it.
        let stamp = Stamp::settled(&file.metadata().map_err(read)?);
        let mut file = file.take(most.saturating_add(1));
        file.read_to_end(&mut bytes).map_err(read)?;
        if bytes.len() > self.limits.bytes {
            return Err(too_long());
        }
        self.counted(bytes.len())?;
        Ok(Found::Read { bytes, stamp })
    }

    fn counted(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        let most = self.limits.total;
        if self.bytes > most {
            return Err(format!("more than {most} bytes in all files"));
        }
        Ok(())
    }
}

fn is_configuration(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    matches!(extension, Some("yaml" | "yml" | "json"))
}

/// A name on one line, whatever it is.
pub(crate) fn shown(name: &str) -> String {
    match name.contains(char::is_control) {
        true => name.escape_debug().to_string(),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;

    use super::*;

    const LIMITS: Limits = Limits {
        depth: 4,
        files: 20,
        names: 100,
        bytes: 1 << 10,
        total: 4 << 10,
    };

    #[derive(Default)]
    struct Seen {
        stamps: BTreeMap<PathBuf, Stamp>,
        files: BTreeMap<PathBuf, Result<Found, String>>,
        unread: BTreeMap<PathBuf, String>,
    }

    impl Visit for Seen {
        fn known(&self, below: &Path) -> Option<Stamp> {
            self.stamps.get(below).copied()
        }

        fn file(&mut self, below: &Path, found: Result<Found, String>) {
            self.files.insert(below.to_path_buf(), found);
        }

        fn unread(&mut self, below: &Path, cause: String) {
            self.unread.insert(below.to_path_buf(), cause);
        }
    }

    impl Seen {
        fn of(root: &Path) -> Self {
            let mut seen = Self::default();
            walk(root, LIMITS, &mut seen).unwrap();
            seen
        }

        fn lines(&self) -> Vec<String> {
            let files = self.files.iter().map(|(path, read)| match read {
                Ok(Found::Same) => format!("{} =", path.display()),
                Ok(Found::Read { bytes, .. }) => {
                    format!("{} {}", path.display(), String::from_utf8_lossy(bytes))
                }
                Err(cause) => format!("{} ! {cause}", path.display()),
            });
            let unread = self.unread.iter();
            let unread = unread.map(|(path, cause)| format!("{}/ ! {cause}", path.display()));
            files.chain(unread).collect()
        }
    }

    fn found(root: &Path) -> Vec<String> {
        Seen::of(root).lines()
    }

    #[test]
    fn files_are_found_below_links_and_not_behind_dots() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert!(walk(&root.join("none"), LIMITS, &mut Seen::default()).is_err());
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
        symlink("nowhere", root.join("d/g")).unwrap();
        symlink("d", root.join("e")).unwrap();
        assert_eq!(
            found(root),
            [
                "a.yaml 1",
                "d/b.yml 2",
                "d/c.json 2",
                "d/f.yaml ! the link leads nowhere",
                "d/g/ ! the link leads nowhere",
            ]
        );
        let walked = walk(root, LIMITS, &mut Seen::default()).unwrap();
        let folders = ["", "..2026", "d"].map(|name| root.join(name));
        let there = |folder: &Path| fs::canonicalize(folder).unwrap();
        let expected: BTreeSet<_> = folders.iter().map(|folder| there(folder)).collect();
        let found_folders: BTreeSet<_> = walked.folders.iter().map(|one| there(one)).collect();
        assert_eq!(found_folders, expected);
        fs::create_dir(root.join("..2027")).unwrap();
        fs::write(root.join("..2027/a.yaml"), "3").unwrap();
        symlink("..2027", root.join("..new")).unwrap();
        fs::rename(root.join("..new"), root.join("..data")).unwrap();
        assert_eq!(found(root)[0], "a.yaml 3");
        // One file, whatever it is called.
        fs::write(root.join("one"), "4").unwrap();
        assert_eq!(found(&root.join("one")), [" 4"]);
    }

    #[test]
    fn what_is_read_has_bounds() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let file = |name: &str, length: u64| {
            let file = File::create(root.join(name)).unwrap();
            file.set_len(length).unwrap();
        };
        file("a.yaml", 1 << 30);
        assert_eq!(found(root), ["a.yaml ! longer than 1024 bytes"]);
        fs::remove_file(root.join("a.yaml")).unwrap();
        let mut deep = root.to_path_buf();
        for _ in 0..LIMITS.depth {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        fs::write(deep.join("a.yaml"), "1").unwrap();
        assert_eq!(
            found(root),
            ["d/d/d/d/ ! more than 4 directories within each other"]
        );
        for number in 0..5 {
            file(&format!("c{number}.yaml"), 1 << 10);
        }
        let all = found(root).join("\n");
        assert_eq!(
            all.matches("! more than 4096 bytes in all files").count(),
            1
        );
        for number in 0..30 {
            file(&format!("e{number}.yaml"), 0);
        }
        let mut seen = Seen::default();
        assert_eq!(walk(root, LIMITS, &mut seen).unwrap().left_out, 15);
        assert_eq!(seen.files.len(), LIMITS.files);
        for number in 0..100 {
            file(&format!("n{number}"), 0);
        }
        let error = walk(root, LIMITS, &mut Seen::default()).unwrap_err();
        assert_eq!(error.to_string(), "more than 100 names");
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let status = std::process::Command::new("mkfifo")
            .arg(root.join("a.yaml"))
            .status();
        assert!(status.unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(root.join("b.yaml")).unwrap();
        fs::write(root.join("c.yaml"), "1").unwrap();
        assert_eq!(found(root), ["c.yaml 1"]);
        assert_eq!(found(&root.join("a.yaml")), Vec::<String>::new());
    }

    #[test]
    fn what_is_as_it_was_is_not_read_again() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let (old, new) = (Path::new("old.yaml"), Path::new("new.yaml"));
        fs::write(root.join(old), "1").unwrap();
        fs::write(root.join(new), "1").unwrap();
        let stamps: BTreeMap<_, _> = [old, new]
            .map(|name| {
                let data = fs::metadata(root.join(name)).unwrap();
                (name.to_path_buf(), Stamp::of(&data))
            })
            .into();
        let again = |root| {
            let mut seen = Seen {
                stamps: stamps.clone(),
                ..Seen::default()
            };
            walk(root, LIMITS, &mut seen).unwrap();
            seen
        };
        assert_eq!(again(root).lines(), ["new.yaml =", "old.yaml ="]);
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
            let mut seen = again(root);
            assert_eq!(seen.files.remove(old), Some(Ok(Found::Same)));
            let read = seen.files.remove(new);
            assert!(!matches!(read, Some(Ok(Found::Same))), "{read:?}");
        }
    }

    #[test]
    fn a_file_that_was_just_written_has_no_stamp_yet() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.yaml");
        let stamp = || {
            let seen = Seen::of(root.path());
            let Ok(Found::Read { stamp, .. }) = &seen.files[Path::new("a.yaml")] else {
                panic!("it was to be read");
            };
            *stamp
        };
        fs::write(&path, "1").unwrap();
        let written = SystemTime::now();
        let first = stamp();
        // On a machine that was so slow it may have settled.
        if written.elapsed().unwrap() < UNSETTLED / 2 {
            assert_eq!(first, None);
        }
        let deadline = SystemTime::now() + Duration::from_secs(20);
        while stamp().is_none() {
            assert!(SystemTime::now() < deadline, "it never settles");
        }
    }
}
