//! Rows of the rules as objects of the real server: the messages equal the rules' findings, and so does the use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::config::document::documents;
use api::config::{self, Finding, KINDS, Kind};
use serde_json::{Value, json};
use sources::catalogue::ConfigObject;
use sources::kubernetes::{ClusterSettings, ClusterUpdate, Names, run};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::{admin, apply, kubectl, try_kubectl};

const NAMESPACE: &str = "rows";
/// Rows of a kind at most: each costs a write.
const MAX_ROWS_PER_KIND: usize = 6;

/// Removed at the end, with all their objects.
struct Definitions;

impl Drop for Definitions {
    fn drop(&mut self) {
        let names = KINDS.iter().map(crd);
        let arguments = ["delete", "crd", "--ignore-not-found"].map(str::to_owned);
        let arguments: Vec<String> = arguments.into_iter().chain(names).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let _there_or_not = try_kubectl(&arguments, "");
    }
}

fn crd(kind: &Kind) -> String {
    format!("{}.{}", kind.plural, kind.group)
}

fn definition(kind: &Kind) -> Value {
    let versions = kind.versions.iter().enumerate().map(|(at, version)| {
        json!({
            "name": version, "served": true, "storage": at == 0,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": crd(kind)},
        "spec": {
            "group": kind.group, "scope": if kind.cluster { "Cluster" } else { "Namespaced" },
            "versions": versions.collect::<Vec<_>>(),
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.to_lowercase(),
                "listKind": format!("{}List", kind.kind)},
        },
    })
}

/// Builds a row's object with a name of its own, and returns it with its expected messages.
fn object(row: &Value, at: usize) -> Option<(Value, Vec<String>)> {
    let text = |name: &str| row[name].as_str().unwrap();
    let document = documents(text("spec")).next()?.ok()?;
    let spec = document.parts()[0].value();
    let kind = config::kind(text("apiVersion"), text("kind")).ok()?;
    let mut metadata = json!({"name": match text("name") {
        "x" => format!("r{at}"),
        name => name.to_owned(),
    }});
    if !kind.cluster {
        metadata["namespace"] = NAMESPACE.into();
    }
    let object = json!({
        "apiVersion": text("apiVersion"), "kind": text("kind"), "metadata": metadata, "spec": spec,
    });
    let expected = row["said"].as_array()?.iter();
    let expected: Vec<_> = expected
        .map(|finding| finding.as_str().unwrap().to_owned())
        .collect();
    // Neither name nor namespace changes the findings, and the server keeps the whole object.
    let (_, findings) = config::check(&object);
    let is_same = findings
        .iter()
        .map(Finding::to_string)
        .eq(expected.iter().cloned());
    let is_kept = object["spec"].is_object() && !object.to_string().contains("null");
    (is_same && is_kept).then_some((object, expected))
}

/// Picks rows of each kind at equal distances.
fn chosen() -> Vec<(Value, Vec<String>)> {
    let mut kinds: BTreeMap<String, Vec<(Value, Vec<String>)>> = BTreeMap::new();
    for (at, line) in include_str!("../../../api/tests/rows.jsonl")
        .lines()
        .enumerate()
    {
        let row: Value = serde_json::from_str(line).unwrap();
        if let Some((object, expected)) = object(&row, at) {
            let kind = object["kind"].as_str().unwrap().to_owned();
            kinds.entry(kind).or_default().push((object, expected));
        }
    }
    let chosen = kinds.into_values().flat_map(|rows| {
        let step = rows.len().div_ceil(MAX_ROWS_PER_KIND);
        rows.into_iter().step_by(step)
    });
    // Kinds of which there is one for the whole mesh.
    let mut names = BTreeSet::new();
    let chosen = chosen.filter(|(object, _)| {
        names.insert((object["kind"].to_string(), object["metadata"].to_string()))
    });
    chosen.collect()
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn rows_are_judged_as_everywhere() {
    let _definitions = Definitions;
    let _there_or_not = try_kubectl(&["create", "namespace", NAMESPACE], "");
    let all: Vec<_> = KINDS
        .iter()
        .filter(|kind| !kind.versions.is_empty())
        .collect();
    let definitions: Vec<_> = all.iter().map(|kind| definition(kind)).collect();
    apply(&json!({"apiVersion": "v1", "kind": "List", "items": definitions}));
    let names = all.iter().map(|kind| format!("crd/{}", crd(kind)));
    let arguments = ["wait".to_owned(), "--for=condition=Established".to_owned()];
    let arguments: Vec<String> = arguments.into_iter().chain(names).collect();
    kubectl(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let chosen = chosen();
    let kinds: BTreeSet<_> = chosen
        .iter()
        .map(|(object, _)| object["kind"].to_string())
        .collect();
    assert!(
        chosen.len() > 60 && kinds.len() > 15,
        "{} {kinds:?}",
        chosen.len()
    );
    let objects: Vec<_> = chosen.iter().map(|(object, _)| object).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    // An established kind may be unknown to its path of the server for a moment.
    let mut tries = 0;
    while let Err(cause) = try_kubectl(&["apply", "-f", "-"], &list) {
        tries += 1;
        assert!(tries < 60, "{cause}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let settings = ClusterSettings {
        recheck_interval: Duration::from_secs(1),
        ..ClusterSettings::new(Names {
            cluster: "here".into(),
            domain: "cluster.local".into(),
            trust_domain: "td".into(),
        })
    };
    let (_trust_domain, theirs) = watch::channel("td".into());
    let (to, mut updates) = watch::channel(ClusterUpdate::default());
    let running = tokio::spawn(run(admin().await, settings, theirs, to));
    let wanted = chosen.len();
    let all = |update: &ClusterUpdate| update.config_objects(&"Kubernetes".into()).len() >= wanted;
    let found = timeout(Duration::from_secs(60), updates.wait_for(all)).await;
    let config_objects = found
        .expect("all objects within a minute")
        .unwrap()
        .config_objects(&"Kubernetes".into());
    running.abort();
    let written: BTreeMap<(&str, &str), &ConfigObject> = config_objects
        .iter()
        .map(|one| ((&*one.kind, &*one.name), one))
        .collect();
    for (object, expected) in &chosen {
        let text = |value: &Value| Arc::<str>::from(value.as_str().unwrap());
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let one = written[&(&*kind, &*name)];
        // In the order of the fields, which the server writes by name.
        let sorted = |texts: &[String]| {
            let mut texts = texts.to_vec();
            texts.sort_unstable();
            texts
        };
        let findings: Vec<_> = one.findings.iter().map(ToString::to_string).collect();
        assert_eq!(sorted(&findings), sorted(expected), "{object}");
        let is_refused = expected
            .iter()
            .any(|finding| !finding.starts_with("warning: "));
        assert_eq!(one.is_accepted, !is_refused, "{object}");
    }
}
