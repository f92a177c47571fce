//! Group, version and kind, or resource, of a review.

use serde_json::Value;

/// A GroupVersionKind or GroupVersionResource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) name: String,
}

impl Group {
    pub(super) fn is(&self, name: &str) -> bool {
        *self == Self::default()
            || (self.group.is_empty() && self.version == "v1" && self.name == name)
    }
}

/// `last`: what the third of its fields is called.
pub(super) fn group<E: serde::de::Error>(value: &Value, last: &'static str) -> Result<Group, E> {
    let text = |key: &str| match value.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(E::custom(format_args!(
            "request.{last}.{key}: want a string"
        ))),
    };
    match value {
        Value::Null | Value::Object(_) => Ok(Group {
            group: text("group")?,
            version: text("version")?,
            name: text(last)?,
        }),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(E::custom(format_args!("request.{last}: want an object")))
        }
    }
}
