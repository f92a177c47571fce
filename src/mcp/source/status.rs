//! The status of a stream, for pages.

use std::sync::Arc;
use std::time::Duration;

use crate::version::Sum;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    pub at: Duration,
    pub nonce: u64,
    /// The version of the collection that was refused.
    pub version: Sum,
    /// gRPC's.
    pub code: i32,
    /// The sink's words, cut.
    pub message: Arc<str>,
}

/// The status of one collection of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status<'a> {
    pub sent: Option<Sum>,
    pub acked: Option<Sum>,
    pub pending_nonce: Option<u64>,
    pub incremental: bool,
    pub nacks: u64,
    pub last_nack: Option<&'a Nack>,
}
