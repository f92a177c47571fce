//! JSON in its one spelling to bytes.

use base64::Engine as _;
use serde_json::{Map, Value as Json};

use super::scalar::{WireScalar, length_delimited};
use super::structs::write_struct;
use super::{BYTES, wire_type};
use crate::proto_json::BASE64;
use crate::schema::{Field, FieldKind, Key, Message, Shape};
use crate::{duration, timestamp};

/// The bytes of a message. A value that is not of its field's type, such as the `null` of an unreadable one, is left out.
#[must_use]
pub fn encode(message: &'static Message, value: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    if let Json::Object(values) = value {
        write_message(message, values, &mut out);
    }
    out
}

fn write_message(message: &'static Message, values: &Map<String, Json>, out: &mut Vec<u8>) {
    for field in message.fields {
        let Some(value) = values.get(field.json) else {
            continue;
        };
        match (field.shape, value) {
            (Shape::One, value) => one(field, value, out),
            (Shape::List, Json::Array(items)) => list(field, items, out),
            (Shape::Map(by), Json::Object(entries)) => map(field, by, entries, out),
            (Shape::List | Shape::Map(_), _) => {}
        }
    }
}

fn one(field: &Field, value: &Json, out: &mut Vec<u8>) {
    let before = out.len();
    let is_default = match scalar(field.kind, value) {
        Some(scalar) => {
            scalar.write(Some(field.number), out);
            scalar.is_default()
        }
        None => {
            length_delimited(field.number, out, |out| body(field.kind, value, out));
            false
        }
    };
    if is_default && !field.presence {
        // Proto3 leaves a default out; its reader puts it back.
        out.truncate(before);
    }
}

fn list(field: &Field, items: &[Json], out: &mut Vec<u8>) {
    // Proto3 packs values that have no length of their own.
    let is_packed = wire_type(field.kind) != BYTES;
    if is_packed {
        let scalars: Vec<_> = items
            .iter()
            .filter_map(|item| scalar(field.kind, item))
            .collect();
        if !scalars.is_empty() {
            length_delimited(field.number, out, |out| {
                for scalar in &scalars {
                    scalar.write(None, out);
                }
                true
            });
        }
        return;
    }
    for item in items {
        part(field.number, field.kind, item, out);
    }
}

/// A value that is written even with its default.
fn part(number: u32, kind: FieldKind, value: &Json, out: &mut Vec<u8>) {
    match scalar(kind, value) {
        Some(scalar) => scalar.write(Some(number), out),
        None => length_delimited(number, out, |out| body(kind, value, out)),
    }
}

fn map(field: &Field, by: Key, entries: &Map<String, Json>, out: &mut Vec<u8>) {
    let mut entries: Vec<_> = entries
        .iter()
        // An unreadable value is null, and the entry is left out with it.
        .filter(|(_, value)| !value.is_null())
        .collect();
    match by {
        Key::String => entries.sort_by_key(|(key, _)| *key),
        // Numbers in their order: `9` stands before `10`.
        Key::Uint32 => entries.sort_by_cached_key(|(key, _)| key.parse::<u32>().unwrap_or(0)),
    }
    for (key, value) in entries {
        length_delimited(field.number, out, |out| {
            match by {
                Key::String => WireScalar::Text(key).write(Some(1), out),
                Key::Uint32 => {
                    WireScalar::Varint(key.parse::<u32>().unwrap_or(0).into()).write(Some(1), out);
                }
            }
            part(2, field.kind, value, out);
            true
        });
    }
}

/// Writes the content of a value that has a message's wire type; false if the value is none, and the field is not to be written.
fn body(kind: FieldKind, value: &Json, out: &mut Vec<u8>) -> bool {
    match (kind, value) {
        (FieldKind::Message(message), Json::Object(values)) => {
            write_message(message, values, out);
            true
        }
        (FieldKind::Struct, Json::Object(values)) => {
            write_struct(values, out);
            true
        }
        (FieldKind::Wrapper(kind), value) => match scalar(*kind, value) {
            Some(scalar) => {
                let before = out.len();
                scalar.write(Some(1), out);
                if scalar.is_default() {
                    out.truncate(before);
                }
                true
            }
            None => false,
        },
        (FieldKind::Duration, Json::String(text)) => duration::parse(text)
            .map(|read| timestamp(read.seconds, read.nanos, out))
            .is_some(),
        (FieldKind::Timestamp, Json::String(text)) => timestamp::parse(text)
            .map(|read| timestamp(read.seconds, read.nanos, out))
            .is_some(),
        _ => false,
    }
}

fn timestamp(seconds: i64, nanos: i32, out: &mut Vec<u8>) {
    for (number, part) in [(1, seconds), (2, i64::from(nanos))] {
        if part != 0 {
            WireScalar::Varint(part.cast_unsigned()).write(Some(number), out);
        }
    }
}

/// Returns `None` for a value that is no scalar, or not of the kind.
fn scalar(kind: FieldKind, value: &Json) -> Option<WireScalar<'_>> {
    Some(match (kind, value) {
        (FieldKind::String, Json::String(text)) => WireScalar::Text(text),
        (FieldKind::Bytes, Json::String(text)) => WireScalar::Bytes(BASE64.decode(text).ok()?),
        (FieldKind::Bool, Json::Bool(value)) => WireScalar::Varint(u64::from(*value)),
        (FieldKind::Int32 | FieldKind::Uint32, Json::Number(number)) => {
            WireScalar::Varint(number.as_i64()?.cast_unsigned())
        }
        (FieldKind::Int64, Json::String(text)) => {
            WireScalar::Varint(text.parse::<i64>().ok()?.cast_unsigned())
        }
        (FieldKind::Uint64, Json::String(text)) => WireScalar::Varint(text.parse().ok()?),
        (FieldKind::Double, Json::Number(number)) => WireScalar::Double(number.as_f64()?),
        #[allow(
            clippy::cast_possible_truncation,
            reason = "that is what the field holds"
        )]
        (FieldKind::Float, Json::Number(number)) => WireScalar::Float(number.as_f64()? as f32),
        (FieldKind::Enum(kinds), Json::String(text)) => {
            let (_, number) = kinds.values.iter().find(|(name, _)| name == text)?;
            WireScalar::Varint(i64::from(*number).cast_unsigned())
        }
        // Of a newer writer.
        (FieldKind::Enum(_), Json::Number(number)) => {
            WireScalar::Varint(number.as_i64()?.cast_unsigned())
        }
        _ => return None,
    })
}
