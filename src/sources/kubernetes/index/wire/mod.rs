//! Objects in wire format, reduced to the needed fields while they are decoded. Unusable parts are left out and reported in
//! `problem`; the rest of the object is used.

mod backends;
mod pod;
mod service;
mod topology;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use api::kubernetes::{Items, Lenient, ObjectMeta, Texts};
use api::model::Labels;
use k8s_openapi::jiff::Timestamp;

use crate::kind::{Key, Revision};

pub(super) use backends::{BackendAddress, EndpointSubset};
pub use backends::{EndpointSlice, Endpoints};
pub use pod::Pod;
pub use service::Service;
pub use topology::{Namespace, Node};

/// Metadata in the terms of this crate.
pub(super) trait MetadataView {
    fn key(&self) -> Key;

    /// Returns a key without a namespace: of a kind that is cluster-scoped, even if a file sets one.
    fn cluster_key(&self) -> Key;

    fn revision(&self) -> Revision;

    /// Seconds since 1970.
    fn created_at(&self) -> Option<i64>;

    /// Returns the fields that the rules check.
    fn checked_fields(&self) -> serde_json::Value;
}

impl MetadataView for ObjectMeta {
    fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    fn cluster_key(&self) -> Key {
        Key::new("", &self.name)
    }

    fn revision(&self) -> Revision {
        Revision {
            uid: self.uid.as_str().into(),
            generation: self.generation,
        }
    }

    fn created_at(&self) -> Option<i64> {
        let time: Timestamp = self.creation_timestamp.parse().ok()?;
        Some(time.as_second())
    }

    fn checked_fields(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.labels,
            "annotations": self.annotations,
        })
    }
}

fn labels(texts: Texts) -> Labels {
    let mut known = LABEL_TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    texts
        .into_iter()
        .map(|(name, value)| {
            let value = known.share(value);
            (known.share(name), value)
        })
        .collect()
}

/// Texts of labels that are in use: pods of one kind have the same ones.
static LABEL_TEXTS: Mutex<SharedTexts> = Mutex::new(SharedTexts {
    texts: BTreeSet::new(),
    max: FEW,
});
const FEW: usize = 1024;

struct SharedTexts {
    texts: BTreeSet<Arc<str>>,
    /// The number of texts at which unused ones are removed.
    max: usize,
}

impl SharedTexts {
    fn share(&mut self, text: String) -> Arc<str> {
        if let Some(shared) = self.texts.get(text.as_str()) {
            return Arc::clone(shared);
        }
        if self.texts.len() >= self.max {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            // Doubled, so that each walk through the set is paid for by as many new texts as it left.
            self.max = FEW.max(self.texts.len() * 2);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&text));
        text
    }
}

/// Turns an empty text into `None`.
fn non_empty(text: String) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}

fn shared(text: &str) -> Arc<str> {
    text.into()
}

/// The first thing that is wrong with an object.
#[derive(Default)]
struct FirstError(Option<Box<str>>);

impl FirstError {
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

    /// Returns the text of an address, which may be empty; reports a value that is no text.
    fn address_text(&mut self, field: &str, text: Lenient<String>) -> Option<String> {
        match text {
            Lenient::Read(text) => Some(text),
            Lenient::Unreadable(got) => {
                self.set(|| format!("{field}: want an address, got {got}"));
                None
            }
        }
    }

    fn port(&mut self, field: &str, number: i64) -> Option<u16> {
        let port = u16::try_from(number).ok().filter(|port| *port > 0);
        if port.is_none() {
            self.no_port(field, &number);
        }
        port
    }

    /// Returns the number of a port as it is written.
    fn number(&mut self, field: &str, port: &Lenient<i64>) -> Option<u16> {
        match port {
            Lenient::Read(number) => self.port(field, *number),
            Lenient::Unreadable(got) => {
                self.no_port(field, got);
                None
            }
        }
    }

    fn no_port(&mut self, field: &str, got: &dyn fmt::Display) {
        self.set(|| format!("{field}: want a port, 1 to 65535, got {got}"));
    }

    /// Returns the items that can be read, and reports the others.
    fn items<T>(&mut self, field: &str, all: Items<T>) -> Vec<T> {
        if let Some(unreadable) = &all.unreadable {
            self.set(|| unreadable.message(field));
        }
        all.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shared_while_they_are_in_use() {
        let mut texts = SharedTexts {
            texts: BTreeSet::new(),
            max: FEW,
        };
        let shared = texts.share("app".to_owned());
        for n in 0..10 * FEW {
            texts.share(n.to_string());
        }
        assert!(texts.texts.len() <= FEW);
        assert!(Arc::ptr_eq(&shared, &texts.share("app".to_owned())));
        let all: Vec<_> = (0..3 * FEW).map(|n| texts.share(n.to_string())).collect();
        assert_eq!(texts.texts.len(), all.len() + 1);
    }
}
