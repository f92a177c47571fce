//! Envoy's messages by their descriptors, without a type for each: JSON that users write becomes bytes ([`encode()`]), bytes are laid over
//! others ([`merge()`]), and those of equal messages are made equal ([`canonical`]).
//!
//! The descriptors are those that Envoy 1.40 was built from, as far as resources may have them; `build/descriptors` writes them.

mod config_discovery;
mod descriptor_pool;
mod encode;
mod merge;
mod missing_part;
mod names;
mod numbers;
mod old_fields;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

pub use descriptor_pool::{DescriptorPool, FieldDescriptor, MessageDescriptor, kind, parts, text};
pub use encode::{encode, encode_written};
pub use merge::{Lists, canonical, merge};
pub use missing_part::{MissingPart, missing_part};
pub use names::todays_name;

/// A `FileDescriptorSet`: Envoy's messages, and all services that discovery serves.
pub const ENVOY: &[u8] = include_bytes!("descriptors.bin");

/// Returns the descriptors, which the first call indexes. `None`: they are broken, which a test rules out.
fn descriptors() -> Option<&'static DescriptorPool<'static>> {
    static DESCRIPTORS: OnceLock<Option<DescriptorPool<'static>>> = OnceLock::new();
    let pool = DESCRIPTORS.get_or_init(|| DescriptorPool::new(ENVOY).ok());
    pool.as_ref()
}
