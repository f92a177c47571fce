//! Fields as they lie on the wire, before a table gives their meaning.

use std::fmt;

use super::{BYTES, FIXED32, FIXED64, GROUP, GROUP_END, MAX_DEPTH, VARINT};

/// Why bytes are no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They end in the middle of a value.
    Short,
    /// A tag that does not exist, or a value of another wire type than its field has.
    WireType,
    /// Text that is no UTF-8.
    Text,
    /// Nested deeper than any configuration.
    Deep,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Short => "the message ends early",
            Self::WireType => "a field of another wire type",
            Self::Text => "text that is not UTF-8",
            Self::Deep => "nested too deeply",
        })
    }
}

impl std::error::Error for DecodeError {}

/// A field's value as it lies on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raw<'bytes> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(&'bytes [u8]),
}

/// The number and value of the next field, or the end. Groups are of the past, and skipped.
///
/// # Errors
///
/// Bytes that are no field.
pub fn next<'bytes>(rest: &mut &'bytes [u8]) -> Result<Option<(u32, Raw<'bytes>)>, DecodeError> {
    while !rest.is_empty() {
        let tag = u32::try_from(varint(rest)?).map_err(|_| DecodeError::WireType)?;
        let number = tag >> 3;
        if number == 0 {
            return Err(DecodeError::WireType);
        }
        match tag & 7 {
            GROUP => skip_group(number, rest)?,
            wire_type => return value(wire_type, rest).map(|value| Some((number, value))),
        }
    }
    Ok(None)
}

/// A value of a wire type, as in a packed list.
///
/// # Errors
///
/// Bytes that are no such value.
pub fn value<'bytes>(wire_type: u32, rest: &mut &'bytes [u8]) -> Result<Raw<'bytes>, DecodeError> {
    Ok(match wire_type {
        VARINT => Raw::Varint(varint(rest)?),
        FIXED64 => Raw::Fixed64(fixed(rest)?),
        FIXED32 => Raw::Fixed32(fixed(rest)?),
        BYTES => {
            let length = usize::try_from(varint(rest)?).map_err(|_| DecodeError::Short)?;
            let (bytes, after) = rest.split_at_checked(length).ok_or(DecodeError::Short)?;
            *rest = after;
            Raw::Bytes(bytes)
        }
        _ => return Err(DecodeError::WireType),
    })
}

fn skip_group(number: u32, rest: &mut &[u8]) -> Result<(), DecodeError> {
    // A list and no recursion: the depth is the writer's choice.
    let mut open = vec![number];
    while let Some(inner) = open.last() {
        let tag = u32::try_from(varint(rest)?).map_err(|_| DecodeError::WireType)?;
        match tag & 7 {
            GROUP if open.len() >= MAX_DEPTH => return Err(DecodeError::Deep),
            GROUP => open.push(tag >> 3),
            GROUP_END if tag >> 3 == *inner => drop(open.pop()),
            wire_type => drop(value(wire_type, rest)?),
        }
    }
    Ok(())
}

fn varint(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    prost::encoding::decode_varint(rest).map_err(|_| DecodeError::Short)
}

fn fixed<const LENGTH: usize>(rest: &mut &[u8]) -> Result<[u8; LENGTH], DecodeError> {
    let (bytes, after) = rest.split_first_chunk().ok_or(DecodeError::Short)?;
    *rest = after;
    Ok(*bytes)
}

pub(super) fn text(raw: Raw<'_>) -> Result<String, DecodeError> {
    let Raw::Bytes(bytes) = raw else {
        return Err(DecodeError::WireType);
    };
    String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Text)
}

#[allow(clippy::cast_possible_truncation, reason = "the wire's own rule")]
pub(super) fn low_bits(raw: Raw<'_>) -> Result<u32, DecodeError> {
    match raw {
        Raw::Varint(value) => Ok(value as u32),
        Raw::Fixed64(_) | Raw::Fixed32(_) | Raw::Bytes(_) => Err(DecodeError::WireType),
    }
}
