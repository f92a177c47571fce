//! The stages of a server: it starts to serve with its first snapshot, ends its readiness on TERM, and then its streams.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Lifecycle {
    draining: AtomicBool,
    /// True from the first snapshot until TERM.
    serving: watch::Sender<bool>,
    /// Streams are to end.
    leaving: watch::Sender<bool>,
}

impl Lifecycle {
    pub(super) fn new() -> Self {
        Self {
            draining: AtomicBool::new(false),
            serving: watch::Sender::new(false),
            leaving: watch::Sender::new(false),
        }
    }

    /// Becomes ready with the first snapshot. A server that drains already does not.
    pub(super) fn start_serving(&self) {
        if !self.is_draining() {
            self.serving.send_replace(true);
        }
    }

    /// Ends readiness.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.serving.send_replace(false);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn is_serving(&self) -> bool {
        *self.serving.borrow()
    }

    /// Receives true when the server becomes ready, and false when it drains.
    pub(crate) fn watch_serving(&self) -> watch::Receiver<bool> {
        self.serving.subscribe()
    }

    /// Ends all streams.
    pub(crate) fn end_streams(&self) {
        self.leaving.send_replace(true);
    }

    /// Returns when streams are to end.
    pub(crate) async fn streams_end(&self) {
        let mut leaving = self.leaving.subscribe();
        // It cannot fail: the sender is here.
        let _left = leaving.wait_for(|leaving| *leaving).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_drains_does_not_become_ready() {
        let stages = Lifecycle::new();
        assert!(!stages.is_serving());
        stages.start_serving();
        assert!(stages.is_serving() && !stages.is_draining());
        stages.drain();
        stages.start_serving();
        assert!(!stages.is_serving() && stages.is_draining());
    }

    #[tokio::test]
    async fn streams_that_come_late_end_too() {
        let stages = Lifecycle::new();
        stages.end_streams();
        stages.streams_end().await;
    }
}
