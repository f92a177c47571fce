//! The report of a failed exec, from a child with its own memory: the error and the step, through a pipe.

use std::ffi::c_int;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;

/// Milliseconds that the agent waits for the exec or its failure. Chosen: a hundred times what it takes, and no probe
/// is late for it.
const WAIT_MILLIS: c_int = 100;
/// Steps that may be refused before the exec, in the flag's or the system's words; empty: the exec itself.
const STEPS: [&str; 7] = [
    "",
    "a process group",
    "/dev/null",
    "--proxy-oom-score-adj",
    "--proxy-user",
    "--no-new-privs",
    "a parent",
];
/// Bytes of a report: the error number, and the step's index in `STEPS`.
const BYTES: usize = size_of::<c_int>() + 1;

/// The error and step that the child reports before its exec closes the pipe; 0 if none. Bounded in time: another process
/// of the child's user may stop the child here.
pub(super) fn read(mut from: PipeReader) -> (c_int, &'static str) {
    let mut poll = libc::pollfd {
        fd: from.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut report = [0; BYTES];
    // SAFETY: one `pollfd`, which lives on this stack frame.
    let ready = unsafe { libc::poll(&raw mut poll, 1, WAIT_MILLIS) };
    // Written as one piece: a part is none.
    let whole = ready > 0 && from.read(&mut report).is_ok_and(|read| read == BYTES);
    match report.split_first_chunk() {
        Some((error, &[step])) if whole => {
            let step = STEPS.get(usize::from(step)).copied();
            (c_int::from_ne_bytes(*error), step.unwrap_or_default())
        }
        _ => (0, ""),
    }
}

/// Async-signal-safe.
pub(super) fn write(to: &mut PipeWriter, error: c_int, step: &str) {
    let step = STEPS.iter().position(|known| *known == step);
    let step = u8::try_from(step.unwrap_or_default()).unwrap_or_default();
    let [one, two, three, four] = error.to_ne_bytes();
    drop(to.write(&[one, two, three, four, step]));
}
