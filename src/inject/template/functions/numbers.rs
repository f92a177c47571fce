//! Numbers.

use gotmpl::{TemplateError, Value};

use super::{Function, MANY, arg, session, wrong};
use crate::yaml;

pub(super) const ROWS: &[Function] = &[
    Function("int", 1, 1, |args| Ok(Value::Int(integer(arg(args, 0))))),
    Function("int64", 1, 1, |args| Ok(Value::Int(integer(arg(args, 0))))),
    Function("atoi", 1, 1, |args| Ok(Value::Int(decimal(arg(args, 0))))),
    Function("float64", 1, 1, |args| {
        Ok(Value::Float(float(arg(args, 0))))
    }),
    Function("add", 1, MANY, |args| fold(args, 0, i64::wrapping_add)),
    Function("mul", 1, MANY, |args| fold(args, 1, i64::wrapping_mul)),
    Function("sub", 2, 2, |args| {
        Ok(Value::Int(
            integer(arg(args, 0)).wrapping_sub(integer(arg(args, 1))),
        ))
    }),
    Function("div", 2, 2, |args| quotient(args, i64::checked_div)),
    Function("mod", 2, 2, |args| quotient(args, i64::checked_rem)),
    Function("max", 1, MANY, |args| {
        Ok(Value::Int(
            args.iter().map(integer).max().unwrap_or_default(),
        ))
    }),
    Function("min", 1, MANY, |args| {
        Ok(Value::Int(
            args.iter().map(integer).min().unwrap_or_default(),
        ))
    }),
    Function("until", 1, 1, |args| {
        let end = integer(arg(args, 0));
        steps(0, end, if end < 0 { -1 } else { 1 })
    }),
    Function("untilStep", 3, 3, |args| {
        steps(
            integer(arg(args, 0)),
            integer(arg(args, 1)),
            integer(arg(args, 2)),
        )
    }),
    Function("ceil", 1, 1, |args| {
        Ok(Value::Float(float(arg(args, 0)).ceil()))
    }),
    Function("floor", 1, 1, |args| {
        Ok(Value::Float(float(arg(args, 0)).floor()))
    }),
    Function("round", 2, 3, |args| {
        // Within these the power of ten is finite.
        let places = i32::try_from(integer(arg(args, 1)).clamp(-300, 300)).unwrap_or_default();
        let scale = 10_f64.powi(places);
        let round_on = args.get(2).map_or(0.5, float);
        let digits = float(arg(args, 0)) * scale;
        // As in Sprig, where the fraction of a negative number is negative, so that the number is rounded down.
        let rounded = match digits.fract() >= round_on {
            true => digits.ceil(),
            false => digits.floor(),
        };
        Ok(Value::Float(rounded / scale))
    }),
];

fn decimal(value: &Value) -> i64 {
    match value {
        Value::String(text) => text.trim().parse().unwrap_or_default(),
        other => integer(other),
    }
}

/// Casts to an integer as Sprig does: text that is no number is 0.
pub(super) fn integer(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        Value::Uint(number) => i64::try_from(*number).unwrap_or(i64::MAX),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a cast is what was asked for; Rust's saturates"
        )]
        Value::Float(number) => *number as i64,
        Value::Bool(value) => i64::from(*value),
        // With the prefix of another base, as Go's literals.
        Value::String(text) => yaml::integer(text.trim())
            .and_then(|number| number.as_i64())
            .unwrap_or_default(),
        Value::Nil | Value::List(_) | Value::Map(_) | Value::Function(_) => 0,
    }
}

pub(super) fn float(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.trim().parse().unwrap_or_default(),
        Value::Bool(value) => f64::from(u8::from(*value)),
        other => other.as_float().unwrap_or_default(),
    }
}

/// A count or a place.
pub(super) fn index(value: &Value) -> Result<usize, TemplateError> {
    let number = integer(value);
    usize::try_from(number).map_err(|_| wrong(format!("wants a count, got {number}")))
}

fn fold(args: &[Value], start: i64, by: fn(i64, i64) -> i64) -> Result<Value, TemplateError> {
    Ok(Value::Int(args.iter().map(integer).fold(start, by)))
}

fn quotient(args: &[Value], by: fn(i64, i64) -> Option<i64>) -> Result<Value, TemplateError> {
    by(integer(arg(args, 0)), integer(arg(args, 1)))
        .map(Value::Int)
        .ok_or_else(|| wrong("division by zero"))
}

fn steps(start: i64, end: i64, step: i64) -> Result<Value, TemplateError> {
    let mut numbers = Vec::new();
    let mut next = start;
    while step != 0 && (if step > 0 { next < end } else { next > end }) {
        session::charge_elements(1, session::ELEMENT_BYTES)?;
        numbers.push(Value::Int(next));
        // The end is an `i64`, so that nothing beyond is before it.
        let Some(after) = next.checked_add(step) else {
            break;
        };
        next = after;
    }
    Ok(Value::from(numbers))
}
