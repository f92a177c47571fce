//! Limits the descriptors of connections, so that files can still be read and watched, and API servers connected.

use std::io;
use std::sync::{Arc, LazyLock};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::Semaphore;

/// Descriptors that a role needs beside its connections: its log, its listeners, the runtime's own, three to watch and two
/// to read files. An API server is watched over a connection for each kind, and there are 30 kinds.
const MIN_RESERVE: usize = 32;
const MAX_RESERVE: usize = 128;
/// Descriptors for connections if RLIMIT_NOFILE is unlimited.
const UNLIMITED: usize = 1 << 20;
/// Listeners with at most so many connections are for administration; larger ones for the role's clients.
const ADMIN_CONNECTIONS: usize = 64;

/// Descriptors of all connections together.
static SPARE: LazyLock<usize> = LazyLock::new(|| spare(limit()));
/// Descriptors of all streaming listeners together: half of `SPARE`.
static STREAMS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new((*SPARE / 2).max(1))));

/// Raises the soft limit of RLIMIT_NOFILE to the hard one, and returns it.
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
    let reserve = (limit / 4).clamp(MIN_RESERVE, MAX_RESERVE);
    limit.saturating_sub(reserve).max(MIN_RESERVE / 4)
}

/// Returns the number of connections of a listener, within the process's limit of descriptors.
pub(crate) fn max_connections(wanted: usize) -> usize {
    share(wanted, *SPARE)
}

fn share(wanted: usize, spare: usize) -> usize {
    let parts = if wanted > ADMIN_CONNECTIONS { 4 } else { 8 };
    wanted.min(spare / parts).max(1)
}

/// The places of all ports for streams together.
pub(crate) fn streams() -> Arc<Semaphore> {
    Arc::clone(&STREAMS)
}

/// Returns true if the error of `accept` means that descriptors or memory for sockets are used up: closing a connection helps. Any
/// other error is about the client that came, which may be gone, or refused by a rule of the kernel.
pub(crate) fn are_exhausted(cause: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(cause),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that is gone before it is accepted used to cost another one its connection.
    #[test]
    fn closing_a_connection_helps_against_want_of_descriptors_alone() {
        for (cause, is_exhausted) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOBUFS, true),
            (Errno::NOMEM, true),
            (Errno::CONNABORTED, false),
            (Errno::PROTO, false),
            (Errno::PERM, false),
            (Errno::NETDOWN, false),
        ] {
            assert_eq!(are_exhausted(&cause.into()), is_exhausted, "{cause}");
        }
        assert!(!are_exhausted(&io::Error::other("a mistake")));
    }

    #[test]
    fn connections_leave_the_program_its_descriptors() {
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
                assert!(taken + MIN_RESERVE <= limit, "{limit}: {taken}");
            }
        }
    }
}
