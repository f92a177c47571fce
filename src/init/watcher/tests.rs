//! Real directories, real inotify.

use std::fs;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::fingerprint::scan;
use crate::supervisor::Fingerprint;

/// A watched temporary tree.
struct Tree {
    root: tempfile::TempDir,
    paths: Vec<PathBuf>,
    watcher: Watcher,
    last: Fingerprint,
}

impl Tree {
    fn watching(names: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let root = tempfile::tempdir().unwrap();
        prepare(root.path());
        let paths: Vec<PathBuf> = names.iter().map(|name| root.path().join(name)).collect();
        let watcher = Watcher::new(paths.clone());
        assert_eq!(watcher.degraded(), None);
        let last = scan(&paths, &[]).fingerprint;
        Self {
            root,
            paths,
            watcher,
            last,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, bytes: &str) {
        fs::write(self.at(name), bytes).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.at(from), self.at(to)).unwrap();
    }

    fn scan(&self) -> Fingerprint {
        scan(&self.paths, &[]).fingerprint
    }

    /// inotify queues before the call that causes it returns; the deadline is for file systems that do not.
    #[expect(clippy::disallowed_methods, reason = "a test's deadline")]
    fn noticed(&mut self) -> Noticed {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let noticed = self.watcher.drain();
            if noticed.changed || Instant::now() > deadline {
                return noticed;
            }
        }
    }

    #[track_caller]
    fn expect_change(&mut self) {
        assert!(self.noticed().changed, "not noticed");
        let now = self.scan();
        assert_ne!(now, self.last, "noticed, but the scan is the same");
        self.last = now;
    }

    #[track_caller]
    fn expect_nothing(&mut self) {
        assert_eq!(self.watcher.drain(), Noticed::default());
        assert_eq!(self.scan(), self.last);
    }
}

/// Updates the volume `dir` as kubelet's `AtomicWriter` does.
fn kubelet(dir: &Path, version: &str, content: &str) {
    let stamped = dir.join(format!("..{version}"));
    fs::create_dir(&stamped).unwrap();
    for name in ["cert.pem", "key.pem"] {
        fs::write(stamped.join(name), format!("{name} {content}")).unwrap();
        let visible = dir.join(name);
        if fs::symlink_metadata(&visible).is_err() {
            symlink(Path::new("..data").join(name), visible).unwrap();
        }
    }
    let old = fs::read_link(dir.join("..data")).ok();
    symlink(format!("..{version}"), dir.join("..data_tmp")).unwrap();
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    if let Some(old) = old {
        fs::remove_dir_all(dir.join(old)).unwrap();
    }
}

fn volume(root: &Path) {
    fs::create_dir(root.join("certs")).unwrap();
    kubelet(&root.join("certs"), "first", "0");
}

#[test]
fn ten_rotations_in_a_row_are_all_seen() {
    for watched in [&["certs/cert.pem", "certs/key.pem"][..], &["certs"][..]] {
        let mut tree = Tree::watching(watched, volume);
        for version in 1..=10 {
            kubelet(
                &tree.at("certs"),
                &format!("v{version}"),
                &format!("{version}"),
            );
            tree.expect_change();
            tree.expect_nothing();
        }
    }
}

#[test]
fn a_rotation_to_the_same_bytes_scans_the_same() {
    for watched in ["certs/cert.pem", "certs"] {
        let mut tree = Tree::watching(&[watched], volume);
        kubelet(&tree.at("certs"), "again", "0");
        tree.watcher.drain();
        assert_eq!(tree.scan(), tree.last);
    }
}

#[test]
fn watches_do_not_pile_up() {
    let mut tree = Tree::watching(&["certs"], volume);
    let before = tree.watcher.watches.len();
    for version in 1..=5 {
        kubelet(
            &tree.at("certs"),
            &format!("v{version}"),
            &format!("{version}"),
        );
        tree.expect_change();
    }
    assert_eq!(tree.watcher.watches.len(), before);
}

/// Returns the number of watches that the kernel holds for it.
fn held(watcher: &Watcher) -> usize {
    let fd = watcher.inotify.as_ref().unwrap().as_raw_fd();
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
    info.lines()
        .filter(|line| line.starts_with("inotify "))
        .count()
}

#[test]
fn links_off_the_chain_are_not_watched_any_more() {
    let mut tree = Tree::watching(&["certs/cert.pem"], volume);
    let before = held(&tree.watcher);
    assert_eq!(before, tree.watcher.watches.len());
    tree.rename("certs", "kept");
    tree.expect_change();
    tree.rename("kept", "certs");
    tree.expect_change();
    assert_eq!(held(&tree.watcher), before);
    tree.rename("certs", "kept");
    tree.expect_change();
    assert!(held(&tree.watcher) < before);
    assert_eq!(held(&tree.watcher), tree.watcher.watches.len());
}

#[test]
fn more_than_the_limit_of_watches_is_degraded_and_passes() {
    let names = ["a", "b", "c", "d", "e"];
    let mut tree = Tree::watching(&names, |_| ());
    for name in names {
        fs::create_dir(tree.at(name)).unwrap();
        for number in 0..2001 {
            tree.write(&format!("{name}/{number}"), "");
        }
    }
    tree.expect_change();
    let why = tree.watcher.degraded().unwrap().to_owned();
    assert!(why.starts_with("cannot watch /"), "{why}");
    assert!(why.ends_with(": more than 10000 files"), "{why}");
    fs::remove_dir_all(tree.at("a")).unwrap();
    tree.expect_change();
    assert_eq!(tree.watcher.degraded(), None);
}

/// Rotates while the chains are walked: whatever overtakes a walk must be in the queue.
#[test]
#[expect(clippy::disallowed_methods, reason = "the race needs a second thread")]
fn a_walk_that_is_overtaken_is_told() {
    for round in 0..100 {
        let mut tree = Tree::watching(&["a/b/cert.pem", "a/b"], |_| ());
        let root = tree.root.path().to_path_buf();
        let rotate = move || {
            for version in 0..4 {
                fs::create_dir_all(root.join("a/b")).unwrap();
                kubelet(
                    &root.join("a/b"),
                    &format!("{version}"),
                    &format!("{version}"),
                );
                kubelet(&root.join("a/b"), &format!("{version}+"), "next");
                fs::rename(root.join("a"), root.join(format!("old{version}"))).unwrap();
            }
            fs::create_dir_all(root.join("new/b")).unwrap();
            kubelet(&root.join("new/b"), "last", &format!("{round}"));
            fs::rename(root.join("new"), root.join("a")).unwrap();
        };
        let writer = std::thread::spawn(rotate);
        let mut finished = false;
        while !finished {
            finished = writer.is_finished();
            if tree.watcher.drain().changed {
                tree.last = tree.scan();
            }
        }
        writer.join().unwrap();
        tree.expect_nothing();
        kubelet(&tree.at("a/b"), "after", "not deaf");
        tree.expect_change();
    }
}

#[test]
fn links_behind_links_are_followed_to_the_end() {
    let mut tree = Tree::watching(&["etc/cert.pem"], |root| {
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir_all(root.join("csi/vol")).unwrap();
        kubelet(&root.join("csi/vol"), "first", "0");
        symlink("../hop", root.join("etc/..data")).unwrap();
        symlink(root.join("csi"), root.join("hop")).unwrap();
        symlink("..data/vol/../vol/cert.pem", root.join("etc/cert.pem")).unwrap();
    });
    for version in 1..=3 {
        kubelet(
            &tree.at("csi/vol"),
            &format!("v{version}"),
            &format!("{version}"),
        );
        tree.expect_change();
    }
    // The hop in the middle turns elsewhere, and that place is watched from then on.
    fs::create_dir_all(tree.at("csi2/vol")).unwrap();
    kubelet(&tree.at("csi2/vol"), "first", "other");
    symlink("csi2", tree.at("hop_tmp")).unwrap();
    tree.rename("hop_tmp", "hop");
    tree.expect_change();
    kubelet(&tree.at("csi2/vol"), "second", "another");
    tree.expect_change();
    kubelet(&tree.at("csi/vol"), "v9", "unused by now");
    tree.expect_nothing();
}

#[test]
fn writes_in_place_are_seen() {
    let mut tree = Tree::watching(&["file"], |root| fs::write(root.join("file"), "1").unwrap());
    tree.write("file", "22");
    tree.expect_change();
    let mut writer = fs::OpenOptions::new()
        .append(true)
        .open(tree.at("file"))
        .unwrap();
    for _ in 0..3 {
        writer.write_all(b"more").unwrap();
        tree.expect_change();
    }
    writer.set_len(1).unwrap();
    tree.expect_change();
    let mut writer = fs::OpenOptions::new()
        .write(true)
        .open(tree.at("file"))
        .unwrap();
    writer.rewind().unwrap();
    writer.write_all(b"x").unwrap();
    tree.expect_change();
}

#[test]
fn a_write_through_a_hard_link_elsewhere_is_seen() {
    let mut tree = Tree::watching(&["file"], |root| {
        fs::create_dir(root.join("other")).unwrap();
        fs::write(root.join("other/name"), "1").unwrap();
        fs::hard_link(root.join("other/name"), root.join("file")).unwrap();
    });
    tree.write("other/name", "2");
    tree.expect_change();
}

#[test]
fn a_file_renamed_over_is_seen_again_and_again() {
    let mut tree = Tree::watching(&["file"], |root| fs::write(root.join("file"), "0").unwrap());
    for content in ["1", "2", "3"] {
        tree.write("file.tmp", content);
        tree.expect_nothing();
        tree.rename("file.tmp", "file");
        tree.expect_change();
    }
    tree.write("file", "in place, after that");
    tree.expect_change();
}

#[test]
fn a_path_whose_parents_come_late_is_seen_to_come() {
    let mut tree = Tree::watching(&["a/b/c/file", "a/b/tree"], |_| ());
    fs::create_dir_all(tree.at("a/b/c")).unwrap();
    assert!(tree.noticed().changed);
    tree.write("a/b/c/file", "1");
    tree.expect_change();
    fs::create_dir_all(tree.at("a/b/tree/deep/er")).unwrap();
    tree.expect_change();
    tree.write("a/b/tree/deep/er/file", "1");
    tree.expect_change();
    tree.write("a/b/tree/deep/er/file", "2");
    tree.expect_change();
}

#[test]
fn all_at_once_and_only_then_drained() {
    let mut tree = Tree::watching(&["a/b/c/file"], |_| ());
    fs::create_dir_all(tree.at("a/b/c")).unwrap();
    tree.write("a/b/c/file", "1");
    tree.expect_change();
    tree.write("a/b/c/file", "2");
    tree.expect_change();
}

#[test]
fn a_directory_deleted_and_made_again_is_seen() {
    let mut tree = Tree::watching(&["certs/cert.pem"], volume);
    for version in ["x", "y", "z"] {
        fs::remove_dir_all(tree.at("certs")).unwrap();
        tree.expect_change();
        fs::create_dir(tree.at("certs")).unwrap();
        kubelet(&tree.at("certs"), version, version);
        tree.expect_change();
    }
}

#[test]
fn a_directory_exchanged_for_another_is_seen() {
    let mut tree = Tree::watching(&["top/certs/cert.pem"], |root| {
        fs::create_dir(root.join("top")).unwrap();
        volume(&root.join("top"));
    });
    for round in 0..3 {
        fs::create_dir_all(tree.at("new/certs")).unwrap();
        kubelet(&tree.at("new/certs"), "first", &format!("round {round}"));
        tree.rename("top/certs", &format!("old{round}"));
        tree.expect_change();
        tree.rename("new/certs", "top/certs");
        tree.expect_change();
        kubelet(&tree.at(&format!("old{round}")), "late", "unused by now");
        tree.expect_nothing();
    }
}

#[test]
fn an_ancestor_renamed_is_seen() {
    let mut tree = Tree::watching(&["a/b/c/file"], |root| {
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::write(root.join("a/b/c/file"), "1").unwrap();
    });
    tree.rename("a", "z");
    tree.expect_change();
    tree.write("z/b/c/file", "2");
    tree.expect_nothing();
    tree.rename("z", "a");
    tree.expect_change();
    tree.write("a/b/c/file", "3");
    tree.expect_change();
}

#[test]
fn neighbours_are_nobodys_business() {
    let mut tree = Tree::watching(&["certs/cert.pem"], volume);
    for name in ["certs/other", "neighbour", "certs/cert.pem.bak"] {
        tree.write(name, "1");
        tree.write(name, "2");
        tree.rename(name, "moved");
        fs::remove_file(tree.at("moved")).unwrap();
        fs::create_dir_all(tree.at(name).join("sub")).unwrap();
        fs::remove_dir_all(tree.at(name)).unwrap();
        tree.expect_nothing();
    }
}

#[test]
fn a_path_through_a_file_or_a_circle_is_missing_and_no_more() {
    let mut tree = Tree::watching(&["file/below", "loop/x", "loop"], |root| {
        fs::write(root.join("file"), "1").unwrap();
        symlink("loop", root.join("loop")).unwrap();
    });
    fs::remove_file(tree.at("file")).unwrap();
    fs::create_dir(tree.at("file")).unwrap();
    tree.write("file/below", "1");
    tree.expect_change();
    fs::remove_file(tree.at("loop")).unwrap();
    tree.write("loop", "1");
    tree.expect_change();
}

#[test]
fn a_lost_queue_is_told_and_watching_goes_on() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let mut tree = Tree::watching(&["file"], |root| fs::write(root.join("file"), "0").unwrap());
    // Two names in turn, for equal events that follow each other are merged.
    for _ in 0..=limit / 4 {
        tree.write("one", "");
        fs::remove_file(tree.at("one")).unwrap();
        tree.write("two", "");
        fs::remove_file(tree.at("two")).unwrap();
    }
    tree.write("file", "1");
    let noticed = tree.noticed();
    assert!(noticed.changed && noticed.overflowed);
    tree.last = tree.scan();
    tree.expect_nothing();
    tree.write("file", "2");
    tree.expect_change();
}

#[test]
fn the_loop_is_woken_and_a_late_instance_registers_itself() {
    let mut poll = mio::Poll::new().unwrap();
    let mut events = mio::Events::with_capacity(8);
    let mut tree = Tree::watching(&["file"], |_| ());
    tree.watcher.give_up(&io::Error::other("a test"));
    tree.watcher.register(poll.registry(), Token(7)).unwrap();
    assert!(tree.watcher.degraded().is_some());
    tree.watcher.refresh();
    assert_eq!(tree.watcher.degraded(), None);
    tree.write("file", "1");
    poll.poll(&mut events, Some(Duration::from_secs(5)))
        .unwrap();
    assert!(events.iter().any(|event| event.token() == Token(7)));
    tree.expect_change();
    // After a drain nothing wakes the loop; then what is in the queue does, without a new event.
    tree.write("file", "2");
    tree.write("file", "3");
    poll.poll(&mut events, Some(Duration::from_millis(50)))
        .unwrap();
    assert!(events.is_empty());
    tree.watcher.resume();
    poll.poll(&mut events, Some(Duration::from_secs(5)))
        .unwrap();
    assert!(events.iter().any(|event| event.token() == Token(7)));
    tree.expect_change();
    // What has happened in a pause is seen by who looks after it, and is no news.
    tree.write("file", "4");
    tree.watcher.catch_up();
    assert_eq!(tree.watcher.drain(), Noticed::default());
    tree.watcher.catch_up();
    tree.last = tree.scan();
    tree.write("file", "5");
    tree.expect_change();
}

/// Runs one test again in a process that may open no more files; it does its part when it sees the variable.
#[test]
fn without_instances_the_watcher_is_degraded_until_there_are_some() {
    const INSIDE: &str = "PINTLE_TEST_NO_FILES";
    if std::env::var_os(INSIDE).is_some() {
        return without_files();
    }
    let name = "watcher::tests::without_instances_the_watcher_is_degraded_until_there_are_some";
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 32; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}");
}

/// Takes every descriptor that this process may have.
fn without_files() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    let mut held = Vec::new();
    while let Ok(file) = fs::File::open("/dev/null") {
        held.push(file);
    }
    let mut watcher = Watcher::new(vec![path.clone()]);
    let why = watcher.degraded().unwrap().to_owned();
    assert!(why.starts_with("cannot start inotify: "), "{why}");
    assert_eq!(watcher.drain(), Noticed::default());
    held.clear();
    watcher.refresh();
    assert_eq!(watcher.degraded(), None);
    fs::write(&path, "1").unwrap();
    assert!(watcher.drain().changed);
}

/// A change of a watched tree.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Write(usize, u8),
    Append(usize),
    Rename(usize, usize),
    Unlink(usize),
    Link(usize, usize),
    Flip(usize, usize),
    MakeDir(usize),
    RemoveDir(usize),
    RemoveTree(usize),
}

/// Few names, so that operations meet; watched are `w` (file or tree), `d/f` and `l/f`.
const NAMES: [&str; 9] = ["w", "w/f", "w/g", "d", "d/f", "l", "l/f", "t", "t/f"];
/// As link targets, from any of the directories.
const TARGETS: [&str; 8] = ["d", "t", "f", "../t/f", "../d", "w", ".", "l/f"];

fn operation() -> impl Strategy<Value = Operation> {
    let name = 0..NAMES.len();
    let target = 0..TARGETS.len();
    prop_oneof![
        (name.clone(), any::<u8>()).prop_map(|(at, byte)| Operation::Write(at, byte)),
        name.clone().prop_map(Operation::Append),
        (name.clone(), name.clone()).prop_map(|(from, to)| Operation::Rename(from, to)),
        name.clone().prop_map(Operation::Unlink),
        (target.clone(), name.clone()).prop_map(|(to, at)| Operation::Link(to, at)),
        (target, name.clone()).prop_map(|(to, at)| Operation::Flip(to, at)),
        name.clone().prop_map(Operation::MakeDir),
        name.clone().prop_map(Operation::RemoveDir),
        name.prop_map(Operation::RemoveTree),
    ]
}

/// Carries it out; most of them fail in most states, and that is fine.
fn carry_out(root: &Path, operation: Operation) -> io::Result<()> {
    let at = |index: usize| root.join(NAMES[index]);
    match operation {
        Operation::Write(name, byte) => fs::write(at(name), [byte]),
        Operation::Append(name) => fs::OpenOptions::new()
            .append(true)
            .open(at(name))
            .and_then(|mut file| file.write_all(b"+")),
        Operation::Rename(from, to) => fs::rename(at(from), at(to)),
        Operation::Unlink(name) => fs::remove_file(at(name)),
        Operation::Link(target, name) => symlink(TARGETS[target], at(name)),
        Operation::Flip(target, name) => {
            symlink(TARGETS[target], root.join("flip"))?;
            fs::rename(root.join("flip"), at(name)).or_else(|_| fs::remove_file(root.join("flip")))
        }
        Operation::MakeDir(name) => fs::create_dir(at(name)),
        Operation::RemoveDir(name) => fs::remove_dir(at(name)),
        Operation::RemoveTree(name) => fs::remove_dir_all(at(name)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// `drained` says after which operations there was time to drain.
    #[test]
    fn no_change_is_missed(steps in prop::collection::vec((operation(), any::<bool>()), 1..40)) {
        let mut tree = Tree::watching(&["w", "d/f", "l/f"], |_| ());
        for (operation, drained) in steps {
            let _failed = carry_out(tree.root.path(), operation).is_err();
            if drained {
                let noticed = tree.watcher.drain();
                let now = tree.scan();
                prop_assert!(noticed.changed || now == tree.last, "missed {operation:?}");
                tree.last = now;
            }
        }
        prop_assert_eq!(tree.watcher.degraded(), None);
    }
}
