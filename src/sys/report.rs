//! What a child with its own memory says of an exec that did not happen: the error and the step, through a pipe.

use std::ffi::c_int;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;

/// How long the agent looks whether the exec has worked, in milliseconds. Chosen: a hundred times what it takes, and no probe
/// is late for it.
const WAIT_MILLIS: c_int = 100;
/// What may be refused before the exec, in the flag's or the system's words; empty: the exec itself.
const STEPS: [&str; 7] = [
    "",
    "a process group",
    "/dev/null",
    "--proxy-oom-score-adj",
    "--proxy-user",
    "--no-new-privs",
    "a parent",
];
/// The error, and a step's place.
const BYTES: usize = size_of::<c_int>() + 1;

/// What the child says before its exec has closed the pipe; 0 if nothing. Not waited for without end: whoever may stop it
/// may do so here.
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
