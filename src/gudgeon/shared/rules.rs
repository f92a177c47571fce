//! Rules that one role reads and checks, on their way to another role of the same process.

use std::sync::{Arc, Mutex, PoisonError};

use sources::catalogue::{ConfigReport, EntryChange};
use tokio::sync::mpsc;

/// Updates on their way: the reader waits for the other role rather than hold more of them.
const PENDING_UPDATES: usize = 1;

/// Changes of the rules since the last update.
#[derive(Debug)]
pub(crate) struct RuleUpdate {
    pub(crate) changes: Vec<EntryChange>,
    /// The changes are all objects: others are deleted.
    pub(crate) is_whole: bool,
    /// Objects not served as written, without their secrets.
    pub(crate) report: Arc<ConfigReport>,
    /// The source has sent all its objects; until then some are missing.
    pub(crate) is_complete: bool,
}

/// The way from the role that reads rules to the role that acts on them.
#[derive(Debug)]
pub(crate) struct RuleChannel {
    sender: mpsc::Sender<RuleUpdate>,
    receiver: Mutex<Option<mpsc::Receiver<RuleUpdate>>>,
}

impl RuleChannel {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(PENDING_UPDATES);
        Self {
            sender,
            receiver: Mutex::new(Some(receiver)),
        }
    }

    /// Returns the sender, for the role that reads.
    pub(crate) fn sender(&self) -> mpsc::Sender<RuleUpdate> {
        self.sender.clone()
    }

    /// Takes the receiver, for the role that acts; `None` if it was taken before.
    pub(crate) fn take_receiver(&self) -> Option<mpsc::Receiver<RuleUpdate>> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.take()
    }
}
