//! The reader of resources: it knows the kinds and their rules, which the sink does not.

use std::sync::Arc;

use crate::message::Resource;

/// The result of reading a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadResult<T> {
    Good(T),
    /// It can be read, and breaks these rules.
    Broken(Vec<String>),
    /// Its bytes are no message, or not the one they should be.
    Unreadable(String),
}

pub trait ResourceReader {
    type Object;

    /// The type of the body was looked at already, and there is a name.
    fn read(&self, collection: &str, resource: &Resource) -> ReadResult<Arc<Self::Object>>;
}
