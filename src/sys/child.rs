//! Starting a child: what happens between clone and exec.
//!
//! The first child borrows the agent's memory until its exec, as after `vfork`: no page table is copied and no page is
//! written twice for it, which was a third of a start, and a failed exec is told through that memory. So this does not
//! use `std::process`, which with its environment and pipes is also 18 kB. Until the exec the agent stands still.
//!
//! That is only for a child whom nobody may stop: once processes run that have the user which the child has or takes on, one of
//! them may send SIGSTOP to it, and then the agent would stand still for ever, PID 1 or not; and a change of user makes the
//! memory that it happens in undumpable, which was the agent's. So every other child, and each one that changes
//! its user, has a copy of the memory and tells through a pipe, which closes itself at the exec. The agent looks at that
//! for a moment: what comes later is the end of a process that was started.
//!
//! In the child only async-signal-safe calls are made, nothing is allocated, and users are changed by the bare system
//! call: musl's `setuid` would want to tell other threads.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_long, c_void};
use std::io::{self, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::inherited::{self, Inherited};
use super::open::c_string;
use super::terminal::take_terminal;
use super::{Pid, check, kill, report};

/// The child's stack, a part of the agent's: no mapping, and pages that a start has touched already. Chosen: musl's search
/// of `PATH` takes 5 kB (measured). A debug build, whose glibc takes more (and for a script without `#!` as much as its arguments), sees
/// that a quarter is never used.
const STACK_BYTES: usize = 12 * 1024;

/// A process was started that might send SIGSTOP to a child of its user.
static STARTED: AtomicBool = AtomicBool::new(false);

/// The differences between a child and its parent.
#[derive(Clone, Copy, Debug)]
pub struct ChildSetup {
    /// The signals' mask and dispositions.
    pub inherited: Inherited,
    /// User and group.
    pub user: Option<(u32, u32)>,
    pub oom_score_adj: Option<i32>,
    pub no_new_privs: bool,
    /// Raise the soft limit of open files to the hard one.
    pub raise_open_files: bool,
    /// Hand over the terminal that is open as stdin, if this is its foreground.
    pub take_terminal: bool,
}

/// The first three descriptors of a child.
#[derive(Clone, Copy, Debug)]
pub enum Streams<'a> {
    /// Inherits the agent's.
    Inherited,
    /// Its stdout goes nowhere.
    Silent,
    /// This is its stdin and stdout.
    Socket(BorrowedFd<'a>),
}

/// All that the child needs, made before it is there.
struct Order<'a> {
    words: Vec<*const c_char>,
    setup: ChildSetup,
    streams: Streams<'a>,
    oom: OomScore,
    parent: c_int,
    /// Why there was no exec: an `errno`, written by the child.
    error: c_int,
    /// The step before the exec that failed: one of `report::STEPS`.
    step: &'static str,
    /// The child has its own memory: the error goes in here.
    report: Option<PipeWriter>,
}

/// Starts a program, found by `PATH` unless it has a slash, in a process group of its own, and dying with this process.
///
/// # Errors
/// No process, or what the exec or the setting up said; then nothing is left of the child.
pub fn spawn(
    program: &OsStr,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    setup: ChildSetup,
    streams: Streams<'_>,
) -> io::Result<Pid> {
    let mut words = vec![c_string(program)?];
    for argument in arguments {
        words.push(c_string(argument.as_ref())?);
    }
    start(&words, setup, streams)
}

fn start(words: &[CString], setup: ChildSetup, streams: Streams<'_>) -> io::Result<Pid> {
    let ends = std::iter::once(ptr::null());
    let apart = STARTED.swap(true, Ordering::Relaxed) || setup.user.is_some();
    let (told, report) = if apart {
        let (told, report) = io::pipe()?;
        (Some(told), Some(report))
    } else {
        (None, None)
    };
    let mut order = Order {
        words: words.iter().map(|word| word.as_ptr()).chain(ends).collect(),
        setup,
        streams,
        oom: OomScore::new(setup.oom_score_adj),
        // Known before; in the child it would be the wrong question.
        parent: std::process::id().cast_signed(),
        error: 0,
        step: "",
        report,
    };
    let mut stack = Stack::new();
    // No handler of this process may run in the child.
    let mask = inherited::set_mask(u64::MAX);
    let borrowed = if apart {
        0
    } else {
        libc::CLONE_VM | libc::CLONE_VFORK
    };
    let argument = (&raw mut order).cast();
    // SAFETY: `child` keeps to what the module says; the stack and the order outlive it, since with CLONE_VFORK this
    // returns only when it has ended or is another program, and without CLONE_VM it has its own.
    let pid = unsafe { libc::clone(child, stack.top(), borrowed | libc::SIGCHLD, argument) };
    let failed = io::Error::last_os_error();
    // The exec wakes this process in its first steps, and on the same processor this would go on before the child does:
    // a fifth of a millisecond later for the proxy, and nothing here is as urgent.
    // SAFETY: `sched_yield` has no arguments, and its result says nothing.
    let _: c_int = unsafe { libc::sched_yield() };
    drop(order.report.take());
    let (error, step) = match told {
        Some(told) if pid > 0 => report::read(told),
        _ => {
            // SAFETY: the child has written it, if at all, before this process went on.
            let error = unsafe { (&raw const order.error).read_volatile() };
            // SAFETY: as above.
            (error, unsafe { (&raw const order.step).read_volatile() })
        }
    };
    inherited::set_mask(mask);
    debug_assert!(
        stack.unused() >= STACK_BYTES / 4,
        "the stack is large enough"
    );
    if pid < 0 {
        return Err(failed);
    }
    if error == 0 {
        return Ok(Pid(pid));
    }
    bury(pid);
    let error = io::Error::from_raw_os_error(error);
    if step.is_empty() {
        return Err(error);
    }
    // Without a number, so that it is not taken for what the exec said.
    let why = [step, " is refused: ", &error.to_string()].concat();
    Err(super::error(why))
}

/// Reaps the child whose exec failed: no other code knows its pid.
fn bury(pid: c_int) {
    // Also one that was stopped after its report.
    kill(Pid(pid), libc::SIGKILL);
    loop {
        // SAFETY: a null status is not written; the child has ended or is about to.
        let reaped = unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        if reaped >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break;
        }
    }
}

/// Memory for the child's stack.
#[repr(align(16))]
struct Stack([MaybeUninit<u8>; STACK_BYTES]);

impl Stack {
    /// The byte that a debug build looks for afterwards.
    const UNUSED: u8 = 0xA5;

    const fn new() -> Self {
        let byte = if cfg!(debug_assertions) {
            MaybeUninit::new(Self::UNUSED)
        } else {
            MaybeUninit::uninit()
        };
        Self([byte; STACK_BYTES])
    }

    /// Stacks grow down.
    fn top(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().wrapping_add(STACK_BYTES).cast()
    }

    /// Bytes of it that were never written; of a debug build.
    fn unused(&self) -> usize {
        // SAFETY: a debug build has filled all of it.
        let is_unused = |byte: &&MaybeUninit<u8>| unsafe { byte.assume_init() } == Self::UNUSED;
        self.0.iter().take_while(is_unused).count()
    }
}

/// The child, on its own stack in the agent's memory. It returns only when it has failed.
extern "C" fn child(order: *mut c_void) -> c_int {
    // SAFETY: `start` passes an order, and stands still meanwhile or has another one.
    let order = unsafe { &mut *order.cast::<Order<'_>>() };
    let error = match set_up(order) {
        Ok(()) => execute(&order.words),
        Err(error) => error,
    };
    order.error = error.raw_os_error().unwrap_or(libc::EIO);
    if let Some(report) = &mut order.report {
        // The agent may have given up: no signal for that, for then the code is all that tells.
        inherited::set_mask(u64::MAX);
        report::write(report, order.error, order.step);
    }
    if order.error == libc::ENOENT {
        127
    } else {
        126
    }
}

fn execute(words: &[*const c_char]) -> io::Error {
    if let Some(program) = words.first() {
        // SAFETY: the words are C strings with a null behind the last.
        let _: c_int = unsafe { libc::execvp(*program, words.as_ptr()) };
    }
    io::Error::last_os_error()
}

fn set_up(order: &mut Order<'_>) -> io::Result<()> {
    let setup = &order.setup;
    order.step = "a process group";
    // SAFETY: `setpgid` takes two integers.
    check(unsafe { libc::setpgid(0, 0) })?;
    order.step = "/dev/null";
    connect(order.streams)?;
    order.step = "--proxy-oom-score-adj";
    order.oom.write()?;
    order.step = "--proxy-user";
    if setup.raise_open_files {
        raise_open_files();
    }
    if let Some((uid, gid)) = setup.user {
        become_user(uid, gid)?;
    }
    order.step = "--no-new-privs";
    if setup.no_new_privs {
        // SAFETY: this `prctl` takes integers and touches no memory.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    }
    order.step = "a parent";
    // After the user, whose change would clear it.
    // SAFETY: this `prctl` takes integers and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
    // SAFETY: `getppid` has no arguments and cannot fail.
    if unsafe { libc::getppid() } != order.parent {
        // The agent died before the line above: nobody would send the signal.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    if setup.take_terminal {
        take_terminal();
    }
    inherited::set_dispositions(setup.inherited.ignored);
    inherited::set_mask(setup.inherited.mask);
    order.step = "";
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
        let fd = unsafe {
            libc::openat(
                libc::AT_FDCWD,
                FILE.as_ptr(),
                libc::O_WRONLY | libc::O_CLOEXEC,
            )
        };
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
    let _: c_int =
        unsafe { libc::prlimit(0, libc::RLIMIT_NOFILE, &raw const limit, ptr::null_mut()) };
}

fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    if super::effective_uid() == 0 {
        // SAFETY: no groups, so the list may be null.
        called(unsafe { libc::syscall(libc::SYS_setgroups, 0, ptr::null::<u32>()) })?;
    }
    // SAFETY: this system call takes an integer.
    called(unsafe { libc::syscall(libc::SYS_setgid, gid) })?;
    // SAFETY: this system call takes an integer.
    called(unsafe { libc::syscall(libc::SYS_setuid, uid) })
}

fn called(result: c_long) -> io::Result<()> {
    check(c_int::from(result != 0))
}

/// Puts the child's streams in their places; what is open above 2 closes itself at the exec.
fn connect(streams: Streams<'_>) -> io::Result<()> {
    match streams {
        Streams::Inherited => Ok(()),
        Streams::Silent => {
            let flags = libc::O_WRONLY | libc::O_CLOEXEC;
            // SAFETY: the path is a C string.
            let null = unsafe { libc::openat(libc::AT_FDCWD, c"/dev/null".as_ptr(), flags) };
            put(null, 1)
        }
        Streams::Socket(socket) => {
            put(socket.as_raw_fd(), 0)?;
            put(socket.as_raw_fd(), 1)
        }
    }
}

fn put(from: c_int, to: c_int) -> io::Result<()> {
    // SAFETY: `dup2` takes two integers; a bad one is refused.
    check(unsafe { libc::dup2(from, to) }.min(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(program: &str, user: Option<(u32, u32)>) -> io::Result<Pid> {
        let setup = ChildSetup {
            inherited: Inherited::get(),
            user,
            oom_score_adj: None,
            no_new_privs: false,
            raise_open_files: false,
            take_terminal: false,
        };
        spawn(OsStr::new(program), ["0"], setup, Streams::Inherited)
    }

    /// By its name, through the pipe.
    #[test]
    fn a_refused_step_is_told() {
        let setup = ChildSetup {
            inherited: Inherited::get(),
            user: Some((u32::MAX, u32::MAX)),
            oom_score_adj: None,
            no_new_privs: false,
            raise_open_files: false,
            take_terminal: false,
        };
        let sleep = OsStr::new("/bin/sleep");
        let refused = spawn(sleep, ["0"], setup, Streams::Inherited).unwrap_err();
        let text = refused.to_string();
        assert!(text.starts_with("--proxy-user is refused: "), "{text}");
    }

    /// Each way of telling, and the agent's memory stays its own.
    #[test]
    fn a_failed_exec_is_told_and_another_user_changes_nothing_here() {
        let user = (super::super::effective_uid() == 0).then_some((1337, 1338));
        for user in [user, None, None] {
            let absent = started("/absent", user).unwrap_err();
            assert_eq!(absent.raw_os_error(), Some(libc::ENOENT));
            let directory = started("/etc", user).unwrap_err();
            assert_eq!(directory.raw_os_error(), Some(libc::EACCES));
            let child = started("/bin/sleep", user).unwrap();
            bury(child.number());
        }
        // SAFETY: this `prctl` takes an integer and touches no memory.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }, 1);
    }
}
