//! Messages laid over others, on the wire.
//!
//! As protobuf merges: a value takes the place of another, messages are merged field by field, lists are joined, entries of maps
//! count by their keys, and of a choice the later counts. A value that protobuf would mix with another into a third counts as a
//! whole: durations, times, and scalars that can be absent. Messages in an Any are merged if the types agree, and else replaced.

use std::collections::BTreeMap;

use super::descriptor_pool::{DescriptorPool, FieldDescriptor, kind, parts, text};
use super::descriptors;
use crate::well_known::TYPE_URL_PREFIX;
use crate::wire::{DecodeError, MAX_DEPTH, Raw, WireScalar, length_delimited};

/// Well-known messages that are one value.
const ATOMIC: [&str; 11] = [
    "google.protobuf.BoolValue",
    "google.protobuf.BytesValue",
    "google.protobuf.DoubleValue",
    "google.protobuf.Duration",
    "google.protobuf.FloatValue",
    "google.protobuf.Int32Value",
    "google.protobuf.Int64Value",
    "google.protobuf.StringValue",
    "google.protobuf.Timestamp",
    "google.protobuf.UInt32Value",
    "google.protobuf.UInt64Value",
];
const ANY: &str = "google.protobuf.Any";

/// The result of merging two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lists {
    Joined,
    Replaced,
}

/// Lays a message over another of this name. `replaced` gets a sentence for each packed message that took the place of one of another type.
///
/// # Errors
///
/// Bytes that are no such messages.
pub fn merge(
    message: &str,
    below: &[u8],
    above: &[u8],
    lists: Lists,
    replaced: &mut Vec<String>,
) -> Result<Vec<u8>, DecodeError> {
    let mut merger = Merger {
        pool: descriptors().ok_or(DecodeError::WireType)?,
        lists,
        replaced,
    };
    merger.message(message, below, above, 0)
}

/// Returns the same message with the entries of all maps in the order of their keys, at every depth, also in packed messages.
#[must_use]
pub fn canonical(message: &str, bytes: &[u8]) -> Vec<u8> {
    let sorted = descriptors().and_then(|pool| sort(pool, message, bytes, 0).ok());
    sorted.unwrap_or_else(|| bytes.to_vec())
}

struct Merger<'a> {
    pool: &'static DescriptorPool<'static>,
    lists: Lists,
    replaced: &'a mut Vec<String>,
}

/// Returns the values of a message by the numbers of their fields, in order.
fn by_number(bytes: &[u8]) -> Result<BTreeMap<u32, Vec<Raw<'_>>>, DecodeError> {
    let mut values: BTreeMap<u32, Vec<Raw<'_>>> = BTreeMap::new();
    for part in parts(bytes) {
        let (number, raw) = part?;
        values.entry(number).or_default().push(raw);
    }
    Ok(values)
}

impl Merger<'_> {
    fn message(
        &mut self,
        name: &str,
        below: &[u8],
        above: &[u8],
        depth: usize,
    ) -> Result<Vec<u8>, DecodeError> {
        if depth > MAX_DEPTH {
            return Err(DecodeError::Deep);
        }
        if name == ANY {
            return self.any(below, above, depth);
        }
        let descriptor = self.pool.fields(name)?.ok_or(DecodeError::WireType)?;
        let theirs = by_number(above)?;
        let group = |number: u32| descriptor.field(number).and_then(|field| field.oneof);
        let chosen: Vec<(u64, u32)> = theirs
            .keys()
            .filter_map(|number| Some((group(*number)?, *number)))
            .collect();
        // The fields of the lower message that stay, and those that the upper one is merged into.
        let mut fields: Vec<(u32, Vec<u8>)> = Vec::new();
        let mut ours: BTreeMap<u32, Vec<Raw<'_>>> = BTreeMap::new();
        for part in parts(below) {
            let (number, raw) = part?;
            let of = group(number);
            // Another field of the group is set above: this one would be a second.
            let is_left = chosen
                .iter()
                .any(|(group, other)| Some(*group) == of && *other != number);
            if is_left {
                continue;
            }
            if theirs.contains_key(&number) {
                ours.entry(number).or_default().push(raw);
            } else {
                let mut out = Vec::new();
                put(number, raw, &mut out);
                fields.push((number, out));
            }
        }
        for (number, theirs) in theirs {
            let ours = ours.remove(&number).unwrap_or_default();
            let mut out = Vec::new();
            match descriptor.field(number) {
                Some(field) => self.field(field, ours, theirs, depth, &mut out)?,
                // Without a descriptor a list cannot be told from a value: the newer counts.
                None => theirs
                    .into_iter()
                    .for_each(|raw| put(number, raw, &mut out)),
            }
            fields.push((number, out));
        }
        fields.sort_by_key(|(number, _)| *number);
        Ok(fields.into_iter().flat_map(|(_, bytes)| bytes).collect())
    }

    fn field(
        &mut self,
        field: &FieldDescriptor<'_>,
        ours: Vec<Raw<'_>>,
        theirs: Vec<Raw<'_>>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let number = field.number;
        if field.is_list {
            if let Some(value) = self.value_of_map(field)? {
                return self.map(number, &value, ours, theirs, depth, out);
            }
            let ours = ours.into_iter().filter(|_| self.lists == Lists::Joined);
            ours.chain(theirs).for_each(|raw| put(number, raw, out));
            return Ok(());
        }
        let is_merged = field.kind == kind::MESSAGE && !ATOMIC.contains(&field.of);
        if !is_merged {
            theirs.into_iter().for_each(|raw| put(number, raw, out));
            return Ok(());
        }
        let merged = self.message(field.of, &joined(&ours)?, &joined(&theirs)?, depth + 1)?;
        put(number, Raw::Bytes(&merged), out);
        Ok(())
    }

    /// Returns the field of a map's values; `None` for a field that is no map.
    fn value_of_map(
        &self,
        field: &FieldDescriptor<'_>,
    ) -> Result<Option<FieldDescriptor<'static>>, DecodeError> {
        if field.kind != kind::MESSAGE {
            return Ok(None);
        }
        let entry = self.pool.fields(field.of)?.filter(|fields| fields.is_entry);
        Ok(entry.and_then(|entry| entry.field(2).cloned()))
    }

    fn map(
        &mut self,
        number: u32,
        value: &FieldDescriptor<'_>,
        ours: Vec<Raw<'_>>,
        theirs: Vec<Raw<'_>>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let mut entries: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for raw in ours {
            let bytes = content(raw)?;
            entries.insert(key(bytes)?, bytes.to_vec());
        }
        for raw in theirs {
            let bytes = content(raw)?;
            let key = key(bytes)?;
            let of = |entry: &[u8]| -> Result<Vec<u8>, DecodeError> {
                let mut all = Vec::new();
                for part in parts(entry) {
                    if let (2, Raw::Bytes(value)) = part? {
                        all.extend_from_slice(value);
                    }
                }
                Ok(all)
            };
            let entry = match entries.get(&key) {
                // Packed messages are merged there, too.
                Some(ours) if value.of == ANY => {
                    let merged = self.any(&of(ours)?, &of(bytes)?, depth + 1)?;
                    let mut entry = key.clone();
                    put(2, Raw::Bytes(&merged), &mut entry);
                    entry
                }
                _ => bytes.to_vec(),
            };
            entries.insert(key, entry);
        }
        for entry in entries.into_values() {
            put(number, Raw::Bytes(&entry), out);
        }
        Ok(())
    }

    fn any(&mut self, below: &[u8], above: &[u8], depth: usize) -> Result<Vec<u8>, DecodeError> {
        let (ours, theirs) = (unpacked(below)?, unpacked(above)?);
        if ours.0 == theirs.0
            && let Some(name) = ours.0.strip_prefix(TYPE_URL_PREFIX)
            && self.pool.fields(name)?.is_some()
        {
            let merged = self.message(name, ours.1, theirs.1, depth + 1)?;
            let mut out = Vec::new();
            WireScalar::Text(ours.0).write(Some(1), &mut out);
            put(2, Raw::Bytes(&merged), &mut out);
            return Ok(out);
        }
        if !ours.0.is_empty() && !theirs.0.is_empty() {
            let replacement = format!("{} is replaced by {}", ours.0, theirs.0);
            self.replaced.push(replacement);
        }
        // An Any without a type says nothing, and replaces none.
        Ok(if theirs.0.is_empty() { below } else { above }.to_vec())
    }
}

/// Returns the type and the bytes of a packed message.
fn unpacked(any: &[u8]) -> Result<(&str, &[u8]), DecodeError> {
    let (mut url, mut value): (&str, &[u8]) = ("", &[]);
    for part in parts(any) {
        match part? {
            (1, Raw::Bytes(bytes)) => url = text(bytes)?,
            (2, Raw::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((url, value))
}

fn content(raw: Raw<'_>) -> Result<&[u8], DecodeError> {
    match raw {
        Raw::Bytes(bytes) => Ok(bytes),
        Raw::Varint(_) | Raw::Fixed64(_) | Raw::Fixed32(_) => Err(DecodeError::WireType),
    }
}

/// Several are one, in parts.
fn joined(raws: &[Raw<'_>]) -> Result<Vec<u8>, DecodeError> {
    let all: Result<Vec<&[u8]>, DecodeError> = raws.iter().map(|raw| content(*raw)).collect();
    // Protobuf merges messages whose bytes stand one behind the other.
    Ok(all?.concat())
}

/// The key of an entry, as its field.
fn key(entry: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    for part in parts(entry) {
        if let (1, raw) = part? {
            // Of several the last counts.
            out.clear();
            put(1, raw, &mut out);
        }
    }
    Ok(out)
}

fn put(number: u32, raw: Raw<'_>, out: &mut Vec<u8>) {
    match raw {
        Raw::Varint(value) => WireScalar::Varint(value).write(Some(number), out),
        Raw::Fixed64(bytes) => {
            WireScalar::Double(f64::from_le_bytes(bytes)).write(Some(number), out);
        }
        Raw::Fixed32(bytes) => {
            WireScalar::Float(f32::from_le_bytes(bytes)).write(Some(number), out);
        }
        Raw::Bytes(bytes) => length_delimited(number, out, |out| {
            out.extend_from_slice(bytes);
            true
        }),
    }
}

fn sort_any(pool: &DescriptorPool<'_>, bytes: &[u8], depth: usize) -> Result<Vec<u8>, DecodeError> {
    let (url, _) = unpacked(bytes)?;
    let packed = url.strip_prefix(TYPE_URL_PREFIX).unwrap_or_default();
    let mut out = Vec::new();
    for part in parts(bytes) {
        match part? {
            (2, Raw::Bytes(value)) => {
                let value = sort(pool, packed, value, depth + 1)?;
                put(2, Raw::Bytes(&value), &mut out);
            }
            (number, raw) => put(number, raw, &mut out),
        }
    }
    Ok(out)
}

fn sort(
    pool: &DescriptorPool<'_>,
    name: &str,
    bytes: &[u8],
    depth: usize,
) -> Result<Vec<u8>, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::Deep);
    }
    if name == ANY {
        return sort_any(pool, bytes, depth);
    }
    let Some(descriptor) = pool.fields(name)? else {
        return Ok(bytes.to_vec());
    };
    let mut out = Vec::new();
    let mut parts = parts(bytes)
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .peekable();
    while let Some((number, raw)) = parts.next() {
        let field = descriptor
            .field(number)
            .filter(|field| field.kind == kind::MESSAGE);
        let (Some(field), Raw::Bytes(bytes)) = (field, raw) else {
            put(number, raw, &mut out);
            continue;
        };
        let inner = sort(pool, field.of, bytes, depth + 1)?;
        let is_map = pool.fields(field.of)?.is_some_and(|fields| fields.is_entry);
        if !is_map {
            put(number, Raw::Bytes(&inner), &mut out);
            continue;
        }
        // The entries of a map stand in one piece.
        let mut entries = vec![(key(&inner)?, inner)];
        while let Some((_, Raw::Bytes(bytes))) = parts.next_if(|(other, _)| *other == number) {
            let inner = sort(pool, field.of, bytes, depth + 1)?;
            entries.push((key(&inner)?, inner));
        }
        entries.sort();
        for (_, entry) in entries {
            put(number, Raw::Bytes(&entry), &mut out);
        }
    }
    Ok(out)
}
