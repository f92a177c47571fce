//! This process's children, adopted ones among them.

use std::io;
use std::mem::MaybeUninit;

use super::Pid;
use super::open::{OPEN_READ, open};

/// The children of the only thread, as the kernel lists them.
const LIST: &str = "/proc/thread-self/children";
/// The longest list, in bytes: of more processes than Linux can have (4 million).
const LIST_BYTES: u64 = 64 << 20;

/// The longest line of /proc/PID/stat, in bytes: 52 numbers of up to 20 digits and a name of 16 bytes.
const STAT_BYTES: u64 = 2048;

/// Whether there is a child, dead or alive.
#[must_use]
pub fn has_children() -> bool {
    waits_for(libc::P_ALL, 0)
}

/// The children that have not been reaped. One that is reaped meanwhile may cost another its place in the list: look again.
///
/// # Errors
/// There is no /proc, or the kernel keeps no such list (CONFIG_PROC_CHILDREN).
pub fn children() -> io::Result<Vec<Pid>> {
    let list = super::read_whole(&mut open(LIST.as_ref(), OPEN_READ, 0)?, LIST_BYTES)?;
    let list = String::from_utf8(list).unwrap_or_default();
    let mut children = Vec::new();
    for number in list.split_ascii_whitespace() {
        // As a type that the agent parses anyway: the function for another one is 200 bytes.
        let number = number.parse().ok().and_then(|n: u64| i32::try_from(n).ok());
        // A /proc of another pid namespace would name strangers: only who can be waited for is a child.
        if let Some(number) = number.filter(|n| waits_for(libc::P_PID, n.unsigned_abs())) {
            children.push(Pid(number));
        }
    }
    Ok(children)
}

/// Whether somebody has stopped it, by SIGSTOP or with a debugger; not known without /proc.
#[must_use]
pub fn is_stopped(pid: Pid) -> bool {
    let path = ["/proc/", &pid.0.unsigned_abs().to_string(), "/stat"].concat();
    let line = open(path.as_ref(), OPEN_READ, 0)
        .and_then(|mut file| super::read_whole(&mut file, STAT_BYTES));
    // The state follows the program's name, which is in brackets and may hold any byte.
    let line = line.unwrap_or_default();
    let after = line.rsplit(|byte| *byte == b')').next();
    matches!(after, Some([b' ', b'T' | b't', ..]))
}

/// Whether such a child could be waited for.
fn waits_for(kind: libc::idtype_t, number: libc::id_t) -> bool {
    let mut unused = MaybeUninit::<libc::siginfo_t>::uninit();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `waitid` writes to live memory of the right type; with these options it reaps nobody and returns at once.
    unsafe { libc::waitid(kind, number, unused.as_mut_ptr(), options) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child of the test's")]
    fn a_child_is_listed_until_it_is_reaped_and_a_stranger_is_none() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let number = child.id();
        assert!(has_children());
        assert!(waits_for(libc::P_PID, number));
        assert!(!waits_for(libc::P_PID, 1), "not a child of this process");
        // Other tests have threads and children of their own: it is this thread that has started this one.
        let listed = children().unwrap();
        assert!(
            listed
                .iter()
                .any(|pid| pid.number().unsigned_abs() == number)
        );
        child.kill().unwrap();
        assert!(waits_for(libc::P_PID, number), "dead, not reaped");
        child.wait().unwrap();
        assert!(!waits_for(libc::P_PID, number));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child of the test's")]
    fn a_process_stopped_by_a_signal_or_a_debugger_is_recognized() {
        let folder = tempfile::tempdir().unwrap();
        // The state follows the name.
        let program = folder.path().join("a) T (b");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("1000").spawn().unwrap();
        let pid = Pid(i32::try_from(child.id()).unwrap());
        let becomes = |stopped: bool| {
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while is_stopped(pid) != stopped {
                assert!(std::time::Instant::now() < end, "in vain: {stopped}");
                std::thread::yield_now();
            }
        };
        becomes(false);
        crate::kill(pid, libc::SIGSTOP);
        becomes(true);
        crate::kill(pid, libc::SIGCONT);
        becomes(false);
        let unused = std::ptr::null_mut::<libc::c_int>();
        // SAFETY: PTRACE_ATTACH takes an integer and ignores both pointers.
        let attached = unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid.0, unused, unused) };
        assert_eq!(attached, 0);
        becomes(true);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(pid));
    }
}
