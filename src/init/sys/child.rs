//! What happens between fork and exec.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use super::inherited::{self, Inherited};
use super::{Pid, check, signal};

/// How a child differs from its parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildSetup {
    /// The signals' mask and dispositions.
    pub(crate) inherited: Inherited,
    /// User and group.
    pub(crate) user: Option<(u32, u32)>,
    pub(crate) oom_score_adj: Option<i32>,
    pub(crate) no_new_privs: bool,
    /// Raise the soft limit of open files to the hard one.
    pub(crate) raise_open_files: bool,
    /// Hand over the terminal that is open as stdin, if this is its foreground.
    pub(crate) take_terminal: bool,
}

/// Makes `command` start its program in a process group of its own, set up so, and dying with this process.
pub(crate) fn prepare(command: &mut Command, setup: ChildSetup) {
    // Known before the fork; in the child it would be the wrong question.
    let parent = std::process::id().cast_signed();
    let oom = OomScore::new(setup.oom_score_adj);
    command.process_group(0);
    // SAFETY: `set_up` makes only async-signal-safe calls (open, write, close, getrlimit, setrlimit, setgroups, setgid,
    // setuid, prctl, getppid, tcsetpgrp, getpid, sigaction, pthread_sigmask) and does not allocate.
    unsafe { command.pre_exec(move || set_up(&setup, &oom, parent)) };
}

fn set_up(setup: &ChildSetup, oom: &OomScore, parent: c_int) -> io::Result<()> {
    oom.write()?;
    if setup.raise_open_files {
        raise_open_files();
    }
    if let Some((uid, gid)) = setup.user {
        become_user(uid, gid)?;
    }
    if setup.no_new_privs {
        // SAFETY: this `prctl` takes integers and touches no memory.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    }
    // After the user, whose change would clear it.
    // SAFETY: this `prctl` takes integers and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
    // SAFETY: `getppid` has no arguments and cannot fail.
    if unsafe { libc::getppid() } != parent {
        // The agent died before the line above: nobody would send the signal.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    if setup.take_terminal {
        take_terminal();
    }
    inherited::set_dispositions(setup.inherited.ignored);
    inherited::set_mask(setup.inherited.mask);
    Ok(())
}

/// The text for `/proc/self/oom_score_adj`, made before the fork.
struct OomScore {
    text: [u8; 8],
    length: usize,
}

impl OomScore {
    fn new(value: Option<i32>) -> Self {
        let mut text = [0; 8];
        let digits = value.map(|value| value.to_string()).unwrap_or_default();
        let length = digits.len().min(text.len());
        for (slot, digit) in text.iter_mut().zip(digits.bytes()) {
            *slot = digit;
        }
        Self { text, length }
    }

    /// Before the user changes: an undumpable process cannot write it.
    fn write(&self) -> io::Result<()> {
        const FILE: &CStr = c"/proc/self/oom_score_adj";
        if self.length == 0 {
            return Ok(());
        }
        // SAFETY: the path is a C string.
        let fd = unsafe { libc::open(FILE.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the pointer and the length lie within `text`.
        let written = unsafe { libc::write(fd, self.text.as_ptr().cast(), self.length) };
        let result = if written < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        };
        // SAFETY: the descriptor was opened above and is used nowhere else.
        let _: c_int = unsafe { libc::close(fd) };
        result
    }
}

/// Envoy needs many descriptors; a soft limit is for programs that use `select`.
fn raise_open_files() {
    let Ok(mut limit) = super::open_files_limit() else {
        return;
    };
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the structure is initialised; a refusal leaves the old limit, which is no reason not to start.
    let _: c_int = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
}

fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    if super::effective_uid() == 0 {
        // SAFETY: no groups, so the list may be null.
        check(unsafe { libc::setgroups(0, ptr::null()) })?;
    }
    // SAFETY: `setgid` takes an integer.
    check(unsafe { libc::setgid(gid) })?;
    // SAFETY: `setuid` takes an integer.
    check(unsafe { libc::setuid(uid) })
}

/// Takes the terminal back from the group that a child of ours led, if it has it.
pub(crate) fn take_terminal_back(leader: Pid) {
    // SAFETY: `tcgetpgrp` takes an integer; without a terminal it fails.
    if unsafe { libc::tcgetpgrp(0) } != leader.number() {
        return;
    }
    // We are in the background, see below; everything else of ours is unblocked.
    inherited::set_mask(1 << (signal::SIGTTOU - 1));
    // SAFETY: `getpgrp` has no arguments and cannot fail.
    let own = unsafe { libc::getpgrp() };
    // SAFETY: `tcsetpgrp` takes two integers.
    let _: c_int = unsafe { libc::tcsetpgrp(0, own) };
    inherited::set_mask(0);
}

/// Makes the child's group the foreground of the terminal, if there is one and ours is in the foreground.
fn take_terminal() {
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
