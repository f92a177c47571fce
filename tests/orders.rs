//! What the status port is told to do, and what it says of itself: the drain, the end, `/status`, the page.

use std::fs;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::client::{Reply, ask, asked, request};
use super::support::{Agent, Setup, get, is_alive, quick, until};

fn json(agent: &Agent) -> Value {
    let reply = agent.status("/status");
    assert_eq!(reply.status, 200);
    assert!(
        reply.head.contains("Content-Type: application/json"),
        "{}",
        reply.head
    );
    serde_json::from_slice(&reply.body).unwrap()
}

#[test]
fn while_it_drains_it_says_so_until_the_very_end() {
    let mut agent = Setup::new("hello")
        .args(&["--termination-drain-duration", "3s"])
        .start();
    agent.wait_readiness(200, "ready");
    let (port, proxy) = (agent.status.number, agent.proxy_pid(0));
    let asked = Instant::now();
    agent.signal(libc::SIGTERM);
    agent.wait_readiness(503, "draining");
    let mut answers = 0;
    // The one thing that may come instead is that nobody listens any more.
    let end = loop {
        match ask(port, &request("GET /healthz/ready", "")) {
            Ok(reply) => assert_eq!((reply.status, reply.text().as_str()), (503, "draining\n")),
            Err(error) => break error,
        }
        answers += 1;
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(asked.elapsed() >= Duration::from_secs(3), "{end:?}");
    assert!(answers > 20, "{answers}");
    assert!(!is_alive(proxy), "the port went before the proxy");
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    assert_eq!(agent.log().matches("not ready: draining").count(), 1);
}

#[test]
fn post_drain_drains_and_stays_and_a_later_term_does_not_drain_again() {
    let mut agent = Setup::new("hello")
        .args(&["--termination-drain-duration", "50s"])
        .start();
    agent.wait_readiness(200, "ready");
    let reply = asked(agent.status.number, "POST /drain");
    assert_eq!((reply.status, reply.text().as_str()), (200, "draining\n"));
    agent.wait_readiness(503, "draining");
    let proxy = agent.proxy_pid(0);
    until("a listener that drains", || {
        let stats = agent.admin("/stats?filter=listener_manager.total_listeners_draining")?;
        let drained = stats.contains("draining: 1");
        // The graceful drain answers, and says that the connection ends.
        let answer = get(agent.listener.number, "/");
        (drained || answer.is_ok()).then_some(())
    });
    assert_eq!(json(&agent)["state"], "draining");
    assert_eq!(json(&agent)["ready"], false);
    // Once is enough.
    assert_eq!(asked(agent.status.number, "POST /drain").status, 200);
    assert!(is_alive(proxy) && agent.child.try_wait().unwrap().is_none());
    let told = Instant::now();
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    assert!(
        told.elapsed() < Duration::from_secs(20),
        "it drained again:\n{}",
        agent.log()
    );
}

#[test]
fn post_quitquitquit_ends_without_a_drain() {
    let mut agent = Setup::new("hello")
        .args(&["--termination-drain-duration", "50s"])
        .start();
    agent.wait_readiness(200, "ready");
    let reply = asked(agent.status.number, "POST /quitquitquit");
    let told = Instant::now();
    assert_eq!((reply.status, reply.text().as_str()), (200, "stopping\n"));
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    assert!(told.elapsed() < Duration::from_secs(20), "{}", agent.log());
    assert!(!agent.log().contains("draining for"), "{}", agent.log());
}

/// Where TERM would say 143.
#[test]
fn post_quitquitquit_before_anything_was_live_is_0_too() {
    let setup = Setup::bare(&super::support::envoy()).args(&["--discovery-address", "127.0.0.1:1"]);
    let prometheus = super::support::port();
    let mut agent = setup
        .env("ENVOY_PROMETHEUS_PORT", &prometheus.number.to_string())
        .start();
    agent.wait_readiness(503, "CDS: no update yet (is the control plane there?)");
    assert_eq!(asked(agent.status.number, "POST /quitquitquit").status, 200);
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
}

/// An address of this machine that is not loopback.
fn own_address() -> Option<SocketAddr> {
    // Nothing is sent by that.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .filter(|address| !address.ip().is_loopback())
}

#[test]
fn orders_are_posts_from_loopback_and_nothing_else() {
    let agent = Setup::new("hello").start();
    agent.wait_readiness(200, "ready");
    let port = agent.status.number;
    for path in ["/quitquitquit", "/drain"] {
        for method in ["GET", "HEAD", "PUT"] {
            let reply = asked(port, &format!("{method} {path}"));
            assert_eq!(reply.status, 405, "{method} {path}");
            assert!(reply.head.contains("\r\nAllow: POST\r\n"), "{}", reply.head);
        }
        let page = request(&format!("POST {path}"), "Origin: http://evil.example\r\n");
        assert_eq!(ask(port, &page).unwrap().status, 403);
        if let Some(own) = own_address() {
            let mut stream = TcpStream::connect((own.ip(), port)).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(30)))
                .unwrap();
            let bytes = request(&format!("POST {path}"), "");
            std::io::Write::write_all(&mut stream, bytes.as_bytes()).unwrap();
            assert_eq!(Reply::read(&mut stream).unwrap().status, 403);
        }
    }
    assert_eq!(asked(port, "POST /healthz/ready").status, 405);
    assert_eq!(asked(port, "GET /nothing").status, 404);
    assert_eq!(agent.readiness(), (200, "ready".to_owned()));
    agent.stop();
}

/// The sockets on which a process listens.
fn listening(pid: u32) -> Vec<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|table| {
            let text = fs::read_to_string(table).unwrap_or_default();
            let lines = text.lines().skip(1).map(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                (words[3] == "0A").then(|| format!("socket:[{}]", words[9]))
            });
            lines.flatten().collect::<Vec<_>>()
        })
        .collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .filter(|link| inodes.contains(link))
        .collect()
}

#[test]
fn status_port_0_listens_on_nothing() {
    let with = Setup::new("hello").start();
    with.wait_log("epoch 0 is LIVE");
    assert_eq!(listening(with.child.id()).len(), 1);
    with.stop();
    let without = Setup::new("hello").args(&["--status-port", "0"]).start();
    without.wait_log("epoch 0 is LIVE");
    assert_eq!(listening(without.child.id()), Vec::<String>::new());
    assert_eq!(without.get().as_deref(), Ok("hello"));
    without.stop();
}

#[test]
fn a_status_port_that_is_taken_is_71_and_no_proxy_is_started() {
    let setup = Setup::new("hello");
    let port = setup.status_port();
    let taken = std::net::TcpListener::bind(("0.0.0.0", port)).unwrap();
    let mut agent = setup.start();
    assert_eq!(agent.wait().code(), Some(71));
    let log = agent.log();
    assert!(
        log.contains(&format!("cannot listen on status port [::]:{port}: ")),
        "{log}"
    );
    assert!(!log.contains("epoch 0"), "{log}");
    assert!(!agent.path("run/envoy-rev0.json").exists());
    drop(taken);
}

/// Asked all the while, each answer true in itself.
#[test]
fn status_tells_the_truth_through_a_rotation() {
    let agent = Setup::new("hello").start();
    agent.wait_readiness(200, "ready");
    let first = json(&agent);
    for (field, expected) in [("state", "live"), ("reason", "ready")] {
        assert_eq!(first[field], expected, "{first}");
    }
    assert_eq!(
        (&first["ready"], &first["schema"]),
        (&Value::Bool(true), &1.into())
    );
    assert!(
        first["version"].is_string() && first["retry_budget"] == 10,
        "{first}"
    );
    assert!(first["companions"].as_array().unwrap().is_empty());
    assert!(first["events"].as_array().unwrap().len() >= 3, "{first}");
    let epochs = first["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 1);
    assert_eq!(epochs[0]["pid"], agent.proxy_pid(0));
    assert_eq!(epochs[0]["why"], "start");
    agent.write("cert.pem", "second");
    let (mut states, mut pairs) = (Vec::new(), Vec::new());
    let last = until("the end of epoch 0", || {
        let status = json(&agent);
        assert_eq!(status["ready"], true, "{status}");
        let epochs = status["epochs"].as_array().unwrap();
        assert!((1..=2).contains(&epochs.len()), "{status}");
        states.push(status["state"].as_str().unwrap().to_owned());
        pairs.push(
            epochs
                .iter()
                .map(|epoch| format!("{} {}", epoch["epoch"], epoch["state"]))
                .collect::<Vec<_>>()
                .join(", "),
        );
        (epochs.len() == 1 && epochs[0]["epoch"] == 1).then_some(status)
    });
    states.dedup();
    pairs.dedup();
    assert_eq!(states, ["live", "restarting", "live"]);
    for pair in &pairs {
        let known = [
            r#"0 "live""#,
            r#"0 "live", 1 "starting""#,
            r#"1 "starting", 0 "live""#,
            r#"0 "draining", 1 "live""#,
            r#"1 "live", 0 "draining""#,
            r#"1 "live""#,
        ];
        assert!(known.contains(&pair.as_str()), "{pairs:?}");
    }
    assert_ne!(last["configuration"], first["configuration"]);
    assert_eq!(last["epochs"][0]["why"], "change");
    assert_eq!(last["epochs"][0]["pid"], agent.proxy_pid(1));
    let events = last["events"].as_array().unwrap();
    let said = |what: &str| {
        events
            .iter()
            .any(|event| event["what"].as_str().unwrap().starts_with(what))
    };
    for what in [
        "configuration changed",
        "epoch 1 is LIVE",
        "epoch 0 exited with code 0",
    ] {
        assert!(said(what), "no {what:?} in {last}");
    }
    agent.stop();
}

#[test]
fn the_page_is_html_and_needs_nothing_else() {
    let agent = Setup::new("hello").start();
    agent.wait_readiness(200, "ready");
    let reply = agent.status("/");
    assert_eq!(reply.status, 200);
    assert!(
        reply.head.contains("Content-Type: text/html"),
        "{}",
        reply.head
    );
    let page = reply.text();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert!(page.contains("<svg") && page.contains(&agent.proxy_pid(0).to_string()));
    for foreign in ["<script", "src=", "http://", "https://", "@import"] {
        assert!(!page.contains(foreign), "{foreign} in the page");
    }
    agent.stop();
}

/// Real-time signals are queued, and the kernel looks through the whole queue for each: nobody may hold up the agent so.
#[test]
fn a_queue_of_signals_holds_up_nothing() {
    quick("the end", Duration::from_secs(2), || {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("sleeper");
        fs::write(&script, "#!/bin/sh\nexec sleep 1000\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let mut agent = Setup::bare(&script).arg("--disable-hot-restart").start();
        agent.wait_log("at the end");
        let pid = i32::try_from(agent.child.id()).unwrap();
        agent.signal(libc::SIGSTOP);
        // As many as there may be, within limits: they are the user's, not the process's.
        for number in (0..45_000).map(|turn| 32 + turn % 33) {
            if sys::testing::queue_signal(pid, number).is_err() {
                break;
            }
        }
        agent.signal(libc::SIGTERM);
        agent.signal(libc::SIGCONT);
        assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
        let log = agent.log();
        assert_eq!(log.matches("signal 32 ignored").count(), 1, "{log}");
        assert_eq!(log.matches("signal 64 ignored").count(), 1, "{log}");
    });
}
