//! The request's head from stdin, before the deadline. stdin stays as it was given: it may be shared with others, so it is
//! not made non-blocking, and the end of it is not awaited, because it may be the socket on which the answer goes back.

#![forbid(unsafe_code)]

use std::io::stdin;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};

use crate::deadline::Deadline;
use crate::failure::Failure;

/// A request's head, in bytes: twice what `pintle` itself accepts from kubelet.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// One read, in bytes. Chosen: a head takes one.
const PIECE: usize = 4 * 1024;
/// The end of a head.
const END: &[u8] = b"\r\n\r\n";
const STEP: &str = "read the request";

/// Reads until the empty line.
pub(crate) fn read_head(deadline: Deadline) -> Result<Vec<u8>, Failure> {
    let stdin = stdin();
    let mut head = Vec::new();
    let mut piece = [0; PIECE];
    loop {
        wait(stdin.as_fd(), PollFlags::IN, deadline, STEP)?;
        let bytes = match read(&stdin, &mut piece) {
            Ok(bytes) => piece.get(..bytes).unwrap_or_default(),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(error) => return Err(Failure::of(STEP, &std::io::Error::from(error))),
        };
        if bytes.is_empty() {
            let cause = format!(
                "stdin ended after {} bytes, before an empty line",
                head.len()
            );
            return Err(Failure::new(STEP, &cause));
        }
        // The end may be split between two pieces.
        let seen = head.len().saturating_sub(END.len());
        head.extend_from_slice(bytes);
        let fresh = head.get(seen..).unwrap_or_default();
        let end = fresh
            .windows(END.len())
            .position(|window| window == END)
            .map(|position| seen + position + END.len());
        if end.unwrap_or(head.len()) > MAX_HEAD_BYTES {
            let cause = format!("more than {MAX_HEAD_BYTES} bytes");
            return Err(Failure::new(STEP, &cause));
        }
        match end {
            None => {}
            Some(end) if end == head.len() => return Ok(head),
            Some(_) => return Err(Failure::new(STEP, "there is more than a head")),
        }
    }
}

/// Until the descriptor is ready, or the deadline.
pub(crate) fn wait(
    descriptor: impl AsFd,
    flags: PollFlags,
    deadline: Deadline,
    step: &str,
) -> Result<(), Failure> {
    loop {
        let left = Timespec::try_from(deadline.left()).ok();
        match poll(&mut [PollFd::new(&descriptor, flags)], left.as_ref()) {
            Ok(0) => return Err(deadline.passed(step)),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::of(step, &std::io::Error::from(error))),
        }
    }
}
