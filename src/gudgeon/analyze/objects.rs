//! The objects of files, each judged by itself.

use api::config::document::{self, COMMAND_LINE, Part};
use api::config::{self, Finding, FindingKind};
use serde_json::Value as Json;
use sources::catalogue::created_finding;

use super::codes;
use super::duplicates::Places;
use super::inventory::Item;
use super::messages::Message;
use crate::named_files::{NamedFile, put_namespace};

/// Kinds of Kubernetes that objects of ours speak of.
const KUBERNETES: [(&str, &[&str]); 10] = [
    (
        "v1",
        &["Endpoints", "Namespace", "Pod", "Secret", "Service"],
    ),
    ("networking.k8s.io/v1", &["Ingress"]),
    ("networking.k8s.io/v1beta1", &["Ingress"]),
    (
        "apps/v1",
        &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
    ),
    ("batch/v1", &["CronJob", "Job"]),
    // No API server has these versions any more; manifests do, such as Istio 1.1's samples.
    (
        "apps/v1beta2",
        &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
    ),
    ("apps/v1beta1", &["Deployment", "StatefulSet"]),
    ("batch/v1beta1", &["CronJob"]),
    (
        "extensions/v1beta1",
        &["DaemonSet", "Deployment", "Ingress", "ReplicaSet"],
    ),
    ("discovery.k8s.io/v1", &["EndpointSlice"]),
];

/// The namespace of objects that name none.
pub(super) const NAMELESS: &str = "default";

/// The objects of all files, and what is wrong with each by itself.
#[derive(Default)]
pub(super) struct ObjectsOfFiles {
    pub(super) items: Vec<Item>,
    pub(super) messages: Vec<Message>,
    /// A line for each part of a file that is no object or cannot be read.
    pub(super) unread: Vec<String>,
    places: Places,
    /// The number of the next object: who locates messages counts the same parts, to find them again by their numbers.
    next: usize,
}

impl ObjectsOfFiles {
    /// Reads the files. `namespace` is that of objects that name none.
    pub(super) fn read(files: &[NamedFile], namespace: Option<&str>) -> Self {
        let mut this = Self::default();
        for file in files {
            let mut documents = document::documents_within(&file.text, COMMAND_LINE).peekable();
            if !file.below && documents.peek().is_none() {
                this.cannot_read(file, 1, "there is no object in it");
            }
            for document in documents {
                match document {
                    Ok(document) => {
                        for part in document.parts() {
                            this.add(&part, file, namespace);
                        }
                    }
                    Err(malformed) if file.skips_text(malformed.line) => {}
                    Err(malformed) => {
                        this.cannot_read(file, malformed.line.max(1), &malformed.cause);
                    }
                }
            }
        }
        this
    }

    fn cannot_read(&mut self, file: &NamedFile, line: usize, cause: &str) {
        self.unread.push(format!("{}:{line}: {cause}", file.name));
    }

    fn add(&mut self, part: &Part<'_>, file: &NamedFile, namespace: Option<&str>) {
        let number = self.next;
        self.next += 1;
        let value = placed(part, of_files(file, namespace));
        if !file.below && !value.is_object() {
            self.cannot_read(file, part.begin(), "there is no object in it");
        }
        let object = NumberedObject { number, value };
        let (item, messages) = object.read(part, file);
        self.messages.extend(messages);
        let Some(item) = item else { return };
        let place = format!("{}:{}", file.name, part.begin());
        match self.places.duplicate(&item, place) {
            Some(duplicate) => self.messages.push(duplicate),
            None => self.items.push(item),
        }
    }
}

/// A part of a file, with its number among all.
struct NumberedObject {
    number: usize,
    value: Json,
}

impl NumberedObject {
    /// Returns an object of ours, valid or not, or an object of Kubernetes that those name; and the findings about it alone.
    fn read(&self, part: &Part<'_>, file: &NamedFile) -> (Option<Item>, Vec<Message>) {
        let version = self.text("/apiVersion");
        if config::is_ours(version) {
            return self.of_istio(part, file);
        }
        if let Some(unread) = config::unread_api(version) {
            return (None, vec![self.message(unread)]);
        }
        (self.of_kubernetes(), Vec::new())
    }

    fn of_istio(&self, part: &Part<'_>, file: &NamedFile) -> (Option<Item>, Vec<Message>) {
        let (object, mut findings) = config::check_all(&self.value);
        part.add_number_findings(&mut findings);
        if file.skips_object(part, &findings) {
            return (None, Vec::new());
        }
        findings.extend(created_finding(&self.value));
        let is_valid = !findings.iter().any(Finding::is_error);
        if let Some(object) = object.as_ref().filter(|_| is_valid) {
            findings.extend(config::notes_of(object));
        }
        let findings = findings.into_iter();
        let messages = findings.map(|finding| self.message(finding)).collect();
        let item = object.map(|object| self.item(object.spec, &object.namespace));
        (item, messages)
    }

    /// `None` if objects of ours speak of none of this kind.
    fn of_kubernetes(&self) -> Option<Item> {
        let (version, kind) = (self.text("/apiVersion"), self.text("/kind"));
        let is_known = KUBERNETES
            .iter()
            .any(|(known, kinds)| *known == version && kinds.contains(&kind));
        if !is_known {
            return None;
        }
        let namespace = match (kind, self.text("/metadata/namespace")) {
            ("Namespace", _) => "",
            (_, "") => NAMELESS,
            (_, namespace) => namespace,
        };
        let mut body = self.value.clone();
        if let (Some(fields), true) = (body.as_object_mut(), kind == "Secret") {
            // Nobody is to read them again.
            fields.retain(|name, _| name == "metadata");
        }
        Some(self.item(body, namespace))
    }

    fn item(&self, body: Json, namespace: &str) -> Item {
        let group = self.text("/apiVersion").split_once('/');
        let annotations = self.value.pointer("/metadata/annotations");
        Item {
            number: self.number,
            group: group.map_or("", |(group, _)| group).to_owned(),
            kind: self.text("/kind").to_owned(),
            namespace: namespace.to_owned(),
            name: self.text("/metadata/name").to_owned(),
            body,
            annotations: annotations.cloned().unwrap_or(Json::Null),
        }
    }

    fn message(&self, finding: Finding) -> Message {
        Message {
            code: code_of(&finding),
            item: self.number,
            path: finding.path,
            text: finding.message,
        }
    }

    fn text(&self, pointer: &str) -> &str {
        let text = self.value.pointer(pointer).and_then(Json::as_str);
        text.unwrap_or_default()
    }
}

/// The code that istioctl has for a finding of the rules.
fn code_of(finding: &Finding) -> &'static codes::Code {
    match finding.kind {
        _ if finding.is_error() => &codes::INVALID,
        FindingKind::Deprecated => &codes::DEPRECATED,
        FindingKind::Unreachable => &codes::UNREACHABLE,
        FindingKind::General
        | FindingKind::OneofConflict
        | FindingKind::HoldsForNone
        | FindingKind::HoldsForWorkloads
        | FindingKind::Tried
        | FindingKind::Untried
        | FindingKind::Omitted(_) => &codes::NOTED,
    }
}

/// Objects of a cluster are in their namespaces.
pub(super) fn of_files<'a>(file: &NamedFile, namespace: Option<&'a str>) -> Option<&'a str> {
    namespace.filter(|_| !file.name.is_empty())
}

/// The object of a part, in its namespace.
pub(super) fn placed(part: &Part<'_>, namespace: Option<&str>) -> Json {
    let mut value = part.value();
    if let Some(namespace) = namespace {
        put_namespace(&mut value, namespace);
    }
    value
}
