//! Maps, JSON, and tests of a value's type.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gotmpl::{TemplateError, Value};

use super::{Function, MANY, arg, json, nested, object, printed, session, string, wrong};
use crate::value::session::strings;
use crate::yaml;

type Entries = BTreeMap<Arc<str>, Value>;

pub(super) const ROWS: &[Function] = &[
    Function("dict", 0, MANY, |args| nested(Value::from(pairs(args)?))),
    Function("strdict", 0, MANY, |args| {
        let texts = pairs(args)?.into_iter().map(|(key, value)| {
            let text = printed(&value)?;
            session::charge_allocated(text.len())?;
            Ok((key, Value::from(text)))
        });
        strings(texts.collect::<Result<_, TemplateError>>()?)
    }),
    Function("get", 2, 2, |args| {
        let key = string(args, 1)?;
        let found = match arg(args, 0) {
            Value::Map(map) => map.get(key).cloned(),
            other => entries(other)?.remove(key),
        };
        Ok(found.unwrap_or_else(|| Value::from("")))
    }),
    Function("set", 3, 3, |args| {
        let mut made = entries(arg(args, 0))?;
        made.insert(Arc::from(string(args, 1)?), arg(args, 2).clone());
        nested(Value::from(made))
    }),
    Function("hasKey", 2, 2, has_key),
    Function("isset", 2, 2, has_key),
    Function("keys", 1, MANY, |args| {
        let mut keys = Vec::new();
        for map in args {
            keys.extend(entries(map)?.into_keys().map(Value::String));
        }
        Ok(Value::from(keys))
    }),
    Function("values", 1, 1, |args| {
        Ok(Value::from(
            entries(arg(args, 0))?.into_values().collect::<Vec<_>>(),
        ))
    }),
    Function("pick", 1, MANY, |args| {
        let wanted = keys(args)?;
        let mut made = entries(arg(args, 0))?;
        made.retain(|key, _| wanted.contains(key.as_ref()));
        Ok(Value::from(made))
    }),
    Function("omit", 1, MANY, |args| {
        let unwanted = keys(args)?;
        let mut made = entries(arg(args, 0))?;
        made.retain(|key, _| !unwanted.contains(key.as_ref()));
        // Istio's takes and gives maps of strings.
        let all_text = made.values().all(|value| matches!(value, Value::String(_)));
        if all_text {
            strings(made)
        } else {
            Ok(Value::from(made))
        }
    }),
    Function("merge", 1, MANY, |args| merged(args, Conflict::KeepsFirst)),
    Function("mergeOverwrite", 1, MANY, |args| {
        merged(args, Conflict::TakesLast)
    }),
    Function("mergeMaps", 0, MANY, |args| {
        let mut made = Entries::new();
        for map in args {
            made.extend(entries(map)?);
        }
        strings(made)
    }),
    // Values never change, so that a copy is the value.
    Function("deepCopy", 1, 1, |args| Ok(arg(args, 0).clone())),
    Function("default", 1, 2, |args| {
        Ok(if arg(args, 1).is_truthy() {
            arg(args, 1).clone()
        } else {
            arg(args, 0).clone()
        })
    }),
    Function("coalesce", 0, MANY, |args| {
        Ok(args
            .iter()
            .find(|value| value.is_truthy())
            .cloned()
            .unwrap_or(Value::Nil))
    }),
    Function("empty", 1, 1, |args| {
        Ok(Value::Bool(!arg(args, 0).is_truthy()))
    }),
    Function("ternary", 3, 3, |args| {
        Ok(if arg(args, 2).is_truthy() {
            arg(args, 0).clone()
        } else {
            arg(args, 1).clone()
        })
    }),
    Function("fail", 1, 1, |args| Err(wrong(string(args, 0)?))),
    Function("kindIs", 2, 2, |args| {
        Ok(Value::Bool(string(args, 0)? == kind(arg(args, 1))))
    }),
    Function("typeOf", 1, 1, |args| {
        Ok(Value::from(type_of(arg(args, 0))))
    }),
    Function("toPrettyJson", 1, 1, |args| {
        Ok(Value::from(yaml::pretty_json(&json(arg(args, 0))?)))
    }),
    Function("fromJson", 1, 1, |args| {
        Ok(parsed(string(args, 0)?)?.unwrap_or(Value::Nil))
    }),
    Function("omitNil", 1, 1, |args| without_nil(arg(args, 0))),
];

/// A map with one value below it replaced: the map, the names on the way, the value. Maps on the way are made where there are
/// none.
pub(super) fn put(args: &[Value]) -> Result<Value, TemplateError> {
    let [map, names @ .., value] = args else {
        return Err(wrong("wants a map and a value"));
    };
    let Some((first, rest)) = names.split_first() else {
        return Ok(value.clone());
    };
    let mut entries = entries(map)?;
    let key: Arc<str> = Arc::from(first.as_str().unwrap_or_default());
    let mut below = vec![entries.get(&key).cloned().unwrap_or(Value::Nil)];
    below.extend(rest.iter().cloned());
    below.push(value.clone());
    entries.insert(key, put(&below)?);
    nested(Value::from(entries))
}

pub(super) fn to_json(args: &[Value]) -> Result<Value, TemplateError> {
    Ok(Value::from(yaml::json(&json(arg(args, 0))?)))
}

/// Text that is JSON as a tree; serde_json bounds its depth. Every value of it begins behind one of these, or is the first.
pub(super) fn tree(text: &str) -> Result<Option<serde_json::Value>, TemplateError> {
    let values = text
        .bytes()
        .filter(|byte| matches!(byte, b',' | b'[' | b'{'));
    session::charge_elements(values.count().saturating_add(1), session::JSON_BYTES)?;
    session::charge_allocated(text.len())?;
    Ok(serde_json::from_str(text).ok())
}

/// JSON as a value.
pub(super) fn parsed(text: &str) -> Result<Option<Value>, TemplateError> {
    tree(text)?
        .map(|json| object::charged_of_json(&json))
        .transpose()
}

/// Returns true if a map, or an object in JSON, has a key; copies nothing.
fn has_key(args: &[Value]) -> Result<Value, TemplateError> {
    let (map, key) = (arg(args, 0), string(args, 1)?);
    let is_there = match map {
        Value::Map(map) => map.contains_key(key),
        Value::Nil => false,
        other => match object::has(other, key) {
            Some(is_there) => is_there?,
            None => return Err(wrong(format!("wants a map, got {}", other.type_name()))),
        },
    };
    Ok(Value::Bool(is_there))
}

/// The entries of a map; an object's are those of its JSON, nil has none.
pub(super) fn entries(value: &Value) -> Result<Entries, TemplateError> {
    match value {
        Value::Map(map) => {
            session::charge_elements(map.len(), session::ENTRY_BYTES)?;
            Ok(map.as_ref().clone())
        }
        Value::Nil => Ok(Entries::new()),
        Value::Function(_) => match object::charged_of_json(&json(value)?)? {
            Value::Map(map) => Ok(map.as_ref().clone()),
            _ => Ok(Entries::new()),
        },
        other => Err(wrong(format!("wants a map, got {}", other.type_name()))),
    }
}

fn keys(args: &[Value]) -> Result<BTreeSet<&str>, TemplateError> {
    (1..args.len()).map(|index| string(args, index)).collect()
}

/// A last key without a value has the empty one.
fn pairs(args: &[Value]) -> Result<Entries, TemplateError> {
    session::charge_elements(args.len(), session::ENTRY_BYTES)?;
    let mut pairs = Entries::new();
    for pair in args.chunks(2) {
        if let Some((key, rest)) = pair.split_first() {
            let key = printed(key)?;
            session::charge_allocated(key.len())?;
            pairs.insert(
                Arc::from(key),
                rest.first().cloned().unwrap_or_else(|| Value::from("")),
            );
        }
    }
    Ok(pairs)
}

/// The value of a key that several maps have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conflict {
    KeepsFirst,
    TakesLast,
}

/// The first map with the entries of the others.
fn merged(args: &[Value], conflict: Conflict) -> Result<Value, TemplateError> {
    let mut merged = entries(arg(args, 0))?;
    for map in args.get(1..).unwrap_or_default() {
        merge_into(&mut merged, &entries(map)?, conflict, 0)?;
    }
    nested(Value::from(merged))
}

fn merge_into(
    entries: &mut Entries,
    other: &Entries,
    conflict: Conflict,
    depth: usize,
) -> Result<(), TemplateError> {
    if depth > session::MAX_NESTING {
        return Err(wrong(format!(
            "nested deeper than {}",
            session::MAX_NESTING
        )));
    }
    for (key, value) in other {
        session::charge(1)?;
        match (entries.get_mut(key), value) {
            (Some(Value::Map(below)), Value::Map(other)) => {
                session::charge_elements(below.len(), session::ENTRY_BYTES)?;
                let mut inner = below.as_ref().clone();
                merge_into(&mut inner, other, conflict, depth + 1)?;
                *below = Arc::new(inner);
            }
            // As in Sprig, an empty value gives way, and does not overwrite.
            (Some(known), value) => {
                if (conflict == Conflict::TakesLast && value.is_truthy()) || !known.is_truthy() {
                    *known = value.clone();
                }
            }
            (None, value) => drop(entries.insert(Arc::clone(key), value.clone())),
        }
    }
    Ok(())
}

fn without_nil(value: &Value) -> Result<Value, TemplateError> {
    session::charge_elements(1, session::ENTRY_BYTES)?;
    Ok(match value {
        Value::List(items) => Value::from(
            items
                .iter()
                .filter(|item| !matches!(item, Value::Nil))
                .map(without_nil)
                .collect::<Result<Vec<_>, _>>()?,
        ),
        Value::Map(map) => {
            let entries = map.iter().filter(|(_, value)| !matches!(value, Value::Nil));
            Value::from(
                entries
                    .map(|(key, value)| Ok((Arc::clone(key), without_nil(value)?)))
                    .collect::<Result<Entries, TemplateError>>()?,
            )
        }
        Value::Function(_) => without_nil(&object::charged_of_json(&json(value)?)?)?,
        other => other.clone(),
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Uint(_) => "uint64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::List(_) => "slice",
        Value::Map(_) => "map",
        Value::Function(_) => "struct",
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "<nil>",
        Value::List(_) => "[]interface {}",
        Value::Map(map) if session::is_strings(map) => "map[string]string",
        Value::Map(_) => "map[string]interface {}",
        other => kind(other),
    }
}
