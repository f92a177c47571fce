//! A document as the object that it describes.

use std::sync::Arc;

use api::model::{Configured, DISTRIBUTION, is_near};
use api::networking::{self, Kind as Typed, ServiceEntry, Sidecar, WorkloadEntry};
use api::yaml::{Node, Plain, Value};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::super::kubernetes::{Endpoints, Namespace, Node as Machine, Pod, Service, Slice};
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
    ServiceEntry(Arc<Configured<ServiceEntry>>),
    WorkloadEntry(Arc<Configured<WorkloadEntry>>),
    Sidecar(Arc<Configured<Sidecar>>),
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
            Self::ServiceEntry(_) | Self::WorkloadEntry(_) | Self::Sidecar(_) | Self::Nothing => {
                false
            }
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

const NETWORKING: &str = "networking.istio.io";
const SECURITY: &str = "security.istio.io";
pub(super) const SLICES: &str = "discovery.k8s.io";

/// Groups with their versions and the kinds that there are.
const GROUPS: [(&str, &[&str], &[&str]); 2] = [
    (
        NETWORKING,
        &["v1", "v1beta1", "v1alpha3"],
        &[
            "DestinationRule",
            "EnvoyFilter",
            "Gateway",
            "ProxyConfig",
            "ServiceEntry",
            "Sidecar",
            "VirtualService",
            "WorkloadEntry",
            "WorkloadGroup",
        ],
    ),
    (
        SECURITY,
        &["v1", "v1beta1"],
        &[
            "AuthorizationPolicy",
            "PeerAuthentication",
            "RequestAuthentication",
        ],
    ),
];

/// What every object begins with.
struct Head<'a> {
    api_version: &'a str,
    version: &'a str,
    id: Id,
    /// Or what is wrong with it: the object is known by then, and so is its last good version.
    created: Result<Option<i64>, String>,
    node: &'a Node,
}

impl Head<'_> {
    fn annotation(&self, name: &str) -> Option<&str> {
        let annotations = get(get(self.node, "metadata")?, "annotations")?;
        text(annotations, name).map(str::trim)
    }
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
    let is_known =
        matches!(group, "" | NETWORKING | SECURITY) || (group, kind) == (SLICES, "EndpointSlice");
    if !is_known {
        return Item::Foreign(format!("{api_version} {kind}"));
    }
    let head = match head(node, api_version, group, version, kind) {
        Ok(head) => head,
        Err(cause) => return bad(format!("{kind}: {cause}")),
    };
    match (group, version) {
        ("", "v1") | (SLICES, "v1") => kubernetes(&head),
        (NETWORKING | SECURITY, _) => configuration(&head, source),
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
    version: &'a str,
    kind: &str,
) -> Result<Head<'a>, String> {
    let metadata = get(node, "metadata").ok_or("want metadata")?;
    let is_name = |name: &str| is_word(name) && !name.contains('/');
    let name = text(metadata, "name")
        .filter(|name| is_name(name))
        .ok_or("metadata.name: want a name")?;
    let everywhere = group.is_empty() && matches!(kind, "Node" | "Namespace");
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
        version,
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

fn configuration(head: &Head<'_>, source: &Arc<str>) -> Item {
    let known = GROUPS
        .iter()
        .find(|(group, _, _)| **group == *head.id.group);
    let (versions, kinds) = known.map_or((&[][..], &[][..]), |(_, versions, kinds)| {
        (*versions, *kinds)
    });
    let read = if !versions.contains(&head.version) {
        Err(format!(
            "apiVersion: want one of {}, got {:?}",
            versions.join(", "),
            head.version
        ))
    } else if !kinds.contains(&&*head.id.kind) {
        Err(format!("kind: want one of {}", kinds.join(", ")))
    } else {
        head.created.clone().and_then(|_| meaning(head))
    };
    let json = |field| get(head.node, field).map_or(Json::Null, Node::to_json);
    let (accepted, messages) = match &read {
        Ok((_, warnings)) => (true, warnings.clone()),
        Err(cause) => (false, vec![one_line(cause)]),
    };
    let written = Some(Arc::new(Written {
        api_version: head.api_version.into(),
        kind: head.id.kind.clone(),
        namespace: head.id.namespace.clone(),
        name: head.id.name.clone(),
        metadata: json("metadata"),
        spec: json("spec").into(),
        source: source.clone(),
        accepted,
        messages,
    }));
    let (id, line) = (head.id.clone(), head.node.line);
    match read {
        Ok((meaning, _)) => Item::Good(Object {
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

fn meaning(head: &Head<'_>) -> Result<(Meaning, Vec<String>), String> {
    match (&*head.id.group, &*head.id.kind) {
        (NETWORKING, "ServiceEntry") => {
            typed(head).map(|(one, said)| (Meaning::ServiceEntry(one), said))
        }
        (NETWORKING, "WorkloadEntry") => {
            typed(head).map(|(one, said)| (Meaning::WorkloadEntry(one), said))
        }
        (NETWORKING, "Sidecar") => typed(head).map(|(one, said)| (Meaning::Sidecar(one), said)),
        _ => Ok((Meaning::Nothing, findings(head))),
    }
}

/// What is to be known of an object of a kind that has no effect. Nothing of it is used, so nothing is refused.
fn findings(head: &Head<'_>) -> Vec<String> {
    let (_, findings) = api::config::check(&head.node.to_json());
    findings.iter().map(ToString::to_string).collect()
}

fn typed<T: Typed>(head: &Head<'_>) -> Result<(Arc<Configured<T>>, Vec<String>), String> {
    let empty = Node {
        line: head.node.line,
        begin: None,
        value: Value::Map(Vec::new()),
    };
    let spec = get(head.node, "spec").unwrap_or(&empty);
    let read = networking::read(spec).map_err(|invalid| {
        // The file's line is said with the message.
        let path = if invalid.path.is_empty() {
            "spec"
        } else {
            &invalid.path
        };
        format!("{path}: {}", invalid.cause)
    })?;
    let one = Configured {
        name: head.id.name.clone(),
        namespace: head.id.namespace.clone(),
        created: head.created.clone().ok().flatten(),
        prefers_close: is_near(head.annotation(DISTRIBUTION)),
        spec: read.config,
    };
    Ok((Arc::new(one), read.warnings))
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
