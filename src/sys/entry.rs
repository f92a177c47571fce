//! The program's entry: C's `main`, arguments, variables, and the first three descriptors.
//!
//! The binary has no `fn main` of Rust's: std's runtime around it brings a main thread with a name, a buffered stdout
//! and the handlers of stack overflows, 9 kB and as many pages, for a program that has other ones. So what it does that
//! matters is done here.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes a program of a function that takes the arguments and returns the exit code: the C library's `main`, and the heap.
///
/// The program has one thread, for the heap has no lock: std, which alone could start another one in a crate that forbids
/// `unsafe`, does so by the C library's `pthread_create`, and `build/dist` refuses a release binary that has it. Before
/// that `clippy.toml` and `tests/layout.rs` refuse the calls by their names.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        // SAFETY: the program never starts a thread: see this macro's documentation.
        #[global_allocator]
        static HEAP: $crate::Heap = unsafe { $crate::Heap::new() };

        /// Called by the C library.
        // SAFETY: the name is the one that it calls, with these arguments.
        #[unsafe(no_mangle)]
        extern "C" fn main(
            count: ::std::ffi::c_int,
            list: *const *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            // SAFETY: that is what the C library passes.
            let arguments = unsafe { $crate::arguments(count, list) };
            ::std::ffi::c_int::from($main(&arguments))
        }
    };
}

/// The argument list as the C library passes it: it is the process's, and stays where it is.
///
/// # Safety
/// `list` points to `count` C strings.
#[must_use]
pub unsafe fn arguments(count: c_int, list: *const *const c_char) -> Vec<&'static OsStr> {
    let argument = |at: usize| {
        // SAFETY: `at` is below the count.
        let word = unsafe { *list.wrapping_add(at) };
        text(word)
    };
    (0..usize::try_from(count).unwrap_or(0))
        .map(argument)
        .collect()
}

/// The variables that the process was started with: they stay where they are, too.
#[must_use]
pub fn variables() -> Vec<(&'static OsStr, &'static OsStr)> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    let mut variables = Vec::new();
    // SAFETY: the C library sets it before anything runs, and nobody else does.
    let mut at = unsafe { environ };
    loop {
        // SAFETY: a list that ends with a null pointer.
        let word = unsafe { *at };
        if word.is_null() {
            return variables;
        }
        let bytes = text(word).as_bytes();
        // A name has one letter at least, whichever.
        let end = bytes.iter().skip(1).position(|byte| *byte == b'=');
        let split = end.and_then(|end| bytes.split_at_checked(end + 1));
        if let Some((name, [_, value @ ..])) = split {
            variables.push((OsStr::from_bytes(name), OsStr::from_bytes(value)));
        }
        at = at.wrapping_add(1);
    }
}

/// The name that this program was called by, for where /proc cannot tell.
#[must_use]
pub fn own_name() -> OsString {
    unsafe extern "C" {
        static program_invocation_name: *const c_char;
    }
    // SAFETY: the C library sets it before anything runs, and nobody else does.
    text(unsafe { program_invocation_name }).to_owned()
}

fn text<'a>(word: *const c_char) -> &'a OsStr {
    // SAFETY: a C string of the process's own, which lives as long as it does.
    OsStr::from_bytes(unsafe { CStr::from_ptr(word) }.to_bytes())
}

/// Puts the process in order: faults are told, a reader that has gone is an error of `write` and no signal, and the
/// first three descriptors are open, so that nothing that is opened later takes the place of one.
pub fn start() {
    super::report_faults();
    // SAFETY: `signal` takes an integer and a constant.
    let _: libc::sighandler_t = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    });
    // SAFETY: three `pollfd` of this stack frame; it returns at once.
    let _: c_int = unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) };
    for stream in streams {
        if stream.revents & libc::POLLNVAL != 0 {
            // SAFETY: the path is a C string; the lowest number that is free is this one.
            let _: c_int =
                unsafe { libc::openat(libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR) };
            if stream.fd == 1 {
                STDOUT_CLOSED.store(true, Ordering::Relaxed);
            }
        }
    }
}

static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether this process was started without a stdout: nobody reads what is written there.
#[must_use]
pub fn stdout_was_closed() -> bool {
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

/// Without std's buffer and lock, which one thread that writes whole lines does not need.
#[must_use]
pub fn stdout() -> BorrowedFd<'static> {
    // SAFETY: `start` has seen to it that it is open, and nobody closes it.
    unsafe { BorrowedFd::borrow_raw(1) }
}

/// As `stdout`.
#[must_use]
pub fn stderr() -> BorrowedFd<'static> {
    // SAFETY: as for `stdout`.
    unsafe { BorrowedFd::borrow_raw(2) }
}

/// Writes all of it, or as much as somebody reads.
pub fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match super::write(fd, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_are_those_that_std_finds() {
        let found = variables().into_iter();
        let found: Vec<_> = found.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        assert_eq!(found, std::env::vars_os().collect::<Vec<_>>());
        assert!(!found.is_empty());
    }
}
