//! Real files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use api::config::ServedInstead;
use tempfile::TempDir;

use super::*;

struct Play {
    folder: TempDir,
    directory: Directory,
    look: DirectoryScan,
}

fn usable(_: CoreKind, json: &str) -> Result<(), String> {
    match json.contains("unusable") {
        true => Err("not usable".to_owned()),
        false => Ok(()),
    }
}

/// A VirtualService of that name, to that host.
fn service(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata:\n  name: {name}\nspec:\n  hosts: [{name}]\n  http:\n  - route:\n    - destination:\n        host: {host}\n---\n"
    )
}

impl Play {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::new(folder.path(), usable);
        Self {
            folder,
            directory,
            look: DirectoryScan::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// The changes: `a` is set, `a@LINE` has moved, `a-` is gone.
    fn look(&mut self) -> String {
        self.look = self.directory.scan().unwrap();
        let name = |id: &EntryId| id.name.trim_start_matches("default/").to_owned();
        let words = self.look.changes.iter().map(|change| match change {
            EntryChange::Set(id, ..) => name(id),
            EntryChange::Moved(id, _, origin) => format!("{}@{}", name(id), origin.line()),
            EntryChange::Gone(id) => name(id) + "-",
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Returns the refused objects as text, with paths relative to the folder.
    fn told(&self) -> Vec<String> {
        let folder = format!("{}", self.folder.path().display());
        let refused = self.look.report.refused.iter();
        refused
            .map(|one| one.to_string().replace(&folder, "."))
            .collect()
    }

    fn served(&self) -> usize {
        self.directory.all().count()
    }

    /// Scans until no unchanged file is read again, which takes one tick of the file system's clock.
    fn settle(&mut self) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            assert_eq!(self.look(), "");
            if self.look.read == 0 {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "it never settles");
        }
    }
}

#[test]
fn each_change_is_just_that_difference() {
    let mut play = Play::new();
    play.write("a.yaml", service("a", "x") + &service("b", "x"));
    play.write("d/c.yml", service("c", "x"));
    play.write("d/.hidden.yaml", service("h", "x"));
    play.write("notes.txt", "not: [yaml");
    assert_eq!(play.look(), "a b c");
    assert_eq!((play.look.files, play.look.read), (2, 2));
    play.settle();
    // One document of several is changed, one is added, one is gone.
    play.write(
        "a.yaml",
        service("a", "y") + &service("b", "x") + &service("e", "x"),
    );
    assert_eq!((play.look().as_str(), play.look.read), ("a e", 1));
    play.write("a.yaml", service("b", "x") + &service("e", "x"));
    assert_eq!(play.look(), "a- b@1 e@12");
    // Renamed.
    play.settle();
    fs::rename(play.path("a.yaml"), play.path("z.yaml")).unwrap();
    assert_eq!((play.look().as_str(), play.look.read), ("b@1 e@12", 1));
    // Another file in its place, and the same again.
    play.write("new", service("b", "z") + &service("e", "x"));
    fs::rename(play.path("new"), play.path("z.yaml")).unwrap();
    assert_eq!(play.look(), "b");
    play.write(
        "z.yaml",
        "# words\n".to_owned() + &service("e", "x") + &service("b", "z"),
    );
    assert_eq!(play.look(), "b@13 e@2");
    assert_eq!(play.look(), "");
    play.remove("d/c.yml");
    assert_eq!(play.look(), "c-");
    // Empty is gone, too.
    play.write("z.yaml", "");
    assert_eq!(play.look(), "b- e-");
    assert!(play.told().is_empty());
}

#[test]
fn a_swap_of_a_volume_is_one_change() {
    let mut play = Play::new();
    play.write("..1/a.yaml", service("a", "x"));
    play.write("..1/b.yaml", service("b", "x"));
    symlink("..1", play.path("..data")).unwrap();
    for name in ["a.yaml", "b.yaml"] {
        symlink(format!("..data/{name}"), play.path(name)).unwrap();
    }
    assert_eq!(play.look(), "a b");
    play.write("..2/a.yaml", service("a", "y"));
    play.write("..2/b.yaml", service("b", "x"));
    symlink("..2", play.path("..new")).unwrap();
    assert_eq!(play.look(), "");
    fs::rename(play.path("..new"), play.path("..data")).unwrap();
    fs::remove_dir_all(play.path("..1")).unwrap();
    assert_eq!(play.look(), "a");
    // The directories of the volume are watched, too.
    let folders = play
        .look
        .folders
        .iter()
        .map(|one| fs::canonicalize(one).unwrap());
    let second = fs::canonicalize(play.path("..2")).unwrap();
    assert!(folders.into_iter().any(|one| one == second));
}

#[test]
fn a_file_that_is_broken_halfway_keeps_its_objects() {
    let mut play = Play::new();
    play.write("a.yaml", service("a", "x") + &service("b", "x"));
    play.look();
    play.write("a.yaml", service("a", "y") + "spec: [\n");
    assert_eq!(play.look(), "");
    let told = play.told();
    assert!(
        told.len() == 1 && told[0].starts_with("./a.yaml:1"),
        "{told:?}"
    );
    assert_eq!(play.look.report.refused[0].serving, ServedInstead::Old);
    assert_eq!((play.look(), play.told()), (String::new(), told));
    play.write("a.yaml", service("a", "y") + &service("b", "x"));
    assert_eq!(play.look(), "a");
    assert!(play.told().is_empty());
    // Broken, and then as it was.
    play.write("a.yaml", [0xff, b'\n']);
    assert_eq!(play.look(), "");
    assert_eq!(
        play.told(),
        ["./a.yaml:1: stale: cannot parse: it is not UTF-8"]
    );
    play.write("a.yaml", service("a", "y") + &service("b", "x"));
    assert_eq!(play.look(), "");
    assert!(play.told().is_empty());
}

#[test]
fn a_broken_object_harms_itself_alone() {
    let mut play = Play::new();
    let all = |last: &str| {
        (0..20)
            .map(|at| service(&format!("n{at:02}"), "x"))
            .collect::<String>()
            + last
    };
    play.write("a.yaml", all(&service("z", "x")));
    play.look();
    let broken = service("z", "x").replace("hosts", "hots");
    play.write("a.yaml", all(&broken));
    assert_eq!(play.look(), "");
    let at = all("").lines().count();
    assert_eq!(
        play.told(),
        [format!(
            "./a.yaml:{}: VirtualService default/z: stale: spec.hots: unknown field, did you mean \"hosts\"?",
            at + 6
        )]
    );
    play.write("b.yaml", service("y", "x").replace("hosts", "hots"));
    assert_eq!(play.look(), "");
    assert_eq!(play.look.report.refused[1].serving, ServedInstead::Nothing);
    assert_eq!(play.served(), 21);
    // Renamed within the list: gone, and another that was never good.
    play.write("a.yaml", all(&broken.replace("name: z", "name: w")));
    assert_eq!(play.look(), "z-");
    assert_eq!(play.look.report.refused[0].serving, ServedInstead::Nothing);
}

/// The finding that counts the remaining ones has no path, hence no line.
#[test]
fn the_first_of_many_faults_is_named() {
    let mut play = Play::new();
    let hosts: String = (0..150).map(|at| format!("  - a_{at}\n")).collect();
    let broken = service("a", "x").replace("  hosts: [a]\n", &format!("  hosts:\n{hosts}"));
    play.write("a.yaml", service("b", "x") + &broken);
    assert_eq!(play.look(), "b");
    let refused = &play.look.report.refused[0];
    let before = service("b", "x").lines().count();
    let line = format!("/a.yaml:{}", before + 7);
    let origin = refused.origin.to_string();
    assert!(origin.ends_with(&line), "{origin}");
    assert_eq!(refused.findings.len(), 101);
    assert_eq!(refused.findings[0].path, "spec.hosts[0]");
    assert_eq!(refused.findings[100].message, "… and 50 more");
}

#[test]
fn the_first_by_path_bytes_is_served() {
    let mut play = Play::new();
    // `-` sorts before `/`, unlike in a traversal of the tree.
    play.write("a/z.yaml", service("a", "x"));
    play.write("a-b.yaml", service("a", "y"));
    assert_eq!(play.look(), "a");
    assert_eq!(
        play.told(),
        [
            "./a/z.yaml:1: VirtualService default/a: refused: metadata.name: duplicate of ./a-b.yaml:1"
        ]
    );
    play.remove("a-b.yaml");
    assert_eq!(play.look(), "a");
    assert!(play.told().is_empty());
}

#[test]
fn files_without_configuration_harm_no_other_file() {
    let mut play = Play::new();
    play.write("good.yaml", service("a", "x"));
    let mut bomb =
        "apiVersion: networking.istio.io/v1\nkind: Gateway\na: &a [x,x,x,x,x,x,x,x,x,x]\n"
            .to_owned();
    for (name, before) in ('b'..='h').zip('a'..) {
        bomb += &format!("{name}: &{name} [{}]\n", format!("*{before},").repeat(10));
    }
    play.write("bomb.yaml", bomb);
    play.write(
        "deep.yaml",
        format!("a: {}{}", "[".repeat(200), "]".repeat(200)),
    );
    let long = fs::File::create(play.path("long.yaml")).unwrap();
    long.set_len(20 << 20).unwrap();
    symlink(".", play.path("loop")).unwrap();
    symlink("self.yaml", play.path("self.yaml")).unwrap();
    let name = OsStr::from_bytes(b"n\xff.yaml");
    fs::write(play.folder.path().join(name), service("n", "x")).unwrap();
    assert_eq!(play.look(), "a");
    let told = play.told();
    for (place, cause) in [
        ("./bomb.yaml:", "more than 200000 values"),
        ("./deep.yaml:", "nested too deeply"),
        (
            "./long.yaml:",
            "longer than 16 MiB: split it into several files",
        ),
        ("./self.yaml:", "cannot read: "),
        ("./n\u{fffd}.yaml:", "its name is not UTF-8"),
    ] {
        let said = |line: &&String| line.starts_with(place) && line.contains(cause);
        assert_eq!(told.iter().filter(said).count(), 1, "{place}: {told:?}");
    }
    assert_eq!(told.len(), 5);
}

/// Alone or in a List, which is no level of its items.
#[test]
fn one_that_is_nested_too_deeply_is_refused_alone() {
    let filter = |levels: usize| {
        format!(
            "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: deep}}, spec: {{configPatches: [{{applyTo: CLUSTER, patch: {{operation: ADD, value: {{a: {}{}}}}}}}]}}}}",
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    for (levels, served, told) in [
        (58, "a deep b", None),
        (59, "a b", Some("nested too deeply")),
        (100, "a b", Some("nested too deeply")),
    ] {
        let filter = filter(levels);
        for between in [
            format!("{filter}\n---\n"),
            format!("{{apiVersion: v1, kind: List, items: [{filter}]}}\n---\n"),
        ] {
            let mut play = Play::new();
            play.write("a.yaml", service("a", "x") + &between + &service("b", "x"));
            let mut names: Vec<_> = play.look().split(' ').map(str::to_owned).collect();
            names.sort_by_key(|name| served.find(name.as_str()));
            assert_eq!(names.join(" "), served, "{levels}");
            let line = service("a", "x").lines().count() + 1;
            let told = told.map(|cause| {
                format!("./a.yaml:{line}: EnvoyFilter default/deep: refused: {cause}")
            });
            assert_eq!(play.told(), Vec::from_iter(told), "{levels}");
        }
    }
}

/// kubectl would reject these values where a string is wanted; objects of other programs are not checked.
#[test]
fn a_number_that_json_does_not_have_harms_its_object_alone() {
    let mut play = Play::new();
    let others = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, labels: {a: .inf, b: 12e4567}}\n---\n";
    let odd = service("odd", "x").replace("hosts: [odd]", "hosts: [odd, .nan]");
    play.write(
        "a.yaml",
        service("a", "x") + others + &odd + &service("b", "x"),
    );
    assert_eq!(play.look(), "a b");
    let line = service("a", "x").lines().count() + others.lines().count() + 6;
    assert_eq!(
        play.told(),
        [format!(
            "./a.yaml:{line}: VirtualService default/odd: refused: spec.hosts[1]: \".nan\" is not a host name: \"\" is not a DNS label"
        )]
    );
}

/// It was called stale, though nothing of it was ever served.
#[test]
fn a_pipe_is_refused_and_the_objects_of_a_file_that_becomes_one_stay() {
    let mut play = Play::new();
    let pipe = |path: PathBuf| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    };
    pipe(play.path("p.yaml"));
    symlink("/dev/zero", play.path("z.yaml")).unwrap();
    play.write("a.yaml", service("a", "x"));
    assert_eq!(play.look(), "a");
    let irregular = [
        "./p.yaml: refused: not a regular file",
        "./z.yaml: refused: not a regular file",
    ];
    assert_eq!(play.told(), irregular);
    play.remove("a.yaml");
    pipe(play.path("a.yaml"));
    assert_eq!(play.look(), "");
    let stale = "./a.yaml: stale: not a regular file";
    assert_eq!(play.told(), [&[stale], &irregular[..]].concat());
    play.remove("a.yaml");
    play.remove("p.yaml");
    play.write("p.yaml", service("p", "x"));
    assert_eq!(play.look(), "a- p");
    assert_eq!(play.told(), irregular[1..]);
}

#[test]
fn objects_of_an_unreadable_directory_stay() {
    let mut play = Play::new();
    play.write("d/a.yaml", service("a", "x"));
    play.write("e.yaml", service("e", "x"));
    assert_eq!(play.look(), "a e");
    let forbid = |mode| {
        fs::set_permissions(
            play.folder.path().join("d"),
            fs::Permissions::from_mode(mode),
        )
        .unwrap();
    };
    forbid(0);
    // root is denied nothing, so the check depends on the user.
    let is_refused = fs::read_dir(play.path("d")).is_err();
    let look = play.directory.scan().unwrap();
    assert!(look.changes.is_empty());
    let told: Vec<_> = look
        .report
        .refused
        .iter()
        .map(ToString::to_string)
        .collect();
    forbid(0o700);
    if is_refused {
        assert!(
            told.len() == 1 && told[0].contains("/d: stale: cannot read: "),
            "{told:?}"
        );
    }
    // A dangling link may have led to a directory.
    fs::rename(play.path("d"), play.path(".d")).unwrap();
    symlink("nowhere", play.path("d")).unwrap();
    assert_eq!(play.look(), "");
    assert_eq!(
        play.told(),
        ["./d: stale: cannot read: the link leads nowhere"]
    );
    play.remove("d");
    assert_eq!(play.look(), "a-");
    assert!(play.told().is_empty());
}

#[test]
fn a_directory_that_is_gone_changes_nothing() {
    let mut play = Play::new();
    play.write("a.yaml", service("a", "x"));
    play.write("b.yaml", service("b", "x"));
    play.look();
    let away = play.folder.path().with_extension("away");
    fs::rename(play.folder.path(), &away).unwrap();
    assert!(play.directory.scan().is_err());
    assert_eq!(play.served(), 2);
    fs::remove_file(away.join("b.yaml")).unwrap();
    fs::rename(&away, play.folder.path()).unwrap();
    assert_eq!(play.look(), "b-");
}

#[test]
fn one_file_is_a_source_as_well() {
    let mut play = Play::new();
    play.write("rules", service("a", "x") + "kind: [\n");
    play.directory = Directory::new(&play.path("rules"), usable);
    assert_eq!(play.look(), "");
    let told = play.told();
    assert!(told[0].starts_with("./rules:1"), "{told:?}");
    play.write("rules", service("a", "x"));
    assert_eq!(play.look(), "a");
    play.write("next", service("b", "x"));
    fs::rename(play.path("next"), play.path("rules")).unwrap();
    assert_eq!(play.look(), "a- b");
    // Something else in its place takes nothing away.
    for other in ["/dev/null", "."] {
        fs::remove_file(play.path("rules")).unwrap();
        symlink(other, play.path("rules")).unwrap();
        assert!(play.directory.scan().is_err(), "{other}");
        assert_eq!(play.served(), 1);
    }
    fs::remove_file(play.path("rules")).unwrap();
    play.write("rules", service("c", "x"));
    assert_eq!(play.look(), "b- c");
}

#[test]
fn objects_of_others_are_handed_on_or_ignored() {
    let mut play = Play::new();
    let ingress = "apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: i}\nspec: {rules: [{host: a}]}\nstatus: {x: y}\n---\n";
    let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: n}}\n- {apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: b}}\n";
    play.write("a.yaml", format!("{ingress}{list}"));
    assert_eq!(play.look(), "n i");
    let all: BTreeMap<_, _> = play
        .directory
        .all()
        .map(|(id, entry)| (id.to_string(), entry.clone()))
        .collect();
    let Entry::Core { json, .. } = &all["Ingress default/i"] else {
        panic!("another");
    };
    assert_eq!(
        &**json,
        r#"{"metadata":{"name":"i","namespace":"default"},"spec":{"rules":[{"host":"a"}]}}"#
    );
    assert!(all.contains_key("Node n"));
    play.write("a.yaml", ingress.replace("host: a", "host: unusable"));
    assert_eq!(play.look(), "n-");
    assert_eq!(
        play.told(),
        ["./a.yaml:1: Ingress default/i: stale: not usable"]
    );
}

#[test]
fn everything_is_read_again_when_that_is_asked_for() {
    let mut play = Play::new();
    for at in 0..300 {
        play.write(&format!("{at}.yaml"), service(&format!("n{at}"), "x"));
    }
    play.look();
    play.settle();
    play.write("7.yaml", service("n7", "y"));
    assert_eq!((play.look().as_str(), play.look.read), ("n7", 1));
    let report = Arc::clone(&play.look.report);
    play.directory.forget_stamps();
    assert_eq!((play.look().as_str(), play.look.read), ("", 300));
    assert!(Arc::ptr_eq(&report, &play.look.report));
}
