//! The signal mask and dispositions that the agent was started with, which its children must get back.
//!
//! Rust's runtime ignores SIGPIPE before `main`, so `main` would be too late to look: `.init_array` is not.

use std::ffi::{c_int, c_long};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bit n - 1 stands for signal n, as in the kernel.
static MASK: AtomicU64 = AtomicU64::new(0);
static IGNORED: AtomicU64 = AtomicU64::new(0);

// Miri has no signals to look at.
#[cfg(not(miri))]
#[used]
// SAFETY: the section is an array of functions that the C runtime calls once, before `main`, on one thread.
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

/// The kernel's first real-time signal. The C library's `SIGRTMIN` is above those that it keeps to itself.
const FIRST_QUEUED: c_int = 32;
/// `SIG_DFL` and `SIG_IGN`, as the kernel has them.
const DEFAULT: u64 = 0;
const IGNORE: u64 = 1;

/// Signals whose disposition this process changes: by `fault`, `entry` (or Rust's runtime) and signal-hook. The disposition
/// of all others passes to children as it is; to read each of them would be half of a start's system calls.
const CHANGED: [c_int; 7] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGPIPE,
    libc::SIGCHLD,
];

#[cfg_attr(miri, expect(dead_code, reason = "see above"))]
extern "C" fn remember() {
    MASK.store(current_mask(), Ordering::Relaxed);
    IGNORED.store(
        CHANGED
            .into_iter()
            .filter(|number| is_ignored(*number))
            .fold(0, |set, n| set | bit(n)),
        Ordering::Relaxed,
    );
}

/// The mask and dispositions that are restored in a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited {
    pub mask: u64,
    /// The ignored ones among those whose disposition this process changes.
    pub ignored: u64,
}

impl Inherited {
    #[must_use]
    pub fn get() -> Self {
        Self {
            mask: MASK.load(Ordering::Relaxed),
            ignored: IGNORED.load(Ordering::Relaxed),
        }
    }
}

pub(super) const fn bit(number: c_int) -> u64 {
    1 << (number - 1)
}

/// The words that the kernel takes and gives for a signal: a mask is the first word; a disposition is four, of which the
/// handler is the first.
type Words = [u64; 4];

/// Sets `new` where it is given; returns what was. Async-signal-safe.
///
/// By the bare system call: the C library keeps signals from 32 on for its threads, two (glibc) or three (musl). It takes them
/// out of a mask that is set (glibc) or read (musl), and refuses their dispositions. This process has one thread.
fn exchange(call: c_long, which: c_int, new: Option<&Words>) -> Words {
    let mut old = [0; 4];
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both calls write no more than four words to `old`, which is live, and read no more from `new`, unless it is null.
    let _: c_long = unsafe { libc::syscall(call, which, new, &raw mut old, size_of::<u64>()) };
    old
}

fn current_mask() -> u64 {
    let [mask, ..] = exchange(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, None);
    mask
}

/// Sets the mask of the calling thread; returns what it was. Async-signal-safe.
pub(super) fn set_mask(mask: u64) -> u64 {
    let new = [mask, 0, 0, 0];
    let [old, ..] = exchange(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, Some(&new));
    old
}

fn is_ignored(number: c_int) -> bool {
    let [handler, ..] = exchange(libc::SYS_rt_sigaction, number, None);
    handler == IGNORE
}

/// Ignores those of `CHANGED` that are in `ignored`, and sets the others to their default. Async-signal-safe.
pub(super) fn set_dispositions(ignored: u64) {
    for number in CHANGED {
        set_disposition(number, ignored & bit(number) != 0);
    }
}

fn set_disposition(number: c_int, ignored: bool) {
    let handler = if ignored { IGNORE } else { DEFAULT };
    exchange(libc::SYS_rt_sigaction, number, Some(&[handler, 0, 0, 0]));
}

/// For a process that ignores SIGCHLD, which one may be started to do, the kernel keeps no dead child and tells of none.
pub(super) fn keep_dead_children() {
    if Inherited::get().ignored & bit(libc::SIGCHLD) != 0 {
        set_disposition(libc::SIGCHLD, false);
    }
}

/// The signals that are blocked and have come (bit n - 1 is signal n).
#[must_use]
pub fn pending_signals() -> u64 {
    let mut set = 0_u64;
    // SAFETY: the call writes the kernel's 64 bits to a live word.
    let _: c_long =
        unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, size_of::<u64>()) };
    set
}

/// Drops the real-time signals that are queued, of each number all at once, where to read them takes a walk through the
/// queue for each. Returns which there were.
pub fn throw_queued_signals_away() -> u64 {
    let pending = pending_signals();
    let queued = pending & !(bit(FIRST_QUEUED) - 1);
    for number in FIRST_QUEUED..=64 {
        if queued & bit(number) != 0 {
            // To ignore a signal is to forget it. Children inherit what was.
            let ignored = is_ignored(number);
            set_disposition(number, true);
            set_disposition(number, ignored);
        }
    }
    queued
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All 64, but for KILL and STOP, which nobody blocks: what the C library keeps to itself, too.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test may have a thread")]
    fn a_mask_is_set_and_read_whole() {
        let seen = std::thread::spawn(|| {
            set_mask(u64::MAX);
            (current_mask(), set_mask(bit(34)), set_mask(0))
        });
        let all = !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
        assert_eq!(seen.join().unwrap(), (all, all, bit(34)));
    }

    /// On a thread of its own, which alone has them blocked and pending. 32 is one that both C libraries keep to themselves.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test may have a thread")]
    fn queued_signals_are_forgotten_and_their_dispositions_are_not() {
        let (one, other, standard) = (32, 51, libc::SIGUSR2);
        let seen = std::thread::spawn(move || {
            set_mask(bit(one) | bit(other) | bit(standard));
            set_disposition(one, false);
            set_disposition(other, true);
            let process = std::process::id();
            // SAFETY: `gettid` has no arguments and cannot fail.
            let thread = unsafe { libc::gettid() };
            for number in [one, one, other, standard] {
                // Not by `raise`, which refuses 32.
                // SAFETY: the call takes three integers; the signal is blocked here.
                let _: c_long = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, number) };
            }
            let thrown_away = throw_queued_signals_away();
            let (after, ignored) = (throw_queued_signals_away(), is_ignored(other));
            set_disposition(other, false);
            set_disposition(standard, true);
            set_disposition(standard, false);
            (thrown_away, after, ignored, is_ignored(one))
        });
        assert_eq!(
            seen.join().unwrap(),
            (bit(one) | bit(other), 0, true, false)
        );
    }
}
