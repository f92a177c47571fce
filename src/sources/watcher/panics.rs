//! A panic while a source is read: one failed try, and no end of the source.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Does the work; `None` if it panicked.
pub(super) async fn without_panic<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        // What it leaves behind is a store, which the next list replaces.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(poll) => poll.map(Some),
            Err(_logged) => Poll::Ready(None),
        }
    })
    .await
}
