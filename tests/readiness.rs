//! Readiness as kubelet sees it, with the real Envoy: which stage is named while it starts, that a restart never shows,
//! that a probe never hangs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::client::{Reply, ask, request, send};
use super::support::{Agent, Setup, configuration, direct, envoy, kill, port, quick, until};

/// A bootstrap that Envoy refuses.
const REFUSED: &str = r#"{"static_resources": {"listeners": [{"name": "no address"}]}}"#;

/// kubelet, impatient: asks every so often until it is stopped.
struct Poller {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Result<Reply, String>>>,
}

impl Poller {
    fn start(port: u16, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut answers: Vec<Result<Reply, String>> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                answers.push(ask(port, &request("GET /healthz/ready", "")));
                thread::sleep(pause);
            }
            answers
        });
        Self { stop, thread }
    }

    fn answers(self) -> Vec<Result<Reply, String>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    /// All of them were 200.
    fn finish(self) -> usize {
        let answers = self.answers();
        for answer in &answers {
            let good =
                matches!(answer, Ok(reply) if reply.status == 200 && reply.body == b"ready\n");
            assert!(good, "{answer:?}, one of {}", answers.len());
        }
        answers.len()
    }
}

/// A bootstrap with `clusters`, and more of the caller's.
fn bootstrap(setup: &Setup, clusters: Value, dynamic: Value) -> Value {
    let (admin, listener) = (setup.admin_port(), setup.listener_port());
    let mut document = configuration(admin, listener, direct("hello"), clusters);
    document["dynamic_resources"] = dynamic;
    document
}

fn from_file(path: &std::path::Path) -> Value {
    json!({"path_config_source": {"path": path.to_str().unwrap()}, "resource_api_version": "V3"})
}

/// What a file of resources holds.
fn resources(kind: &str, resources: &[Value]) -> String {
    let kind = format!("type.googleapis.com/{kind}");
    let typed = resources.iter().map(|resource| {
        let mut resource = resource.clone();
        resource["@type"] = json!(kind);
        resource
    });
    json!({"version_info": "1", "resources": typed.collect::<Vec<_>>()}).to_string()
}

const LISTENER: &str = "envoy.config.listener.v3.Listener";
const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

/// Writes a file of resources until Envoy, which may not watch it yet, has read it.
fn wait_with(agent: &Agent, (name, content): (&str, &str), status: u16, text: &str) {
    until(text, || {
        agent.write(name, content);
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            if agent.readiness() == (status, text.to_owned()) {
                return Some(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    });
}

#[test]
fn while_it_starts_the_stage_that_is_missing_is_named_and_then_it_is_ready_for_good() {
    let setup = Setup::new("hello");
    let poller = Poller::start(setup.status_port(), Duration::from_millis(2));
    let agent = setup.start();
    agent.wait_readiness(200, "ready");
    // Some more, that would show it if it went back.
    for _ in 0..100 {
        assert_eq!(agent.readiness(), (200, "ready".to_owned()));
    }
    let answers = poller.answers();
    let mut answers = answers.into_iter().skip_while(|answer| {
        answer
            .as_ref()
            .is_err_and(|error| error.starts_with("connect"))
    });
    let mut stages = Vec::new();
    for answer in answers.by_ref() {
        let reply = answer.unwrap();
        if reply.status == 200 {
            break;
        }
        assert_eq!(reply.status, 503);
        assert!(reply.head.contains("Content-Type: text/plain"), "{reply:?}");
        stages.push(reply.text());
    }
    stages.dedup();
    assert_eq!(
        stages.first().map(String::as_str),
        Some("epoch 0 is not LIVE\n")
    );
    for stage in &stages[1..] {
        let named = [
            "workers of epoch 0 have not started\n",
            "epoch 0 is not LIVE\n",
        ];
        assert!(named.contains(&stage.as_str()), "{stages:?}");
    }
    assert!(answers.all(|answer| answer.unwrap().status == 200));
    // On a change, not on every probe.
    let log = agent.log();
    assert_eq!(log.matches("info\tready\n").count(), 1, "{log}");
    assert_eq!(log.matches("not ready: ").count(), stages.len(), "{log}");
    agent.stop();
}

#[test]
fn head_is_answered_without_a_body() {
    let agent = Setup::new("hello").start();
    agent.wait_readiness(200, "ready");
    let reply = ask(agent.status.number, &request("HEAD /healthz/ready", "")).unwrap();
    assert_eq!((reply.status, reply.body.as_slice()), (200, &b""[..]));
    assert!(reply.head.contains("Content-Length: 6"), "{}", reply.head);
    let alive = agent.status("/healthz/live");
    assert_eq!((alive.status, alive.text().as_str()), (200, "alive\n"));
    agent.stop();
}

#[test]
fn certificates_that_are_waited_for_are_named() {
    let setup = Setup::new("hello").args(&["--control-plane-auth-policy", "MUTUAL_TLS"]);
    let late = setup.path("late.pem");
    let agent = setup
        .env("ISTIO_META_TLS_CLIENT_CERT_CHAIN", late.to_str().unwrap())
        .start();
    agent.wait_readiness(503, "waiting for certificates");
    assert_eq!(agent.status("/healthz/live").status, 200);
    assert!(!agent.log().contains("epoch 0 started"), "{}", agent.log());
    agent.write("late.pem", "certificate");
    agent.wait_readiness(200, "ready");
    agent.stop();
}

/// A program that opens no admin port is not Envoy yet, as far as anybody can tell.
#[test]
fn an_epoch_that_does_not_open_its_admin_port_is_not_live() {
    let script = tempfile::NamedTempFile::new().unwrap();
    fs::write(script.path(), "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(script.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let setup = Setup::bare(&script.into_temp_path().keep().unwrap());
    let custom = setup.path("cert.pem");
    let mut agent = setup.arg("--custom-config-file").arg(custom).start();
    agent.wait_readiness(503, "epoch 0 is not LIVE");
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
}

#[test]
fn a_control_plane_that_is_missing_is_named_with_the_generated_bootstrap() {
    let setup = Setup::bare(&envoy()).args(&["--discovery-address", "127.0.0.1:1"]);
    let prometheus = port();
    let mut agent = setup
        .env("ENVOY_PROMETHEUS_PORT", &prometheus.number.to_string())
        .start();
    agent.wait_readiness(503, "CDS: no update yet (is the control plane there?)");
    assert_eq!(agent.status("/healthz/live").status, 200);
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
}

#[test]
fn lds_and_cds_must_each_have_been_accepted_once() {
    let setup = Setup::new("unused");
    let (lds, cds) = (setup.path("lds.json"), setup.path("cds.json"));
    let dynamic = json!({"lds_config": from_file(&lds), "cds_config": from_file(&cds)});
    let mut document = bootstrap(&setup, json!([]), dynamic);
    // Sent once they are asked for; until then there is nothing that could be parsed.
    setup.write("lds.json", "nothing");
    setup.write("cds.json", "nothing");
    let mut listener = document["static_resources"]["listeners"][0].take();
    document["static_resources"]["listeners"] = json!([]);
    setup.write("envoy.json", &document.to_string());
    let agent = setup.start();
    agent.wait_readiness(503, "CDS: no update yet (is the control plane there?)");
    let bad = resources(CLUSTER, &[json!({"name": "bad", "type": "EDS"})]);
    wait_with(
        &agent,
        ("cds.json", &bad),
        503,
        "CDS: every update was rejected",
    );
    let good = resources(CLUSTER, &[json!({"name": "good", "connect_timeout": "1s"})]);
    let missing = "LDS: no update yet (is the control plane there?)";
    wait_with(&agent, ("cds.json", &good), 503, missing);
    let bad = resources(LISTENER, &[json!({"name": "no address"})]);
    wait_with(
        &agent,
        ("lds.json", &bad),
        503,
        "LDS: every update was rejected",
    );
    listener["name"] = json!("late");
    let good = resources(LISTENER, std::slice::from_ref(&listener));
    wait_with(&agent, ("lds.json", &good), 200, "ready");
    // One that is refused later changes nothing for those that were accepted.
    let bad = resources(LISTENER, &[listener, json!({"name": "no address"})]);
    agent.write("lds.json", &bad);
    until("the refusal", || {
        let stats = agent.admin("/stats?filter=listener_manager.lds.update_rejected")?;
        (!stats.contains("rejected: 1\n")).then_some(())
    });
    assert_eq!(agent.readiness(), (200, "ready".to_owned()));
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    agent.stop();
}

/// The routes of a listener that nobody sends.
#[test]
fn workers_that_have_not_started_are_named() {
    let setup = Setup::new("unused");
    let nowhere = json!([{
        "name": "nowhere", "type": "STATIC", "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "nowhere", "endpoints": [{"lb_endpoints": [{"endpoint":
            {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}]}]}
    }]);
    let mut document = bootstrap(&setup, nowhere, json!({}));
    let manager = &mut document["static_resources"]["listeners"][0]["filter_chains"][0]["filters"]
        [0]["typed_config"];
    manager.as_object_mut().unwrap().remove("route_config");
    manager["rds"] = json!({"route_config_name": "never", "config_source": {
        "initial_fetch_timeout": "0s", "resource_api_version": "V3",
        "api_config_source": {"api_type": "REST", "transport_api_version": "V3",
            "cluster_names": ["nowhere"], "refresh_delay": "60s"}}});
    setup.write("envoy.json", &document.to_string());
    let mut agent = setup.start();
    agent.wait_readiness(503, "workers of epoch 0 have not started");
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
}

#[test]
fn application_ports_must_be_listened_on_any_for_a_sidecar_all_for_a_router() {
    let none = port();
    let start = |role: &'static str, first: bool| {
        let setup = Setup::new("hello").arg(role);
        let mut ports = vec![none.number.to_string()];
        if first {
            ports.push(setup.listener_port().to_string());
        }
        setup
            .arg("--application-ports")
            .arg(ports.join(","))
            .start()
    };
    let missing = format!("no listener on application port {}", none.number);
    let agent = start("sidecar", false);
    agent.wait_readiness(503, &missing);
    agent.stop();
    let agent = start("sidecar", true);
    agent.wait_readiness(200, "ready");
    agent.stop();
    let agent = start("router", true);
    agent.wait_readiness(503, &missing);
    agent.stop();
}

/// Asked every 50 ms, from a first LIVE to the end of the last parent.
#[test]
fn a_hot_restart_and_a_rotation_are_never_seen() {
    let agent = Setup::new("hello").start();
    agent.wait_readiness(200, "ready");
    let poller = Poller::start(agent.status.number, Duration::from_millis(50));
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 1 is LIVE");
    agent.write("cert.pem", "second");
    agent.wait_log("epoch 2 is LIVE");
    agent.wait_log("epoch 1 exited with code 0");
    assert!(poller.finish() > 20);
    assert_eq!(agent.log().matches("ready\n").count(), 1, "{}", agent.log());
    agent.stop();
}

/// The parent goes on serving: whether its child is refused, or hangs and has taken the admin port away.
#[test]
fn a_child_that_fails_is_never_seen() {
    let setup = Setup::new("hello").args(&["--live-timeout", "1s", "--retry-budget", "1"]);
    let lds = setup.path("lds.json");
    let never = json!({"cds_config": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"},
        "ads_config": {"api_type": "GRPC", "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "nowhere"}}]},
        "lds_config": from_file(&lds)});
    let nowhere = json!([{
        "name": "nowhere", "type": "STATIC", "connect_timeout": "1s",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}}}},
        "load_assignment": {"cluster_name": "nowhere", "endpoints": [{"lb_endpoints": [{"endpoint":
            {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}]}]}
    }]);
    let never = bootstrap(&setup, nowhere, never).to_string();
    setup.write("lds.json", &resources(LISTENER, &[]));
    let agent = setup.start();
    agent.wait_readiness(200, "ready");
    let poller = Poller::start(agent.status.number, Duration::from_millis(50));
    agent.write("envoy.json", REFUSED);
    agent.wait_log("giving the new configuration up, keeping epoch 0");
    agent.write("envoy.json", &never);
    agent.wait_log("epoch 1 is not LIVE in time, killing it");
    agent.wait_log_times("giving the new configuration up", 2);
    // Its admin port has gone for good.
    until("a refused connection", || {
        agent.admin("/ready").is_none().then_some(())
    });
    assert_eq!(agent.readiness(), (200, "ready".to_owned()));
    agent.write("envoy.json", &agent.configuration("better").to_string());
    agent.wait_log("epoch 1 is LIVE");
    agent.wait_log("epoch 0 exited with code 0");
    assert!(poller.finish() > 20);
    agent.stop();
}

fn admin_errors(agent: &Agent) -> u64 {
    let text = agent.status("/metrics").text();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("pintle_admin_errors_total "));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

#[test]
fn a_stopped_envoy_is_not_ready_in_time_and_ten_probes_share_one_query() {
    let agent = Setup::new("hello").start();
    agent.wait_readiness(200, "ready");
    let before = admin_errors(&agent);
    let proxy = agent.proxy_pid(0);
    kill(proxy, libc::SIGSTOP);
    let mut queries = 0;
    let limit = Duration::from_millis(1500);
    for _ in 0..2 {
        quick("ten probes", limit, || {
            let probes: Vec<_> = (0..10)
                .map(|_| send(agent.status.number, &request("GET /healthz/ready", "")).unwrap())
                .collect();
            for mut probe in probes {
                let reply = Reply::read(&mut probe).unwrap();
                let said = (reply.status, reply.text());
                assert_eq!(said, (503, "admin port does not answer\n".to_owned()));
            }
            queries += 1;
        });
    }
    for path in ["/status", "/"] {
        let reply = quick(path, limit, || {
            queries += 1;
            agent.status(path)
        });
        assert!(
            reply.status == 200 && reply.text().contains("admin port does not answer"),
            "{reply:?}"
        );
    }
    // Whoever does not ask for the proxy is not held up by it.
    let alive = quick("live", Duration::from_millis(900), || {
        agent.status("/healthz/live")
    });
    assert_eq!(alive.status, 200);
    kill(proxy, libc::SIGCONT);
    agent.wait_readiness(200, "ready");
    assert_eq!(admin_errors(&agent), before + queries);
    let log = agent.log();
    assert_eq!(log.matches("info\tready\n").count(), 2, "{log}");
    assert_eq!(
        log.matches("not ready: admin port does not answer").count(),
        1,
        "{log}"
    );
    agent.stop();
}

#[test]
fn a_proxy_that_dies_is_not_ready_until_the_next_is() {
    let agent = Setup::new("hello").args(&["--retry-initial", "1s"]).start();
    agent.wait_readiness(200, "ready");
    kill(agent.proxy_pid(0), libc::SIGKILL);
    agent.wait_readiness(503, "no proxy runs");
    agent.wait_readiness(200, "ready");
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    agent.stop();
}

/// An admin port that somebody else has: nothing is known of the epoch.
#[test]
fn an_admin_port_without_envoy_behind_it_is_not_ready() {
    let setup = Setup::new("unused");
    let elsewhere = port();
    let mut document = setup.configuration("hello");
    document["admin"]["address"]["socket_address"]["port_value"] = json!(elsewhere.number);
    setup.write("envoy.json", &document.to_string());
    let mut agent = setup.args(&["--live-timeout", "1s"]).start();
    until("an answer", || agent.get().ok());
    agent.wait_readiness(503, "epoch 0 is not LIVE");
    // Workers listen some milliseconds before Envoy's memory says so.
    agent.wait_log("no answer at ");
    agent.signal(libc::SIGTERM);
    // Its shared memory tells that it serves.
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
}

/// What was found out about a process says nothing about the next one, whose epoch may have the same number.
#[test]
fn listeners_of_a_process_that_has_gone_do_not_make_the_next_one_ready() {
    let elsewhere = port();
    for restart in ["change", "crash"] {
        let setup = Setup::new("hello");
        let listener = setup.listener_port();
        let other = configuration(
            setup.admin_port(),
            elsewhere.number,
            direct("hello"),
            json!([]),
        );
        let setup = setup.arg("--application-ports").arg(listener.to_string());
        let agent = if restart == "change" {
            setup.arg("--disable-hot-restart").start()
        } else {
            // What is written is not noticed before the crash.
            setup.args(&["--cert-debounce", "1h"]).start()
        };
        agent.wait_readiness(200, "ready");
        // Twice, so that what was found out is known to be kept.
        assert_eq!(agent.readiness().0, 200);
        agent.write("envoy.json", &other.to_string());
        if restart == "crash" {
            kill(agent.proxy_pid(0), libc::SIGKILL);
        }
        agent.wait_log_times("epoch 0 is LIVE", 2);
        let missing = format!("no listener on application port {listener}");
        assert_eq!(agent.readiness(), (503, missing), "after a {restart}");
        agent.stop();
    }
}
