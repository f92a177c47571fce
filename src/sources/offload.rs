//! Long work, off the event loop: one loop serves all, and must not work for longer than 20 ms at a stretch.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;

/// Longer texts are decoded and checked on another thread: an object of 1.4 MB takes some 400 ms.
pub(crate) const LONG_BYTES: usize = 64 << 10;
/// The steps from which work on a state is done on another thread. Chosen: one of them, such as a place of a service, takes some 3 µs.
pub(crate) const MANY_STEPS: usize = 1_000;

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

/// Does work of so many steps on the state of a task, which comes back with the result. A panic goes on in the task, whichever
/// thread it comes from.
pub(crate) async fn offload_state<S: Send + 'static, T: Send + 'static>(
    steps: usize,
    mut state: Box<S>,
    work: impl FnOnce(&mut S) -> T + Send + 'static,
) -> (Box<S>, T) {
    if steps < MANY_STEPS {
        let result = work(&mut state);
        return (state, result);
    }
    let job = spawn_blocking(move || {
        let result = work(&mut state);
        (state, result)
    });
    match job.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
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

    #[tokio::test]
    async fn many_steps_are_done_elsewhere_and_the_state_comes_back() {
        let here = thread::current().id();
        let mut state = Box::new(Vec::new());
        for (steps, is_here) in [(0, true), (MANY_STEPS - 1, true), (MANY_STEPS, false)] {
            let work = move |state: &mut Vec<usize>| {
                state.push(steps);
                thread::current().id()
            };
            let (back, there) = offload_state(steps, state, work).await;
            assert_eq!(there == here, is_here, "{steps}");
            state = back;
        }
        assert_eq!(*state, [0, MANY_STEPS - 1, MANY_STEPS]);
        let panics = offload_state(MANY_STEPS, state, |_| panic!("a mistake"));
        let ended = tokio::spawn(async move {
            let (_, ()) = panics.await;
        });
        assert!(ended.await.unwrap_err().is_panic());
    }
}
