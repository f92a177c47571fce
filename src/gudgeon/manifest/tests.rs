//! Documents in, documents out, with an engine that adds one label.

use inject::{
    ConfigurationError, Injected, NativeSidecars, Origin, Outcome, Parameters, Request, Sources,
};
use serde_json::{Value, json};

use super::documents;
use super::input::Input;
use super::job::inject_all;
use crate::injector::ActiveConfiguration;

/// Adds the label `in: OUTER-KIND`, skips pods that have it, refuses those named `bad`.
#[derive(Debug)]
struct Label;

impl ActiveConfiguration for Label {
    fn load(_: Sources<'_>, _: &Parameters) -> Result<(Self, Vec<String>), ConfigurationError> {
        Ok((Self, Vec::new()))
    }

    fn inject(&self, request: &Request, pod: &Value) -> Outcome {
        let Origin::Manifest(outer) = &request.origin else {
            panic!("a manifest is no webhook")
        };
        if outer.name == "bad" {
            return Outcome::Refused {
                code: 400,
                reason: "bad request",
                message: "it is bad".into(),
                warnings: vec![],
                pruned: 0,
            };
        }
        if pod["metadata"]["labels"].get("in").is_some() {
            return Outcome::Skipped {
                reason: "unchanged",
                warnings: vec!["odd".into()],
            };
        }
        let mut pod = pod.clone();
        pod["metadata"]["labels"]["in"] = json!(outer.kind);
        Outcome::Injected(Box::new(Injected {
            reason: "policy",
            pod,
            patch: Vec::new(),
            operations: 1,
            warnings: Vec::new(),
            templates: Vec::new(),
            version: String::new(),
            native: false,
            containers: Vec::new(),
            pruned: 0,
            owner: (String::new(), String::new()),
        }))
    }

    fn describe(&self) -> Value {
        json!({})
    }
}

fn inputs(texts: &[&str]) -> Vec<Input> {
    let name = |at: usize| format!("f{at}.yaml");
    texts
        .iter()
        .enumerate()
        .map(|(at, text)| Input {
            name: name(at),
            text: (*text).to_owned(),
        })
        .collect()
}

/// The output of all inputs.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    text: String,
    notes: Vec<String>,
}

fn run(texts: &[&str]) -> Result<Made, String> {
    let mut text = Vec::new();
    let notes = inject_all(&Label, NativeSidecars::Off, &inputs(texts), &mut text)?;
    let text = String::from_utf8(text).unwrap();
    Ok(Made { text, notes })
}

/// The output equals that of the whole list, for any number and place of injected items.
#[test]
fn a_list_is_written_as_if_it_were_whole() {
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"text": "items: []\na\n", "l": [[1], {}]}});
    let service = json!({"kind": "Service", "note": "items:\n- a\n"});
    for items in [
        vec![pod("a"), service.clone(), pod("b")],
        vec![
            service.clone(),
            json!(7),
            service.clone(),
            pod("a"),
            json!([]),
        ],
    ] {
        let list = json!({"note": "items: []\n", "kind": "List", "items": items, "apiVersion": "v1", "metadata": {"items": []}});
        let mut whole = list.clone();
        for item in whole["items"].as_array_mut().unwrap() {
            if item["kind"] == "Pod" {
                item["metadata"]["labels"] = json!({"in": "Pod"});
            }
        }
        let whole = super::writer::print(&whole).unwrap();
        assert_eq!(run(&[&list.to_string()]).unwrap().text, whole);
        let windows = run(&[&format!("---\r\n{list}\r\n")]).unwrap().text;
        assert_eq!(windows, format!("---\n{whole}").replace('\n', "\r\n"));
    }
    let none = json!({"kind": "List", "apiVersion": "v1", "items": [service]}).to_string();
    assert_eq!(run(&[&none]).unwrap().text, none);
}

#[test]
fn other_documents_come_out_byte_for_byte() {
    for text in [
        "",
        "\n",
        "# only a comment",
        "---\n---\n",
        "apiVersion: v1\r\nkind: Service   # odd   spacing\r\nmetadata: {name:   x}",
        "- a\n- b\n---\njust text\n---\n7\n",
        "kind: List\napiVersion: v1\nitems:\n- {kind: Service, apiVersion: v1}\n",
        "kind: Pod\napiVersion: v1\nmetadata: {labels: {in: 'x'}}  # done\nspec: {}\n",
        "{\"kind\":\t\"Secret\"}\n",
        "kind: Unknown\nport: 0644\n...\n",
    ] {
        assert_eq!(run(&[text]).unwrap().text, text, "{text:?}");
    }
}

const DEPLOYMENT: &str = "kind: Deployment
apiVersion: apps/v1
metadata:
  name: web
  namespace: ns
spec:
  replicas: 2 # two
  template:
    spec:
      containers:
      - name: web
        image: 'x'
        args: [\"yes\", '8080', 1.0]
";
const INJECTED: &str = "kind: Deployment
apiVersion: apps/v1
metadata:
  name: web
  namespace: ns
spec:
  replicas: 2
  template:
    spec:
      containers:
      - name: web
        image: x
        args:
        - \"yes\"
        - \"8080\"
        - 1.0
    metadata:
      labels:
        in: Deployment
";

#[test]
fn an_injected_document_is_written_anew_beside_others() {
    let service = "# first\napiVersion: v1\nkind: Service # s\n";
    let made = run(&[&format!("{service}---\n{DEPLOYMENT}---\n\n---\n{service}")]).unwrap();
    assert_eq!(
        made.text,
        format!("{service}---\n{INJECTED}---\n\n---\n{service}")
    );
    let again = run(&[&made.text]).unwrap();
    assert_eq!(again.text, made.text);
    assert_eq!(
        again.notes,
        [
            "skipping Deployment ns/web: unchanged",
            "f0.yaml: Deployment ns/web: odd"
        ]
    );
}

#[test]
fn ends_of_lines_and_separators_stay() {
    let made = run(&[&format!("--- # x\r\n{}", DEPLOYMENT.replace('\n', "\r\n"))]).unwrap();
    assert_eq!(
        made.text,
        format!("--- # x\r\n{}", INJECTED.replace('\n', "\r\n"))
    );
    let made = run(&["--- {kind: Pod, apiVersion: v1, metadata: {labels: {a: b}}}\n"]).unwrap();
    assert_eq!(
        made.text,
        "---\nkind: Pod\napiVersion: v1\nmetadata:\n  labels:\n    a: b\n    in: Pod\n"
    );
}

#[test]
fn json_comes_out_as_yaml() {
    let made = run(&[
        "{\n\t\"kind\": \"Job\", \"apiVersion\": \"batch/v1\", \"spec\": {\"template\": {\"metadata\": {\"labels\": {}}}}\n}",
    ]);
    assert_eq!(
        made.unwrap().text,
        "kind: Job\napiVersion: batch/v1\nspec:\n  template:\n    metadata:\n      labels:\n        in: Job\n"
    );
}

#[test]
fn items_of_a_list_one_by_one() {
    let text = "apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: s}
- apiVersion: batch/v1beta1
  kind: CronJob
  metadata: {name: c}
  spec: {jobTemplate: {metadata: {labels: {job: yes}}, spec: {template: {spec: {}}}}}
";
    let made = run(&[text]).unwrap();
    let object = documents::read(&made.text).unwrap().unwrap();
    assert_eq!(
        object["items"][0],
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}})
    );
    let job = &object["items"][1]["spec"]["jobTemplate"];
    assert_eq!(
        job["metadata"]["labels"],
        json!({"job": true}),
        "the job's metadata is nobody's business"
    );
    assert_eq!(
        job["spec"]["template"]["metadata"]["labels"]["in"],
        "CronJob"
    );
}

#[test]
fn several_files_are_several_documents() {
    let made = run(&["a: 1", "# c\nb: 2\n", "---\nc: 3\n"]).unwrap();
    assert_eq!(made.text, "a: 1\n---\n# c\nb: 2\n---\nc: 3\n");
}

#[test]
fn errors_name_the_document_and_the_object() {
    let bad = DEPLOYMENT.replace("name: web\n  namespace", "name: bad\n  namespace");
    for (text, message) in [
        (
            format!("# c\n---\na: 1\n---\n{bad}"),
            "f0.yaml: document 2 (Deployment ns/bad): it is bad",
        ),
        ("a: [".to_owned(), "f0.yaml: document 1: cannot read YAML: "),
        (
            "kind: DaemonSet\napiVersion: apps/v1\nmetadata: {name: d}\nspec: {}\n".to_owned(),
            "f0.yaml: document 1 (DaemonSet d): cannot find spec.template",
        ),
    ] {
        let error = run(&[&text]).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn inputs_are_files_and_folders() {
    let root = tempfile::tempdir().unwrap();
    for name in ["b.yaml", "a.json", "c.yml", "d.txt"] {
        std::fs::write(root.path().join(name), name).unwrap();
    }
    std::fs::create_dir(root.path().join("e.yaml")).unwrap();
    let folder = root.path().to_str().unwrap().to_owned();
    let file = format!("{folder}/d.txt");
    let texts: Vec<_> = Input::read_all(&[folder.clone(), file])
        .unwrap()
        .into_iter()
        .map(|input| input.text)
        .collect();
    assert_eq!(texts, ["a.json", "b.yaml", "c.yml", "d.txt"]);
    std::fs::write(root.path().join("x.yaml"), [0xff]).unwrap();
    assert!(
        Input::read_all(&[folder])
            .unwrap_err()
            .contains("x.yaml: it is not UTF-8")
    );
    assert!(
        Input::read_all(&["/none".to_owned()])
            .unwrap_err()
            .starts_with("cannot read /none: ")
    );
}
