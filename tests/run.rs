//! A command beside the real Envoy: when it starts, what reaches it, whose code it is, and what is left of it.

use std::fs;
use std::io::Write;

use serde_json::json;

use super::support::{
    Agent, Setup, configuration, direct, envoy, get, is_alive, kill, port, until,
};

fn number(log: &str, marker: &str) -> i32 {
    let (_, rest) = log
        .rsplit_once(marker)
        .unwrap_or_else(|| panic!("no {marker} in {log}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// The pid of the command.
fn command(agent: &Agent) -> i32 {
    agent.wait_log("command started: pid ");
    number(&agent.log(), "command started: pid ")
}

/// `pintle run` with a script for bash as its command.
fn script(setup: Setup, script: &str) -> Agent {
    setup.args(&["--", "/bin/bash", "-c", script]).start()
}

fn in_order(log: &str, texts: &[&str]) {
    let mut rest = log;
    for text in texts {
        let (_, after) = rest
            .split_once(text)
            .unwrap_or_else(|| panic!("no {text:?}, or not in its place, in:\n{log}"));
        rest = after;
    }
}

/// Says `ready`, then waits; each signal of `traps` is said, and TERM ends it with 7.
const LOOP: &str = "trap 'echo got TERM; exit 7' TERM; trap 'echo got INT' INT; trap 'echo got QUIT' QUIT; \
    trap 'echo got USR2' USR2; trap 'echo got BUS' BUS; trap 'echo got HUP' HUP; trap 'echo got USR1' USR1; trap 'echo got PIPE' PIPE; \
    trap 'echo got RTMIN+5' RTMIN+5; echo waiting; while :; do /bin/sleep 0.05; done";
const DEAF: &str = "trap '' TERM INT; echo waiting; while :; do /bin/sleep 1; done";

#[test]
fn its_code_comes_back_after_a_drain() {
    let mut agent = script(Setup::run("hello"), "echo working; exit 3");
    let status = agent.wait();
    let log = agent.log();
    assert_eq!(status.code(), Some(3), "{log}");
    in_order(
        &log,
        &[
            "at the command's end: 0s before the drain",
            "epoch 0 is LIVE",
            "command started: pid ",
            ", /bin/bash\n",
            "the command exited with code 3\n",
            "draining for at most 1s",
            "stopping the proxy",
            "epoch 0 exited with code 0",
            "the command exited with code 3, exit code 3\n",
        ],
    );
    assert!(log.contains("working\n"));
    assert!(!log.contains("stop requested"), "{log}");
    assert!(!is_alive(agent.proxy_pid(0)));
}

/// One request, at once, to the listener: it must be there.
#[test]
fn the_proxy_answers_its_first_request() {
    let setup = Setup::run("hello from the proxy");
    let request = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{} || exit 9; \
         printf 'GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
         while IFS= read -r line; do echo \"< $line\"; done <&3; [ \"$line\" = 'hello from the proxy' ]",
        setup.listener_port()
    );
    let mut agent = script(setup, &request);
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    assert!(agent.log().contains("< HTTP/1.1 200 OK"), "{}", agent.log());
}

#[test]
fn one_that_cannot_be_started_stops_the_proxy_and_gives_the_shells_code() {
    for (program, code) in [("/not/there", 127), ("/etc/passwd", 126), ("/etc", 126)] {
        let setup = Setup::run("hello").args(&["--termination-drain-duration", "0s"]);
        let mut agent = setup.args(&["--", program]).start();
        assert_eq!(agent.wait().code(), Some(code), "{}", agent.log());
        let log = agent.log();
        let error = format!("cannot start the command, {program}: ");
        let end = format!("the command could not be started (code {code}), exit code {code}");
        in_order(&log, &[&error, "epoch 0 exited with code 0", &end]);
    }
}

#[test]
fn it_is_not_started_while_the_proxy_is_not_live() {
    let port = port();
    let setup = Setup::of("run", &envoy())
        .args(&["--discovery-address", "127.0.0.1:1"])
        .env("ENVOY_PROMETHEUS_PORT", &port.number.to_string());
    let mut agent = script(setup, "echo started");
    until("the admin port", || agent.admin("/server_info"));
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
    assert!(!agent.log().contains("started\n"), "{}", agent.log());
}

#[test]
fn it_gets_every_signal_but_hup_and_usr1() {
    let setup = Setup::run("hello").args(&["--log-output-level", "debug"]);
    let mut agent = script(setup, LOOP);
    agent.wait_log("waiting");
    let pid = command(&agent);
    for (signal, name) in [
        (libc::SIGINT, "INT"),
        (libc::SIGQUIT, "QUIT"),
        (libc::SIGUSR2, "USR2"),
        (libc::SIGBUS, "BUS"),
        (libc::SIGRTMIN() + 5, "RTMIN+5"),
    ] {
        agent.signal(signal);
        agent.wait_log(&format!("got {name}\n"));
    }
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 1 is LIVE");
    agent.signal(libc::SIGUSR1);
    agent.signal(libc::SIGPIPE);
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(7), "{}", agent.log());
    let log = agent.log();
    in_order(
        &log,
        &[
            "signal 2 goes to the command",
            "signal 3 goes to the command",
            "restart requested by SIGHUP",
            "epoch 1 is LIVE",
            "signal 15 goes to the command",
            "got TERM",
            "the command exited with code 7",
            "draining for at most 1s",
            "the command exited with code 7, exit code 7",
        ],
    );
    for name in ["HUP", "USR1", "PIPE"] {
        assert!(!log.contains(&format!("got {name}\n")), "{log}");
    }
    assert_eq!(log.matches("command started").count(), 1);
    assert!(!is_alive(pid));
}

/// A C library keeps some of them to itself: both do 32 and 33, and musl 34.
#[test]
fn it_gets_every_real_time_signal() {
    let printer = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/signals.py");
    let setup = Setup::run("hello").args(&["--", "python3", printer]);
    let mut agent = setup.start();
    agent.wait_log("waiting\n");
    for number in [32, 33, 34, 35, 64, libc::SIGTERM] {
        agent.signal(number);
        agent.wait_log(&format!("got {number}\n"));
    }
    assert_eq!(agent.wait().code(), Some(7), "{}", agent.log());
    in_order(
        &agent.log(),
        &["got 64", "the command exited with code 7", "draining for"],
    );
}

#[test]
fn the_third_request_kills_it_and_the_proxy_still_drains() {
    let mut agent = script(Setup::run("hello"), DEAF);
    agent.wait_log("waiting");
    for (signal, line) in [
        (libc::SIGTERM, "signal 15 goes to the command"),
        (libc::SIGINT, "signal 2 goes to the command"),
        (libc::SIGTERM, "killing the command"),
    ] {
        agent.signal(signal);
        agent.wait_log(line);
    }
    assert_eq!(agent.wait().code(), Some(137), "{}", agent.log());
    let log = agent.log();
    in_order(
        &log,
        &[
            "killing the command",
            "the command was killed by signal 9",
            "draining for at most 1s",
            "epoch 0 exited with code 0",
        ],
    );
}

#[test]
fn after_its_end_the_second_term_skips_the_drain() {
    let setup = Setup::run("hello").args(&["--termination-drain-duration", "10m"]);
    let mut agent = script(setup, "exit 4");
    agent.wait_log("draining for at most 600s");
    agent.signal(libc::SIGTERM);
    agent.wait_log("signal ignored: the agent is stopping");
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(4), "{}", agent.log());
}

#[test]
fn a_proxy_that_is_gone_for_good_takes_it_along_and_gives_the_code() {
    let mut agent = script(Setup::run("hello").args(&["--retry-budget", "0"]), LOOP);
    agent.wait_log("waiting");
    kill(agent.proxy_pid(0), libc::SIGKILL);
    assert_eq!(agent.wait().code(), Some(137), "{}", agent.log());
    in_order(
        &agent.log(),
        &[
            "the proxy is gone, stopping the command",
            "got TERM",
            "the command exited with code 7",
            "retry budget spent and nothing serves: the last proxy was killed by signal 9",
        ],
    );
}

#[test]
fn a_proxy_that_crashes_comes_back_beside_it() {
    let mut agent = script(Setup::run("hello"), LOOP);
    agent.wait_log("waiting");
    kill(agent.proxy_pid(0), libc::SIGKILL);
    agent.wait_log_times("epoch 0 is LIVE", 2);
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(7), "{}", agent.log());
    assert_eq!(agent.log().matches("command started").count(), 1);
}

/// Ready is more than LIVE, as for a probe of the status port, which need not be open.
#[test]
fn it_waits_for_the_listener_of_the_application() {
    let (application, status) = (port(), port());
    let setup = Setup::run("hello").args(&[
        "--application-ports",
        &application.number.to_string(),
        "--status-port",
        &status.number.to_string(),
    ]);
    let mut agent = script(setup, "exit 8");
    agent.wait_log("the command waits until the proxy is ready");
    let probe = get(status.number, "/healthz/ready").unwrap_err();
    assert!(probe.contains("no listener on application port"), "{probe}");
    let there = configuration(
        agent.admin.number,
        application.number,
        direct("hello"),
        json!([]),
    );
    agent.write("envoy.json", &there.to_string());
    assert_eq!(agent.wait().code(), Some(8), "{}", agent.log());
    in_order(
        &agent.log(),
        &[
            "epoch 0 is LIVE",
            "the command waits until the proxy is ready",
            "epoch 1 is LIVE",
            "command started",
        ],
    );
}

#[test]
fn term_while_it_waits_is_143() {
    let application = port();
    let setup = Setup::run("hello").args(&[
        "--termination-drain-duration",
        "0s",
        "--application-ports",
        &application.number.to_string(),
    ]);
    let mut agent = script(setup, "echo started");
    agent.wait_log("the command waits until the proxy is ready");
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
    let log = agent.log();
    assert!(
        log.contains("before the command was started, exit code 143"),
        "{log}"
    );
    assert!(!log.contains("command started"), "{log}");
}

/// `/quitquitquit` is the last act of many a Job: the code that follows it is the one that counts.
#[test]
fn one_that_quits_the_agent_keeps_its_code() {
    let setup = Setup::run("hello");
    let status = port();
    let number = status.number.to_string();
    let quit = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{number} || exit 9; \
         printf 'POST /quitquitquit HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 0\\r\\n\\r\\n' >&3; \
         until [ -e {} ]; do /bin/sleep 0.05; done; exit 5",
        setup.path("go").display()
    );
    let setup = setup.args(&["--kill-timeout", "1m", "--status-port", &number]);
    let mut agent = script(setup, &quit);
    agent.wait_log("epoch 0 exited with code 0");
    agent.write("go", "");
    assert_eq!(agent.wait().code(), Some(5), "{}", agent.log());
    assert!(!agent.log().contains("draining for"), "{}", agent.log());
}

/// The same with Envoy's own.
#[test]
fn one_that_ends_the_proxy_itself_keeps_its_code() {
    let setup = Setup::run("hello");
    let quit = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{} || exit 9; \
         printf 'POST /quitquitquit HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\nContent-Length: 0\\r\\n\\r\\n' >&3; \
         while IFS= read -r line; do :; done <&3; until [ -e {} ]; do /bin/sleep 0.05; done; exit 5",
        setup.admin_port(),
        setup.path("go").display()
    );
    let mut agent = script(setup.args(&["--kill-timeout", "1m"]), &quit);
    agent.wait_log("the proxy is gone, stopping the command");
    agent.write("go", "");
    assert_eq!(agent.wait().code(), Some(5), "{}", agent.log());
}

/// Adopted processes are reaped while it runs; what it leaves in its own group ends with it.
#[test]
fn orphans_are_reaped_and_leftovers_are_killed() {
    let setup = Setup::run("hello").args(&["--log-output-level", "debug"]);
    let orphans = format!(
        "(/bin/sleep 0.1 & echo orphan $! >&2); /bin/sleep 1000 & echo leftover $!; \
         until [ -e {} ]; do /bin/sleep 0.05; done",
        setup.path("go").display()
    );
    let mut agent = script(setup, &orphans);
    agent.wait_log("leftover ");
    let orphan = number(&agent.log(), "orphan ");
    agent.wait_log(&format!("reaped orphan {orphan}: it exited with code 0"));
    let leftover = number(&agent.log(), "leftover ");
    assert!(is_alive(leftover));
    agent.write("go", "");
    agent.wait_log(&format!(
        "reaped orphan {leftover}: it was killed by signal 9"
    ));
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
}

#[test]
fn it_gets_what_the_agent_was_started_with() {
    let setup = Setup::run("hello").env("ANSWER", "42");
    let mut agent = script(
        setup,
        "echo answer $ANSWER; read -r x || echo stdin is at its end; \
         echo /proc/self/fd/*; while read -r line; do echo \"$line\"; done < /proc/$$/status",
    );
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    let log = agent.log();
    for text in [
        "answer 42\n",
        "stdin is at its end\n",
        "SigBlk:\t0000000000000000\n",
    ] {
        assert!(log.contains(text), "{text} in {log}");
    }
    // PIPE, which the agent's runtime ignores, is bit 12; bash itself ignores QUIT.
    let (_, ignored) = log.split_once("SigIgn:\t").unwrap();
    let ignored = u64::from_str_radix(ignored.lines().next().unwrap(), 16).unwrap();
    assert_eq!(ignored & (1 << 12), 0, "{log}");
    let descriptors = log.lines().find(|line| line.starts_with("/proc/self/fd/"));
    // One more is the directory that bash lists.
    let known = ["0", "1", "2", "3"].map(|fd| format!("/proc/self/fd/{fd}"));
    assert_eq!(descriptors, Some(known.join(" ").as_str()));
}

/// What is typed is for the command while it runs; then Ctrl-C is for the agent again.
#[test]
fn the_terminal_is_its_own_while_it_runs() {
    let setup = Setup::run("hello").args(&["--termination-drain-duration", "10m"]);
    let (setup, mut terminal) = setup.on_terminal();
    let typed = "trap 'echo got INT' INT; echo waiting; read -r line; read -r line; echo \"typed $line\"; exit 6";
    let mut agent = script(setup, typed);
    agent.wait_log("waiting");
    terminal.write_all(b"\x03").unwrap();
    agent.wait_log("got INT");
    terminal.write_all(b"one\ntwo\n").unwrap();
    agent.wait_log("draining for at most 600s");
    terminal.write_all(b"\x03").unwrap();
    agent.wait_log("signal ignored: the agent is stopping");
    terminal.write_all(b"\x03").unwrap();
    assert_eq!(agent.wait().code(), Some(6), "{}", agent.log());
    assert!(agent.log().contains("typed "), "{}", agent.log());
    assert!(
        !agent.log().contains("goes to the command"),
        "{}",
        agent.log()
    );
}

#[test]
fn it_dies_with_an_agent_that_is_killed() {
    let mut agent = script(Setup::run("hello"), LOOP);
    agent.wait_log("waiting");
    let pid = command(&agent);
    agent.signal(libc::SIGKILL);
    agent.wait();
    until("the command's end", || (!is_alive(pid)).then_some(()));
}

/// Companions are there before it, and go after it.
#[test]
fn companions_are_around_it() {
    let setup = Setup::run("hello").args(&["--companion", "/bin/sleep 1000"]);
    let mut agent = script(setup, "exit 0");
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    in_order(
        &agent.log(),
        &[
            "companion 1 started",
            "command started",
            "the command exited with code 0",
            "draining for at most",
            "stopping the companions",
            "companion 1 was killed by signal 15",
            "stopping the proxy",
        ],
    );
}

#[test]
fn run_without_a_command_is_a_usage_error() {
    let mut agent = Setup::run("hello").start();
    assert_eq!(agent.wait().code(), Some(64));
    let log = fs::read_to_string(agent.path("log")).unwrap();
    assert!(log.contains("a command is missing, as in pintle run [flags] -- CMD ARGS"));
}
