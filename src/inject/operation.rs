//! One operation of a JSON Patch, and how it is written.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

/// One operation; its values belong to the new pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation<'a> {
    Add(String, Content<'a>),
    Replace(String, &'a Value),
    Remove(String),
}

/// The value that an `add` adds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Content<'a> {
    Whole(&'a Value),
    /// A list with this as its first element.
    List(&'a Value),
    /// A map with this as its first entry.
    Map(&'a str, &'a Value),
}

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Whole(value) => value.serialize(to),
            Self::List(value) => [value].serialize(to),
            Self::Map(key, value) => {
                let mut map = to.serialize_map(Some(1))?;
                map.serialize_entry(key, value)?;
                map.end()
            }
        }
    }
}

impl Serialize for Operation<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (op, path, value) = match self {
            Self::Add(path, content) => ("add", path, Some(*content)),
            Self::Replace(path, value) => ("replace", path, Some(Content::Whole(value))),
            Self::Remove(path) => ("remove", path, None),
        };
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("op", op)?;
        map.serialize_entry("path", path)?;
        if let Some(value) = value {
            map.serialize_entry("value", &value)?;
        }
        map.end()
    }
}
