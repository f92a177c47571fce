//! Values and messages as they are written, field by field.

use super::{BYTES, FIXED32, FIXED64, VARINT};

/// A value without fields.
pub(crate) enum WireScalar<'value> {
    Varint(u64),
    Double(f64),
    Float(f32),
    Text(&'value str),
    Bytes(Vec<u8>),
}

impl WireScalar<'_> {
    pub(super) fn is_default(&self) -> bool {
        match self {
            Self::Varint(value) => *value == 0,
            // Minus zero is written.
            Self::Double(value) => value.to_bits() == 0,
            Self::Float(value) => value.to_bits() == 0,
            Self::Text(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }

    /// Without a number in a packed list.
    pub(crate) fn write(&self, number: Option<u32>, out: &mut Vec<u8>) {
        let kind = match self {
            Self::Varint(_) => VARINT,
            Self::Double(_) => FIXED64,
            Self::Float(_) => FIXED32,
            Self::Text(_) | Self::Bytes(_) => BYTES,
        };
        if let Some(number) = number {
            tag(number, kind, out);
        }
        match self {
            Self::Varint(value) => varint(*value, out),
            Self::Double(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::Float(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::Text(text) => {
                varint(text.len() as u64, out);
                out.extend_from_slice(text.as_bytes());
            }
            Self::Bytes(bytes) => {
                varint(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
        }
    }
}

/// `write` says whether there is such a value at all.
pub(crate) fn length_delimited(
    number: u32,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> bool,
) {
    let mut inner = Vec::new();
    if write(&mut inner) {
        tag(number, BYTES, out);
        varint(inner.len() as u64, out);
        out.append(&mut inner);
    }
}

fn tag(number: u32, kind: u32, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | u64::from(kind), out);
}

fn varint(value: u64, out: &mut Vec<u8>) {
    prost::encoding::encode_varint(value, out);
}
