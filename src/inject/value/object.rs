//! Values that are more than maps: the pod's typed parts and the mesh's messages.
//!
//! The engine has one kind of value that can hold code, so an object is a function: called with names it walks along its
//! fields, called without arguments it returns its JSON. A walk copies only its result.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::{TemplateError, Value};
use serde_json::Value as Json;

use super::session;

/// A value with fields by Go's names.
pub(crate) trait ObjectValue: Send + Sync {
    /// Walks along as many of `names` as lie within this object, one at least: the value there, and how many they were.
    fn walk(&self, names: &[Value]) -> Result<(Value, usize), TemplateError>;
    /// The output of `structToJSON`.
    fn json(&self) -> Result<Json, TemplateError>;
    /// Returns true if the object has the key.
    fn has(&self, key: &str) -> Result<bool, TemplateError> {
        Ok(self.json()?.get(key).is_some())
    }
}

thread_local! {
    /// Along how many names the last walk went: a function returns one value.
    static WALKED: Cell<usize> = const { Cell::new(0) };
    /// The result of the last call without names, for the same reason: it may be large, and is neither printed nor read
    /// again.
    static JSON: RefCell<Option<Json>> = const { RefCell::new(None) };
}

/// Asks whether there is a key. No template can name it.
const HAS: &str = " has";

/// The object as a value.
pub(crate) fn object(inner: impl ObjectValue + 'static) -> Value {
    Value::Function(Arc::new(move |args| {
        if args.is_empty() {
            let json = inner.json()?;
            JSON.with(|cell| *cell.borrow_mut() = Some(json));
            return Ok(Value::Nil);
        }
        if let [Value::String(name), Value::String(key)] = args
            && name.as_ref() == HAS
        {
            return inner.has(key).map(Value::Bool);
        }
        let (value, walked) = inner.walk(args)?;
        WALKED.set(walked);
        Ok(value)
    }))
}

/// Returns the first name of a walk.
pub(crate) fn first(names: &[Value]) -> &str {
    names.first().and_then(Value::as_str).unwrap_or_default()
}

/// Walks along names below a value; `None` if it is no object.
pub(crate) fn walk(
    value: &Value,
    names: &[Value],
) -> Option<Result<(Value, usize), TemplateError>> {
    let Value::Function(function) = value else {
        return None;
    };
    Some(function(names).map(|value| (value, WALKED.get())))
}

/// Returns true if an object has a key in its JSON; `None` if the value is no object.
pub(crate) fn has(value: &Value, key: &str) -> Option<Result<bool, TemplateError>> {
    let Value::Function(function) = value else {
        return None;
    };
    let result = function(&[Value::from(HAS), Value::from(key)]);
    Some(result.map(|result| matches!(result, Value::Bool(true))))
}

/// A copy of JSON, charged before it is made.
pub(crate) fn copied(json: &Json) -> Result<Json, TemplateError> {
    charge_tree(json)?;
    Ok(json.clone())
}

/// Charges for a tree of JSON, before it is built or converted.
fn charge_tree(json: &Json) -> Result<(), TemplateError> {
    session::charge_elements(1, session::JSON_BYTES)?;
    match json {
        Json::String(text) => charge_text(text),
        Json::Array(items) => items.iter().try_for_each(charge_tree),
        Json::Object(entries) => entries.iter().try_for_each(|(key, value)| {
            charge_text(key)?;
            charge_tree(value)
        }),
        _ => Ok(()),
    }
}

fn charge_text(text: &str) -> Result<(), TemplateError> {
    session::charge_bytes(text.len())?;
    session::charge_allocated(text.len())
}

/// Converts JSON like [`of_json`], and charges it to the budget.
pub(crate) fn charged_of_json(json: &Json) -> Result<Value, TemplateError> {
    charge_tree(json)?;
    Ok(of_json(json))
}

/// JSON as a value, objects as maps.
pub(crate) fn of_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => of_number(number),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(of_json).collect::<Vec<_>>()),
        Json::Object(entries) => Value::Map(Arc::new(
            entries
                .iter()
                .map(|(key, value)| (Arc::from(key.as_str()), of_json(value)))
                .collect(),
        )),
    }
}

pub(crate) fn of_number(number: &serde_json::Number) -> Value {
    if let Some(value) = number.as_i64() {
        return Value::Int(value);
    }
    if let Some(value) = number.as_u64() {
        return Value::Uint(value);
    }
    Value::Float(number.as_f64().unwrap_or_default())
}

/// Formats a number as Go's JSON does: an integer without a point, an exponent only if it is very large or small.
fn float(value: f64) -> Option<serde_json::Number> {
    if !value.is_finite() {
        return None;
    }
    let size = value.abs();
    let text = if size == 0.0 || (1e-6..1e21).contains(&size) {
        value.to_string()
    } else if size < 1.0 {
        format!("{value:e}")
    } else {
        format!("{value:e}").replace('e', "e+")
    };
    text.parse().ok()
}

/// A map of strings.
pub(crate) fn strings_of_json(json: Option<&Json>) -> Result<Value, TemplateError> {
    let mut entries = BTreeMap::new();
    for (key, value) in json.and_then(Json::as_object).into_iter().flatten() {
        session::charge(1)?;
        let text = match value {
            Json::String(text) => text.clone(),
            Json::Null => String::new(),
            other => other.to_string(),
        };
        session::charge_bytes(text.len())?;
        session::charge_allocated(key.len().saturating_add(text.len()))?;
        entries.insert(Arc::from(key.as_str()), Value::from(text));
    }
    session::strings(entries)
}

/// Converts a value to JSON; a value that JSON lacks is null.
pub(crate) fn to_json(value: &Value) -> Result<Json, TemplateError> {
    session::charge_elements(1, session::JSON_BYTES)?;
    Ok(match value {
        Value::Nil => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::Uint(value) => Json::from(*value),
        Value::Float(value) => float(*value).map_or(Json::Null, Json::Number),
        Value::String(text) => {
            session::charge_bytes(text.len())?;
            session::charge_allocated(text.len())?;
            Json::String(text.to_string())
        }
        Value::List(items) => Json::Array(items.iter().map(to_json).collect::<Result<_, _>>()?),
        Value::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|(key, value)| Ok((key.to_string(), to_json(value)?)))
                .collect::<Result<_, TemplateError>>()?,
        ),
        Value::Function(function) => {
            function(&[])?;
            JSON.with(RefCell::take).unwrap_or_default()
        }
    })
}
