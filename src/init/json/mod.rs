//! JSON as it is needed here: a value, read (`parse`) and written (`write`).
//!
//! serde_json checks what is read. Its own value is not used: what belongs to it (a B-tree, floats and their printing, a
//! writer) is 15 kB of the program. Here an object is a sorted list, a number stays the text that it was, so that none loses a
//! digit on its way to Envoy, and there is one writer. The tests compare both with serde_json's on whatever it writes and on
//! whatever it refuses.
#![forbid(unsafe_code)]

mod parse;
#[cfg(test)]
#[macro_use]
mod tests;
mod write;

pub use self::parse::{ParseError, parse};
#[cfg(test)]
pub(crate) use self::tests::json;
pub(crate) use self::write::Writer;

/// Any JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Self>),
    Object(Map),
}

/// A number, as it was written: nobody here calculates with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(String);

/// The entries of an object, each key once, sorted by it: documents are the same whatever they were made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map(Vec<(String, Value)>);

impl Value {
    /// Returns the value of an object under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_object()?.get(key)
    }

    #[must_use]
    pub const fn as_object(&self) -> Option<&Map> {
        match self {
            Self::Object(map) => Some(map),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) | Self::Array(_) => None,
        }
    }

    #[must_use]
    pub const fn as_array(&self) -> Option<&Vec<Self>> {
        match self {
            Self::Array(items) => Some(items),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) | Self::Object(_) => {
                None
            }
        }
    }

    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }

    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(*flag),
            Self::Null | Self::Number(_) | Self::String(_) | Self::Array(_) | Self::Object(_) => {
                None
            }
        }
    }

    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            Self::Null | Self::Bool(_) | Self::String(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }

    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl Number {
    /// A whole one, written as such.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Map {
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0
            .binary_search_by(|(known, _)| known.as_str().cmp(key))
    }

    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        let at = self.find(key).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let at = self.find(key).ok()?;
        self.0.get_mut(at).map(|(_, value)| value)
    }

    /// In the place of what was there.
    pub fn insert(&mut self, key: &str, value: Value) {
        match self.get_mut(key) {
            Some(old) => *old = value,
            None => self.insert_new(key, value),
        }
    }

    /// Unless there is something.
    pub fn insert_new(&mut self, key: &str, value: Value) {
        if let Err(at) = self.find(key) {
            self.0.insert(at, (key.to_owned(), value));
        }
    }

    /// Adds entries; the last of equal keys counts. All at once, because one by one would take a square of the time.
    pub fn extend(&mut self, mut entries: Vec<(String, Value)>) {
        self.0.append(&mut entries);
        self.settle();
    }

    fn settle(&mut self) {
        self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.0.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
    }

    /// Those for which `keep` says so; it may change their values.
    pub fn retain(&mut self, keep: &mut dyn FnMut(&str, &mut Value) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of the keys, as the others.
    pub fn iter(&self) -> std::slice::Iter<'_, (String, Value)> {
        self.0.iter()
    }
}

impl From<Vec<(String, Value)>> for Map {
    fn from(entries: Vec<(String, Value)>) -> Self {
        let mut map = Self(entries);
        map.settle();
        // A list grows by more than it needs: of many small ones, most would be empty.
        map.0.shrink_to_fit();
        map
    }
}

impl IntoIterator for Map {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Map {
    type Item = &'a (String, Value);
    type IntoIter = std::slice::Iter<'a, (String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(Number(number.to_string()))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        i64::from(number).into()
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        i64::from(number).into()
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Object(map)
    }
}
