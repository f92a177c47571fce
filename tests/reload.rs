//! Changes: rotations under load, children that fail, parents that die.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::support::{Load, Setup, configuration, direct, envoy, get, is_alive, kill, until};

/// A bootstrap that Envoy refuses; an unknown field alone it would only warn of.
const REFUSED: &str = r#"{"static_resources": {"listeners": [{"name": "no address"}]}}"#;

/// Kubelet's own dance: a new timestamped directory, `..data_tmp` renamed over `..data`, the old directory removed.
fn kubelet_writes(volume: &Path, turn: u32, content: &str) {
    let fresh = format!("..2026_11_21_00_00_{turn:02}");
    fs::create_dir_all(volume.join(&fresh)).unwrap();
    fs::write(volume.join(&fresh).join("cert.pem"), content).unwrap();
    let old = fs::read_link(volume.join("..data")).ok();
    symlink(&fresh, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    if let Some(old) = old {
        fs::remove_dir_all(volume.join(old)).unwrap();
    } else {
        symlink("..data/cert.pem", volume.join("cert.pem")).unwrap();
    }
}

#[test]
fn three_rotations_in_a_row_lose_no_request() {
    let setup = Setup::new("hello");
    let volume = setup.path("volume");
    fs::create_dir(&volume).unwrap();
    kubelet_writes(&volume, 0, "certificate 0");
    let agent = setup.arg("--watch").arg(volume.join("cert.pem")).start();
    agent.wait_log("epoch 0 is LIVE");
    let load = Load::start(agent.listener.number);
    for turn in 1..=3 {
        kubelet_writes(&volume, turn, &format!("certificate {turn}"));
        agent.wait_log(&format!("epoch {turn} is LIVE"));
    }
    agent.wait_log("epoch 2 exited with code 0");
    let answered = load.finish();
    assert!(answered > 100, "only {answered} requests were sent");
    let log = agent.log();
    assert_eq!(log.matches("reason change").count(), 3, "{log}");
    for parent in 0..=2 {
        assert!(
            log.contains(&format!("epoch {parent} exited with code 0")),
            "{log}"
        );
    }
    agent.stop();
}

/// envoy#33446: without the repair every later hot restart would fail.
#[test]
fn a_child_that_fails_costs_nothing_and_the_next_good_change_works() {
    let agent = Setup::new("good")
        .args(&["--retry-initial", "300ms"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    let load = Load::start(agent.listener.number);
    agent.write(
        "envoy.json",
        r#"{"static_resources": {"listeners": [{"name": "no address"}]}}"#,
    );
    agent.wait_log("epoch 1 exited with code 1 before it was LIVE, keeping epoch 0");
    agent.wait_log("cleared the flag that the failed epoch left");
    assert_eq!(agent.get().as_deref(), Ok("good"));
    agent.write("envoy.json", &agent.configuration("better").to_string());
    agent.wait_log("epoch 1 is LIVE");
    until("the new answer", || {
        (agent.get().as_deref() == Ok("better")).then_some(())
    });
    load.finish();
    agent.stop();
}

#[test]
fn a_child_given_up_leaves_the_parent_serving_until_the_next_change() {
    let agent = Setup::new("good")
        .args(&["--retry-budget", "2", "--retry-initial", "50ms"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    agent.write("envoy.json", REFUSED);
    agent.wait_log("giving the new configuration up, keeping epoch 0");
    assert_eq!(agent.log().matches("epoch 1 started").count(), 3);
    assert_eq!(agent.get().as_deref(), Ok("good"));
    agent.write("envoy.json", &agent.configuration("better").to_string());
    agent.wait_log("epoch 1 is LIVE");
    agent.stop();
}

/// What a change needs comes back without a change of its own: a control plane, say; here what the proxy's wrapper looks for.
#[test]
fn what_was_given_up_is_tried_again_every_retry_reset() {
    let setup = Setup::new("one");
    let (wrapper, away) = (setup.path("envoy"), setup.path("away"));
    let script = format!(
        "#!/bin/sh\n[ -e {away:?} ] && exit 3\nexec {:?} \"$@\"\n",
        envoy()
    );
    setup.write("envoy", &script);
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let agent = setup
        .arg("--binary-path")
        .arg(wrapper)
        .args(&["--retry-budget", "1", "--retry-initial", "50ms"])
        .args(&["--retry-reset", "1s"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    agent.write("away", "");
    agent.write("envoy.json", &agent.configuration("two").to_string());
    agent.wait_log("giving the new configuration up, keeping epoch 0: tried again in 1s");
    let status = get(agent.status.number, "/status").unwrap();
    assert!(
        status.contains("\"configuration_given_up\":true"),
        "{status}"
    );
    agent.wait_log("the new configuration fails still, keeping epoch 0: tried again in 1s");
    let metrics = get(agent.status.number, "/metrics").unwrap();
    assert!(
        metrics.contains("\npintle_configuration_given_up 1\n"),
        "{metrics}"
    );
    assert_eq!(agent.get().as_deref(), Ok("one"));
    fs::remove_file(away).unwrap();
    agent.wait_log("epoch 1 is LIVE");
    let status = get(agent.status.number, "/status").unwrap();
    assert!(
        status.contains("\"configuration_given_up\":false"),
        "{status}"
    );
    agent.stop();
}

/// A bootstrap that waits for a control plane that is not there.
fn never_live(admin: u16, listener: u16) -> String {
    let mut document = configuration(
        admin,
        listener,
        direct("never"),
        json!([{
            "name": "nowhere", "type": "STATIC", "connect_timeout": "1s",
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}}}},
            "load_assignment": {"cluster_name": "nowhere", "endpoints": [{"lb_endpoints": [{"endpoint":
                {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}]}]}
        }]),
    );
    document["dynamic_resources"] = json!({
        "cds_config": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"},
        "ads_config": {"api_type": "GRPC", "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "nowhere"}}]}
    });
    document.to_string()
}

#[test]
fn a_child_that_is_not_live_in_time_is_killed_and_the_parent_serves_on() {
    let agent = Setup::new("good")
        .args(&["--live-timeout", "1s", "--retry-budget", "0"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    agent.write(
        "envoy.json",
        &never_live(agent.admin.number, agent.listener.number),
    );
    agent.wait_log("epoch 1 is not LIVE in time, killing it");
    agent.wait_log("keeping epoch 0");
    assert_eq!(agent.get().as_deref(), Ok("good"));
    // Its admin port is gone for good, which Envoy cannot help; the next change works all the same.
    agent.write("envoy.json", &agent.configuration("better").to_string());
    agent.wait_log("epoch 1 is LIVE");
    until("the new answer", || {
        (agent.get().as_deref() == Ok("better")).then_some(())
    });
    agent.stop();
}

#[test]
fn a_sole_epoch_that_is_never_live_is_replaced_by_a_change() {
    let setup = Setup::new("unused").args(&["--live-timeout", "1s"]);
    let (admin, listener) = (setup.admin_port(), setup.listener_port());
    setup.write("envoy.json", &never_live(admin, listener));
    let agent = setup.start();
    until("the admin port", || agent.admin("/server_info"));
    agent.write("envoy.json", &agent.configuration("good").to_string());
    agent.wait_log("restart waits until epoch 0 is LIVE");
    agent.wait_log("stopping epoch 0 to start afresh");
    agent.wait_log("epoch 0 is LIVE after");
    assert_eq!(agent.get().as_deref(), Ok("good"));
    agent.stop();
}

/// The configuration's admin port is not the one that the agent was told: its shared memory shows that it is LIVE, and
/// nothing that serves is killed.
#[test]
fn an_admin_port_that_is_elsewhere_costs_time_but_no_request() {
    let elsewhere = super::support::port();
    let setup = Setup::new("unused").args(&["--live-timeout", "1s"]);
    let document = |body| {
        configuration(
            elsewhere.number,
            setup.listener_port(),
            direct(body),
            json!([]),
        )
        .to_string()
    };
    let (one, two) = (document("one"), document("two"));
    setup.write("envoy.json", &one);
    let agent = setup.start();
    until("an answer", || agent.get().ok());
    let load = Load::start(agent.listener.number);
    agent.write("envoy.json", &two);
    agent.wait_log("epoch 0 has initialised, but its admin port does not say so");
    agent.wait_log("epoch 1 has initialised, but its admin port does not say so");
    until("the new answer", || {
        (agent.get().as_deref() == Ok("two")).then_some(())
    });
    agent.wait_log("epoch 0 exited with code 0");
    load.finish();
    agent.stop();
}

/// Without somebody who answers for it, the child aborts 15 seconds after its parent's death (measured, Envoy 1.40).
#[test]
fn a_draining_parent_that_is_killed_does_not_take_its_child_along() {
    let agent = Setup::new("hello")
        .args(&[
            "--drain-duration",
            "28s",
            "--parent-shutdown-duration",
            "30s",
        ])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    let parent = agent.proxy_pid(0);
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 0 has handed over and drains");
    kill(parent, libc::SIGKILL);
    agent.wait_log("answering for epoch 0, so that epoch 1 lives");
    let child = agent.proxy_pid(1);
    // Its time as a measure, not as a wait for something: nothing must happen in it.
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        assert!(is_alive(child), "{}", agent.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    let stats = until("the admin port", || {
        agent.admin("/stats?filter=server.live")
    });
    assert!(stats.contains("server.live: 1"), "{stats}");
    // And it can be a parent itself.
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 2 is LIVE");
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    agent.stop();
}

/// The newest crashes while its parent still drains: the retry is the draining one's child.
#[test]
fn a_crash_beside_a_draining_parent_is_mended() {
    let agent = Setup::new("hello")
        .args(&[
            "--drain-duration",
            "28s",
            "--parent-shutdown-duration",
            "30s",
        ])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 0 has handed over and drains");
    kill(agent.proxy_pid(1), libc::SIGKILL);
    agent.wait_log_times("epoch 1 is LIVE", 2);
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    agent.stop();
}

#[test]
fn without_hot_restart_there_is_never_a_second_process() {
    let agent = Setup::new("one").arg("--disable-hot-restart").start();
    agent.wait_log("epoch 0 is LIVE");
    let first = agent.proxy_pid(0);
    agent.write("envoy.json", &agent.configuration("two").to_string());
    agent.wait_log_times("epoch 0 is LIVE", 2);
    assert!(!is_alive(first));
    assert_eq!(agent.get().as_deref(), Ok("two"));
    agent.stop();
}

#[test]
fn a_bootstrap_that_envoy_refuses_is_not_started_when_it_is_validated_first() {
    let agent = Setup::new("one").arg("--validate").start();
    agent.wait_log("epoch 0 is LIVE");
    agent.write("envoy.json", REFUSED);
    agent.wait_log("the proxy does not accept the new bootstrap");
    assert!(!agent.log().contains("epoch 1 started"));
    agent.write("envoy.json", &agent.configuration("two").to_string());
    agent.wait_log("epoch 1 is LIVE");
    until("the new answer", || {
        (agent.get().as_deref() == Ok("two")).then_some(())
    });
    agent.stop();
}

/// A validation that is killed, or that is too slow, says nothing about the bootstrap.
#[test]
fn a_validation_that_comes_to_no_end_of_its_own_loses_no_change() {
    let setup = Setup::new("one");
    let (wrapper, away, slow) = (setup.path("envoy"), setup.path("away"), setup.path("slow"));
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *'--mode validate'*)\n[ -e {away:?} ] && kill -9 $$\n\
         [ -e {slow:?} ] && rm {slow:?} && exec sleep 1000\nesac\nexec {:?} \"$@\"\n",
        envoy()
    );
    setup.write("envoy", &script);
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    setup.write("away", "");
    let agent = setup
        .env("PATH", "/usr/bin:/bin")
        .arg("--binary-path")
        .arg(wrapper)
        .args(&["--validate", "--live-timeout", "3s"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    agent.write("envoy.json", &agent.configuration("two").to_string());
    agent.wait_log("cannot validate the new bootstrap: the proxy was killed by signal 9");
    agent.write("slow", "");
    fs::remove_file(away).unwrap();
    agent.wait_log("epoch 1 is LIVE");
    assert!(!slow.exists(), "the slow validation was not tried");
    let log = agent.log();
    assert!(!log.contains("does not accept"), "{log}");
    assert_eq!(agent.get().as_deref(), Ok("two"));
    agent.stop();
}

#[test]
fn the_same_bytes_written_again_start_nothing() {
    let agent = Setup::new("hello")
        .args(&["--log-output-level", "debug"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    let same = fs::read_to_string(agent.path("envoy.json")).unwrap();
    agent.write("envoy.json", &same);
    agent.write("cert.pem", "first");
    // A change that does count comes after them, so they have been judged when it starts.
    agent.write("cert.pem", "second");
    agent.wait_log("epoch 1 is LIVE");
    assert_eq!(agent.log().matches("reason change").count(), 1);
    agent.stop();
}

#[test]
fn a_rotated_log_file_is_opened_anew() {
    let setup = Setup::new("hello");
    let log = setup.path("agent.log");
    let agent = setup.arg("--log-target").arg(&log).start();
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    until("LIVE", || {
        read(&log).contains("epoch 0 is LIVE").then_some(())
    });
    let old = agent.path("agent.log.1");
    fs::rename(&log, &old).unwrap();
    agent.signal(libc::SIGUSR1);
    until("the new file", || log.exists().then_some(()));
    agent.signal(libc::SIGHUP);
    until("a line in it", || {
        read(&log)
            .contains("restart requested by SIGHUP")
            .then_some(())
    });
    until("LIVE", || {
        read(&log).contains("epoch 1 is LIVE").then_some(())
    });
    assert!(!read(&old).contains("SIGHUP"));
    agent.stop();
}

/// USR1 reaches Envoy, which opens its access log anew.
#[test]
fn envoys_access_log_is_opened_anew() {
    let setup = Setup::new("hello");
    let log = setup.path("access.log");
    let mut document = setup.configuration("hello");
    document["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        ["access_log"] = json!([{
        "name": "file",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": log.to_str().unwrap()
        }
    }]);
    setup.write("envoy.json", &document.to_string());
    let agent = setup.start();
    agent.wait_log("epoch 0 is LIVE");
    until("the access log", || log.exists().then_some(()));
    fs::rename(&log, agent.path("access.log.1")).unwrap();
    agent.signal(libc::SIGUSR1);
    // Envoy opens it when it next writes.
    until("the new access log", || {
        agent.get().unwrap();
        log.exists().then_some(())
    });
    agent.stop();
}

#[test]
fn signals_that_would_kill_envoy_are_not_forwarded() {
    let agent = Setup::new("hello").start();
    agent.wait_log("epoch 0 is LIVE");
    // A second child: each start sets the mask, and puts it back.
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 1 is LIVE");
    for signal in [
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGTSTP,
        libc::SIGABRT,
        libc::SIGSEGV,
        libc::SIGTRAP,
        // A C library keeps them to itself: both do these two, and musl 34.
        32,
        33,
        34,
        35,
        64,
    ] {
        agent.signal(signal);
        agent.wait_log(&format!("signal {signal} ignored"));
    }
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    agent.stop();
}
