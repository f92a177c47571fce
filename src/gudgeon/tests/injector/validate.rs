//! `gudgeon validate` as a program: files, directories, stdin, both forms of the answer, lines and codes.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{gudgeon, not_root, run};
use serde_json::{Value, json};

const GOOD: &str = "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: web
  namespace: ns
spec:
  hosts: [web]
  http:
  - route:
    - destination: {host: web}
      weight: 75
    - destination: {host: web, subset: v2}
      weight: 25
";

/// The note of any ServiceRole that is valid.
const NOTE: &str = "warning: kind: ServiceRole has no effect in this release: it is accepted, and gudgeon discovery does \
                    not enforce it; in its place: AuthorizationPolicy";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn out(done: &Output) -> String {
    String::from_utf8(done.stdout.clone()).unwrap()
}

fn err(done: &Output) -> String {
    String::from_utf8(done.stderr.clone()).unwrap()
}

fn code(done: &Output) -> Option<i32> {
    done.status.code()
}

/// Through stdin.
fn piped(arguments: &[&str], text: &str) -> Output {
    let mut child = gudgeon()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn a_good_file_is_0_and_says_so() {
    let folder = Folder::new();
    let file = folder.write("good.yaml", GOOD);
    let done = run(&["validate", "-f", &file]);
    assert_eq!((err(&done), code(&done)), (String::new(), Some(0)));
    assert_eq!(
        out(&done),
        "1 objects, 1 valid, 0 invalid, 0 warnings, 0 skipped\n"
    );
    let linked = folder.path("istioctl");
    symlink(env!("CARGO_BIN_EXE_gudgeon"), &linked).unwrap();
    let done = Command::new(&linked)
        .args(["validate", "-f", &file])
        .output()
        .unwrap();
    assert_eq!(
        (out(&done).as_str(), code(&done)),
        (
            "1 objects, 1 valid, 0 invalid, 0 warnings, 0 skipped\n",
            Some(0)
        )
    );
    // A kind with an effect has no warning, except for a field that has one at some proxies alone.
    let rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a}\nspec:\n  host: a.example\n  \
                exportTo: ['.']\n  trafficPolicy:\n    tls: {mode: SIMPLE, credentialName: b}\n";
    let done = piped(&["validate", "-f", "-"], rule);
    assert_eq!(
        err(&done),
        "-:8: DestinationRule default/a: warning: spec.trafficPolicy.tls.credentialName: counts at routers alone: sidecars want a workloadSelector for it\n"
    );
    assert_eq!(code(&done), Some(0));
    let done = piped(
        &["validate", "-f", "-"],
        &rule.replace(", credentialName: b", ""),
    );
    assert_eq!(
        (err(&done).as_str(), out(&done).as_str()),
        ("", "1 objects, 1 valid, 0 invalid, 0 warnings, 0 skipped\n")
    );
    // A role, and a route for nobody: nothing of it is enforced, and each says so.
    let rules = "apiVersion: rbac.istio.io/v1alpha1\nkind: ServiceRole\nmetadata: {name: all}\nspec: {rules: [{services: ['*']}]}\n---\n\
                 apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v}\nspec: {hosts: [], http: [{route: \
                 [{destination: {host: a}}]}]}\n";
    let done = piped(&["validate", "-f", "-"], rules);
    assert_eq!(
        err(&done),
        format!(
            "-:2: ServiceRole default/all: {NOTE}\n\
             -:9: VirtualService default/v: warning: spec.hosts: without hosts it only serves as a delegate\n"
        )
    );
    assert_eq!(code(&done), Some(0));
}

#[test]
fn each_finding_has_file_line_kind_name_path_and_message() {
    let folder = Folder::new();
    let bad = GOOD
        .replace("weight: 25", "weight: 20")
        .replace("name: web\n", "name: other\n");
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n";
    let file = folder.write("three.yaml", &format!("{GOOD}---\n{service}---\n{bad}"));
    let second = GOOD
        .replace("http:", "htp:")
        .replace("  namespace: ns\n", "")
        .replace("name: web\n", "name: second\n");
    let second = folder.write("second.yaml", &second);
    let done = run(&[
        "validate",
        "-f",
        &file,
        "--filename",
        &second,
        "--namespace=team",
    ]);
    // The third document begins at line 19, its list of routes is the tenth line of it.
    assert_eq!(
        err(&done),
        format!(
            "{file}:28: VirtualService ns/other: spec.http[0].route: weights add up to 95, not 100\n\
             {second}:6: VirtualService team/second: spec: needs http, tls or tcp\n\
             {second}:8: VirtualService team/second: spec.htp: unknown field, did you mean \"http\"?\n"
        )
    );
    assert_eq!(
        out(&done),
        "4 objects, 1 valid, 2 invalid, 0 warnings, 1 skipped\n"
    );
    assert_eq!(code(&done), Some(1));
}

#[test]
fn json_is_one_array_and_nothing_else() {
    let folder = Folder::new();
    let text = GOOD.replace("hosts: [web]", "gateways: [a.b]\n  hosts: [web_]");
    let file = folder.write("a.yaml", &text);
    let broken = folder.write("b.yaml", "a: [\n");
    let missing = folder.path("none").to_str().unwrap().to_owned();
    let done = run(&[
        "validate", "-o", "json", "-f", &file, "-f", &broken, "-f", &missing,
    ]);
    assert_eq!((err(&done).as_str(), code(&done)), ("", Some(1)));
    let rows: Value = serde_json::from_str(&out(&done)).unwrap();
    let row = |line: u64, severity: &str, path: &str, message: &str| json!({"file": file, "line": line, "kind": "VirtualService", "namespace": "ns", "name": "web", "severity": severity, "path": path, "message": message});
    assert_eq!(
        rows[0],
        row(7, "warning", "spec.gateways[0]", "write NAMESPACE/NAME")
    );
    assert_eq!(
        rows[1],
        row(
            8,
            "error",
            "spec.hosts[0]",
            "\"web_\" is not a host name: \"web_\" is not a DNS label"
        )
    );
    assert_eq!(
        (&rows[2]["file"], &rows[2]["kind"]),
        (&json!(broken), &json!(""))
    );
    assert_eq!(
        (&rows[3]["file"], &rows[3]["line"]),
        (&json!(missing), &json!(0))
    );
    assert_eq!(rows.as_array().unwrap().len(), 4);
    let policy = "apiVersion: rbac.istio.io/v1alpha1\nkind: ServiceRole\nmetadata: {name: a}\nspec: {rules: [{services: ['*']}]}\n";
    let policy = folder.write("policy.yaml", policy);
    let done = run(&["validate", "-o", "json", "-f", &policy]);
    let rows: Value = serde_json::from_str(&out(&done)).unwrap();
    let found = (&rows[0]["severity"], &rows[0]["path"], &rows[0]["line"]);
    assert_eq!(found, (&json!("warning"), &json!("kind"), &json!(2)));
    assert_eq!((rows.as_array().unwrap().len(), code(&done)), (1, Some(0)));
    let good = folder.write("good.yaml", GOOD);
    let done = run(&["validate", "-o", "json", "-f", &good]);
    assert_eq!((out(&done).trim(), code(&done)), ("[]", Some(0)));
}

#[test]
fn stdin_lists_and_json_are_read() {
    let list = "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n\t{\"apiVersion\": \"networking.istio.io/v1beta1\", \"kind\": \"Gateway\", \"metadata\": {\"name\": \"a\"}, \"spec\": {}},\n\t{\"apiVersion\": \"apps/v1\", \"kind\": \"Deployment\"}]}";
    let done = piped(&["validate", "-f", "-"], list);
    assert_eq!(
        err(&done),
        "-:2: Gateway default/a: spec.servers: must not be empty\n"
    );
    assert_eq!(
        out(&done),
        "2 objects, 0 valid, 1 invalid, 0 warnings, 1 skipped\n"
    );
    assert_eq!(code(&done), Some(1));
    let later =
        "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: a}\nspec: {x: 1}\n";
    let done = piped(&["validate", "-f", "-"], later);
    assert_eq!(
        err(&done),
        "-:2: Telemetry default/a: warning: kind: Telemetry is not used by gudgeon and was not checked\n"
    );
    assert_eq!(
        (out(&done).as_str(), code(&done)),
        (
            "1 objects, 1 valid, 0 invalid, 1 warnings, 0 skipped\n",
            Some(0)
        )
    );
}

/// A list of a cluster as kubectl writes it: more values than an object may have, and the kind comes last.
#[test]
fn a_whole_cluster_in_one_list_is_checked() {
    let item = |number: usize, weight: u32| {
        let object = GOOD
            .replace("name: web\n", &format!("name: web-{number}\n"))
            .replace("weight: 25", &format!("weight: {weight}"));
        let object: Vec<_> = object.lines().collect();
        format!("- {}\n", object.join("\n  "))
    };
    let mut items: String = (0..20_000).map(|number| item(number, 25)).collect();
    items += &item(20_000, 20);
    let list =
        format!("apiVersion: v1\nitems:\n{items}kind: List\nmetadata:\n  resourceVersion: \"\"\n");
    let done = piped(&["validate", "-f", "-"], &list);
    let lines = list.lines().count();
    let stderr = err(&done);
    let last = stderr.lines().last().unwrap();
    assert_eq!(
        last,
        format!(
            "-:{}: VirtualService ns/web-20000: spec.http[0].route: weights add up to 95, not 100",
            lines - 6
        )
    );
    assert_eq!(
        out(&done),
        "20001 objects, 20000 valid, 1 invalid, 0 warnings, 0 skipped\n"
    );
    // In a typed list the items have no `kind` of their own.
    let items = "- metadata: {name: a, namespace: ns}\n  spec: {servers: []}\n";
    let list = format!("apiVersion: networking.istio.io/v1\nkind: GatewayList\nitems:\n{items}");
    let done = piped(&["validate", "-"], &list);
    assert_eq!(
        err(&done),
        "-:5: Gateway ns/a: spec.servers: must not be empty\n"
    );
    let none = "apiVersion: v1\nitems: []\nkind: List\n";
    let done = piped(&["validate", "-"], none);
    assert_eq!(
        (out(&done).as_str(), code(&done)),
        (
            "0 objects, 0 valid, 0 invalid, 0 warnings, 0 skipped\n",
            Some(0)
        )
    );
}

/// A chart, its values, and other files; all of them are reported, and none of them is an error.
#[test]
fn a_repository_of_many_things_is_checked_as_it_is() {
    let folder = Folder::new();
    let named = |name: &str| GOOD.replace("name: web\n", &format!("name: {name}\n"));
    folder.write("good.yaml", GOOD);
    folder.write("chart/Chart.yaml", "apiVersion: v2\nname: shop\n");
    let values = folder.write("chart/values.yaml", "replicas: 2\nhosts: [a]\n---\n- 1\n");
    folder.write("package.json", "{\"name\": \"shop\", \"private\": true}");
    let action = folder.write(
        "chart/templates/a.yaml",
        &format!("{{{{- if .Values.x }}}}\n{GOOD}{{{{- end }}}}\n"),
    );
    folder.write("chart/templates/b.yaml", &named("{{ .Release.Name }}"));
    folder.write(
        "chart/templates/c.yaml",
        &named("c").replace("[web]", "['{{ .Values.host }}']"),
    );
    let root = folder.0.path().to_str().unwrap();
    let done = run(&["validate", root]);
    assert_eq!(
        (out(&done).as_str(), code(&done)),
        (
            "8 objects, 1 valid, 0 invalid, 0 warnings, 7 skipped\n",
            Some(0)
        ),
        "{}",
        err(&done)
    );
    // A file that is named explicitly must hold objects.
    for (file, message) in [
        (&values, "apiVersion: is required"),
        (&action, ":1: "),
        (
            &folder.write("empty.yaml", "# words\n"),
            ":1: there is no object in it",
        ),
    ] {
        let done = run(&["validate", file]);
        assert!(err(&done).contains(message), "{file}: {}", err(&done));
        assert_eq!(code(&done), Some(1), "{file}");
    }
    // Errors of an object are reported, even if it contains braces.
    let lua = "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: a}\nspec:\n  configPatches:\n  \
               - applyTo: HTTP_FILTERS\n    patch: {operation: ADD, value: {inlineCode: 'x = {{1}}'}}\n";
    folder.write("lua.yaml", lua);
    let done = run(&["validate", root]);
    assert!(
        err(&done).contains("spec.configPatches[0].applyTo: \"HTTP_FILTERS\" is not one of"),
        "{}",
        err(&done)
    );
    assert_eq!(code(&done), Some(1));
}

/// In files of releases up to 1.2.
#[test]
fn kinds_of_mixer_are_named() {
    let text =
        "apiVersion: config.istio.io/v1alpha2\nkind: logentry\nmetadata: {name: a}\nspec: {x: 1}\n";
    let done = piped(&["validate", "-"], text);
    assert_eq!(
        err(&done),
        "-:2: logentry default/a: warning: kind: logentry belonged to Mixer and is not used; in its place: the mesh's \
         accessLogFile\n"
    );
    assert_eq!(code(&done), Some(0));
}

#[test]
fn an_unreadable_document_hides_no_other() {
    let folder = Folder::new();
    let half = folder.write(
        "half.yaml",
        &format!(
            "{}---\na: 1\na: 2\n---\n{GOOD}",
            GOOD.replace("[web]", "[w_]")
        ),
    );
    let missing = folder.path("none.yaml").to_str().unwrap().to_owned();
    let good = folder.write("good.yaml", &GOOD.replace("name: web\n", "name: x\n"));
    let done = run(&["validate", "-f", &half, "-f", &missing, "-f", &good]);
    assert_eq!(
        err(&done),
        format!(
            "{half}:7: VirtualService ns/web: spec.hosts[0]: \"w_\" is not a host name: \"w_\" is not a DNS label\n\
             {half}:16: the key \"a\" twice\n\
             cannot read {missing}: No such file or directory (os error 2)\n"
        )
    );
    assert_eq!(
        out(&done),
        "2 objects, 1 valid, 1 invalid, 0 warnings, 0 skipped\n"
    );
    assert_eq!(code(&done), Some(1));
}

#[test]
fn the_same_name_twice_is_an_error_at_the_second() {
    let folder = Folder::new();
    let first = folder.write("a.yaml", &format!("# words\n{GOOD}"));
    let other_version = GOOD.replace("istio.io/v1\n", "istio.io/v1alpha3\n");
    let second = folder.write("b.yaml", &other_version);
    let done = run(&["validate", "-f", &first, "-f", &second]);
    assert_eq!(
        err(&done),
        format!("{second}:4: VirtualService ns/web: metadata.name: duplicate of {first}:2\n")
    );
    assert_eq!(code(&done), Some(1));
    // One file twice is one file.
    assert_eq!(
        code(&run(&["validate", "-f", &first, "-f", &first])),
        Some(0)
    );
}

#[test]
fn a_directory_is_all_below_it_in_the_order_of_paths() {
    let folder = Folder::new();
    let bad = |name: &str| {
        GOOD.replace("name: web\n", &format!("name: {name}\n"))
            .replace("[web]", "[w_]")
    };
    for name in [
        "b/c.yml",
        "b.yaml",
        "a.json",
        "b/.hidden.yaml",
        ".git/x.yaml",
        "words.txt",
    ] {
        folder.write(name, &bad(&name.replace(['/', '.'], "-")));
    }
    symlink(folder.path("b"), folder.path("b/loop")).unwrap();
    symlink("nowhere", folder.path("gone.yaml")).unwrap();
    let odd = folder.0.path().join(OsStr::from_bytes(b"odd\xff.yaml"));
    fs::write(odd, bad("odd")).unwrap();
    let made = Command::new("mkfifo")
        .arg(folder.path("pipe.yaml"))
        .status();
    assert!(made.unwrap().success());
    let done = run(&["validate", "-f", folder.0.path().to_str().unwrap()]);
    let root = folder.0.path().display().to_string();
    let stderr = err(&done).replace(&root, "");
    let places: Vec<_> = stderr
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(
        places,
        [
            "/a.json:7:",
            "/b.yaml:7:",
            "/b/c.yml:7:",
            "cannot",
            "/odd\u{fffd}.yaml:7:"
        ],
        "{stderr}"
    );
    assert_eq!(code(&done), Some(1));
}

#[test]
fn usage_is_64() {
    let folder = Folder::new();
    folder.write("words.txt", "x");
    let empty = folder.0.path().to_str().unwrap().to_owned();
    for line in [
        &["validate"][..],
        &["validate", "-f", &empty],
        &["validate", &empty],
        &["validate", "--fil=x"],
    ] {
        let done = run(line);
        assert_eq!(code(&done), Some(64), "{line:?} {}", err(&done));
        assert_eq!(out(&done), "");
    }
    let done = piped(&["validate", "-x", "--kubeconfig=/x", "-f", "-"], GOOD);
    assert_eq!(code(&done), Some(0));
    assert!(
        err(&done).contains("ignoring --referential: "),
        "{}",
        err(&done)
    );
}

#[test]
fn names_come_from_files_not_from_the_api_server() {
    let text = GOOD.replace("name: web\n", "generateName: web-\n");
    let done = piped(&["validate", "-f", "-"], &text);
    assert_eq!(
        err(&done),
        "-:4: VirtualService ns/?: metadata.name: is required\n"
    );
}

#[test]
fn hostile_documents_are_refused_in_bounded_time_and_memory() {
    let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x,x]\n");
    for (name, before) in ('b'..='j').zip('a'..) {
        writeln!(
            bomb,
            "{name}: &{name} [{}]",
            format!("*{before},").repeat(10)
        )
        .unwrap();
    }
    let deep = "[".repeat(200) + &"]".repeat(200);
    let folder = Folder::new();
    let long = folder.write("long.yaml", "");
    let file = fs::File::options().write(true).open(&long).unwrap();
    file.set_len(65 << 20).unwrap();
    let good = folder.write("good.yaml", GOOD);
    for (text, message) in [
        (bomb.as_str(), "more than 200000 values"),
        (&deep, "nested too deeply"),
    ] {
        let file = folder.write("bad.yaml", text);
        let done = limited(&["validate", "-f", &file, "-f", &long, "-f", &good]);
        let stderr = err(&done);
        assert!(
            stderr.contains(message)
                && stderr.contains("longer than 64 MiB: split it into several files"),
            "{stderr}"
        );
        assert_eq!(
            out(&done),
            "1 objects, 1 valid, 0 invalid, 0 warnings, 0 skipped\n"
        );
        assert_eq!(code(&done), Some(1));
    }
}

/// With 40 MiB of data.
fn limited(arguments: &[&str]) -> Output {
    Command::new("sh")
        .args([
            "-c",
            "ulimit -d 40960; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_gudgeon"),
        ])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_thousand_files_are_read_quickly() {
    let folder = Folder::new();
    for number in 0..1000 {
        folder.write(
            &format!("{}/{number}.yaml", number % 10),
            &GOOD.replace("name: web\n", &format!("name: web-{number}\n")),
        );
    }
    let start = Instant::now();
    let done = run(&["validate", "-f", folder.0.path().to_str().unwrap()]);
    assert_eq!(
        out(&done),
        "1000 objects, 1000 valid, 0 invalid, 0 warnings, 0 skipped\n"
    );
    // Far more than needed, even without optimization and on a loaded machine.
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
    assert!(Path::new(env!("CARGO_BIN_EXE_gudgeon")).exists());
}

#[test]
fn a_directory_that_may_not_be_read_is_said_and_the_others_are_checked() {
    let folder = Folder::new();
    let bad = GOOD.replace("weight: 25", "weight: 20");
    let bad = folder.write("config/bad.yaml", &bad);
    let other = GOOD.replace("name: web\n", "name: other\n");
    let other = folder.write("config/other.yaml", &other);
    let inner = folder.write("config/closed/good.yaml", GOOD);
    let closed = Path::new(&inner).parent().unwrap();
    for path in [closed, Path::new(&other)] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let config = folder.path("config");
    let done = not_root(folder.0.path())
        .args(["validate", "-f", config.to_str().unwrap()])
        .output()
        .unwrap();
    // The user who deletes the folder may be the one who was denied.
    fs::set_permissions(closed, fs::Permissions::from_mode(0o755)).unwrap();
    let stderr = err(&done);
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{stderr}");
    assert!(
        lines[0].starts_with(&format!("{bad}:10: VirtualService ns/web: ")),
        "{stderr}"
    );
    for (line, path) in [(lines[1], closed), (lines[2], Path::new(&other))] {
        assert!(line.contains(&*path.to_string_lossy()), "{stderr}");
        assert!(line.contains("Permission denied"), "{stderr}");
    }
    assert_eq!(
        out(&done),
        "1 objects, 0 valid, 1 invalid, 0 warnings, 0 skipped\n"
    );
    assert_eq!(code(&done), Some(1));
}
