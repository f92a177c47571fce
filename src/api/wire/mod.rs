//! Protobuf's wire by the tables of messages: JSON in its one spelling (as `config` reads it) to bytes, and back.
//!
//! Equal values are equal bytes: fields by their numbers, entries of maps by their keys. Fields of a newer writer that the table
//! lacks are skipped.

mod decode;
mod encode;
mod raw;
mod scalar;
mod structs;
#[cfg(test)]
mod tests;

pub use decode::decode;
pub use encode::encode;
pub use raw::{DecodeError, Raw, next as next_field, value as next_value};
pub(crate) use scalar::{WireScalar, length_delimited};
pub(crate) use structs::encode_value;
pub use structs::{decode_struct, decode_value, encode_struct};

use crate::schema::FieldKind;

/// Messages and lists within each other: deeper is no configuration.
pub const MAX_DEPTH: usize = 100;

/// Forms of values on the wire.
pub const VARINT: u32 = 0;
pub const FIXED64: u32 = 1;
pub const FIXED32: u32 = 5;
const BYTES: u32 = 2;
const GROUP: u32 = 3;
const GROUP_END: u32 = 4;

/// The wire type of a kind's values.
const fn wire_type(kind: FieldKind) -> u32 {
    match kind {
        FieldKind::Bool
        | FieldKind::Int32
        | FieldKind::Int64
        | FieldKind::Uint32
        | FieldKind::Uint64
        | FieldKind::Enum(_) => VARINT,
        FieldKind::Float => FIXED32,
        FieldKind::Double => FIXED64,
        FieldKind::String
        | FieldKind::Bytes
        | FieldKind::Message(_)
        | FieldKind::Duration
        | FieldKind::Timestamp
        | FieldKind::Wrapper(_)
        | FieldKind::Struct
        | FieldKind::Any => BYTES,
    }
}
