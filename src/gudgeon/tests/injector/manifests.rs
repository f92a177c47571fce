//! `gudgeon inject` as a program: files, stdin, stdout, `-o` and codes.

use std::io::Write as _;
use std::process::{Output, Stdio};

use crate::support::{InjectorPlace, gudgeon, run};

const DEPLOYMENT: &str = "# kept
apiVersion: v1
kind: Service
metadata: {name: web}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: ns
spec:
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: web
        image: web:1
";

fn out(done: &Output) -> String {
    String::from_utf8(done.stdout.clone()).unwrap()
}

fn err(done: &Output) -> String {
    String::from_utf8(done.stderr.clone()).unwrap()
}

#[test]
fn a_deployment_gets_its_proxy_and_once_only() {
    let place = InjectorPlace::new();
    place.write("in.yaml", DEPLOYMENT);
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (config, input) = (path("config"), path("in.yaml"));
    let done = run(&["inject", "--injectConfigFile", &config, "-f", &input]);
    assert!(done.status.success(), "{}", err(&done));
    let text = out(&done);
    let (service, _) = DEPLOYMENT.split_once("---\n").unwrap();
    assert!(
        text.starts_with(&format!(
            "{service}---\napiVersion: apps/v1\nkind: Deployment\n"
        )),
        "{text}"
    );
    assert!(
        text.contains("- name: istio-proxy\n") && text.contains("image: proxy:1\n"),
        "{text}"
    );
    assert!(text.contains("sidecar.istio.io/status: "), "{text}");
    // The same through stdin, `-o`, the other name, and again.
    let output = path("out.yaml");
    let mut child = gudgeon()
        .args([
            "kube-inject",
            "--inject-config-file",
            &config,
            "-f",
            "-",
            "-o",
            &output,
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(place.read("out.yaml"), text);
}

#[test]
fn skipped_documents_are_named_and_untouched() {
    let place = InjectorPlace::new();
    let text = DEPLOYMENT.replace(
        "    spec:\n",
        "    spec:\n      hostNetwork: true   # odd\n",
    );
    place.write("in.yaml", &text);
    let input = place.path("in.yaml").to_str().unwrap().to_owned();
    let done = run(&[
        "inject",
        "-f",
        &input,
        "--injectConfigFile",
        place.path("config").to_str().unwrap(),
    ]);
    assert!(done.status.success());
    assert_eq!(out(&done), text);
    assert_eq!(err(&done), "skipping Deployment ns/web: host network\n");
}

#[test]
fn nothing_is_written_when_something_is_wrong() {
    let place = InjectorPlace::new();
    place.write("good.yaml", DEPLOYMENT);
    place.write(
        "bad.yaml",
        &DEPLOYMENT.replace(
            "labels: {app: web}",
            "annotations: {sidecar.istio.io/interceptionMode: SOMETIMES}",
        ),
    );
    place.write("text", "[[");
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (good, bad, config, output) = (
        path("good.yaml"),
        path("bad.yaml"),
        path("config"),
        path("out.yaml"),
    );
    let done = run(&[
        "inject",
        "--injectConfigFile",
        &config,
        "-f",
        &good,
        "-f",
        &bad,
        "-o",
        &output,
    ]);
    assert_eq!(done.status.code(), Some(1));
    let message = err(&done);
    assert!(
        message.contains("bad.yaml: document 2 (Deployment ns/web): ")
            && message.contains("interceptionMode"),
        "{message}"
    );
    assert!(!place.path("out.yaml").exists() && done.stdout.is_empty());
    for (arguments, code, expected) in [
        (&["inject"][..], 64, "no -f"),
        (
            &["inject", "--injectConfigFile", &config, "-f", "/none"],
            1,
            "cannot read /none",
        ),
        (
            &["inject", "-f", &good, "--hub", "h"],
            64,
            "--hub and --tag",
        ),
        (
            &["inject", "-f", &good, "--injectConfigFile", "/none"],
            78,
            "cannot use --injectConfigFile /none",
        ),
        (
            &["inject", "-f", &good, "--injectConfigFile", &path("text")],
            78,
            "cannot use --injectConfigFile",
        ),
    ] {
        let done = run(arguments);
        assert_eq!(
            done.status.code(),
            Some(code),
            "{arguments:?}: {}",
            err(&done)
        );
        assert!(err(&done).contains(expected), "{}", err(&done));
        assert!(done.stdout.is_empty());
    }
}

#[test]
fn flags_of_the_built_in_template_mean_nothing_beside_a_configuration() {
    let place = InjectorPlace::new();
    place.write("in.yaml", DEPLOYMENT);
    let input = place.path("in.yaml").to_str().unwrap().to_owned();
    let done = run(&[
        "inject",
        "-f",
        &input,
        "--injectConfigFile",
        place.path("config").to_str().unwrap(),
        "--hub=h",
        "--tag=t",
        "--statusPort=1",
        "--verbosity=2",
    ]);
    assert!(done.status.success(), "{}", err(&done));
    for flag in ["hub", "tag", "statusPort"] {
        assert_eq!(
            err(&done)
                .matches(&format!("ignoring --{flag}: a configuration is in use"))
                .count(),
            1,
            "{}",
            err(&done)
        );
    }
    assert!(
        err(&done).contains("ignoring --verbosity: it has no meaning here"),
        "{}",
        err(&done)
    );
    assert!(!out(&done).contains("h/proxyv2:t"));
}

#[test]
fn flags_of_the_built_in_template_count_beside_a_policy() {
    let place = InjectorPlace::new();
    place.write("in.yaml", DEPLOYMENT);
    place.write("config", "policy: enabled\n");
    let input = place.path("in.yaml").to_str().unwrap().to_owned();
    let config = place.path("config").to_str().unwrap().to_owned();
    let more = ["--hub=h", "--tag=t", "--statusPort=15021"];
    let first = ["inject", "-f", &input];
    let built_in = run(&[&first[..], &more].concat());
    let beside = ["--injectConfigFile", &config];
    let done = run(&[&first[..], &beside, &more].concat());
    assert!(done.status.success(), "{}", err(&done));
    assert_eq!(err(&done), "");
    assert!(out(&done).contains("h/proxyv2:t"), "{}", out(&done));
    assert_eq!(out(&done), out(&built_in));
}

/// Runs the program with a limit of so many MiB of data. Its code does not count: without optimization that is 70 MB.
fn limited(mebibytes: usize, arguments: &[&str]) -> Output {
    std::process::Command::new("sh")
        .args(["-c", "ulimit -d \"$1\"; shift; exec \"$0\" \"$@\""])
        .args([
            env!("CARGO_BIN_EXE_gudgeon"),
            &(mebibytes << 10).to_string(),
        ])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn an_endless_file_is_no_text() {
    let done = limited(40, &["inject", "-f", "/dev/zero"]);
    assert_eq!(done.status.code(), Some(1), "{}", err(&done));
    assert_eq!(err(&done), "cannot read /dev/zero: it is no text\n");
}

/// More comes out than is held in memory, so it is made twice; and what comes out is the same.
#[test]
fn a_list_of_thousands_is_worked_on_item_by_item() {
    let place = InjectorPlace::new();
    let long = "x".repeat(6000);
    let config = format!(
        "policy: enabled\nprobers: legacy\ntemplate: |\n  containers:\n  - name: istio-proxy\n    image: proxy:1\n    args: [{long}]\n"
    );
    place.write("config", &config);
    let items = (0..3000).map(|at| {
        format!(
            "- apiVersion: v1\n  kind: Pod\n  metadata: {{name: p{at}}}\n  spec: {{containers: [{{name: a, image: b}}]}}\n"
        )
    });
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}",
        items.collect::<String>()
    );
    place.write("in.yaml", &list);
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (from, to, config) = (path("in.yaml"), path("out.yaml"), path("config"));
    let arguments = ["inject", "--injectConfigFile", &config, "-f", &from];
    let done = limited(56, &[&arguments[..], &["-o", &to]].concat());
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let text = place.read("out.yaml");
    assert_eq!(text.matches("\n- apiVersion: v1\n").count(), 3000);
    assert_eq!(text.matches("name: istio-proxy\n").count(), 3000);
    assert!(text.len() > 16 << 20, "{} bytes", text.len());
}
