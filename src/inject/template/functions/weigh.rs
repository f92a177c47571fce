//! Charges the arguments of Go's own functions, which the engine implements without limits.

use std::fmt::{self, Write};

use gotmpl::{TemplateError, Value};

use super::{MAX_OUTPUT, session, within, wrong};

/// Calls that wrap an argument: a printed one, a format, a compared one.
pub(in crate::template) const TEXT: &str = " text";
pub(in crate::template) const FORMAT: &str = " format";
pub(in crate::template) const SCALAR: &str = " scalar";
/// The call at the end of an action that may print an object.
pub(in crate::template) const PRINTABLE: &str = " printable";

/// Functions that return one of their arguments, or a part of it.
pub(in crate::template) const PASSING: [&str; 28] = [
    "and",
    "append",
    "coalesce",
    "deepCopy",
    "default",
    "dict",
    "first",
    "get",
    "index",
    "initial",
    "last",
    "list",
    "merge",
    "mergeMaps",
    "mergeOverwrite",
    "omit",
    "or",
    "pick",
    "prepend",
    "rest",
    "set",
    "strdict",
    "ternary",
    "tuple",
    "uniq",
    "valueOrDefault",
    "values",
    "without",
];

/// Verbs that the engine prints as Go does.
const VERBS: &str = "%sdfFeEgGvUqtxXobc";

/// Functions that print their arguments.
pub(in crate::template) const HEAVY: [&str; 6] =
    ["print", "printf", "println", "html", "js", "urlquery"];
/// Functions that read a text.
pub(in crate::template) const LIGHT: [&str; 7] = ["eq", "ne", "lt", "le", "gt", "ge", "slice"];

/// Characters to which the engine pads a verb at most.
const MAX_WIDTH: usize = 65_535;

/// Counts bytes, up to the bound.
struct Counter(usize);

impl Write for Counter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        if self.0 > MAX_OUTPUT {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

fn weigh(value: &Value) -> Result<usize, TemplateError> {
    check_printable(value)?;
    let mut counter = Counter(0);
    if write!(counter, "{value}").is_err() {
        return Err(wrong(format!("prints more than {MAX_OUTPUT} bytes")));
    }
    session::charge_bytes(counter.0)?;
    // The value is printed into a text of its own, which counts as well.
    session::charge_allocated(counter.0)?;
    Ok(counter.0)
}

/// Go prints a struct by its fields, which is no use in YAML; here an object has no text.
fn check_printable(value: &Value) -> Result<(), TemplateError> {
    match value {
        Value::Function(_) => Err(wrong(
            "cannot print an object of fields: want one of its fields, or toYaml or structToJSON",
        )),
        Value::List(items) => items.iter().try_for_each(check_printable),
        Value::Map(entries) => entries.values().try_for_each(check_printable),
        Value::Nil
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Float(_)
        | Value::String(_) => Ok(()),
    }
}

/// The value of an action, which the engine prints.
pub(super) fn printable(args: &[Value]) -> Result<Value, TemplateError> {
    let value = args.first().cloned().unwrap_or(Value::Nil);
    check_printable(&value)?;
    Ok(value)
}

/// A value as text, once it is known to be short enough.
pub(super) fn displayed(value: &Value) -> Result<String, TemplateError> {
    weigh(value)?;
    Ok(value.to_string())
}

pub(super) fn text(args: &[Value]) -> Result<Value, TemplateError> {
    let value = args.first().cloned().unwrap_or(Value::Nil);
    weigh(&value)?;
    Ok(value)
}

/// A format: its widths count as if they were printed.
pub(super) fn format(args: &[Value]) -> Result<Value, TemplateError> {
    let value = args.first().cloned().unwrap_or(Value::Nil);
    if let Value::String(format) = &value {
        let mut wide: usize = 0;
        let mut parts = format.split('%').skip(1);
        while let Some(verb) = parts.next() {
            // `%%`, and the text behind it.
            if verb.is_empty() {
                parts.next();
                continue;
            }
            let options = verb.trim_start_matches(['+', '-', '#', ' ', '0']);
            let end = options
                .find(|letter: char| {
                    !letter.is_ascii_digit() && !matches!(letter, '.' | '*' | '[' | ']')
                })
                .unwrap_or(options.len());
            let verb = options.get(end..).and_then(|rest| rest.chars().next());
            if let Some(verb) = verb.filter(|verb| !VERBS.contains(*verb)) {
                return Err(wrong(format!("printf: the verb %{verb} is not supported")));
            }
            for number in options.get(..end).unwrap_or_default().split('.') {
                // The width comes with an argument, so that it counts as the widest.
                let width = if number.contains('*') {
                    MAX_WIDTH
                } else {
                    number
                        .parse()
                        .unwrap_or(if number.is_empty() { 0 } else { MAX_WIDTH })
                };
                wide = wide.saturating_add(width.min(MAX_WIDTH));
            }
        }
        within(wide)?;
        session::charge_bytes(wide)?;
        session::charge_allocated(wide)?;
    }
    Ok(value)
}
