//! The log has readers that do not read, and goes where it was told to, from the first word to the last.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::support::client::ask;
use super::support::{DEADLINE, Setup, kill, until};
use sys::testing;

const PINTLE: &str = env!("CARGO_BIN_EXE_pintle");

/// A proxy that stays and does nothing.
fn sleeper(directory: &Path) -> PathBuf {
    let path = directory.join("sleeper");
    fs::write(&path, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// An agent whose proxy is a sleeper, without anything outside its directory.
fn quiet(directory: &Path) -> Setup {
    Setup::bare(&sleeper(directory)).arg("--disable-hot-restart")
}

/// `init -v` says a line for each signal that it forwards: as many as it gets. It must go on forwarding whoever reads.
/// Returns once it has ended by TERM.
fn floods(stderr: impl Into<Stdio>, what: &str) {
    let mut init = Command::new(PINTLE)
        .args(["init", "-v", "--", "sleep", "1000"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let pid = i32::try_from(init.id()).unwrap();
    let children = format!("/proc/{pid}/task/{pid}/children");
    until("the command", || {
        let text = fs::read_to_string(&children).unwrap_or_default();
        (!text.is_empty()).then_some(())
    });
    // More than any buffer: 60 bytes each, one at a time.
    for _ in 0..4000 {
        kill(pid, libc::SIGWINCH);
        thread::sleep(Duration::from_micros(100));
    }
    kill(pid, libc::SIGTERM);
    let end = Instant::now() + Duration::from_secs(20);
    while init.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            let wait = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
            drop(init.kill());
            panic!("{what}: TERM is not obeyed; it waits in {wait:?}");
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(init.wait().unwrap().code(), Some(128 + libc::SIGTERM));
}

#[test]
fn a_terminal_that_nobody_reads_holds_up_nothing() {
    let (reader, its) = testing::terminal().unwrap();
    floods(its, "a terminal");
    drop(reader);
}

/// Another one writes to the same pipe, as a proxy does: room that was there is gone when the line comes.
#[test]
fn a_pipe_that_others_fill_holds_up_nothing() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut other = writer.try_clone().unwrap();
    let before = testing::status_flags(&writer).unwrap();
    let watched = writer.try_clone().unwrap();
    let filler = thread::spawn(move || while other.write_all(&[b'x'; 4096]).is_ok() {});
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let slow = thread::spawn(move || {
        let mut page = [0; 4096];
        while stopped.try_recv().is_err() {
            reader.read_exact(&mut page).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
    floods(writer, "a pipe");
    assert_eq!(
        testing::status_flags(&watched).unwrap(),
        before,
        "the others' descriptor"
    );
    stop.send(()).unwrap();
    slow.join().unwrap();
    filler.join().unwrap();
}

/// Who reads it later gets what there was room for.
#[test]
fn a_fifo_without_a_reader_is_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("fifo");
    testing::make_fifo(&log).unwrap();
    let mut agent = quiet(directory.path())
        .arg("--log-target")
        .arg(&log)
        .start();
    let status = agent.status.number;
    until("an answer", || {
        let live = ask(status, "GET /healthz/live HTTP/1.1\r\nHost: x\r\n\r\n");
        live.ok().filter(|reply| reply.status == 200)
    });
    let mut reader = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&log)
        .unwrap();
    let mut text = String::new();
    until("the first lines", || {
        drop(reader.read_to_string(&mut text));
        text.contains("epoch 0 started").then_some(())
    });
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143));
    reader.read_to_string(&mut text).unwrap();
    assert!(text.trim_end().ends_with("exit code 143"), "{text}");
}

/// USR1 opens what is there then.
#[test]
fn a_log_that_has_become_a_fifo_is_opened_anew() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("agent.log");
    let mut agent = quiet(directory.path())
        .arg("--log-target")
        .arg(&log)
        .start();
    until("the first epoch", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.contains("epoch 0 started").then_some(())
    });
    fs::remove_file(&log).unwrap();
    testing::make_fifo(&log).unwrap();
    agent.signal(libc::SIGUSR1);
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143));
}

/// Each sink is told what it has lost, and only that.
#[test]
fn lost_lines_are_told_to_the_sink_that_lost_them() {
    let directory = tempfile::tempdir().unwrap();
    let (log, whole) = (directory.path().join("fifo"), directory.path().join("file"));
    testing::make_fifo(&log).unwrap();
    let setup = quiet(directory.path()).args(&["--log-output-level", "debug"]);
    let agent = setup
        .arg("--log-target")
        .arg(&log)
        .arg("--log-target")
        .arg(&whole);
    let agent = agent.args(&["--live-timeout", "1h"]).start();
    until("the first epoch", || {
        let text = fs::read_to_string(&whole).unwrap_or_default();
        text.contains("epoch 0 started").then_some(())
    });
    let status = agent.status.number;
    let lost = || {
        let metrics = ask(status, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap()
            .text();
        let line = metrics
            .lines()
            .find(|line| line.starts_with("pintle_log_lines_lost_total"));
        line.unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    // Every one says a line: a hot restart that has to wait.
    until("lines that are lost", || {
        for _ in 0..200 {
            agent.signal(libc::SIGHUP);
            thread::sleep(Duration::from_micros(300));
        }
        (lost() > 3).then_some(())
    });
    let before = lost();
    let mut reader = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&log)
        .unwrap();
    let mut text = String::new();
    let told: u64 = until("the note", || {
        drop(reader.read_to_string(&mut text));
        agent.signal(libc::SIGHUP);
        let (head, _) = text.split_once(" log lines were lost")?;
        let mut numbers = head.rsplit(|c: char| !c.is_ascii_digit());
        numbers.next()?.parse().ok()
    });
    // The agent may have lost more between the two.
    assert!((before..=lost()).contains(&told), "{before}, {told}");
    let file = fs::read_to_string(&whole).unwrap();
    assert!(!file.contains("were lost"), "{file}");
}

/// Runs `words` as the agent in a mount namespace of its own, where `termination-log` in `directory` is
/// `/dev/termination-log`; the code, and what was said on stdout and stderr.
fn with_termination_log(directory: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let script = "
        mkdir -p $0/dev && mount -t tmpfs none $0/dev || exit 99
        cp -a /dev/null /dev/zero /dev/urandom $0/dev
        if [ -p $0/termination-log ]; then mkfifo $0/dev/termination-log
        else touch $0/dev/termination-log && mount --bind $0/termination-log $0/dev/termination-log; fi || exit 99
        mount --rbind $0/dev /dev || exit 99
        exec timeout 30 \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(directory)
        .arg(PINTLE)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// What is wrong with the flags goes where the flags say, and the same bytes to where Kubernetes looks.
#[test]
fn the_last_line_of_a_refused_start_goes_where_the_log_goes() {
    let directory = tempfile::tempdir().unwrap();
    let termination_log = directory.path().join("termination-log");
    let log = directory.path().join("log");
    let run = directory.path().join("run");
    let (log_name, run_name) = (log.to_str().unwrap(), run.to_str().unwrap());
    let file = ["--log-as-json", "--log-target", log_name];
    let table: [(&[&str], i32, &str); 8] = [
        (&["--no-such-flag"], 64, "unknown flag --no-such-flag"),
        (&["gateway"], 64, "unknown role gateway"),
        (&["-x"], 64, "unknown flag -x"),
        (
            &["--drain-duration", "5x"],
            78,
            "cannot use --drain-duration",
        ),
        (
            &["--lightstepAddress", "x:1"],
            78,
            "cannot use --lightstep-address",
        ),
        (
            &["--log-output-level=loud"],
            78,
            "cannot use --log-output-level",
        ),
        (
            &["--custom-config-file", "/absent.json"],
            78,
            "/absent.json",
        ),
        (&["--config-path", "/proc/none"], 71, "/proc/none"),
    ];
    for command in ["proxy", "run"] {
        for (wrong, expected, said) in table {
            let mut words = vec![command];
            if wrong[0] != "--config-path" {
                words.extend(["--config-path", run_name]);
            }
            words.extend(["--status-port", "0", "--disable-hot-restart"]);
            // Wherever the flag stands.
            if expected == 78 {
                words.extend(wrong);
                words.extend(file);
            } else {
                words.extend(file);
                words.extend(wrong);
            }
            words.extend(
                (command == "run")
                    .then_some(["--", "/bin/true"])
                    .into_iter()
                    .flatten(),
            );
            fs::write(&log, "").unwrap();
            fs::write(
                &termination_log,
                "of the last run, and longer than what comes, which must not be seen in it. "
                    .repeat(9),
            )
            .unwrap();
            let (code, stdout, stderr) = with_termination_log(directory.path(), &words);
            assert_eq!(code, Some(expected), "{words:?}: {stdout}{stderr}");
            assert_eq!((stdout.as_str(), stderr.as_str()), ("", ""), "{words:?}");
            let log = fs::read_to_string(&log).unwrap();
            let last = log.split_inclusive('\n').next_back().unwrap_or_default();
            let line: serde_json::Value = serde_json::from_str(last).unwrap();
            let message = line["msg"].as_str().unwrap();
            assert!(
                message.contains(said) && message.ends_with(&format!(", exit code {expected}")),
                "{last}"
            );
            assert_eq!(
                fs::read_to_string(&termination_log).unwrap(),
                last,
                "{words:?}"
            );
        }
    }
}

/// Where nothing is chosen a usage error is on stderr: a Job's stdout is the command's.
#[test]
fn a_usage_error_is_on_stderr_unless_a_log_is_chosen() {
    let directory = tempfile::tempdir().unwrap();
    let termination_log = directory.path().join("termination-log");
    fs::write(&termination_log, "").unwrap();
    let words = ["run", "--no-such-flag", "--", "/bin/true"];
    let (code, stdout, stderr) = with_termination_log(directory.path(), &words);
    assert_eq!((code, stdout.as_str()), (Some(64), ""));
    assert_eq!(fs::read_to_string(&termination_log).unwrap(), stderr);
    // So is a value that is none; of `proxy` it is in the log, which is on stdout.
    let words = ["run", "--drain-duration", "5x", "--", "/bin/true"];
    let (code, stdout, stderr) = with_termination_log(directory.path(), &words);
    assert_eq!((code, stdout.as_str()), (Some(78), ""));
    assert_eq!(fs::read_to_string(&termination_log).unwrap(), stderr);
    let words = ["proxy", "--drain-duration", "5x"];
    let (code, stdout, stderr) = with_termination_log(directory.path(), &words);
    assert_eq!((code, stderr.as_str()), (Some(78), ""));
    assert_eq!(fs::read_to_string(&termination_log).unwrap(), stdout);
    // A target that cannot be opened says so, and where the others are.
    let words = ["run", "--log-target", "/proc/none/log", "--", "/bin/true"];
    let (code, stdout, stderr) = with_termination_log(directory.path(), &words);
    assert_eq!((code, stdout.as_str()), (Some(71), ""));
    assert!(
        stderr.contains("cannot open log /proc/none/log"),
        "{stderr}"
    );
    assert_eq!(fs::read_to_string(&termination_log).unwrap(), stderr);
}

/// Also a whole life ends with the same bytes; a FIFO there, which nobody reads, holds up nothing.
#[test]
fn the_end_is_the_same_line_in_the_termination_log() {
    for is_fifo in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let termination_log = directory.path().join("termination-log");
        if is_fifo {
            testing::make_fifo(&termination_log).unwrap();
        } else {
            fs::write(&termination_log, "").unwrap();
        }
        let run = directory.path().join("run");
        let begun = Instant::now();
        let (code, stdout, stderr) = with_termination_log(
            directory.path(),
            &[
                "proxy",
                "--binary-path",
                "/bin/false",
                "--retry-budget",
                "0",
                "--disable-hot-restart",
                "--status-port",
                "0",
                "--log-as-json",
                "--config-path",
                run.to_str().unwrap(),
            ],
        );
        assert_eq!(code, Some(1), "{stdout}{stderr}");
        assert!(begun.elapsed() < DEADLINE, "{stdout}");
        if !is_fifo {
            let last = stdout.split_inclusive('\n').next_back().unwrap_or_default();
            assert_eq!(fs::read_to_string(&termination_log).unwrap(), last);
        }
    }
}

/// The first line says who it is.
#[test]
fn the_start_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let agent = quiet(directory.path())
        .args(&["--ip", "10.1.2.3", "--id", "p.n", "--domain", "d"])
        .start();
    agent.wait_log("at the end");
    let (admin, status) = (agent.admin.number, agent.status.number);
    let log = agent.log();
    let first = log.lines().next().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        first.contains(&format!("\tinfo\tpintle {version} (")),
        "{first}"
    );
    let rest = format!(
        "), sidecar, node sidecar~10.1.2.3~p.n~d, admin port {admin}, status port {status}"
    );
    assert!(first.ends_with(&rest), "{first}");
    assert_eq!(log.matches("node sidecar~").count(), 1, "{log}");
}

/// Whom the system refused something, and the flag that does without it.
#[test]
fn a_refusal_names_the_user_and_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    let refused = |user: &str, words: &[&str]| {
        let output = Command::new("setpriv")
            .args([
                "--reuid",
                user,
                "--clear-groups",
                PINTLE,
                "proxy",
                "--log-target",
                "stderr",
                "--disable-hot-restart",
            ])
            .args(["--status-port", "0", "--retry-budget", "0"])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let run = run.to_str().unwrap();
    let said = refused("65534", &["--config-path", "/root/none"]);
    assert!(said.contains("cannot prepare /root/none: Permission denied (os error 13) to user 65534; --config-path chooses another, exit code 71"), "{said}");
    let said = refused("65534", &["--log-target", "/root/log"]);
    assert!(said.contains("cannot open log /root/log: Permission denied (os error 13) to user 65534; --log-target chooses another"), "{said}");
    let said = refused("0", &["--config-path", run, "--binary-path", "/absent"]);
    assert!(said.contains("cannot start /absent: No such file or directory (os error 2); --binary-path chooses another"), "{said}");
    let said = refused(
        "65534",
        &[
            "--custom-config-file",
            "/etc/hostname",
            "--binary-path",
            "/bin/true",
            "--proxy-user",
            "1",
        ],
    );
    assert!(
        said.contains("only an agent that is root may have another --proxy-user"),
        "{said}"
    );
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = refused("0", &["--config-path", run, "--status-port", &port]);
    assert!(
        said.contains("; --status-port chooses another, 0 none, exit code 71"),
        "{said}"
    );
}

/// Envoy would say that it cannot open a region, five times, and abort.
#[test]
fn missing_shared_memory_is_said_with_the_flag_that_does_without() {
    for (flag, expected) in [("--base-id=auto", 1), ("--disable-hot-restart", 0)] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("termination-log"), "").unwrap();
        let run = directory.path().join("run");
        let (_, stdout, stderr) = with_termination_log(
            directory.path(),
            &[
                "proxy",
                "--binary-path",
                "/bin/false",
                "--retry-budget",
                "0",
                flag,
                "--status-port",
                "0",
                "--config-path",
                run.to_str().unwrap(),
            ],
        );
        let said =
            "/dev/shm is missing, and Envoy needs it: mount it, or use --disable-hot-restart";
        assert_eq!(stdout.matches(said).count(), expected, "{stdout}{stderr}");
    }
}
