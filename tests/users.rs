//! A proxy's user who means harm to the agent.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::support::client::asked;
use super::support::{Setup, is_alive, kill, quick, until};

/// The proxy is nothing, and leaves somebody behind who stops every process that he may, without end.
const STOPPER: &str = "#!/usr/bin/python3
import os, signal, sys, time
directory = os.path.dirname(os.path.abspath(sys.argv[0]))
try: os.mkdir(directory + '/open/begun')
except FileExistsError: time.sleep(1000)
if os.fork() == 0:
    os.setsid()
    while True:
        try: os.kill(-1, signal.SIGSTOP)
        except OSError: pass
time.sleep(1000)
";

/// The agent as PID 1 of a namespace of its own: nobody else is stopped.
fn contained(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("contained");
    let pintle = env!("CARGO_BIN_EXE_pintle");
    let text = format!(
        "#!/bin/sh\nexec /usr/bin/unshare --pid --fork --mount-proc --kill-child {pintle} \"$@\"\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Between the change of user and the exec of the proxy its user may stop it: then only the proxy stands still. The same
/// for those that are started without another user, where the agent's own is the proxy's.
#[test]
fn who_stops_proxies_that_start_does_not_stop_the_agent() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("not root: another user cannot be tried");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let binary = directory.path().join("stopper");
    fs::write(&binary, STOPPER).unwrap();
    fs::create_dir(directory.path().join("open")).unwrap();
    for (path, mode) in [(".", 0o755), ("stopper", 0o755), ("open", 0o777)] {
        let path = directory.path().join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut agent = Setup::with(&contained(directory.path()), "proxy", &binary)
        .args(&["--proxy-user", "1337", "--disable-hot-restart"])
        .args(&["--live-timeout", "200ms", "--kill-timeout", "100ms"])
        .args(&["--retry-initial", "10ms", "--retry-budget", "1000"])
        .start();
    let status = agent.status.number;
    let children = format!("/proc/{0}/task/{0}/children", agent.child.id());
    let pid: i32 = until("PID 1", || {
        let text = fs::read_to_string(&children).ok()?;
        text.split_whitespace().next()?.parse().ok()
    });
    until("the stopper", || {
        directory.path().join("open/begun").exists().then_some(())
    });
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        kill(pid, libc::SIGHUP);
        quick("liveness", Duration::from_secs(1), || {
            assert_eq!(asked(status, "GET /healthz/live").status, 200);
        });
        thread::sleep(Duration::from_millis(50));
    }
    agent.wait_log_times("started: pid", 4);
    kill(pid, libc::SIGTERM);
    assert!(
        matches!(agent.wait().code(), Some(137 | 143)),
        "{}",
        agent.log()
    );
}

/// The kernel forgets, with a change of user, that a process is to die with its parent.
#[test]
fn a_proxy_of_another_user_dies_with_the_agent() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("not root: another user cannot be tried");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let binary = directory.path().join("sleeper");
    fs::write(&binary, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    for path in [directory.path(), &binary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut agent = Setup::bare(&binary)
        .args(&["--proxy-user", "1337", "--disable-hot-restart"])
        .start();
    agent.wait_log("epoch 0 started");
    let pid = agent.proxy_pid(0);
    // The start is over once the program runs: what is set before its exec counts.
    until("the proxy's exec", || {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name == "sleep\n").then_some(())
    });
    agent.signal(libc::SIGKILL);
    agent.wait();
    until("the proxy's end", || (!is_alive(pid)).then_some(()));
}

/// A program that cannot be started under the other user is reported as ever.
#[test]
fn what_the_other_user_may_not_execute_is_said() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("not root: another user cannot be tried");
        return;
    }
    for (binary, code, cause) in [
        ("/absent", 127, "No such file or directory (os error 2)"),
        (
            "/etc",
            126,
            "Permission denied (os error 13) to user 1337\n",
        ),
    ] {
        let mut agent = Setup::bare(Path::new(binary))
            .args(&[
                "--proxy-user",
                "1337",
                "--retry-budget",
                "0",
                "--disable-hot-restart",
            ])
            .start();
        assert_eq!(agent.wait().code(), Some(code), "{}", agent.log());
        let log = agent.log();
        let said = format!("cannot start {binary}: {cause}");
        assert!(log.contains(&said), "{log}");
    }
}
