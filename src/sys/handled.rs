//! Signals by handler: it records which one came, and wakes the reader of a socket pair.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use signal_hook::low_level::register;

use super::bit;

/// Bit n - 1 stands for signal n.
static CAME: AtomicU64 = AtomicU64::new(0);
/// The socket to write to; none at first.
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// Installs handlers for `numbers` that write to the socket `wake`, for as long as the process lives. Who had a handler
/// before is called first.
///
/// # Errors
/// The kernel, or the C library, keeps such a signal to itself.
pub fn handle_signals(numbers: &[c_int], wake: OwnedFd) -> io::Result<()> {
    let wake = std::mem::ManuallyDrop::new(wake).as_raw_fd();
    WAKE.store(wake, Ordering::SeqCst);
    for &number in numbers {
        // SAFETY: `note` is async-signal-safe; the registry keeps `errno`.
        unsafe { register(number, move || note(number)) }?;
    }
    // One that `fault` has noted before woke nobody.
    if CAME.load(Ordering::SeqCst) != 0 {
        wake_reader();
    }
    Ok(())
}

/// Records that a signal came, and wakes the reader. Async-signal-safe, but for `errno`.
pub(crate) fn note(number: c_int) {
    CAME.fetch_or(bit(number), Ordering::SeqCst);
    wake_reader();
}

fn wake_reader() {
    let wake = WAKE.load(Ordering::SeqCst);
    // A socket that is full wakes its reader all the same.
    // SAFETY: the pointer and the length describe a constant; the descriptor is never closed, and -1 is none.
    let _: isize = unsafe { libc::send(wake, b"!".as_ptr().cast(), 1, libc::MSG_DONTWAIT) };
}

/// The signals that came since the last call (bit n - 1 is signal n). To be asked when the socket has been emptied: one that comes
/// in between wakes the reader again.
#[must_use]
pub fn handled_signals() -> u64 {
    CAME.swap(0, Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_signal_that_came_before_wakes_the_reader() {
        note(libc::SIGBUS);
        let (mut reader, wake) = UnixStream::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        handle_signals(&[], wake.into()).unwrap();
        assert_eq!(reader.read(&mut [0; 2]).unwrap(), 1);
        assert_eq!(handled_signals(), bit(libc::SIGBUS));
    }
}
