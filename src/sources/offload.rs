//! Work on long texts, off the event loop: one loop serves all, and must not work for longer than 20 ms at a stretch.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;

/// Longer texts are decoded and checked on another thread: an object of 1.4 MB takes some 400 ms.
pub(crate) const LONG_BYTES: usize = 64 << 10;

/// Does work on a text of so many bytes; returns `None` if it panicked on its thread.
pub(crate) async fn offload<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if bytes <= LONG_BYTES {
        return Some(work());
    }
    // A task of its own type for each result would be a kilobyte for each kind of object.
    let result = Arc::new(Mutex::new(None));
    let to = Arc::clone(&result);
    run(Box::new(move || {
        let done = work();
        *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
    }))
    .await;
    let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
    result.take()
}

async fn run(work: Box<dyn FnOnce() + Send>) {
    // Where it panicked there is no result.
    let _ended = spawn_blocking(work).await;
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn long_work_is_done_elsewhere() {
        let here = thread::current().id();
        for (bytes, is_here) in [(0, true), (LONG_BYTES, true), (LONG_BYTES + 1, false)] {
            let there = offload(bytes, || thread::current().id()).await.unwrap();
            assert_eq!(there == here, is_here, "{bytes}");
        }
        let panicked = offload(LONG_BYTES + 1, || -> u8 { panic!("a mistake") }).await;
        assert_eq!(panicked, None);
    }
}
