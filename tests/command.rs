//! The command line of the real binary.

use std::process::{Command, Output};

use super::support::{Setup, envoy, until};

fn pintle(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pintle"))
        .args(arguments)
        .env_clear()
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_shows_the_flags_and_the_exit_codes() {
    let output = pintle(&["proxy", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for word in [
        "--config-path",
        "--cert-debounce",
        "--proxy-user",
        "--disable-hot-restart",
        "64",
        "71",
        "78",
        "137",
        "143",
    ] {
        assert!(help.contains(word), "{word} in {help}");
    }
    assert_eq!(pintle(&["help"]).status.code(), Some(0));
}

#[test]
fn version_is_told_in_the_forms_of_pilot_agent() {
    let short = text(&pintle(&["version", "--short"]).stdout);
    assert_eq!(short.trim(), env!("CARGO_PKG_VERSION"));
    let json = text(&pintle(&["version", "-o", "json"]).stdout);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["clientVersion"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn usage_errors_are_64_and_name_the_nearest() {
    for (arguments, hint) in [
        (&["proxi"][..], "proxy"),
        (&["proxy", "--conectTimeout", "1s"], "--connect-timeout"),
        (&["proxy", "waypoint"], "waypoint"),
        (&["proxy", "--", "--base-id", "3"], "--base-id"),
        (&["init"], "CMD"),
    ] {
        let output = pintle(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        let error = text(&output.stderr);
        assert!(error.contains(hint), "{arguments:?}: {error}");
    }
}

/// Starts what an injector's list says, with the ports and paths of this test behind it; the last of two flags wins.
fn starts_with(list: &[&str]) {
    let prometheus = super::support::port();
    let setup = Setup::bare(&envoy());
    let own = [
        "--proxyAdminPort",
        &setup.admin_port().to_string(),
        "--configPath",
    ]
    .map(str::to_owned);
    let run = setup.path("run");
    // `bare` begins with `proxy sidecar`; the list's own words replace them.
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.env_clear().args(list).args(&own).arg(&run);
    command
        .arg("--binaryPath")
        .arg(envoy())
        .args(["--base-id", "auto", "--statusPort", "0"]);
    for (name, value) in [
        ("POD_NAME", "p1"),
        ("POD_NAMESPACE", "ns1"),
        ("INSTANCE_IP", "10.1.2.3"),
        ("ISTIO_META_POD_NAME", "p1"),
        ("ISTIO_META_INTERCEPTION_MODE", "REDIRECT"),
        ("ISTIO_METAJSON_LABELS", "{\"app\":\"x\"}\n"),
        ("ENVOY_PROMETHEUS_PORT", &prometheus.number.to_string()),
    ] {
        command.env(name, value);
    }
    let log = std::fs::File::create(setup.path("log")).unwrap();
    let mut child = command
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let port = setup.admin_port();
    let info = until("Envoy's admin port", || {
        if child.try_wait().unwrap().is_some() {
            panic!(
                "ended: {}",
                std::fs::read_to_string(setup.path("log")).unwrap()
            );
        }
        super::support::get(port, "/server_info").ok()
    });
    assert!(info.contains("~10.1.2.3~p1.ns1~"), "{info}");
    super::support::kill(i32::try_from(child.id()).unwrap(), libc::SIGTERM);
    // No control plane, so it never was LIVE.
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn the_list_of_the_1_1_5_sidecar_injector_starts_a_proxy() {
    starts_with(&[
        "proxy",
        "sidecar",
        "--domain",
        "ns1.svc.cluster.local",
        "--configPath",
        "/etc/istio/proxy",
        "--binaryPath",
        "/usr/local/bin/envoy",
        "--serviceCluster",
        "x.ns1",
        "--drainDuration",
        "45s",
        "--parentShutdownDuration",
        "1m0s",
        "--discoveryAddress",
        "127.0.0.1:1",
        "--zipkinAddress",
        "zipkin.istio-system:9411",
        "--proxyLogLevel=warning",
        "--connectTimeout",
        "10s",
        "--proxyAdminPort",
        "15000",
        "--concurrency",
        "2",
        "--controlPlaneAuthPolicy",
        "NONE",
        "--statusPort",
        "15020",
        "--applicationPorts",
        "80,81",
        "--trust-domain=cluster.local",
    ]);
}

#[test]
fn the_list_of_the_1_1_5_gateway_starts_a_proxy() {
    starts_with(&[
        "proxy",
        "router",
        "--domain",
        "ns1.svc.cluster.local",
        "--log_output_level",
        "info",
        "--drainDuration",
        "45s",
        "--parentShutdownDuration",
        "1m0s",
        "--connectTimeout",
        "10s",
        "--serviceCluster",
        "istio-ingressgateway",
        "--zipkinAddress",
        "zipkin:9411",
        "--proxyAdminPort",
        "15000",
        "--statusPort",
        "15020",
        "--controlPlaneAuthPolicy",
        "NONE",
        "--discoveryAddress",
        "127.0.0.1:1",
    ]);
}

#[test]
fn the_list_of_the_1_5_sidecar_injector_starts_a_proxy() {
    starts_with(&[
        "proxy",
        "sidecar",
        "--domain",
        "ns1.svc.cluster.local",
        "--configPath",
        "/etc/istio/proxy",
        "--binaryPath",
        "/usr/local/bin/envoy",
        "--serviceCluster",
        "x.ns1",
        "--drainDuration",
        "45s",
        "--parentShutdownDuration",
        "1m0s",
        "--discoveryAddress",
        "127.0.0.1:1",
        "--proxyLogLevel=warning",
        "--proxyComponentLogLevel=misc:error",
        "--connectTimeout",
        "10s",
        "--proxyAdminPort",
        "15000",
        "--concurrency",
        "2",
        "--controlPlaneAuthPolicy",
        "NONE",
        "--dnsRefreshRate",
        "300s",
        "--statusPort",
        "15020",
        "--trust-domain=cluster.local",
        "--stsPort=15463",
        "--controlPlaneBootstrap=false",
    ]);
}

#[test]
fn the_commands_ask_the_real_agent_and_the_real_envoy() {
    let port = super::support::port();
    let (status, setup) = (port.number.to_string(), Setup::new("commands"));
    let admin = setup.admin_port().to_string();
    let url = format!("http://127.0.0.1:{status}/healthz/ready");
    let agent = setup.args(&["--status-port", &status]).start();
    let waited = pintle(&["wait", "--url", &url, "--period-millis", "50"]);
    assert_eq!(waited.status.code(), Some(0), "{}", text(&waited.stderr));
    assert_eq!(pintle(&["probe", "--url", &url]).status.code(), Some(0));
    let ask = |words: &[&str]| pintle(&[&["request", "--debug-port", &admin], words].concat());
    let live = ask(&["GET", "stats?filter=^server\\.live$"]);
    assert_eq!(text(&live.stdout), "server.live: 1\n");
    let dump = ask(&["GET", "/config_dump"]);
    let dump: serde_json::Value = serde_json::from_slice(&dump.stdout).unwrap();
    assert!(dump["configs"].is_array());
    let refused = ask(&["POST", "/logging?level=nope"]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
    let missing = ask(&["GET", "/nothing-here"]);
    assert_eq!(missing.status.code(), Some(0));
    assert!(!missing.stdout.is_empty());
    let table = pintle(&["status", "--status-port", &status]);
    let (table, pid) = (text(&table.stdout), agent.proxy_pid(0).to_string());
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(rows.contains(&vec!["ready", "yes"]), "{table}");
    let epoch = rows
        .iter()
        .find(|row| row.starts_with(&["0", &pid, "live"]));
    assert!(
        epoch.is_some_and(|row| row.ends_with(&["start"])),
        "{table}"
    );
    agent.stop();
}
