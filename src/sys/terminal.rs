//! The group that has the terminal: the agent's, or that of the child that a person types to.

use std::ffi::c_int;

use super::{Pid, inherited, signal};

/// Takes the terminal back from the group that a child led, if it has it.
pub fn take_terminal_back(leader: Pid) {
    // SAFETY: `tcgetpgrp` takes an integer; without a terminal it fails.
    if unsafe { libc::tcgetpgrp(0) } != leader.number() {
        return;
    }
    // This process is in the background, see below.
    let mask = inherited::set_mask(u64::MAX);
    // SAFETY: `getpgrp` has no arguments and cannot fail.
    let own = unsafe { libc::getpgrp() };
    // SAFETY: `tcsetpgrp` takes two integers.
    let _: c_int = unsafe { libc::tcsetpgrp(0, own) };
    inherited::set_mask(mask);
}

/// Makes the child's group the foreground of the terminal, if there is one and this process is in the foreground.
pub(super) fn take_terminal() {
    // SAFETY: `tcgetpgrp` takes an integer; without a terminal it fails.
    let foreground = unsafe { libc::tcgetpgrp(0) };
    // SAFETY: `getppid` has no arguments and cannot fail.
    let parent = unsafe { libc::getppid() };
    // SAFETY: `getpgid` takes an integer.
    let parents = unsafe { libc::getpgid(parent) };
    if foreground < 0 || foreground != parents {
        return;
    }
    // From the background, which the child's new group is, `tcsetpgrp` raises TTOU unless it is blocked.
    inherited::set_mask(1 << (signal::SIGTTOU - 1));
    // SAFETY: `getpid` has no arguments and cannot fail.
    let child = unsafe { libc::getpid() };
    // SAFETY: `tcsetpgrp` takes two integers; the child leads a group of its own number.
    let _: c_int = unsafe { libc::tcsetpgrp(0, child) };
}
