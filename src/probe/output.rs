//! Our side of stdout and stderr. The reader may be gone, which is no news to anybody: then nothing is said.

#![forbid(unsafe_code)]

use std::io::{self, Write as _, stderr, stdout};
use std::os::fd::AsFd as _;

use rustix::event::PollFlags;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::deadline::Deadline;
use crate::failure::Failure;
use crate::input::wait;

const STEP: &str = "write the answer";

/// Writes all of it, as long as there is time.
pub(crate) fn write(mut bytes: &[u8], deadline: Deadline) -> Result<(), Failure> {
    let stdout = stdout();
    while !bytes.is_empty() {
        // First try, then wait: a pipe takes all at once, also when the deadline has just passed.
        match rustix::io::write(&stdout, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(stdout.as_fd(), PollFlags::OUT, deadline, STEP)?,
            Err(error) => return Err(Failure::of(STEP, &io::Error::from(error))),
        }
    }
    Ok(())
}

/// Ends when the other side of stdout is closed; never for a file.
#[expect(
    deprecated,
    reason = "its successor asks for a promise that stdout keeps: it is open, and number 1, to the end"
)]
pub(crate) async fn gone() {
    // A file cannot be watched: it is never gone.
    if let Ok(stdout) = AsyncFd::with_interest(stdout(), Interest::WRITABLE) {
        while let Ok(mut guard) = stdout.writable().await {
            if guard.ready().is_write_closed() {
                return;
            }
            guard.clear_ready();
        }
    }
    std::future::pending::<()>().await;
}

/// A line on stdout.
pub(crate) fn say(text: &str) -> io::Result<()> {
    writeln!(stdout(), "{text}")
}

/// A line on stderr, where there is one.
pub(crate) fn complain(text: &str) {
    drop(writeln!(stderr(), "{text}"));
}
