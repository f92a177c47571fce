//! Objects of texts in the form in which discovery uses them: decoded, and as they are written.

use std::sync::Arc;

use api::config::{self, Finding};
use api::model::Credential;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::MAX_BYTES;
use crate::catalogue::checked::{CheckedContent, CheckedObject, named};
use crate::catalogue::one_line::one_line_of;
use crate::catalogue::text::TextObject;
use crate::catalogue::{ConfigObject, CoreKind, Origin};
use crate::contribution::{AnyConfigured, SecretData};
use crate::kind::Revision;
use crate::kubernetes::{
    EndpointSlice, Endpoints, Namespace, Node as Machine, Pod, Service, trimmed,
};

/// The decoded form of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DecodedObject {
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

/// A valid object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileVersion {
    pub(super) decoded: DecodedObject,
    /// The object as written, if it is of the mesh's configuration.
    pub(crate) written: Option<Arc<ConfigObject>>,
}

/// Decodes a checked object; `None`: discovery reads nothing of its kind. `within`: the origin of the text.
pub(crate) fn stored(
    object: &mut TextObject<'_>,
    checked: CheckedObject<CheckedContent>,
    within: &Origin,
) -> Option<CheckedObject<FileVersion>> {
    match checked.id.core_kind() {
        Some(CoreKind::IngressClass) => None,
        Some(kind) => Some(checked.store(|id, _| {
            let (namespace, _) = id.namespace_and_name();
            let decoded = core(kind, object, namespace);
            let decoded = decoded.map_err(|cause| Finding::error("", cause))?;
            Ok(FileVersion {
                decoded,
                written: None,
            })
        })),
        None => Some(configuration(object, checked, within)),
    }
}

/// Decodes an object of the mesh, and keeps it as it is written.
fn configuration(
    object: &mut TextObject<'_>,
    checked: CheckedObject<CheckedContent>,
    within: &Origin,
) -> CheckedObject<FileVersion> {
    let CheckedObject {
        id,
        content,
        findings,
        notes,
        ..
    } = checked.store(|_, content| match content {
        CheckedContent::Object(object, created) => {
            let read = AnyConfigured::of(&object, created);
            let read = read.map_err(|cause| Finding::error("", cause))?;
            Ok(read.map_or(DecodedObject::Nothing, DecodedObject::Configuration))
        }
        CheckedContent::Unused | CheckedContent::Core(_) => Ok(DecodedObject::Nothing),
    });
    let origin = within.at(object.line(&findings));
    let config_object = config_object(&mut object.value, origin).map(|as_written| {
        Arc::new(ConfigObject {
            is_accepted: content.is_some(),
            findings: findings.iter().map(one_line_of).collect(),
            notes: notes.iter().map(one_line_of).collect(),
            ..as_written
        })
    });
    let (content, config_object) = match content {
        Some(decoded) => (
            Some(FileVersion {
                decoded,
                written: config_object,
            }),
            None,
        ),
        None => (None, config_object),
    };
    CheckedObject {
        id,
        content,
        findings,
        notes,
        written: config_object,
    }
}

/// Returns an object of the mesh's groups as it is written, even one whose kind is unknown; `None`: it has no name.
fn config_object(value: &mut Json, origin: Origin) -> Option<ConfigObject> {
    let text = |name| value.get(name).and_then(Json::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    if !config::is_ours(api_version) {
        return None;
    }
    let (group, _) = api_version.split_once('/')?;
    let is_everywhere = config::named(group, text("kind")).is_some_and(|kind| kind.cluster);
    as_written(value, is_everywhere, origin)
}

/// Returns an object of another API as pages show it, with the reason why nothing reads it; `None`: it has no name.
pub(super) fn unread_object(mut value: Json, origin: Origin) -> Option<ConfigObject> {
    let text = |name| value.get(name).and_then(Json::as_str).unwrap_or_default();
    let why = config::unread_api(text("apiVersion"))?;
    let is_everywhere = text("kind") == "GatewayClass";
    let object = as_written(&mut value, is_everywhere, origin)?;
    Some(ConfigObject {
        is_accepted: true,
        notes: vec![why],
        ..object
    })
}

fn as_written(value: &mut Json, is_everywhere: bool, origin: Origin) -> Option<ConfigObject> {
    let text = |name| value.get(name).and_then(Json::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() {
        return None;
    }
    let (namespace, name) = named(value, is_everywhere)?;
    let (api_version, kind) = (api_version.into(), kind.into());
    let (namespace, name) = (namespace.into(), name.into());
    let mut take = |name| value.get_mut(name).map(Json::take).unwrap_or_default();
    Some(ConfigObject {
        api_version,
        kind,
        namespace,
        name,
        metadata: take("metadata"),
        spec: take("spec").into(),
        origin,
        is_accepted: false,
        findings: Vec::new(),
        notes: Vec::new(),
        revision: Revision::default(),
    })
}

/// Decodes an object of one of Kubernetes' own kinds.
fn core(
    kind: CoreKind,
    object: &mut TextObject<'_>,
    namespace: &str,
) -> Result<DecodedObject, String> {
    if object.part.size() > MAX_BYTES {
        return Err(api::size::longer_than(MAX_BYTES));
    }
    let value = object.value.take();
    match kind {
        CoreKind::Service => cluster(value, namespace).map(DecodedObject::Service),
        CoreKind::EndpointSlice => cluster(value, namespace).map(DecodedObject::Slice),
        CoreKind::Endpoints => cluster(value, namespace).map(DecodedObject::Endpoints),
        CoreKind::Pod => cluster(value, namespace).map(DecodedObject::Pod),
        CoreKind::Node => cluster(value, namespace).map(DecodedObject::Machine),
        CoreKind::Namespace => cluster(value, namespace).map(DecodedObject::Namespace),
        CoreKind::Secret => secret(value),
        CoreKind::Ingress => Ok(DecodedObject::Ingress(ingress(value, namespace))),
        CoreKind::IngressClass => Ok(DecodedObject::Nothing),
    }
}

/// Only trims the Ingress: the transformation to Gateway and VirtualService reports its faults.
fn ingress(mut value: Json, namespace: &str) -> Arc<str> {
    set_namespace(&mut value, namespace);
    trimmed(&value)
}

/// No output may show anything of a Secret, so no cause quotes it.
fn secret(value: Json) -> Result<DecodedObject, String> {
    let read: SecretData = serde_json::from_value(value)
        .map_err(|_| "its data is not base64, or its stringData no text".to_owned())?;
    let credential = read.usable()?;
    Ok(credential.map_or(DecodedObject::Nothing, DecodedObject::Credential))
}

fn cluster<T: DeserializeOwned>(mut value: Json, namespace: &str) -> Result<Arc<T>, String> {
    set_namespace(&mut value, namespace);
    serde_json::from_value(value)
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

/// Sets the namespace of an object without one.
fn set_namespace(value: &mut Json, namespace: &str) {
    let Some(Json::Object(metadata)) = value.get_mut("metadata") else {
        return;
    };
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}
