//! What epochs do to each other, and agents to each other's: shared memory, one config path, children that never become
//! Envoy, parents that hang.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use super::support::{Agent, Setup, base_id_of, envoy, is_alive, kill, until};

/// A proxy that is a shell script; `ENVOY` is the real one.
fn script(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("proxy");
    let envoy = envoy();
    let text = format!("#!/bin/sh\nENVOY={}\n{text}\n", envoy.display());
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A base id that nobody else has, not even after us.
fn base_id(step: u32) -> String {
    (2_000_000 + std::process::id() % 1_000_000 * 10 + step).to_string()
}

fn memory(id: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/envoy_shared_memory_{id}0"))
}

#[test]
fn an_agent_that_is_refused_leaves_the_memory_of_the_first_alone() {
    let id = base_id(0);
    let first = Setup::new("first").args(&["--base-id", &id]).start();
    first.wait_log("epoch 0 is LIVE");
    let second = Setup::new("second").args(&["--base-id", &id, "--retry-budget", "0"]);
    let mut second = second.start();
    assert_eq!(second.wait().code(), Some(1), "{}", second.log());
    assert!(second.log().contains("is in use by"), "{}", second.log());
    assert!(memory(&id).exists(), "{}", second.log());
    first.signal(libc::SIGHUP);
    first.wait_log("epoch 1 is LIVE");
    first.stop();
    assert!(!memory(&id).exists());
}

#[test]
fn the_memory_of_a_proxy_that_was_never_live_is_removed() {
    let id = base_id(1);
    let setup = Setup::bare(&envoy()).args(&["--base-id", &id]);
    let file = setup.path("envoy.json");
    setup.write(
        "envoy.json",
        r#"{"static_resources": {"listeners": [{"name": "no address"}]}}"#,
    );
    let setup = setup.arg("--custom-config-file").arg(file);
    let mut agent = setup.args(&["--retry-budget", "0"]).start();
    assert_eq!(agent.wait().code(), Some(1), "{}", agent.log());
    assert!(!memory(&id).exists(), "{}", agent.log());
}

#[test]
fn a_second_agent_on_the_same_config_path_is_refused_and_overwrites_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let sleeper = script(directory.path(), "exec sleep 1000");
    let run = directory.path().join("run");
    let start = |node: &str| {
        let setup = Setup::bare(&sleeper).arg("--config-path").arg(&run);
        setup.env("POD_NAME", node).start()
    };
    let mut first = start("first");
    first.wait_log("epoch 0 started");
    let file = run.join("envoy-rev0.json");
    let before = fs::read_to_string(&file).unwrap();
    let mut second = start("second");
    assert_eq!(second.wait().code(), Some(71), "{}", second.log());
    let log = second.log();
    assert!(log.contains(run.to_str().unwrap()), "{log}");
    assert!(log.contains("another agent"), "{log}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    // What is left of an agent that was killed does not hold up the next one.
    let proxy = first.proxy_pid(0);
    first.signal(libc::SIGKILL);
    first.wait();
    let third = start("third");
    third.wait_log("epoch 0 started");
    assert_ne!(fs::read_to_string(&file).unwrap(), before);
    until("the first one's proxy to be gone", || {
        (!is_alive(proxy)).then_some(())
    });
}

/// Neither a program that hangs nor an Envoy that was stopped before it attached has anything to do with the flag in its
/// parent's memory.
#[test]
fn a_child_that_never_attached_is_not_live() {
    let directory = tempfile::tempdir().unwrap();
    for child in ["exec sleep 1000", "kill -STOP $$; exec $ENVOY \"$@\""] {
        let wrapper =
            format!("case \"$*\" in *'--restart-epoch 0'*) exec $ENVOY \"$@\";; esac\n{child}");
        let setup = Setup::new("hello");
        let agent = setup
            .arg("--binary-path")
            .arg(script(directory.path(), &wrapper))
            .args(&["--live-timeout", "1s", "--retry-budget", "0"])
            .start();
        agent.wait_log("epoch 0 is LIVE");
        agent.wait_readiness(200, "ready");
        let load = super::support::Load::start(agent.listener.number);
        agent.signal(libc::SIGHUP);
        agent.wait_log("epoch 1 is not LIVE in time, killing it");
        agent.wait_log("keeping epoch 0");
        agent.wait_readiness(200, "ready");
        load.finish();
        assert!(!agent.log().contains("has handed over"), "{}", agent.log());
        agent.stop();
    }
}

/// Its child waits for an answer of it, and does nothing else any more; nor is the child killed for that.
#[test]
fn a_draining_parent_that_hangs_is_replaced() {
    let agent = Setup::new("hello")
        .args(&["--proxy-hang-timeout", "3s"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    let parent = agent.proxy_pid(0);
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 0 has handed over and drains");
    kill(parent, libc::SIGSTOP);
    agent.signal(libc::SIGHUP);
    agent.wait_log("answering for epoch 0, so that epoch 1 lives");
    agent.wait_log("epoch 2 is LIVE");
    agent.wait_readiness(200, "ready");
    assert!(!is_alive(parent));
    assert!(!agent.log().contains("epoch 1 hangs"), "{}", agent.log());
    assert!(
        !agent.log().contains("epoch 1 was killed"),
        "{}",
        agent.log()
    );
    agent.stop();
}

/// /proc says at once that it is stopped: its child does not wait until the parent's time is over.
#[test]
fn a_draining_parent_that_somebody_stops_is_replaced_at_once() {
    let agent = Setup::new("hello")
        .args(&["--parent-shutdown-duration", "10m"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    let parent = agent.proxy_pid(0);
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 0 has handed over and drains");
    let stopped = Instant::now();
    kill(parent, libc::SIGSTOP);
    agent.wait_log("epoch 0 was stopped, killing it for epoch 1");
    agent.wait_log("answering for epoch 0, so that epoch 1 lives");
    let took = stopped.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 2 is LIVE");
    agent.wait_readiness(200, "ready");
    assert!(!is_alive(parent));
    agent.stop();
}

/// An agent whose epoch 1 asks its parent every second.
fn asks_often() -> Setup {
    let setup = Setup::new("hello");
    let mut configuration = setup.configuration("hello");
    configuration["stats_flush_interval"] = json!("1s");
    setup.write("envoy.json", &configuration.to_string());
    setup
}

/// Another process has the name of the parent, which dies while it drains, before the agent could have it.
fn take_name_of_dead_parent(
    agent: &Agent,
    prepare: impl FnOnce(&UnixDatagram, &SocketAddr),
) -> UnixDatagram {
    agent.wait_log("epoch 0 is LIVE");
    let parent = agent.proxy_pid(0);
    let base_id = base_id_of(&parent.to_string()).unwrap();
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 0 has handed over and drains");
    agent.signal(libc::SIGSTOP);
    kill(parent, libc::SIGKILL);
    let mut name = format!("envoy_domain_socket_parent_{base_id}0").into_bytes();
    name.resize(107, 0);
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let taker = until("the name", || UnixDatagram::bind_addr(&address).ok());
    taker.set_nonblocking(true).unwrap();
    prepare(&taker, &address);
    agent.signal(libc::SIGCONT);
    let holder = format!("is in use by process {} (", std::process::id());
    agent.wait_log(
        &[
            "cannot answer for epoch 0: base id ",
            &base_id,
            " ",
            &holder,
        ]
        .concat(),
    );
    taker
}

#[test]
fn a_child_whose_dead_parents_name_is_taken_is_answered_all_the_same() {
    let agent = asks_often()
        .args(&["--parent-shutdown-duration", "10s"])
        .start();
    let taker = take_name_of_dead_parent(&agent, |_, _| {});
    let mut asked = 0;
    until("questions of a child that goes on", || {
        asked += usize::from(taker.recv(&mut [0; 4096]).is_ok());
        (asked >= 3).then_some(())
    });
    until("an answer of its admin port", || agent.admin("/ready"));
    // Epoch 3 has the name of epoch 0.
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 1 exited with code 0");
    agent.signal(libc::SIGHUP);
    agent.wait_log("cannot start the proxy: base id ");
    agent.wait_log("keeping epoch 2");
    drop(taker);
    agent.wait_log("epoch 3 is LIVE");
    agent.wait_readiness(200, "ready");
    let log = agent.log();
    assert_eq!(log.matches("cannot answer for epoch 0").count(), 1, "{log}");
    assert!(!log.contains("epoch 1 was killed"), "{log}");
    agent.stop();
}

/// The child waits until its question is taken in, which it never is: nothing frees it, but it does not wait for ever.
#[test]
fn a_child_whose_dead_parents_name_is_taken_by_who_takes_nothing_is_started_afresh() {
    let agent = asks_often()
        .args(&["--parent-shutdown-duration", "10m", "--live-timeout", "6s"])
        .start();
    let taker = take_name_of_dead_parent(&agent, |taker, address| {
        while taker.send_to_addr(b"full", address).is_ok() {}
    });
    let before = base_id_of(&agent.proxy_pid(1).to_string());
    agent.wait_log("epoch 1 hangs, killing it");
    agent.wait_log_times("epoch 0 is LIVE", 2);
    agent.wait_readiness(200, "ready");
    assert_ne!(base_id_of(&agent.proxy_pid(0).to_string()), before);
    drop(taker);
    agent.stop();
}
