//! Walks a directory and passes the bytes of its files on as they are read. Every quantity has a limit, and unchanged files
//! are not read again.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::disk::{Disk, FileKind, Name};

/// The limits of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Directories within each other.
    pub(crate) depth: usize,
    pub(crate) files: usize,
    /// Names that are looked up, of any kind.
    pub(crate) names: usize,
    /// Bytes of one file.
    pub(crate) bytes: usize,
}

/// A file that was written a moment ago may be written again without another time of change: the kernel's clock for files
/// goes in steps of up to 10 ms, and where times are whole seconds, in those of the file system.
const UNSETTLED: Duration = Duration::from_millis(50);
const UNSETTLED_COARSE: Duration = Duration::from_secs(3);

/// A mark by which an unchanged file is known.
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

    /// Returns `None` for a change so recent that another one might have the same stamp.
    fn if_settled(data: &Metadata) -> Option<Self> {
        let nanos = u32::try_from(data.ctime_nsec()).ok()?;
        let changed = Duration::new(u64::try_from(data.ctime()).ok()?, nanos);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        is_settled(changed, now.ok()?).then(|| Self::of(data))
    }
}

/// Returns true if a change is so long ago that another one has another time. Both times are since 1970.
fn is_settled(changed: Duration, now: Duration) -> bool {
    let min = match changed.subsec_nanos() {
        0 => UNSETTLED_COARSE,
        _ => UNSETTLED,
    };
    now.checked_sub(changed).is_some_and(|age| age > min)
}

/// A file that could be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundFile {
    /// The file still has the stamp that is known.
    Same,
    Read {
        bytes: Vec<u8>,
        stamp: Option<Stamp>,
    },
}

/// The cause for which a file is not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UnreadFile {
    /// A pipe, a socket or a device, which is never read.
    NotRegular,
    /// It cannot be read now.
    Failed(String),
}

impl fmt::Display for UnreadFile {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::NotRegular => NOT_REGULAR,
            Self::Failed(cause) => cause,
        })
    }
}

const NOT_REGULAR: &str = "not a regular file";

/// The visitor of files. Paths are below the directory; empty for the single file of a path.
pub(crate) trait Visit {
    /// Returns the stamp with which a file need not be read again.
    fn known(&self, below: &Path) -> Option<Stamp>;
    fn file(&mut self, below: &Path, file_result: Result<FoundFile, UnreadFile>);
    /// A directory that could not be read, or not to the end. The files below it may still be there.
    fn unread(&mut self, below: &Path, cause: String);
}

/// The extent of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkResult {
    /// The directories to watch: all that were read, and those of files that links lead to.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// Files that were left out, because there are too many.
    pub(crate) left_out: usize,
    /// A path does not answer: walk again soon.
    pub(crate) hangs: bool,
}

/// Reads a directory again and again, or one file.
#[derive(Debug, Default)]
pub(crate) struct Walker {
    root: PathBuf,
    disk: Disk,
    /// True if the path was a directory at the first walk; it is treated as one from then on.
    is_folder: Option<bool>,
}

struct Walk<'a> {
    disk: &'a mut Disk,
    limits: Limits,
    visit: &'a mut dyn Visit,
    walked: WalkResult,
    files: usize,
    names: usize,
    /// Directories that were read: links may lead to them again.
    seen: BTreeSet<(u64, u64)>,
}

impl Walker {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            ..Self::default()
        }
    }

    /// Reads all files of configuration below the root, links followed, but those whose stamp is known; or the root itself,
    /// if it is a file. Each directory is read once, however many links lead there. Hidden names are left
    /// out; any other file than a regular one is an error.
    ///
    /// # Errors
    ///
    /// The root cannot be read, is neither a directory nor a regular file, or has changed its kind: a file in place of a
    /// directory does not mean that the other files are gone. Nor does a directory that is moved away while it is read.
    pub(crate) fn walk(&mut self, limits: Limits, visit: &mut dyn Visit) -> io::Result<WalkResult> {
        self.disk.begin();
        let walked = self.walked(limits, visit);
        self.disk.rest();
        walked
    }

    fn walked(&mut self, limits: Limits, visit: &mut dyn Visit) -> io::Result<WalkResult> {
        let data = self.disk.stat(&self.root)?;
        // It holds nothing that could be read, which does not mean that nothing is left.
        if !data.is_dir() && !data.is_file() {
            return Err(io::Error::other(NOT_REGULAR));
        }
        match (self.is_folder, data.is_dir()) {
            (Some(true), false) => return Err(io::Error::other("no longer a directory")),
            (Some(false), true) => return Err(io::Error::other("no longer a file")),
            (_, is_folder) => self.is_folder = Some(is_folder),
        }
        let mut walk = Walk {
            disk: &mut self.disk,
            limits,
            visit,
            walked: WalkResult::default(),
            files: 0,
            names: 0,
            seen: BTreeSet::new(),
        };
        if data.is_dir() {
            walk.folder(&self.root, Path::new(""), &data, 0)?;
            // The names of a directory that is moved away meanwhile lead nowhere: that does not mean that its files are gone.
            let after = walk.disk.stat(&self.root)?;
            if (after.dev(), after.ino()) != (data.dev(), data.ino()) {
                return Err(io::Error::other("replaced while it was read"));
            }
        } else {
            walk.file(&self.root, Path::new(""), &data);
        }
        let mut walked = walk.walked;
        walked.hangs = self.disk.hangs();
        Ok(walked)
    }
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
            let max = self.limits.depth;
            return Err(io::Error::other(format!(
                "more than {max} directories within each other"
            )));
        }
        let names = self.names(folder)?;
        self.walked.folders.insert(folder.to_path_buf());
        for Name { name, is } in names {
            let path = folder.join(&name);
            let below = below.join(&name);
            match is {
                FileKind::Known(data, _) if data.is_dir() => {
                    if let Err(error) = self.folder(&path, &below, &data, depth.saturating_add(1)) {
                        self.visit.unread(&below, error.to_string());
                    }
                }
                FileKind::Known(data, leads_to) if is_configuration(&below) => {
                    // A change may happen in the link's target, too.
                    self.walked.folders.extend(leads_to);
                    self.file(&path, &below, &data);
                }
                FileKind::Known(..) => {}
                FileKind::Dangling => self.unreadable(&below, "the link leads nowhere".to_owned()),
                FileKind::Unknown(cause) => self.unreadable(&below, cause),
            }
        }
        Ok(())
    }

    /// The names in a directory that are not hidden.
    fn names(&mut self, folder: &Path) -> io::Result<Vec<Name>> {
        let max = self.limits.names;
        let names = self.disk.list(folder, max)?;
        self.names = self.names.saturating_add(names.len());
        if self.names > max {
            return Err(io::Error::other(format!("more than {max} names")));
        }
        Ok(names)
    }

    /// Reports a path that cannot be read now, and may be there.
    fn unreadable(&mut self, below: &Path, cause: String) {
        if is_configuration(below) {
            self.visit.file(below, Err(UnreadFile::Failed(cause)));
        } else {
            // The link may have led to a directory before.
            self.visit.unread(below, cause);
        }
    }

    fn file(&mut self, path: &Path, below: &Path, data: &Metadata) {
        // Opening a pipe would wait for a writer.
        if !data.is_file() {
            return self.visit.file(below, Err(UnreadFile::NotRegular));
        }
        if self.files >= self.limits.files {
            self.walked.left_out = self.walked.left_out.saturating_add(1);
            return;
        }
        self.files = self.files.saturating_add(1);
        let file_result = self.found(path, below, data);
        self.visit
            .file(below, file_result.map_err(UnreadFile::Failed));
    }

    fn found(&mut self, path: &Path, below: &Path, data: &Metadata) -> Result<FoundFile, String> {
        if self.visit.known(below) == Some(Stamp::of(data)) {
            return Ok(FoundFile::Same);
        }
        let too_long = || {
            let length = api::size::longer_than(self.limits.bytes);
            format!("{length}: split it into several files")
        };
        let max = u64::try_from(self.limits.bytes).unwrap_or(u64::MAX);
        // A file that is known to be too long is not read at all.
        if data.len() > max {
            return Err(too_long());
        }
        let read = self.disk.read(path, self.limits.bytes);
        let (bytes, data) = read.map_err(|error| error.to_string())?;
        // Later writes change the stamp.
        let stamp = Stamp::if_settled(&data);
        if bytes.len() > self.limits.bytes {
            return Err(too_long());
        }
        Ok(FoundFile::Read { bytes, stamp })
    }
}

fn is_configuration(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    matches!(extension, Some("yaml" | "yml" | "json"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    const LIMITS: Limits = Limits {
        depth: 4,
        files: 20,
        names: 100,
        bytes: 1 << 10,
    };

    #[derive(Default)]
    struct Seen {
        stamps: BTreeMap<PathBuf, Stamp>,
        files: BTreeMap<PathBuf, Result<FoundFile, UnreadFile>>,
        unread: BTreeMap<PathBuf, String>,
    }

    impl Visit for Seen {
        fn known(&self, below: &Path) -> Option<Stamp> {
            self.stamps.get(below).copied()
        }

        fn file(&mut self, below: &Path, found: Result<FoundFile, UnreadFile>) {
            self.files.insert(below.to_path_buf(), found);
        }

        fn unread(&mut self, below: &Path, cause: String) {
            self.unread.insert(below.to_path_buf(), cause);
        }
    }

    fn walk(root: &Path, limits: Limits, visit: &mut dyn Visit) -> io::Result<WalkResult> {
        Walker::new(root).walk(limits, visit)
    }

    impl Seen {
        fn of(root: &Path) -> Self {
            let mut seen = Self::default();
            walk(root, LIMITS, &mut seen).unwrap();
            seen
        }

        fn lines(&self) -> Vec<String> {
            let files = self.files.iter().map(|(path, read)| match read {
                Ok(FoundFile::Same) => format!("{} =", path.display()),
                Ok(FoundFile::Read { bytes, .. }) => {
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

    /// Moves the directory away once a file of it was read.
    struct Moving {
        root: PathBuf,
        instead: Option<PathBuf>,
    }

    impl Visit for Moving {
        fn known(&self, _: &Path) -> Option<Stamp> {
            None
        }

        fn file(&mut self, _: &Path, _: Result<FoundFile, UnreadFile>) {
            let away = self.root.with_extension("away");
            if !away.exists() {
                fs::rename(&self.root, away).unwrap();
                if let Some(instead) = &self.instead {
                    fs::rename(instead, &self.root).unwrap();
                }
            }
        }

        fn unread(&mut self, _: &Path, _: String) {}
    }

    #[test]
    fn a_directory_that_is_moved_away_while_it_is_read_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let (root, other) = (place.path().join("root"), place.path().join("other"));
        for instead in [None, Some(other.clone())] {
            fs::create_dir(&root).unwrap();
            fs::write(root.join("a.yaml"), "").unwrap();
            fs::write(root.join("b.yaml"), "").unwrap();
            fs::create_dir_all(&other).unwrap();
            let mut moving = Moving {
                root: root.clone(),
                instead,
            };
            assert!(Walker::new(&root).walk(LIMITS, &mut moving).is_err());
            fs::remove_dir_all(root.with_extension("away")).unwrap();
        }
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
        // A single file may have any name.
        fs::write(root.join("one"), "4").unwrap();
        assert_eq!(found(&root.join("one")), [" 4"]);
    }

    #[test]
    fn a_walk_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let file = |name: &str, length: u64| {
            let file = File::create(root.join(name)).unwrap();
            file.set_len(length).unwrap();
        };
        file("a.yaml", 1 << 30);
        assert_eq!(
            found(root),
            ["a.yaml ! longer than 1024 bytes: split it into several files"]
        );
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
        for number in 0..35 {
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
        symlink("/dev/zero", root.join("d.yaml")).unwrap();
        let irregular = |name: &str| format!("{name} ! not a regular file");
        let [a, b, d] = ["a.yaml", "b.yaml", "d.yaml"].map(irregular);
        assert_eq!(found(root), [&a, &b, "c.yaml 1", &d]);
        for name in ["a.yaml", "b.yaml", "d.yaml"] {
            let error = walk(&root.join(name), LIMITS, &mut Seen::default()).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file");
        }
    }

    #[test]
    fn an_unchanged_file_is_not_read_again() {
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
            assert_eq!(seen.files.remove(old), Some(Ok(FoundFile::Same)));
            let read = seen.files.remove(new);
            assert!(!matches!(read, Some(Ok(FoundFile::Same))), "{read:?}");
        }
    }

    #[test]
    fn a_change_is_settled_once_another_one_has_another_time() {
        let at = Duration::from_millis;
        for (changed, now, expected) in [
            (1_500, 1_500, false),
            (1_500, 1_550, false),
            (1_500, 1_551, true),
            // In whole seconds, as some file systems have them.
            (1_000, 1_100, false),
            (1_000, 4_000, false),
            (1_000, 4_001, true),
            // The clock was set back.
            (1_500, 1_000, false),
        ] {
            assert_eq!(
                is_settled(at(changed), at(now)),
                expected,
                "{changed} {now}"
            );
        }
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.yaml"), "1").unwrap();
        let data = fs::metadata(root.path().join("a.yaml")).unwrap();
        let deadline = SystemTime::now() + Duration::from_secs(20);
        while Stamp::if_settled(&data).is_none() {
            assert!(SystemTime::now() < deadline, "it never settles");
        }
        assert_eq!(Stamp::if_settled(&data), Some(Stamp::of(&data)));
    }
}
