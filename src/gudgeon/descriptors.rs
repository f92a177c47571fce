//! Descriptors: connections take so many that files are still read and watched, and the API server is still heard.

use std::sync::{Arc, LazyLock};

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::Semaphore;

/// What a role needs beside its connections: its log, its ports, the runtime's own, three to watch and two to read files. A
/// cluster is heard over a connection for each kind, and of those there are 30.
const LEAST_RESERVE: usize = 32;
const MOST_RESERVE: usize = 128;
/// Where nobody has set a limit, connections have theirs.
const UNLIMITED: usize = 1 << 20;
/// A port with more places than this is what the role is for; others are for who looks.
const LOOKS: usize = 64;

/// What connections may have together.
static SPARE: LazyLock<usize> = LazyLock::new(|| spare(limit()));
/// What all ports for streams have together: half of it.
static STREAMS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new((*SPARE / 2).max(1))));

/// What the process may have, which is raised as far as it may.
fn limit() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        let raised = rustix::process::Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    let limit = limit.current.map(usize::try_from);
    limit.and_then(Result::ok).unwrap_or(UNLIMITED)
}

fn spare(limit: usize) -> usize {
    let reserve = (limit / 4).clamp(LEAST_RESERVE, MOST_RESERVE);
    limit.saturating_sub(reserve).max(LEAST_RESERVE / 4)
}

/// The places of a port, where the process may have so many descriptors.
pub(crate) fn places(wanted: usize) -> usize {
    share(wanted, *SPARE)
}

fn share(wanted: usize, spare: usize) -> usize {
    let parts = if wanted > LOOKS { 4 } else { 8 };
    wanted.min(spare / parts).max(1)
}

/// The places of all ports for streams together.
pub(crate) fn streams() -> Arc<Semaphore> {
    Arc::clone(&STREAMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_needs_itself_is_never_a_connections() {
        for (limit, looks, main, streams) in [
            (64, 4, 8, 16),
            (256, 24, 48, 96),
            (1024, 64, 224, 448),
            (1 << 20, 64, 512, 524_224),
        ] {
            let spare = spare(limit);
            let shares = (share(64, spare), share(512, spare), spare / 2);
            assert_eq!(shares, (looks, main, streams), "{limit}");
            // As galley has them, and discovery.
            for taken in [2 * looks + main + streams, 3 * looks + streams] {
                assert!(taken + LEAST_RESERVE <= limit, "{limit}: {taken}");
            }
        }
    }
}
