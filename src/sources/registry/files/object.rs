//! A document as the object that it describes.

use std::sync::Arc;

use api::config::document::Part;
use api::config::{self, Finding};
use api::model::Credential;
use api::names::{self, LONGEST_NAME};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::super::configuration::AnyConfigured;
use super::super::credential::SecretData;
use super::super::kubernetes::{
    EndpointSlice, Endpoints, Namespace, Node as Machine, Pod, Service, trimmed,
};
use super::super::refusal::Refusal;
use super::super::written_object::WrittenObject;
use super::MAX_BYTES;
use super::one_line::one_line_of;
use crate::catalogue::Origin;
use crate::config::CoreKind;
use crate::kind::Revision;

/// The identity of an object, independent of its API version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::registry) struct FileObjectId {
    pub(super) group: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl std::fmt::Display for FileObjectId {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(to, "{}/", self.namespace)?;
        }
        write!(to, "{}", self.name)
    }
}

/// The decoded form of an object.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::registry) enum Meaning {
    Configuration(AnyConfigured),
    Service(Arc<Service>),
    Slice(Arc<EndpointSlice>),
    Endpoints(Arc<Endpoints>),
    Pod(Arc<Pod>),
    Machine(Arc<Machine>),
    Namespace(Arc<Namespace>),
    /// Certificates of a Secret.
    Credential(Arc<Credential>),
    /// As JSON.
    Ingress(Arc<str>),
    /// Kept to be looked at.
    Nothing,
}

impl Meaning {
    /// Returns true for Kubernetes' own kinds, false for the mesh's configuration.
    pub(super) const fn is_kubernetes(&self) -> bool {
        match self {
            Self::Service(_)
            | Self::Slice(_)
            | Self::Endpoints(_)
            | Self::Pod(_)
            | Self::Machine(_)
            | Self::Namespace(_)
            | Self::Credential(_)
            | Self::Ingress(_) => true,
            Self::Configuration(_) | Self::Nothing => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(in crate::registry) struct FileObject {
    pub(super) id: FileObjectId,
    pub(super) origin: Origin,
    pub(super) meaning: Meaning,
    /// The object as written, if it is of the mesh's configuration.
    pub(super) written: Option<Arc<WrittenObject>>,
}

impl FileObject {
    /// Returns true for every Secret, of certificates or not, since no output shows one.
    pub(in crate::registry) fn is_secret(&self) -> bool {
        *self.id.kind == *"Secret"
    }

    pub(in crate::registry) const fn line(&self) -> usize {
        self.origin.line()
    }
}

#[cfg(test)]
impl FileObject {
    pub(in crate::registry) const fn written(&self) -> Option<&Arc<WrittenObject>> {
        self.written.as_ref()
    }
}

/// The result of decoding a document.
#[derive(Debug)]
pub(in crate::registry) enum Item {
    Good(FileObject),
    Bad {
        origin: Origin,
        /// The identity, as far as it is known.
        id: Option<FileObjectId>,
        written: Option<Arc<WrittenObject>>,
        cause: String,
    },
    /// An object of an unrelated kind, with that kind.
    Foreign(String),
}

pub(super) const SLICES: &str = "discovery.k8s.io";
/// The group of Ingresses, also of those whose version is of an earlier one.
const INGRESSES: &str = "networking.k8s.io";

/// The fields that every object has.
struct Head<'a> {
    api_version: &'a str,
    id: FileObjectId,
    /// The creation time, or its error: the object's identity is known by then, and its last good version stays.
    created: Result<Option<i64>, String>,
}

/// An object of a text; `within`: the origin of the text.
pub(super) fn item(part: &Part<'_>, within: &Origin) -> Item {
    let bad = |cause: String| Item::Bad {
        origin: within.at(part.begin()),
        id: None,
        written: None,
        cause,
    };
    let value = part.value();
    if !value.is_object() {
        return bad("want an object".to_owned());
    }
    let word = |key| text(part, &value, &[key]).filter(|text| is_word(text));
    let (Some(api_version), Some(kind)) = (word("apiVersion"), word("kind")) else {
        return bad("want apiVersion and kind".to_owned());
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_ours = config::is_ours(api_version);
    let core = CoreKind::of(api_version, kind);
    let is_known = matches!(core, Some(CoreKind::EndpointSlice | CoreKind::Ingress));
    if !is_ours && !group.is_empty() && !is_known {
        return Item::Foreign(format!("{api_version} {kind}"));
    }
    let group = match core {
        Some(CoreKind::Ingress) => INGRESSES,
        _ => group,
    };
    let head = match head(part, &value, api_version, group, kind) {
        Ok(head) => head,
        Err(cause) if is_ours => return nameless(part, &value, kind, &cause, within),
        Err(cause) => return bad(format!("{kind}: {cause}")),
    };
    match (group, version) {
        ("", "v1") | (SLICES | INGRESSES, _) => kubernetes(&head, part, value, within),
        _ if is_ours => configuration(&head, part, value, within),
        _ => Item::Foreign(format!("{api_version} {kind}")),
    }
}

/// Returns true if the text may be a kind, version or name. Other text of a document is neither stored nor shown.
fn is_word(text: &str) -> bool {
    let letters =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'/');
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(letters)
}

fn head<'a>(
    part: &Part<'a>,
    value: &Json,
    api_version: &'a str,
    group: &str,
    kind: &str,
) -> Result<Head<'a>, String> {
    if value.get("metadata").is_none_or(Json::is_null) {
        return Err("want metadata".to_owned());
    }
    let metadata = |name| text(part, value, &["metadata", name]);
    let created = match metadata("creationTimestamp") {
        None => Ok(None),
        Some(time) => time
            .parse()
            .map(|time: Timestamp| Some(time.as_second()))
            .map_err(|_| format!("metadata.creationTimestamp: want a time, got {time:?}")),
    };
    let head = |namespace: &str, name: &str| Head {
        api_version,
        id: FileObjectId {
            group: group.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        },
        created,
    };
    if let Some(core) = CoreKind::of(api_version, kind) {
        let found = core.name_of(value).map_err(|finding| finding.to_string())?;
        return Ok(head(found.namespace, found.name));
    }
    let is_name = |name: &str| is_word(name) && !name.contains('/');
    let name = metadata("name")
        .filter(|name| is_name(name))
        .ok_or("metadata.name: want a name")?;
    let everywhere = config::named(group, kind).is_some_and(|kind| kind.cluster);
    let namespace = match metadata("namespace") {
        _ if everywhere => "",
        Some("") => "default",
        // A list or an object is no text.
        None if value
            .pointer("/metadata/namespace")
            .is_none_or(Json::is_null) =>
        {
            "default"
        }
        Some(namespace) if names::is_label(namespace) => namespace,
        // It is not the default one: the object would take the place of one that is there.
        None | Some(_) => return Err("metadata.namespace: want a DNS label".to_owned()),
    };
    Ok(head(namespace, name))
}

/// An object with the findings of the rule book, in the order of the document.
fn check(part: &Part<'_>, value: &Json, is_named: bool) -> (Option<config::Object>, Vec<Finding>) {
    const NAME: &str = "metadata.name";
    let (object, mut findings) = config::check_all(value);
    if !is_named && !findings.iter().any(|found| found.path == NAME) {
        // An API server would complete it.
        findings.push(Finding::error(NAME, "is required"));
    }
    part.add_number_findings(&mut findings);
    part.order(&mut findings);
    config::limit(&mut findings);
    (object, findings)
}

/// Returns the line of the first error, or else the line at which the object begins.
fn line(part: &Part<'_>, findings: &[Finding]) -> usize {
    let first = findings.iter().find(|found| found.is_error());
    first.map_or_else(|| part.begin(), |first| part.line(&first.path))
}

/// Builds the item of a mesh object without a name, or whose namespace is none.
fn nameless(
    part: &Part<'_>,
    value: &Json,
    kind: &str,
    metadata_cause: &str,
    within: &Origin,
) -> Item {
    let name = text(part, value, &["metadata", "name"]);
    let (_, findings) = check(part, value, name.is_some_and(|name| !name.is_empty()));
    // The metadata of an object that is not checked was read here alone.
    let message = Refusal::of(&findings).map_or_else(|| metadata_cause.into(), |one| one.message);
    Item::Bad {
        origin: within.at(line(part, &findings)),
        id: None,
        written: None,
        cause: format!("{kind}: {message}"),
    }
}

/// Validates an object of the mesh by the rules of the webhook, of API servers and of MCP.
fn configuration(head: &Head<'_>, part: &Part<'_>, mut value: Json, within: &Origin) -> Item {
    let metadata = value.get("metadata").cloned().unwrap_or_default();
    place(&mut value, &head.id.namespace);
    let (object, mut findings) = check(part, &value, true);
    let used = object.as_ref().filter(|_| Refusal::of(&findings).is_none());
    let notes = used.map(config::notes_of).unwrap_or_default();
    let meaning = head.created.clone().and_then(|created| {
        match (Refusal::of(&findings), object) {
            (Some(refusal), _) => Err(refusal.message.to_string()),
            (None, Some(object)) => {
                let read = AnyConfigured::of(&object, created)?;
                Ok(read.map_or(Meaning::Nothing, Meaning::Configuration))
            }
            // A kind without effect.
            (None, None) => Ok(Meaning::Nothing),
        }
    });
    let line = line(part, &findings);
    if let Err(cause) = &meaning
        && !findings.iter().any(Finding::is_error)
    {
        findings.push(Finding::error("", cause));
    }
    let origin = within.at(line);
    let spec = value.get_mut("spec").map_or(Json::Null, Json::take);
    let written = Some(Arc::new(WrittenObject {
        api_version: head.api_version.into(),
        kind: head.id.kind.clone(),
        namespace: head.id.namespace.clone(),
        name: head.id.name.clone(),
        metadata,
        spec: spec.into(),
        origin: origin.clone(),
        accepted: meaning.is_ok(),
        findings: findings.iter().map(one_line_of).collect(),
        notes: notes.iter().map(one_line_of).collect(),
        revision: Revision::default(),
    }));
    let id = head.id.clone();
    match meaning {
        Ok(meaning) => Item::Good(FileObject {
            id,
            origin,
            meaning,
            written,
        }),
        Err(cause) => Item::Bad {
            origin,
            id: Some(id),
            written,
            cause,
        },
    }
}

fn kubernetes(head: &Head<'_>, part: &Part<'_>, value: Json, within: &Origin) -> Item {
    let namespace = &head.id.namespace;
    let mut findings = Vec::new();
    part.add_number_findings(&mut findings);
    let read = match &*head.id.kind {
        _ if part.size() > MAX_BYTES => Err(api::size::longer_than(MAX_BYTES)),
        "Service" => cluster(value, namespace).map(Meaning::Service),
        "EndpointSlice" => cluster(value, namespace).map(Meaning::Slice),
        "Endpoints" => cluster(value, namespace).map(Meaning::Endpoints),
        "Pod" => cluster(value, namespace).map(Meaning::Pod),
        "Node" => cluster(value, namespace).map(Meaning::Machine),
        "Namespace" => cluster(value, namespace).map(Meaning::Namespace),
        "Secret" => secret(value),
        "Ingress" => Ok(Meaning::Ingress(ingress(value, namespace))),
        kind => return Item::Foreign(format!("{} {kind}", head.api_version)),
    };
    let read = match findings.first() {
        Some(finding) => Err(finding.to_string()),
        None => read,
    };
    let (id, origin) = (head.id.clone(), within.at(part.begin()));
    match head.created.clone().and(read) {
        Ok(meaning) => Item::Good(FileObject {
            id,
            origin,
            meaning,
            written: None,
        }),
        Err(cause) => Item::Bad {
            origin,
            id: Some(id),
            written: None,
            cause,
        },
    }
}

/// Only trims the Ingress: the transformation to Gateway and VirtualService reports its faults.
fn ingress(mut value: Json, namespace: &str) -> Arc<str> {
    place(&mut value, namespace);
    trimmed(&value)
}

/// No output may show anything of a Secret, so no cause quotes it.
fn secret(value: Json) -> Result<Meaning, String> {
    let read: SecretData = serde_json::from_value(value)
        .map_err(|_| "its data is not base64, or its stringData no text".to_owned())?;
    let found = read.whole()?;
    Ok(found.map_or(Meaning::Nothing, Meaning::Credential))
}

fn cluster<T: DeserializeOwned>(mut value: Json, namespace: &str) -> Result<Arc<T>, String> {
    place(&mut value, namespace);
    serde_json::from_value(value)
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

/// Sets the namespace of an object without one.
fn place(value: &mut Json, namespace: &str) {
    let Some(Json::Object(metadata)) = value.get_mut("metadata") else {
        return;
    };
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}

/// Returns text; `name: 1` counts as text, too.
fn text<'a>(part: &Part<'a>, value: &Json, path: &[&str]) -> Option<&'a str> {
    let found = path.iter().try_fold(value, |at, name| at.get(name))?;
    let is_there = !found.is_null();
    part.text(&path.join(".")).filter(|_| is_there)
}
