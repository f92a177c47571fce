//! Real files. The tests may run as root, whom no mode stops: what cannot be read are links in a circle and FIFOs.

use std::fs::{File, FileTimes};
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

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
    for number in 0..1034 {
        fs::write(root.path().join(format!("{number:06}")), "").unwrap();
    }
    let before = of(root.path());
    fs::write(root.path().join("000000"), "within the limit").unwrap();
    assert_ne!(of(root.path()), before);
}

#[test]
fn the_length_of_a_huge_file_counts_to_the_last_byte() {
    let root = directory();
    let path = root.path().join("huge");
    let file = File::create(&path).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    let before = of(&path);
    file.set_len((16 << 20) + 2).unwrap();
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

/// Watches one path, which has been read.
fn watching(path: &Path) -> (Files, Fingerprint) {
    let mut files = Files::new(vec![path.to_path_buf()], Vec::new());
    let first = files.scan().fingerprint;
    assert_eq!(files.changed(), "", "the first time nothing is a change");
    (files, first)
}

/// Puts something that cannot be read in the place of `path`, and calls `look` with each.
fn without(path: &Path, mut look: impl FnMut(&str)) {
    let aside = path.with_extension("aside");
    let put = |what: &str| match what {
        "a link loop" => symlink(path, path).unwrap(),
        "a FIFO" => {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        }
        _ => {}
    };
    for what in ["a link loop", "a FIFO", "nothing"] {
        fs::rename(path, &aside).unwrap();
        put(what);
        look(what);
        drop(fs::remove_file(path));
        fs::rename(&aside, path).unwrap();
    }
}

#[test]
fn a_watched_path_that_cannot_be_read_is_no_change_whatever_it_is() {
    let root = directory();
    let (file, tree) = (root.path().join("file"), root.path().join("tree"));
    fs::write(&file, "1").unwrap();
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/file"), "1").unwrap();
    for path in [&file, &tree] {
        let (mut files, first) = watching(path);
        without(path, |what| {
            for _ in 0..2 {
                assert_eq!(files.scan().fingerprint, first, "{what}");
                assert_eq!(files.changed(), "");
            }
        });
        assert_eq!(files.scan().fingerprint, first, "there again");
    }
    let (mut files, first) = watching(&file);
    without(&file, |_| assert_eq!(files.scan().fingerprint, first));
    fs::write(&file, "2").unwrap();
    assert_ne!(files.scan().fingerprint, first, "it changed meanwhile");
    assert_eq!(files.changed(), format!(": {}", file.display()));
}

#[test]
fn below_a_watched_directory_the_unreadable_is_no_change_and_the_absent_is_one() {
    let root = directory();
    let sub = root.path().join("sub");
    fs::create_dir(&sub).unwrap();
    for name in ["one", "two"] {
        fs::write(sub.join(name), name).unwrap();
    }
    fs::write(root.path().join("zone"), "z").unwrap();
    let (mut files, first) = watching(root.path());
    for path in [sub.join("one"), sub.clone()] {
        let aside = directory();
        let away = aside.path().join("away");
        fs::rename(&path, &away).unwrap();
        symlink(&path, &path).unwrap();
        assert_eq!(files.scan().fingerprint, first, "{}", path.display());
        fs::write(root.path().join("zone"), "changed").unwrap();
        assert_ne!(files.scan().fingerprint, first, "others count");
        assert!(files.changed().ends_with("/zone"), "{}", files.changed());
        fs::write(root.path().join("zone"), "z").unwrap();
        fs::remove_file(&path).unwrap();
        fs::rename(&away, &path).unwrap();
        assert_eq!(files.scan().fingerprint, first);
    }
    fs::remove_file(sub.join("one")).unwrap();
    assert_ne!(files.scan().fingerprint, first, "it has left");
    assert_eq!(files.changed(), format!(": {}", sub.display()));
}

#[test]
fn new_files_are_changes_and_so_are_files_readable_at_last() {
    let root = directory();
    let path = root.path().join("cert.pem");
    let (mut files, absent) = watching(&path);
    fs::write(&path, "1").unwrap();
    let first = files.scan().fingerprint;
    assert_ne!(first, absent);
    assert_eq!(files.changed(), format!(": {}", path.display()));
    fs::remove_file(&path).unwrap();
    symlink(&path, &path).unwrap();
    let (mut files, unknown) = watching(&path);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "1").unwrap();
    assert_ne!(files.scan().fingerprint, unknown);
    assert_eq!(files.scan().fingerprint, first);
}

#[test]
fn the_first_names_of_many_changed_files_are_told() {
    let root = directory();
    for number in 0..7 {
        fs::write(root.path().join(number.to_string()), "1").unwrap();
    }
    let (mut files, _) = watching(root.path());
    for number in 0..7 {
        fs::write(root.path().join(number.to_string()), "2").unwrap();
    }
    files.scan();
    let names: Vec<_> = (0..4)
        .map(|number| root.path().join(number.to_string()).display().to_string())
        .collect();
    assert_eq!(
        files.changed(),
        format!(": {} and 3 more", names.join(", "))
    );
    files.scan();
    assert_eq!(files.changed(), "");
}

/// Slices until the end.
fn slices(files: &mut Files) -> usize {
    (1..).find(|_| files.advance().is_some()).unwrap()
}

#[test]
fn much_is_read_in_slices_and_a_file_of_many_names_once() {
    let root = directory();
    let file = root.path().join("0");
    fs::write(&file, vec![7; 4 << 20]).unwrap();
    let mut files = Files::new(vec![root.path().to_path_buf()], Vec::new());
    assert_eq!(slices(&mut files), (4 << 20) / SLICE_BYTES + 1);
    for number in 1..500 {
        let name = root.path().join(number.to_string());
        if number % 2 == 0 {
            symlink("0", &name).unwrap();
        } else {
            fs::hard_link(&file, &name).unwrap();
        }
    }
    let all = slices(&mut files);
    assert!(all < 25, "{all} slices");
    assert!(files.advance().is_none() && files.is_walking());
}

#[test]
fn beyond_the_bounds_size_and_time_count() {
    let root = directory();
    let path = root.path().join("huge");
    let file = File::create(&path).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    let (mut files, first) = watching(&path);
    assert_eq!(slices(&mut files), 1, "it is not read");
    let later = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
    file.set_times(FileTimes::new().set_modified(later))
        .unwrap();
    assert_ne!(files.scan().fingerprint, first);
    // In all.
    let (file, exhausted) = (root.path().join("small"), || {
        let mut walk = Walk::new(true);
        walk.bytes_left = 3;
        Some(Box::new(walk))
    });
    fs::write(&file, "1234").unwrap();
    let (mut files, _) = watching(&file);
    files.walk = exhausted();
    let first = files.scan().fingerprint;
    let file = File::options().write(true).open(&file).unwrap();
    file.set_times(FileTimes::new().set_modified(later))
        .unwrap();
    files.walk = exhausted();
    assert_ne!(files.scan().fingerprint, first);
    // And in number.
    let crowd = directory();
    for number in 0..MAX_FILES + 5 {
        File::create(crowd.path().join(format!("{number:06}"))).unwrap();
    }
    let (mut files, first) = watching(crowd.path());
    assert!(files.memory.exceeded);
    fs::write(crowd.path().join(format!("{:06}", MAX_FILES + 4)), "1").unwrap();
    assert_ne!(files.scan().fingerprint, first);
}

#[test]
fn a_path_was_seen_where_the_last_walk_missed_none() {
    let root = directory();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    fs::write(&a, "1").unwrap();
    crate::log::be_quiet();
    let mut files = Files::new(vec![a.clone(), b.clone()], Vec::new());
    assert!(!files.saw(&a), "nobody has looked");
    files.scan();
    assert!(!files.saw(&a) && !files.saw(&b), "one is missing");
    fs::write(&b, "1").unwrap();
    files.scan();
    assert!(files.saw(&a) && files.saw(&b));
    assert!(!files.saw(root.path()), "it is not watched");
    fs::remove_file(&b).unwrap();
    files.scan();
    assert!(!files.saw(&b), "what it said counts, but it has gone");
}

/// A directory that goes while it is walked has not lost its files one by one: they stay as they were.
#[test]
fn files_that_go_with_their_directory_are_no_change() {
    let root = directory();
    let (watched, away) = (root.path().join("watched"), root.path().join("away"));
    fs::create_dir(&watched).unwrap();
    fs::write(watched.join("large"), vec![7; 2 * SLICE_BYTES]).unwrap();
    fs::write(watched.join("small"), "1").unwrap();
    crate::log::be_quiet();
    let mut files = Files::new(vec![watched.clone()], Vec::new());
    let first = files.scan().fingerprint;
    assert!(files.advance().is_none(), "the large one takes slices");
    fs::rename(&watched, &away).unwrap();
    assert_eq!(files.scan().fingerprint, first, "while it goes");
    assert_eq!(files.scan().fingerprint, first, "once it has gone");
    fs::rename(&away, &watched).unwrap();
    fs::remove_file(watched.join("small")).unwrap();
    assert_ne!(files.scan().fingerprint, first, "a file alone is one");
}
