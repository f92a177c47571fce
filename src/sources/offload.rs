//! Work on long texts, off the event loop: one loop serves all, and must not work for longer than 20 ms at a stretch.

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
    spawn_blocking(work).await.ok()
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
    }
}
