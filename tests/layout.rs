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

mod homonyms;
mod imports;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use imports::Edges;

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

#[test]
fn no_two_types_of_a_crate_have_one_name() {
    for (name, sources) in [
        ("init", sources()),
        ("sys", sys_sources()),
        ("probe", probe_sources()),
    ] {
        let files = sources.iter().filter(|(path, _)| !is_test(path));
        let found = homonyms::homonyms(files.map(|(_, text)| code(text)));
        assert!(found.is_empty(), "{name}: types of one name: {found:?}");
    }
}

/// The heap has no lock, and Envoy dies with the thread that has forked it. Clippy refuses the calls that it knows by name;
/// `build/ci/symbols.py` refuses a release binary that has the C library's.
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
        ("argh", &["arguments.rs", "typed.rs"]),
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
            lines <= MAX_FILE_LINES,
            "{} has {lines} lines",
            path.display()
        );
    }
}

/// The event loop alone comes near it: it is the one owner of everything.
const MAX_FILE_LINES: usize = 400;

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

/// `cargo test` feeds each fuzz target's kept inputs to its property; an archive that no test reads would show nothing.
#[test]
fn a_test_replays_the_kept_inputs_of_each_fuzz_target() {
    let data = init().join("../../tests/data");
    let sources = sources_of(&init().join(".."));
    let mut targets = 0;
    for folder in fs::read_dir(data.join("fuzz")).unwrap() {
        let target = folder.unwrap().file_name().into_string().unwrap();
        let archive = data.join(format!("corpora/{target}.tar.gz"));
        assert!(archive.exists(), "cannot find {}", archive.display());
        // The init's are rows of a table.
        let calls = [
            format!("replay(\"{target}\","),
            format!("    (\"{target}\", "),
        ];
        let replayed = sources
            .iter()
            .any(|(_, text)| calls.iter().any(|call| text.contains(call)));
        assert!(replayed, "no test replays {target}");
        targets += 1;
    }
    assert!(targets > 20, "the targets are elsewhere");
}

/// A builder knows an argument in a `FROM` only if it stands before the first one: with an `ARG` inside a stage no image of the
/// file can be built, whichever is asked for.
#[test]
fn each_base_image_by_argument_is_declared_before_the_first_stage() {
    let text = fs::read_to_string(init().join("../../Containerfile")).unwrap();
    let (head, _) = text.split_once("\nFROM ").unwrap();
    let declared: BTreeSet<_> = head
        .lines()
        .filter_map(|line| line.strip_prefix("ARG ")?.split_once('='))
        .map(|(name, _)| name)
        .collect();
    let used: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("FROM $")?.split_whitespace().next())
        .collect();
    assert!(!used.is_empty(), "no base image is named by an argument");
    assert!(used.is_subset(&declared), "{used:?} of {declared:?}");
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

/// The init's edges, without `main.rs`, which is another crate.
fn room_edges() -> Edges {
    let mut sources = sources();
    sources.retain(|(path, _)| path != Path::new("main.rs"));
    imports::edges(&sources)
}

/// Who may know whom, and why: a room, and the rooms below it. Knowledge goes one way, so that each room can be read,
/// tested and moved without those above it.
const ROOMS: &[(&str, &[(&str, &str)])] = &[
    (
        "admin",
        &[
            ("config", "which listeners a drain closes"),
            ("http", "answers of the admin port, and exchanges"),
            ("readiness", "what the admin port says of it"),
            ("search", "a name in a page of /stats"),
            ("supervisor", "calls and replies are the core's words"),
        ],
    ),
    (
        "adopted",
        &[
            ("children", "whose processes are not orphans"),
            ("log", "who is ended at the end"),
        ],
    ),
    (
        "bootstrap",
        &[
            ("json", "the document"),
            ("regular", "the user's files"),
            ("search", "a mark in a template"),
            ("values", "addresses, durations and the role"),
        ],
    ),
    (
        "children",
        &[
            ("config", "how a proxy is started"),
            (
                "supervisor",
                "a process is known by its epoch; how it ended",
            ),
        ],
    ),
    (
        "cli",
        &[
            ("log", "flags that say where to log"),
            ("search", "a word in a list of flags"),
            ("url", "whom a command asks"),
            ("values", "what a switch means"),
        ],
    ),
    (
        "client",
        &[
            ("cli", "what was typed"),
            ("clock", "how long it waits"),
            ("http", "the parser of answers"),
            ("json", "/status"),
            ("supervisor", "times as the core writes them"),
            ("url", "whom to ask"),
        ],
    ),
    (
        "config",
        &[
            ("bootstrap", "what the document is made from"),
            ("cli", "flags are one layer"),
            ("environment", "variables are another"),
            ("json", "PROXY_CONFIG"),
            ("log", "how to log"),
            ("search", "a mark in a text"),
            ("supervisor", "the policy is made here"),
            ("url", "a path in a request"),
            ("values", "what a text means"),
        ],
    ),
    (
        "counters",
        &[("supervisor", "how a process ended, and why one started")],
    ),
    (
        "environment",
        &[("cli", "an argument and a variable are the same type")],
    ),
    ("error", &[("bootstrap", "a start may fail by it")]),
    (
        "event_loop",
        &[
            ("admin", "owns it"),
            ("adopted", "the end"),
            ("bootstrap", "rendered for each epoch"),
            ("children", "owns it"),
            ("clock", "read once in a turn"),
            ("config", "made before the start"),
            ("counters", "owns it"),
            ("error", "a start may fail"),
            ("fingerprint", "owns it"),
            ("history", "owns it"),
            ("host", "kills for want of memory"),
            ("hot_restart", "owns it"),
            ("log", "what the core has to say"),
            ("readiness", "owns it"),
            ("signals", "owns it"),
            ("status", "what the port may use in a turn"),
            ("status/probes", "runs the helper of a probe"),
            ("status/server", "owns it"),
            ("store", "owns it"),
            ("supervisor", "events in, actions out"),
            ("timeline", "said once the proxy has been started"),
            ("values", "the role decides what readiness needs"),
            ("watcher", "owns it"),
        ],
    ),
    (
        "fingerprint",
        &[
            ("certificate", "when one ends"),
            ("log", "what cannot be read"),
            ("regular", "opens what is watched"),
            ("supervisor", "the fingerprint is the core's word"),
        ],
    ),
    (
        "history",
        &[
            ("readiness", "a stage is worth telling"),
            ("supervisor", "notes, epochs and how they ended"),
        ],
    ),
    (
        "host",
        &[
            ("config", "what the configuration asks about the machine"),
            ("search", "a mark in a line of /proc"),
        ],
    ),
    (
        "hot_restart",
        &[
            ("regular", "opens the shared memory"),
            ("supervisor", "the epochs of parent and child"),
            ("values", "the base id"),
        ],
    ),
    ("http", &[("search", "the scheme in a request's target")]),
    (
        "init",
        &[
            ("adopted", "orphans at the end"),
            ("children", "starts and reaps"),
            ("cli", "what was typed"),
            ("clock", "when the patience is over"),
            ("log", "what it has to say"),
            ("signals", "passes them on"),
            ("supervisor", "how a process ended"),
        ],
    ),
    (
        "lib",
        &[
            ("cli", "parses"),
            ("client", "one of the commands"),
            ("config", "checked before the start"),
            ("environment", "read before the start"),
            ("error", "why a start failed"),
            ("event_loop", "one of the commands"),
            ("host", "looked at before the start"),
            ("log", "opened before the start"),
            ("init", "one of the commands"),
            ("signals", "held before anything else"),
        ],
    ),
    ("log", &[("clock", "a line's time stamp")]),
    (
        "readiness",
        &[("supervisor", "what the core knows decides first")],
    ),
    (
        "status",
        &[
            ("children", "pids of what runs"),
            ("config", "what the port answers by"),
            ("counters", "what it counts, and tells"),
            ("history", "what it tells"),
            ("http", "what an application is asked"),
            ("readiness", "what it tells"),
            ("search", "a scheme in a location"),
            ("supervisor", "what it tells"),
            ("values", "the role, host and port of a location"),
        ],
    ),
    (
        "status/metrics",
        &[
            ("counters", "most of the agent's own"),
            ("host", "reads files of /proc"),
            ("http", "pages of others"),
            ("log", "lines that were lost, sources that fail"),
            ("status", "a turn, the settings, the view"),
            ("supervisor", "states by name"),
        ],
    ),
    (
        "status/pages",
        &[
            ("counters", "names of the reasons"),
            ("history", "events and epochs"),
            ("log", "times as the log writes them"),
            ("status", "the view"),
            ("supervisor", "states by name"),
        ],
    ),
    (
        "status/probes",
        &[
            ("http", "asks the application"),
            ("status", "a turn, the form of an answer, what is asked"),
        ],
    ),
    (
        "status/server",
        &[
            ("config", "the probes that flags describe"),
            ("http", "parses requests"),
            ("log", "an error of accept"),
            ("readiness", "the answer that clients wait for"),
            ("search", "a scheme in an Origin"),
            ("status", "a turn, the settings, the form of an answer"),
            ("status/metrics", "asks it"),
            ("status/pages", "asks it"),
            ("status/probes", "asks it"),
            ("values", "host and port of a Host header"),
        ],
    ),
    (
        "store",
        &[
            ("supervisor", "a bootstrap is of an epoch"),
            ("values", "whose the files are"),
        ],
    ),
    (
        "timeline",
        &[
            ("cli", "the version"),
            ("config", "times that the flags give"),
            ("log", "what it has to say"),
            ("supervisor", "times that the policy has"),
        ],
    ),
    ("url", &[("values", "host and port")]),
    (
        "values",
        &[
            ("log", "the names of the levels"),
            ("search", "the last mark of an authority"),
            ("supervisor", "durations as the core writes them"),
        ],
    ),
    (
        "watcher",
        &[(
            "fingerprint",
            "watches what is hashed, with the same limits",
        )],
    ),
];

fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = ROOMS.iter();
    rows.flat_map(|(from, known)| known.iter().map(move |(to, _)| (*from, *to)))
}

#[test]
fn rooms_know_whom_the_table_allows_and_nobody_else() {
    let edges = room_edges();
    assert!(edges.len() > 100, "the rooms are elsewhere");
    let allowed: BTreeSet<_> = rows().collect();
    for ((from, to), place) in &edges {
        assert!(
            allowed.contains(&(from.as_str(), to.as_str())),
            "{from} may not know {to}, but does in {place}.\n\
             Knowledge goes one way: what both need belongs into a room below both. Where it is right that {from} knows \
             {to}, ROOMS in tests/layout.rs says so, with the reason."
        );
    }
    for (from, to) in rows() {
        let used = edges.contains_key(&(from.to_owned(), to.to_owned()));
        assert!(used, "{from} does not know {to} any more: strike the row");
    }
}

#[test]
fn the_table_of_rooms_has_no_circle_and_a_reason_for_each_row() {
    assert_eq!(imports::circle(rows()), [""; 0], "these know each other");
    let mut seen = BTreeSet::new();
    for (from, known) in ROOMS {
        for (to, reason) in *known {
            assert!(seen.insert((from, to)), "{from} -> {to} stands twice");
            assert!(reason.len() > 4, "{from} -> {to}: why?");
        }
    }
}

/// A stranger who meets a room's name finds it in the map.
#[test]
fn the_map_names_every_room() {
    let map = fs::read_to_string(init().join("lib.rs")).unwrap();
    let (_, map) = map.split_once("# Where to look").unwrap();
    let rooms: BTreeSet<_> = rows().flat_map(|(from, to)| [from, to]).collect();
    for room in rooms.into_iter().filter(|room| *room != "lib") {
        let name = room.rsplit('/').next().unwrap();
        assert!(
            map.contains(&format!("`{name}`")),
            "lib.rs is silent on {room}"
        );
    }
}

/// The reader itself, on a crate with everything that it has to see, and to overlook.
#[test]
fn imports_are_read_in_all_of_their_forms() {
    let source = |(path, text): (&str, &str)| (PathBuf::from(path), text.to_owned());
    let files = [
        (
            "lib.rs",
            "mod a; pub(crate) mod b; mod c; mod d; mod e; mod f; #[cfg(test)] mod helpers;\n\
             #[cfg(any(test, fuzzing))] #[allow(x)] pub mod properties; fn main() { a::run::<b::Thing>() }",
        ),
        (
            "a.rs",
            "use crate::{b, c::{self as sea, deep::{Thing, Other as _}}};\nfn f() { b::inner::g(); crate::d::Type::new() }",
        ),
        ("b/mod.rs", "pub mod inner; pub(crate) use self::inner::g;"),
        (
            "b/inner.rs",
            "use super::super::e; fn g<'a>(x: &'a str) -> char { super::h(); '\"'; x; std::a::f(); 'e' }",
        ),
        (
            "c/mod.rs",
            "mod deep; mod inside { use super::deep; fn f() { super::super::f::f() } }",
        ),
        (
            "c/deep/mod.rs",
            "//! crate::a\nconst X: &str = \"crate::a \\\" crate::a\"; const Y: &str = r#\"crate::a\"#;\n\
             #[cfg(test)]\nmod tests { use crate::a; fn f() { if true { crate::a::f() } } }\n\
             #[cfg(test)] pub(crate) use crate::a::{f, g};\n#[cfg(test)] fn t() -> [u8; 2] { crate::a::f() }\n\
             fn f() { <crate::d::Type as X>::f(); Type::a::f(); }",
        ),
        ("d.rs", "fn f() { e::f() } use crate::e;"),
        ("e.rs", ""),
        ("f.rs", "macro_rules! m { () => { $crate::e::f() } }"),
        ("helpers.rs", "use crate::a;"),
        ("properties.rs", "use crate::a;"),
    ];
    let edges = imports::edges(&files.map(source));
    let found: Vec<_> = edges
        .keys()
        .map(|(from, to)| format!("{from}->{to}"))
        .collect();
    let expected = [
        "a->b",
        "a->c",
        "a->c/deep",
        "a->d",
        "b->e",
        "c->c/deep",
        "c->f",
        "c/deep->d",
        "d->e",
        "f->e",
        "lib->a",
        "lib->b",
    ];
    assert_eq!(found, expected);
    let place = &edges[&("a".to_owned(), "c/deep".to_owned())];
    assert_eq!(place, "a.rs: crate::c::deep::Thing");
}

/// What a folder's module passes on is known by who declares it, whatever it is called there.
#[test]
fn names_that_are_passed_on_lead_to_who_declares_them() {
    let source = |(path, text): (&str, &str)| (PathBuf::from(path), text.to_owned());
    let files = [
        ("lib.rs", "mod a; mod b;"),
        (
            "a/mod.rs",
            "mod one; mod two; mod three; pub use one::Thing as Other; pub(crate) use self::three::deep::f; use two::Two;",
        ),
        ("a/one.rs", "use super::two::g; fn h() { super::f() }"),
        ("a/two.rs", "use super::Other; struct Two;"),
        ("a/three/mod.rs", "pub mod deep;"),
        (
            "a/three/deep.rs",
            "use crate::b; mod inside { use super::super::super::Two; }",
        ),
        (
            "b.rs",
            "pub use crate::a::Other; pub use crate::b::Other as Again; fn f() { crate::a::f() }",
        ),
    ];
    let folders = imports::siblings(&files.map(source));
    let found: Vec<_> = folders
        .iter()
        .flat_map(|(folder, edges)| {
            let edges = edges.keys();
            edges.map(move |(from, to)| format!("{folder}: {from}->{to}"))
        })
        .collect();
    let expected = [
        ": a->b",
        ": b->a",
        "a: one->three",
        "a: one->two",
        "a: three->two",
        "a: two->one",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_circle_is_found_wherever_it_is() {
    let circle = |edges: &[(&'static str, &'static str)]| imports::circle(edges.iter().copied());
    assert_eq!(circle(&[("a", "b"), ("b", "c"), ("a", "c")]), [""; 0]);
    assert_eq!(
        circle(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]),
        ["b", "c"]
    );
    assert_eq!(
        circle(&[("a", "b"), ("b", "c"), ("c", "a")]),
        ["a", "b", "c"]
    );
}
