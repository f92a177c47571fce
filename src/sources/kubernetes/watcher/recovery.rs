//! The news that a server responds again, between all that ask it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::kubernetes::failure::Failure;

/// Sources of one server: when one of them is answered again, the others need not wait until their pause is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerRecovery(watch::Sender<u64>);

impl ServerRecovery {
    pub(super) fn notify(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    /// The pauses of a request that is repeated until the server answers it.
    pub(crate) fn pauses(&self) -> HurriedPauses {
        HurriedPauses {
            others: self.subscribe(),
            may_hurry: true,
        }
    }
}

/// Pauses of which the news ends one: a server that fails again has the others.
#[derive(Debug)]
pub(crate) struct HurriedPauses {
    others: watch::Receiver<u64>,
    may_hurry: bool,
}

impl HurriedPauses {
    /// A try begins: news from before it tells nothing about the next pause.
    pub(crate) fn begin(&mut self) {
        self.others.mark_unchanged();
    }

    /// A try was answered.
    pub(crate) const fn reset(&mut self) {
        self.may_hurry = true;
    }

    /// Waits after a failure.
    pub(crate) async fn after(&mut self, failure: &Failure, pause: Duration) {
        let hurries = self.may_hurry && failure.is_away();
        tokio::select! {
            () = sleep(pause) => {}
            Ok(()) = self.others.changed(), if hurries => self.may_hurry = false,
        }
    }
}
