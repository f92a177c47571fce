//! Opening files as open(2) does, and not as std does, which has an error there that is a text (4 kB, `super::error`).

use std::ffi::{CString, OsStr, c_int};
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The flags of an open: one of the first three, and any of the others.
pub type OpenFlags = c_int;
pub const OPEN_READ: OpenFlags = libc::O_RDONLY;
pub const OPEN_WRITE: OpenFlags = libc::O_WRONLY;
pub const OPEN_READ_WRITE: OpenFlags = libc::O_RDWR;
/// Made where it is not there.
pub const OPEN_CREATE: OpenFlags = libc::O_CREAT;
/// Made; an error where it is there.
pub const OPEN_NEW: OpenFlags = libc::O_CREAT | libc::O_EXCL;
pub const OPEN_APPEND: OpenFlags = libc::O_APPEND;
pub const OPEN_TRUNCATE: OpenFlags = libc::O_TRUNC;
/// For a file that somebody else named: a FIFO does not wait for its other end, and a terminal does not become this
/// process's.
pub const OPEN_WITHOUT_WAITING: OpenFlags = libc::O_NONBLOCK | libc::O_NOCTTY;
/// A path that is no directory is an error, and no FIFO is waited for.
pub const OPEN_DIRECTORY: OpenFlags = libc::O_DIRECTORY;

/// Opens a file for this process and none of its children; `mode` is what a new one has, less the umask.
///
/// # Errors
/// What the kernel says; EINVAL for a path that holds a NUL.
// Not inlined: it is asked for in a dozen places.
#[inline(never)]
pub fn open(path: &Path, flags: OpenFlags, mode: u32) -> io::Result<File> {
    let path = c_string(path.as_os_str())?;
    // Not `open`: musl's sets FD_CLOEXEC once more by a call of its own, for kernels that are older than the flag.
    loop {
        // SAFETY: the path ends with a NUL and outlives the call.
        let fd =
            unsafe { libc::openat(libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, mode) };
        if fd >= 0 {
            // SAFETY: the descriptor is new and nobody else's.
            return Ok(unsafe { File::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A text as the kernel takes it.
///
/// # Errors
/// EINVAL: it holds a NUL.
pub(super) fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
