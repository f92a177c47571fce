//! Every call of the agent that needs `unsafe`, behind a safe signature: one block, one call, one SAFETY sentence. All other
//! crates of this workspace forbid `unsafe`.
//!
//! It knows nothing of the agent: no configuration, no log, no policy. What it finds out is returned.

mod child;
mod children;
mod copy;
mod directory;
mod entry;
mod fault;
mod handled;
mod heap;
mod inherited;
mod interfaces;
mod net;
mod open;
mod outlet;
mod pages;
mod report;
mod seldom;
mod terminal;
#[cfg(feature = "testing")]
pub mod testing;

use std::ffi::c_int;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

pub use child::{ChildSetup, Streams, spawn};
pub use children::{children, has_children, is_stopped};
pub use directory::{current_directory, names};
pub use entry::arguments;
pub use entry::{own_name, start, stderr, stdout, stdout_was_closed, variables, write_all};
use fault::report_faults;
pub use handled::{handle_signals, handled_signals};
pub use heap::Heap;
pub use heap::{heap_is_high, release_heap};
use inherited::bit;
pub use inherited::{Inherited, pending_signals, throw_queued_signals_away};
pub use interfaces::interface_addresses;
pub use net::{Watch, connect_from, is_not_there, listen, watch_level};
pub use open::{
    OPEN_APPEND, OPEN_CREATE, OPEN_DIRECTORY, OPEN_NEW, OPEN_READ, OPEN_READ_WRITE, OPEN_TRUNCATE,
    OPEN_WITHOUT_WAITING, OPEN_WRITE, OpenFlags, open,
};
pub use outlet::Outlet;
pub use pages::{page_size, release_stack};
pub use seldom::{give_back, set_apart};
pub use terminal::take_terminal_back;

/// A process that was started and has not been reaped, so its number cannot mean another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pid(i32);

impl Pid {
    /// A number that is nobody's, for tests that start no process.
    #[cfg(feature = "testing")]
    #[must_use]
    pub const fn pretend(number: i32) -> Self {
        Self(number)
    }

    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

/// The numbers of the signals that the agent names.
pub mod signal {
    pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTTOU, SIGUSR1};
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Code(u8),
    /// Killed by the signal of this number.
    Signal(u8),
}

/// Reaps one dead child, known or adopted; `None` when none is left to reap now.
#[must_use]
pub fn reap() -> Option<(Pid, End)> {
    loop {
        let mut status = 0;
        // SAFETY: `waitpid` writes the status to a live integer; with WNOHANG it returns at once.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        match pid {
            1.. => return Some((Pid(pid), exit(status))),
            0 => return None,
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}

/// `WIFSIGNALED` and `WEXITSTATUS`; stops are not reported without `WUNTRACED`.
fn exit(status: c_int) -> End {
    let byte = |value: c_int| u8::try_from(value).unwrap_or(u8::MAX);
    if libc::WIFSIGNALED(status) {
        End::Signal(byte(libc::WTERMSIG(status)))
    } else {
        End::Code(byte(libc::WEXITSTATUS(status)))
    }
}

/// Sends a signal to a child that has not been reaped.
pub fn kill(pid: Pid, signal: c_int) {
    // SAFETY: `kill` takes two integers; the pid is a child's, and no other process's until it is reaped.
    let _: c_int = unsafe { libc::kill(pid.0, signal) };
}

/// Sends a signal to the process group that the child leads.
pub fn kill_group(pid: Pid, signal: c_int) {
    // SAFETY: `kill` takes two integers; the group has the number of a child that leads it.
    let _: c_int = unsafe { libc::kill(-pid.0, signal) };
}

/// Orphaned descendants become children of this process, as they do of PID 1.
///
/// # Errors
/// A kernel before 3.4.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: this `prctl` takes an integer and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
}

/// Closes every descriptor above 2: what the agent was started with is not its own, and must not reach a proxy.
///
/// Called before the agent opens anything.
pub fn close_inherited_descriptors() {
    // SAFETY: nothing has been opened yet, so no owner of a descriptor above 2 exists in this process.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Before Linux 5.9: one by one, up to the limit.
    let last = open_files_limit().map_or(1024, |limit| limit.rlim_cur.min(65_536));
    for fd in 3..c_int::try_from(last).unwrap_or(1024) {
        // SAFETY: as above.
        let _: c_int = unsafe { libc::close(fd) };
    }
}

fn open_files_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `prlimit` writes to a live structure, and reads none.
    check(unsafe { libc::prlimit(0, libc::RLIMIT_NOFILE, ptr::null(), &raw mut limit) })?;
    Ok(limit)
}

/// Returns the number of descriptors that this process may have open now; `None`: no limit, or not known.
#[must_use]
pub fn open_files_soft_limit() -> Option<u64> {
    let soft = open_files_limit().ok()?.rlim_cur;
    (soft != libc::RLIM_INFINITY).then_some(soft)
}

/// User and system time that this process has used.
#[must_use]
pub fn cpu_time() -> Duration {
    // SAFETY: the structure is made of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `getrusage` writes to a live structure; where it fails, the zeros stay.
    let _: c_int = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let unsigned = |part: i64| u64::try_from(part).unwrap_or(0);
    let seconds = usage.ru_utime.tv_sec.saturating_add(usage.ru_stime.tv_sec);
    // Each is below a million.
    let micros = usage
        .ru_utime
        .tv_usec
        .saturating_add(usage.ru_stime.tv_usec);
    Duration::from_secs(unsigned(seconds)).saturating_add(Duration::from_micros(unsigned(micros)))
}

/// Whether `fd` has room now: for a pipe, for `PIPE_BUF` bytes if nobody else is quicker.
#[must_use]
fn is_writable(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: `poll` reads and writes one `pollfd`, which lives on this stack frame; it returns at once.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready == 1 && poll.revents & libc::POLLOUT != 0
}

/// Gives files that `action` creates the mode that it asks for, whatever the agent was started with; children are started with
/// that again.
pub fn without_umask<T>(action: impl FnOnce() -> T) -> T {
    // SAFETY: `umask` takes an integer and cannot fail.
    let started_with = unsafe { libc::umask(0) };
    let result = action();
    // SAFETY: as above.
    let _: libc::mode_t = unsafe { libc::umask(started_with) };
    result
}

/// One `write`.
///
/// # Errors
/// What the kernel says; `Interrupted` is not retried.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length describe `bytes`, which outlives the call.
    let written = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Reads what is there.
///
/// # Errors
/// What the kernel says; `Interrupted` is not retried.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length describe `buffer`, which outlives the call.
    let read = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Ends a watch of inotify's; nothing happens where the kernel has dropped it first.
pub fn remove_watch(inotify: BorrowedFd<'_>, id: i32) {
    // SAFETY: `inotify_rm_watch` takes two integers.
    let _: c_int = unsafe { libc::inotify_rm_watch(inotify.as_raw_fd(), id) };
}

/// An error that is a text. `io::Error::other` makes one that can show itself to a programmer, which takes 4 kB of Unicode's
/// tables.
#[must_use]
pub fn error(text: String) -> io::Error {
    io::Error::other(Text(text))
}

struct Text(String);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Text {}

/// The size of one read, in bytes. Chosen: most files take one.
const BUFFER_BYTES: usize = 4096;

/// All that is left of a file: its size may not be known, or may change.
///
/// # Errors
/// The error of the kernel, or `FileTooLarge` if it is more than `max` bytes.
pub fn read_whole(file: &mut File, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if bytes.len() as u64 > max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

/// The user that the agent runs as.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: `geteuid` has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Waits, for when waiting by `epoll` is what failed.
pub fn pause(duration: Duration) {
    let millis = c_int::try_from(duration.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: no descriptors, so the list may be null.
    let _: c_int = unsafe { libc::poll(ptr::null_mut(), 0, millis) };
}

/// Blocks the signals of `set` (bit n - 1 is signal n), and no others; the ends of children are told from here on.
pub fn hold_signals(set: u64) {
    inherited::set_mask(set);
    inherited::keep_dead_children();
}

/// A descriptor that becomes readable when a signal of `set` (bit n - 1 is signal n) arrives; these are blocked, and all
/// others are not.
///
/// # Errors
/// No descriptor left.
pub fn signal_descriptor(set: u64) -> io::Result<OwnedFd> {
    inherited::set_mask(set);
    let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
    // SAFETY: the call reads the kernel's 64 bits from a live word; -1 asks for a new descriptor.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_signalfd4,
            -1,
            &raw const set,
            size_of::<u64>(),
            flags,
        )
    };
    let fd = c_int::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Signals read by one call. Chosen: two at a time are many.
pub const SIGNALS_AT_ONCE: usize = 4;
/// The reads of a turn. Chosen: all standard signals at once are half of it, and of real-time ones, of which a hundred thousand
/// may be queued, the kernel needs up to a millisecond for each.
pub const SIGNAL_READS_PER_TURN: usize = 16;

/// The next signals of a `signal_descriptor`, as many as there are; only if all places are taken there may be more.
#[must_use]
pub fn read_signals(fd: BorrowedFd<'_>) -> [Option<i32>; SIGNALS_AT_ONCE] {
    const SIZE: usize = size_of::<libc::signalfd_siginfo>();
    let mut infos = [const { MaybeUninit::<libc::signalfd_siginfo>::uninit() }; SIGNALS_AT_ONCE];
    // SAFETY: the pointer and the length describe `infos`, which outlives the call.
    let read = unsafe {
        libc::read(
            fd.as_raw_fd(),
            infos.as_mut_ptr().cast(),
            SIZE * SIGNALS_AT_ONCE,
        )
    };
    let count = usize::try_from(read).unwrap_or_default() / SIZE;
    let mut signals = [None; SIGNALS_AT_ONCE];
    for (signal, info) in signals.iter_mut().zip(&infos).take(count) {
        // SAFETY: the kernel has written the first `count`.
        *signal = Some(unsafe { info.assume_init_ref() }.ssi_signo.cast_signed());
    }
    signals
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_apart() {
        assert_eq!(exit(0), End::Code(0));
        assert_eq!(exit(3 << 8), End::Code(3));
        assert_eq!(exit(15), End::Signal(15));
        assert_eq!(exit(11 | 0x80), End::Signal(11), "with a core dump");
    }
}
