//! Rules that one role reads and checks, on their way to another role of the same process.

use std::sync::{Arc, Mutex, PoisonError};

use cluster::config::{Change, Report};
use tokio::sync::mpsc;

/// Updates on their way: the reader waits for the other role rather than hold more of them.
const PENDING_UPDATES: usize = 1;

/// Changes of the rules since the last update.
#[derive(Debug)]
pub(crate) struct RuleUpdate {
    pub(crate) changes: Vec<Change>,
    /// They are all that there is: whatever is not among them is gone.
    pub(crate) is_whole: bool,
    /// Objects that are not served as they are written, without their secrets.
    pub(crate) report: Arc<Report>,
    /// The source has said all that it has; until then objects are missing.
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

    /// For the role that reads.
    pub(crate) fn sender(&self) -> mpsc::Sender<RuleUpdate> {
        self.sender.clone()
    }

    /// For the role that acts; `None`: it was taken before.
    pub(crate) fn take_receiver(&self) -> Option<mpsc::Receiver<RuleUpdate>> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.take()
    }
}
