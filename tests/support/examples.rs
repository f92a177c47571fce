//! The files with objects that this repository ships, and what the rule book says of each object in them: every way into the
//! program is held against that.

use std::path::{Path, PathBuf};

use api::config::document::{Part, documents};
use api::config::{self, EARLIER, Finding, KINDS, LATER};
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
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {a: [x]}}}",
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
    /// The notes of a valid object, parts that discovery does not serve as they are written: in the same form and in no order.
    pub(crate) notes: Vec<(usize, String)>,
    pub(crate) accepted: bool,
    /// Where the first error is, or else where the object begins.
    pub(crate) line: usize,
}

/// Manifests and samples as they are, rules of the conformance tests and of the documents, the specs that fuzzing begins with,
/// each as the object that it is of, and an object of each kind that nothing uses.
pub(crate) fn examples() -> Vec<Example> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["build/kubernetes", "tests/data/fuzz/objects"].map(|folder| root.join(folder));
    let rules = files(&root.join("tests/rules"));
    let paths = folders
        .iter()
        .chain(&rules)
        .flat_map(|folder| files(folder));
    let mut found = Vec::new();
    for path in paths.chain([root.join("README.md")]) {
        let name = path
            .strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        if name.ends_with(".yaml") || name.ends_with(".json") {
            let text = filled_in(&std::fs::read_to_string(&path).unwrap());
            found.push(Example { name, text });
        } else if name.ends_with(".md") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(of_document(&name, &text));
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
    for row in LATER.iter().chain(EARLIER) {
        let text = format!(
            "apiVersion: {}/v1alpha2\nkind: {}\nmetadata: {{name: a, namespace: ns}}\nspec: {{any: [1]}}\n",
            row.group, row.kind
        );
        let name = row.kind.to_owned();
        found.push(Example { name, text });
    }
    assert!(found.len() > 150, "{}", found.len());
    found
}

/// The text with a value in the place of each `${NAME}`: an address where it stands in quotes, a port elsewhere.
fn filled_in(text: &str) -> String {
    let mut parts = text.split("${");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once('}').unwrap();
        filled.push_str(match filled.ends_with('\'') {
            true => "10.0.0.1",
            false => "8000",
        });
        filled.push_str(rest);
    }
    filled
}

/// The whole objects that a document shows, as code or as a file that a shell writes.
fn of_document(name: &str, text: &str) -> Vec<Example> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let end = match line {
            _ if line.starts_with("```yaml") => "```",
            _ if line.ends_with("<<'END'") => "END",
            _ => continue,
        };
        let block = lines.by_ref().map(|(_, line)| line);
        let block: Vec<_> = block.take_while(|line| *line != end).collect();
        if block.iter().any(|line| line.starts_with("apiVersion: ")) {
            found.push(Example {
                name: format!("{name}:{}", at + 1),
                text: block.join("\n"),
            });
        }
    }
    found
}

/// Returns what discovery does not serve of an object as it is written, if the object is valid.
pub(crate) fn notes(value: &Value) -> Vec<Finding> {
    let (object, findings) = config::check_all(value);
    let object = object.filter(|_| !findings.iter().any(Finding::is_error));
    object.as_ref().map(config::notes_of).unwrap_or_default()
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
    part.sort(&mut findings);
    config::limit(&mut findings);
    let first = findings.iter().find(|found| found.is_error());
    let line = first.map_or_else(|| part.begin(), |first| part.line(&first.path));
    let texts = |all: &[Finding]| {
        let all = all.iter();
        all.map(|found| (part.line(&found.path), found.to_string()))
            .collect()
    };
    let noted = match first {
        Some(_) => Vec::new(),
        None => notes(&value),
    };
    Some(Expected {
        namespace,
        name,
        said: texts(&findings),
        notes: texts(&noted),
        accepted: !findings.iter().any(Finding::is_error),
        line,
        value,
    })
}
