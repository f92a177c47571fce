//! What makes an object of a resource: the kinds and their rules are somebody else's.

use std::sync::Arc;

use crate::message::Resource;

/// What a resource turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    Good(T),
    /// It can be read, and breaks these rules.
    Broken(Vec<String>),
    /// Its bytes are no message, or not the one they should be.
    Unreadable(String),
}

pub trait Read {
    type Object;

    /// The type of the body was looked at already, and there is a name.
    fn read(&self, collection: &str, resource: &Resource) -> Reading<Arc<Self::Object>>;
}
