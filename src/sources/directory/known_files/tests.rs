//! Real files.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;

const LIMITS: Limits = Limits {
    depth: 4,
    files: 3,
    names: 20,
    bytes: 10,
};

/// The events that were passed on, a line each.
#[derive(Default)]
struct RecordedReads {
    lines: Vec<String>,
    wanted: Option<&'static str>,
}

impl FileReader for RecordedReads {
    fn must_read(&self, below: &Path) -> bool {
        self.wanted.is_some_and(|wanted| below == Path::new(wanted))
    }

    fn read(&mut self, below: &Arc<Path>, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        self.lines.push(format!("{} {text}", below.display()));
    }

    fn unread(&mut self, below: &Arc<Path>, cause: UnreadFile) {
        self.lines.push(format!("{} ! {cause}", below.display()));
    }

    fn unread_folder(&mut self, below: &Path, cause: String) {
        self.lines.push(format!("{}/ ! {cause}", below.display()));
    }

    fn remove(&mut self, below: &Path) {
        self.lines.push(format!("{} -", below.display()));
    }
}

struct Play {
    root: TempDir,
    files: KnownFiles,
    reads: RecordedReads,
}

impl Play {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let files = KnownFiles::new(root.path(), LIMITS);
        Self {
            root,
            files,
            reads: RecordedReads::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The lines of a scan, and the number of files that it read.
    fn scan(&mut self) -> (String, usize) {
        let scan = self.files.scan(&mut self.reads).unwrap();
        (std::mem::take(&mut self.reads.lines).join(", "), scan.read)
    }

    fn scan_lines(&mut self) -> String {
        self.scan().0
    }

    /// Scans until no file is read again, which takes a tick of the file system's clock.
    fn settle(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let (lines, read) = self.scan();
            assert_eq!(lines, "");
            if read == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "it never settles");
        }
    }
}

#[test]
fn a_file_is_passed_on_once_for_each_content_and_not_read_while_it_stays() {
    let mut play = Play::new();
    play.write("a.yaml", "1");
    play.write("b.yaml", "2");
    assert_eq!(play.scan(), ("a.yaml 1, b.yaml 2".to_owned(), 2));
    play.settle();
    // The same bytes are no news, though they are read.
    play.write("a.yaml", "1");
    assert_eq!(play.scan(), (String::new(), 1));
    play.write("a.yaml", "3");
    assert_eq!(play.scan(), ("a.yaml 3".to_owned(), 1));
    play.settle();
    play.reads.wanted = Some("b.yaml");
    assert_eq!(play.scan(), ("b.yaml 2".to_owned(), 1));
    play.reads.wanted = None;
    play.files.forget_stamps();
    assert_eq!(play.scan(), ("a.yaml 3, b.yaml 2".to_owned(), 2));
    fs::remove_file(play.path("a.yaml")).unwrap();
    assert_eq!(play.scan_lines(), "a.yaml -");
    assert_eq!(play.scan_lines(), "");
}

#[test]
fn a_file_that_can_be_read_again_is_news_even_with_the_content_of_before() {
    let mut play = Play::new();
    play.write("a.yaml", "1");
    assert_eq!(play.scan_lines(), "a.yaml 1");
    fs::rename(play.path("a.yaml"), play.path("away")).unwrap();
    symlink("nowhere", play.path("a.yaml")).unwrap();
    assert_eq!(play.scan_lines(), "a.yaml ! the link leads nowhere");
    fs::rename(play.path("away"), play.path("a.yaml")).unwrap();
    assert_eq!(play.scan_lines(), "a.yaml 1");
}

#[test]
fn files_below_a_directory_that_cannot_be_read_are_not_gone() {
    let mut play = Play::new();
    fs::create_dir(play.path("d")).unwrap();
    play.write("d/a.yaml", "1");
    play.write("d-b.yaml", "2");
    assert_eq!(play.scan_lines(), "d/a.yaml 1, d-b.yaml 2");
    fs::rename(play.path("d"), play.path(".d")).unwrap();
    fs::remove_file(play.path("d-b.yaml")).unwrap();
    symlink("nowhere", play.path("d")).unwrap();
    assert_eq!(play.scan_lines(), "d/ ! the link leads nowhere, d-b.yaml -");
    fs::remove_file(play.path("d")).unwrap();
    assert_eq!(play.scan_lines(), "d/a.yaml -");
}

#[test]
fn files_beyond_the_limit_are_counted_and_no_longer_known() {
    let mut play = Play::new();
    for name in ["b.yaml", "c.yaml", "d.yaml"] {
        play.write(name, "1");
    }
    assert_eq!(play.scan_lines(), "b.yaml 1, c.yaml 1, d.yaml 1");
    play.write("a.yaml", "1");
    play.write("e.yaml", "1");
    let scan = play.files.scan(&mut play.reads).unwrap();
    let message = "more than 3 files: 2 are left out".to_owned();
    assert_eq!((scan.left_out, scan.files), (Some(message), 3));
    assert_eq!(play.reads.lines, ["a.yaml 1", "d.yaml -"]);
}

#[test]
fn a_directory_that_is_gone_changes_nothing() {
    let mut play = Play::new();
    play.write("a.yaml", "1");
    play.scan_lines();
    let away = play.root.path().with_extension("away");
    fs::rename(play.root.path(), &away).unwrap();
    assert!(play.files.scan(&mut play.reads).is_err());
    assert!(play.reads.lines.is_empty());
    fs::rename(&away, play.root.path()).unwrap();
    assert_eq!(play.scan_lines(), "");
}
