//! What a setting does to the real agent, and what is said of one that the system refuses.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use super::support::client::Reply;
use super::support::{Setup, get};

/// A proxy that does nothing, for ever.
fn sleeper(directory: &Path) -> PathBuf {
    let path = directory.join("sleeper");
    fs::write(&path, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A read-only root has no place for what is not needed; and what lies there belongs to somebody else.
#[test]
fn a_custom_file_needs_no_config_path_and_touches_none() {
    let agent = Setup::new("hello")
        .args(&["--config-path", "/proc/none"])
        .start();
    agent.wait_log("epoch 0 is LIVE");
    agent.stop();

    let setup = Setup::new("hello");
    let of_another = setup.path("run").join("envoy-rev0.json");
    fs::create_dir(setup.path("run")).unwrap();
    fs::write(&of_another, "{}").unwrap();
    let mut agent = setup.start();
    agent.wait_log("epoch 0 is LIVE");
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    assert!(of_another.exists(), "another agent's bootstrap was removed");
}

/// Started without the capability that a lower score takes.
#[test]
fn a_refused_oom_score_is_named_and_does_not_blame_the_proxy() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command
        .env_clear()
        .arg("proxy")
        .args(["--binary-path", "/bin/true", "--proxy-oom-score-adj=-1000"])
        .args(["--disable-hot-restart", "--config-path"])
        .arg(directory.path().join("run"))
        .stdin(Stdio::null());
    sys::testing::drop_sys_resource(&mut command);
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(71), "{log}");
    let last = log.lines().last().unwrap();
    assert!(
        last.contains(
            "cannot start /bin/true: --proxy-oom-score-adj is refused: Permission denied"
        ),
        "{log}"
    );
    assert!(!log.contains("in 0.2s"), "it was tried again: {log}");
}

/// An Envoy from before 1.15 knows neither parameter.
#[test]
fn a_drain_refused_with_its_parameters_is_asked_for_without() {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::bare(&sleeper(directory.path())).arg("--disable-hot-restart");
    let admin = TcpListener::bind(("127.0.0.1", setup.admin_port())).unwrap();
    let posts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&posts);
    // It ends with the test's process.
    thread::spawn(move || {
        for stream in admin.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let (status, body) = if line.starts_with("POST") {
                seen.lock().unwrap().push(line.clone());
                let known = !line.contains("graceful");
                (if known { "200 OK" } else { "400 Bad Request" }, "")
            } else {
                ("200 OK", "listener_manager.workers_started: 1\n")
            };
            let length = body.len();
            // An agent that has heard enough may be gone.
            drop(write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
        }
    });
    let custom = setup.path("cert.pem");
    let mut agent = setup.arg("--custom-config-file").arg(custom).start();
    agent.wait_log("epoch 0 is LIVE");
    agent.signal(libc::SIGTERM);
    agent.wait();
    let posts = posts.lock().unwrap();
    let paths: Vec<_> = posts
        .iter()
        .map(|line| line.split(' ').nth(1).unwrap())
        .collect();
    let expected = [
        "/drain_listeners?graceful&skip_exit",
        "/drain_listeners?graceful",
        "/drain_listeners",
    ];
    assert_eq!(paths, expected, "{}", agent.log());
    assert!(
        !agent.log().contains("cannot ask the proxy to drain"),
        "{}",
        agent.log()
    );
}

/// The pod's own address, where it has one.
fn own_address() -> Option<IpAddr> {
    // Nothing is sent by that.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

#[test]
fn variables_of_pilot_agent_without_a_flag_are_honoured() {
    let agent = Setup::new("hello")
        .env("METRICS_LOCALHOST_ACCESS_ONLY", "true")
        .env("PILOT_AGENT_MERGE_ENVOY_STATS", "false")
        .env("ENVOY_SKIP_DEPRECATED_LOGS", "true")
        .env("ISTIO_ENVOY_ENABLE_CORE_DUMP", "true")
        .env("COMPLIANCE_POLICY", "fips-140-2")
        .start();
    agent.wait_log("warn\tCOMPLIANCE_POLICY means nothing here");
    agent.wait_log("epoch 0 is LIVE");
    let metrics = get(agent.status.number, "/metrics").unwrap();
    assert!(metrics.contains("\npintle_ready "), "{metrics}");
    assert!(!metrics.contains("envoy_"), "{metrics}");
    // The real Envoy has taken them.
    let line = fs::read(format!("/proc/{}/cmdline", agent.proxy_pid(0))).unwrap();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let flags = " --enable-core-dump --skip-deprecated-logs ";
    assert!(line.contains(flags), "{line}");
    if let Some(own) = own_address() {
        let mut stream = TcpStream::connect((own, agent.status.number)).unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        assert_eq!(Reply::read(&mut stream).unwrap().status, 403);
    }
    agent.stop();
}
