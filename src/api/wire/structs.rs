//! `google.protobuf.Struct`: JSON that no table describes.

use serde_json::{Map, Value as Json};

use super::MAX_DEPTH;
use super::raw::{DecodeError, Raw, next, text};
use super::scalar::{WireScalar, length_delimited};
use crate::proto_json::canonical;

/// The bytes of a Struct.
#[must_use]
pub fn encode_struct(fields: &Map<String, Json>) -> Vec<u8> {
    let mut out = Vec::new();
    write_struct(fields, &mut out);
    out
}

/// The bytes of a `google.protobuf.Value`.
pub(crate) fn encode_value(value: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    write_value(value, &mut out);
    out
}

/// A Struct as the JSON that it stands for.
///
/// # Errors
///
/// Bytes that are no Struct.
pub fn decode_struct(bytes: &[u8]) -> Result<Map<String, Json>, DecodeError> {
    let mut out = Map::new();
    read_struct(bytes, 0, &mut out)?;
    Ok(out)
}

/// A `google.protobuf.Value` likewise.
///
/// # Errors
///
/// The bytes are no Struct.
pub fn decode_value(bytes: &[u8]) -> Result<Json, DecodeError> {
    read_value(bytes, 0)
}

pub(super) fn write_struct(fields: &Map<String, Json>, out: &mut Vec<u8>) {
    let mut fields: Vec<_> = fields.iter().collect();
    // Equal values are equal bytes, in any order of the text.
    fields.sort_by_key(|(key, _)| *key);
    for (key, value) in fields {
        length_delimited(1, out, |out| {
            WireScalar::Text(key).write(Some(1), out);
            length_delimited(2, out, |out| {
                write_value(value, out);
                true
            });
            true
        });
    }
}

/// A `google.protobuf.Value`.
fn write_value(value: &Json, out: &mut Vec<u8>) {
    match value {
        Json::Null => WireScalar::Varint(0).write(Some(1), out),
        Json::Number(number) => {
            WireScalar::Double(number.as_f64().unwrap_or_default()).write(Some(2), out);
        }
        Json::String(text) => WireScalar::Text(text).write(Some(3), out),
        Json::Bool(value) => WireScalar::Varint(u64::from(*value)).write(Some(4), out),
        Json::Object(fields) => length_delimited(5, out, |out| {
            write_struct(fields, out);
            true
        }),
        Json::Array(items) => length_delimited(6, out, |out| {
            for item in items {
                length_delimited(1, out, |out| {
                    write_value(item, out);
                    true
                });
            }
            true
        }),
    }
}

pub(super) fn read_struct(
    mut bytes: &[u8],
    depth: usize,
    out: &mut Map<String, Json>,
) -> Result<(), DecodeError> {
    while let Some((number, raw)) = next(&mut bytes)? {
        let (1, Raw::Bytes(mut entry)) = (number, raw) else {
            continue;
        };
        let (mut key, mut value) = (String::new(), Json::Null);
        while let Some((number, raw)) = next(&mut entry)? {
            match (number, raw) {
                (1, raw) => key = text(raw)?,
                (2, Raw::Bytes(bytes)) => value = read_value(bytes, depth + 1)?,
                _ => {}
            }
        }
        out.insert(key, value);
    }
    Ok(())
}

/// A `google.protobuf.Value`.
fn read_value(mut bytes: &[u8], depth: usize) -> Result<Json, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::Deep);
    }
    let mut json = Json::Null;
    while let Some((number, raw)) = next(&mut bytes)? {
        json = match (number, raw) {
            (1, _) => Json::Null,
            (2, Raw::Fixed64(bytes)) => canonical(f64::from_le_bytes(bytes)),
            (3, raw) => Json::String(text(raw)?),
            (4, Raw::Varint(value)) => Json::Bool(value != 0),
            (5, Raw::Bytes(bytes)) => {
                let mut out = Map::new();
                read_struct(bytes, depth + 1, &mut out)?;
                Json::Object(out)
            }
            (6, Raw::Bytes(mut bytes)) => {
                let mut items = Vec::new();
                while let Some((number, raw)) = next(&mut bytes)? {
                    if let (1, Raw::Bytes(bytes)) = (number, raw) {
                        items.push(read_value(bytes, depth + 1)?);
                    }
                }
                Json::Array(items)
            }
            _ => continue,
        };
    }
    Ok(json)
}
