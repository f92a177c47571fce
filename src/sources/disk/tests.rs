//! Files that block, and a mount whose server does not answer: calls below it hang until the server is gone.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;

const HUNG: &str = "TEST_HUNG_MOUNT";

#[test]
fn reading_a_pipe_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let pipe = root.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let mut disk = Disk::default();
    for path in [&*pipe, Path::new("/dev/zero"), root.path()] {
        let error = disk.read(path, 10).unwrap_err();
        assert_eq!(
            error.to_string(),
            "not a regular file",
            "{}",
            path.display()
        );
    }
    // The file's kind decides: root may open it, whether or not there are bytes to read.
    let begin = Instant::now();
    let read = disk.read(Path::new("/proc/kmsg"), usize::MAX >> 1);
    assert!(read.is_err(), "{read:?}");
    assert!(begin.elapsed() < FILE, "{:?}", begin.elapsed());
    assert!(!disk.hangs());
    let path = root.path().join("file");
    fs::write(&path, "12345").unwrap();
    let read = |disk: &mut Disk, max| disk.read(&path, max).unwrap().0;
    assert_eq!(read(&mut disk, 10), b"12345");
    assert_eq!(read(&mut disk, 3), b"1234");
    disk.rest();
    assert_eq!(read(&mut disk, 5), b"12345");
}

/// Each call is fast, and there is no end of them: of a directory (which had no deadline) as of a file.
#[test]
fn slow_paths_are_left_alone_for_a_while() {
    let root = tempfile::tempdir().unwrap();
    let (folder, file) = (root.path().join("folder"), root.path().join("file"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a"), "1").unwrap();
    fs::write(&file, "1").unwrap();
    let mut disk = Disk {
        within: Duration::ZERO,
        ..Disk::new()
    };
    let slow = |error: io::Error| {
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("takes more than"), "{error}");
    };
    slow(disk.list(&folder, 10).unwrap_err());
    slow(disk.read(&file, 10).unwrap_err());
    assert!(disk.hangs());
    // The path is not read again at once.
    disk.within = FILE;
    slow(disk.list(&folder, 10).unwrap_err());
    slow(disk.read(&file, 10).unwrap_err());
    assert_eq!(disk.list(root.path(), 10).unwrap().len(), 2);
    let end = Instant::now() + MIN_RETRY_DELAY * 5;
    while disk.read(&file, 10).is_err() || disk.list(&folder, 10).is_err() {
        assert!(Instant::now() < end, "it is never read again");
        thread::yield_now();
    }
    assert!(!disk.hangs());
}

#[test]
fn a_hanging_path_is_skipped_until_it_answers() {
    if File::options().write(true).open("/dev/fuse").is_err() {
        // The built program is tried with other files that block.
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let hung = root.path().join("hung");
    fs::create_dir(&hung).unwrap();
    // The holder of the descriptor is the server, and sleeps.
    let shell = "
        (exec 9<>/dev/fuse
         mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 hung hung
         exec sleep 60) & echo $! > server
        until grep -q ' /.*/hung fuse' /proc/self/mounts; do sleep 0.05; done
        exec \"$0\" --exact disk::tests::beside_a_hung_mount --ignored";
    let this = std::env::current_exe().unwrap();
    let inner = Command::new("timeout")
        .args(["60", "unshare", "-mr", "sh", "-c", shell])
        .arg(this)
        .current_dir(root.path())
        .env(HUNG, root.path())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&inner.stdout);
    let wrong = String::from_utf8_lossy(&inner.stderr);
    assert!(inner.status.success(), "{output} {wrong}");
    assert!(output.contains("1 passed"), "{output}");
}

#[test]
#[ignore = "run by the other one, beside a mount that hangs"]
fn beside_a_hung_mount() {
    let root = PathBuf::from(std::env::var_os(HUNG).unwrap());
    let server = fs::read_to_string(root.join("server")).unwrap();
    let folder = root.join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a"), "1").unwrap();
    fs::write(folder.join("z"), "1").unwrap();
    symlink("../hung/x", folder.join("m")).unwrap();
    symlink("../hung", folder.join("n")).unwrap();
    let mut disk = Disk::default();
    many_links_hold_one_thread(&root);
    let all = ["a", "m hangs", "n hangs", "z"];
    let begin = Instant::now();
    assert_eq!(name_texts(disk.list(&folder, 10).unwrap()), all);
    assert!(begin.elapsed() < CALL * 10, "{:?}", begin.elapsed());
    assert!(disk.hangs());
    // The hanging path is not read again, and others are.
    let left = disk.left.len();
    for _ in 0..10 {
        assert_eq!(name_texts(disk.list(&folder, 10).unwrap()), all);
        assert_eq!(disk.read(&folder.join("z"), 10).unwrap().0, b"1");
    }
    assert_eq!(disk.left.len(), left, "{disk:?}");
    let error = disk.stat(&root.join("hung")).unwrap_err();
    assert_eq!(error.to_string(), "reading it hangs");
    // A path that now leads elsewhere is retried, and no other.
    fs::remove_file(folder.join("m")).unwrap();
    fs::write(folder.join("m"), "2").unwrap();
    disk.begin();
    assert_eq!(disk.read(&folder.join("m"), 10).unwrap().0, b"2");
    assert_eq!(
        name_texts(disk.list(&folder, 10).unwrap()),
        ["a", "m", "n hangs", "z"]
    );
    // The server is gone, which unblocks the calls with an error.
    let killed = Command::new("kill").arg(server.trim()).status();
    assert!(killed.unwrap().success());
    let end = Instant::now() + Duration::from_secs(20);
    while disk
        .stat(&root.join("hung"))
        .is_err_and(|error| DiskTimeout::of(&error) == Some(DiskTimeout::Hangs))
    {
        assert!(Instant::now() < end, "it hangs for ever");
        thread::yield_now();
    }
    while name_texts(disk.list(&folder, 10).unwrap()) != ["a", "m", "n dangles", "z"] {
        assert!(Instant::now() < end, "{disk:?}");
    }
    assert!(!disk.hangs());
    // More hanging paths than the limit: then calls fail at once.
    for at in 0..MAX_HANGING {
        let hanging = HungPath {
            progress: Arc::default(),
            trace: Arc::default(),
            since: Instant::now(),
            again: MIN_RETRY_DELAY,
        };
        disk.hanging.insert(root.join(at.to_string()), hanging);
    }
    disk.rest();
    let error = disk.stat(&folder).unwrap_err();
    assert!(error.to_string().starts_with("16 files hang"), "{error}");
}

fn name_texts(names: Vec<Name>) -> Vec<String> {
    let texts = names.into_iter().map(|Name { name, is }| {
        let is = match is {
            FileKind::Known(..) => "",
            FileKind::Dangling => " dangles",
            FileKind::Unknown(_) => " hangs",
        };
        format!("{}{is}", name.display())
    });
    texts.collect()
}

/// One mount that is gone, and many links there: one of them is waited for.
fn many_links_hold_one_thread(root: &Path) {
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for at in 0..MAX_HANGING * 2 {
        symlink(format!("../hung/{at}"), many.join(format!("l{at}"))).unwrap();
    }
    symlink("many", root.join("way")).unwrap();
    fs::write(many.join("z"), "1").unwrap();
    let mut other = Disk::default();
    let begin = Instant::now();
    let names = name_texts(other.list(&root.join("way"), 99).unwrap());
    assert!(begin.elapsed() < CALL * 16, "{:?}", begin.elapsed());
    let hanging = names.iter().filter(|name| name.ends_with(" hangs"));
    assert_eq!((names.len(), hanging.count()), (33, MAX_HANGING * 2));
    assert_eq!(other.hanging.len(), 1, "{other:?}");
    assert_eq!(other.read(&many.join("z"), 10).unwrap().0, b"1");
    assert!(other.read(&many.join("l7"), 10).is_err());
    drop(other);
}

/// A mount of NFS answers so once its server is away for long: each look would wait for it.
#[test]
fn a_path_that_the_system_gives_up_is_slow() {
    let mut disk = Disk::new();
    let path = Path::new("/away");
    let timed_out = io::Error::from(rustix::io::Errno::TIMEDOUT);
    disk.remember(path, &Call::Read(1), &Err(timed_out));
    assert!(disk.is_slow(path));
    disk.remember(path, &Call::Read(1), &Err(io::ErrorKind::NotFound.into()));
    assert!(!disk.is_slow(path));
}

/// Files were looked at each second for as long as the process ran, once one that is gone had been slow.
#[test]
fn a_slow_path_that_is_read_no_more_is_forgotten() {
    let mut disk = Disk::new();
    let now = Instant::now();
    let path = Path::new("/gone").to_owned();
    disk.slow.insert(path, (now, MIN_RETRY_DELAY));
    disk.begin();
    assert!(disk.hangs());
    disk.forget_unread(now + MIN_RETRY_DELAY + UNREAD);
    assert!(!disk.hangs());
}
