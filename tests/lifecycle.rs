//! Start, crash, recovery, exit codes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::support::{DEADLINE, Setup, base_id_of, is_alive, kill, shared_memory, until};

#[test]
fn envoy_starts_serves_and_is_live() {
    let agent = Setup::new("hello").start();
    agent.wait_log("epoch 0 is LIVE");
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    agent.stop();
}

#[test]
fn a_killed_envoy_is_started_again() {
    let agent = Setup::new("hello").start();
    agent.wait_log("epoch 0 is LIVE");
    let first = agent.proxy_pid(0);
    kill(first, libc::SIGKILL);
    agent.wait_log("epoch 0 was killed by signal 9");
    agent.wait_log_times("epoch 0 is LIVE", 2);
    assert_ne!(agent.proxy_pid(0), first);
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    assert!(agent.log().contains("reason crash"));
    agent.stop();
}

/// Everything that the agent made is gone: processes, the bootstrap, the shared memory.
#[test]
fn the_end_leaves_nothing_behind() {
    let mut agent = Setup::written("hello").start();
    agent.wait_log("epoch 0 is LIVE");
    let pid = agent.proxy_pid(0);
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let words: Vec<_> = command_line
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    let at = words.iter().position(|word| word == "--base-id").unwrap();
    let memory = format!("/dev/shm/envoy_shared_memory_{}0", words[at + 1]);
    assert!(Path::new(&memory).exists());
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(0));
    assert!(!is_alive(pid));
    assert!(!Path::new(&memory).exists());
    assert_eq!(fs::read_dir(agent.path("run")).unwrap().count(), 0);
    assert!(
        agent
            .log()
            .trim_end()
            .ends_with("stopped on request (SIGTERM), exit code 0"),
        "{}",
        agent.log()
    );
}

#[test]
fn proxies_die_with_an_agent_that_is_killed() {
    let mut agent = Setup::new("hello").start();
    agent.wait_log("epoch 0 is LIVE");
    let pid = agent.proxy_pid(0);
    let memory = shared_memory(&base_id_of(&pid.to_string()).unwrap());
    assert!(memory.exists());
    agent.signal(libc::SIGKILL);
    agent.wait();
    until("the proxy's end", || (!is_alive(pid)).then_some(()));
    // Nobody else removes what is left of a killed agent whose base id is not asked for again.
    drop(agent);
    assert!(!memory.exists());
}

#[test]
fn envoy_ends_by_itself_and_the_agent_follows_with_0() {
    let mut agent = Setup::new("hello").start();
    agent.wait_log("epoch 0 is LIVE");
    kill(agent.proxy_pid(0), libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(0));
    assert!(
        agent
            .log()
            .contains("the proxy exited with code 0 by itself")
    );
}

#[test]
fn envoy_ends_by_itself_and_is_restarted_where_that_is_wanted() {
    let agent = Setup::new("hello")
        .args(&["--on-clean-exit", "restart"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    kill(agent.proxy_pid(0), libc::SIGTERM);
    agent.wait_log_times("epoch 0 is LIVE", 2);
    agent.stop();
}

/// A proxy that stays and does nothing.
fn sleeper(directory: &Path) -> PathBuf {
    let path = directory.join("sleeper");
    fs::write(&path, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Late certificates, in a directory that is not there yet; signals work meanwhile.
#[test]
fn mutual_tls_waits_for_the_certificates_and_obeys_term_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let certificates = directory.path().join("not/yet");
    let waiting = || {
        let mut setup = Setup::bare(&sleeper(directory.path()))
            .args(&["--control-plane-auth-policy", "MUTUAL_TLS"]);
        for side in ["SERVER", "CLIENT"] {
            for (part, file) in [
                ("CERT_CHAIN", "chain"),
                ("KEY", "key"),
                ("ROOT_CERT", "root"),
            ] {
                let path = certificates.join(file);
                let name = format!("ISTIO_META_TLS_{side}_{part}");
                setup = setup.env(&name, path.to_str().unwrap());
            }
        }
        let agent = setup.start();
        agent.wait_log("waiting for certificates");
        agent
    };
    let mut stopped = waiting();
    stopped.signal(libc::SIGTERM);
    assert_eq!(stopped.wait().code(), Some(143), "{}", stopped.log());
    assert!(
        !stopped.log().contains("epoch 0 started"),
        "{}",
        stopped.log()
    );

    let mut started = waiting();
    fs::create_dir_all(&certificates).unwrap();
    for file in ["chain", "key"] {
        fs::write(certificates.join(file), "x").unwrap();
    }
    assert!(
        !started.log().contains("epoch 0 started"),
        "one is missing still"
    );
    fs::write(certificates.join("root"), "x").unwrap();
    started.wait_log("epoch 0 started");
    started.signal(libc::SIGTERM);
    assert_eq!(started.wait().code(), Some(143), "{}", started.log());
}

/// Runs an agent whose proxy fails at once; its exit code.
fn code_with(binary: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let setup = Setup::bare(binary).args(&["--retry-budget", "1", "--retry-initial", "10ms"]);
    let custom = setup.path("cert.pem");
    let mut agent = setup
        .arg("--custom-config-file")
        .arg(custom)
        .args(arguments)
        .start();
    (agent.wait().code(), agent.log())
}

/// With the budget that everybody has, which takes 3 min 25 s.
#[test]
fn what_no_further_try_mends_ends_after_two_with_its_cause_last() {
    let ends = |setup: Setup, code, cause: &str| {
        let mut agent = setup.start();
        let status = agent.wait();
        let log = agent.log();
        assert_eq!(status.code(), Some(code), "{log}");
        let last = log.lines().last().unwrap();
        assert!(last.contains(cause), "{cause}: {log}");
        log.matches(" started: pid ").count()
    };
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    ends(
        Setup::bare(&absent),
        127,
        "(code 127): not found, see --binary-path, exit code 127",
    );
    ends(
        Setup::bare(folder.path()),
        126,
        "(code 126): not executable, exit code 126",
    );
    let run = Setup::of("run", &absent).args(&["--", "true"]);
    ends(
        run,
        127,
        "(code 127): not found, see --binary-path, exit code 127",
    );
    let refused = "exited with code 1: its configuration is refused or a port taken, its log says why, exit code 1";
    let setup = Setup::new("hello");
    setup.write(
        "envoy.json",
        r#"{"admin": {"no such": "field"}, "static_resources": 7}"#,
    );
    assert!(ends(setup, 1, refused) >= 2);
    let setup = Setup::new("hello");
    let _taken = std::net::TcpListener::bind(("127.0.0.1", setup.admin_port())).unwrap();
    assert!(ends(setup, 1, refused) >= 2);
}

#[test]
fn a_spent_budget_ends_with_the_proxys_own_code() {
    let directory = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let (code, log) = code_with(&script("seven", "#!/bin/sh\nexit 7\n"), &[]);
    assert_eq!(code, Some(7), "{log}");
    assert_eq!(log.matches("started: pid").count(), 2, "{log}");
    let (code, log) = code_with(&script("abort", "#!/bin/sh\nkill -ABRT $$\n"), &[]);
    assert_eq!(code, Some(134), "{log}");
    let (code, log) = code_with(&directory.path().join("absent"), &[]);
    assert_eq!(code, Some(127), "{log}");
    assert!(log.contains("cannot start "), "{log}");
    let (code, log) = code_with(directory.path(), &[]);
    assert_eq!(code, Some(126), "{log}");
}

#[test]
fn what_the_system_or_a_file_refuses_at_start_has_codes_of_its_own() {
    let absent =
        Setup::bare(Path::new("/bin/true")).args(&["--custom-config-file", "/absent.json"]);
    let mut agent = absent.start();
    assert_eq!(agent.wait().code(), Some(78), "{}", agent.log());
    assert!(agent.log().contains("/absent.json"), "{}", agent.log());

    let unwritable = Setup::bare(Path::new("/bin/true")).args(&["--config-path", "/proc/none"]);
    let mut agent = unwritable.start();
    assert_eq!(agent.wait().code(), Some(71), "{}", agent.log());
    assert!(agent.log().contains("/proc/none"), "{}", agent.log());

    let mut agent = Setup::bare(Path::new("/bin/true"))
        .arg("--no-such-flag")
        .start();
    assert_eq!(agent.wait().code(), Some(64), "{}", agent.log());
}

#[test]
fn a_base_id_in_use_is_reported_with_its_holder() {
    let first = Setup::new("first").start();
    first.wait_log("epoch 0 is LIVE");
    let pid = first.proxy_pid(0);
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let words: Vec<_> = line
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    let at = words.iter().position(|word| word == "--base-id").unwrap();
    let second = Setup::new("second").args(&["--base-id", &words[at + 1]]);
    let second = second.args(&["--retry-initial", "2s"]).start();
    second.wait_log(&format!("is in use by process {pid} (envoy"));
    // Tried again with the backoff: once the holder has gone, it works.
    first.stop();
    second.wait_log("epoch 0 is LIVE");
    assert_eq!(second.get().as_deref(), Ok("second"));
    second.stop();
}

/// The proxy's files and process belong to the user that was asked for.
#[test]
fn the_proxy_runs_as_another_user() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("not root: another user cannot be tried");
        return;
    }
    let user = [
        "--proxy-user",
        "1337:1338",
        "--no-new-privs",
        "--proxy-oom-score-adj",
        "321",
    ];
    // What another user's Envoy has left, on which this one would panic.
    let id = (1_000_000 + std::process::id() % 1_000_000).to_string();
    let stale = format!("/dev/shm/envoy_shared_memory_{id}0");
    fs::write(&stale, "left").unwrap();
    let setup = Setup::written("hello")
        .args(&user)
        .args(&["--base-id", &id]);
    // The other user must reach the configuration.
    fs::set_permissions(setup.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let agent = setup.start();
    agent.wait_log("epoch 0 is LIVE");
    let pid = agent.proxy_pid(0);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in ["Uid:\t1337\t1337", "Gid:\t1338\t1338", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line} in {status}");
    }
    let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert_eq!(score.trim(), "321");
    let directory = fs::metadata(agent.path("run")).unwrap();
    assert_eq!((directory.uid(), directory.mode() & 0o7777), (1337, 0o700));
    agent.stop();
}

/// What a child is started with: mask, ignored signals, descriptors. A script stands in for Envoy, which changes its
/// own; it is compared with itself, started without the agent.
#[test]
fn a_proxy_gets_exactly_the_signals_and_descriptors_that_the_agent_got() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("show");
    let text = "#!/usr/bin/env python3
import os, resource, time
lines = open('/proc/self/status').read().splitlines()
print([line for line in lines if line.startswith(('SigBlk', 'SigIgn'))])
print('soft is hard:', len(set(resource.getrlimit(resource.RLIMIT_NOFILE))) == 1)
# The listing itself holds one more.
print('descriptors:', len(os.listdir('/proc/self/fd')) - 1)
print('leads a group:', os.getpgrp() == os.getpid(), flush=True)
if os.getenv('STAY'): time.sleep(1000)
";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    // HUP ignored and PIPE not, USR2 and a real-time signal blocked, and 32 to 34, which no C library blocks; a stray
    // descriptor, a low soft limit.
    let wrapper = format!(
        "
import ctypes, os, resource, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, 40])
ctypes.CDLL(None).syscall({}, signal.SIG_BLOCK, ctypes.byref(ctypes.c_uint64(7 << 31)), None, 8)
resource.setrlimit(resource.RLIMIT_NOFILE, (99, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.dup2(os.open('/dev/zero', os.O_RDONLY), 9)
os.execvp(sys.argv[1], sys.argv[1:])",
        libc::SYS_rt_sigprocmask
    );
    let started = |name: &str, words: &[&std::ffi::OsStr]| {
        let out = directory.path().join(name);
        let child = Command::new("python3")
            .args(["-c", &wrapper])
            .args(words)
            .env("STAY", if words.len() > 1 { "1" } else { "" })
            .stdout(fs::File::create(&out).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let shown = until("the script's output", || {
            let text = fs::read_to_string(&out).unwrap();
            text.contains("leads a group").then_some(text)
        });
        (child, shown)
    };
    let (mut alone, expected) = started("alone", &[script.as_os_str()]);
    alone.wait().unwrap();
    let run = directory.path().join("run");
    let pintle = std::ffi::OsStr::new(env!("CARGO_BIN_EXE_pintle"));
    let words = [
        pintle,
        "proxy".as_ref(),
        "--custom-config-file".as_ref(),
        script.as_os_str(),
        "--config-path".as_ref(),
        run.as_os_str(),
        "--binary-path".as_ref(),
        script.as_os_str(),
        "--base-id".as_ref(),
        "auto".as_ref(),
        "--log-target".as_ref(),
        "stderr".as_ref(),
        "--status-port".as_ref(),
        "0".as_ref(),
    ];
    let (mut child, shown) = started("below", &words);
    kill(i32::try_from(child.id()).unwrap(), libc::SIGTERM);
    child.wait().unwrap();
    assert!(
        expected.contains("SigBlk:\\t0000008380000800"),
        "{expected}"
    );
    assert_eq!(shown.lines().next(), expected.lines().next(), "the signals");
    assert!(!expected.contains("descriptors: 3"), "{expected}");
    assert!(expected.contains("soft is hard: False"), "{expected}");
    assert!(shown.contains("descriptors: 3"), "{shown}");
    assert!(
        shown.contains("soft is hard: True") && shown.contains("leads a group: True"),
        "{shown}"
    );
}

/// The kernel keeps no dead child of a process that ignores their ends: the agent must not be one for a moment.
#[test]
fn the_end_of_a_proxy_is_noticed_where_sigchld_was_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    // On one processor the proxy goes first, and ends before the agent goes on.
    let wrapper = "
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
os.execvp(sys.argv[1], sys.argv[1:])";
    for _ in 0..20 {
        let mut agent = Command::new("python3")
            .args(["-c", wrapper, env!("CARGO_BIN_EXE_pintle"), "proxy"])
            .args([
                "--binary-path",
                "/bin/false",
                "--retry-budget",
                "0",
                "--base-id",
                "auto",
            ])
            .args([
                "--watch-certificates=false",
                "--status-port",
                "0",
                "--config-path",
            ])
            .arg(&run)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let end = Instant::now() + DEADLINE;
        while agent.try_wait().unwrap().is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        // One that has not noticed would stay.
        drop(agent.kill());
        assert_eq!(agent.wait().unwrap().code(), Some(1));
    }
}

/// However little is left for what comes after it.
#[test]
fn what_is_wrong_with_the_bootstrap_is_said_without_descriptors() {
    for limit in 7..10 {
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        let run = tempfile::tempdir().unwrap();
        let output = Command::new("/bin/sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_pintle"), "proxy"])
            .args([
                "--disable-hot-restart",
                "--template-file",
                "/not/there",
                "--status-port",
                "0",
                "--log-target",
                "stderr",
                "--config-path",
            ])
            .arg(run.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("cannot read template /not/there"),
            "{limit}: {said}"
        );
        assert_eq!(output.status.code(), Some(78), "{limit}: {said}");
    }
}

/// A reader of the log that stops reading stops nothing.
#[test]
fn a_full_log_pipe_does_not_block_the_agent() {
    let agent = Setup::new("hello").args(&["--log-output-level", "debug"]);
    let fifo = agent.path("fifo");
    sys::testing::make_fifo(&fifo).unwrap();
    // Both ends held here, nothing ever read.
    let pipe = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo)
        .unwrap();
    let mut agent = agent.arg("--log-target").arg(&fifo).start();
    until("LIVE", || agent.get().ok());
    for _ in 0..3000 {
        agent.signal(libc::SIGHUP);
        thread::sleep(Duration::from_micros(300));
    }
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(0));
    drop(pipe);
}

/// SIGSTOP stands for a main thread that hangs: connections are taken, and nothing is answered.
#[test]
fn a_proxy_that_hangs_is_killed_and_started_again() {
    let agent = Setup::new("hello")
        .args(&["--proxy-hang-timeout", "2s"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    // It answers for longer than the time-out.
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        assert_eq!(agent.get().as_deref(), Ok("hello"));
        thread::sleep(Duration::from_millis(100));
    }
    let hung = agent.proxy_pid(0);
    assert!(!agent.log().contains("hangs"), "{}", agent.log());
    kill(hung, libc::SIGSTOP);
    agent.wait_log("epoch 0 hangs, killing it: its admin port is silent for ");
    agent.wait_log("epoch 0 was killed by signal 9");
    agent.wait_log_times("epoch 0 is LIVE", 2);
    assert!(!is_alive(hung));
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    agent.stop();
}

/// A cgroup of 64 MB for one test, where the machine lets us make one.
struct Cramped(PathBuf);

impl Cramped {
    fn new() -> Option<Self> {
        let name = format!("pintle_test_{}", std::process::id());
        [
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ]
        .iter()
        .find_map(|(mount, limit)| {
            let path = Path::new(mount).join(&name);
            fs::create_dir(&path).ok()?;
            let made = Self(path);
            // Not a cgroup, or one without a limit, has no such file.
            let limit = fs::OpenOptions::new().write(true).open(made.0.join(limit));
            limit.ok()?.write_all(b"67108864").ok()?;
            Some(made)
        })
    }
}

impl Drop for Cramped {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.0));
    }
}

#[test]
fn a_proxy_that_died_for_the_want_of_memory_is_told_from_one_that_somebody_killed() {
    let Some(cgroup) = Cramped::new() else {
        eprintln!("no cgroup with a limit can be made here: nothing is shown");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let procs = cgroup.0.join("cgroup.procs");
    let pintle = env!("CARGO_BIN_EXE_pintle");
    let agent = script(
        "agent",
        &format!("#!/bin/sh\necho $$ > {procs:?} || exit 9\nexec {pintle} \"$@\"\n"),
    );
    for (command, words) in [
        ("exec /usr/bin/tail /dev/zero", "(SIGKILL, out of memory)"),
        // The cgroup has counted one by now.
        ("kill -9 $$", "(SIGKILL)"),
    ] {
        let proxy = script("proxy", &format!("#!/bin/sh\n{command}\n"));
        let mut agent = Setup::with(&agent, "proxy", &proxy)
            .args(&["--retry-budget", "0"])
            .start();
        assert_eq!(agent.wait().code(), Some(137));
        let log = agent.log();
        let warning = format!("\twarn\tepoch 0 was killed by signal 9 {words}\n");
        assert!(log.contains(&warning), "{log}");
        assert!(log.ends_with(&format!("{words}, exit code 137\n")), "{log}");
    }
}
