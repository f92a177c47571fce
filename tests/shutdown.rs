//! The end: in flight, during start, during a hand-over, and when nothing obeys.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::support::{Setup, configuration, get, until};

/// An upstream that answers one request after `delay`.
fn slow_upstream(delay: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let read = stream.read(&mut request).unwrap();
        assert!(read > 0);
        thread::sleep(delay);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")
            .unwrap();
    });
    port
}

fn proxying(setup: &Setup, upstream: u16) -> String {
    let cluster = json!([{
        "name": "upstream", "type": "STATIC", "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "upstream", "endpoints": [{"lb_endpoints": [{"endpoint":
            {"address": {"socket_address": {"address": "127.0.0.1", "port_value": upstream}}}}]}]}
    }]);
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "upstream"}});
    configuration(setup.admin_port(), setup.listener_port(), route, cluster).to_string()
}

#[test]
fn a_long_request_in_flight_is_answered_and_then_the_agent_ends_early() {
    let setup = Setup::new("unused");
    let upstream = slow_upstream(Duration::from_secs(2));
    setup.write("envoy.json", &proxying(&setup, upstream));
    let mut agent = setup
        .args(&[
            "--termination-drain-duration",
            "40s",
            "--minimum-drain-duration",
            "1s",
        ])
        .arg("--exit-on-zero-active-connections")
        .start();
    agent.wait_log("epoch 0 is LIVE");
    let port = agent.listener.number;
    let request = thread::spawn(move || get(port, "/"));
    until("the request to be in flight", || {
        let stats = agent.admin("/stats?filter=cluster.upstream.upstream_rq_active")?;
        stats.contains("upstream_rq_active: 1").then_some(())
    });
    let asked = Instant::now();
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    assert_eq!(request.join().unwrap().as_deref(), Ok("slow"));
    assert!(
        agent.log().contains("no connection is left, drain ends"),
        "{}",
        agent.log()
    );
    assert!(
        asked.elapsed() < Duration::from_secs(40),
        "the early end came late"
    );
}

/// No control plane, so Envoy never is LIVE; the generated bootstrap of a sidecar.
#[test]
fn term_during_initialisation_ends_promptly_with_143() {
    let setup = Setup::bare(&super::support::envoy()).args(&["--discovery-address", "127.0.0.1:1"]);
    let port = super::support::port();
    let setup = setup.env("ENVOY_PROMETHEUS_PORT", &port.number.to_string());
    let mut agent = setup.args(&["--termination-drain-duration", "50s"]).start();
    until("the admin port", || {
        agent
            .admin("/ready")
            .or_else(|| agent.admin("/server_info"))
    });
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
    assert!(!agent.log().contains("draining for"), "{}", agent.log());
}

#[test]
fn term_during_a_hand_over_drains_and_loses_no_request() {
    let agent = Setup::new("hello")
        .args(&["--termination-drain-duration", "2s"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    let mut agent = agent;
    let load = super::support::Load::start(agent.listener.number);
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 1 started");
    agent.signal(libc::SIGTERM);
    agent.wait_log("draining for at most 2s");
    // The client leaves while the drain goes on.
    agent.wait_log("epoch 1 is LIVE");
    load.finish();
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
}

/// Its configuration has no admin port: nobody can ask it to drain, but it serves.
#[test]
fn a_proxy_without_an_admin_port_has_the_drain_time() {
    let setup = Setup::new("hello");
    let mut configuration = setup.configuration("hello");
    configuration.as_object_mut().unwrap().remove("admin");
    setup.write("envoy.json", &configuration.to_string());
    let mut agent = setup.start();
    until("an answer", || agent.get().ok());
    // Workers listen some milliseconds before Envoy's memory says so.
    agent.wait_log("no answer at ");
    agent.signal(libc::SIGTERM);
    agent.wait_log("stop requested by SIGTERM, draining");
    agent.wait_log("cannot ask the proxy to drain, waiting the drain time instead");
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
}

#[test]
fn a_second_term_skips_the_drain() {
    let mut agent = Setup::new("hello")
        .args(&["--termination-drain-duration", "10m"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    agent.signal(libc::SIGTERM);
    agent.wait_log("draining for at most 600s");
    agent.signal(libc::SIGINT);
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
}

#[test]
fn quit_does_not_drain() {
    let mut agent = Setup::new("hello")
        .args(&["--termination-drain-duration", "10m"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    agent.signal(libc::SIGQUIT);
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    assert!(!agent.log().contains("draining for"));
}

/// A stopped Envoy obeys nothing but KILL, and its admin port is silent.
#[test]
fn a_proxy_that_obeys_nothing_is_killed_and_the_code_is_137() {
    let mut agent = Setup::new("hello")
        .args(&["--kill-timeout", "300ms"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    super::support::kill(agent.proxy_pid(0), libc::SIGSTOP);
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(137), "{}", agent.log());
    let log = agent.log();
    assert!(
        log.contains("cannot ask the proxy to drain, waiting the drain time instead"),
        "{log}"
    );
    assert!(
        log.contains("the proxy did not stop in time, killing it"),
        "{log}"
    );
}

/// Envoy is asked for the graceful drain, and goes on answering meanwhile.
#[test]
fn the_proxy_answers_while_it_drains() {
    let mut agent = Setup::new("hello")
        .args(&["--termination-drain-duration", "3s"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    agent.signal(libc::SIGTERM);
    agent.wait_log("draining for at most 3s");
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    assert!(
        !agent.log().contains("cannot ask the proxy to drain"),
        "{}",
        agent.log()
    );
}

/// A gateway tells whoever asks for its health that it goes, before it drains.
#[test]
fn a_router_fails_its_health_check_while_it_drains() {
    let mut agent = Setup::new("hello")
        .args(&["router", "--termination-drain-duration", "3s"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    assert!(
        agent
            .admin("/ready")
            .is_some_and(|body| body.contains("LIVE"))
    );
    agent.signal(libc::SIGTERM);
    until("503", || {
        get(agent.admin.number, "/ready")
            .err()?
            .contains("503")
            .then_some(())
    });
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
}

/// The grace period of the pod, when it is known, is compared with the agent's own timeline.
#[test]
fn a_timeline_longer_than_the_grace_period_is_warned_of() {
    let script = tempfile::NamedTempFile::new().unwrap();
    fs::write(script.path(), "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(script.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = script.into_temp_path();
    let setup = Setup::bare(&path).env("TERMINATION_GRACE_PERIOD_SECONDS", "30");
    let custom = setup.path("cert.pem");
    let setup = setup.args(&["--termination-drain-duration", "28s"]);
    let mut agent = setup.arg("--custom-config-file").arg(custom).start();
    agent.wait_log("warn\tthe end may take 33s, longer than the grace period of 30s");
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
}
