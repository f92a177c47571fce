//! The command line, and the end.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::client::*;
use crate::place::{OWN_PORTS, Place, entry, gudgeon, run, until};

fn ends(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), text)
}

#[test]
fn a_failed_start_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let root = tempfile::tempdir().unwrap();
    let here = root.path().to_str().unwrap();
    for (arguments, code, message) in [
        (vec!["discovery", "here"], 64, "unexpected argument 'here'"),
        (vec!["discovery", "--configdir", here], 64, "--config-dir"),
        (
            vec!["discovery", "--configDir", "/none"],
            78,
            "cannot read --configDir /none: No such file",
        ),
        (
            vec!["discovery", "--registries", "Eureka"],
            78,
            "cannot use --registries \"Eureka\"",
        ),
        (
            vec!["discovery", "--registries", "MCP"],
            78,
            "cannot serve anything: no registry",
        ),
        (
            vec!["discovery", "--registries", "Kubernetes"],
            78,
            "not in a cluster, and no --kubeconfig; --configDir reads them from files",
        ),
        (
            vec!["discovery", "--configDir", here, "--httpAddr", &taken],
            71,
            "cannot listen on --httpAddr",
        ),
        (
            vec!["discovery", "--configDir", here, "--grpcAddr", "nowhere"],
            78,
            "cannot use --grpcAddr \"nowhere\": want HOST:PORT",
        ),
        (
            vec!["discovery", "--configDir", here, "--mcpMaxMsgSize", "0"],
            78,
            "cannot use --mcpMaxMsgSize 0: want 1024 bytes or more",
        ),
        (
            vec!["discovery", "--configDir", here, "--mcpMaxMsgSize=1023"],
            78,
            "cannot use --mcpMaxMsgSize 1023: want 1024 bytes or more",
        ),
        (
            vec!["discovery", "--configDir", here, "--meshConfig", "/none"],
            78,
            "cannot read --meshConfig /none: No such file",
        ),
        (
            vec!["proxy-status", "--http-addr", "127.0.0.1:1"],
            1,
            "cannot GET http://127.0.0.1:1/debug/syncz: ",
        ),
        (vec!["request", "GET"], 64, "<PATH>"),
        (vec!["request", "GET", "x"], 64, "want a path"),
        (
            vec![
                "request",
                "GET",
                "/ready",
                "--http-addr",
                "http://127.0.0.1:8080",
            ],
            78,
            "cannot use --http-addr \"http://127.0.0.1:8080\": want HOST:PORT",
        ),
        (
            vec!["request", "GET", "/ready", "--http-addr", "127.0.0.1:1"],
            1,
            "cannot GET http://127.0.0.1:1/ready: ",
        ),
    ] {
        // The test's own arguments come last and win.
        let arguments = match arguments.split_first() {
            Some((&"discovery", rest)) => [&["discovery"][..], &OWN_PORTS, rest].concat(),
            _ => arguments,
        };
        let (found, text) = ends(&arguments);
        assert_eq!(found, code, "{arguments:?}: {text}");
        assert!(text.contains(message), "{arguments:?}: {text}");
    }
    let mut wrong = gudgeon();
    wrong
        .args(["discovery", "--configDir", here])
        .env("PILOT_DEBOUNCE_MAX", "long");
    assert_eq!(wrong.output().unwrap().status.code(), Some(78));
}

/// A registry that there is no way to is no reason not to serve the others.
#[test]
fn without_a_cluster_the_directory_is_served() {
    let entry = entry("b.example", 80, "HTTP", &[("10.0.0.1", 80)]);
    let discovery = Place::new()
        .with("config/b.yaml", &entry)
        .arg("--registries=Kubernetes,Mock")
        .start();
    assert_eq!(discovery.logged("no services are read from Kubernetes"), 1);
    assert_eq!(
        discovery.json("/debug/registryz")[0]["hostname"],
        "b.example"
    );
}

#[test]
fn flags_of_the_original_are_taken_in_both_spellings() {
    let discovery = Place::new()
        .arg("--plugins=authn,mixer")
        .arg("--keepalive-max-server-connection-age=1h")
        .arg("--consulserverInterval=2s")
        .arg("-trust-domain")
        .arg("td")
        .start();
    assert_eq!(
        discovery.logged("ignoring --plugins: it has no meaning here"),
        1
    );
    assert_eq!(discovery.logged("ignoring --consulserverInterval"), 1);
    let address = format!("127.0.0.1:{}", discovery.http);
    let (code, body) = ends(&["request", "GET", "/version", "--http-addr", &address]);
    assert_eq!(code, 0);
    assert!(body.contains("\"version\""), "{body}");
    // As `pintle request`: not found is an answer.
    assert_eq!(
        ends(&["request", "GET", "/none", "--http-addr", &address]),
        (0, "not found\n".to_owned())
    );
    let (code, text) = ends(&["request", "DELETE", "/ready", "--http-addr", &address]);
    assert_eq!(code, 1);
    assert!(
        text.contains("405 Method Not Allowed: method not allowed"),
        "{text}"
    );
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for arguments in [vec!["version"], vec!["--help"], vec!["completion", "bash"]] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = gudgeon().args(&arguments).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(
            stderr.starts_with("cannot write stdout: "),
            "{arguments:?}: {stderr}"
        );
    }
}

#[tokio::test]
async fn the_table_of_proxies_says_who_is_in_sync() {
    let discovery = Place::new()
        .with("config/b.yaml", &service("b", &["10.0.0.2"]))
        .start();
    let address = format!("127.0.0.1:{}", discovery.http);
    let table = || ends(&["proxy-status", "--http-addr", &address]);
    assert_eq!(table(), (0, "no proxy is connected\n".to_owned()));
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.settle(&[B], &["8080"]).await;
    soon("a row without anything behind", || {
        let (code, table) = table();
        let row = table.lines().nth(1).unwrap_or_default().to_owned();
        code == 0 && row.matches("SYNCED").count() == 4
    })
    .await;
    let (_, json) = ends(&["ps", "--http-addr", &address, "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["proxy"], discovery.json("/debug/syncz")[0]["proxy"]);
    // Another program's port.
    let (code, text) = ends(&[
        "proxy-status",
        "--http-addr",
        &format!("127.0.0.1:{}", discovery.grpc),
    ]);
    assert!(code == 1 && !text.is_empty(), "{text}");
}

/// Case 43.
#[tokio::test]
async fn at_the_end_it_is_not_ready_and_then_streams_are_closed() {
    let mut discovery = Place::new()
        .with("config/b.yaml", &service("b", &["10.0.0.2"]))
        .arg("--drainDuration=4s")
        .start();
    let mut stream = Sotw::open(discovery.grpc).await;
    let [cds, ..] = stream.settle(&[B], &["8080"]).await;
    let asked = Instant::now();
    discovery.signal("TERM");
    until("draining", || {
        (discovery.get("/ready") == (503, "draining\n".to_owned())).then_some(())
    });
    // New streams are still served.
    let mut late = Sotw::open(discovery.grpc).await;
    late.ask(CDS, &[]);
    assert_eq!(late.hear(CDS).await.version_info, cds.version_info);
    let ended = stream.end().await;
    assert_eq!(ended.code(), tonic::Code::Unavailable);
    assert!(asked.elapsed() >= Duration::from_secs(4));
    assert_eq!(discovery.wait().code(), Some(0));
}

#[tokio::test]
async fn a_second_term_stops_it_at_once() {
    let mut discovery = Place::new().arg("--drainDuration=1m").start();
    let _stream = Sotw::open(discovery.grpc).await;
    discovery.signal("TERM");
    until("draining", || {
        (discovery.get("/ready").0 == 503).then_some(())
    });
    let asked = Instant::now();
    discovery.signal("TERM");
    assert_eq!(discovery.wait().code(), Some(0));
    // Far from the minute of the first.
    assert!(asked.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_term_while_it_starts_ends_it() {
    let root = tempfile::tempdir().unwrap();
    let kubeconfig = root.path().join("kubeconfig");
    std::fs::write(&kubeconfig, crate::support::patient(root.path())).unwrap();
    let mut child = gudgeon()
        .arg("discovery")
        .args(OWN_PORTS)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .env("PATH", std::env::var_os("PATH").unwrap())
        .spawn()
        .unwrap();
    until("the program for credentials", || {
        assert!(child.try_wait().unwrap().is_none());
        root.path().join("started").exists().then_some(())
    });
    let sent = std::process::Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let ended = until("its end", || child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}
