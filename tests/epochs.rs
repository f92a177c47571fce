//! What epochs do to each other, and agents to each other's: shared memory, one config path, children that never become
//! Envoy, parents that hang.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::support::{Setup, envoy, is_alive, kill, until};

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
