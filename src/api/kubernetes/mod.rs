//! Objects of Kubernetes' own kinds as they are written, reduced to the fields that a reader needs. The reader of services for
//! proxies, in `sources`, and the transforms to other objects decode these types; each keeps its results in types of its own.
//!
//! Decoding skips other fields and takes `null` for the default. A number, an address or an item of a list that is none is
//! [`Lenient`] or an [`Items::unreadable`]: whether it costs the object or itself is for the reader to judge.

mod endpoints;
mod ingress;
mod lenient;
mod pod;
mod service;

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use crate::google::protobuf::Timestamp;
use crate::timestamp;

pub use endpoints::{
    EndpointConditions, EndpointPort, EndpointSlice, Endpoints, SliceEndpoint, Subset,
    SubsetAddress, TargetRef,
};
pub use ingress::{
    Backend, BackendPort, BackendService, Ingress, IngressHttp, IngressPath, IngressRule,
    IngressSpec, IngressTls,
};
pub use lenient::{Items, Lenient, UnreadableItems};
pub use pod::{Container, ContainerPort, Pod, PodCondition, PodIp, PodSpec, PodStatus};
pub use service::{
    LoadBalancerIngress, LoadBalancerStatus, ServiceObject, ServicePort, ServiceSpec, ServiceStatus,
};

/// Labels or annotations.
pub type Texts = BTreeMap<String, String>;

/// Decodes `null` as the default: servers send it for empty lists.
///
/// # Errors
///
/// The value is neither `null` nor a `T`.
pub fn nullable<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Decodes a field that names a version of an object and affects no result: an invalid value is no reason to refuse the object.
fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ReadOrOther<T> {
        Read(T),
        Other(IgnoredAny),
    }
    Ok(match ReadOrOther::deserialize(from)? {
        ReadOrOther::Read(read) => read,
        ReadOrOther::Other(IgnoredAny) => T::default(),
    })
}

/// Decodes texts by name, each of which may be `null`.
fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Texts, D::Error> {
    let entries: BTreeMap<String, Option<String>> = nullable(from)?;
    let texts = entries.into_iter();
    Ok(texts
        .map(|(name, text)| (name, text.unwrap_or_default()))
        .collect())
}

/// The metadata of an object, as much of it as one kind or another needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    #[serde(deserialize_with = "or_default")]
    pub generation: i64,
    #[serde(deserialize_with = "nullable")]
    pub resource_version: String,
    #[serde(deserialize_with = "nullable")]
    pub creation_timestamp: String,
    pub deletion_timestamp: Option<String>,
    #[serde(deserialize_with = "texts")]
    pub labels: Texts,
    #[serde(deserialize_with = "texts")]
    pub annotations: Texts,
    #[serde(deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OwnerReference {
    pub kind: String,
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub controller: bool,
}

impl ObjectMeta {
    /// Returns the creation time; `None` also for a text that is no time.
    #[must_use]
    pub fn created(&self) -> Option<Timestamp> {
        timestamp::parse(&self.creation_timestamp)
    }

    /// Returns a label that is not empty.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        non_empty(&self.labels, name)
    }

    /// Returns an annotation that is not empty.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        non_empty(&self.annotations, name)
    }
}

fn non_empty<'a>(texts: &'a Texts, name: &str) -> Option<&'a str> {
    let text = texts.get(name)?.trim();
    (!text.is_empty()).then_some(text)
}

/// An object of which only the metadata matters: a Node or a Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PartialObjectMetadata {
    pub metadata: ObjectMeta,
}

/// A port by its number or by its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum PortOrName<N> {
    Port(N),
    Name(String),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_version_that_is_none_costs_no_object() {
        for (metadata, expected) in [
            (json!({"uid": "u", "generation": 7}), ("u", 7)),
            (json!({"uid": null, "generation": null}), ("", 0)),
            (json!({"uid": [{}], "generation": "x"}), ("", 0)),
        ] {
            let read: ObjectMeta = serde_json::from_str(&metadata.to_string()).unwrap();
            assert_eq!((&*read.uid, read.generation), expected);
            assert_eq!(read, serde_json::from_value(metadata).unwrap());
        }
        assert!(serde_json::from_value::<ObjectMeta>(json!({"name": 7})).is_err());
    }
}
