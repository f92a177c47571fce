//! Lists.

use gotmpl::{TemplateError, Value};

use super::{Function, MANY, arg, list_of, nested, session};

pub(super) const ROWS: &[Function] = &[
    Function("list", 0, MANY, |args| nested(Value::from(args.to_vec()))),
    Function("tuple", 0, MANY, |args| nested(Value::from(args.to_vec()))),
    // Exactly as long as they will be: a list that doubled would be copied once more.
    Function("append", 2, 2, |args| {
        let items = list_of(args, 0)?.iter().chain([arg(args, 1)]);
        nested(Value::from(items.cloned().collect::<Vec<_>>()))
    }),
    Function("prepend", 2, 2, |args| {
        let items = [arg(args, 1)].into_iter().chain(list_of(args, 0)?);
        nested(Value::from(items.cloned().collect::<Vec<_>>()))
    }),
    Function("first", 1, 1, |args| {
        Ok(list_of(args, 0)?.first().cloned().unwrap_or(Value::Nil))
    }),
    Function("last", 1, 1, |args| {
        Ok(list_of(args, 0)?.last().cloned().unwrap_or(Value::Nil))
    }),
    Function("rest", 1, 1, |args| {
        Ok(Value::from(
            list_of(args, 0)?
                .iter()
                .skip(1)
                .cloned()
                .collect::<Vec<_>>(),
        ))
    }),
    Function("initial", 1, 1, |args| {
        let items = list_of(args, 0)?;
        Ok(Value::from(
            items
                .iter()
                .take(items.len().saturating_sub(1))
                .cloned()
                .collect::<Vec<_>>(),
        ))
    }),
    Function("uniq", 1, 1, |args| {
        let mut seen: Vec<Value> = Vec::new();
        for item in list_of(args, 0)? {
            if !contains(&seen, item)? {
                seen.push(item.clone());
            }
        }
        Ok(Value::from(seen))
    }),
    Function("has", 2, 2, |args| {
        contains(list_of(args, 1)?, arg(args, 0)).map(Value::Bool)
    }),
    Function("without", 1, MANY, |args| {
        let unwanted = args.get(1..).unwrap_or_default();
        let mut remaining = Vec::new();
        for item in list_of(args, 0)? {
            if !contains(unwanted, item)? {
                remaining.push(item.clone());
            }
        }
        Ok(Value::from(remaining))
    }),
];

fn contains(items: &[Value], wanted: &Value) -> Result<bool, TemplateError> {
    for item in items {
        session::charge(1)?;
        super::depth(item, 0)?;
        charge_texts(item)?;
        if item == wanted {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Charges for the texts of a value, all of which a comparison may read.
fn charge_texts(value: &Value) -> Result<(), TemplateError> {
    match value {
        Value::String(text) => session::charge_bytes(text.len()),
        Value::List(items) => items.iter().try_for_each(charge_texts),
        Value::Map(entries) => entries.iter().try_for_each(|(key, value)| {
            session::charge_bytes(key.len())?;
            charge_texts(value)
        }),
        _ => Ok(()),
    }
}
