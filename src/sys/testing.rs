//! The integration tests' calls of the operating system, so that they need no `unsafe` either. The agent has none of it: the
//! feature `testing` is of tests only.

use std::ffi::{CString, c_int, c_ulong};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::ptr;

use super::check;
use super::net::{self, size_of_u32};

/// `CAP_SYS_RESOURCE`, which lowers a score for the out-of-memory killer: capability(7).
const SYS_RESOURCE: c_ulong = 24;

/// Sends a signal to any process; nothing happens where there is none.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: `kill` takes two integers.
    let _: c_int = unsafe { libc::kill(pid, signal) };
}

/// Sends a signal that waits in a queue, as real-time ones do.
///
/// # Errors
/// The queue is full.
pub fn queue_signal(pid: i32, signal: i32) -> io::Result<()> {
    let value = libc::sigval {
        sival_ptr: ptr::null_mut(),
    };
    // SAFETY: `sigqueue` takes two integers and a value that nobody reads.
    check(unsafe { libc::sigqueue(pid, signal, value) })
}

/// The command gets the default action of the signals that a shell ignores for what it runs in the background.
pub fn heed_signals(command: &mut Command) {
    let heed = || {
        for number in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: `signal` takes an integer and a constant.
            if unsafe { libc::signal(number, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `signal` is async-signal-safe, and nothing else is called.
    unsafe { command.pre_exec(heed) };
}

/// The command leads a session of its own, on the terminal that is its stdin.
pub fn lead_session(command: &mut Command) {
    let lead = || {
        // SAFETY: `setsid` has no arguments.
        check(unsafe { libc::setsid() }.min(0))?;
        // SAFETY: this `ioctl` takes integers.
        check(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })
    };
    // SAFETY: `setsid` and `ioctl` are async-signal-safe, and nothing else is called.
    unsafe { command.pre_exec(lead) };
}

/// The command starts with this umask.
pub fn umask(command: &mut Command, mask: u32) {
    let set = move || {
        // SAFETY: `umask` takes an integer and cannot fail.
        let _: libc::mode_t = unsafe { libc::umask(mask) };
        Ok(())
    };
    // SAFETY: `umask` is async-signal-safe, and nothing else is called.
    unsafe { command.pre_exec(set) };
}

/// The command starts without a stdout.
pub fn close_stdout(command: &mut Command) {
    let close = || {
        // SAFETY: in the child, before its exec, nobody owns stdout but the program to come.
        check(unsafe { libc::close(1) })
    };
    // SAFETY: `close` is async-signal-safe, and nothing else is called.
    unsafe { command.pre_exec(close) };
}

/// The command may not lower its score for the out-of-memory killer, even as root.
pub fn drop_sys_resource(command: &mut Command) {
    let drop_it = || {
        // Who has no such capability may not drop it, and need not.
        // SAFETY: this `prctl` takes integers and touches no memory.
        let _: c_int = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, SYS_RESOURCE, 0, 0, 0) };
        Ok(())
    };
    // SAFETY: `prctl` is async-signal-safe, and nothing else is called.
    unsafe { command.pre_exec(drop_it) };
}

/// A new terminal: the end of who sits at it, and that of programs.
///
/// # Errors
/// No pseudo-terminal left.
pub fn terminal() -> io::Result<(File, File)> {
    let (mut person, mut program) = (0, 0);
    let (person_at, program_at) = (&raw mut person, &raw mut program);
    let (name, modes, size) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: two live integers are written; nothing is asked of name, modes and size.
    check(unsafe { libc::openpty(person_at, program_at, name, modes, size) })?;
    // SAFETY: the descriptor is new and nobody else's.
    let person = unsafe { File::from_raw_fd(person) };
    // SAFETY: as above.
    Ok((person, unsafe { File::from_raw_fd(program) }))
}

/// Makes a FIFO for its owner.
///
/// # Errors
/// The path is taken, or in a folder that is not there.
pub fn make_fifo(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string.
    check(unsafe { libc::mkfifo(path.as_ptr(), 0o600) })
}

/// The flags that the open file has: O_NONBLOCK, O_APPEND and others.
///
/// # Errors
/// None that is known.
pub fn status_flags(fd: impl AsFd) -> io::Result<i32> {
    // SAFETY: this `fcntl` takes two integers.
    let flags = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL) };
    check(flags.min(0))?;
    Ok(flags)
}

/// Moves this thread, and what it starts from now on, to a network of its own, with a loopback that is down.
///
/// # Errors
/// Only root may do that.
pub fn leave_network() -> io::Result<()> {
    // SAFETY: `unshare` takes an integer.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// Sets how many descriptors another process may have open.
///
/// # Errors
/// It is another user's, or there is none.
pub fn limit_open_files(pid: i32, soft: u64) -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `prlimit` writes to a live structure, and reads none.
    check(unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, ptr::null(), &raw mut limit) })?;
    limit.rlim_cur = soft;
    // SAFETY: `prlimit` reads a live structure, and writes none.
    check(unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, ptr::null_mut()) })
}

/// The close will be a reset, which leaves no waiting behind.
///
/// # Errors
/// None that is known.
pub fn reset_at_close(stream: &TcpStream) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let (value, size) = ((&raw const linger).cast(), size_of_u32::<libc::linger>());
    let fd = stream.as_raw_fd();
    // SAFETY: the pointer and the length describe `linger`, which outlives the call.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, size) })
}

/// Connects to a port of this machine from `source`, with segments and a window as small as may be: what is not read here
/// stays with the other side.
///
/// # Errors
/// There is no such address, or nobody listens.
pub fn connect_narrowly(source: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: `socket` takes three integers.
    let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
    check(fd.min(0))?;
    // SAFETY: the descriptor is new and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    net::set(&socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, 88)?;
    net::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 1)?;
    net::bind(&socket, SocketAddr::from((source, 0)))?;
    let to = net::ipv4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    let (place, size) = ((&raw const to).cast(), size_of_u32::<libc::sockaddr_in>());
    // SAFETY: the pointer and the length describe `to`, which outlives the call.
    check(unsafe { libc::connect(fd, place, size) })?;
    Ok(TcpStream::from(socket))
}
