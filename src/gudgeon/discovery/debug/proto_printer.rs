//! Bytes of a message as proto JSON, with the names of its `.proto` file: by descriptors, without a type.
//!
//! Fields that the pool lacks are skipped. An Any of a type that it lacks is an error: nothing of it can be shown.

use std::collections::BTreeMap;

use api::envoy::{DescriptorPool, FieldDescriptor, MessageDescriptor, kind, parts, text};
use api::google::protobuf::{Duration, Timestamp};
use api::proto_json::number;
use api::wire::{
    DecodeError, FIXED32, FIXED64, Raw, VARINT, decode_struct, decode_value, next_value,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Messages within each other.
const MAX_DEPTH: usize = 100;

/// A message of that name.
pub(super) fn printed(
    pool: &DescriptorPool<'_>,
    name: &str,
    bytes: &[u8],
) -> Result<Value, String> {
    message(pool, name, bytes, 0)
}

fn message(
    pool: &DescriptorPool<'_>,
    name: &str,
    bytes: &[u8],
    depth: usize,
) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::Deep.to_string());
    }
    if let Some(short) = name.strip_prefix("google.protobuf.")
        && let Some(value) = well_known(pool, short, bytes, depth)?
    {
        return Ok(value);
    }
    let fields = pool.fields(name).map_err(describe)?;
    let fields = fields.ok_or_else(|| format!("no description of {name}"))?;
    let mut found: BTreeMap<u32, Vec<Raw<'_>>> = BTreeMap::new();
    for part in parts(bytes) {
        let (number, raw) = part.map_err(describe)?;
        let Some(field) = fields.field(number) else {
            continue;
        };
        // The last member of a oneof on the wire counts.
        if field.oneof.is_some() {
            let other = |number: &u32| fields.field(*number).and_then(|field| field.oneof);
            found.retain(|known, _| *known == number || other(known) != field.oneof);
        }
        found.entry(number).or_default().push(raw);
    }
    let mut out = Map::new();
    for (number, raws) in found {
        if let Some(field) = fields.field(number)
            && let Some(value) = whole(pool, field, &raws, depth)?
        {
            out.insert(field.name.to_owned(), value);
        }
    }
    Ok(Value::Object(out))
}

/// Prints all that was written of a field; `None` for a default that proto JSON omits.
fn whole(
    pool: &DescriptorPool<'_>,
    field: &FieldDescriptor<'_>,
    raws: &[Raw<'_>],
    depth: usize,
) -> Result<Option<Value>, String> {
    if field.is_list {
        let fields = match field.kind {
            kind::MESSAGE => pool.fields(field.of).map_err(describe)?,
            _ => None,
        };
        return match fields.filter(|fields| fields.is_entry) {
            Some(entry) => map(pool, &entry, raws, depth),
            None => list(pool, field, raws, depth),
        }
        .map(Some);
    }
    if let (kind::MESSAGE, [_, _, ..]) = (field.kind, raws) {
        // Several are one, in parts.
        let mut joined = Vec::new();
        for raw in raws {
            let Raw::Bytes(bytes) = raw else {
                return Err(describe(DecodeError::WireType));
            };
            joined.extend_from_slice(bytes);
        }
        return message(pool, field.of, &joined, depth + 1).map(Some);
    }
    // The last of several counts.
    let Some(last) = raws.last() else {
        return Ok(None);
    };
    let value = single(pool, field, *last, depth)?;
    // Proto JSON omits defaults, except those of messages and oneofs, which have presence.
    let shows_nothing = field.kind != kind::MESSAGE && field.oneof.is_none();
    let is_nothing = match last {
        Raw::Varint(value) => *value == 0,
        Raw::Fixed64(bytes) => *bytes == [0; 8],
        Raw::Fixed32(bytes) => *bytes == [0; 4],
        Raw::Bytes(bytes) => bytes.is_empty(),
    };
    Ok((!shows_nothing || !is_nothing).then_some(value))
}

fn list(
    pool: &DescriptorPool<'_>,
    field: &FieldDescriptor<'_>,
    raws: &[Raw<'_>],
    depth: usize,
) -> Result<Value, String> {
    let mut items = Vec::new();
    for raw in raws {
        match (packed(field.kind), raw) {
            // A parser has to accept both forms of a list, packed or not, whatever its description says.
            (Some(form), Raw::Bytes(bytes)) => {
                let mut rest = *bytes;
                while !rest.is_empty() {
                    let raw = next_value(form, &mut rest).map_err(describe)?;
                    items.push(single(pool, field, raw, depth)?);
                }
            }
            (_, raw) => items.push(single(pool, field, *raw, depth)?),
        }
    }
    Ok(Value::Array(items))
}

/// The form of what can stand without tags.
fn packed(kind: u64) -> Option<u32> {
    match kind {
        kind::DOUBLE | kind::FIXED64 | kind::SFIXED64 => Some(FIXED64),
        kind::FLOAT | kind::FIXED32 | kind::SFIXED32 => Some(FIXED32),
        kind::STRING | kind::BYTES | kind::MESSAGE => None,
        _ => Some(VARINT),
    }
}

fn map(
    pool: &DescriptorPool<'_>,
    entry: &MessageDescriptor<'_>,
    raws: &[Raw<'_>],
    depth: usize,
) -> Result<Value, String> {
    let (Some(by), Some(of)) = (entry.field(1), entry.field(2)) else {
        return Err("a map without keys or values".to_owned());
    };
    let mut out = Map::new();
    for raw in raws {
        let Raw::Bytes(bytes) = raw else {
            return Err(describe(DecodeError::WireType));
        };
        let (mut key, mut value) = (nothing(by.kind), nothing(of.kind));
        for part in parts(bytes) {
            match part.map_err(describe)? {
                (1, raw) => key = raw,
                (2, raw) => value = raw,
                _ => {}
            }
        }
        let key = single(pool, by, key, depth)?;
        let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        out.insert(key, single(pool, of, value, depth)?);
    }
    Ok(Value::Object(out))
}

/// The value of a field that is not on the wire.
fn nothing(kind: u64) -> Raw<'static> {
    match packed(kind) {
        Some(FIXED64) => Raw::Fixed64([0; 8]),
        Some(FIXED32) => Raw::Fixed32([0; 4]),
        Some(_) => Raw::Varint(0),
        None => Raw::Bytes(&[]),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "numbers on the wire are so long as their types"
)]
fn single(
    pool: &DescriptorPool<'_>,
    field: &FieldDescriptor<'_>,
    raw: Raw<'_>,
    depth: usize,
) -> Result<Value, String> {
    Ok(match (field.kind, raw) {
        (kind::DOUBLE, Raw::Fixed64(bytes)) => number(f64::from_le_bytes(bytes)),
        (kind::FLOAT, Raw::Fixed32(bytes)) => number(f32::from_le_bytes(bytes).into()),
        // Proto JSON writes 64-bit numbers as strings, since JavaScript's numbers would lose digits.
        (kind::INT64, Raw::Varint(value)) => value.cast_signed().to_string().into(),
        (kind::UINT64, Raw::Varint(value)) => value.to_string().into(),
        (kind::INT32, Raw::Varint(value)) => (value as i32).into(),
        (kind::UINT32, Raw::Varint(value)) => (value as u32).into(),
        (kind::SINT32, Raw::Varint(value)) => (unzigzag(value) as i32).into(),
        (kind::SINT64, Raw::Varint(value)) => unzigzag(value).to_string().into(),
        (kind::FIXED64, Raw::Fixed64(bytes)) => u64::from_le_bytes(bytes).to_string().into(),
        (kind::SFIXED64, Raw::Fixed64(bytes)) => i64::from_le_bytes(bytes).to_string().into(),
        (kind::FIXED32, Raw::Fixed32(bytes)) => u32::from_le_bytes(bytes).into(),
        (kind::SFIXED32, Raw::Fixed32(bytes)) => i32::from_le_bytes(bytes).into(),
        (kind::BOOL, Raw::Varint(value)) => (value != 0).into(),
        (kind::STRING, Raw::Bytes(bytes)) => text(bytes).map_err(describe)?.into(),
        (kind::BYTES, Raw::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (kind::ENUM, Raw::Varint(value)) => {
            let number = i64::from(value as i32);
            let name = pool.name_of(field.of, number).map_err(describe)?;
            // An enum's value without a name is its number in proto JSON.
            name.map_or_else(|| number.into(), Value::from)
        }
        (kind::MESSAGE, Raw::Bytes(bytes)) => message(pool, field.of, bytes, depth + 1)?,
        _ => return Err(format!("{}: {}", field.name, DecodeError::WireType)),
    })
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// Messages that have a form of their own in JSON.
fn well_known(
    pool: &DescriptorPool<'_>,
    short: &str,
    bytes: &[u8],
    depth: usize,
) -> Result<Option<Value>, String> {
    Ok(Some(match short {
        "Any" => any(pool, bytes, depth)?,
        "Struct" => Value::Object(decode_struct(bytes).map_err(describe)?),
        "Value" => decode_value(bytes).map_err(describe)?,
        "ListValue" => {
            let mut items = Vec::new();
            for part in parts(bytes) {
                if let (1, Raw::Bytes(bytes)) = part.map_err(describe)? {
                    items.push(decode_value(bytes).map_err(describe)?);
                }
            }
            Value::Array(items)
        }
        "Duration" => {
            let (seconds, nanos) = timestamp(bytes)?;
            api::duration::canonical(&Duration { seconds, nanos }).into()
        }
        "Timestamp" => {
            let (seconds, nanos) = timestamp(bytes)?;
            api::timestamp::text(&Timestamp { seconds, nanos }).into()
        }
        "BoolValue" | "BytesValue" | "DoubleValue" | "FloatValue" | "Int32Value" | "Int64Value"
        | "StringValue" | "UInt32Value" | "UInt64Value" => {
            let fields = pool
                .fields(&format!("google.protobuf.{short}"))
                .map_err(describe)?;
            let fields = fields.ok_or_else(|| format!("{short} is not described"))?;
            let field = fields.field(1).ok_or("a wrapper of nothing")?;
            let mut value = nothing(field.kind);
            for part in parts(bytes) {
                if let (1, raw) = part.map_err(describe)? {
                    value = raw;
                }
            }
            single(pool, field, value, depth)?
        }
        _ => return Ok(None),
    }))
}

/// The message in an Any, with its type.
fn any(pool: &DescriptorPool<'_>, bytes: &[u8], depth: usize) -> Result<Value, String> {
    let (mut url, mut packed): (&str, &[u8]) = ("", &[]);
    for part in parts(bytes) {
        match part.map_err(describe)? {
            (1, Raw::Bytes(bytes)) => url = text(bytes).map_err(describe)?,
            (2, Raw::Bytes(bytes)) => packed = bytes,
            _ => {}
        }
    }
    if url.is_empty() && packed.is_empty() {
        return Ok(json!({}));
    }
    let name = url.rsplit('/').next().unwrap_or_default();
    let mut fields = Map::from_iter([("@type".to_owned(), url.into())]);
    let has_own_form = name.starts_with("google.protobuf.") && name != "google.protobuf.Empty";
    let inner = message(pool, name, packed, depth + 1)?;
    if let (false, Value::Object(inner)) = (has_own_form, &inner) {
        fields.extend(inner.clone());
    } else {
        fields.insert("value".to_owned(), inner);
    }
    Ok(Value::Object(fields))
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "that is what the field holds"
)]
fn timestamp(bytes: &[u8]) -> Result<(i64, i32), String> {
    let (mut seconds, mut nanos) = (0, 0);
    for part in parts(bytes) {
        match part.map_err(describe)? {
            (1, Raw::Varint(value)) => seconds = value.cast_signed(),
            (2, Raw::Varint(value)) => nanos = value as i32,
            _ => {}
        }
    }
    Ok((seconds, nanos))
}

#[allow(clippy::needless_pass_by_value, reason = "the way errors are mapped")]
fn describe(malformed: DecodeError) -> String {
    malformed.to_string()
}

#[cfg(test)]
mod tests;
