//! The reader of resources: it knows the kinds and their rules, which the sink does not.

use std::sync::Arc;

use crate::message::Resource;

/// The result of reading a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadResult<T> {
    /// The object is decoded and valid.
    Accepted(T),
    /// The object is decoded, and breaks these rules.
    Refused(Vec<String>),
    /// The bytes are no message, or not of the expected type.
    Unreadable(String),
}

/// Decodes and validates the resources of a sink.
pub trait ResourceReader {
    /// The decoded form.
    type Object;

    /// Decodes a resource; the caller has checked the type of the body and that there is a name.
    fn read(&self, collection: &str, resource: &Resource) -> ReadResult<Arc<Self::Object>>;
}
