//! Companions beside the real Envoy: when they start, how they come back, and that they go before the proxy.

use std::fs;
use std::path::PathBuf;

use super::support::{Agent, Setup, get, is_alive, kill, until};

/// The pid of the companion (counted from 1) that was started last.
fn pid(agent: &Agent, companion: u32) -> i32 {
    let marker = format!("companion {companion} started: pid ");
    // What it says itself may be there before.
    agent.wait_log(&marker);
    let log = agent.log();
    let (_, rest) = log.rsplit_once(&marker).unwrap();
    rest.split(',').next().unwrap().parse().unwrap()
}

/// A shell script as a companion.
fn shell(script: &str) -> String {
    assert!(!script.contains('\''));
    format!("/bin/sh -c '{script}'")
}

fn position(log: &str, text: &str) -> usize {
    log.find(text)
        .unwrap_or_else(|| panic!("no {text:?} in:\n{log}"))
}

fn children_of(group: i32) -> Vec<PathBuf> {
    let member = |path: &PathBuf| {
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<_> = fields.split_whitespace().collect();
        fields.get(2) == Some(&group.to_string().as_str()) && fields.first() != Some(&"Z")
    };
    let processes = fs::read_dir("/proc").unwrap();
    processes
        .map(|entry| entry.unwrap().path())
        .filter(member)
        .collect()
}

/// Each word as the companion sees it, and what else it is given.
#[test]
fn a_companion_starts_once_the_proxy_is_live_with_the_words_that_were_quoted() {
    let setup = Setup::new("hello");
    let script = setup.path("companion");
    let out = setup.path("out");
    // The shell reads its own mask: while it starts another program, it blocks all signals for a moment.
    let text = format!(
        "out={}\n{{ printf '<%s>' \"$@\"; echo; ls /proc/self/fd | tr '\\n' ' '; echo;\n\
         while read -r line; do case $line in Sig*) echo \"$line\";; esac; done < /proc/$$/status;\n\
         ulimit -Sn; }} > $out.tmp; mv $out.tmp $out; exec sleep 1000\n",
        out.display()
    );
    fs::write(&script, text).unwrap();
    let command = format!(
        r#"sh {} one 'two  $HOME' "thr\"ee" fo\ ur '' > x*"#,
        script.display()
    );
    let agent = setup
        .env("PATH", "/usr/bin:/bin")
        .arg("--companion")
        .arg(command)
        .start();
    let seen = until("the companion's words", || {
        fs::read_to_string(agent.path("out")).ok()
    });
    let mut lines = seen.lines();
    let words = lines.next().unwrap();
    assert_eq!(words, "<one><two  $HOME><thr\"ee><fo ur><><>><x*>");
    // 0, 1, 2; and the one with which `ls` lists them.
    assert_eq!(lines.next().unwrap().trim(), "0 1 2 3");
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = |status: &str| {
        status
            .lines()
            .find(|line| line.starts_with("SigIgn"))
            .map(ToOwned::to_owned)
    };
    assert!(seen.contains("SigBlk:\t0000000000000000"), "{seen}");
    // This test's runtime ignores SIGPIPE, and its children do not.
    assert!(ignored(&own).is_some() && ignored(&seen).is_some());
    let group = pid(&agent, 1);
    let log = agent.log();
    assert!(position(&log, "epoch 0 is LIVE") < position(&log, "companion 1 started"));
    assert!(
        !children_of(group).is_empty(),
        "it leads a group of its own"
    );
    agent.stop();
    assert!(children_of(group).is_empty());
}

#[test]
fn a_companion_does_not_start_while_the_proxy_is_not_live() {
    let setup = Setup::bare(&super::support::envoy())
        .args(&["--discovery-address", "127.0.0.1:1"])
        .args(&["--companion", "/bin/sleep 1000"]);
    let port = super::support::port();
    let setup = setup.env("ENVOY_PROMETHEUS_PORT", &port.number.to_string());
    let mut agent = setup.start();
    until("the admin port", || agent.admin("/server_info"));
    assert!(!agent.log().contains("companion 1"), "{}", agent.log());
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
    assert!(!agent.log().contains("companion 1"), "{}", agent.log());
}

/// Whatever ends it, with what it left in its group; the proxy does not notice.
#[test]
fn a_companion_that_ends_comes_back_and_the_proxy_goes_on() {
    let agent = Setup::new("hello")
        .args(&["--retry-initial", "100ms"])
        .arg("--companion")
        .arg(shell("/bin/sleep 1000 & exec /bin/sleep 2000"))
        .args(&["--companion", "/bin/true", "--companion", "/not/there"])
        .start();
    agent.wait_log("companion 1 started");
    let (proxy, first) = (agent.proxy_pid(0), pid(&agent, 1));
    until("both sleeps", || {
        (children_of(first).len() == 2).then_some(())
    });
    kill(first, libc::SIGKILL);
    agent.wait_log("companion 1 was killed by signal 9 (SIGKILL), next try in 0.1s");
    agent.wait_log_times("companion 1 started", 2);
    until("the rest of its group to be gone", || {
        children_of(first).is_empty().then_some(())
    });
    for delay in ["0.1s", "0.2s", "0.4s"] {
        agent.wait_log(&format!(
            "companion 2 exited with code 0, next try in {delay}"
        ));
        agent.wait_log(&format!(
            "companion 3 could not be started (code 127), next try in {delay}"
        ));
    }
    assert_ne!(pid(&agent, 1), first);
    assert!(is_alive(pid(&agent, 1)));
    assert!(is_alive(proxy));
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    // Nor does it notice a hot restart.
    let second = pid(&agent, 1);
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 1 is LIVE");
    assert!(is_alive(second) && pid(&agent, 1) == second);
    agent.stop();
    assert!(!is_alive(second) && children_of(second).is_empty());
}

/// While the companion takes its time to end, Envoy answers.
#[test]
fn companions_end_after_the_drain_and_before_the_proxy() {
    let setup = Setup::new("hello").args(&["--kill-timeout", "1m"]);
    let flag = setup.path("go");
    let script = format!(
        "trap \"echo saying goodbye to $((1 + 1)); until [ -e {} ]; do /bin/sleep 0.05; done; exit 0\" TERM; \
         while :; do /bin/sleep 0.05; done",
        flag.display()
    );
    let mut agent = setup.arg("--companion").arg(shell(&script)).start();
    agent.wait_log("companion 1 started");
    let proxy = agent.proxy_pid(0);
    // The trap is set before the first sleep.
    until("its loop", || {
        (children_of(pid(&agent, 1)).len() == 2).then_some(())
    });
    agent.signal(libc::SIGTERM);
    // What it says, not the command that the log names.
    agent.wait_log("saying goodbye to 2");
    // Listeners are closed by the drain; the admin port is there as long as the proxy is.
    assert!(get(agent.admin.number, "/server_info").is_ok());
    assert!(is_alive(proxy));
    agent.write("go", "");
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    let log = agent.log();
    let order = [
        "draining for at most 1s",
        "stopping the companions",
        "companion 1 exited with code 0",
        "stopping the proxy",
        "epoch 0 exited with code 0",
    ];
    let places: Vec<_> = order.iter().map(|text| position(&log, text)).collect();
    assert!(places.is_sorted(), "{log}");
}

#[test]
fn a_companion_that_ignores_term_is_killed_and_the_code_is_137() {
    let mut agent = Setup::new("hello")
        .args(&["--kill-timeout", "300ms"])
        .arg("--companion")
        .arg(shell(
            "trap \"\" TERM; echo deaf to $((14 + 1)); while :; do /bin/sleep 1; done",
        ))
        .start();
    // What it says, not the command that the log names.
    agent.wait_log("deaf to 15");
    let (companion, proxy) = (pid(&agent, 1), agent.proxy_pid(0));
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(137), "{}", agent.log());
    let log = agent.log();
    assert!(
        position(&log, "companion 1 did not stop in time, killing it")
            < position(&log, "stopping the proxy"),
        "{log}"
    );
    assert!(children_of(companion).is_empty() && !is_alive(proxy));
}

#[test]
fn a_second_term_does_not_wait_for_companions() {
    let mut agent = Setup::new("hello")
        .args(&["--kill-timeout", "1m", "--termination-drain-duration", "0s"])
        .arg("--companion")
        .arg(shell(
            "trap \"\" TERM; echo deaf to $((14 + 1)); while :; do /bin/sleep 1; done",
        ))
        .start();
    // What it says, not the command that the log names.
    agent.wait_log("deaf to 15");
    agent.signal(libc::SIGTERM);
    agent.wait_log("stopping the companions");
    agent.signal(libc::SIGTERM);
    agent.wait_log("epoch 0 exited with code 0");
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(137), "{}", agent.log());
}

#[test]
fn an_agent_whose_budget_is_spent_takes_its_companions_along() {
    let mut agent = Setup::new("hello")
        .args(&["--retry-budget", "0", "--companion", "/bin/sleep 1000"])
        .start();
    agent.wait_log("companion 1 started");
    let companion = pid(&agent, 1);
    kill(agent.proxy_pid(0), libc::SIGKILL);
    assert_eq!(agent.wait().code(), Some(137), "{}", agent.log());
    assert!(agent.log().contains("companion 1 was killed by signal 15"));
    assert!(!is_alive(companion));
}

#[test]
fn companions_die_with_an_agent_that_is_killed() {
    let mut agent = Setup::new("hello")
        .args(&["--companion", "/bin/sleep 1000"])
        .start();
    agent.wait_log("companion 1 started");
    let companion = pid(&agent, 1);
    agent.signal(libc::SIGKILL);
    agent.wait();
    until("the companion's end", || {
        (!is_alive(companion)).then_some(())
    });
}

/// A malformed command ends the start; the message names flag and value.
#[test]
fn a_command_that_is_not_one_is_refused_with_78() {
    let mut agent = Setup::new("hello")
        .args(&["--companion", "agent 'x"])
        .start();
    assert_eq!(agent.wait().code(), Some(78));
    assert!(
        agent
            .log()
            .contains("cannot use --companion \"agent 'x\": a quote is not closed"),
        "{}",
        agent.log()
    );
}

/// The timeline that is said at the start counts them.
#[test]
fn the_timeline_has_room_for_companions() {
    let agent = Setup::new("hello")
        .args(&["--kill-timeout", "3s", "--companion", "/bin/sleep 1000"])
        .start();
    agent.wait_log("3s for the companions and as much for the proxy to stop, 7s in all");
}

/// The child's stack is a part of the agent's.
#[test]
fn a_companion_that_comes_back_leaves_no_memory_behind() {
    let agent = Setup::new("hello")
        .args(&["--retry-initial", "1ms"])
        .args(&["--companion", "/bin/sleep 1000"])
        .start();
    agent.wait_log("companion 1 started");
    let mut least = u64::MAX;
    for times in 2..6 {
        // A page gives back what is needed seldom, and a probe takes what is needed often.
        assert_eq!(agent.status("/status").status, 200);
        assert_eq!(agent.readiness().0, 200);
        least = least.min(agent.memory("Anonymous:"));
        kill(pid(&agent, 1), libc::SIGKILL);
        agent.wait_log_times("companion 1 started", times);
        let settled = || (agent.memory("Anonymous:") <= least).then_some(());
        until("the memory of before", settled);
    }
    agent.stop();
}
