//! Parts of an object that may be unreadable without making the object unreadable.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::text;

/// Characters that are kept of a field that cannot be read, and of an error.
const EXCERPT: usize = 64;
const CAUSE: usize = 200;

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lenient<T> {
    Read(T),
    /// The JSON that stands in its place, shortened.
    Unreadable(Box<str>),
}

impl<T> Lenient<T> {
    /// Returns the field if it can be read.
    pub const fn read(&self) -> Option<&T> {
        match self {
            Self::Read(value) => Some(value),
            Self::Unreadable(_) => None,
        }
    }
}

impl<T: Default> Default for Lenient<T> {
    fn default() -> Self {
        Self::Read(T::default())
    }
}

impl<'de, T: DeserializeOwned + Default> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        let read = serde_json::from_str::<Option<T>>(raw.get());
        Ok(match read {
            Ok(value) => Self::Read(value.unwrap_or_default()),
            Err(_) => Self::Unreadable(shortened(raw.get(), EXCERPT)),
        })
    }
}

/// The items of a list that can be read, and a word about the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items<T> {
    pub items: Vec<T>,
    pub unreadable: Option<UnreadableItems>,
}

/// Items of a list that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableItems {
    /// The index of the first one; `None`: the field is no list.
    pub first: Option<usize>,
    /// The cause that the first one cannot be read.
    pub cause: Box<str>,
    pub count: usize,
}

impl UnreadableItems {
    /// Returns the place of the first one in a list of this name, and the cause.
    #[must_use]
    pub fn message(&self, list: &str) -> String {
        match self.first {
            Some(at) => format!("{list}[{at}]: {}", self.cause),
            None => format!("{list}: {}", self.cause),
        }
    }
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T> From<Vec<T>> for Items<T> {
    fn from(items: Vec<T>) -> Self {
        Self {
            items,
            unreadable: None,
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        // Nearly every list can be read as a whole, in one pass.
        let whole = serde_json::from_str::<Option<Vec<T>>>(raw.get());
        Ok(match whole {
            Ok(items) => items.unwrap_or_default().into(),
            Err(error) => one_by_one(raw.get(), &error),
        })
    }
}

/// Reads the items of a list, of which `whole` says that not all can be read.
fn one_by_one<T: DeserializeOwned>(list: &str, whole: &serde_json::Error) -> Items<T> {
    serde_json::from_str::<OneByOne<T>>(list).map_or_else(
        |_| Items {
            items: Vec::new(),
            unreadable: Some(UnreadableItems {
                first: None,
                cause: cause(whole),
                count: 1,
            }),
        },
        |OneByOne(read)| read,
    )
}

/// A list of which each item is read by itself, and forgotten where it cannot be: a hostile list of millions takes no memory.
struct OneByOne<T>(Items<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for OneByOne<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each<T>(PhantomData<T>);

        impl<'de, T: DeserializeOwned> Visitor<'de> for Each<T> {
            type Value = Items<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items<T>, A::Error> {
                let mut read = Items::default();
                let mut at = 0_usize;
                while let Some(text) = list.next_element::<&RawValue>()? {
                    match (serde_json::from_str(text.get()), &mut read.unreadable) {
                        (Ok(item), _) => read.items.push(item),
                        (Err(_), Some(unreadable)) => {
                            unreadable.count = unreadable.count.saturating_add(1);
                        }
                        (Err(error), unreadable) => {
                            *unreadable = Some(UnreadableItems {
                                first: Some(at),
                                cause: cause(&error),
                                count: 1,
                            });
                        }
                    }
                    at = at.saturating_add(1);
                }
                Ok(read)
            }
        }

        from.deserialize_seq(Each(PhantomData)).map(Self)
    }
}

/// Returns the error without its place, which is one within the part.
fn cause(error: &serde_json::Error) -> Box<str> {
    let text = error.to_string();
    let (cause, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    // serde quotes the value before these words: what stands in the place of a list may be anything.
    match cause.split_once(", expected ") {
        Some((_, expected)) => shortened(&format!("a value is not {expected}"), CAUSE),
        None => shortened(cause, CAUSE),
    }
}

fn shortened(text: &str, max: usize) -> Box<str> {
    let (head, more) = text::excerpt(text, max);
    format!("{head}{more}").into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// From a text, and from a tree, as readers of files have it.
    fn read<T: DeserializeOwned + PartialEq + fmt::Debug>(json: &Value) -> T {
        let read: T = serde_json::from_str(&json.to_string()).unwrap();
        assert_eq!(read, serde_json::from_value(json.clone()).unwrap());
        read
    }

    #[test]
    fn a_field_that_is_none_keeps_its_text() {
        assert_eq!(read::<Lenient<i64>>(&json!(80)), Lenient::Read(80));
        assert_eq!(read::<Lenient<i64>>(&json!(null)), Lenient::Read(0));
        let none: Lenient<Option<i64>> = read(&json!(null));
        assert_eq!(none, Lenient::Read(None));
        for (json, text) in [
            (json!("http"), "\"http\"".to_owned()),
            (json!(80.5), "80.5".to_owned()),
            (json!([80]), "[80]".to_owned()),
            (json!({"a": 1}), "{\"a\":1}".to_owned()),
            (json!("x".repeat(1000)), format!("\"{}…", "x".repeat(63))),
        ] {
            let field: Lenient<i64> = read(&json);
            assert_eq!(field, Lenient::Unreadable(text.into()));
            assert_eq!(field.read(), None);
        }
    }

    #[test]
    fn an_item_that_is_none_costs_itself() {
        let texts: Items<String> = read(&json!(["a", 7, "b", null, {}]));
        assert_eq!(texts.items, ["a", "b"]);
        let unreadable = texts.unreadable.unwrap();
        assert_eq!((unreadable.first, unreadable.count), (Some(1), 3));
        assert_eq!(
            unreadable.message("spec.externalIPs"),
            "spec.externalIPs[1]: a value is not a string"
        );
        for good in [json!(null), json!([])] {
            assert_eq!(read::<Items<String>>(&good), Items::default());
        }
        let none: Items<String> = read(&json!("a"));
        assert_eq!(
            none.unreadable.unwrap().message("list"),
            "list: a value is not a sequence"
        );
        let long: Items<i64> = read(&json!(["x".repeat(10_000)]));
        assert!(long.unreadable.unwrap().cause.len() < 300);
    }
}
