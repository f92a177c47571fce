//! Every call that needs `unsafe`, behind a safe signature; ten lines each, one SAFETY sentence each.
#![allow(unsafe_code, reason = "this is the module for it")]

use std::os::fd::{AsRawFd, BorrowedFd};

/// Whether a write to `fd` would go through now: for a pipe, whether `PIPE_BUF` bytes fit.
#[must_use]
pub fn is_writable(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: `poll` reads and writes one `pollfd`, which lives on this stack frame; with a zero timeout it returns at once.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready == 1 && poll.revents & libc::POLLOUT != 0
}

/// One `write`.
///
/// # Errors
/// What the kernel says; `Interrupted` is not retried.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> std::io::Result<usize> {
    // SAFETY: the pointer and the length describe `bytes`, which outlives the call.
    let written = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(written).map_err(|_| std::io::Error::last_os_error())
}
