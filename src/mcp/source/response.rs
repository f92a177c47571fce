//! One response, in pieces: all streams share the resources' memory, and only the few bytes around them are a stream's own.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::encoding::{bool, encoded_len_varint, string};

use crate::TRIGGER;
use crate::snapshot::{Collection, Resource};
use crate::version::Sum;

/// The numbers of the fields.
const SYSTEM_VERSION: u32 = 1;
const COLLECTION: u32 = 2;
const REMOVED: u32 = 4;
const NONCE: u32 = 5;
const INCREMENTAL: u32 = 6;

/// The resources of a response.
#[derive(Clone, Debug)]
pub enum Payload {
    All(Arc<Collection>),
    Some(Vec<Arc<Resource>>),
}

impl Payload {
    pub fn members(&self) -> &[Arc<Resource>] {
        match self {
            Self::All(collection) => collection.members(),
            Self::Some(members) => members,
        }
    }
}

/// A response of a source, before it is encoded.
#[derive(Clone, Debug)]
pub struct Response {
    pub collection: Arc<str>,
    /// The collection's version; `None` in a trigger.
    pub version: Option<Sum>,
    /// Written in decimal; 0, the trigger's, as an empty text.
    pub nonce: u64,
    pub resources: Payload,
    /// Names to remove; only of incremental responses.
    pub removed: Vec<Arc<str>>,
    /// The response is a difference and not the full state.
    pub incremental: bool,
    /// The length, if it exceeds the limit of sinks, and no earlier response of the collection on this stream did.
    pub oversized: Option<usize>,
}

impl Response {
    /// The first response of a source that has dialled.
    pub(super) fn trigger() -> Self {
        Self {
            collection: TRIGGER.into(),
            version: None,
            nonce: 0,
            resources: Payload::Some(Vec::new()),
            removed: Vec::new(),
            incremental: false,
            oversized: None,
        }
    }

    /// The message: these bytes, one after the other.
    pub fn pieces(&self) -> Vec<Bytes> {
        let members = self.resources.members();
        let mut pieces = Vec::with_capacity(members.len() + 2);
        pieces.push(self.head());
        pieces.extend(members.iter().map(|member| member.framed().clone()));
        pieces.push(self.tail());
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }

    /// Returns the length of all pieces.
    pub fn encoded_len(&self) -> usize {
        let members = self.resources.members().iter();
        let members: usize = members.map(|member| member.framed().len()).sum();
        self.head().len() + members + self.tail().len()
    }

    /// The bytes before the resources.
    pub fn head(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        if let Some(version) = self.version {
            string::encode(SYSTEM_VERSION, &version.to_string(), &mut bytes);
        }
        string::encode(COLLECTION, &self.collection.to_string(), &mut bytes);
        bytes.freeze()
    }

    /// The bytes behind them.
    pub fn tail(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        for name in &self.removed {
            string::encode(REMOVED, &name.to_string(), &mut bytes);
        }
        if self.nonce > 0 {
            string::encode(NONCE, &self.nonce.to_string(), &mut bytes);
        }
        if self.incremental {
            bool::encode(INCREMENTAL, &true, &mut bytes);
        }
        bytes.freeze()
    }
}

/// The encoded length of a removal.
pub(super) fn removal_len(name: &str) -> usize {
    // Numbers of fields below 16 have a key of one byte.
    1 + encoded_len_varint(name.len() as u64) + name.len()
}

/// The longest encoding of all fields but resources and removals, with a collection of this name.
pub(super) fn around(collection: &str) -> usize {
    // Key and length, one byte each, and 32 digits.
    const VERSION: usize = 34;
    // Key and length, and the 20 digits of the greatest nonce.
    const MAX_NONCE_LENGTH: usize = 22;
    // A name is encoded as long in any field; the last two bytes are the flag `incremental`.
    VERSION + removal_len(collection) + MAX_NONCE_LENGTH + 2
}
