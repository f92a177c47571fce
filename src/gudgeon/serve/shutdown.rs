//! The shutdown of the process, as its listeners and streams see it: the drain after TERM, then the end.

use tokio::sync::watch;

/// The stage of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShutdownStage {
    Serving,
    /// The role is not ready any more; requests are still served.
    Draining,
    /// Listeners close, connections are closed gracefully.
    Closing,
}

/// A watch on the stage.
///
/// A sender that is gone is no order to drain or close: only a process at its end has none, and then nothing runs any more.
#[derive(Clone, Debug)]
pub(crate) struct Shutdown(watch::Receiver<ShutdownStage>);

impl Shutdown {
    /// Creates the sender of the stage, and a watch on it.
    pub(crate) fn channel() -> (watch::Sender<ShutdownStage>, Self) {
        let (stage, watched) = watch::channel(ShutdownStage::Serving);
        (stage, Self(watched))
    }

    /// Creates a watch on the stage of a sender.
    pub(crate) fn watch(stage: &watch::Sender<ShutdownStage>) -> Self {
        Self(stage.subscribe())
    }

    /// Returns true once the process drains.
    pub(super) fn is_draining(&self) -> bool {
        *self.0.borrow() != ShutdownStage::Serving
    }

    /// Waits until the process drains.
    pub(crate) async fn draining(&mut self) {
        self.stage(|stage| stage != ShutdownStage::Serving).await;
    }

    /// Waits until listeners close.
    pub(crate) async fn closing(&mut self) {
        self.stage(|stage| stage == ShutdownStage::Closing).await;
    }

    async fn stage(&mut self, is_it: impl Fn(ShutdownStage) -> bool) {
        // The guard is a read lock on the stage: kept, it would block the sender of the next one.
        let is_gone = self.0.wait_for(|stage| is_it(*stage)).await.is_err();
        if is_gone {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_stage_that_has_come_is_seen_by_all_and_a_lost_sender_ends_nothing() {
        let (stage, first) = Shutdown::channel();
        let of = |shutdown: &Shutdown| {
            let mut nobody = Context::from_waker(Waker::noop());
            let (mut draining, mut closing) = (shutdown.clone(), shutdown.clone());
            let (draining, closing) = (draining.draining(), closing.closing());
            [
                Box::pin(draining) as std::pin::Pin<Box<dyn Future<Output = ()>>>,
                Box::pin(closing),
            ]
            .map(|mut wait| wait.as_mut().poll(&mut nobody) == Poll::Ready(()))
        };
        assert_eq!(of(&first), [false, false]);
        stage.send_replace(ShutdownStage::Draining);
        let second = Shutdown::watch(&stage);
        assert_eq!([of(&first), of(&second)], [[true, false]; 2]);
        stage.send_replace(ShutdownStage::Closing);
        assert_eq!([of(&first), of(&second)], [[true, true]; 2]);
        let (stage, lost) = Shutdown::channel();
        drop(stage);
        assert_eq!(of(&lost), [false, false]);
    }
}
