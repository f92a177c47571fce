//! A true PID 1, in a PID namespace of its own: `unshare --pid --fork --mount-proc`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may panic, wait and read the clock"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PINTLE: &str = env!("CARGO_BIN_EXE_pintle");
const DEADLINE: Duration = Duration::from_secs(60);

/// `pintle init` as PID 1 of a new namespace, running `script` in a shell.
fn init_of(flags: &[&str], script: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .args([
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            PINTLE,
            "init",
        ])
        .args(flags);
    command
        .args(["--", "sh", "-c", script])
        .stdin(Stdio::null());
    command
}

fn code(script: &str) -> Option<i32> {
    init_of(&[], script).status().unwrap().code()
}

/// The namespace's PID 1 as the outside sees it: the child of unshare.
fn pid_of_init(unshare: &Child) -> i32 {
    let children = format!("/proc/{0}/task/{0}/children", unshare.id());
    let end = Instant::now() + DEADLINE;
    loop {
        if let Ok(text) = fs::read_to_string(&children)
            && let Some(pid) = text.split_whitespace().next()
        {
            return pid.parse().unwrap();
        }
        assert!(Instant::now() < end, "unshare has no child");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_commands_code_is_returned() {
    assert_eq!(code("exit 0"), Some(0));
    assert_eq!(code("exit 7"), Some(7));
    assert_eq!(code("kill -KILL $$"), Some(137));
    assert_eq!(code("kill -SEGV $$"), Some(139));
}

#[test]
fn a_command_that_cannot_be_run_has_the_code_of_a_shell() {
    let run = |program: &str| {
        let output = Command::new(PINTLE)
            .args(["init", "--", program])
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, error) = run("/absent");
    assert_eq!(code, Some(127));
    assert!(error.contains("cannot run /absent: "), "{error}");
    assert_eq!(run("/etc").0, Some(126));
    let plain = tempfile::NamedTempFile::new().unwrap();
    fs::set_permissions(plain.path(), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(run(plain.path().to_str().unwrap()).0, Some(126));
}

/// Orphans of every kind become PID 1's children and are reaped; none stays a zombie.
#[test]
fn orphans_are_reaped() {
    let script = "
        echo $$
        for i in 1 2 3 4 5 6 7 8 9 10; do (sh -c 'sleep 0.1 & exit 0' &) ; done
        n=0
        while [ $n -lt 500 ]; do
            left=$(grep -l '^PPid:.1$' /proc/[0-9]*/status 2>/dev/null | wc -l)
            zombies=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l)
            [ $left -le 1 ] && [ $zombies -eq 0 ] && [ $n -gt 10 ] && exit 0
            sleep 0.02; n=$((n+1))
        done
        grep -H State /proc/[0-9]*/status
        exit 1";
    let output = init_of(&[], script).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    // The command is not PID 1: pintle is.
    assert!(!output.stdout.starts_with(b"1\n"));
}

/// PID 1 gets no signal that it has not asked for: one that comes while the command line is read would be thrown away. In some of
/// ten tries, because the kernel's and the C library's part of a start comes first.
#[test]
fn a_signal_that_comes_while_the_command_line_is_read_is_not_lost() {
    // Some 100 ms of reading.
    let flags = vec!["--verbose=false"; 30_000];
    let forwarded = (0..10).filter(|_| {
        let mut unshare = init_of(&flags, "exec sleep 1000").spawn().unwrap();
        let pid = pid_of_init(&unshare);
        let name = format!("/proc/{pid}/comm");
        let end = Instant::now() + DEADLINE;
        while fs::read_to_string(&name).unwrap() != "pintle\n" {
            assert!(Instant::now() < end, "pintle was not started");
        }
        std::thread::sleep(Duration::from_millis(5));
        sys::testing::kill(pid, libc::SIGTERM);
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            if let Some(status) = unshare.try_wait().unwrap() {
                return status.code() == Some(143);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        sys::testing::kill(pid, libc::SIGKILL);
        unshare.wait().unwrap();
        false
    });
    let forwarded = forwarded.count();
    assert!(forwarded > 1, "{forwarded} of 10");
}

/// Not PID 1, it adopts orphans all the same.
#[test]
fn orphans_below_an_init_that_is_not_pid_1_are_its_children() {
    let script = "(sh -c 'while [ $(cut -d\" \" -f4 /proc/$$/stat) != '$PPID' ]; do sleep 0.01; done; echo adopted' &); sleep 60 & wait";
    let mut child = Command::new(PINTLE)
        .args(["init", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(next(&mut lines), "adopted");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Prints every signal that it gets.
const PRINTER: &str = concat!(
    "exec python3 ",
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/signals.py"
);

/// Killed with the test that fails.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts what runs `PRINTER`, and waits until that listens.
fn listening(command: &mut Command) -> (Started, BufReader<std::process::ChildStdout>) {
    let mut started = Started(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(started.0.stdout.take().unwrap());
    assert_eq!(next(&mut lines), "waiting");
    (started, lines)
}

fn next(lines: &mut impl BufRead) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Also those without a default action for a PID 1, those that stop, those that a fault raises, and real-time ones with
/// those that a C library keeps to itself: 32 and 33 are glibc's, and musl's is 34, too.
fn all_are_forwarded(pid: i32, lines: &mut impl BufRead) {
    const LAST: i32 = 64;
    // KILL and STOP cannot be caught, and CHLD tells of a child of pintle's own. TERM ends the printer.
    let other_ways = [9, 15, 17, 19];
    for number in (1..=LAST).filter(|number| !other_ways.contains(number)) {
        sys::testing::kill(pid, number);
        let is_queued = (32..LAST).contains(&number);
        if is_queued {
            // If one is lost, this comes instead.
            sys::testing::kill(pid, LAST);
        }
        assert_eq!(next(lines), format!("got {number}"));
        if is_queued {
            assert_eq!(next(lines), format!("got {LAST}"));
        }
    }
    sys::testing::kill(pid, 15);
    assert_eq!(next(lines), "got 15");
}

#[test]
fn every_signal_is_forwarded() {
    let (mut unshare, mut lines) = listening(&mut init_of(&[], PRINTER));
    all_are_forwarded(pid_of_init(&unshare.0), &mut lines);
    assert_eq!(unshare.0.wait().unwrap().code(), Some(7));
}

#[test]
fn every_signal_is_forwarded_by_an_init_that_is_not_pid_1() {
    let mut init = Command::new(PINTLE);
    init.args(["init", "--", "sh", "-c", PRINTER])
        .stdin(Stdio::null());
    let (mut init, mut lines) = listening(&mut init);
    all_are_forwarded(init.0.id().cast_signed(), &mut lines);
    assert_eq!(init.0.wait().unwrap().code(), Some(7));
}

#[test]
fn with_g_the_whole_group_gets_the_signal() {
    // The outer shell ends with what the inner one did about the signal, in the time that it has.
    let script = |patience: u32| {
        format!(
            "
        told=$(mktemp -u)
        trap 'n=0; while [ ! -e $told ] && [ $n -lt {patience} ]; do sleep 0.02; n=$((n+1)); done
              [ -e $told ] && rm $told && exit 3; exit 4' TERM
        (trap '>$told; exit 0' TERM; echo ready; while :; do sleep 0.02; done) &
        while :; do wait; done"
        )
    };
    for (flags, patience, expected) in [(&["-g"][..], 3000, 3), (&[][..], 20, 4)] {
        let mut child = init_of(flags, &script(patience))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        assert_eq!(next(&mut lines), "ready");
        sys::testing::kill(pid_of_init(&child), libc::SIGTERM);
        assert_eq!(child.wait().unwrap().code(), Some(expected), "{flags:?}");
    }
}

/// Mask and dispositions as pintle got them, descriptors and limits too: that is what an init must not change.
#[test]
fn the_command_gets_what_pintle_got() {
    // Python as the reporter: a shell would change its own mask. It is compared with itself, without pintle.
    let show = "import os, resource
lines = open('/proc/self/status').read().splitlines()
print([line for line in lines if line.startswith(('SigBlk', 'SigIgn'))], os.readlink('/proc/self/fd/9'), resource.getrlimit(resource.RLIMIT_NOFILE))";
    // 32 to 34 by the bare system call: no C library blocks them.
    let wrapper = format!(
        "
import ctypes, os, resource, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTSTP, 40])
ctypes.CDLL(None).syscall({}, signal.SIG_BLOCK, ctypes.byref(ctypes.c_uint64(7 << 31)), None, 8)
resource.setrlimit(resource.RLIMIT_NOFILE, (99, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.dup2(os.open('/dev/zero', os.O_RDONLY), 9)
os.execvp(sys.argv[1], sys.argv[1:])",
        libc::SYS_rt_sigprocmask
    );
    let run = |words: &[&str]| {
        let output = Command::new("python3")
            .args(["-c", &wrapper])
            .args(words)
            .args(["python3", "-c", show])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = run(&[]);
    assert!(plain.contains("SigBlk:\\t0000008380080800"), "{plain}");
    assert!(plain.contains("/dev/zero (99, "), "{plain}");
    assert_eq!(run(&[PINTLE, "init", "--"]), plain);
}

#[test]
fn the_command_dies_with_pintle() {
    let mut child = Command::new(PINTLE)
        .args(["init", "--", "sleep", "1000"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let command = pid_of_init(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    let end = Instant::now() + DEADLINE;
    while fs::read_to_string(format!("/proc/{command}/comm")).is_ok_and(|name| name == "sleep\n") {
        let state = fs::read_to_string(format!("/proc/{command}/stat")).unwrap_or_default();
        if state.contains(") Z ") {
            break;
        }
        assert!(Instant::now() < end, "the command outlived pintle");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A foreground terminal goes to the command: `script` gives one, and the command asks for its group.
#[test]
fn a_terminal_is_handed_over() {
    let show = format!(
        "{PINTLE} init -- python3 -c 'import os; print(\"foreground\" if os.tcgetpgrp(0) == os.getpgrp() else \"background\")'"
    );
    let output = Command::new("script")
        .args(["-qec", &show, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("foreground"), "{shown}");
}

/// The proxy agent as PID 1: a real Envoy below it, an orphan reaped, TERM ends all with the documented code.
#[test]
fn the_agent_is_a_true_pid_1() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = directory.path().join("proxy");
    // A proxy that leaves orphans, as exec probes do.
    let text = "#!/bin/sh\n(sleep 0.1 &)\n(sleep 0.2 &)\nexec sleep 1000\n";
    fs::write(&proxy, text).unwrap();
    fs::set_permissions(&proxy, fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = Command::new("unshare")
        .args([
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            PINTLE,
            "proxy",
        ])
        .arg("--binary-path")
        .arg(&proxy)
        .arg("--config-path")
        .arg(directory.path().join("run"))
        .args(["--base-id", "auto", "--log-output-level", "debug"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let (mut seen, mut orphans) = (String::new(), 0);
    while orphans < 2 {
        let line = next(&mut lines);
        assert!(!line.is_empty(), "the agent ended: {seen}");
        orphans += usize::from(line.contains("reaped orphan"));
        seen.push_str(&line);
    }
    sys::testing::kill(pid_of_init(&child), libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
