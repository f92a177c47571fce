//! Protobuf's wire by the tables of messages: JSON in its one spelling (as `config` reads it) to bytes, and back.
//!
//! Equal values are equal bytes: fields by their numbers, entries of maps by their keys. What a newer writer knows and the table
//! does not is skipped.

mod decode;
mod encode;
mod raw;
mod structs;
#[cfg(test)]
mod tests;

pub use decode::decode;
pub use encode::encode;
pub use raw::Malformed;
pub use structs::{decode_struct, encode_struct};

/// Messages and lists within each other: deeper is no configuration.
pub const DEEPEST: usize = 100;

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const GROUP: u32 = 3;
const GROUP_END: u32 = 4;
const FIXED32: u32 = 5;
