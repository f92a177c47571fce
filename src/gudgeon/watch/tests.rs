//! Real files, real inotify.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use super::*;

/// Long enough for a loaded machine, short enough to assert that nothing comes.
const SOON: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_millis(100);

async fn notices(watcher: &mut Watcher) -> bool {
    let noticed = timeout(SOON, watcher.changed()).await.is_ok();
    // One write is several events.
    while timeout(QUIET, watcher.changed()).await.is_ok() {}
    noticed
}

async fn is_quiet(watcher: &mut Watcher) -> bool {
    timeout(QUIET, watcher.changed()).await.is_err()
}

/// A volume as kubelet writes it: `config -> ..data/config`, `..data -> ..N`.
fn volume(root: &Path, number: u32, text: &str) {
    let folder = root.join(format!("..{number}"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("config"), text).unwrap();
    let new = root.join("..data_tmp");
    symlink(format!("..{number}"), &new).unwrap();
    fs::rename(new, root.join("..data")).unwrap();
    if !root.join("config").exists() {
        symlink("..data/config", root.join("config")).unwrap();
    }
}

#[tokio::test]
async fn kubelets_volume() {
    let root = tempfile::tempdir().unwrap();
    volume(root.path(), 1, "one");
    // A further link to it from elsewhere.
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("link");
    symlink(root.path().join("config"), &file).unwrap();
    let mut watcher = Watcher::new(vec![file.clone()]);
    watcher.follow().await;
    assert_eq!(watcher.degraded(), None);
    for number in 2..12 {
        volume(root.path(), number, "more");
        fs::remove_dir_all(root.path().join(format!("..{}", number - 1))).unwrap();
        assert!(notices(&mut watcher).await, "{number}");
    }
    fs::remove_file(&file).unwrap();
    assert!(notices(&mut watcher).await);
    fs::write(&file, "a file of its own").unwrap();
    assert!(notices(&mut watcher).await);
    // The old volume is no longer watched.
    volume(root.path(), 20, "more");
    assert!(is_quiet(&mut watcher).await);
}

#[tokio::test]
async fn neighbours_are_not_noticed() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("config");
    fs::write(&file, "one").unwrap();
    let mut watcher = Watcher::new(vec![file.clone()]);
    watcher.follow().await;
    fs::write(root.path().join("other"), "x").unwrap();
    assert!(is_quiet(&mut watcher).await);
    fs::write(&file, "two").unwrap();
    assert!(notices(&mut watcher).await);
}

#[tokio::test]
async fn a_missing_folder_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("a/b");
    let mut watcher = Watcher::new(vec![folder.join("config")]);
    watcher.follow().await;
    fs::create_dir_all(&folder).unwrap();
    assert!(notices(&mut watcher).await);
    fs::write(folder.join("config"), "x").unwrap();
    assert!(notices(&mut watcher).await);
    fs::rename(root.path().join("a"), root.path().join("c")).unwrap();
    assert!(notices(&mut watcher).await);
}

#[tokio::test]
async fn a_loop_of_links_ends() {
    let root = tempfile::tempdir().unwrap();
    symlink("two", root.path().join("one")).unwrap();
    symlink("one", root.path().join("two")).unwrap();
    let mut watcher = Watcher::new(vec![root.path().join("one")]);
    watcher.follow().await;
    assert!(is_quiet(&mut watcher).await);
}
