//! The files with objects that this repository ships, and what the rule book says of each object in them: every way into the
//! program is held against that.

use std::path::{Path, PathBuf};

use api::config::document::{Part, documents};
use api::config::{self, Finding, KINDS};
use api::yaml::Malformed;
use serde_json::Value;

const SERVICE: &str = "metadata.name: want a DNS label that begins with a letter (RFC 1035)";
const LABEL: &str = "metadata.name: want a DNS label (RFC 1123)";
const SUBDOMAIN: &str = "metadata.name: want a DNS subdomain (RFC 1123)";
const NAME: &str = "metadata.name: want a name";
const NAMESPACE: &str = "metadata.namespace: want a DNS label";

/// Objects of Kubernetes' own kinds, of which the rule book says nothing. Each has a part of the reason for which an API server
/// refuses it; `None`: the API server takes it.
pub(crate) const CORE_EXAMPLES: [(&str, Option<&str>); 34] = [
    (
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}",
        None,
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: 1shop}}",
        None,
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: ''}}",
        None,
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: Web.x}}",
        Some(SERVICE),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: web.x}}",
        Some(SERVICE),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: 1web}}",
        Some(SERVICE),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: web_x}}",
        Some(SERVICE),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: 1}}",
        Some(NAME),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: 'a b'}}",
        Some(NAME),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {generateName: web-}}",
        Some(NAME),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: Shop}}",
        Some(NAMESPACE),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a.b}}",
        Some(NAMESPACE),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: 1}}",
        Some(NAMESPACE),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: 5}",
        Some("invalid type"),
    ),
    (
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: x}]}}",
        Some("invalid type"),
    ),
    (
        "{apiVersion: v1, kind: Endpoints, metadata: {name: web.x}}",
        None,
    ),
    (
        "{apiVersion: v1, kind: Endpoints, metadata: {name: -web}}",
        Some(SUBDOMAIN),
    ),
    (
        "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1.x}, addressType: IPv4, endpoints: []}",
        None,
    ),
    (
        "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: Web-1}, addressType: IPv4, endpoints: []}",
        Some(SUBDOMAIN),
    ),
    ("{apiVersion: v1, kind: Pod, metadata: {name: web.0}}", None),
    (
        "{apiVersion: v1, kind: Pod, metadata: {name: Web-0}}",
        Some(SUBDOMAIN),
    ),
    (
        "{apiVersion: v1, kind: Pod, metadata: {name: web..0}}",
        Some(SUBDOMAIN),
    ),
    (
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, status: 5}",
        Some(""),
    ),
    (
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {priority: .inf}}",
        Some("spec.priority"),
    ),
    (
        "{apiVersion: v1, kind: Node, metadata: {name: 10.0.0.1, namespace: a_b}}",
        None,
    ),
    (
        "{apiVersion: v1, kind: Node, metadata: {name: a_b}}",
        Some(SUBDOMAIN),
    ),
    (
        "{apiVersion: v1, kind: Namespace, metadata: {name: 1shop}}",
        None,
    ),
    (
        "{apiVersion: v1, kind: Namespace, metadata: {name: a.b}}",
        Some(LABEL),
    ),
    (
        "{apiVersion: v1, kind: Namespace, metadata: {name: Shop}}",
        Some(LABEL),
    ),
    (
        "{apiVersion: v1, kind: Secret, metadata: {name: a.b}, data: {a: eA==}}",
        None,
    ),
    (
        "{apiVersion: v1, kind: Secret, metadata: {name: A}, data: {a: eA==}}",
        Some(SUBDOMAIN),
    ),
    (
        "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: '?'}}",
        Some("its data is not base64"),
    ),
    (
        "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a.b}, spec: {rules: [{host: a}]}}",
        None,
    ),
    (
        "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a.B}, spec: {rules: [{host: a}]}}",
        Some(SUBDOMAIN),
    ),
];

/// One file.
pub(crate) struct Example {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// An object of one of the mesh's kinds.
pub(crate) struct Expected {
    /// With its namespace.
    pub(crate) value: Value,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Each finding as text, with the line that it leads to, in the order of the document.
    pub(crate) said: Vec<(usize, String)>,
    pub(crate) accepted: bool,
    /// Where the first error is, or else where the object begins.
    pub(crate) line: usize,
}

/// Manifests and samples as they are, and the specs that fuzzing begins with, each as the object that it is of.
pub(crate) fn examples() -> Vec<Example> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for folder in ["build/kubernetes", "tests/data/fuzz/objects"] {
        for path in files(&root.join(folder)) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_one = name.ends_with(".yaml") || name.ends_with(".json");
            if is_one {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push(Example { name, text });
            }
        }
    }
    for row in KINDS {
        for what in ["good", "bad"] {
            let name = format!("{}-{what}", row.kind);
            let bytes = std::fs::read(root.join("tests/data/fuzz/rules").join(&name)).unwrap();
            let spec = std::str::from_utf8(&bytes).unwrap().get(1..).unwrap();
            let spec: Vec<_> = spec.lines().map(|line| format!("  {line}")).collect();
            let text = format!(
                "apiVersion: {}/{}\nkind: {}\nmetadata:\n  name: default\n  namespace: ns\nspec:\n{}\n",
                row.group,
                row.versions.last().unwrap(),
                row.kind,
                spec.join("\n"),
            );
            found.push(Example { name, text });
        }
    }
    assert!(found.len() > 50, "{}", found.len());
    found
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

impl Example {
    /// The objects of the mesh's kinds that have a name.
    ///
    /// # Errors
    ///
    /// It cannot be read to its end.
    pub(crate) fn expected(&self) -> Result<Vec<Expected>, Malformed> {
        let mut found = Vec::new();
        for document in documents(&self.text) {
            let document = document?;
            found.extend(document.parts().iter().filter_map(expected));
        }
        Ok(found)
    }
}

fn expected(part: &Part<'_>) -> Option<Expected> {
    let mut value = part.value();
    if !config::is_ours(value["apiVersion"].as_str()?) {
        return None;
    }
    let name = value["metadata"]["name"].as_str()?.to_owned();
    let row = config::kind(value["apiVersion"].as_str()?, value["kind"].as_str()?);
    let everywhere = row.is_ok_and(|row| row.cluster);
    let metadata = value["metadata"].as_object_mut()?;
    if everywhere {
        metadata.remove("namespace");
    } else if !metadata.contains_key("namespace") {
        metadata.insert("namespace".to_owned(), "default".into());
    }
    let namespace = metadata.get("namespace").and_then(Value::as_str);
    let namespace = namespace.unwrap_or_default().to_owned();
    let (_, mut findings) = config::check_all(&value);
    part.add_number_findings(&mut findings);
    part.order(&mut findings);
    config::limit(&mut findings);
    let first = findings.iter().find(|found| found.is_error());
    let line = first.map_or_else(|| part.begin(), |first| part.line(&first.path));
    let said = findings.iter();
    let said = said.map(|found| (part.line(&found.path), found.to_string()));
    Some(Expected {
        namespace,
        name,
        said: said.collect(),
        accepted: !findings.iter().any(Finding::is_error),
        line,
        value,
    })
}
