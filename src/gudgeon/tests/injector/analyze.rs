//! `gudgeon analyze` as a program: what it says of files, in each form, and the codes.

use std::fs;
use std::process::Output;

use crate::support::gudgeon;
use serde_json::Value;

const WRONG: &str = "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: web
  namespace: demo
spec:
  hosts: [web]
  gateways: [mesh, front]
  http:
  - route:
    - destination:
        host: nobody
";

/// Runs it to its end, where nobody has a kubeconfig.
fn run(arguments: &[&str]) -> Output {
    let mut command = gudgeon();
    command.env_remove("KUBECONFIG").env("HOME", "/nowhere");
    command.args(arguments).output().unwrap()
}

fn out(done: &Output) -> String {
    String::from_utf8(done.stdout.clone()).unwrap()
}

#[test]
fn missing_references_are_reported_with_code_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    fs::write(&path, WRONG).unwrap();
    let (root, file) = (folder.path().to_str().unwrap(), path.to_str().unwrap());
    let lines = format!(
        "Error [IST0101] (VirtualService demo/web {file}:8) spec.gateways[1]: the gateway \"front\" does not exist\n\
         Error [IST0101] (VirtualService demo/web {file}:12) spec.http[0].route[0].destination.host: the host \"nobody\" does not exist\n"
    );
    let done = run(&["analyze", "-f", root]);
    // Gateways have no effect yet, which is told where their names stand.
    let reported: String = out(&done)
        .lines()
        .filter(|line| line.contains("[IST0101]"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(reported, lines);
    assert!(out(&done).contains("2 errors, "), "{}", out(&done));
    assert_eq!(done.status.code(), Some(1));

    let done = run(&["analyze", file, "-o", "json", "--output-threshold", "Error"]);
    let rows: Vec<Value> = serde_json::from_str(&out(&done)).unwrap();
    assert_eq!(rows.len(), 2);
    for (name, want) in [
        ("code", "IST0101"),
        ("level", "Error"),
        ("origin", "VirtualService demo/web"),
        ("reference", &*format!("{file}:8")),
        (
            "documentationUrl",
            "https://istio.io/docs/reference/config/analysis/ist0101/",
        ),
        ("message", "the gateway \"front\" does not exist"),
    ] {
        assert_eq!(rows[0][name], want, "{name}");
    }
    let done = run(&["analyze", file, "-o", "yaml", "--outputThreshold=error"]);
    let rows: Vec<Value> = serde_saphyr::from_str(&out(&done)).unwrap();
    assert_eq!((rows.len(), &rows[1]["line"]), (2, &Value::from(12)));

    // What is known is not told, and is no failure.
    for suppressed in [
        "IST0101=VirtualService web.demo",
        "IST0101=VirtualService demo/*",
        "*=*",
    ] {
        let done = run(&["analyze", file, "--suppress", suppressed]);
        assert!(!out(&done).contains("IST0101"), "{}", out(&done));
        assert_eq!(done.status.code(), Some(0), "{suppressed}");
    }
    let done = run(&["analyze", file, "-S", "IST0101=VirtualService other.demo"]);
    assert_eq!(done.status.code(), Some(1));
    let done = run(&["analyze", "-S", "IST0101", file]);
    assert_eq!(done.status.code(), Some(78));
}

#[test]
fn the_code_goes_by_the_threshold() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("service.yaml");
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {a: b}, ports: [{name: web, port: 80}]}\n";
    fs::write(&path, service).unwrap();
    let file = path.to_str().unwrap();
    for (threshold, code) in [(None, 0), (Some("Warning"), 0), (Some("Info"), 1)] {
        let mut arguments = vec!["analyze", file];
        arguments.extend(
            threshold
                .iter()
                .flat_map(|one| ["--failure-threshold", one]),
        );
        let done = run(&arguments);
        assert!(
            out(&done).contains("Info [IST0118] (Service default/web"),
            "{}",
            out(&done)
        );
        assert_eq!(done.status.code(), Some(code), "{threshold:?}");
    }
    assert_eq!(
        run(&["analyze", file, "--failure-threshold", "x"])
            .status
            .code(),
        Some(78)
    );
    assert_eq!(run(&["analyze"]).status.code(), Some(64));
    assert_eq!(run(&["analyze", "/none"]).status.code(), Some(1));
    // A cluster that is named must be there, unless files alone are wanted.
    let done = run(&["analyze", file, "--kubeconfig=/none"]);
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(78), "{stderr}");
    assert!(
        stderr.contains("/none") && stderr.contains("--use-kube=false"),
        "{stderr}"
    );
    let alone = ["analyze", file, "--kubeconfig=/none", "--use-kube=false"];
    assert_eq!(run(&alone).status.code(), Some(0));
    let codes = out(&run(&["analyze", "-L"]));
    assert!(
        codes.contains("IST0101 Error   ") && codes.lines().count() > 15,
        "{codes}"
    );
}

#[test]
fn validate_tells_it_too_where_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    fs::write(&path, WRONG).unwrap();
    let file = path.to_str().unwrap();
    let err = |done: &Output| String::from_utf8(done.stderr.clone()).unwrap();
    let done = run(&["validate", file]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let done = run(&["validate", file, "--references"]);
    let line = format!(
        "{file}:8: VirtualService demo/web: spec.gateways[1]: [IST0101] the gateway \"front\" does not exist\n"
    );
    assert!(err(&done).contains(&line), "{}", err(&done));
    assert_eq!(done.status.code(), Some(1));
}

/// Errors of documents used to be printed twice, and in the JSON form at all.
#[test]
fn validate_tells_each_problem_once_with_references_too() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let err = |done: &Output| String::from_utf8(done.stderr.clone()).unwrap();
    let deprecated = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a}\nspec: {host: a.example, \
                      trafficPolicy: {outlierDetection: {consecutiveErrors: 5}}}\n";
    for (file, code) in [
        (write("bad.yaml", "kind: [\n"), 1),
        (write("empty.yaml", ""), 1),
        (write("deprecated.yaml", deprecated), 0),
    ] {
        let alone = run(&["validate", &file]);
        assert_eq!(err(&alone).lines().count(), 1, "{}", err(&alone));
        let done = run(&["validate", &file, "--references"]);
        let told = err(&done);
        let told = told.lines().filter(|line| !line.contains("[IST0174]"));
        let expected = err(&alone);
        assert_eq!(
            told.collect::<Vec<_>>(),
            expected.lines().collect::<Vec<_>>()
        );
        assert_eq!(done.status.code(), Some(code), "{file}");
        let done = run(&["validate", &file, "--references", "-o", "json"]);
        assert_eq!(err(&done), "", "{file}");
    }
    // The namespace is for objects that name none.
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: x}\n";
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: x}\n";
    let file = write("other.yaml", &format!("{other}---\n{secret}"));
    let done = run(&["validate", &file, "--references", "-n", "foo"]);
    assert_eq!((&*err(&done), done.status.code()), ("", Some(0)));
}
