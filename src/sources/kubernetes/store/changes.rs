//! The changes that a store tells its readers.

use std::sync::Arc;

use super::freshness::Freshness;
use crate::kind::Key;

/// A change of one object.
#[derive(Debug, PartialEq)]
pub enum Change<K> {
    /// New, or another than before.
    Set(Key, Arc<K>),
    Gone(Key),
}

impl<K> Change<K> {
    pub const fn key(&self) -> &Key {
        match self {
            Self::Set(key, _) | Self::Gone(key) => key,
        }
    }
}

/// The changes since a reader last asked.
#[derive(Debug, PartialEq)]
pub struct Changes<K> {
    /// One change for each object, sorted by key.
    pub changes: Vec<Change<K>>,
    /// The changes are all objects: the reader drops every other one.
    pub whole: bool,
    pub freshness: Freshness,
}
