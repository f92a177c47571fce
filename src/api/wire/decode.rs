//! Bytes to JSON in its one spelling.

use crate::google::protobuf::{Duration, Timestamp};
use base64::Engine as _;
use serde_json::{Map, Value as Json};

use super::raw::{DecodeError, Raw, low_bits, next, text, value};
use super::structs::read_struct;
use super::{BYTES, FIXED32, FIXED64, MAX_DEPTH, VARINT, wire_type};
use crate::proto_json::{BASE64, number};
use crate::schema::{Enum, Field, FieldKind, Key, Message, Shape};
use crate::{duration, timestamp};

/// A message as proto JSON.
///
/// # Errors
///
/// Bytes that are no such message.
pub fn decode(message: &'static Message, bytes: &[u8]) -> Result<Json, DecodeError> {
    let mut out = Map::new();
    read_message(message, bytes, 0, &mut out)?;
    Ok(Json::Object(out))
}

fn read_message(
    message: &'static Message,
    mut bytes: &[u8],
    depth: usize,
    out: &mut Map<String, Json>,
) -> Result<(), DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::Deep);
    }
    while let Some((number, raw)) = next(&mut bytes)? {
        let place = message
            .fields
            .binary_search_by_key(&number, |field| field.number);
        let Some(field) = place.ok().and_then(|at| message.fields.get(at)) else {
            continue;
        };
        match field.shape {
            Shape::One => one(message, field, raw, depth, out)?,
            Shape::List => {
                let entry = out
                    .entry(field.json)
                    .or_insert_with(|| Json::Array(Vec::new()));
                if let Json::Array(items) = entry {
                    list(field.kind, raw, depth, items)?;
                }
            }
            Shape::Map(by) => {
                let entry = out
                    .entry(field.json)
                    .or_insert_with(|| Json::Object(Map::new()));
                if let Json::Object(entries) = entry {
                    map_entry(by, field.kind, raw, depth, entries)?;
                }
            }
        }
    }
    Ok(())
}

/// The last of several counts; messages merge.
fn one(
    message: &'static Message,
    field: &'static Field,
    raw: Raw<'_>,
    depth: usize,
    out: &mut Map<String, Json>,
) -> Result<(), DecodeError> {
    if field.oneof.is_some() {
        for other in message.fields {
            if other.oneof == field.oneof && other.number != field.number {
                // Of a group the last on the wire counts.
                out.shift_remove(other.json);
            }
        }
    }
    if let (FieldKind::Message(inner), Raw::Bytes(bytes)) = (field.kind, raw) {
        let entry = out
            .entry(field.json)
            .or_insert_with(|| Json::Object(Map::new()));
        if let Json::Object(inside) = entry {
            read_message(inner, bytes, depth + 1, inside)?;
        }
        return Ok(());
    }
    let value = single(field.kind, raw, depth)?;
    if !field.presence && is_default(field.kind, &value) {
        out.shift_remove(field.json);
    } else {
        out.insert(field.json.to_owned(), value);
    }
    Ok(())
}

/// Returns true for the default of a scalar without presence, which JSON leaves out.
fn is_default(kind: FieldKind, value: &Json) -> bool {
    match (kind, value) {
        (FieldKind::Wrapper(_), _) => false,
        (FieldKind::Enum(kinds), Json::String(name)) => kinds
            .values
            .iter()
            .any(|(known, number)| known == name && *number == 0),
        (FieldKind::String | FieldKind::Bytes, Json::String(text)) => text.is_empty(),
        (FieldKind::Int64 | FieldKind::Uint64, Json::String(text)) => text == "0",
        (_, Json::Bool(value)) => !*value,
        (FieldKind::Float | FieldKind::Double, Json::Number(number)) => {
            number.as_f64().is_some_and(|value| value.to_bits() == 0)
        }
        (_, Json::Number(number)) => number.as_i64() == Some(0),
        _ => false,
    }
}

fn list(
    kind: FieldKind,
    raw: Raw<'_>,
    depth: usize,
    items: &mut Vec<Json>,
) -> Result<(), DecodeError> {
    let wire_type = wire_type(kind);
    // Readers take a list of scalars in both forms: packed, and one by one.
    if let (false, Raw::Bytes(mut packed)) = (wire_type == BYTES, raw) {
        while !packed.is_empty() {
            let raw = value(wire_type, &mut packed)?;
            items.push(single(kind, raw, depth)?);
        }
        return Ok(());
    }
    items.push(single(kind, raw, depth)?);
    Ok(())
}

fn map_entry(
    by: Key,
    kind: FieldKind,
    raw: Raw<'_>,
    depth: usize,
    entries: &mut Map<String, Json>,
) -> Result<(), DecodeError> {
    let Raw::Bytes(mut bytes) = raw else {
        return Err(DecodeError::WireType);
    };
    let (mut key, mut found) = (None, None);
    while let Some((number, raw)) = next(&mut bytes)? {
        match (number, by) {
            (1, Key::String) => key = Some(text(raw)?),
            (1, Key::Uint32) => key = Some(low_bits(raw)?.to_string()),
            (2, _) => found = Some(single(kind, raw, depth)?),
            _ => {}
        }
    }
    // An entry leaves out a key that is its kind's default.
    let key = key.unwrap_or_else(|| match by {
        Key::String => String::new(),
        Key::Uint32 => "0".to_owned(),
    });
    let value = match found {
        Some(value) => value,
        None => default(kind, depth)?,
    };
    entries.insert(key, value);
    Ok(())
}

/// A value that an entry leaves out.
fn default(kind: FieldKind, depth: usize) -> Result<Json, DecodeError> {
    let raw = match wire_type(kind) {
        FIXED32 => Raw::Fixed32([0; 4]),
        FIXED64 => Raw::Fixed64([0; 8]),
        VARINT => Raw::Varint(0),
        _ => Raw::Bytes(&[]),
    };
    single(kind, raw, depth)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "numbers on the wire are so long as their types, and signed by them"
)]
fn single(kind: FieldKind, raw: Raw<'_>, depth: usize) -> Result<Json, DecodeError> {
    Ok(match (kind, raw) {
        (FieldKind::String, raw) => Json::String(text(raw)?),
        (FieldKind::Bytes, Raw::Bytes(bytes)) => Json::String(BASE64.encode(bytes)),
        (FieldKind::Bool, Raw::Varint(value)) => Json::Bool(value != 0),
        (FieldKind::Int32, Raw::Varint(value)) => Json::from(value as i32),
        (FieldKind::Uint32, raw) => Json::from(low_bits(raw)?),
        (FieldKind::Int64, Raw::Varint(value)) => Json::String((value as i64).to_string()),
        (FieldKind::Uint64, Raw::Varint(value)) => Json::String(value.to_string()),
        (FieldKind::Float, Raw::Fixed32(bytes)) => number(f32::from_le_bytes(bytes).into()),
        (FieldKind::Double, Raw::Fixed64(bytes)) => number(f64::from_le_bytes(bytes)),
        (FieldKind::Enum(kinds), Raw::Varint(value)) => choice(kinds, value as i32),
        (FieldKind::Message(message), Raw::Bytes(bytes)) => {
            let mut out = Map::new();
            read_message(message, bytes, depth + 1, &mut out)?;
            Json::Object(out)
        }
        (FieldKind::Struct, Raw::Bytes(bytes)) => {
            let mut out = Map::new();
            read_struct(bytes, depth + 1, &mut out)?;
            Json::Object(out)
        }
        (FieldKind::Wrapper(kind), Raw::Bytes(mut bytes)) => {
            // A wrapper leaves out the default, too: an empty one holds it.
            let mut inner = default(*kind, depth)?;
            while let Some((number, raw)) = next(&mut bytes)? {
                if number == 1 {
                    inner = single(*kind, raw, depth)?;
                }
            }
            inner
        }
        (FieldKind::Duration, Raw::Bytes(bytes)) => {
            let (seconds, nanos) = timestamp(bytes)?;
            Json::String(duration::canonical(&Duration { seconds, nanos }))
        }
        (FieldKind::Timestamp, Raw::Bytes(bytes)) => {
            let (seconds, nanos) = timestamp(bytes)?;
            Json::String(timestamp::text(&Timestamp { seconds, nanos }))
        }
        // Its type may be one that is not known here.
        (FieldKind::Any, Raw::Bytes(_)) => Json::Object(Map::new()),
        _ => return Err(DecodeError::WireType),
    })
}

fn choice(kinds: &Enum, number: i32) -> Json {
    kinds
        .name_of(number)
        .map_or_else(|| Json::from(number), Json::from)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "as above"
)]
fn timestamp(mut bytes: &[u8]) -> Result<(i64, i32), DecodeError> {
    let (mut seconds, mut nanos) = (0, 0);
    while let Some((number, raw)) = next(&mut bytes)? {
        match (number, raw) {
            (1, Raw::Varint(value)) => seconds = value as i64,
            (2, Raw::Varint(value)) => nanos = value as i32,
            _ => {}
        }
    }
    Ok((seconds, nanos))
}
