//! Objects of a list, one by one: one that is no such thing spoils none of the others.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use api::text;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::kind::{Key, Kind, Metadata};
use crate::store::Room;

/// An object that is no such thing, as far as its name is known, and why.
pub(super) type Unreadable = (Key, Box<str>);

/// The fields that every object has.
#[derive(Deserialize)]
pub(super) struct Any {
    pub(super) metadata: Metadata,
}

/// The length of the name and the error that are kept of an unreadable object.
const WORDS: usize = 256;

/// Objects, and those that are none.
pub(super) struct Items<K> {
    pub(super) objects: Vec<K>,
    pub(super) unreadable: BTreeMap<Key, Box<str>>,
    /// Objects beyond the limits.
    pub(super) left_out: usize,
    size: usize,
}

impl<K> Default for Items<K> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            unreadable: BTreeMap::new(),
            left_out: 0,
            size: 0,
        }
    }
}

impl<K: Kind> Items<K> {
    pub(super) fn len(&self) -> usize {
        self.objects.len().saturating_add(self.unreadable.len())
    }

    /// Adds an object, if it fits.
    fn add(&mut self, one: Result<K, Unreadable>, room: Room) {
        let size = match &one {
            Ok(object) => object.size(),
            Err((Key { namespace, name }, why)) => namespace.len() + name.len() + why.len(),
        };
        let size = self.size.saturating_add(size);
        if self.len() >= room.objects || size > room.bytes {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        self.size = size;
        match one {
            Ok(object) => self.objects.push(object),
            Err((key, why)) => drop(self.unreadable.insert(key, why)),
        }
    }

    /// Adds the objects of one more page, as far as they fit.
    pub(super) fn extend(&mut self, more: Self, room: Room) {
        self.left_out = self.left_out.saturating_add(more.left_out);
        for object in more.objects {
            self.add(Ok(object), room);
        }
        for unreadable in more.unreadable {
            self.add(Err(unreadable), room);
        }
    }
}

/// The object of a text.
///
/// # Errors
/// It is no such thing.
pub(super) fn object<K: Kind>(text: &str) -> Result<K, Unreadable> {
    match serde_json::from_str::<K>(text) {
        Ok(object) if !object.key().name.is_empty() => Ok(object),
        Ok(_) => Err((Key::default(), "it has no name".into())),
        Err(error) => {
            let any = serde_json::from_str::<Any>(text);
            let key = any.map_or_else(|_| Key::default(), |any| any.metadata.key());
            let Key { namespace, name } = key;
            let key = Key::new(clipped(&namespace), clipped(&name));
            Err((key, clipped(&misread(&error)).into()))
        }
    }
}

fn clipped(text: &str) -> &str {
    text::cut(text, WORDS)
}

/// Describes a decoding error without the value, which may be a secret.
fn misread(error: &serde_json::Error) -> String {
    let words = error.to_string();
    match words.split_once(", expected ") {
        Some((_, expected)) => format!("a value is not {expected}"),
        None => words,
    }
}

impl<'de, K: Kind> Deserialize<'de> for Items<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct All<K>(PhantomData<fn() -> K>);
        impl<'de, K: Kind> Visitor<'de> for All<K> {
            type Value = Items<K>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a list")
            }

            // An empty list may be written as `null`.
            fn visit_unit<E>(self) -> Result<Items<K>, E> {
                Ok(Items::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items<K>, A::Error> {
                let mut items = Items::default();
                while let Some(text) = list.next_element::<Box<RawValue>>()? {
                    items.add(object::<K>(text.get()), Room::ALL);
                }
                Ok(items)
            }
        }
        from.deserialize_any(All(PhantomData))
    }
}
