//! The functions of the template language: Istio's own, and those of Sprig that have neither clock, chance nor network.
//!
//! Each row has a function's number of arguments; the cost of its arguments and results is charged here, once for all.

mod istio;
mod lists;
mod maps;
mod numbers;
mod text;
mod versions;
mod weigh;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use gotmpl::{FuncMap, TemplateError, Value};

use super::{Dialect, MAX_OUTPUT, calls, field, object, session};

pub(crate) use text::hex;
pub(super) use weigh::{FORMAT, HEAVY, LIGHT, PASSING, PRINTABLE, SCALAR, TEXT};

type Call = fn(&[Value]) -> Result<Value, TemplateError>;

/// Name, least and greatest number of arguments, and the implementation.
pub(super) struct Function(&'static str, usize, usize, Call);

/// An unlimited number of arguments.
const MANY: usize = usize::MAX;

static FRAGMENT: LazyLock<FuncMap> = LazyLock::new(|| build(Dialect::Fragment));
static OVERLAY: LazyLock<FuncMap> = LazyLock::new(|| build(Dialect::Overlay));

/// Names that Go's templates have themselves.
const BUILT_IN: [&str; 18] = [
    "and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "print", "printf", "println", "len",
    "slice", "call", "html", "js", "urlquery",
];

fn table(dialect: Dialect) -> &'static FuncMap {
    match dialect {
        Dialect::Fragment => &FRAGMENT,
        Dialect::Overlay => &OVERLAY,
    }
}

/// The functions for a template that calls these names.
pub(super) fn of(dialect: Dialect, used: &BTreeSet<String>) -> FuncMap {
    let needed = table(dialect)
        .iter()
        .filter(|(name, _)| name.starts_with(' ') || used.contains(*name));
    needed
        .map(|(name, function)| (name.clone(), Arc::clone(function)))
        .collect()
}

pub(super) fn is_known(name: &str, dialect: Dialect) -> bool {
    BUILT_IN.contains(&name) || (!name.starts_with(' ') && table(dialect).contains_key(name))
}

const INNER: [Function; 8] = [
    Function(calls::FIELD, 3, MANY, field::field),
    Function(calls::ENTER, 0, 0, |_| session::enter().map(|()| nothing())),
    Function(calls::LEAVE, 0, 0, |_| session::leave().map(|()| nothing())),
    Function(calls::PUT, 2, MANY, maps::put),
    Function(TEXT, 1, 1, weigh::text),
    Function(FORMAT, 1, 1, weigh::format),
    Function(PRINTABLE, 1, 1, weigh::printable),
    Function(SCALAR, 1, 1, |args| {
        Ok(args.first().cloned().unwrap_or(Value::Nil))
    }),
];

fn nothing() -> Value {
    Value::from("")
}

fn build(dialect: Dialect) -> FuncMap {
    let own: Function = match dialect {
        Dialect::Fragment => Function("toJson", 1, 1, istio::to_json_map),
        Dialect::Overlay => Function("toJson", 1, 1, maps::to_json),
    };
    let index = [Function("index", 1, MANY, field::index), own];
    let rows = [
        &INNER[..],
        &index,
        istio::ROWS,
        lists::ROWS,
        maps::ROWS,
        numbers::ROWS,
        text::ROWS,
        versions::ROWS,
    ];
    rows.into_iter()
        .flatten()
        .map(|row| (row.0.to_owned(), counted(row)))
        .collect()
}

/// The function within its bounds.
fn counted(row: &Function) -> gotmpl::ValueFunc {
    let Function(name, min, max, call) = *row;
    Arc::new(move |args: &[Value]| {
        if args.len() < min || args.len() > max {
            let expected = if args.len() < min { min } else { max };
            return Err(TemplateError::ArgCount {
                name: name.to_owned(),
                expected,
                got: args.len(),
            });
        }
        let read: usize = args.iter().filter_map(Value::as_str).map(str::len).sum();
        session::charge(1)?;
        session::charge_bytes(read)?;
        let result = call(args).map_err(|error| match error {
            TemplateError::Exec(cause)
                if !name.starts_with(' ')
                    // The text of `fail` is the template author's own sentence.
                    && name != "fail"
                    && !cause.starts_with(&format!("{name}: ")) =>
            {
                TemplateError::Exec(format!("{name}: {cause}"))
            }
            other => other,
        })?;
        if let Value::String(text) = &result {
            within(text.len())?;
            session::charge_bytes(text.len())?;
        }
        charge_new(&result)?;
        Ok(result)
    })
}

/// Charges a new value by its size. A value that existed before the call is shared, and costs nothing. A map of strings is
/// held by the session, and was charged when it was made; a list is charged by its elements.
fn charge_new(value: &Value) -> Result<(), TemplateError> {
    match value {
        Value::String(text) if Arc::strong_count(text) == 1 => {
            session::charge_allocated(text.len())
        }
        Value::Map(entries) if Arc::strong_count(entries) == 1 => {
            session::charge_allocated(entries.len().saturating_mul(session::ENTRY_BYTES))
        }
        Value::Nil
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::List(_)
        | Value::Map(_)
        | Value::Function(_) => Ok(()),
    }
}

/// An error where text would be longer than a template may print.
fn within(bytes: usize) -> Result<(), TemplateError> {
    if bytes > MAX_OUTPUT {
        return Err(TemplateError::Exec(format!(
            "makes more than {MAX_OUTPUT} bytes"
        )));
    }
    Ok(())
}

fn wrong(cause: impl Into<String>) -> TemplateError {
    TemplateError::Exec(cause.into())
}

/// The argument at a place; counts were checked.
fn arg(args: &[Value], index: usize) -> &Value {
    args.get(index).unwrap_or(&Value::Nil)
}

/// An argument that is text.
fn string(args: &[Value], index: usize) -> Result<&str, TemplateError> {
    match arg(args, index) {
        Value::String(text) => Ok(text),
        Value::Nil => Ok(""),
        other => Err(wrong(format!("wants a string, got {}", other.type_name()))),
    }
}

/// Prints a value as `%v`; nil is empty.
fn printed(value: &Value) -> Result<String, TemplateError> {
    match value {
        Value::String(text) => Ok(text.to_string()),
        Value::Nil => Ok(String::new()),
        other => weigh::displayed(other),
    }
}

fn list_of(args: &[Value], index: usize) -> Result<&[Value], TemplateError> {
    match arg(args, index) {
        Value::List(items) => {
            session::charge_elements(items.len(), session::ELEMENT_BYTES)?;
            Ok(items)
        }
        Value::Nil => Ok(&[]),
        other => Err(wrong(format!("wants a list, got {}", other.type_name()))),
    }
}

/// A list or map that a function made, not nested deeper than one may be.
fn nested(value: Value) -> Result<Value, TemplateError> {
    depth(&value, 0)?;
    Ok(value)
}

fn depth(value: &Value, above: usize) -> Result<(), TemplateError> {
    session::charge(1)?;
    if above > session::MAX_NESTING {
        return Err(wrong(format!(
            "nested deeper than {}",
            session::MAX_NESTING
        )));
    }
    match value {
        Value::List(items) => items.iter().try_for_each(|item| depth(item, above + 1)),
        Value::Map(entries) => entries.values().try_for_each(|item| depth(item, above + 1)),
        Value::Nil
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::Function(_) => Ok(()),
    }
}

/// The JSON of an object, and of any other value.
fn json(value: &Value) -> Result<serde_json::Value, TemplateError> {
    object::to_json(value)
}
