//! Reads the JSON that Istio's injector puts into variables, the way Go reads it: a field is known by its name in any
//! case, and null is as good as nothing.

#![forbid(unsafe_code)]

use super::ConfigError;
use crate::json::{self, Map, Value};
use crate::url;

/// The object that the variable `name` holds.
pub(super) fn object(name: &str, text: &str) -> Result<Map, ConfigError> {
    let wrong = |cause: &str| ConfigError::unreadable(name, cause);
    match json::parse(text.as_bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(wrong("it must be a JSON object")),
        Err(error) => Err(wrong(&["it must be JSON: ", &error.to_string()].concat())),
    }
}

pub(super) fn field<'v>(object: &'v Map, name: &str) -> Option<&'v Value> {
    let mut fields = object.iter();
    let (_, value) = fields.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
    (!value.is_null()).then_some(value)
}

/// A path for the first line of a request, escaped as kubelet escapes it.
pub(super) fn request_path(path: &str) -> Result<String, &'static str> {
    url::path(path).ok_or("the path must hold no control characters")
}
