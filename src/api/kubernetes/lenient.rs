//! Parts of an object that may be unreadable without making the object unreadable.

use serde::de::DeserializeOwned;
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
    /// Their indexes in the list; none, if the field is no list.
    pub at: Vec<usize>,
    /// The cause that the first one cannot be read.
    pub cause: Box<str>,
}

impl UnreadableItems {
    /// Returns the place of the first one in a list of this name, and the cause.
    #[must_use]
    pub fn message(&self, list: &str) -> String {
        match self.at.first() {
            Some(at) => format!("{list}[{at}]: {}", self.cause),
            None => format!("{list}: {}", self.cause),
        }
    }
}

impl<T> Items<T> {
    /// Iterates over all items of the list; `None`: it cannot be read.
    pub fn each(self) -> impl Iterator<Item = Option<T>> {
        let unreadable = self.unreadable.map(|unreadable| unreadable.at);
        let mut unreadable = unreadable.into_iter().flatten().peekable();
        let mut items = self.items.into_iter();
        (0..).map_while(move |at| match unreadable.next_if_eq(&at) {
            Some(_) => Some(None),
            None => items.next().map(Some),
        })
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
    let texts: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    let (mut items, mut at) = (Vec::new(), Vec::new());
    let mut first = None;
    for (index, text) in texts.into_iter().enumerate() {
        match serde_json::from_str(text.get()) {
            Ok(item) => items.push(item),
            Err(error) => {
                first.get_or_insert_with(|| cause(&error));
                at.push(index);
            }
        }
    }
    let cause = first.unwrap_or_else(|| cause(whole));
    Items {
        items,
        unreadable: Some(UnreadableItems { at, cause }),
    }
}

/// Returns the error without its place, which is one within the part.
fn cause(error: &serde_json::Error) -> Box<str> {
    let text = error.to_string();
    let (cause, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    shortened(cause, CAUSE)
}

fn shortened(text: &str, most: usize) -> Box<str> {
    let (head, more) = text::excerpt(text, most);
    format!("{head}{more}").into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// From a text, and from a tree, as readers of files have it.
    fn read<T: DeserializeOwned + PartialEq + std::fmt::Debug>(json: &Value) -> T {
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
        let each: Vec<_> = texts.clone().each().collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(each, [some("a"), None, some("b"), None, None]);
        let unreadable = texts.unreadable.unwrap();
        assert_eq!(
            unreadable.message("spec.externalIPs"),
            "spec.externalIPs[1]: invalid type: integer `7`, expected a string"
        );
        for good in [json!(null), json!([])] {
            let good: Items<String> = read(&good);
            assert!(good.unreadable.is_none() && good.each().next().is_none());
        }
        let none: Items<String> = read(&json!("a"));
        assert_eq!(none.clone().each().next(), None);
        assert_eq!(
            none.unreadable.unwrap().message("list"),
            "list: invalid type: string \"a\", expected a sequence"
        );
        let long: Items<i64> = read(&json!(["x".repeat(10_000)]));
        assert!(long.unreadable.unwrap().cause.len() < 300);
    }
}
