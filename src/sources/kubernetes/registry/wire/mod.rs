//! Objects in wire format, reduced to the needed fields while they are decoded. Unusable parts are left out and reported in
//! `problem`; the rest of the object is used.

mod backends;
mod pod;
mod service;
mod topology;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use api::model::Labels;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::kind::{Key, Revision};

pub use backends::{EndpointSlice, Endpoints};
pub(super) use backends::{EndpointSubset, Place};
pub use pod::Pod;
pub use service::Service;
pub use topology::{Namespace, Node};

/// A map of strings, as the API has them.
type Texts = BTreeMap<String, Option<String>>;

/// Metadata, as much of it as one kind or another needs.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawMetadata {
    name: Box<str>,
    namespace: Option<Box<str>>,
    uid: Option<Box<str>>,
    generation: Option<i64>,
    resource_version: Option<Box<str>>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    #[serde(deserialize_with = "or_default")]
    labels: Texts,
    #[serde(deserialize_with = "or_default")]
    annotations: Texts,
    #[serde(deserialize_with = "or_default")]
    owner_references: Vec<RawOwner>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawOwner {
    kind: String,
    name: String,
    controller: Option<bool>,
}

impl RawMetadata {
    pub(super) fn key(&self) -> Key {
        Key {
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone(),
        }
    }

    pub(super) fn revision(&self) -> Revision {
        Revision {
            uid: self.uid.clone().unwrap_or_default(),
            generation: self.generation.unwrap_or_default(),
        }
    }

    /// The `resourceVersion`; empty if there is none.
    pub(super) fn version(&self) -> &str {
        self.resource_version.as_deref().unwrap_or_default()
    }

    /// Seconds since 1970.
    pub(super) fn created(&self) -> Option<i64> {
        let time: Timestamp = self.creation_timestamp.as_ref()?.parse().ok()?;
        Some(time.as_second())
    }

    /// Returns the fields that the rules check.
    pub(super) fn written(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.labels,
            "annotations": self.annotations,
        })
    }

    fn label(&self, name: &str) -> Option<&str> {
        of(&self.labels, name)
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        of(&self.annotations, name)
    }
}

/// Returns a non-empty value.
fn of<'a>(texts: &'a Texts, name: &str) -> Option<&'a str> {
    texts
        .get(name)?
        .as_deref()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

/// Decodes `null` as the default: servers send it for empty lists.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn labels(texts: Texts) -> Labels {
    let mut known = LABEL_TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    texts
        .into_iter()
        .map(|(name, value)| {
            let value = known.share(value.unwrap_or_default());
            (known.share(name), value)
        })
        .collect()
}

/// Texts of labels that are in use: pods of one kind have the same ones.
static LABEL_TEXTS: Mutex<SharedTexts> = Mutex::new(SharedTexts {
    texts: BTreeSet::new(),
    most: FEW,
});
const FEW: usize = 1024;

struct SharedTexts {
    texts: BTreeSet<Arc<str>>,
    /// The number of texts at which unused ones are removed.
    most: usize,
}

impl SharedTexts {
    fn share(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.texts.get(text.as_str()) {
            return Arc::clone(known);
        }
        if self.texts.len() >= self.most {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            // Doubled, so that each walk through the set is paid for by as many new texts as it left.
            self.most = FEW.max(self.texts.len() * 2);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&text));
        text
    }
}

/// Turns an empty text into `None`.
fn non_empty(text: Option<Box<str>>) -> Option<Box<str>> {
    text.filter(|text| !text.is_empty())
}

fn shared(text: &str) -> Arc<str> {
    text.into()
}

/// The first thing that is wrong with an object.
#[derive(Default)]
struct Wrong(Option<Box<str>>);

impl Wrong {
    fn set(&mut self, message: impl FnOnce() -> String) {
        self.0.get_or_insert_with(|| message().into());
    }

    /// Parses an address; reports an invalid one, unless it is empty.
    fn address(&mut self, field: &str, text: &str) -> Option<IpAddr> {
        if text.is_empty() {
            return None;
        }
        let address = text.parse().ok();
        if address.is_none() {
            self.set(|| format!("{field}: want an address, got {text:?}"));
        }
        address
    }

    fn port(&mut self, field: &str, number: i64) -> Option<u16> {
        let port = u16::try_from(number).ok().filter(|port| *port > 0);
        if port.is_none() {
            self.set(|| format!("{field}: want a port, 1 to 65535, got {number}"));
        }
        port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shared_while_they_are_in_use() {
        let mut known = SharedTexts {
            texts: BTreeSet::new(),
            most: FEW,
        };
        let shared = known.share("app".to_owned());
        for n in 0..10 * FEW {
            known.share(n.to_string());
        }
        assert!(known.texts.len() <= FEW);
        assert!(Arc::ptr_eq(&shared, &known.share("app".to_owned())));
        let all: Vec<_> = (0..3 * FEW).map(|n| known.share(n.to_string())).collect();
        assert_eq!(known.texts.len(), all.len() + 1);
    }
}
