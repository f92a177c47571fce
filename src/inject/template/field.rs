//! `.a.b.c`: the value that Go finds along a chain of fields, in structs, maps and nil.

use gotmpl::{TemplateError, Value};

use super::{calls, object, session};
use crate::data;

/// The call that replaces a walk: its position, the value, the names.
pub(super) fn field(args: &[Value]) -> Result<Value, TemplateError> {
    let [Value::Int(from), value, names @ ..] = args else {
        return Err(TemplateError::Exec("a walk without a beginning".to_owned()));
    };
    session::charge(1)?;
    walk(value.clone(), *from == calls::FROM_PARENTHESIS, names)
}

fn walk(
    mut value: Value,
    behind_parenthesis: bool,
    names: &[Value],
) -> Result<Value, TemplateError> {
    let mut rest = names;
    // Go walks on along a key that a map has not, and stops at a key that holds null.
    let mut is_missing = behind_parenthesis;
    while let [first, after @ ..] = rest {
        let name = first.as_str().unwrap_or_default();
        if let Some(result) = object::walk(&value, rest) {
            let (found, walked) = result?;
            value = found;
            // One name at least, so that the walk ends.
            rest = rest.get(walked.max(1)..).unwrap_or_default();
            continue;
        }
        value = match &value {
            // `String`, `GetValue` and other methods of wrappers that are plain values here.
            Value::Nil => match data::absent(name) {
                Some(zero) => zero,
                None if is_missing => Value::Nil,
                None => {
                    return Err(TemplateError::Exec(format!(
                        "nil pointer evaluating interface {{}}.{name}"
                    )));
                }
            },
            Value::Map(entries) => match entries.get(name) {
                Some(found) => found.clone(),
                // Go gives a missing key the zero value of the map's type.
                None if session::is_strings(entries) => Value::from(""),
                None => {
                    is_missing = true;
                    Value::Nil
                }
            },
            Value::String(_) if name == "String" => value,
            Value::Int(_) | Value::Uint(_)
                if matches!(
                    name,
                    "IntValue" | "IntVal" | "Value" | "GetValue" | "String"
                ) =>
            {
                value
            }
            Value::Bool(_) if matches!(name, "Value" | "GetValue") => value,
            other => {
                return Err(TemplateError::Exec(format!(
                    "can't evaluate field {name} in type {}",
                    other.type_name()
                )));
            }
        };
        rest = after;
    }
    Ok(value)
}

/// `index`: a missing key of a map of strings is the empty string, also where that map is absent.
pub(super) fn index(args: &[Value]) -> Result<Value, TemplateError> {
    let Some((first, keys)) = args.split_first() else {
        return Err(TemplateError::Exec("index: nothing to index".to_owned()));
    };
    let mut value = first.clone();
    for key in keys {
        value = match (&value, key) {
            (Value::Map(entries), Value::String(name))
                if !entries.contains_key(name) && session::is_strings(entries) =>
            {
                Value::from("")
            }
            (Value::Function(_), _) => {
                return Err(TemplateError::Exec(
                    "can't index an object of fields".to_owned(),
                ));
            }
            _ => value.index(key)?,
        };
    }
    Ok(value)
}
