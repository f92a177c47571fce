//! The last requests of a sink, for its status page.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The number of requests that are kept. Source: galley.md §8.3.
pub const LOG_CAPACITY: usize = 200;

/// The meaning of a logged request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It subscribed to a collection.
    Subscribed,
    /// The numbers of resources received, and of names removed.
    Acked { resources: usize, removed: usize },
    /// gRPC's code and our words.
    Nacked(i32, Arc<str>),
}

/// A logged request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    pub at: Duration,
    pub collection: Box<str>,
    pub nonce: Box<str>,
    pub outcome: Outcome,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    entries: VecDeque<Logged>,
}

impl Log {
    pub(super) fn add(&mut self, at: Duration, collection: &str, nonce: &str, outcome: Outcome) {
        if self.entries.len() >= LOG_CAPACITY {
            self.entries.pop_front();
        }
        self.entries.push_back(Logged {
            at,
            collection: collection.into(),
            nonce: nonce.into(),
            outcome,
        });
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Logged> {
        self.entries.iter()
    }
}
