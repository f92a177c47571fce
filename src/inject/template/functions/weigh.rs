//! Charges the arguments of Go's own functions, which the engine implements without limits.

use std::fmt::{self, Write};

use gotmpl::{TemplateError, Value};

use super::{MAX_OUTPUT, session, within, wrong};

/// Calls that wrap an argument: one that is printed, one that is a format, one that is compared.
pub(in crate::template) const TEXT: &str = " text";
pub(in crate::template) const FORMAT: &str = " format";
pub(in crate::template) const SCALAR: &str = " scalar";

/// Functions that print their arguments.
pub(in crate::template) const HEAVY: [&str; 6] =
    ["print", "printf", "println", "html", "js", "urlquery"];
/// Functions that read a text.
pub(in crate::template) const LIGHT: [&str; 7] = ["eq", "ne", "lt", "le", "gt", "ge", "slice"];

/// Characters to which the engine pads a verb at most.
const WIDEST: usize = 65_535;

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
    let mut counter = Counter(0);
    if write!(counter, "{value}").is_err() {
        return Err(wrong(format!("prints more than {MAX_OUTPUT} bytes")));
    }
    session::charge_bytes(counter.0)?;
    // The value is printed into a text of its own, which counts as well.
    session::charge_made(counter.0)?;
    Ok(counter.0)
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
        for verb in format.split('%').skip(1) {
            let options = verb.trim_start_matches(['+', '-', '#', ' ', '0']);
            let end = options
                .find(|letter: char| {
                    !letter.is_ascii_digit() && !matches!(letter, '.' | '*' | '[' | ']')
                })
                .unwrap_or(options.len());
            for number in options.get(..end).unwrap_or_default().split('.') {
                // The width comes with an argument, so that it counts as the widest.
                let width = if number.contains('*') {
                    WIDEST
                } else {
                    number
                        .parse()
                        .unwrap_or(if number.is_empty() { 0 } else { WIDEST })
                };
                wide = wide.saturating_add(width.min(WIDEST));
            }
        }
        within(wide)?;
        session::charge_bytes(wide)?;
        session::charge_made(wide)?;
    }
    Ok(value)
}
