//! A document as the object that it describes.

use std::sync::Arc;

use api::config;
use api::config::document::Part;
use api::yaml::{Node, Plain, Value};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::super::configuration::AnyConfigured;
use super::super::kubernetes::{Endpoints, Namespace, Node as Machine, Pod, Service, Slice};
use super::super::refusal::Refusal;
use super::super::written::Written;
use super::one_line;

/// What makes an object one, in whatever version it is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::registry) struct Id {
    pub(super) group: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl std::fmt::Display for Id {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(to, "{}/", self.namespace)?;
        }
        write!(to, "{}", self.name)
    }
}

/// What is made of an object.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::registry) enum Meaning {
    Configuration(AnyConfigured),
    Service(Arc<Service>),
    Slice(Arc<Slice>),
    Endpoints(Arc<Endpoints>),
    Pod(Arc<Pod>),
    Machine(Arc<Machine>),
    Namespace(Arc<Namespace>),
    /// Kept to be looked at.
    Nothing,
}

impl Meaning {
    /// Of a cluster, not of the mesh's configuration.
    pub(super) const fn is_kubernetes(&self) -> bool {
        match self {
            Self::Service(_)
            | Self::Slice(_)
            | Self::Endpoints(_)
            | Self::Pod(_)
            | Self::Machine(_)
            | Self::Namespace(_) => true,
            Self::Configuration(_) | Self::Nothing => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(in crate::registry) struct Object {
    pub(super) id: Id,
    pub(super) line: usize,
    pub(super) meaning: Meaning,
    /// Of the mesh's configuration.
    pub(super) written: Option<Arc<Written>>,
}

#[cfg(test)]
impl Object {
    pub(in crate::registry) const fn written(&self) -> Option<&Arc<Written>> {
        self.written.as_ref()
    }

    pub(in crate::registry) const fn line(&self) -> usize {
        self.line
    }
}

/// What a document turns out to be.
#[derive(Debug)]
pub(in crate::registry) enum Item {
    Good(Object),
    Bad {
        line: usize,
        /// As far as it can be told.
        id: Option<Id>,
        written: Option<Arc<Written>>,
        cause: String,
    },
    /// An object that has nothing to do with this: its kind.
    Foreign(String),
}

pub(super) const SLICES: &str = "discovery.k8s.io";

/// What every object begins with.
struct Head<'a> {
    api_version: &'a str,
    id: Id,
    /// Or what is wrong with it: the object is known by then, and so is its last good version.
    created: Result<Option<i64>, String>,
    node: &'a Node,
}

/// The objects of a document: one, or those of a list.
pub(super) fn items(node: &Node, source: &Arc<str>, out: &mut Vec<Item>) {
    let is_list = text(node, "kind") == Some("List") && text(node, "apiVersion") == Some("v1");
    match get(node, "items").map(|items| &items.value) {
        Some(Value::List(items)) if is_list => {
            for item in items {
                self::items(item, source, out);
            }
        }
        _ if is_list => {}
        _ => out.push(item(node, source)),
    }
}

fn item(node: &Node, source: &Arc<str>) -> Item {
    let bad = |cause: String| Item::Bad {
        line: node.line,
        id: None,
        written: None,
        cause,
    };
    if !matches!(node.value, Value::Map(_)) {
        return bad("want an object".to_owned());
    }
    let word = |key| text(node, key).filter(|text| is_word(text));
    let (Some(api_version), Some(kind)) = (word("apiVersion"), word("kind")) else {
        return bad("want apiVersion and kind".to_owned());
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_ours = config::is_ours(api_version);
    if !is_ours && !group.is_empty() && (group, kind) != (SLICES, "EndpointSlice") {
        return Item::Foreign(format!("{api_version} {kind}"));
    }
    let head = match head(node, api_version, group, kind) {
        Ok(head) => head,
        Err(cause) => return bad(format!("{kind}: {cause}")),
    };
    match (group, version) {
        ("", "v1") | (SLICES, "v1") => kubernetes(&head),
        _ if is_ours => configuration(&head, source),
        _ => Item::Foreign(format!("{api_version} {kind}")),
    }
}

/// What kinds, versions and objects are called. Nothing else is remembered or said of a document.
fn is_word(text: &str) -> bool {
    const LONGEST: usize = 253;
    let letters =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'/');
    !text.is_empty() && text.len() <= LONGEST && text.bytes().all(letters)
}

fn head<'a>(
    node: &'a Node,
    api_version: &'a str,
    group: &str,
    kind: &str,
) -> Result<Head<'a>, String> {
    let metadata = get(node, "metadata").ok_or("want metadata")?;
    let is_name = |name: &str| is_word(name) && !name.contains('/');
    let name = text(metadata, "name")
        .filter(|name| is_name(name))
        .ok_or("metadata.name: want a name")?;
    let everywhere = match group {
        "" => matches!(kind, "Node" | "Namespace"),
        _ => config::named(group, kind).is_some_and(|kind| kind.cluster),
    };
    let namespace = match text(metadata, "namespace") {
        _ if everywhere => "",
        None | Some("") => "default",
        Some(namespace) if is_name(namespace) => namespace,
        Some(_) => return Err("metadata.namespace: want a name".to_owned()),
    };
    let created = match text(metadata, "creationTimestamp") {
        None => Ok(None),
        Some(time) => time
            .parse()
            .map(|time: Timestamp| Some(time.as_second()))
            .map_err(|_| format!("metadata.creationTimestamp: want a time, got {time:?}")),
    };
    Ok(Head {
        api_version,
        id: Id {
            group: group.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        },
        created,
        node,
    })
}

/// Judges an object of the mesh by the rules that the webhook, an API server and MCP have, too.
fn configuration(head: &Head<'_>, source: &Arc<str>) -> Item {
    let part = Part::new(head.node);
    let mut value = part.value();
    place(&mut value, &head.id.namespace);
    let (object, mut findings) = config::check_all(&value);
    part.complain(&mut findings);
    part.order(&mut findings);
    config::limit(&mut findings);
    let meaning = head.created.clone().and_then(|created| {
        match (Refusal::of(&findings), object) {
            (Some(refusal), _) => Err(refusal.words.to_string()),
            (None, Some(object)) => {
                let read = AnyConfigured::of(&object, created)?;
                Ok(read.map_or(Meaning::Nothing, Meaning::Configuration))
            }
            // Of a kind that nobody uses.
            (None, None) => Ok(Meaning::Nothing),
        }
    });
    let mut messages: Vec<_> = findings.iter().map(ToString::to_string).collect();
    let line = match &meaning {
        Err(cause) if messages.is_empty() => {
            messages.push(one_line(cause));
            head.node.line
        }
        Ok(_) | Err(_) => {
            let first = findings.iter().find(|found| found.is_error());
            first.map_or(head.node.line, |first| part.line(&first.path))
        }
    };
    let field = |name| get(head.node, name).map_or(Json::Null, Node::to_json);
    let written = Some(Arc::new(Written {
        api_version: head.api_version.into(),
        kind: head.id.kind.clone(),
        namespace: head.id.namespace.clone(),
        name: head.id.name.clone(),
        metadata: field("metadata"),
        spec: field("spec").into(),
        source: source.clone(),
        accepted: meaning.is_ok(),
        messages: messages.iter().map(|message| one_line(message)).collect(),
    }));
    let id = head.id.clone();
    match meaning {
        Ok(meaning) => Item::Good(Object {
            id,
            line,
            meaning,
            written,
        }),
        Err(cause) => Item::Bad {
            line,
            id: Some(id),
            written,
            cause,
        },
    }
}

/// Gives an object the namespace that it is in without naming it.
fn place(value: &mut Json, namespace: &str) {
    if let Some(Json::Object(metadata)) = value.get_mut("metadata") {
        set(metadata, Json::from(namespace));
    }
}

fn kubernetes(head: &Head<'_>) -> Item {
    let read = match &*head.id.kind {
        "Service" => cluster(head).map(Meaning::Service),
        "EndpointSlice" => cluster(head).map(Meaning::Slice),
        "Endpoints" => cluster(head).map(Meaning::Endpoints),
        "Pod" => cluster(head).map(Meaning::Pod),
        "Node" => cluster(head).map(Meaning::Machine),
        "Namespace" => cluster(head).map(Meaning::Namespace),
        // Nothing here reads secrets, and nobody is to see them.
        "Secret" => Ok(Meaning::Nothing),
        kind => return Item::Foreign(format!("{} {kind}", head.api_version)),
    };
    let (id, line) = (head.id.clone(), head.node.line);
    match head.created.clone().and(read) {
        Ok(meaning) => Item::Good(Object {
            id,
            line,
            meaning,
            written: None,
        }),
        Err(cause) => Item::Bad {
            line,
            id: Some(id),
            written: None,
            cause,
        },
    }
}

fn cluster<T: DeserializeOwned>(head: &Head<'_>) -> Result<Arc<T>, String> {
    let mut json = head.node.to_json();
    if let Some(Json::Object(metadata)) = json.get_mut("metadata") {
        let namespace = Json::String(head.id.namespace.to_string());
        set(metadata, namespace);
    }
    serde_json::from_value(json)
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

fn set(metadata: &mut Map<String, Json>, namespace: Json) {
    if namespace == "" {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".to_owned(), namespace);
    }
}

fn get<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| node)
            .filter(|node| !node.is_null()),
        Value::Scalar(_) | Value::List(_) => None,
    }
}

/// Text, or what looks like a number: `name: 1` is rather a name here than a mistake.
fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    match &get(node, key)?.value {
        Value::Scalar(scalar) if scalar.plain() != Plain::Null => Some(&scalar.text),
        Value::Scalar(_) | Value::List(_) | Value::Map(_) => None,
    }
}
