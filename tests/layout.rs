//! The project's own rules, read off its files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may panic, wait and read the clock"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn init() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The init's sources, with their text.
fn sources() -> Vec<(PathBuf, String)> {
    let found = sources_of(&init());
    assert!(found.len() > 20, "the sources are elsewhere");
    found
}

/// Those of `sys`.
fn sys_sources() -> Vec<(PathBuf, String)> {
    let found = sources_of(&init().join("../sys"));
    assert!(found.len() > 10, "the sources are elsewhere");
    found
}

/// The probe helper's, without its integration tests.
fn probe_sources() -> Vec<(PathBuf, String)> {
    let mut found = sources_of(&init().join("../probe"));
    found.retain(|(path, _)| !path.starts_with("tests"));
    assert!(found.len() > 10, "the sources are elsewhere");
    found
}

fn sources_of(root: &Path) -> Vec<(PathBuf, String)> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root).unwrap().to_path_buf(), text));
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found
}

/// Without the inline tests.
fn code(text: &str) -> &str {
    text.split_once("#[cfg(test)]\nmod tests {")
        .map_or(text, |(code, _)| code)
}

fn is_test(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs")
        || path
            .parent()
            .is_some_and(|folder| folder.ends_with("tests"))
}

/// The lints that a manifest sets, from the table of the given name to the next that is none of them.
fn lints(manifest: &str, table: &str) -> Vec<String> {
    let (_, lints) = manifest.split_once(table).expect("a table of lints");
    lints
        .lines()
        .take_while(|line| !line.starts_with('[') || line.contains("lints."))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.replace("workspace.", ""))
        .collect()
}

/// `unsafe_code = "forbid"` cannot be taken back by any attribute, so the manifests are what there is to look at.
#[test]
fn unsafe_is_allowed_in_sys_only() {
    let read = |path: &str| fs::read_to_string(init().join("../..").join(path)).unwrap();
    let mut workspace = lints(&read("Cargo.toml"), "[workspace.lints.rust]");
    assert!(workspace.len() > 20, "the lints are elsewhere");
    let before = workspace.len();
    workspace.retain(|line| line != "unsafe_code = \"forbid\"");
    assert_eq!(workspace.len() + 1, before, "the workspace forbids it");
    let mut members = 0;
    for entry in fs::read_dir(init().join("..")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let manifest = read(&format!("src/{name}/Cargo.toml"));
        if name == "sys" {
            assert_eq!(lints(&manifest, "[lints.rust]"), workspace, "sys");
            assert_eq!(read("src/sys/clippy.toml"), read("src/init/clippy.toml"));
        } else {
            assert!(manifest.contains("\n[lints]\nworkspace = true\n"), "{name}");
            members += 1;
        }
    }
    assert!(members > 1, "the members are elsewhere");
}

/// The names in a manifest's table of dependencies.
fn dependencies(folder: &str) -> BTreeSet<String> {
    let manifest = init().join("..").join(folder).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let table = manifest.split_once("\n[dependencies]\n");
    let lines = table.map_or("", |(_, table)| table).lines();
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(['.', ' ']))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn libc_is_spoken_in_sys_and_in_tests_only() {
    for (path, text) in sources().into_iter().chain(probe_sources()) {
        assert!(!code(&text).contains("libc::"), "{}", path.display());
    }
    for folder in ["init", "probe"] {
        assert!(!dependencies(folder).contains("libc"), "{folder}");
    }
}

/// Whoever needs the operating system asks `sys`, which asks nobody.
#[test]
fn sys_knows_nothing_of_other_crates_here() {
    assert_eq!(
        dependencies("sys"),
        ["libc", "mio", "signal-hook"].map(str::to_owned).into()
    );
    for (path, text) in sys_sources() {
        for word in ["pintle::", "crate::log", "crate::config"] {
            assert!(!text.contains(word), "{word} in {}", path.display());
        }
    }
}

/// The heap has no lock, and Envoy dies with the thread that has forked it. Clippy refuses the calls that it knows by name;
/// `build/symbols.py` refuses a release binary that has the C library's.
#[test]
fn no_thread_is_started() {
    for (path, text) in sources().into_iter().chain(sys_sources()) {
        if is_test(&path) {
            continue;
        }
        let lines = code(&text).lines();
        for line in lines.filter(|line| !line.trim_start().starts_with("//")) {
            for word in ["thread::", "CLONE_THREAD", "pthread_create"] {
                assert!(!line.contains(word), "{word} in {}", path.display());
            }
        }
    }
}

/// One crate, one door.
#[test]
fn each_crate_has_its_modules() {
    let doors: [(&str, &[&str]); 6] = [
        ("sha2", &["fingerprint"]),
        ("inotify", &["watcher.rs", "watcher"]),
        ("signal_hook", &[]),
        ("httparse", &["http"]),
        ("serde_core", &["json"]),
        ("serde_json", &["json"]),
    ];
    check_doors(&sources(), &doors);
    check_doors(&sys_sources(), &[("signal_hook", &["handled.rs"])]);
    let doors: [(&str, &[&str]); 8] = [
        ("argh", &["arguments.rs"]),
        ("httparse", &["request.rs"]),
        ("rustix", &["input.rs", "output.rs"]),
        ("rustls", &["tls.rs"]),
        ("rustls_graviola", &["tls.rs"]),
        ("tokio_rustls", &["tls.rs"]),
        ("tonic", &["grpc.rs"]),
        ("tonic_health", &["grpc.rs"]),
    ];
    check_doors(&probe_sources(), &doors);
}

fn check_doors(sources: &[(PathBuf, String)], doors: &[(&str, &[&str])]) {
    for (path, text) in sources {
        // Tests may check with a crate what is done without it.
        let text = code(text);
        for (name, doors) in doors {
            let inside = doors.iter().any(|door| path.starts_with(door));
            let used =
                text.contains(&format!("use {name}::")) || text.contains(&format!("{name}::"));
            assert!(
                inside || is_test(path) || !used,
                "{name} in {}",
                path.display()
            );
        }
    }
}

#[test]
fn the_core_knows_nothing_but_itself() {
    for (path, text) in sources()
        .into_iter()
        .filter(|(path, _)| path.starts_with("supervisor"))
    {
        if is_test(&path) {
            continue;
        }
        for line in text
            .lines()
            .filter(|line| line.trim_start().starts_with("use "))
        {
            let known = [
                "use std::time",
                "use std::fmt",
                "use super",
                "pub use ",
                "use stopping",
            ];
            assert!(
                known.iter().any(|known| line.starts_with(known)),
                "{}: {line}",
                path.display()
            );
        }
        for word in [
            "Instant::now",
            "crate::",
            "std::fs",
            "std::io",
            "std::net",
            "log::",
        ] {
            assert!(!text.contains(word), "{word} in {}", path.display());
        }
    }
}

#[test]
fn no_file_is_longer_than_400_lines_before_its_tests() {
    for (path, text) in sources()
        .into_iter()
        .chain(probe_sources())
        .chain(sys_sources())
        .filter(|(path, _)| !is_test(path))
    {
        let lines = code(&text).lines().count();
        assert!(
            lines <= LONGEST_FILE,
            "{} has {lines} lines",
            path.display()
        );
    }
}

/// The event loop alone comes near it: it is the one owner of everything.
const LONGEST_FILE: usize = 400;

#[test]
fn every_module_says_what_it_is() {
    for (path, text) in sources()
        .into_iter()
        .chain(probe_sources())
        .chain(sys_sources())
    {
        assert!(text.starts_with("//! "), "{}", path.display());
    }
}

/// Another run-time crate is a design change: it needs a line here and a reason in its commit.
#[test]
fn the_init_depends_on_these_crates_and_no_others() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "-p",
            "pintle",
            "-e",
            "normal,no-proc-macro",
            "--prefix",
            "none",
        ])
        .args(["--target", "x86_64-unknown-linux-musl", "--no-dedupe"])
        .current_dir(init())
        .output()
        .unwrap();
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let listed = String::from_utf8(tree.stdout).unwrap();
    let found: BTreeSet<_> = listed
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let promises = fs::read_to_string(init().join("../../build/promises.toml")).unwrap();
    let (_, list) = promises
        .split_once("crates = [")
        .expect("promises.toml lists the crates");
    let (list, _) = list.split_once(']').unwrap();
    let allowed: BTreeSet<_> = list
        .split(',')
        .map(|name| name.trim().trim_matches('"'))
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(found, allowed);
}

#[test]
fn the_top_level_is_the_one_that_was_asked_for() {
    let listed = Command::new("git")
        .args(["ls-tree", "--name-only", "HEAD"])
        .current_dir(init().join("../.."))
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let found: BTreeSet<_> = listed
        .lines()
        .filter(|name| !name.starts_with('.'))
        .collect();
    let allowed = [
        "CHANGELOG.md",
        "Cargo.lock",
        "Cargo.toml",
        "Containerfile",
        "LICENSE",
        "README.md",
        "build",
        "justfile",
        "src",
        "tests",
    ];
    assert_eq!(found, BTreeSet::from(allowed));
}
