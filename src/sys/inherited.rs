//! The signal mask and dispositions that the agent was started with, which its children must get back.
//!
//! Rust's runtime ignores SIGPIPE before `main`, so `main` would be too late to look: `.init_array` is not.

use std::ffi::c_int;
use std::mem::MaybeUninit;
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

pub(super) fn current_mask() -> u64 {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a null new set only reads; the old one is written to live memory of the right type.
    let _: c_int = unsafe { libc::sigprocmask(libc::SIG_SETMASK, ptr::null(), set.as_mut_ptr()) };
    // SAFETY: on Linux a signal set begins with the kernel's 64 bits, and the memory is initialised.
    unsafe { set.as_ptr().cast::<u64>().read_unaligned() }
}

fn is_ignored(number: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads; the old one is written to live memory of the right type.
    let read = unsafe { libc::sigaction(number, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all-zero bytes are a valid `sigaction`, and the call may have filled it.
    let action = unsafe { action.assume_init() };
    read == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// The C library's type for a set of signals, with those that it would refuse to add. Async-signal-safe.
pub(super) fn signal_set(bits: u64) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: on Linux a signal set begins with the kernel's 64 bits.
    unsafe { set.as_mut_ptr().cast::<u64>().write_unaligned(bits) };
    // SAFETY: all-zero bytes are a valid set, and 64 bits of it were written.
    unsafe { set.assume_init() }
}

/// Sets the mask of the calling thread. Async-signal-safe.
pub(super) fn set_mask(mask: u64) {
    let set = signal_set(mask);
    // SAFETY: the set is initialised; a null old set is not written.
    let _: c_int =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) };
}

/// Ignores those of `CHANGED` that are in `ignored`, and sets the others to their default. Async-signal-safe.
pub(super) fn set_dispositions(ignored: u64) {
    for number in CHANGED {
        set_disposition(number, ignored & bit(number) != 0);
    }
}

fn set_disposition(number: c_int, ignored: bool) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = if ignored {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    };
    // SAFETY: the new action is initialised.
    let _: c_int = unsafe { libc::sigaction(number, action, ptr::null_mut()) };
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
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is live memory of the right type.
    let _: c_int = unsafe { libc::sigpending(set.as_mut_ptr()) };
    // SAFETY: on Linux a signal set begins with the kernel's 64 bits, and the memory is initialised.
    unsafe { set.as_ptr().cast::<u64>().read_unaligned() }
}

/// Drops the real-time signals that are queued, of each number all at once, where to read them takes a walk through the
/// queue for each. Returns which there were.
pub fn throw_queued_signals_away() -> u64 {
    let pending = pending_signals();
    // The C library keeps those below to itself.
    let queued = pending & !(bit(libc::SIGRTMIN()) - 1);
    for number in libc::SIGRTMIN()..=64 {
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

    /// On a thread of its own, which alone has them blocked and pending.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test may have a thread")]
    fn queued_signals_are_forgotten_and_their_dispositions_are_not() {
        let (one, other, standard) = (50, 51, libc::SIGUSR2);
        let seen = std::thread::spawn(move || {
            set_mask(bit(one) | bit(other) | bit(standard));
            set_disposition(other, true);
            for number in [one, one, other, standard] {
                // SAFETY: `raise` takes an integer; the signal is blocked here.
                let _: c_int = unsafe { libc::raise(number) };
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
